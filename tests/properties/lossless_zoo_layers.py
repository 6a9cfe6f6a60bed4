"""Layers of the zoo of losslessness: cloaks, collectors, rings and a bag channel."""

import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.local import LocalModel
from secure_fedrec.protection import (
    Denoisers,
    DirectSum,
    RandomizedResponse,
    VirtualRatings,
)
from secure_fedrec.protection.bags import LayeredBags
from secure_fedrec.protection.base import Cloaked, RoundSession
from secure_fedrec.protection.base.picked_rows import pick, pick_segments
from secure_fedrec.protection.denoisers.embedded import DenoisingSession
from secure_fedrec.protection.plain.embedded import DirectSession
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.wire import Wire

# Cloaks.


class Doubles(VirtualRatings):
    """Sends every row twice as large."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        block = covered.upload.block
        assert block.values is not None
        twice = replace(block, values=2 * block.values)
        upload = replace(covered.upload, blocks={"table": twice})
        return replace(covered, upload=upload)


class Forgets(VirtualRatings):
    """Leaves out the first row of a batch, which is a rated item's or not."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        block = covered.upload.block
        assert block.values is not None
        first = int(np.flatnonzero(~covered.virtual)[0])
        keep = np.arange(len(block.rows)) != first
        less = RowBlock(
            indptr=block.indptr - (block.indptr > first),
            rows=block.rows[keep],
            values=block.values[keep],
        )
        upload = Upload(clients=covered.upload.clients, blocks={"table": less})
        return Cloaked(upload=upload, virtual=covered.virtual[keep])


class CallsVirtual(VirtualRatings):
    """Calls a rated item's row virtual, so that denoisers take it out again."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        if exempt.all():
            return covered
        owners = np.repeat(exempt, covered.upload.block.lengths)
        virtual = covered.virtual.copy()
        virtual[np.flatnonzero(~virtual & ~owners)[0]] = True
        return replace(covered, virtual=virtual)


class MovesValues(VirtualRatings):
    """Takes from the first client of a batch what it gives to the last; sums stay."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        block = covered.upload.block
        assert block.values is not None
        first, last = int(block.indptr[0]), int(block.indptr[-2])
        return replace(
            covered,
            upload=replace(covered.upload, blocks={"table": self.moved(block, first, last)}),
        )

    def moved(self, block: RowBlock, first: int, last: int) -> RowBlock:
        assert block.values is not None
        values = block.values.copy()
        values[first] += 0.25
        values[last] -= 0.25
        return replace(block, values=values)


class MovesCounts(MovesValues):
    """The same with the number of ratings behind a row."""

    def moved(self, block: RowBlock, first: int, last: int) -> RowBlock:
        counts = np.ones(len(block.rows), dtype=np.int64)
        counts[first] += 1
        counts[last] -= 1
        return replace(block, counts=counts)


class CallsReal(VirtualRatings):
    """Calls its virtual rows real."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        return replace(covered, virtual=np.zeros_like(covered.virtual))


class CoversAll(VirtualRatings):
    """Adds virtual rows for those that are exempt as well."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        return super().cover(local, round_=round_, exempt=np.zeros_like(exempt))


class DropsForAll(RandomizedResponse):
    """Drops reports of those that are exempt as well, and adds nothing."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=np.zeros_like(exempt))
        block, batch = covered.upload.block, np.ones(len(local.clients), dtype=bool)
        kept = pick(block, batch, ~covered.virtual)
        upload = replace(covered.upload, blocks={"table": kept})
        return Cloaked(upload=upload, virtual=np.zeros(len(kept.rows), dtype=bool))


# Collectors.


class EverySecond(DirectSum):
    def participants(self, cohort: IntArray) -> IntArray:
        return super().participants(cohort)[::2]


class EverySecondDenoised(Denoisers):
    def participants(self, cohort: IntArray) -> IntArray:
        return super().participants(super().participants(cohort)[::2])


class AsksEverySecond(DirectSum):
    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        return super().open(round_=round_, participants=participants[::2], wire=wire)


class Nobody(DirectSum):
    def participants(self, cohort: IntArray) -> IntArray:
        return cohort[:0]


class NobodyOnce(DirectSum):
    """Asks nobody for its second round."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        some = participants[: None if round_ != 2 else 0]
        return super().open(round_=round_, participants=some, wire=wire)


