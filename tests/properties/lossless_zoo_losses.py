"""Losses of the zoo of losslessness that are of one client or a few, and what is said of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from secure_fedrec.algorithms import PMF
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray, RingArray
from secure_fedrec.data import RatingTable
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.local import LocalModel
from secure_fedrec.properties import Started
from secure_fedrec.protection import Denoisers, DirectSum, Stack, VirtualRatings
from secure_fedrec.protection.bags import LayeredBags, canonical_order
from secure_fedrec.protection.base import Cloaked, RoundSession
from secure_fedrec.protection.base.picked_rows import pick
from secure_fedrec.protection.denoisers.embedded import DenoisingSession
from secure_fedrec.protection.plain.embedded import DirectSession
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Wire
from tests.properties.lossless_zoo import (
    CLIENTS,
    CONFIG,
    EVERYTHING,
    ITEMS,
    SOME,
    STACK,
    WIDTH,
    Case,
    bagged,
    denoised,
    direct,
    fresh,
)
from tests.properties.lossless_zoo_algorithms import Gives

__all__ = ["LOSSES"]

# Cloaks.

Changed = Callable[[dict[int, FloatArray], dict[int, FloatArray]], dict[int, FloatArray]]
"""From the rows of clients now and in the round before, other rows of some of them."""


class OfSome(VirtualRatings):
    """Changes rows of some clients of a batch."""

    changed: Changed

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        block = covered.upload.block
        assert block.values is not None
        bounds = block.indptr.tolist()
        spans = dict(zip(local.clients.tolist(), map(slice, bounds, bounds[1:]), strict=False))
        own = {client: block.values[span].copy() for client, span in spans.items()}
        before = vars(self).setdefault("before", {})
        for client, values in self.changed(own, before).items():
            block.values[spans[client]] = values
        before.update(own)
        return covered


def cloaked(changed: Changed) -> Callable[[], Stack]:
    def make() -> Stack:
        cloak = denoised(cloak=OfSome, rho=0.0).cloak
        vars(cloak)["changed"] = changed
        plain: Stack = direct()
        return replace(plain, cloak=cloak)

    return make


def of_client(
    client: int, change: Callable[[FloatArray, FloatArray], FloatArray]
) -> Callable[[], Stack]:
    """A cloak that changes the rows of one client, by those and by those of the round before."""

    def changed(own: dict[int, FloatArray], before: dict[int, FloatArray]) -> dict[int, FloatArray]:
        if client not in own:
            return {}
        return {client: change(own[client], before.get(client, own[client]))}

    return cloaked(changed)


def on_grid(values: FloatArray) -> FloatArray:
    return FixedPoint().decode(FixedPoint().encode(values))


# Sums.


class Sent(NamedTuple):
    """Rows as they entered a sum, and the clients of every batch."""

    clients: IntArray
    items: IndexArray
    values: RingArray
    batches: list[IntArray]

    def of(self, clients: Sequence[int], items: Sequence[int] = range(ITEMS)) -> "Sent":
        """Rows of some clients."""
        some = np.isin(self.clients, clients) & np.isin(self.items, items)
        return Sent(self.clients[some], self.items[some], self.values[some], self.batches)


Misadded = Callable[[Sent, Sent], list[tuple[int, Sent]]]
"""From the rows of now and of the round before, rows that are added (1) or taken off (-1)."""


class Misadds(DirectSum):
    """Adds rows of clients again, or takes them off."""

    misadded: Misadded
    columns = ("sums", "counts")
    before: Sent | None = None

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        return _Misadds(self, round_, participants, wire)


class _Misadds(DirectSession):
    collector: Misadds

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        super().submit(clients, block, virtual)
        parts = vars(self).setdefault("parts", [])
        parts.append((clients, np.repeat(clients, block.lengths), block.rows, block.values))

    def close(self) -> Aggregate:
        collector, aggregate = self.collector, super().close()
        batches, *columns = zip(*vars(self)["parts"], strict=True)
        clients, items, values = (np.concatenate(column) for column in columns)
        now = Sent(clients, items, values, list(batches))
        ring, counts = aggregate.ring.copy(), aggregate.counts.copy()
        for sign, rows in collector.misadded(now, collector.before or now):
            if "sums" in collector.columns:
                np.add.at(ring, rows.items, rows.values if sign > 0 else 0 - rows.values)
            if "counts" in collector.columns:
                np.add.at(counts, rows.items, sign)
        collector.before = now
        return replace(aggregate, ring=collector.codec.reduce(ring), counts=counts)


def misadding(
    misadded: Misadded, *, codec: FixedPoint | None = None, **how: Any
) -> Callable[[], Stack]:
    def make() -> Stack:
        stack: Stack = direct(Misadds, codec)
        vars(stack.collector).update(misadded=misadded, **how)
        return stack

    return make


def less(clients: Sequence[int], items: Sequence[int] = range(ITEMS), **how: Any) -> Any:
    return misadding(lambda now, _: [(-1, now.of(clients, items))], **how)


def more(clients: Sequence[int], items: Sequence[int] = range(ITEMS), **how: Any) -> Any:
    return misadding(lambda now, _: [(1, now.of(clients, items))], **how)


def late(clients: Sequence[int], items: Sequence[int] = range(ITEMS)) -> Any:
    return misadding(
        lambda now, before: [(-1, now.of(clients, items)), (1, before.of(clients, items))]
    )


class LeavesARow(Denoisers):
    """The first virtual row of a round never reaches its denoiser."""

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        return _LeavesARow(self, round_, participants, wire)


class _LeavesARow(DenoisingSession):
    left = False

    def _send_noise(self, clients: IntArray, block: RowBlock) -> None:
        keep = np.ones(len(block.rows), dtype=bool)
        keep[: 0 if self.left else 1] = False
        self.left |= not keep.all()
        super()._send_noise(clients, pick(block, np.ones(len(clients), dtype=bool), keep))


# Bags.


class Misgives(LayeredBags):
    """Other vectors of client 3 are in the bag than it gave, made of these and its last ones."""

    instead: Callable[[FloatArray, FloatArray], FloatArray]
    last: FloatArray | None = None

    def open(self, **round_: Any) -> Any:
        session, given = super().open(**round_), []

        def submit(clients: IntArray, bags: Any) -> None:
            session.submit(clients, bags)
            owners = np.repeat(clients, bags["users"].lengths)
            given.append([bags["users"].values[owners == 3], bags["users"].values[owners != 3]])

        def close() -> dict[str, FloatArray]:
            session.close()
            own, others = (np.concatenate(each) for each in zip(*given, strict=True))
            last, self.last = own if self.last is None else self.last, own
            words = self.codec.encode(np.concatenate([others, self.instead(own, last)]))
            return {"users": self.codec.decode(canonical_order(words, self.codec))}

        return SimpleNamespace(submit=submit, close=close)


def misgiving(instead: Callable[[FloatArray, FloatArray], FloatArray]) -> Callable[[], Stack]:
    def make() -> Stack:
        stack = bagged(Misgives)
        vars(stack.bags)["instead"] = instead
        return stack

    return make


# Two clients who rated alike, and begin alike.


def alike(left: int, right: int) -> RatingTable:
    own = np.flatnonzero(SOME.clients == left)
    keep = np.concatenate([np.flatnonzero(SOME.clients != right), own])
    owners = np.where(np.arange(len(keep)) < len(keep) - len(own), SOME.clients[keep], right)
    order = np.lexsort((SOME.items[keep], owners))
    return replace(
        SOME,
        clients=owners[order].astype(np.int32),
        items=SOME.items[keep][order],
        ratings=SOME.ratings[keep][order],
        timestamps=None,
        places=None,
    )


def begun_alike() -> Callable[[], Started]:
    users = np.full((CLIENTS, WIDTH), 0.25)
    return lambda: Started(PMF(CONFIG), private={"user_vectors": users})


_ITEMS_OF_5 = SOME.items[SOME.clients == 5].tolist()
_ONE, _TWO = _ITEMS_OF_5[1], _ITEMS_OF_5[3]
_LAST_OF_0 = int(SOME.items[SOME.clients == 0][-1])
_case = partial(Case, expected=STACK)

LOSSES: dict[str, Case] = {
    # Sums of rows that were right as they came in.
    "a client's rows are lost": _case(stack=less([5]), whose="client 5's rows are missing"),
    "the same where everybody rated everything": _case(
        stack=less([5]), ratings=EVERYTHING, whose="client 5's rows are missing"
    ),
    "the same on a narrow ring": _case(
        stack=less([5], codec=FixedPoint(bits=24, fraction_bits=14, clip=16.0)),
        whose="client 5's rows are missing",
    ),
    "a client's rows are counted twice": _case(
        stack=more([5]), whose="client 5's rows are counted twice"
    ),
    "a client's rows come a round late": _case(
        stack=late([5]), says="round 2", whose="client 5's rows are of the round before"
    ),
    "one row is lost": _case(
        stack=less([5], [_ONE]), whose=f"client 5's row of item {_ONE} is missing"
    ),
    "one row is counted twice": _case(
        stack=more([5], [_ONE]), whose=f"client 5's row of item {_ONE} is counted twice"
    ),
    "one row comes a round late": _case(
        stack=late([5], [_ONE]), whose=f"client 5's row of item {_ONE} is of the round before"
    ),
    "two rows of a client are lost": _case(
        stack=less([5], [_ONE, _TWO]),
        whose=f"client 5's rows of items {_ONE}, {_TWO} are missing",
    ),
    "a client's values are lost, and counted": _case(
        stack=less([5], columns=("sums",)), whose="client 5's values are missing"
    ),
    "a client is not counted": _case(
        stack=less([5], columns=("counts",)), whose="client 5's counts are missing"
    ),
    "two clients alike, one of them lost": _case(
        stack=less([5]),
        ratings=alike(5, 6),
        algorithm=begun_alike,
        whose="the rows of one of clients 5, 6 are missing",
    ),
    "every second client is lost": _case(
        stack=less([1, 3, 5, 7]), whose="the rows of clients 1, 3, 5, 7 are missing"
    ),
    "the first client of every batch is lost": _case(
        stack=misadding(lambda now, _: [(-1, now.of([int(each[0]) for each in now.batches]))]),
        whose="the rows of clients 0, 5 are missing",
    ),
    "the first client of the last batch is lost": _case(
        stack=misadding(lambda now, _: [(-1, now.of([int(now.batches[-1][0])]))]),
        whose="client 5's rows are missing",
    ),
    "two clients are counted twice": _case(
        stack=more([2, 6]), whose="the rows of clients 2, 6 are counted twice"
    ),
    "two clients come a round late": _case(
        stack=late([0, 6]), whose="the rows of clients 0, 6 are of the round before"
    ),
    "another client's rows are taken for a client's": _case(
        stack=misadding(lambda now, _: [(-1, now.of([5])), (1, now.of([2]))]),
        whose="client 5's rows are client 2's",
    ),
    "two rows are lost, of two clients": _case(
        stack=misadding(
            lambda now, _: [(-1, now.of([5], [_ONE])), (-1, now.of([0], [_LAST_OF_0]))]
        ),
        whose=f"client 0's row of item {_LAST_OF_0} is missing, "
        f"and client 5's row of item {_ONE} is missing",
    ),
    "a virtual row never reaches its denoiser": _case(
        stack=lambda: denoised(LeavesARow), whose="client 0's virtual row of item 0 is left in"
    ),
    "a unit is added to every value": _case(
        stack=misadding(lambda now, _: [(1, now._replace(values=now.values * 0 + 1))])
    ),
    # Rows that are others where they come in.
    "two clients' rows are swapped": _case(
        stack=cloaked(lambda own, _: {0: own[1], 1: own[0]} if {0, 1} <= own.keys() else {}),
        ratings=EVERYTHING,
        whose="the rows of clients 0, 1 are swapped",
    ),
    "a client sends another's rows": _case(
        stack=cloaked(lambda own, _: {1: own[0]} if {0, 1} <= own.keys() else {}),
        ratings=EVERYTHING,
        whose="client 1's rows are client 0's",
    ),
    "a client sends the rows of the round before": _case(
        stack=of_client(2, lambda _, before: before),
        says="round 2",
        whose="client 2's rows are of the round before",
    ),
    "a client sends twice its rows": _case(
        stack=of_client(2, lambda own, _: 2 * on_grid(own)), whose="client 2's rows are doubled"
    ),
    "a client sends zeros": _case(
        stack=of_client(2, lambda own, _: 0 * own), whose="client 2's rows are zeros"
    ),
    "a client sends a row of zeros": _case(
        stack=of_client(2, lambda own, _: np.concatenate([0 * own[:1], own[1:]])),
        whose="client 2's row of item 0 is zeros",
    ),
    # Vectors of a bag.
    "a client's vector is lost": _case(
        stack=misgiving(lambda own, _: own[:0]),
        algorithm=fresh(Gives),
        whose="client 3's vector is missing",
    ),
    "a client's vector is there twice": _case(
        stack=misgiving(lambda own, _: np.concatenate([own, own])),
        algorithm=fresh(Gives),
        whose="client 3's vector is counted twice",
    ),
    "a client's vector comes a round late": _case(
        stack=misgiving(lambda _, last: last),
        algorithm=fresh(Gives),
        says="round 2",
        whose="client 3's vector is of the round before",
    ),
    "a client's vector is halved": _case(
        stack=misgiving(lambda own, _: own / 2), algorithm=fresh(Gives)
    ),
}
