"""The search for what a difference is: rows of clients that are it, integer by integer.

A difference of sums is held against what each kind of loss of each client by itself would make of
it. Where no client is found, sets of them are: an item that one client rated, or a few, settles
whether they are among them, and so does a count that is right, or off by all of its clients; what
is left settles the next. What is found adds up to the difference in every bit of the ring.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties.lossless.explanation import Explanation
from secure_fedrec.properties.lossless.plain_run import Plain, Rows, Vectors
from secure_fedrec.uploads import Aggregate

_FEW = 3
"""Rows of an item of which all sets are tried."""

_Changes = Mapping[tuple[str, str], "_Change"]
"""By kind and part of an explanation."""


def explain_sums(
    aggregate: Aggregate, due: Plain, *, now: Rows, before: Rows, virtual: Rows, ring: FixedPoint
) -> Explanation | None:
    """Whose rows a difference of sums and counts is.

    Args:
        aggregate: what the server got.
        due: the plain sums.
        now: the rows that these are sums of.
        before: those of the round before.
        virtual: rows that clients called virtual.
        ring: of the sums.
    """
    counts = aggregate.counts
    if counts.shape != due.counts.shape or not np.issubdtype(counts.dtype, np.integer):
        return None
    found = _words(ring.to_integers(aggregate.ring), counts)
    difference = _reduced(found - _words(due.sums, due.counts), ring)
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
    explained = _explained(difference, changes, ring, named=len(difference))
    explained = explained or _first_of(_instead(difference, changes["twice", part], ring))
    if explained is None and part != "counts":  # a count alone names nobody
        others = np.arange(len(difference)) != np.argmax(difference[:, :-1].any(axis=1))
        difference[others] = 0
        explained = _first_of(_alone(difference, changes, named=len(difference)))
    return explained


def explain_bags(
    bags: Mapping[str, FloatArray],
    due: Mapping[str, FloatArray],
    *,
    now: Vectors,
    before: Vectors,
) -> Explanation | None:
    """Whose vectors the difference of the first bag that differs is.

    Args:
        bags: what the server got, by name.
        due: the plain bags.
        now: the vectors in them, with their owners.
        before: those of the round before.
    """
    for name, plain in due.items():
        found = bags.get(name, plain)
        if found.dtype != plain.dtype or found.shape[1:] != plain.shape[1:]:
            return None
        owners, given = zip(*(each.of(name, plain[:0]) for each in (now, before)), strict=True)
        # Equal vectors have one number: the place of the first of them in the plain bag.
        every = np.concatenate([plain, found, *given]).view(np.uint64)
        _, first, which = np.unique(every, axis=0, return_index=True, return_inverse=True)
        ends = np.cumsum([len(plain), len(found), len(given[0])])
        plain_at, found_at, *at = np.split(first[which.reshape(-1)], ends)
        counts = [np.bincount(part, minlength=len(every)) for part in (found_at, plain_at)]
        difference = (counts[0] - counts[1]).view(np.uint64)[:, None]
        if difference.any():
            now_rows, rows_before = map(_vectors, owners, at)
            changes = {
                ("missing", "vectors"): _Change.of([(now_rows, -1)], now.ring),
                ("twice", "vectors"): _Change.of([(now_rows, 1)], now.ring),
                ("late", "vectors"): _late(now_rows, rows_before, now.ring),
            }
            return _explained(difference, changes, now.ring, named=len(plain))
    return None


def explain_rows(sent: Rows, due: Rows, *, before: Rows, ring: FixedPoint) -> Explanation | None:
    """What rows are that differ where they enter the collector.

    Args:
        sent: rows as they were handed in.
        due: the same rows of the plain uploads.
        before: rows of the round before.
        ring: of the rows.
    """
    if sent.values.shape != due.values.shape:
        return None
    words, sent_words = (_reduced(_words(each.values, each.counts), ring) for each in (due, sent))
    differs = (sent_words != words).any(axis=1)
    first = int(np.argmax(differs))
    own, one = due.clients == due.clients[first], np.arange(len(words)) == first
    would_be = _would_be(due, before, ring)
    for scope in (differs, differs & own, one):
        # All rows of these items by these clients, which words name together.
        named = np.isin(due.clients, due.clients[scope]) & np.isin(due.rows, due.rows[scope])
        found = [
            _meant(kind, due, scope, like)
            for kind, expected in would_be.items()
            if (like := (sent_words == expected).all(axis=1))[named].all()
        ]
        found = found or _exchanged(due, words, sent_words, scope)
        if found:
            return _first_of(found)
    return None


def _would_be(due: Rows, before: Rows, ring: FixedPoint) -> dict[str, WordArray]:
    """Words of all rows by kind; zeros of no rating for a row that the round before had not."""
    n_rows = 1 + int(max(due.rows.max(initial=0), before.rows.max(initial=0)))
    keys, earlier = due.keys(n_rows), before.keys(n_rows)
    known = np.isin(keys, earlier)
    late = np.zeros((len(keys), due.values.shape[1] + 1), dtype=np.uint64)
    late[known] = _words(before.values, before.counts)[np.searchsorted(earlier, keys[known])]
    words = {
        "doubled": _words(2 * due.values, due.counts),
        "zeroed": _words(0 * due.values, due.counts),
        "late": late,
    }
    return {kind: _reduced(each, ring) for kind, each in words.items()}


def _exchanged(due: Rows, words: WordArray, sent: WordArray, scope: BoolArray) -> list[Explanation]:
    """Whose rows of the same items a client's are, or that two have each other's."""
    clients = np.unique(due.clients[scope])
    if len(clients) == 2:
        left, right = (scope & (due.clients == client) for client in clients)
        if not np.array_equal(due.rows[left], due.rows[right]):
            return []
        if (sent[left] == words[right]).all() and (sent[right] == words[left]).all():
            return [_meant("swapped", due, scope, scope)]
    if len(clients) != 1:
        return []
    items, mine = due.rows[scope], due.clients == clients[0]
    at = np.minimum(np.searchsorted(items, due.rows), len(items) - 1)
    theirs = ~mine & due.values.any(axis=1) & (items[at] == due.rows)
    theirs &= (words == sent[scope][at]).all(axis=1)
    others = np.flatnonzero(np.bincount(due.clients[theirs]) == len(items)).tolist()
    found = _meant("another's", due, scope, scope)
    return [replace(found, other=other) for other in others]


def _meant(kind: str, due: Rows, scope: BoolArray, like: BoolArray) -> Explanation:
    """Rows of some clients; all of theirs where all are like that."""
    clients, items = (np.unique(each[scope]) for each in (due.clients, due.rows))
    whole = len(items) > 1 and like[np.isin(due.clients, clients)].all()
    return Explanation(
        kind=kind,
        clients=tuple(clients.tolist()),
        items=None if whole else tuple(items.tolist()),
    )


def _explained(
    difference: WordArray, changes: _Changes, ring: FixedPoint, *, named: int
) -> Explanation | None:
    found = _first_of(_alone(difference, changes, named=named))
    return found or _first_of(_together(difference, changes, ring))


def _first_of(found: Iterable[Explanation]) -> Explanation | None:
    each = tuple(found)
    return replace(each[0], or_else=each[1:]) if each else None


def _alone(difference: WordArray, changes: _Changes, *, named: int) -> Iterator[Explanation]:
    """Clients each of which is the whole difference by itself, or some of its rows are.

    Args:
        difference: uint64[m, k].
        changes: what would be.
        named: rows that have a place in the plain sums or bag, the first of all.
    """
    differing = np.flatnonzero(difference.any(axis=1))
    items = tuple(differing[differing < named].tolist())
    for (kind, part), change in changes.items():
        hit = (change.words == difference[change.rows]).all(axis=1)
        most = 1 + int(change.clients.max(initial=-1))
        own, hits = (
            np.bincount(each, minlength=most) for each in (change.clients, change.clients[hit])
        )
        for client in np.flatnonzero(hits == len(differing)).tolist():
            whole = own[client] == len(differing)
            if whole or part != "counts":
                some = None if whole and len(items) > 1 else items
                yield Explanation(kind=kind, clients=(client,), items=some, part=part)


def _together(difference: WordArray, changes: _Changes, ring: FixedPoint) -> Iterator[Explanation]:
    """Sets of clients all of whose rows are the difference, where there is one set of a kind."""
    for (kind, part), change in changes.items():
        clients = _settled(difference, change, ring)
        if clients is not None:
            yield Explanation(kind=kind, clients=tuple(clients), part=part)


def _instead(difference: WordArray, rows: "_Change", ring: FixedPoint) -> Iterator[Explanation]:
    """Clients in the place of whose rows another's are."""
    # The sum under random weights tells nearly all clients apart; whoever it does not is compared.
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
            if not _reduced(rest, ring).any():
                yield Explanation(kind="another's", clients=(client,), other=other)


