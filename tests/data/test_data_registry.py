import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from secure_fedrec.data import (
    DATASETS,
    DataFile,
    DatasetInfo,
    SyntheticConfig,
    cache_dir,
    load,
    locate,
    registry,
)
from secure_fedrec.errors import ConfigError, DataError


def known(monkeypatch: pytest.MonkeyPatch, info: DatasetInfo) -> None:
    monkeypatch.setattr(registry, "DATASETS", {**DATASETS, info.name: info})


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the registry expect the made-up ML-100K folder."""
    info = replace(DATASETS["ml-100k"], files=(DataFile(name="u.data"),), clients=3, items=3)
    known(monkeypatch, replace(info, ratings=4))


def test_names() -> None:
    movies = {"ml-100k", "ml-1m", "ml-latest-small"}
    assert set(DATASETS) == movies | {"lastfm-2k", "douban-book", "synthetic"}
    for name, info in DATASETS.items():
        assert info.name == name
        assert all(len(file.sha256) == 64 for file in info.files if file.sha256)


@pytest.mark.parametrize("name", ["ml-10m", "", "ML-100K"])
def test_unknown_name_lists_the_choices(name: str) -> None:
    with pytest.raises(ConfigError, match="ml-latest-small") as caught:
        load(name)
    assert caught.value.key == "data.name"
    assert caught.value.choices == tuple(DATASETS)


@pytest.mark.usefixtures("tiny")
def test_folder_or_its_parent(ml_100k: Path) -> None:
    assert locate("ml-100k", ml_100k) == locate("ml-100k", ml_100k.parent) == ml_100k
    renamed = ml_100k.rename(ml_100k.parent / "mine")
    assert locate("ml-100k", renamed) == renamed
    assert len(load("ml-100k", renamed)) == 4


@pytest.mark.usefixtures("tiny")
def test_folder_from_the_environment(ml_100k: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FEDREC_DATA", str(ml_100k.parent))
    assert locate("ml-100k") == ml_100k
    with pytest.raises(DataError):
        locate("ml-100k", ml_100k.parent / "elsewhere")


@pytest.mark.usefixtures("tiny")
def test_folder_from_the_cache(ml_100k: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECURE_FEDREC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(ml_100k.parent / "cache"))
    shutil.copytree(ml_100k, ml_100k.parent / "cache" / "secure-fedrec" / "ml-100k")
    assert locate("ml-100k") == cache_dir() / "ml-100k"


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_cache_in_the_home_folder(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_dir() == Path.home() / ".cache" / "secure-fedrec"


@pytest.mark.parametrize("name", ["ml-100k", "ml-1m", "ml-latest-small"])
def test_missing_set_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(name, tmp_path)
    for hint in (str(tmp_path), f"secure-fedrec data get {name}", "--data-dir"):
        assert hint in str(caught.value)
    assert "SECURE_FEDREC_DATA" in str(caught.value)


def test_digest_mismatch_names_file_and_digests(ml_100k: Path) -> None:
    with pytest.raises(DataError, match="damaged or truncated") as caught:
        load("ml-100k", ml_100k)
    assert caught.value.path == str(ml_100k / "u.data")
    assert "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490" in str(caught.value)


def test_verification_can_be_switched_off(ml_100k: Path) -> None:
    assert len(load("ml-100k", ml_100k, verify=False)) == 4


@pytest.mark.usefixtures("tiny")
def test_sound_but_short_file_is_caught_by_its_size(ml_100k: Path) -> None:
    path = ml_100k / "u.data"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(DataError, match="3 ratings, expected 4"):
        load("ml-100k", ml_100k)


@pytest.mark.usefixtures("tiny")
def test_missing_file_is_named(ml_100k: Path) -> None:
    (ml_100k / "u.item").unlink()
    with pytest.raises(DataError, match=r"u\.item"):
        load("ml-100k", ml_100k)


def test_synthetic() -> None:
    assert load("synthetic", synthetic=SyntheticConfig(clients=10, seed=0)).n_clients == 10


def test_synthetic_settings_belong_to_the_synthetic_set(ml_100k: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.synthetic"):
        load("synthetic")
    with pytest.raises(ConfigError, match=r"data\.synthetic"):
        load("ml-100k", ml_100k, synthetic=SyntheticConfig(seed=0))
    with pytest.raises(ConfigError, match="generated"):
        locate("synthetic")


def test_info_is_checked() -> None:
    with pytest.raises(ConfigError, match="https"):
        replace(DATASETS["ml-1m"], origin="http://example.org/ml-1m.zip")
    with pytest.raises(ConfigError, match="must be given together"):
        replace(DATASETS["ml-1m"], marker=None)


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in DATASETS if name != "synthetic"])
def test_real_sets_are_as_published(real_data: Path, name: str) -> None:
    assert load(name, real_data).name == name


@pytest.mark.data
def test_real_set_cut_at_a_line_end_is_refused(real_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ml-100k"
    shutil.copytree(real_data / "ml-100k", folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)  # the original may be read-only
    path = folder / "u.data"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(DataError, match="damaged or truncated"):
        load("ml-100k", folder)
