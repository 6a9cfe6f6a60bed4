"""Hostile recordings: refused or read, never a crash, and never more memory than the file gives."""

import io
import json
import os
import re
import shutil
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import MisfitError, TranscriptError
from secure_fedrec.recording import Recorder, Recording, Traits, validate
from secure_fedrec.recording.truth_file import read_truth
from secure_fedrec.wire import Step
from tests.recording.federations import (
    LEVELS,
    SERVER,
    findings_of_recording,
    matrix_factorization,
    ratings_of,
    start,
)

MUTATIONS = int(os.environ.get("SECURE_FEDREC_MUTATIONS", "1000"))
"""Of `make hostile`, 10,000."""
MULTIPLE, CONSTANT = 16, 2 * 2**20
"""Of all bytes of a recording, what checking it may allocate at once; and beside that, bytes."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    users, vectors = start(12, 9, rank=3, seed=1)
    sums = Traits(
        virtual_rows="none",
        reports="all",
        uploads="rows",
        senders="anonymous",
        noise="none",
        denoising="groups",
        denoisers=(1, 2),
    )
    stars = ratings_of(12, 9, seed=2)
    settings: dict[str, Any] = {"rounds": 2, "rate": 0.1, "decay": 0.9, "pull": 0.01}
    recording = matrix_factorization(
        stars, users, vectors, directory=folder / "r", sums=sums, **settings
    )
    recording.save_truth(folder / "truth.npz")
    return folder


def odd(rng: np.random.Generator) -> Any:
    values: list[Any] = [
        None,
        -1,
        0,
        2**63,
        2**70,
        1.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        [],
        {},
        [[]],
    ]
    values += [[1, 2], {"name": 1}, True, "../../etc", "0" * 9, [None], -(2**31), 2**31]
    return values[int(rng.integers(len(values)))]


def in_manifest(folder: Path, rng: np.random.Generator) -> None:
    """A value somewhere in the public knowledge becomes an odd one, or goes."""
    path = folder / "transcript.json"
    manifest = json.loads(path.read_text())
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(manifest)
    node, key = places[int(rng.integers(len(places)))]
    if rng.random() < 0.2:
        del node[key]
    else:
        node[key] = odd(rng)
    path.write_text(json.dumps(manifest))


def in_bytes(folder: Path, rng: np.random.Generator) -> None:
    """Bytes of a file are changed, cut off or doubled."""
    path = some_file(folder, rng)
    content = bytearray(path.read_bytes())
    way = int(rng.integers(4))
    if way == 0:
        content = content[: int(rng.integers(len(content)))]
    elif way == 1:
        content += content[int(rng.integers(len(content))) :]
    else:
        for place in rng.integers(0, len(content), int(rng.integers(1, 6))):
            content[place] = int(rng.integers(256))
    path.write_bytes(bytes(content))


def in_columns(folder: Path, rng: np.random.Generator) -> None:
    """A column of a block has another type, shape or value, or another name, or goes."""
    path = some_block(folder, rng)
    with np.load(path) as archive:
        columns = {name: archive[name] for name in archive.files}
    name = sorted(columns)[int(rng.integers(len(columns)))]
    column, way = columns[name], int(rng.integers(8))
    if way == 0:
        del columns[name]
    elif way == 1:
        columns[str(rng.choice(["x", "rows", "values", "tags", "table", "counts"]))] = column
    elif way == 2:
        kind = str(rng.choice(["f4", "i1", "u8", "c8", "U3", "?", "i8", "f8", "u2"]))
        with warnings.catch_warnings(action="ignore"):  # casts that lose something
            columns[name] = column.astype(kind)
    elif way == 3:
        columns[name] = column[: int(rng.integers(len(column) + 1))] if column.ndim else column
    elif way == 4:
        columns[name] = np.concatenate([column, column]) if column.ndim else column
    elif way == 5:
        columns[name] = column.reshape(-1)
    elif way == 6:
        columns[name] = column[..., None]
    elif column.size:
        changed = column.copy()
        extremes = [0, 1, -1, 2**31 - 1, np.iinfo(np.int64).max, np.iinfo(np.int64).min]
        with warnings.catch_warnings(action="ignore"):
            value = np.array(extremes[int(rng.integers(len(extremes)))]).astype(column.dtype)
        changed.reshape(-1)[int(rng.integers(column.size))] = value
        columns[name] = changed
    np.savez(path, **columns)


def in_header(folder: Path, rng: np.random.Generator) -> None:
    """The header of an array tells a shape that its content has not."""
    path = some_block(folder, rng)
    with np.load(path) as archive:
        columns = {name: archive[name] for name in archive.files}
    name = sorted(columns)[int(rng.integers(len(columns)))]
    shape = [(2**40,), (2**31, 2**31), (0,), (3,), (2**62,), (1, 1, 1)][int(rng.integers(6))]
    with zipfile.ZipFile(path, "w") as archive:
        for each, column in columns.items():
            whole = io.BytesIO()
            told = {"descr": column.dtype.str, "fortran_order": False, "shape": column.shape}
            if each == name:
                told["shape"] = shape
            np.lib.format.write_array_header_1_0(whole, told)
            archive.writestr(f"{each}.npy", whole.getvalue() + column.tobytes())


def bomb(folder: Path, rng: np.random.Generator) -> None:
    """A block is compressed: a small file of many zeros."""
    path = some_block(folder, rng)
    size = int(rng.integers(10**5, 2 * 10**5))
    np.savez_compressed(path, senders=np.zeros(size, dtype=np.int64), lengths=np.zeros(size))


def elsewhere(folder: Path, rng: np.random.Generator) -> None:
    """Names that lead out of the folder, or are not those of rounds and blocks."""
    rounds = folder / "rounds"
    way = int(rng.integers(6))
    block = some_block(folder, rng)
    if way == 0:
        (rounds / "000009").symlink_to(rounds / "000001")
    elif way == 1:
        (rounds / "000001" / "loop").symlink_to(rounds)
    elif way == 2:
        block.unlink()
        block.symlink_to("/etc/passwd")
    elif way == 3:
        block.rename(block.with_name("upload-x.npz"))
    elif way == 4:
        (rounds / "1").mkdir()
    else:
        block.rename(block.with_name(f"{rng.choice(['bag.x', 'part', 'peer', 'noise'])}-000.npz"))


def swapped(folder: Path, rng: np.random.Generator) -> None:
    """A block stands in the place of another."""
    one, other = some_block(folder, rng), some_block(folder, rng)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def some_block(folder: Path, rng: np.random.Generator) -> Path:
    blocks = sorted((folder / "rounds").rglob("*.npz"))
    return blocks[int(rng.integers(len(blocks)))]


def some_file(folder: Path, rng: np.random.Generator) -> Path:
    return folder / "transcript.json" if rng.random() < 0.2 else some_block(folder, rng)


WAYS: tuple[Callable[[Path, np.random.Generator], None], ...] = (
    *(in_manifest, in_bytes, in_columns, in_header, in_manifest, in_bytes, in_columns),
    *(swapped, bomb, elsewhere),
)


@pytest.mark.claim("foreign-recordings-refused")
def test_mutated_recordings_are_refused_or_read(sound: Path, tmp_path: Path) -> None:
    """Each is refused with a ``TranscriptError`` that names a file, or is a recording."""
    folder = tmp_path / "hostile"
    counted: Counter[tuple[str, str]] = Counter()
    size = sum(each.stat().st_size for each in sound.rglob("*") if each.is_file())
    worst = 0
    for number in range(MUTATIONS):
        rng = np.random.default_rng([number, 3])
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sound / "r", folder)
        way = WAYS[number % len(WAYS)]
        way(folder, rng)
        measured = number % 25 == 0
        if measured:
            tracemalloc.start()
        try:
            validate(folder)
            counted["read", way.__name__] += 1
        except TranscriptError as refused:
            assert str(refused)
            counted["refused", way.__name__] += 1
        finally:
            if measured:
                worst = max(worst, tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
    assert worst <= MULTIPLE * size + CONSTANT, (worst, size)
    for name in {each.__name__ for each in WAYS}:
        assert counted["refused", name] >= MUTATIONS // 100, (name, counted)
    assert counted["read", "in_manifest"] >= MUTATIONS // 100, "some change nothing that matters"
    assert not counted["read", "bomb"]
    assert counted["read", "in_header"] < MUTATIONS // 50


@pytest.mark.claim("foreign-recordings-refused")
def test_mutated_truths_are_refused_or_read(sound: Path, tmp_path: Path) -> None:
    """Likewise of the file that claims are scored against."""
    counted: Counter[str] = Counter()
    with np.load(sound / "truth.npz") as archive:
        whole = {name: archive[name] for name in archive.files}
    path = tmp_path / "truth.npz"
    for number in range(300):
        rng = np.random.default_rng([number, 4])
        columns = dict(whole)
        name = sorted(columns)[int(rng.integers(len(columns)))]
        column, way = columns[name], int(rng.integers(5))
        if way == 0:
            del columns[name]
        elif way == 1:
            other = ["x", "rounds.x.y.z", "rounds.1", "secrets.", "ratings.x"]
            columns[str(rng.choice(other))] = column
        elif way == 2:
            columns[name] = column[: len(column) // 2] if column.ndim else column - 1
        elif way == 3:
            columns[name] = column[..., None]
        elif column.size:
            columns[name] = column - 2
        np.savez(path, **columns)
        if number % 6 == 0:
            content = bytearray(path.read_bytes())
            content[int(rng.integers(len(content)))] ^= 255
            path.write_bytes(bytes(content))
        try:
            read_truth(path)
            counted["read"] += 1
        except TranscriptError as refused:
            assert str(path) in str(refused)
            counted["refused"] += 1
    assert min(counted["read"], counted["refused"]) >= 30, counted


def test_a_sound_recording_is_read_back_as_it_was(sound: Path) -> None:
    """What was written, in a folder and a file, is what is opened."""
    recording = Recording.open(sound / "r", truth=sound / "truth.npz")
    found = validate(sound / "r")
    assert (found.rounds, found.messages) == (2, 2 * 13)
    assert recording.truth.rounds() == (1, 2)
    assert recording.secrets.ratings is not None


HALF: Any = 0.5
MASKED = np.arange(9) < 2, np.zeros((2, 3))

REFUSED: tuple[tuple[str, Callable[[Recorder], object]], ...] = (
    ("one of model", lambda r: r.message(1, "uplod", 0, "server", {"V": np.zeros((9, 3))})),
    ("the number of a client", lambda r: r.message(1, "upload", 12, "server", {})),
    ("the server is meant", lambda r: r.message(1, "upload", 0, 1, {})),
    ("not one of the arrays", lambda r: r.message(1, "upload", 0, "server", {"W": 1})),
    ("has the shape", lambda r: r.message(1, "upload", 0, "server", {"V": np.zeros((9, 4))})),
    ("none twice", lambda r: r.message(1, "upload", 0, "server", {"V": ([1, 1], [[0] * 3] * 2)})),
    ("a model has all arrays", lambda r: r.message(1, "model", "server", None, {})),
    ("np.flatnonzero", lambda r: r.message(1, "upload", 0, "server", {"V": MASKED})),
    ("the number of a client", lambda r: r.message(1, "upload", HALF, "server", {})),
    ("no weight", lambda r: r.message(1, "upload", 0, "server", {}, weight=2.0)),
    ("MaskedArray", lambda r: r.message(1, "upload", 0, "server", {"V": np.ma.zeros((9, 3))})),
    ("rated an item twice", lambda r: r.truth(ratings=([0, 0], [1, 1], [1, 2]))),
    ("whole numbers from 0 to 8", lambda r: r.truth(ratings=([0], [9], [1]))),
    ("not one of the levels", lambda r: r.truth(ratings=([0], [1], [9]))),
    ("entries for 12 clients", lambda r: r.truth(secrets={"labels.x": [1, 2]})),
    ("not (12, d)", lambda r: r.private(1, np.zeros((3, 3)))),
)


@pytest.mark.parametrize(("said", "done"), REFUSED, ids=[said for said, _ in REFUSED])
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    said: str, done: Callable[[Recorder], object]
) -> None:
    """A wrong call says what is wrong with it; the recording is as before."""
    recorder = Recorder(
        n_clients=12, arrays={"V": (9, 3)}, items="V", data={"rating_levels": LEVELS}
    )
    with pytest.raises(MisfitError, match=re.escape(said)):
        done(recorder)
    recording = recorder.close()
    assert not recording.seen.rounds()
    assert recording.secrets.ratings is None


def test_whole_numbers_of_any_kind_name_clients() -> None:
    """A loop over a tensor or an array gives its numbers; they are the same clients."""
    torch = pytest.importorskip("torch")
    recorder = Recorder(n_clients=4, arrays={"V": (4, 2)}, items="V")
    for client in (0, np.int32(1), *torch.arange(2, 4)):
        recorder.message(1, "upload", client, "server", {"V": np.zeros((4, 2))})
    sent = recorder.close().transcript.view(SERVER).messages(Step.UPLOAD, 1)
    assert sent.senders.ids.tolist() == [0, 1, 2, 3]


def test_a_recording_in_a_log_tells_no_truth(sound: Path, tmp_path: Path) -> None:
    """What a failing test prints of it holds no rating; paths may be words."""
    recording = Recording.open(str(sound / "r"), truth=str(sound / "truth.npz"))
    assert recording.secrets.ratings is not None
    assert repr(recording) == f"Recording({len(recording.seen.rounds())} rounds)"
    recording.save(str(tmp_path / "again"), truth=str(tmp_path / "truth.npz"))
    assert Recording.open(tmp_path / "again").seen.rounds() == recording.seen.rounds()


def test_rounds_that_are_over_are_over() -> None:
    """Rounds ascend, and a closed recorder takes nothing."""
    recorder = Recorder(n_clients=3, arrays={"V": (4, 2)}, items="V")
    recorder.message(2, "upload", 0, "server", {"V": np.zeros((4, 2))})
    with pytest.raises(TranscriptError, match="round 1 is over"):
        recorder.message(1, "upload", 1, "server", {"V": np.zeros((4, 2))})
    recorder.close()
    with pytest.raises(TranscriptError, match="closed"):
        recorder.message(3, "upload", 1, "server", {"V": np.zeros((4, 2))})


def test_what_is_not_stated_is_unknown(tmp_path: Path) -> None:
    """Without a statement an attack names the one that would make it apply."""
    users, vectors = start(12, 9, rank=3, seed=1)
    stars = ratings_of(12, 9, seed=2)
    settings: dict[str, Any] = {"rounds": 1, "rate": 0.1, "decay": 0.9, "pull": 0.01}
    silent = matrix_factorization(stars, users, vectors, sums=None, **settings)
    found = findings_of_recording(silent)
    lacking = "does not state its trait"
    assert {name for name, each in found.items() if lacking in str(each.reason)} >= {
        *("subset-regression", "clear-uploads", "sum-decoding", "moved-rows", "lone-rows")
    }


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    """A recording needs an empty folder."""
    (tmp_path / "here").write_text("mine")
    with pytest.raises(TranscriptError, match="not empty"):
        Recorder(n_clients=3, arrays={"V": (4, 2)}, items="V", directory=tmp_path)


@pytest.mark.claim("foreign-recordings-refused")
@pytest.mark.parametrize("change", ["lost", "beyond", "uneven", "unsorted"])
def test_ratings_that_do_not_fit_together_are_refused(
    sound: Path, tmp_path: Path, change: str
) -> None:
    """A lost column, an unknown item or level, ends that do not part clients."""
    with np.load(sound / "truth.npz") as archive:
        columns = {name: archive[name] for name in archive.files}
    if change == "lost":
        del columns["ratings.items"]
    elif change == "beyond":
        columns["ratings.items"] = columns["ratings.items"] + 1000
    elif change == "uneven":
        columns["ratings.levels"] = np.array([1.0, 2.0, 4.0])
    else:
        columns["ratings.indptr"] = columns["ratings.indptr"][::-1]
    np.savez(tmp_path / "truth.npz", **columns)
    with pytest.raises(TranscriptError):
        read_truth(tmp_path / "truth.npz")
