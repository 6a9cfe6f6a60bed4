import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter

from secure_fedrec.data import DATASETS, DataFile, get, load, registry
from secure_fedrec.errors import ConfigError, DataError

FILES = ("u.data", "u.user", "u.item")


Serve = Callable[..., None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Puts a body, an error or a redirect where the network is."""

    def put(
        content: bytes | Exception,
        length: int | None = None,
        *,
        status: int = 200,
        location: str | None = None,
    ) -> None:
        def send(_: HTTPAdapter, request: requests.PreparedRequest, **__: Any) -> object:
            assert request.url is not None and request.url.startswith("https://")
            if isinstance(content, Exception):
                raise content
            response = requests.Response()
            response.url, response.request, response.status_code = request.url, request, status
            if length is not None:
                response.headers["content-length"] = str(length)
            if location is not None and not request.url.endswith(location):
                response.status_code, response.headers["location"] = 302, location
            response.raw = urllib3.HTTPResponse(
                io.BytesIO(content), headers=response.headers, preload_content=False
            )
            return response

        monkeypatch.setattr(HTTPAdapter, "send", send)

    return put


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


def test_get_unpacks_the_expected_files_only(
    members: dict[str, bytes], target: Path, serve: Serve
) -> None:
    archive = pack(members | {"ml-100k/extra.pl": b"#!", "ml-100k/": b""})
    serve(archive, len(archive))
    folder = get("ml-100k", target, progress=False)
    assert folder == target / "ml-100k"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert [path.name for path in target.iterdir()] == ["ml-100k"]
    assert len(load("ml-100k", target)) == 4


def test_get_uses_the_cache(
    members: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SECURE_FEDREC_DATA", raising=False)
    serve(pack(members))
    get("ml-100k", progress=False)
    assert len(load("ml-100k")) == 4


def test_progress_goes_to_standard_error(
    members: dict[str, bytes], target: Path, capsys: pytest.CaptureFixture[str], serve: Serve
) -> None:
    archive = pack(members)
    for length in (None, len(archive)):
        serve(archive, length)
        get("ml-100k", target / str(length))
    captured = capsys.readouterr()
    assert not captured.out
    assert "ml-100k.zip" in captured.err


def test_a_sound_copy_is_kept_without_network(
    members: dict[str, bytes], target: Path, serve: Serve
) -> None:
    serve(pack(members))
    get("ml-100k", target, progress=False)
    serve(AssertionError("the network was asked"))
    assert get("ml-100k", target, progress=False) == target / "ml-100k"


def test_another_folder_is_never_replaced(
    members: dict[str, bytes], target: Path, serve: Serve
) -> None:
    serve(pack(members))
    (target / "ml-100k").mkdir(parents=True)
    (target / "ml-100k" / "u.data").write_text("mine\n")
    with pytest.raises(DataError, match="move it away"):
        get("ml-100k", target, progress=False)
    assert (target / "ml-100k" / "u.data").read_text() == "mine\n"


Refused = Callable[..., None]


@pytest.fixture
def assert_refused(target: Path, serve: Serve) -> Refused:
    """Downloads an archive, which is refused and leaves nothing behind."""

    def refused(archive: bytes, problem: str, length: int | None = None, **answer: Any) -> None:
        serve(archive, length, **answer)
        with pytest.raises(DataError, match=problem):
            get("ml-100k", target, progress=False)
        assert not list(target.iterdir())

    return refused


def test_truncated_download(members: dict[str, bytes], assert_refused: Refused) -> None:
    archive = pack(members)
    assert_refused(archive[:-9], "the download failed .*IncompleteRead", len(archive))
    assert_refused(archive[:-9], "not a readable zip archive")


def test_corrupt_member(members: dict[str, bytes], assert_refused: Refused) -> None:
    archive = bytearray(pack(members))
    archive[60] ^= 0xFF
    assert_refused(bytes(archive), "not a readable zip archive")


def test_not_an_archive(members: dict[str, bytes], assert_refused: Refused) -> None:
    assert_refused(b"<html>Not found</html>", "not a readable zip archive")


def test_archive_without_a_file(members: dict[str, bytes], assert_refused: Refused) -> None:
    del members["ml-100k/u.item"]
    assert_refused(pack(members), r"lacks a file.*u\.item")


def test_archive_with_another_file(members: dict[str, bytes], assert_refused: Refused) -> None:
    members["ml-100k/u.data"] += b"3\t4\t4\t881250952\n"
    assert_refused(pack(members), r"not the published data set: u\.data: is damaged")


@pytest.mark.parametrize(
    "name", ["../evil", "ml-100k/../../evil", "/evil", "..\\evil", "C:\\evil", "\\\\host\\evil"]
)
def test_members_that_would_escape(
    members: dict[str, bytes], target: Path, name: str, assert_refused: Refused
) -> None:
    assert_refused(pack(members | {name: b"x"}), "unsafe member")
    assert not list(target.parent.parent.rglob("*evil*"))


def test_symbolic_links(members: dict[str, bytes], assert_refused: Refused) -> None:
    buffer = io.BytesIO(pack(members))
    with zipfile.ZipFile(buffer, "a") as bundle:
        link = zipfile.ZipInfo("ml-100k/link")
        link.external_attr = 0o120777 << 16
        bundle.writestr(link, "/etc/passwd")
    assert_refused(buffer.getvalue(), "unsafe member")


def test_size_limits(
    members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, assert_refused: Refused
) -> None:
    monkeypatch.setattr("secure_fedrec.data.download._MEMBER_LIMIT", 10)
    assert_refused(pack(members), "unpacks to more than")
    monkeypatch.setattr("secure_fedrec.data.download._ARCHIVE_LIMIT", 10)
    assert_refused(pack(members), "the archive exceeds")


@pytest.mark.parametrize("error", [OSError("no route to host"), TimeoutError("timed out")])
def test_network_errors(
    members: dict[str, bytes], target: Path, error: OSError, serve: Serve
) -> None:
    serve(error)
    with pytest.raises(DataError, match=f"the download failed .{error}") as caught:
        get("ml-100k", target, progress=False)
    assert caught.value.path.startswith("https://files.grouplens.org/")
    assert not list(target.iterdir())


def test_unwritable_target(members: dict[str, bytes], tmp_path: Path, serve: Serve) -> None:
    serve(pack(members))
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        get("ml-100k", blocker / "below", progress=False)


@pytest.mark.parametrize("name", ["synthetic", "ml-10m"])
def test_names_without_an_origin(name: str, target: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        get(name, target)
    assert caught.value.key == "data.name"


def test_an_answer_that_is_none_is_named(
    members: dict[str, bytes], assert_refused: Refused
) -> None:
    assert_refused(b"", "the download failed .404 Client Error", status=404)


def test_only_https_is_followed(
    members: dict[str, bytes], target: Path, assert_refused: Refused, serve: Serve
) -> None:
    archive = pack(members)
    assert_refused(archive, "not https", location="http://files.grouplens.org/b.zip")
    assert_refused(archive, "not https", location="file:///etc/passwd")
    serve(archive, location="/elsewhere.zip")
    assert get("ml-100k", target, progress=False) == target / "ml-100k"


def test_an_origin_is_an_https_address() -> None:
    with pytest.raises(ConfigError, match="must be an https address"):
        replace(DATASETS["ml-100k"], origin="http://files.grouplens.org/ml-100k.zip")
