"""Splitting ratings into train and test parts.

Splits at random order rows by raw words of a PCG64 generator. Those words, unlike numpy's
permutations, are the same in all numpy versions, so a seed always gives the same split.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import BoolArray, IntArray, WordArray
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.errors import ConfigError, DataError

HELD_OUT: Final = ("latest", "random")
"""Which rating of a client leave-one-out can hold out."""

# Keeps the two splits of one seed, and other uses of that seed, unrelated.
_K_FOLD: Final = 1
_LEAVE_ONE_OUT: Final = 2


class Split(NamedTuple):
    """Two parts of one table; they share no rating and together hold all of them.

    Attributes:
        train: what clients learn from.
        test: what is held out.
    """

    train: RatingTable
    test: RatingTable


class HeldOut(NamedTuple):
    """Three parts of one table.

    Attributes:
        train: what clients learn from.
        validation: int64[n_clients], the item that a model is chosen by; -1 where there is none.
        test: int64[n_clients], the item that a model is judged by; -1 where there is none.
    """

    train: RatingTable
    validation: IntArray
    test: IntArray


def k_fold(table: RatingTable, *, folds: int = 5, fold: int, seed: int) -> Split:
    """Partitions the ratings at random into equal folds and holds one out, as FedRec++ does.

    Args:
        table: the ratings.
        folds: number of folds, 2 to the number of ratings; their sizes differ by at most 1.
        fold: the one held out, 0 to ``folds - 1``.
        seed: of the partition, at least 0; equal seeds give equal partitions for every ``fold``.

    Returns:
        The split. A client may lack ratings on either side.

    Raises:
        ConfigError: ``folds``, ``fold`` or ``seed`` is out of range.
    """
    if not 2 <= folds <= len(table):
        raise ConfigError("data.folds", folds, f"must be 2 to the {len(table)} ratings of the set")
    if not 0 <= fold < folds:
        raise ConfigError("data.fold", fold, "is not the number of a fold", range(folds))
    order = np.argsort(random_words(seed, _K_FOLD, len(table)), kind="stable")
    held = np.zeros(len(table), dtype=np.bool_)
    held[order[fold::folds]] = True
    return split_at(table, held)


def leave_one_out(
    table: RatingTable,
    *,
    latest: IntArray | None = None,
    choice: str | None = None,
    seed: int,
) -> Split:
    """Holds out one rating per client: the latest if that is known, else a random one.

    Args:
        table: the ratings.
        latest: int64[n_clients], the item to hold out per client, where another source knows the
            latest rating; wins over the table's timestamps. Not read for clients with fewer than
            two ratings.
        choice: "latest" or "random", whatever is known; None as above.
        seed: seed of the random choice, at least 0; not used where the latest rating is held out.

    Returns:
        The split. A client with a single rating keeps it in train. Of several ratings in the same
        second the one with the largest item number counts as the latest.

    Raises:
        ConfigError: the seed is negative, or the latest ratings are asked for and not known.
        DataError: ``latest`` has the wrong shape or names an item its client did not rate.
    """
    if choice == "latest" and latest is None and table.timestamps is None:
        problem = f"{table.name} has no times (data.time)"
        raise ConfigError("data.held_out", choice, problem, ("random",))
    words = random_words(seed, _LEAVE_ONE_OUT, len(table))
    held = np.zeros(len(table), dtype=np.bool_)
    if latest is not None and choice != "random":
        held = _named_rows(table, latest)
    else:
        age = words if table.timestamps is None or choice == "random" else table.timestamps
        # The last row of each client once rows are sorted by (client, age, item).
        order = np.lexsort((table.items, age, table.clients))
        ends = table.indptr()[1:][table.counts() > 0] - 1
        held[order[ends]] = True
    return split_at(table, held & (table.counts() > 1)[table.clients])


def leave_two_out(
    table: RatingTable,
    *,
    latest: IntArray | None = None,
    first_seen: bool = False,
    seed: int,
) -> HeldOut:
    """Holds out a client's last interaction for the test, the one before for validation.

    Of several interactions in the same second the first in the source is the latest, as in the
    public codes of PFedRec and FedRAP.

    Args:
        table: the ratings.
        latest: int64[n_clients], as for ``leave_one_out``; validation is then a random item.
        first_seen: without times, count as a client's latest the item that occurs latest for the
            first time in the whole source, as those codes do. Otherwise, and where the table knows
            no order of its source, a random one. Not used where times or ``latest`` are known.
        seed: seed of the random choices, at least 0.

    Returns:
        The parts. A client with two interactions has no item for validation, one with fewer none
        for the test.

    Raises:
        ConfigError: the seed is negative.
        DataError: ``latest`` has the wrong shape or names an item its client did not rate.
    """
    keys = _ages(table, latest, first_seen, random_words(seed, _LEAVE_ONE_OUT, len(table)))
    order = np.lexsort((*keys, table.clients))
    counts, ends = table.counts(), table.indptr()[1:]
    parts = []
    for back in (1, 2):
        held = np.full(table.n_clients, -1, dtype=np.int64)
        some = counts > back
        held[some] = order[ends[some] - back]
        parts.append(held)
    rows = np.zeros(len(table), dtype=np.bool_)
    rows[np.concatenate([part[part >= 0] for part in parts])] = True
    test, validation = (
        np.where(part >= 0, table.items[part], -1).astype(np.int64) for part in parts
    )
    return HeldOut(table.subset(~rows), validation, test)


def _ages(
    table: RatingTable, latest: IntArray | None, first_seen: bool, words: WordArray
) -> tuple[npt.NDArray[np.generic], ...]:
    """Sort keys of the rows, least important first: what is latest is largest."""
    if latest is not None:
        return words, _named_rows(table, latest)
    if table.timestamps is not None:
        places = np.arange(len(table)) if table.places is None else table.places
        return -places.astype(np.int64), table.timestamps
    if first_seen and table.places is not None:
        first = np.full(table.n_items, np.iinfo(np.int64).max)
        np.minimum.at(first, table.items, table.places)
        return (first[table.items],)
    return (words,)


def _named_rows(table: RatingTable, latest: IntArray) -> BoolArray:
    """The rows of the pairs (u, latest[u]), bool[N]; every client with two ratings has one."""
    if latest.shape != (table.n_clients,) or latest.dtype.kind not in "iu":
        raise DataError(table.name, f"latest items must be integers[{table.n_clients}]")
    rows: BoolArray = table.items == latest[table.clients]
    found = np.bincount(table.clients[rows], minlength=table.n_clients)
    lacking = np.flatnonzero((table.counts() > 1) & (found == 0))
    if len(lacking):
        client = lacking[0]
        raise DataError(
            table.name, f"client {client} did not rate its latest item {latest[client]}"
        )
    return rows


def split_at(table: RatingTable, held: BoolArray) -> Split:
    """Sends the held rows, bool[N], to test and the others to train."""
    return Split(train=table.subset(~held), test=table.subset(held))


def random_words(seed: int, purpose: int, count: int) -> WordArray:
    """uint64[count], random words that the arguments decide, in every version of numpy."""
    if seed < 0:
        raise ConfigError("data.seed", seed, "must be at least 0")
    return np.random.PCG64([purpose, seed]).random_raw(count)
