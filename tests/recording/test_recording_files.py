"""Files that are not what they seem, public facts and truths that do not fit: refused by all."""

import json
import os
import shutil
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.npz import read_npz
from secure_fedrec.errors import TranscriptError
from secure_fedrec.recording import Recording, validate
from secure_fedrec.recording.parquet_form import from_parquet, to_parquet
from tests.recording.federations import matrix_factorization, ratings_of, start

CLIENTS, ITEMS = 12, 9
MINUTE = 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    users, vectors = start(CLIENTS, ITEMS, rank=3, seed=1)
    settings: dict[str, Any] = {"rounds": 2, "rate": 0.1, "decay": 0.9, "pull": 0.01}
    stars = ratings_of(CLIENTS, ITEMS, seed=2)
    recording = matrix_factorization(stars, users, vectors, directory=folder / "r", **settings)
    recording.save_truth(folder / "truth.npz")
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    """A folder with a recording ``r`` and its truth, to be spoilt."""
    shutil.copytree(sound, tmp_path / "c")
    return tmp_path / "c"


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    """Opening a pipe that nobody writes to would wait for ever."""

    def late(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(MINUTE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused(copy: Path) -> str:
    """What ``validate`` and an attack's reading both say."""
    with pytest.raises(TranscriptError) as one:
        validate(copy / "r", truth=copy / "truth.npz")
    with pytest.raises(TranscriptError) as other:
        Recording.open(copy / "r", truth=copy / "truth.npz")
    assert str(one.value) == str(other.value)
    return str(one.value)


def a_block(copy: Path) -> Path:
    return copy / "r" / "rounds" / "000001" / "upload-000.npz"


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _linked(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [_pipe, _linked, _folder])
@pytest.mark.parametrize(
    "place", ["r/rounds/000001/upload-000.npz", "r/transcript.json", "truth.npz"]
)
def test_what_is_not_a_regular_file_is_refused_before_it_is_opened(
    copy: Path, place: str, spoil: Callable[[Path], None]
) -> None:
    """A pipe, a link or a folder in the place of a block, the manifest or the truth."""
    spoil(copy / place)
    assert Path(place).name in refused(copy)


def test_a_pipe_is_not_waited_for_by_the_reader_of_arrays(tmp_path: Path) -> None:
    """Whoever puts a pipe there after the check gets an error as well."""
    os.mkfifo(tmp_path / "x.npz")
    with pytest.raises(OSError, match="not a regular file"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("change", ["root", "rounds", "beside", "number"])
def test_folders_and_names_are_those_of_a_recording(copy: Path, change: str) -> None:
    """A linked root, a file of rounds, a stray file, a block with a number of another form."""
    if change == "root":
        _linked(copy / "r")
    elif change == "rounds":
        shutil.rmtree(copy / "r" / "rounds")
        (copy / "r" / "rounds").write_text("x")
    elif change == "beside":
        (copy / "r" / "notes.txt").write_text("x")
    else:
        a_block(copy).rename(a_block(copy).with_name("upload-0.npz"))
    refused(copy)


def test_a_block_with_two_arrays_of_one_name_is_refused(copy: Path) -> None:
    """Readers of zip files do not agree which of them counts."""
    with zipfile.ZipFile(a_block(copy), "a") as archive, pytest.warns(UserWarning):
        archive.writestr("rows.npy", archive.read("rows.npy"))
    assert "one name" in refused(copy)


@pytest.mark.parametrize("inside", ["x", ".", "..", "../r/y/z"])
def test_a_conversion_into_its_own_input_is_refused(copy: Path, inside: str) -> None:
    """Nothing is written, and the recording is what it was."""
    pytest.importorskip("pyarrow")
    before = sorted(copy.rglob("*"))
    with pytest.raises(TranscriptError):
        to_parquet(copy / "r", copy / "r" / inside)
    assert sorted(copy.rglob("*")) == before
    to_parquet(copy / "r", copy / "p")
    with pytest.raises(TranscriptError):
        from_parquet(copy / "p", copy / "p" / "x")
    assert not (copy / "p" / "x").exists()


def fact(copy: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = copy / "r" / "transcript.json"
    manifest = json.loads(path.read_text())
    change(manifest["public"])
    path.write_text(json.dumps(manifest))


FACTS: tuple[tuple[str, Callable[[dict[str, Any]], object]], ...] = (
    ("rating_levels", lambda p: p.update(rating_levels=[1, 10**400])),
    ("rating_levels", lambda p: p.update(rating_levels=[True, 2])),
    ("rating_levels", lambda p: p.update(rating_levels=[-1.7e308, 1.7e308])),
    ("algorithm.private", lambda p: p["algorithm"].update(private=5)),
    ("algorithm.private", lambda p: p["algorithm"].update(private=["a"])),
    ("algorithm.federated", lambda p: p["algorithm"].update(federated=[{"name": "a"}])),
    ("algorithm.regularization", lambda p: p["algorithm"].update(regularization="x")),
    ("algorithm.regularization", lambda p: p["algorithm"].update(regularization=float("nan"))),
    ("algorithm.temperature", lambda p: p["algorithm"].update(temperature=[])),
    ("algorithm.biases", lambda p: p["algorithm"].update(biases={"a": 1})),
    ("algorithm.local", lambda p: p["algorithm"].update(local="x")),
    ("algorithm.x", lambda p: p["algorithm"].update(x=float("inf"))),
    ("algorithm.weight_position", lambda p: p["algorithm"].update(weight_position=-1)),
    ("algorithm.private_input", lambda p: p["algorithm"].update(private_input=[1])),
    ("protection.traits.ratio", lambda p: p["protection"].update(traits={"ratio": "x"})),
    ("denoisers", lambda p: p["protection"].update(traits={"denoisers": [True]})),
    ("protection.layers", lambda p: p["protection"].update(layers=7)),
    ("private_input", lambda p: p.update(private_input=[1])),
    ("item_table", lambda p: p.update(item_table=[1])),
    ("n_clients", lambda p: p.update(n_clients=10**9)),
    ("n_clients", lambda p: p.update(n_clients=2**31)),
    ("n_items", lambda p: p.update(n_items=10**9)),
    ("of 5 items", lambda p: p.update(n_items=5)),
    ("negatives", lambda p: p.update(negatives=2**31 - 1)),
    ("block items", lambda p: p["blocks"][0].update(size=10**9, rows=10**9)),
    ("blocks", lambda p: p["blocks"][0].update(width=2**31)),
)


@pytest.mark.parametrize(("said", "change"), FACTS)
def test_public_facts_of_another_form_or_size_are_refused(
    copy: Path, said: str, change: Callable[[dict[str, Any]], object]
) -> None:
    """By name, whoever reads them: nothing is left for an attack to stumble over."""
    fact(copy, change)
    found = refused(copy)
    assert "transcript.json" in found
    assert said in found


def test_there_is_one_server(copy: Path) -> None:
    """A message for server number 5 is not a message of the format."""
    with np.load(a_block(copy)) as archive:
        columns = dict(archive)
    columns["receivers"] = columns["receivers"] + 5
    np.savez(a_block(copy), **columns)
    assert "receivers" in refused(copy)


PRIVATE = "rounds.1.private-user_vectors.values"
OF_TEN = ("ratings.indptr", "ratings.items", "ratings.ratings")


def of_ten(columns: dict[str, Any]) -> None:
    """Ratings of fewer clients than the transcript has."""
    ends = columns["ratings.indptr"][:11]
    columns["ratings.indptr"] = ends
    for name in OF_TEN[1:]:
        columns[name] = columns[name][: ends[-1]]
    for name in [name for name in columns if name.startswith("rounds")]:
        del columns[name]


TRUTHS: tuple[tuple[str, Callable[[dict[str, Any]], object]], ...] = (
    ("10 clients", of_ten),
    ("different numbers", lambda c: c.update({"secrets.labels.g": np.zeros(3, dtype=int)})),
    ("different numbers", lambda c: c.update({PRIVATE: np.zeros((3, 2))})),
    ("not finite", lambda c: c.update({PRIVATE: np.full((CLIENTS, 2), np.nan)})),
    ("float64", lambda c: c.update({PRIVATE: np.zeros(CLIENTS)})),
    ("not finite", lambda c: c.update({"ratings.ratings": c["ratings.ratings"] * np.nan})),
    ("ratings.items", lambda c: c.update({"ratings.items": c["ratings.items"].astype(float)})),
    ("n_items", lambda c: c.update({"ratings.n_items": np.array(10**9)})),
    ("n_items", lambda c: c.update({"ratings.n_items": np.array(-3)})),
    ("items", lambda c: c.update({"ratings.n_items": np.array(ITEMS + 1)})),
    ("KIND.NAME", lambda c: c.update({"secrets.labels": np.zeros(CLIENTS)})),
    ("secrets.labels.g", lambda c: c.update({"secrets.labels.g": np.array(["a"] * CLIENTS)})),
    ("no round", lambda c: c.update({f"rounds.{'9' * 5000}.own.senders": np.zeros(3)})),
    ("own", lambda c: c.update({"rounds.2.own.senders": np.zeros(3)})),
    ("is not a block", lambda c: c.update({"rounds.1.upload.senders": np.zeros(3)})),
    ("version", lambda c: c.update({"version": np.array([1, 1])})),
)


@pytest.mark.parametrize(("said", "change"), TRUTHS)
def test_truths_that_do_not_fit_are_refused(
    copy: Path, said: str, change: Callable[[dict[str, Any]], object]
) -> None:
    """Of another federation, of other types, or of numbers that nothing is scored against."""
    with np.load(copy / "truth.npz") as archive:
        columns = dict(archive)
    change(columns)
    np.savez(copy / "truth.npz", **columns)
    found = refused(copy)
    assert "truth.npz" in found
    assert said in found


def test_a_compressed_truth_is_refused(copy: Path) -> None:
    """It could be larger than any multiple of the file."""
    with np.load(copy / "truth.npz") as archive:
        columns = dict(archive)
    np.savez_compressed(copy / "truth.npz", **columns)
    assert "compressed" in refused(copy)


def test_what_is_sound_passes(copy: Path) -> None:
    """None of the checks refuses what a recorder writes."""
    assert validate(copy / "r", truth=copy / "truth.npz").rounds == 2
