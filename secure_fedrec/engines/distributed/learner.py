"""What every host of a federation computes, the same on each but for its data."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from secure_fedrec.algorithms.base import Algorithm, Exchanging, PublicState
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.engines.distributed.messages import Agreement, Request, decode_state
from secure_fedrec.engines.local import CohortConfig
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.hosting import Standing, hosting_of, require_recorded
from secure_fedrec.protection.masking import state_hash
from secure_fedrec.protection.stack import Stack
from secure_fedrec.streams import Streams

TABLE = ""
"""Name of the public table among the arrays of a state."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Learner:
    """What is computed: the same on every host but for the vault.

    Args:
        algorithm: what is trained.
        stack: how uploads are protected.
        streams: of what everybody draws alike.
        cohort: who is invited.
        n_rows: rows of the shared table.
    """

    algorithm: Algorithm
    stack: Stack
    streams: Streams
    cohort: CohortConfig
    n_rows: int

    def initial(self) -> PublicState:
        """The public state before round 1."""
        return self.algorithm.initial_public(self.n_rows, self.streams)

    def require_recorded(self) -> None:
        """Refuse to record what does not come to a run.

        Raises:
            ConfigError: messages of which hosts cannot say who sent them, or that they do not show.
        """
        require_recorded(hosting_of(self.stack))
        if isinstance(self.algorithm, Exchanging):
            raise ConfigError("--record", True, "hosts do not show what clients give each other")

    def invited(self, round_: int, among: IntArray | None = None) -> IntArray:
        """int64[P], ascending: the clients of a round.

        Args:
            round_: the round.
            among: int64[k], clients that can take part; None for all.
        """
        drawn = self.cohort.draw(round_, self.stack.n_clients, self.streams)
        if among is not None:
            drawn = np.intersect1d(drawn, among)
        return self.stack.collector.participants(drawn)

    def standing(
        self,
        agreement: Agreement,
        round_: int,
        serial: int,
        public: PublicState | None,
        clients: IntArray | None = None,
    ) -> Standing:
        """One attempt.

        Args:
            agreement: with all hosts.
            round_: its round.
            serial: its number.
            public: the public state that it is computed from; None where it is not known yet.
            clients: int64[k], who takes part; None for all who are invited.
        """
        known = {} if public is None else {"table": public.table, **public.extras}
        return Standing(
            round=round_,
            serial=serial,
            clients=self.invited(round_) if clients is None else clients,
            state=state_hash(known) if known else b"",
            series=agreement.series,
            roster=agreement.roster,
            keys=agreement.keys,
        )

    def read(self, agreement: Agreement, request: Request) -> tuple[PublicState, Standing]:
        """The public state and the attempt that a request begins.

        Raises:
            WireError: a state of other arrays or shapes than the algorithm's, or no round.
            ProtocolError: other clients are named than could take part.
        """
        arrays, due = decode_state(request.state), self._shapes
        if request.round < 1 or _shapes(arrays) != due:
            # A client's items are rows of the table, in compiled loops too.
            raise WireError(
                f"a public state of {_shapes(arrays)} in round {request.round}; it has {due}, and "
                "a round a number from 1"
            )
        table = arrays.pop(TABLE)
        public = PublicState(round=request.round - 1, table=table, extras=arrays)
        chosen = request.clients if len(request.clients) else None
        if chosen is not None and not (
            hosting_of(self.stack).whole
            and np.array_equal(self.invited(request.round, chosen), chosen)
        ):
            raise ProtocolError(f"no round {request.round} is summed over those {len(chosen)}")
        at = self.standing(agreement, request.round, request.serial, public, chosen)
        return public, at

    @cached_property
    def _shapes(self) -> dict[str, tuple[int | None, ...]]:
        start = self.initial()
        return _shapes({TABLE: start.table, **start.extras})


def _shapes(arrays: Mapping[str, FloatArray]) -> dict[str, tuple[int | None, ...]]:
    """What does not change over rounds: of others than the table the first size may, None."""
    return {
        name: values.shape if name == TABLE else (None, *values.shape[1:])
        for name, values in sorted(arrays.items())
    }
