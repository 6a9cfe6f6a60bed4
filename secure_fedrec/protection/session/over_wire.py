"""The wire of a run between parties in one process: it applies faults and meters messages."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.protection.session.nodes import SERVER, Node, Role
from secure_fedrec.protection.session.parties import Parcel
from secure_fedrec.wire import Parcels, Parties, Step, Wire

Rows = Callable[[str, IntArray], tuple[Step, IntArray] | None]
"""Purpose of messages of a stage, and their rows by number of bytes; None for other messages."""


@dataclass(frozen=True, slots=True, eq=False)
class OverWire:
    """Carries parcels over a wire (a ``Carrier``).

    Args:
        wire: wire of the run.
        round: round of the run.
        rows: of messages whose rows count as vectors; others are metered as what a protocol sends
            beside them. None meters nothing: messages are counted elsewhere.
        denoisers: int64[D], client number of each denoiser.

    Attributes:
        arrived: messages that came to the server, in order.
    """

    wire: Wire
    _: KW_ONLY
    round: int
    rows: Rows | None
    denoisers: IntArray | None = None
    arrived: list[bytes] = field(init=False, default_factory=list)

    def __call__(self, sent: Sequence[Parcel]) -> list[Parcel]:
        """The messages that arrive; prompts, which are empty, always arrive."""
        arrived: list[Parcel] = []
        for (stage, by, to, prompt), group in groupby(sent, _line):
            parcels = list(group)
            arrived += parcels if prompt else self._carry(stage, by, to, parcels)
        return arrived

    def _carry(self, stage: str, by: Role, to: Role, parcels: list[Parcel]) -> list[Parcel]:
        sizes = np.array([len(parcel.data) for parcel in parcels], dtype=np.int64)
        told = None if self.rows is None else self.rows(stage, sizes)
        batch = Parcels(
            round=self.round,
            stage=stage,
            step=None if told is None else told[0],
            senders=_parties(by, [parcel.sender for parcel in parcels]),
            receivers=_parties(to, [parcel.receiver for parcel in parcels]),
            data=tuple(parcel.data for parcel in parcels),
        )
        if self.rows is not None:
            self.wire.meter.count_bytes(
                sizes,
                rows=None if told is None else told[1],
                senders=self._metered(batch.senders),
                receivers=self._metered(batch.receivers),
            )
        found = self.wire.carry(batch)
        arrived = parcels
        if found is not batch:  # a fault struck
            senders, receivers = found.senders.ids.tolist(), found.receivers.ids.tolist()
            ends = zip(senders, receivers, found.data, strict=True)
            arrived = [Parcel(Node(by, one), Node(to, two), stage, data) for one, two, data in ends]
        self.arrived.extend(parcel.data for parcel in arrived if parcel.receiver == SERVER)
        return arrived

    def _metered(self, parties: Parties) -> IntArray | str | None:
        if parties.role == "client":
            return parties.ids
        if parties.role == "denoiser" and self.denoisers is not None:
            return self.denoisers[parties.ids]
        return None if parties.role == "server" else parties.role


def _line(parcel: Parcel) -> tuple[str, Role, Role, bool]:
    return parcel.stage, parcel.sender.role, parcel.receiver.role, not parcel.data


def _parties(role: Role, nodes: Sequence[Node]) -> Parties:
    ids = np.array([node.number for node in nodes], dtype=np.int64)
    return Parties(role=role.name.lower(), ids=ids)
