"""The wire of a run between parties in one process: what faults strike, and what is metered."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby
from typing import TypeVar

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.session.nodes import Node, Role
from secure_fedrec.protection.session.parties import Parcel
from secure_fedrec.wire import Parcels, Parties, Step, Wire

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True, eq=False)
class OverWire:
    """Carries parcels over a wire (a ``Carrier``).

    Args:
        wire: of the run.
        round: of the run.
        steps: by stage, what messages that carry rows are for.
        rows: by stage, rows in a message of so many bytes, which count as vectors; messages of
            other stages are metered as what a protocol sends beside them.
        unmetered: stages that are metered elsewhere.
        denoisers: int64[D], client number of each denoiser.

    Attributes:
        delivered: by stage that is in ``steps``: what arrived.
    """

    wire: Wire
    _: KW_ONLY
    round: int
    steps: Mapping[str, Step]
    rows: Mapping[str, Callable[[IntArray], IntArray]]
    unmetered: frozenset[str] = frozenset()
    denoisers: IntArray | None = None
    delivered: dict[str, list[Parcel]] = field(
        init=False, default_factory=lambda: defaultdict(list)
    )

    def __call__(self, sent: Sequence[Parcel]) -> list[Parcel]:
        """What arrives; prompts do, they carry nothing."""
        arrived: list[Parcel] = []
        for (stage, by, to, prompt), group in groupby(sent, _line):
            parcels = list(group)
            arrived += parcels if prompt else self._carry(stage, by, to, parcels)
        return arrived

    def _carry(self, stage: str, by: Role, to: Role, parcels: list[Parcel]) -> list[Parcel]:
        batch = Parcels(
            round=self.round,
            stage=stage,
            step=self.steps.get(stage),
            senders=_parties(by, [parcel.sender for parcel in parcels]),
            receivers=_parties(to, [parcel.receiver for parcel in parcels]),
            data=tuple(parcel.data for parcel in parcels),
        )
        if stage not in self.unmetered:
            sizes, rows = batch.sizes, self.rows.get(stage)
            self.wire.meter.count_bytes(
                sizes,
                rows=None if rows is None else rows(sizes),
                senders=self._metered(batch.senders),
                receivers=self._metered(batch.receivers),
            )
        found = self.wire.carry(batch)
        arrived = parcels
        if found is not batch:  # a fault struck
            senders, receivers = found.senders.ids.tolist(), found.receivers.ids.tolist()
            ends = zip(senders, receivers, found.data, strict=True)
            arrived = [Parcel(Node(by, one), Node(to, two), stage, data) for one, two, data in ends]
        if stage in self.steps:
            self.delivered[stage] += arrived
        return arrived

    def read(self, stage: str, read: Callable[[bytes], Read]) -> dict[int, tuple[int, Read]]:
        """Size and content of each sender's first message that can be read, by its number.

        Beside the messages of a stage a line may bring copies and rubbish, which their receiver
        refused.
        """
        found: dict[int, tuple[int, Read]] = {}
        for parcel in self.delivered[stage]:
            if parcel.sender.number not in found:
                with suppress(ProtocolError, WireError):
                    found[parcel.sender.number] = len(parcel.data), read(parcel.data)
        return found

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
