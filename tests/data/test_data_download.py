import hashlib
import io
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPMessage
from pathlib import Path

import pytest

from secure_fedrec.data import DATASETS, DataFile, get, load, registry
from secure_fedrec.data.download import _HttpsRedirects, open_https
from secure_fedrec.errors import ConfigError, DataError

FILES = ("u.data", "u.user", "u.item")


class Body(io.BytesIO):
    """A response body with an announced length."""

    def __init__(self, content: bytes, length: int | None) -> None:
        super().__init__(content)
        self.length = length


def serve(content: bytes, length: int | None = None) -> Callable[[str], Body]:
    return lambda address: Body(content, length)


def pack(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in members.items():
            bundle.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def members(ml_100k: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The members of a made-up ML-100K archive, whose digests and sizes the registry expects."""
    contents = {name: (ml_100k / name).read_bytes() for name in FILES}
    files = tuple(
        DataFile(name=name, sha256=hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    )
    info = replace(DATASETS["ml-100k"], files=files, clients=3, items=3, ratings=4)
    monkeypatch.setattr(registry, "DATASETS", {**DATASETS, "ml-100k": info})
    return {f"ml-100k/{name}": content for name, content in contents.items()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "target"


def test_get_unpacks_the_expected_files_only(members: dict[str, bytes], target: Path) -> None:
    archive = pack(members | {"ml-100k/extra.pl": b"#!", "ml-100k/": b""})
    folder = get("ml-100k", target, serve(archive, len(archive)), progress=False)
    assert folder == target / "ml-100k"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert [path.name for path in target.iterdir()] == ["ml-100k"]
    assert len(load("ml-100k", target)) == 4


def test_get_uses_the_cache(
    members: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SECURE_FEDREC_DATA", raising=False)
    get("ml-100k", opener=serve(pack(members)), progress=False)
    assert len(load("ml-100k")) == 4


def test_progress_goes_to_standard_error(
    members: dict[str, bytes], target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    get("ml-100k", target, serve(pack(members)))
    captured = capsys.readouterr()
    assert not captured.out
    assert "ml-100k.zip" in captured.err


def test_a_sound_copy_is_kept_without_network(members: dict[str, bytes], target: Path) -> None:
    def unreachable(address: str) -> Body:
        raise AssertionError(address)

    get("ml-100k", target, serve(pack(members)), progress=False)
    assert get("ml-100k", target, unreachable, progress=False) == target / "ml-100k"


def test_another_folder_is_never_replaced(members: dict[str, bytes], target: Path) -> None:
    (target / "ml-100k").mkdir(parents=True)
    (target / "ml-100k" / "u.data").write_text("mine\n")
    with pytest.raises(DataError, match="move it away"):
        get("ml-100k", target, serve(pack(members)), progress=False)
    assert (target / "ml-100k" / "u.data").read_text() == "mine\n"


def assert_refused(archive: bytes, target: Path, problem: str, length: int | None = None) -> None:
    with pytest.raises(DataError, match=problem):
        get("ml-100k", target, serve(archive, length), progress=False)
    assert not list(target.iterdir())


def test_truncated_download(members: dict[str, bytes], target: Path) -> None:
    archive = pack(members)
    assert_refused(archive[:-9], target, "ended after .* bytes", len(archive))
    assert_refused(archive[:-9], target, "not a readable zip archive")


def test_corrupt_member(members: dict[str, bytes], target: Path) -> None:
    archive = bytearray(pack(members))
    archive[60] ^= 0xFF
    assert_refused(bytes(archive), target, "not a readable zip archive")


def test_not_an_archive(members: dict[str, bytes], target: Path) -> None:
    assert_refused(b"<html>Not found</html>", target, "not a readable zip archive")


def test_archive_without_a_file(members: dict[str, bytes], target: Path) -> None:
    del members["ml-100k/u.item"]
    assert_refused(pack(members), target, r"lacks a file.*u\.item")


def test_archive_with_another_file(members: dict[str, bytes], target: Path) -> None:
    members["ml-100k/u.data"] += b"3\t4\t4\t881250952\n"
    assert_refused(pack(members), target, r"not the published data set: u\.data: is damaged")


@pytest.mark.parametrize(
    "name", ["../evil", "ml-100k/../../evil", "/evil", "..\\evil", "C:\\evil", "\\\\host\\evil"]
)
def test_members_that_would_escape(members: dict[str, bytes], target: Path, name: str) -> None:
    assert_refused(pack(members | {name: b"x"}), target, "unsafe member")
    assert not list(target.parent.parent.rglob("*evil*"))


def test_symbolic_links(members: dict[str, bytes], target: Path) -> None:
    buffer = io.BytesIO(pack(members))
    with zipfile.ZipFile(buffer, "a") as bundle:
        link = zipfile.ZipInfo("ml-100k/link")
        link.external_attr = 0o120777 << 16
        bundle.writestr(link, "/etc/passwd")
    assert_refused(buffer.getvalue(), target, "unsafe member")


def test_size_limits(
    members: dict[str, bytes], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secure_fedrec.data.download._MEMBER_LIMIT", 10)
    assert_refused(pack(members), target, "unpacks to more than")
    monkeypatch.setattr("secure_fedrec.data.download._ARCHIVE_LIMIT", 10)
    assert_refused(pack(members), target, "the archive exceeds")


@pytest.mark.parametrize("error", [OSError("no route to host"), TimeoutError("timed out")])
def test_network_errors(members: dict[str, bytes], target: Path, error: OSError) -> None:
    def broken(address: str) -> Body:
        raise error

    with pytest.raises(DataError, match=f"the download failed .{error}") as caught:
        get("ml-100k", target, broken, progress=False)
    assert caught.value.path.startswith("https://files.grouplens.org/")
    assert not list(target.iterdir())


def test_unwritable_target(members: dict[str, bytes], tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        get("ml-100k", blocker / "below", serve(pack(members)), progress=False)


@pytest.mark.parametrize("name", ["synthetic", "ml-10m"])
def test_names_without_an_origin(name: str, target: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        get(name, target)
    assert caught.value.key == "data.name"


def test_only_https_is_opened() -> None:
    with pytest.raises(OSError, match="only https"):
        open_https("http://files.grouplens.org/datasets/movielens/ml-100k.zip")


def test_only_https_is_followed() -> None:
    request = urllib.request.Request("https://example.org/a")
    with pytest.raises(OSError, match="not https"):
        _HttpsRedirects().redirect_request(
            request,
            io.BytesIO(),
            302,
            "Found",
            HTTPMessage(),
            "http://example.org/b",
        )
