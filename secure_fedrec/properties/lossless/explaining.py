"""Search for an explanation of a difference: rows of clients that equal it in every integer.

A difference of sums is compared with the difference that each kind of loss of each single client
would make. If no single client fits, sets of clients are tried. An item that one client or a few
clients rated decides whether they belong to the set, and so does a count that is right or off by
all of its clients; the remaining difference decides about the next clients. The explanation adds up
to the whole difference in every bit of the ring. It is not reported if it may fit by chance.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import comb, log2

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties.lossless import chance
from secure_fedrec.properties.lossless.explanation import Cause, Explanation
from secure_fedrec.properties.lossless.plain_run import Plain, Rows, Vectors
from secure_fedrec.properties.lossless.ring_words import reduced, words_of
from secure_fedrec.uploads import Aggregate

_FEW = 3
"""The largest number of rows of an item for which all sets are tried."""

_Changes = Mapping[tuple[str, str], "_Change"]
"""The changes of clients, by kind and part of an explanation."""


def explain_sums(
    aggregate: Aggregate, due: Plain, *, now: Rows, before: Rows, virtual: Rows, ring: FixedPoint
) -> Explanation | None:
    """The clients whose rows explain a difference of sums and counts.

    Args:
        aggregate: what the server got.
        due: the plain sums.
        now: the rows of which these are sums.
        before: those of the round before.
        virtual: rows that clients marked as virtual.
        ring: ring of the sums.
    """
    counts = aggregate.counts
    if counts.shape != due.counts.shape or not np.issubdtype(counts.dtype, np.integer):
        return None
    found = words_of(ring.to_integers(aggregate.ring), counts)
    difference = reduced(found - words_of(due.sums, due.counts), ring)
    part, columns = "rows", slice(None)
    if not difference[:, :-1].any():
        part, columns = "counts", slice(-1, None)
    elif not difference[:, -1].any():
        part, columns = "values", slice(None, -1)
    changes = {
        ("missing", part): _Change.of([(now, -1)], ring, columns),
        ("twice", part): _Change.of([(now, 1)], ring, columns),
        ("late", "rows"): _late(now, before, ring),
        ("left in", "virtual rows"): _Change.of([(virtual, 1)], ring),
    }
    return Explanation.of(
        _explained(difference, changes, ring, named=len(difference))
        or list(_instead(difference, changes["twice", part], ring))
        or _item_by_item(difference, changes, ring)
    )


def explain_bags(
    bags: Mapping[str, FloatArray],
    due: Mapping[str, FloatArray],
    *,
    now: Vectors,
    before: Vectors,
) -> Explanation | None:
    """The clients whose vectors explain the difference of all bags that differ.

    Args:
        bags: what the server got, by name.
        due: the plain bags.
        now: the vectors in them, with their owners.
        before: those of the round before.
    """
    explained: Explanation | None = None
    if bags.keys() != due.keys():
        return None
    for name, plain in due.items():
        found = bags[name]
        if found.dtype != plain.dtype or found.shape[1:] != plain.shape[1:]:
            return None
        if np.array_equal(found.view(np.uint64), plain.view(np.uint64)):
            continue
        here = _of_bag(name, found, plain, now=now, before=before)
        explained = here if explained is None else explained.agreeing(here)
        if explained is None:
            return None
    return explained


def _of_bag(
    name: str, found: FloatArray, plain: FloatArray, *, now: Vectors, before: Vectors
) -> Explanation | None:
    owners, given = zip(*(each.of(name, plain[:0]) for each in (now, before)), strict=True)
    # Equal vectors have one number: the place of the first of them in the plain bag.
    every = np.concatenate([plain, found, *given]).view(np.uint64)
    _, first, which = np.unique(every, axis=0, return_index=True, return_inverse=True)
    ends = np.cumsum([len(plain), len(found), len(given[0])])
    plain_at, found_at, *at = np.split(first[which.reshape(-1)], ends)
    counts = [np.bincount(part, minlength=len(every)) for part in (found_at, plain_at)]
    difference = (counts[0] - counts[1]).view(np.uint64)[:, None]
    if not difference.any():
        return None  # equal vectors in another order
    now_rows, rows_before = map(_vectors, owners, at)
    changes = {
        ("missing", "vectors"): _Change.of([(now_rows, -1)], now.ring),
        ("twice", "vectors"): _Change.of([(now_rows, 1)], now.ring),
        ("late", "vectors"): _late(now_rows, rows_before, now.ring),
    }
    return Explanation.of(_explained(difference, changes, now.ring, named=len(plain)))


def _explained(
    difference: WordArray, changes: _Changes, ring: FixedPoint, *, named: int
) -> list[tuple[Cause, ...]]:
    found = _alone(difference, changes, ring, named=named)
    return found or _together(difference, changes, ring)


def _sure(
    difference: WordArray,
    cause: Cause,
    change: "_Change",
    ring: FixedPoint,
    *,
    among: float,
    counted: bool = True,
) -> bool:
    """Whether a difference holds enough bits that no other client fits it by chance.

    Args:
        difference: difference of all rows.
        cause: what explains it.
        change: the changes that this kind of loss would make, for every client.
        ring: ring of the sums.
        among: bits that are needed to identify the client among all.
        counted: whether it is enough that counts show that rows are missing or doubled, and that
            values show whose rows.
    """
    rows = difference[difference.any(axis=1)]
    if cause.part == "counts":
        return chance.places(len(rows), len(difference)) >= among + chance.SURE
    if cause.kind in ("missing", "twice", "left in") and rows[:, -1].all():
        if counted:
            return True
        rows = rows * (np.arange(rows.shape[1]) < rows.shape[1] - 1).astype(np.uint64)
    return chance.sums(rows, ring.bits, change.apart) >= among + chance.SURE


def _alone(
    difference: WordArray, changes: _Changes, ring: FixedPoint, *, named: int
) -> list[tuple[Cause, ...]]:
    """Clients each of which alone, or some of whose rows, explain the whole difference.

    Args:
        difference: uint64[m, k].
        changes: the differences that losses would make.
        ring: ring of the sums.
        named: the number of rows that have a place in the plain sums or bag; they come first.
    """
    differing = np.flatnonzero(difference.any(axis=1))
    items = tuple(differing[differing < named].tolist())
    found, sure = list[tuple[Cause, ...]](), False
    for (kind, part), change in changes.items():
        hit = change.hits(difference)
        most = 1 + int(change.clients.max(initial=-1))
        own, hits = (
            np.bincount(each, minlength=most) for each in (change.clients, change.clients[hit])
        )
        one_of_each = np.count_nonzero(hit) == len(differing)
        for client in np.flatnonzero(hits == len(differing)).tolist():
            whole = own[client] == len(differing)
            if not whole and part == "counts":
                continue
            some = None if whole and len(items) > 1 else items
            cause = Cause(kind=kind, clients=(client,), items=some, part=part)
            found.append((cause,))
            # Rows explained by one client may also be explained by several.
            counted = whole or one_of_each or len(differing) == 1
            among = change.among
            sure |= _sure(difference, cause, change, ring, among=among, counted=counted)
    return found if sure else []


def _together(
    difference: WordArray, changes: _Changes, ring: FixedPoint
) -> list[tuple[Cause, ...]]:
    """Sets of clients all of whose rows make up the difference, if there is one set per kind."""
    found = list[tuple[Cause, ...]]()
    for (kind, part), change in changes.items():
        clients = _settled(difference, change, ring)
        if clients is None:
            continue
        among = log2(comb(len(np.unique(change.clients)), len(clients))) + change.among
        cause = Cause(kind=kind, clients=tuple(clients), part=part)
        if _sure(difference, cause, change, ring, among=among):
            found.append((cause,))
    return found


def _item_by_item(
    difference: WordArray, changes: _Changes, ring: FixedPoint
) -> list[tuple[Cause, ...]]:
    """Single rows of clients, one per differing item, all of one kind."""
    found = list[tuple[Cause, ...]]()
    differing = np.flatnonzero(difference.any(axis=1)).tolist()
    for (kind, part), change in changes.items():
        hit = change.hits(difference)
        if part == "counts" or not np.array_equal(np.sort(change.rows[hit]), differing):
            continue
        owners, rows = change.clients[hit], change.rows[hit]
        causes = [
            Cause(
                kind=kind,
                clients=(client,),
                items=tuple(rows[owners == client].tolist()),
                part=part,
            )
            for client in np.unique(owners).tolist()
        ]
        sure = (
            _sure(difference[[item]], causes[0], change, ring, among=change.among, counted=False)
            for item in differing
        )
        if all(sure):
            found.append(tuple(causes))
    return found


def _instead(
    difference: WordArray, rows: "_Change", ring: FixedPoint
) -> Iterator[tuple[Cause, ...]]:
    """Clients whose rows were replaced by another client's."""
    some = Cause(kind="another's", clients=())
    if not _sure(difference, some, rows, ring, among=2 * rows.among):
        return
    # Sums under random weights separate nearly all clients; the others are compared in full.
    weights = np.random.default_rng(0).integers(2**64, size=difference.shape, dtype=np.uint64)
    marks = np.zeros(1 + int(rows.clients.max(initial=-1)), dtype=np.uint64)
    np.add.at(marks, rows.clients, (rows.words * weights[rows.rows]).sum(axis=1))
    mask = np.uint64(2**ring.bits - 1)
    having = _places(marks & mask)
    sought = (marks + (difference * weights).sum()) & mask
    for client, mark in enumerate(sought.tolist()):
        for other in having.get(mark, ()):
            rest = difference.copy()
            for owner, sign in ((client, np.add), (other, np.subtract)):
                own = rows.clients == owner
                sign.at(rest, rows.rows[own], rows.words[own])
            if not reduced(rest, ring).any():
                yield (Cause(kind="another's", clients=(client,), other=other),)


