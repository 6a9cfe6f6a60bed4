"""No routing: every client sends its rows to the server with its name, and the server adds them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IndexArray, IntArray, RingArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.expected_senders import Heard
from secure_fedrec.protection.base.layer_interfaces import RoundSession, Withstood
from secure_fedrec.uploads import Aggregate, RowBlock, SetBlock
from secure_fedrec.wire import Messages, Parties, Step, Wire, message_sizes


class ServerSum:
    """The server's side of a round of identified uploads, whose rows it adds as they come.

    Args:
        table: sizes and ring.
        round_: the round in progress.
        expected: int64[P], clients that must each send exactly one upload.
        step: the step whose messages it adds.
        shape: (rows, values per row) of the sum; the table's, if None.
    """

    def __init__(
        self,
        table: "TableCollector",
        round_: int,
        expected: IntArray,
        step: Step = Step.UPLOAD,
        shape: tuple[int, int] | None = None,
    ) -> None:
        self._heard = Heard(round_, step, expected=expected, senders=table.n_clients)
        self._round = round_
        self._codec = table.codec
        self.ring = np.zeros(shape or (table.n_items, table.width), dtype=table.codec.dtype)
        self.counts = np.zeros(len(self.ring), dtype=np.int64)

    def accept(self, messages: Messages) -> None:
        """Add delivered uploads to the sum.

        Raises:
            ProtocolError: an upload of another round or step, from a client not awaited, a second
                one, or one of another form.
        """
        self._heard.take(messages)
        self.add(messages.payload)

    def add(self, block: object) -> None:
        """Add the rows of a block, each standing for ``counts`` ratings (one if not given)."""
        if not isinstance(block, RowBlock):
            raise ProtocolError("expected rows with values")
        accumulate(self.ring, self.counts, block.rows, block)

    def require_complete(self) -> None:
        """Check that every awaited client was heard.

        Raises:
            ProtocolError: a client is missing, so the round is not aggregated.
        """
        self._heard.require_complete()

    def aggregate(self) -> Aggregate:
        """The current sum and counts."""
        reduced = self._codec.from_integers(self._codec.to_integers(self.ring))
        return Aggregate(ring=reduced, counts=self.counts, codec=self._codec)

    def show(self, wire: Wire, client: int, block: RowBlock, size: int) -> None:
        """Record the rows of one client, which came in so many bytes."""
        clients = np.array([client])
        wire.show(client_messages(self._round, clients, block, np.array([size])), origins=clients)

    def show_sum(self, wire: Wire, aggregate: Aggregate) -> None:
        """Record what the server holds after the round."""
        wire.show(aggregate_note(self._round, aggregate))


def accumulate(
    values: RingArray,
    counts: IntArray,
    places: IntArray | IndexArray,
    block: RowBlock,
    *,
    sign: int = 1,
) -> None:
    """Add or subtract a block's rows, each with its count, by default 1.

    Args:
        values: [k, width] ring words, added to in place.
        counts: int64[k], likewise.
        places: row of ``values`` for each row of the block.
        block: rows.
        sign: 1 or -1.

    Raises:
        ProtocolError: the rows have no values.
    """
    if block.values is None:
        raise ProtocolError("rows without values cannot be summed")
    if block.counts is None:
        scatter_add(values, places, block.values, sign=sign, counts=counts)
        return
    scatter_add(values, places, block.values, sign=sign)
    weights = block.counts.astype(np.float64)
    counts += sign * np.bincount(places, weights=weights, minlength=len(counts)).astype(np.int64)


def upload_messages(
    round_: int, clients: IntArray, block: RowBlock, width: int, codec: FixedPoint
) -> Messages:
    """Identified uploads of a batch of clients."""
    return client_messages(round_, clients, block, message_sizes(block, width=width, codec=codec))


def client_messages(
    round_: int,
    clients: IntArray,
    block: RowBlock | SetBlock,
    sizes: IntArray,
    *,
    step: Step = Step.UPLOAD,
    receivers: Parties | None = None,
    bag: str | None = None,
) -> Messages:
    """One identified message of each client, to the server unless others are named."""
    return Messages(
        round=round_,
        step=step,
        senders=Parties(role="client", ids=clients),
        receivers=Parties.server(len(clients)) if receivers is None else receivers,
        payload=block,
        sizes=sizes,
        bag=bag,
    )


def denoiser_sums(round_: int, numbers: IntArray, block: RowBlock, sizes: IntArray) -> Messages:
    """The sums of each of these denoisers, to the server."""
    return Messages(
        round=round_,
        step=Step.DENOISE,
        senders=Parties(role="denoiser", ids=numbers),
        receivers=Parties.server(len(numbers)),
        payload=block,
        sizes=sizes,
    )


def aggregate_note(round_: int, aggregate: Aggregate) -> Messages:
    """What the server holds after a round, for its own view."""
    items = np.arange(len(aggregate.counts), dtype=np.int32)
    return Messages(
        round=round_,
        step=Step.AGGREGATE,
        senders=Parties.server(1),
        receivers=Parties.server(1),
        payload=RowBlock(
            indptr=np.array([0, len(items)]),
            rows=items,
            values=aggregate.ring,
            counts=aggregate.counts,
        ),
        sizes=np.zeros(1, dtype=np.int64),
    )


class TableSizes(TypedDict):
    """Arguments of every collector beside its settings."""

    n_clients: int
    n_items: int
    width: int
    codec: FixedPoint


class TableCollector:
    """Common base of collectors of the rows of a table.

    Args:
        table: ``n_clients`` of the federation, ``n_items`` rows of the shared table, ``width``
            values per row, ``codec``, the ring.
    """

    model_hidden_from: tuple[str, ...] = ()
    execution = "simulated"
    carried: "Callable[[TableCollector, int, IntArray, Wire], RoundSession] | None" = None
    """Opens rounds whose halves carry them out (``base.carried_out``); None simulates them."""

    def __init__(self, **table: Unpack[TableSizes]) -> None:
        self.n_clients = table["n_clients"]
        self.n_items = table["n_items"]
        self.width = table["width"]
        self.codec = table["codec"]

    def participants(self, cohort: IntArray) -> IntArray:
        """All clients of the cohort take part."""
        return np.sort(cohort)

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        """Begin a round.

        Raises:
            ProtocolError, ConfigError: no round of these clients can begin.
        """
        self.require_round(round_, participants)
        if self.carried is not None:
            return self.carried(self, round_, participants, wire)
        if self.execution == "real":
            raise ConfigError(
                "protection.execution",
                "real",
                "is carried out by halves on hosts, which build_stack gives to a collector",
            )
        return self.simulated(round_, participants, wire)

    def simulated(self, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        """One round whose messages are simulated."""
        raise NotImplementedError

    def require_round(self, round_: int, participants: IntArray) -> None:
        """Check that a round of these clients can begin.

        Raises:
            ProtocolError, ConfigError: the round cannot begin.
        """

    def expected(self, plain: Aggregate) -> Aggregate | None:
        """The server's result if clients' rows add up to this; None if noise is added."""
        return plain

    def withstands(self, cohort: int) -> Withstood:
        """Any coalition: attacks see all that its parties know."""
        return Withstood()


@dataclass(eq=False)
class TableSession:
    """One round of a collector of rows.

    Args:
        collector: collector of the round or rounds.
        round: its number.
        order: int64[P], the clients, in the order in which they are submitted.
        wire: wire of the run.
    """

    collector: TableCollector
    round: int
    order: IntArray
    wire: Wire

    def exempt(self, clients: IntArray) -> BoolArray:
        """No client is exempt from the cloak."""
        return np.zeros(len(clients), dtype=bool)

    @contextmanager
    def in_round(self) -> Iterator[None]:
        """Add the round to errors raised inside."""
        try:
            yield
        except ProtocolError as error:
            raise ProtocolError(f"round {self.round}: {error}") from None
