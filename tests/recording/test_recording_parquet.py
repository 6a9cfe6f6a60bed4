"""A recording as Parquet: back to the bit, and what is none is refused as a transcript is."""

import json
import os
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow
from pyarrow import parquet

from audits.cli import main
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.errors import TranscriptError
from secure_fedrec.recording import Recorder, Recording
from secure_fedrec.recording.parquet_form import from_parquet, to_parquet
from tests.recording.federations import matrix_factorization, ratings_of, start

MUTATIONS = int(os.environ.get("SECURE_FEDREC_MUTATIONS", "1000")) * 3 // 20


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and tags, weights, parts of a model, a bag, and a round in which nothing was sent."""
    folder = tmp_path_factory.mktemp("sound") / "r"
    users, vectors = start(12, 9, rank=3, seed=1)
    settings: dict[str, Any] = {"rounds": 2, "rate": 0.1, "decay": 0.9, "pull": 0.01}
    matrix_factorization(ratings_of(12, 9, seed=2), users, vectors, directory=folder, **settings)
    first = folder / "rounds" / "000001"
    upload = read_npz(first / "upload-000.npz")
    tags = np.sort(np.random.default_rng(1).integers(0, 2**64, len(upload["lengths"]), np.uint64))
    nobody = {**upload, "senders": np.full(len(tags), -1), "tags": tags}
    write_npz(first / "noise-000.npz", nobody)
    counts = np.arange(len(upload["rows"]), dtype=np.int64)
    write_npz(first / "denoise-000.npz", {**upload, "counts": counts})
    unread = {name: each for name, each in upload.items() if name != "values"}
    write_npz(first / "share-000.npz", unread)
    bag = {name: each for name, each in upload.items() if name != "rows"}
    write_npz(first / "bag.of centres-000.npz", bag)
    parts = {"receivers": np.array([3, 5]), "extra-a/b": np.array([[[-0.0, 1e-308]]] * 2)}
    write_npz(first / "model-part-000.npz", parts)
    (folder / "rounds" / "000003").mkdir()
    return folder


def bits(folder: Path) -> dict[str, Any]:
    """Every column of every block, with its type, shape and bytes; the manifest; the rounds."""
    found: dict[str, Any] = {"manifest": (folder / "transcript.json").read_bytes()}
    found["rounds"] = sorted(each.name for each in folder.glob("rounds/*"))
    for path in folder.glob("rounds/*/*.npz"):
        for name, each in read_npz(path).items():
            key = f"{path.relative_to(folder)} {name}"
            found[key] = (each.dtype.str, each.shape, each.tobytes())
    return found


def test_a_recording_is_read_back_to_the_bit(sound: Path, tmp_path: Path) -> None:
    to_parquet(sound, tmp_path / "tables")
    from_parquet(tmp_path / "tables", tmp_path / "back")
    assert bits(tmp_path / "back") == bits(sound)
    kinds = Counter(each.name.split(".")[-2] for each in tmp_path.glob("tables/rounds/*/*"))
    blocks = Counter(name.endswith(" lengths") for name in bits(sound) if "model" not in name)
    assert kinds["messages"] == kinds["rows"] == blocks[True] >= 6
    assert kinds["arrays"] == len(list(sound.glob("rounds/*/*.npz"))) - blocks[True] >= 5
    assert all(each.stat().st_mode & 0o77 == 0 for each in tmp_path.glob("tables/rounds/*/*"))


def test_tables_have_the_columns_of_the_page(sound: Path, tmp_path: Path) -> None:
    to_parquet(sound, tmp_path / "tables")
    first = tmp_path / "tables" / "rounds" / "000001"
    told = {
        "noise-000.messages": "senders int64, receivers int64, sizes int64, lengths int64, "
        "tags uint64",
        "denoise-000.rows": "rows uint16, counts int64, value_0 uint64, value_1 uint64, "
        "value_2 uint64",
        "share-000.rows": "rows uint16",
        "model-000.arrays": "array int32, value double",
    }
    for name, columns in told.items():
        schema = parquet.read_schema(first / f"{name}.parquet")
        assert ", ".join(f"{each.name} {each.type}" for each in schema) == columns
        assert not any(each.nullable for each in schema)
    said = parquet.read_schema(first / "model-000.arrays.parquet").metadata[b"arrays"]
    assert json.loads(said) == [["table", "float64", [9, 3]]]


def test_weights_and_models_come_back(tmp_path: Path) -> None:
    recorder = Recorder(n_clients=2, arrays={"w": (3, 50)}, weighted=True, directory=tmp_path / "r")
    model = {"w": np.random.default_rng(1).normal(size=(3, 50))}
    for round_ in (1, 2):
        recorder.message(round_, "model", "server", None, model)
        recorder.message(round_, "upload", 1, "server", model, weight=7)
    recorder.close()
    to_parquet(tmp_path / "r", tmp_path / "tables")
    from_parquet(tmp_path / "tables", tmp_path / "back")
    assert bits(tmp_path / "back") == bits(tmp_path / "r")
    assert Recording.open(tmp_path / "back").transcript.public["n_clients"] == 2


def test_the_command_converts_both_ways(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, back = tmp_path / "tables", tmp_path / "back"
    assert main(["transcript", "convert", str(sound), str(tables)]) == 0
    assert f"{tables}: 3 rounds" in capsys.readouterr().out
    assert main(["transcript", "convert", str(tables), str(back), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 3
    assert bits(back) == bits(sound)
    assert main(["transcript", "convert", str(tables), str(back)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["transcript", "convert", str(sound)]) == 2
    assert main(["transcript", "validate", str(sound), str(tables)]) == 2


def in_bytes(path: Path, rng: np.random.Generator) -> None:
    """Bytes are changed, cut off or doubled."""
    content = bytearray(path.read_bytes())
    way = int(rng.integers(3))
    if way == 0:
        content = content[: int(rng.integers(len(content)))]
    elif way == 1:
        content += content[int(rng.integers(len(content))) :]
    else:
        for place in rng.integers(0, len(content), int(rng.integers(1, 6))):
            content[place] = int(rng.integers(256))
    path.write_bytes(bytes(content))


def in_columns(path: Path, rng: np.random.Generator) -> None:
    """A column goes, or has another name, type, length or value."""
    table = parquet.read_table(path)
    place, way = int(rng.integers(table.num_columns)), int(rng.integers(6))
    name, column = table.column_names[place], table.column(place).to_numpy().copy()
    if way == 0:
        table = table.remove_column(place)
    elif way == 1:
        other = str(rng.choice(["x", "rows", "tags", "value_1", "value_99", "lengths"]))
        field = table.schema.field(place).with_name(other)
        table = table.set_column(place, field, table.column(place))
    elif way == 2:
        kind = str(rng.choice(["int8", "float32", "int64", "uint64", "float64"]))
        field = pyarrow.field(name, kind, nullable=False)
        with np.errstate(all="ignore"):
            cast = pyarrow.array(column.astype(np.dtype(kind)))
        table = table.set_column(place, field, cast)
    elif way == 3:
        table = table.slice(0, int(rng.integers(table.num_rows)))
    elif way == 4:
        table = table.append_column(
            pyarrow.field(name, pyarrow.int64(), nullable=True), [[1] * len(table)]
        )
    else:
        extremes = [0, 1, 2**31 - 1, np.iinfo(np.int64).max]
        with np.errstate(all="ignore"):
            column[int(rng.integers(len(column)))] = np.array(
                extremes[int(rng.integers(len(extremes)))]
            ).astype(column.dtype)
        table = table.set_column(place, table.schema.field(place), pyarrow.array(column))
    parquet.write_table(table, path, compression="none", use_dictionary=False)


def swapped(path: Path, rng: np.random.Generator) -> None:
    """A file stands in the place of another of the round."""
    others = sorted(path.parent.iterdir())
    other = others[int(rng.integers(len(others)))]
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


WAYS: tuple[Callable[[Path, np.random.Generator], None], ...] = (in_bytes, in_columns, swapped)


def test_mutated_tables_are_refused_or_a_recording(sound: Path, tmp_path: Path) -> None:
    """Each is refused with a ``TranscriptError``, and leaves nothing, or is a recording."""
    to_parquet(sound, tmp_path / "tables")
    counted: Counter[tuple[str, str]] = Counter()
    folder, back = tmp_path / "hostile", tmp_path / "back"
    for number in range(MUTATIONS):
        rng = np.random.default_rng([number, 5])
        for each in (folder, back):
            shutil.rmtree(each, ignore_errors=True)
        shutil.copytree(tmp_path / "tables", folder)
        files = sorted(folder.glob("rounds/*/*.parquet"))
        way = WAYS[number % len(WAYS)]
        way(files[int(rng.integers(len(files)))], rng)
        try:
            from_parquet(folder, back)
            counted["read", way.__name__] += 1
        except TranscriptError as refused:
            assert str(refused)
            assert not back.exists()
            counted["refused", way.__name__] += 1
    for name in {each.__name__ for each in WAYS}:
        assert counted["refused", name] >= MUTATIONS // 15, counted


def zeros(path: Path, **settings: Any) -> None:
    """Three million messages of a few bytes each."""
    names = ("senders", "receivers", "sizes", "lengths")
    fields = [pyarrow.field(name, pyarrow.int64(), nullable=False) for name in names]
    column = pyarrow.array(np.zeros(3 * 10**6, dtype=np.int64))
    table = pyarrow.table([column] * 4, schema=pyarrow.schema(fields))
    parquet.write_table(table, path, **settings)


@pytest.mark.parametrize("settings", [{"compression": "zstd"}, {"use_dictionary": True}])
def test_a_bomb_is_not_unpacked(settings: dict[str, Any], sound: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    to_parquet(sound, tables)
    path = tables / "rounds" / "000001" / "upload-000.messages.parquet"
    zeros(path, **settings)
    assert path.stat().st_size < 10**6
    tracemalloc.start()
    with pytest.raises(TranscriptError, match="is compressed, or written with dictionaries"):
        from_parquet(tables, tmp_path / "back")
    worst = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert worst < 4 * 10**6
    assert not (tmp_path / "back").exists()


def test_more_rows_than_a_file_can_hold_are_refused(sound: Path, tmp_path: Path) -> None:
    """Run lengths of flags: a bit a value is not what any column has."""
    tables = tmp_path / "tables"
    to_parquet(sound, tables)
    path = tables / "rounds" / "000001" / "upload-000.messages.parquet"
    field = pyarrow.field("senders", pyarrow.bool_(), nullable=False)
    table = pyarrow.table([np.zeros(10**6, dtype=bool)], schema=pyarrow.schema([field]))
    parquet.write_table(table, path, compression="none", use_dictionary=False)
    with pytest.raises(TranscriptError, match="is bool"):
        from_parquet(tables, tmp_path / "back")


def beside(folder: Path) -> Path:
    return folder / "rounds" / "000001"


@pytest.mark.parametrize(
    "change",
    [
        lambda t: (t / "rounds" / "000009").symlink_to(beside(t)),
        lambda t: (beside(t) / "x-000.rows.parquet").symlink_to("/etc/passwd"),
        lambda t: (beside(t) / "upload-000.npz").write_bytes(b""),
        lambda t: (beside(t) / "deep").mkdir(),
        lambda t: (t / "rounds" / "1").mkdir(),
        lambda t: (t / "more.json").write_text("{}"),
        lambda t: (t / "transcript.json").unlink(),
        lambda t: (t / "transcript.json").write_text("{}"),
        lambda t: (beside(t) / "upload-000.messages.parquet").unlink(),
        lambda t: (beside(t) / "upload-000.rows.parquet").unlink(),
        lambda t: shutil.copy(
            beside(t) / "model-000.arrays.parquet", beside(t) / "upload-000.arrays.parquet"
        ),
        lambda t: (beside(t) / "model-000.arrays.parquet").rename(
            beside(t) / "model-000.rows.parquet"
        ),
    ],
)
def test_other_files_are_refused(
    change: Callable[[Path], Any], sound: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    to_parquet(sound, tables)
    change(tables)
    with pytest.raises(TranscriptError):
        from_parquet(tables, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"3",
        b"[" * 5000,
        b'[["table", "float64", [9, 4]]]',
        b'[["table", "float64", [-9, -3]]]',
        b'[["table", "float64", [27]], ["table", "float64", []]]',
        b'[["table", "object", [9, 3]]]',
        b'[["table", "int64", [9, 3]]]',
        b'[["table", "float64"]]',
        b'[["table", "float64", "93"]]',
        b'[["table", "float64", [9, 3, 1, 1, 1, 1, 1, 1, 1]]]',
    ],
)
def test_shapes_that_are_not_those_of_the_values_are_refused(
    said: bytes, sound: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    to_parquet(sound, tables)
    path = beside(tables) / "model-000.arrays.parquet"
    table = parquet.read_table(path).replace_schema_metadata({b"arrays": said})
    parquet.write_table(table, path, compression="none", use_dictionary=False)
    with pytest.raises(TranscriptError):
        from_parquet(tables, tmp_path / "back")