def _settled(difference: WordArray, change: "_Change", ring: FixedPoint) -> list[int] | None:
    """The clients whose changes together are the difference; None if not all can be decided."""
    clients, rows, rest = change.clients, change.rows, difference.copy()
    by_item, by_client = (_places(each) for each in (rows, clients))
    undecided, taken = set(by_client), list[int]()
    settles = True
    while settles and undecided:
        settles = False
        for item, places in by_item.items():
            left = np.array([at for at in places if clients[at] in undecided], dtype=np.int64)
            picked = _subset(rest[item], change.words[left], ring) if len(left) else None
            if picked is not None:
                settles = True
                undecided -= set(clients[left].tolist())
                for client in clients[left[picked]].tolist():
                    own = by_client[client]
                    rest[rows[own]] = reduced(rest[rows[own]] - change.words[own], ring)
                    taken.append(client)
    return None if undecided or rest.any() else sorted(taken)


def _subset(left: WordArray, words: WordArray, ring: FixedPoint) -> BoolArray | None:
    """The rows whose sum is the remaining difference of an item, if only one set fits: bool[k]."""
    counts = words[:, -1].view(np.int64)
    if len(words) <= _FEW:
        some = np.array([*product((False, True), repeat=len(words))])
        fits = (reduced(some.astype(np.uint64) @ words, ring) == left).all(axis=1)
        return some[np.argmax(fits)] if np.count_nonzero(fits) == 1 else None
    if (counts > 0).all() or (counts < 0).all():
        for whole in (False, True):
            if left[-1].view(np.int64) == whole * counts.sum():
                return np.full(len(words), whole)
    return None


