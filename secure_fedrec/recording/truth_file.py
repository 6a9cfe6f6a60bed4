"""The truth that claims about a recording are scored against, in a file of its own.

An npz file, version 1. Its columns:

    version                     int64[], 1
    ratings.indptr              int64[n + 1], where the ratings of each client begin
    ratings.items               int32[N], items, ascending within a client
    ratings.ratings             float64[N]
    ratings.levels              float64[L], what a rating may be, ascending
    ratings.n_items             int64[], items of the catalogue
    secrets.KIND.NAME           [n, ...], a secret of every client
    rounds.R.KIND.COLUMN        columns of round R: "private-NAME" has "values", float64[n, d];
                                "own" has what clients put into hidden sums, ``wire.recording.OWN``

All but the version may be absent; claims about absent facts are not judged. The file is written
without compression. All that it holds is of one number of clients, that of the transcript, and
``n_items`` is that of the transcript where it states one; it is at most 1,048,576 more than the
bytes of the file. All values are finite.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.data.ratings import MOST_STATED
from secure_fedrec.errors import MisfitError, TranscriptError
from secure_fedrec.recording.own_files import require_file
from secure_fedrec.recording.public_facts import FREE
from secure_fedrec.recording.shared_arrays import as_array
from secure_fedrec.wire import BlockStore
from secure_fedrec.wire.recording import ORIGINS, OWN

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

_VERSION = 1
_PRIVATE = "private-"
_OWN = ("senders", "lengths", "rows")
_RATINGS = {
    "indptr": ("int64", 1),
    "items": ("int32", 1),
    "ratings": ("float64", 1),
    "levels": ("float64", 1),
    "n_items": ("int64", 0),
}
_ROUNDED = 1e-9
_MOST = 2**31
_ROUND = re.compile("[1-9][0-9]{0,8}")


@dataclass(slots=True, eq=False)
class TruthColumns:
    """Secrets of a federation.

    Args:
        ratings: the ratings of all clients, see ``rating_columns``; None without ratings.
        secrets: by kind and name, an entry per client.
    """

    ratings: Columns | None = None
    secrets: Columns = field(default_factory=dict)

    def clients(self, rounds: BlockStore) -> int | None:
        """Number of clients of these secrets and those of rounds; None if it is not stated.

        Raises:
            MisfitError: the numbers of clients differ.
        """
        found = {name: len(each) for name, each in self.secrets.items()}
        if self.ratings is not None:
            found["ratings"] = len(self.ratings["indptr"]) - 1
        for round_ in rounds.rounds():
            for kind in (each for each in rounds.kinds(round_) if each.startswith(_PRIVATE)):
                for block in rounds.read(round_, kind):
                    found[f"rounds.{round_}.{kind}"] = len(block["values"])
        if len(set(found.values())) > 1:
            told = ", ".join(f"{name} of {number}" for name, number in sorted(found.items())[:4])
            raise MisfitError(f"its secrets are of different numbers of clients: {told}")
        return next(iter(found.values()), None)


def rating_columns(
    ratings: tuple[Any, Any, Any], *, n_clients: int, n_items: int | None, levels: Any
) -> Columns:
    """Ratings as the truth keeps them, client after client.

    Args:
        ratings: client, item and rating of each.
        n_clients: number of clients of the federation.
        n_items: number of items of the catalogue; None takes those that occur.
        levels: what a rating may be; None takes those that occur.

    Raises:
        MisfitError: columns have different lengths, a pair occurs twice, or a client, item or
            rating is unknown.
    """
    names = ("clients", "items", "ratings")
    if not isinstance(ratings, tuple | list) or len(ratings) != len(names):
        raise MisfitError("ratings: clients, items and ratings are meant, three columns")
    told = [as_array(each, f"ratings: {name}") for each, name in zip(ratings, names, strict=True)]
    if any(each.ndim != 1 or len(each) != len(told[0]) for each in told):
        raise MisfitError("ratings: clients, items and ratings must be columns of one length")
    for name, column in zip(names, told, strict=True):
        if not np.isfinite(column).all():
            raise MisfitError(f"ratings: {name} holds a value that is not finite")
    if any((np.abs(each) >= _MOST).any() for each in told[:2]):
        raise MisfitError("ratings: clients and items are small whole numbers")
    numbers = [each.astype(np.int64) for each in told[:2]]
    sizes = n_clients, int(numbers[1].max(initial=-1)) + 1 if n_items is None else n_items
    if sizes[1] > FREE + told[1].nbytes:
        raise MisfitError(f"ratings: items of {sizes[1]} are too many for so few ratings")
    for name, column, whole, size in zip(names, told, numbers, sizes, strict=False):
        if not np.array_equal(column, whole) or not ((whole >= 0) & (whole < size)).all():
            raise MisfitError(f"ratings: {name} are whole numbers from 0 to {size - 1}")
    clients, items = numbers
    order = np.lexsort((items, clients))
    clients, items, values = clients[order], items[order], told[2][order]
    if len(np.unique(clients * sizes[1] + items)) < len(items):
        raise MisfitError("ratings: a client has rated an item twice")
    known = _evenly(values if levels is None else as_array(levels, "rating_levels"))
    step = known[1] - known[0]
    places = np.clip(np.rint((values - known[0]) / step), 0, len(known) - 1).astype(np.int64)
    if not (np.abs(values - known[places]) <= _ROUNDED * step).all():
        raise MisfitError(f"ratings: a rating is not one of the levels {known.tolist()}")
    return {
        "indptr": np.searchsorted(clients, np.arange(n_clients + 1)).astype(np.int64),
        "items": items.astype(np.int32),
        "ratings": known[places],
        "levels": known,
        "n_items": np.array(sizes[1], dtype=np.int64),
    }


def _evenly(told: FloatArray) -> FloatArray:
    """The evenly spaced levels that hold all of some levels: float64[L], two or more.

    A single level is implicit feedback; 0 is added to it.

    Raises:
        MisfitError: there is no level, or they are multiples of no step.
    """
    levels = np.unique(told)
    if not len(levels) or not np.isfinite(levels).all():
        raise MisfitError("ratings: no level of a rating is known")
    if len(levels) == 1:
        levels = np.unique([0.0, levels[0] or 1.0])
    low, step = levels[0], float(np.diff(levels).min())
    places = (levels - low) / step
    if places[-1] >= MOST_STATED or np.abs(places - np.rint(places)).max() > _ROUNDED:
        problem = "do not lie on evenly spaced levels; state those as rating_levels"
        raise MisfitError(f"ratings: {levels.tolist()[:8]} {problem}")
    if len(levels) == round(places[-1]) + 1:
        return levels
    return np.asarray(low + step * np.arange(round(places[-1]) + 1))


def write_truth(path: Path, truth: TruthColumns, rounds: BlockStore) -> None:
    """Write a truth file.

    Args:
        path: path of the file.
        truth: secrets of the whole federation.
        rounds: secrets of rounds.

    Raises:
        OSError: it could not be written.
    """
    columns: Columns = {"version": np.array(_VERSION)}
    columns |= {f"ratings.{name}": values for name, values in (truth.ratings or {}).items()}
    columns |= {f"secrets.{name}": values for name, values in truth.secrets.items()}
    for round_ in rounds.rounds():
        for kind in rounds.kinds(round_):
            for block in rounds.read(round_, kind):
                for name, values in block.items():
                    columns[f"rounds.{round_}.{kind}.{name}"] = values
    write_npz(path, columns, private=True)


def read_truth(path: Path) -> tuple[TruthColumns, BlockStore]:
    """Read a truth file: secrets of the federation, and of rounds.

    Raises:
        TranscriptError: it is missing, damaged, or of another version.
    """
    require_file(path)
    try:
        columns = read_npz(path, stored=True)
        version = columns.pop("version")
    except (OSError, ValueError, KeyError, TypeError, MemoryError) as damage:
        raise TranscriptError(f"{path} is not a truth file, or is damaged: {damage}") from damage
    if version.dtype.kind not in "iu" or version.shape or version != _VERSION:
        raise TranscriptError(f"{path} has truth version {version}, need {_VERSION}")
    truth, rounds = TruthColumns(), BlockStore(None)
    blocks: dict[tuple[int, str], Columns] = {}
    for name, values in columns.items():
        part, _, rest = name.partition(".")
        if part == "ratings":
            truth.ratings = {**(truth.ratings or {}), rest: values}
        elif part == "secrets":
            truth.secrets[rest] = values
        elif part == "rounds" and rest.count(".") >= 2:
            number, kind, column = rest.split(".", 2)
            if _ROUND.fullmatch(number) is None:
                raise TranscriptError(f"{path}: {name!r} names no round")
            blocks.setdefault((int(number), kind), {})[column] = values
        else:
            raise TranscriptError(f"{path} holds an unknown column {name!r}")
    try:
        if truth.ratings is not None:
            _require_ratings(truth.ratings, most=FREE + path.stat().st_size)
        for name, values in truth.secrets.items():
            require_secret(name, values)
        for (round_, kind), block in blocks.items():
            _require_block(f"rounds.{round_}.{kind}", kind, block)
            rounds.append(round_, kind, block)
        truth.clients(rounds)
    except (MisfitError, TypeError, ValueError) as damage:
        raise TranscriptError(f"{path}: {damage}") from damage
    return truth, rounds


def require_secret(name: str, values: npt.NDArray[Any]) -> None:
    """Refuse a secret that claims cannot be scored against.

    Raises:
        MisfitError: it has no kind and name, no entries, or holds anything but finite numbers.
    """
    kind, _, own = name.partition(".")
    if not kind or not own:
        raise MisfitError(f"secrets.{name} is named KIND.NAME, labels.gender say")
    if not values.ndim or values.dtype.kind not in "biuf":
        raise MisfitError(f"secrets.{name} is {values.dtype} of {values.ndim} dimensions")
    if not np.isfinite(values).all():
        raise MisfitError(f"secrets.{name} holds a value that is not finite")


def _require_block(name: str, kind: str, block: Columns) -> None:
    """Refuse a block of a round that does not belong to the truth.

    Raises:
        MisfitError: it has other columns, or columns that do not fit together.
    """
    if kind.startswith(_PRIVATE):
        needed, allowed = {"values"}, {"values"}
    elif kind == OWN:
        needed, allowed = {*_OWN}, {*_OWN, "values", "counts"}
    elif kind.endswith(ORIGINS):
        needed, allowed = {"tags", "clients"}, {"tags", "clients"}
    else:
        raise MisfitError(f"{name} is not a block of a truth")
    if not needed <= block.keys() <= allowed:
        raise MisfitError(f"{name} has the columns {sorted(block)}, needs {sorted(needed)}")
    if kind.startswith(_PRIVATE):
        _require_private(name, block["values"])
        return
    _require_own(name, kind, block)


def _require_private(name: str, values: npt.NDArray[Any]) -> None:
    if values.dtype != np.float64 or values.ndim != 2 or not values.shape[1]:
        raise MisfitError(f"{name}.values is {values.dtype} of the shape {values.shape}")
    if not np.isfinite(values).all():
        raise MisfitError(f"{name}.values holds a value that is not finite")


def _require_own(name: str, kind: str, block: Columns) -> None:
    for column, values in block.items():
        whole = values.dtype.kind in "iu" and values.ndim == 1 + (column == "values")
        if not whole:
            raise MisfitError(f"{name}.{column} is {values.dtype} of {values.ndim} dimensions")
    one, other = ("senders", "lengths") if kind == OWN else ("tags", "clients")
    if len(block[one]) != len(block[other]):
        raise MisfitError(f"{name} has {one} and {other} of different lengths")
    if kind == OWN:
        lengths = block["lengths"].tolist()
        held = {len(block[column]) for column in block.keys() - {"senders", "lengths"}}
        if min(lengths, default=0) < 0 or held != {sum(lengths)}:
            raise MisfitError(f"{name}: its number of rows is not the sum of its lengths")


def _require_ratings(ratings: Columns, *, most: int) -> None:
    """Refuse ratings that do not fit together.

    Args:
        ratings: columns by name.
        most: items that there can be.

    Raises:
        MisfitError, ValueError: the ratings do not fit together.
    """
    if ratings.keys() != _RATINGS.keys():
        raise MisfitError(f"ratings have the columns {', '.join(sorted(_RATINGS))}")
    for name, (kind, dimensions) in _RATINGS.items():
        column = ratings[name]
        if column.dtype != kind or column.ndim != dimensions:
            raise MisfitError(f"ratings.{name} is {column.dtype} of {column.ndim} dimensions")
    ends = ratings["indptr"]
    if len(ends) < 2 or (ends[1:] < ends[:-1]).any():
        raise MisfitError("ratings.indptr does not part clients")
    if ends[0] != 0 or ends[-1] != len(ratings["items"]):
        raise MisfitError("ratings.indptr does not end with the ratings")
    size = int(ratings["n_items"])
    if not 0 < size <= most:
        raise MisfitError(f"ratings.n_items = {size}: from 1 to {most} in such a file")
    clients = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    told = (clients, ratings["items"], ratings["ratings"])
    levels = ratings["levels"]
    found = rating_columns(told, n_clients=len(ends) - 1, n_items=size, levels=levels)
    if not np.array_equal(found["levels"], levels):
        raise MisfitError("ratings.levels are not evenly spaced, two or more")
    if not np.array_equal(found["items"], ratings["items"]):
        raise MisfitError("ratings.items do not ascend within a client")
