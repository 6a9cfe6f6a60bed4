"""What collectors share whose denoisers hold a part of every upload: who they are, keys, floors."""

from dataclasses import asdict, replace
from typing import Any, Unpack

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.base.table import TableCollector, TableSizes
from secure_fedrec.streams import Streams
from secure_fedrec.traits import Traits

MAX_REAL_CLIENTS = 64
"""Clients of a round that runs with real cryptography in one process."""


SHARED = Traits(
    virtual_rows="taken-out", reports=None, uploads="shares", noise=None, denoising="shares"
)
"""Of shared uploads, but for who the denoisers are."""


class RecruitedDenoisers(TableCollector):
    """Base of a collector whose denoisers are clients drawn once.

    Args:
        config: settings of the layer, with ``count``, ``kem`` and ``execution``.
        floor: fewest clients of a round.
        streams: the run's random streams; "denoisers" draws who they are. Shares and keys come
            from the operating system.
        table: sizes and ring, see ``TableCollector``.

    Attributes:
        denoisers: int64[count], client number of each denoiser.

    Raises:
        SumBudgetError: the ring is too small for a sum over all clients.
    """

    def __init__(
        self,
        config: Any,
        *,
        floor: int,
        streams: Streams,
        **table: Unpack[TableSizes],
    ) -> None:
        super().__init__(**table)
        self.codec.require_budget(self.n_clients)
        self.config = config
        self._floor = floor
        draw = streams.stream("denoisers").generator()
        self.denoisers: IntArray = draw.permutation(self.n_clients)[: config.count].astype(np.int64)
        self.execution = config.execution

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings and the denoisers are public."""
        return "shared-upload", {**asdict(self.config), "clients": self.denoisers.tolist()}

    @property
    def traits(self) -> Traits:
        """Sums in shares, and who the denoisers are."""
        return replace(SHARED, denoisers=tuple(self.denoisers.tolist()))

    def require_round(self, round_: int, participants: IntArray) -> None:
        """Check that a round of these clients can begin.

        Raises:
            ProtocolError: fewer participants than the floor.
            ConfigError: more participants than run with real cryptography.
        """
        if len(participants) < self._floor:
            raise ProtocolError(
                f"round {round_}: {len(participants)} clients are fewer than the floor of "
                f"{self._floor}"
            )
        if self.config.execution == "real" and len(participants) > MAX_REAL_CLIENTS:
            raise ConfigError(
                "protection.execution",
                "real",
                f"{len(participants)} clients, at most {MAX_REAL_CLIENTS} run with real "
                "cryptography; set cohort.clients_per_round",
            )