def _settled(difference: WordArray, change: "_Change", ring: FixedPoint) -> list[int] | None:
    """The clients whose changes are the difference together; None if it does not settle all."""
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
                    rest[rows[own]] = _reduced(rest[rows[own]] - change.words[own], ring)
                    taken.append(client)
    return None if undecided or rest.any() else sorted(taken)


def _subset(left: WordArray, words: WordArray, ring: FixedPoint) -> BoolArray | None:
    """Which rows come to what is left of an item, where only one set of them does: bool[k]."""
    counts = words[:, -1].view(np.int64)
    if len(words) <= _FEW:
        some = np.array([*product((False, True), repeat=len(words))])
        fits = (_reduced(some.astype(np.uint64) @ words, ring) == left).all(axis=1)
        return some[np.argmax(fits)] if np.count_nonzero(fits) == 1 else None
    if (counts > 0).all() or (counts < 0).all():
        for whole in (False, True):
            if left[-1].view(np.int64) == whole * counts.sum():
                return np.full(len(words), whole)
    return None


def _places(numbers: IntArray | WordArray) -> dict[int, list[int]]:
    """Where each number stands."""
    found: dict[int, list[int]] = {}
    for place, number in enumerate(numbers.tolist()):
        found.setdefault(number, []).append(place)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Change:
    """What a loss of each client by itself makes of the sums; rows of zeros are left out.

    Args:
        clients: int64[N].
        rows: int64[N], no client's row twice.
        words: uint64[N, d + 1], reduced; counts in the last column.
    """

    clients: IntArray
    rows: IntArray
    words: WordArray

    @classmethod
    def of(
        cls, parts: list[tuple[Rows, int]], ring: FixedPoint, columns: slice = slice(None)
    ) -> "_Change":
        """The change of some columns by rows that come (1) and rows that go (-1)."""
        words = [_words(rows.values, rows.counts) * np.uint64(sign % 2**64) for rows, sign in parts]
        keys = np.concatenate([np.stack([rows.clients, rows.rows]) for rows, _ in parts], axis=1)
        pairs, which = np.unique(keys, axis=1, return_inverse=True)
        sums = np.zeros((pairs.shape[1], words[0].shape[1]), dtype=np.uint64)
        np.add.at(sums[:, columns], which.reshape(-1), np.concatenate(words)[:, columns])
        some = _reduced(sums, ring).any(axis=1)
        return cls(clients=pairs[0, some], rows=pairs[1, some], words=_reduced(sums, ring)[some])


def _late(now: Rows, before: Rows, ring: FixedPoint) -> _Change:
    """Rows of the round before in the place of those of now, of whoever was in both."""
    was = before.pick(np.isin(before.clients, now.clients))
    return _Change.of([(was, 1), (now.pick(np.isin(now.clients, was.clients)), -1)], ring)


def _vectors(owners: IntArray, places: IntArray) -> Rows:
    """Vectors as rows of no values, which are counted."""
    values = np.empty((len(places), 0), dtype=np.int64)
    return Rows(clients=owners, rows=places, values=values, counts=np.ones_like(places))


def _words(values: IntArray, counts: IntArray) -> WordArray:
    """uint64[N, d + 1], counts in the last column."""
    return np.column_stack([values, counts]).astype(np.int64).view(np.uint64)


def _reduced(words: WordArray, ring: FixedPoint) -> WordArray:
    """Sums modulo 2^bits; counts as they are."""
    reduced = words.copy()
    reduced[:, :-1] &= np.uint64(2**ring.bits - 1)
    return reduced