class TakesAnybody(DirectSum):
    def participants(self, cohort: IntArray) -> IntArray:
        return np.arange(self.n_clients)


class LastBatch(DirectSum):
    """Keeps the sums of the batch that came last."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        return _LastBatch(self, round_, participants, wire)


class _LastBatch(DirectSession):
    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        super().submit(clients, block, virtual)
        width, codec = self.collector.width, self.collector.codec
        ring = np.zeros((self.collector.n_items, width), dtype=codec.dtype)
        assert block.values is not None
        np.add.at(ring, block.rows, block.values)
        counts = np.bincount(block.rows, minlength=len(ring))
        self._last = Aggregate(ring=codec.reduce(ring), counts=counts, codec=codec)

    def close(self) -> Aggregate:
        super().close()
        return self._last


class Overwrites(DirectSum):
    """Changes the ratings that the clients learn from."""

    def __init__(self, ratings: FloatArray, **shape: Any) -> None:
        super().__init__(**shape)
        self.ratings = ratings

    def participants(self, cohort: IntArray) -> IntArray:
        self.ratings.flags.writeable = True
        self.ratings[:] = self.ratings[::-1].copy()
        return super().participants(cohort)


class CountsOneMore(DirectSum):
    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        return _CountsOneMore(self, round_, participants, wire)


class _CountsOneMore(DirectSession):
    def close(self) -> Aggregate:
        aggregate = super().close()
        return replace(aggregate, counts=aggregate.counts + 1)


class ClaimsNoise(DirectSum):
    """Says that there is noise in an exact sum."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        return _ClaimsNoise(self, round_, participants, wire)


class _ClaimsNoise(DirectSession):
    def close(self) -> Aggregate:
        return replace(super().close(), noise=1.0)


class AsksTwice(DirectSum):
    """Asks its first client twice and takes one answer."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        session = _AsksTwice(self, round_, participants, wire)
        session.order = np.concatenate([participants[:1], participants])
        return session


class _AsksTwice(DirectSession):
    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        first = np.append(True, np.diff(clients) != 0)
        once = pick_segments(block, first)
        super().submit(clients[first], once, virtual[: len(once.rows)])


class ExemptsAll(Denoisers):
    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        return _ExemptsAll(self, round_, participants, wire)


class _ExemptsAll(DenoisingSession):
    def exempt(self, clients: IntArray) -> BoolArray:
        return np.ones(len(clients), dtype=bool)


class ReplayGuard(Denoisers):
    """Refuses to open a round twice."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        opened = vars(self).setdefault("opened", set())
        if round_ in opened:
            raise ProtocolError(f"round {round_} was opened before")
        opened.add(round_)
        return super().open(round_=round_, participants=participants, wire=wire)


class KeyRatchet(Denoisers):
    """Hashes its key at every step; a step too many, and it is not the key of the round."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        vars(self)["key"] = hashlib.sha256(vars(self).get("key", b"0")).digest()
        due = b"0"
        for _ in range(round_):
            due = hashlib.sha256(due).digest()
        if vars(self)["key"] != due:
            raise ProtocolError(f"round {round_}: not the key of this round")
        return super().open(round_=round_, participants=participants, wire=wire)


# Rings.


class Tenths(FixedPoint):
    def encode(self, values: FloatArray) -> RingArray:
        return FixedPoint.encode(self, np.round(values, 1))


class Zeros(FixedPoint):
    def encode(self, values: FloatArray) -> RingArray:
        return FixedPoint.encode(self, np.zeros_like(values))


class DecodesSingle(FixedPoint):
    def decode(self, ring: RingArray, *, spent: bool = False) -> FloatArray:
        return FixedPoint.decode(self, ring, spent=spent).astype(np.float32).astype(np.float64)


class Harmless(FixedPoint):
    """Has a name of its own."""


# Bags.


class LosesOne(LayeredBags):
    """Loses the last vector of every bag."""

    def open(self, **round_: Any) -> Any:
        session = super().open(**round_)

        def close() -> dict[str, FloatArray]:
            return {name: bag[:-1] for name, bag in session.close().items()}

        return SimpleNamespace(submit=session.submit, close=close)