def _places(numbers: IntArray | WordArray) -> dict[int, list[int]]:
    """The places of each number."""
    found: dict[int, list[int]] = {}
    for place, number in enumerate(numbers.tolist()):
        found.setdefault(number, []).append(place)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Change:
    """The change of the sums by a loss of each single client; rows of zeros are left out.

    Args:
        clients: int64[N].
        rows: int64[N], each row of a client at most once.
        words: uint64[N, d + 1], reduced; counts in the last column.
    """

    clients: IntArray
    rows: IntArray
    words: WordArray

    @cached_property
    def apart(self) -> float:
        """Bits that distinguish two rows; vectors have no values here, but a row each."""
        return chance.alike(self.words if self.words.shape[1] > 1 else self.rows)

    @cached_property
    def among(self) -> float:
        """Bits that identify a client."""
        return log2(max(1, len(np.unique(self.clients))))

    def hits(self, difference: WordArray) -> BoolArray:
        """Which rows equal the whole difference of their item: bool[N]."""
        fits: BoolArray = (self.words == difference[self.rows]).all(axis=1)
        return fits

    @classmethod
    def of(
        cls, parts: list[tuple[Rows, int]], ring: FixedPoint, columns: slice = slice(None)
    ) -> "_Change":
        """The change of some columns by rows that are added (1) and removed (-1)."""
        words = [
            words_of(rows.values, rows.counts) * np.uint64(sign % 2**64) for rows, sign in parts
        ]
        keys = np.concatenate([np.stack([rows.clients, rows.rows]) for rows, _ in parts], axis=1)
        pairs, which = np.unique(keys, axis=1, return_inverse=True)
        sums = np.zeros((pairs.shape[1], words[0].shape[1]), dtype=np.uint64)
        np.add.at(sums[:, columns], which.reshape(-1), np.concatenate(words)[:, columns])
        some = reduced(sums, ring).any(axis=1)
        return cls(clients=pairs[0, some], rows=pairs[1, some], words=reduced(sums, ring)[some])


def _late(now: Rows, before: Rows, ring: FixedPoint) -> _Change:
    """Rows of the previous round instead of the current ones, for clients in both rounds."""
    was = before.pick(np.isin(before.clients, now.clients))
    return _Change.of([(was, 1), (now.pick(np.isin(now.clients, was.clients)), -1)], ring)


def _vectors(owners: IntArray, places: IntArray) -> Rows:
    """Vectors as rows without values, which are only counted."""
    values = np.empty((len(places), 0), dtype=np.int64)
    return Rows(clients=owners, rows=places, values=values, counts=np.ones_like(places))
