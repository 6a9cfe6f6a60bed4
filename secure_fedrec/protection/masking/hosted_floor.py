"""The two masked rounds of a tail floor whose clients are elsewhere (``base.hosting``).

Both are rounds of one attempt, under two numbers: counts first, then the rows at the floor. With
the receipts of the first every client is sent the counts themselves, checks them against what the
server has signed, and derives the second round from them. Message of the counts: "SFTF" | the sum,
packed to the ring's bits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from typing_extensions import override

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.base.dense_uploads import DenseLayout
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import (
    HostedSum,
    NoHelpers,
    Standing,
)
from secure_fedrec.protection.base.table import aggregate_note
from secure_fedrec.protection.masking.client.half import MaskingClient
from secure_fedrec.protection.masking.config.layouts import SumLayout
from secure_fedrec.protection.masking.config.policy import Expected
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.embedded import MaskedSum
from secure_fedrec.protection.masking.envelope import Kind, round_number
from secure_fedrec.protection.masking.messages.protocol_traffic import COUNTS_MAGIC
from secure_fedrec.protection.masking.server.half import MaskingServer
from secure_fedrec.protection.masking.server.shown import show_uploads
from secure_fedrec.protection.masking.tail_floor import SecondRound, TailFloor
from secure_fedrec.protection.session import SERVER, Identity, Parcel, from_server
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.session.nodes import named
from secure_fedrec.protection.session.statement import Purpose, Statement
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Step, Wire

_COUNTS, _MARKS = "COUNTS", "MARKS"


@dataclass(frozen=True, eq=False)
class FloorAttempt:
    """The facts that server and clients of an attempt agree on before the first round.

    Args:
        collector: collector of the round or rounds.
        floor: the floor.
        at: the attempt.
    """

    collector: MaskedSum
    floor: TailFloor
    at: Standing

    @cached_property
    def marks(self) -> SumLayout:
        """Layout of the first round."""
        collector = self.collector
        return TailFloor.presence_layout(
            collector.n_items, clients=len(self.at.clients), bits=collector.codec.bits
        )

    @cached_property
    def counted(self) -> Statement:
        """Statement of the first round."""
        return replace(self.at.statement.known, purpose=Purpose.COUNTS)

    @cached_property
    def first(self) -> MaskingConfig:
        """Configuration of the first round."""
        marks = self.marks
        return self.collector.masking_config(
            len(self.at.clients), marks.words, marks.hash, self.counted.digest
        )

    @property
    def numbers(self) -> tuple[int, int]:
        """Of the two rounds."""
        return 2 * self.at.serial, 2 * self.at.serial + 1


class FloorHub(HostedSum):
    """The server of one attempt (a ``Hub``, and its own ``HostedSum``).

    Args:
        attempt: the attempt.
        identity: the server's key.
        generations: what the server remembers of clients' journals.
    """

    node = SERVER

    def __init__(
        self, attempt: FloorAttempt, identity: Identity, generations: dict[bytes, int]
    ) -> None:
        self.hub = self
        self._attempt = attempt
        self._identity = identity
        self._generations = generations
        self._first = self._server(attempt.first, attempt.at.clients, attempt.numbers[0])
        self._second: MaskingServer | None = None
        self._known: IntArray | None = None
        self._asked: SecondRound | None = None

    @property
    def stage(self) -> str:
        """What the round in progress awaits."""
        return (self._first if self._second is None else self._second).stage

    @property
    def finished(self) -> bool:
        """Whether the rows at the floor are summed, or no rows reach the floor."""
        if self._second is not None:
            return self._second.finished
        return self._first.finished

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """As the round in progress; from the first on to the second (``Hub.step``).

        Raises:
            ProtocolError: a round is aborted, or both are over.
        """
        if self._second is not None:
            return self._second.step(inbox)
        sent = self._first.step(inbox)
        if not self._first.finished:
            return sent
        attempt, first, collector = self._attempt, self._first, self._attempt.collector
        self._known = attempt.marks.decode(first.result)
        if not len(attempt.floor.rows(self._known)):
            return sent
        self._asked = attempt.floor.second_round(
            self._known,
            first.survivors,
            first=attempt.first,
            statement=attempt.counted,
            codec=collector.codec,
            width=collector.width,
        )
        config = attempt.floor.config(self._asked, attempt.first)
        self._second = self._server(config, first.survivors, attempt.numbers[1])
        counts = COUNTS_MAGIC + first.packed_result
        everybody = (named(number) for number in first.survivors.tolist())
        return [*sent, *from_server(everybody, _COUNTS, counts), *self._second.step(())]

    @override
    def aggregate(self) -> Aggregate:
        """Sums and counts of the rows at the floor, zeros of all others."""
        collector = self._attempt.collector
        ring: RingArray = np.zeros((collector.n_items, collector.width), collector.codec.dtype)
        counts = np.zeros(collector.n_items, dtype=np.int64)
        if self._second is not None and self._asked is not None:
            layout = self._dense(self._asked)
            words = np.roll(self._second.result, -len(layout.items))
            found = layout.split(words, collector.codec)
            ring[layout.items], counts[layout.items] = found.ring, found.counts
        return Aggregate(ring=ring, counts=counts, codec=collector.codec)

    @override
    def heard(self) -> IntArray:
        """int64[k]: the survivors."""
        return (self._first if self._second is None else self._second).survivors

    @override
    def rows_in(self, stage: str, sizes: IntArray) -> tuple[Step, IntArray] | None:
        """Marks of every row, then the rows at the floor."""
        if stage == _MARKS:
            return Step.COUNTS, np.full_like(sizes, self._attempt.collector.n_items)
        if stage != Kind.UPLOAD.name or self._asked is None:
            return None
        return Step.UPLOAD, np.full_like(sizes, len(self._asked.layout.rows))

    @override
    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """Masked counts and words, and the counts of all rows."""
        collector, round_ = self._attempt.collector, self._attempt.at.round
        codec, counting = collector.codec, replace(collector.layout, width=0)
        show_uploads(wire, arrived, self._first, codec, counting, round_=round_, step=Step.COUNTS)
        if self._second is not None and self._asked is not None:
            rows, second = self._dense(self._asked), self._second
            show_uploads(wire, arrived, second, codec, rows, round_=round_, counts_first=True)
        known = aggregate.counts if self._known is None else self._known
        wire.show(aggregate_note(round_, replace(aggregate, counts=known)))

    def _dense(self, asked: SecondRound) -> DenseLayout:
        return replace(self._attempt.collector.layout, items=asked.layout.rows.astype(np.int32))

    def _server(self, config: MaskingConfig, cohort: IntArray, number: int) -> MaskingServer:
        return MaskingServer(
            identity=self._identity,
            roster=self._attempt.at.roster,
            config=config,
            cohort=cohort,
            round_number=number,
            generations=self._generations,
        )


class FloorClient:
    """A client of one attempt (a ``Party``).

    Args:
        attempt: the attempt.
        identity: its key.
        journal: record of what it has committed to.
        rows: float64 rows of the client, one segment.
    """

    def __init__(
        self, attempt: FloorAttempt, identity: Identity, journal: Journal, rows: RowBlock
    ) -> None:
        self.node = identity.node
        self._attempt = attempt
        self._identity = identity
        self._journal = journal
        self._rows = rows
        at = attempt.at
        self._first = self._half(Expected.of(attempt.first, at.clients, at.roster, attempt.counted))
        self._first.load(attempt.floor.presence(attempt.marks, rows))
        self._second: MaskingClient | None = None

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Let each half take the messages of its round (``Party.step``).

        Raises:
            ProtocolError, WireError: a message is of no round here, or a half refuses.
        """
        one, two = self._attempt.numbers
        counts = [data for data in inbox if data[: len(COUNTS_MAGIC)] == COUNTS_MAGIC]
        rest = [data for data in inbox if data[: len(COUNTS_MAGIC)] != COUNTS_MAGIC]
        groups = {number: [d for d in rest if round_number(d) == number] for number in (one, two)}
        if sum(map(len, groups.values())) != len(rest):
            raise ProtocolError(f"{self.node} is in rounds {one} and {two} alone")
        answers = [
            parcel._replace(stage=_MARKS) if parcel.stage == Kind.UPLOAD.name else parcel
            for parcel in (self._first.step(groups[one]) if groups[one] else ())
        ]
        if counts:
            self._begin_second(counts[0].removeprefix(COUNTS_MAGIC))
        if groups[two]:
            if self._second is None:
                raise ProtocolError(f"{self.node} has not seen the counts")
            answers += self._second.step(groups[two])
        return answers

    def _begin_second(self, packed: bytes) -> None:
        """Derive the second round, once, from the counts that the server has signed."""
        if self._second is not None:
            raise ProtocolError(f"{self.node} has the counts")
        attempt, collector = self._attempt, self._attempt.collector
        second = attempt.floor.second_round_of(
            self._first,
            packed,
            first=attempt.marks,
            statement=attempt.counted,
            codec=collector.codec,
            width=collector.width,
        )
        corrupt = attempt.first.corrupt_clients
        self._second = self._half(second.expected(corrupt_clients=corrupt))
        self._second.load(second.encode(self._rows))

    def _half(self, expected: Expected) -> MaskingClient:
        return MaskingClient(
            identity=self._identity,
            roster=self._attempt.at.roster,
            policy=self._attempt.collector.config.policy,
            journal=self._journal,
            expected=expected,
        )


class HostedFloor(NoHelpers):
    """Halves of masked rounds with a tail floor.

    Args:
        collector: collector of the round or rounds.
        floor: the floor.
    """

    opens = last_stage = Kind.REVEAL.name

    def __init__(self, collector: MaskedSum, floor: TailFloor) -> None:
        self._collector = collector
        self._floor = floor

    @override
    def hub(self, at: Standing, identity: Identity, generations: dict[bytes, int]) -> FloorHub:
        return FloorHub(FloorAttempt(self._collector, self._floor, at), identity, generations)

    @override
    def half(
        self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows
    ) -> FloorClient:
        """A client's half.

        Raises:
            WireError: its rows have no values.
        """
        block = rows.block
        if block.values is None:
            raise WireError("rows without values cannot be summed")
        reals = replace(block, values=self._collector.codec.decode(block.values), counts=None)
        attempt = FloorAttempt(self._collector, self._floor, at)
        return FloorClient(attempt, identity, journal, reals)
