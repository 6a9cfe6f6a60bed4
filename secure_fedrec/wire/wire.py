"""The wire carries every message of a run, meters it, records it, and can be made faulty."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import WireError
from secure_fedrec.uploads import DenseBlock, RowBlock
from secure_fedrec.wire.faults import Fault
from secure_fedrec.wire.message_batches import Messages, Step
from secure_fedrec.wire.meter import Meter
from secure_fedrec.wire.parcels import Parcels
from secure_fedrec.wire.recording import Recorder
from secure_fedrec.wire.spool import Columns


class Wire:
    """One federation's wire.

    Args:
        meter: where costs are added up.
        recorder: keeps what parties saw; None records nothing.
        faults: applied to every batch in order, for tests.

    ``model`` is the last broadcast public model, from which clients compute.
    """

    __slots__ = ("_faults", "_recorder", "meter", "model")

    def __init__(
        self, *, meter: Meter, recorder: Recorder | None = None, faults: Sequence[Fault] = ()
    ) -> None:
        self.meter = meter
        self.model: DenseBlock | None = None
        self._recorder = recorder
        self._faults = tuple(faults)

    def send(
        self,
        messages: Messages,
        *,
        origins: IntArray | None = None,
        targets: IntArray | None = None,
    ) -> Messages:
        """Carry a batch of messages.

        Args:
            messages: what is sent, senders as the receivers see them.
            origins: int64[B], client numbers of the true senders; None when the server sends.
            targets: int64[B], client numbers of the receivers; None when the server receives.

        Returns:
            The messages delivered: the same batch unless a fault struck.

        Raises:
            WireError: not messages, or rows that are not ring words. Reals leave a client only
                through ``FixedPoint.encode``; a vault never does.
        """
        if type(messages) is not Messages:
            raise WireError(f"the wire carries Messages, not {type(messages).__name__}")
        payload = messages.payload
        if isinstance(payload, DenseBlock):
            public = messages.step in (Step.MODEL, Step.PART)
            if not public or messages.senders.role != "server":
                raise WireError("a table of reals is sent by the server, as the public model, only")
            self.model = payload if messages.step is Step.MODEL else self.model
        elif payload.values is None or payload.values.dtype == np.float64:
            raise WireError("rows are sent as ring words; encode them first")
        self.meter.count(messages, senders=origins, receivers=targets)
        delivered: Messages = self._struck(messages)
        if self._recorder is not None:
            # A fault may drop or repeat messages; their true senders are then no longer aligned
            # with the batch, and the truth column is left out.
            aligned = origins if delivered is messages else None
            self._recorder.record(delivered, origins=aligned)
        return delivered

    def carry(self, parcels: Parcels) -> Parcels:
        """Carry bytes that a protocol's halves send each other; the caller meters them.

        It does not record them: the caller records what a party can read (``show``).

        Returns:
            The messages delivered: the same batch unless a fault struck.
        """
        delivered: Parcels = self._struck(parcels)
        return delivered

    def show(self, messages: Messages, *, origins: IntArray | None = None) -> None:
        """Record what receivers read in bytes that were carried to them (``send`` does both).

        It also records what a party holds after computing on what it received. Neither costs bytes.
        """
        if self._recorder is not None:
            self._recorder.record(messages, origins=origins)

    def _struck(self, messages: Any) -> Any:
        for fault in self._faults:
            messages = fault.apply(messages)
        return messages

    def note_result(self, round_: int, block: DenseBlock, *, to: IntArray | None = None) -> None:
        """Record the public table after a round; its broadcast is counted in the next round.

        Args:
            round_: which round.
            block: the table, or a part of it.
            to: int64[k], the only clients who are sent that part; None for all.
        """
        if self._recorder is not None:
            self._recorder.record_result(round_, block, to)

    def note_own(
        self,
        round_: int,
        clients: IntArray,
        block: Callable[[bool], RowBlock],
        beside: Callable[[], Columns],
    ) -> None:
        """Record clients' inputs to the sum, each for itself; not counted as traffic.

        Args:
            round_: which round.
            clients: int64[B].
            block: makes one segment of rows per client, virtual rows left out, with ring words if
                it is called with True; not called where nothing is recorded.
            beside: makes further columns by name, with a value for each client.
        """
        if self._recorder is not None:
            self._recorder.record_own(round_, clients, block, beside())

    def abandon_round(self, round_: int) -> None:
        """Forget the recording of a round that was not completed."""
        if self._recorder is not None:
            self._recorder.abandon_round(round_)

    def end_round(self, round_: int) -> None:
        """Complete the recording of a round."""
        if self._recorder is not None:
            self._recorder.end_round(round_)
