"""The computation of every host of a federation, the same except for its data."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

import numpy as np

from secure_fedrec.accounting import spend
from secure_fedrec.algorithms.base import Addressed, Algorithm, Exchanging, PublicState
from secure_fedrec.core.arrays import FloatArray, IntArray, WordArray
from secure_fedrec.engines.distributed.host_messages import (
    Agreement,
    Request,
    decode_state,
    encode_state,
    is_single,
)
from secure_fedrec.engines.local_engine import CohortConfig, require_arrays
from secure_fedrec.engines.public_state_words import PublicStateWords
from secure_fedrec.errors import ConfigError, RefusalError, WireError
from secure_fedrec.protection.base import StateKeeper
from secure_fedrec.protection.base.hosting import Held, Standing, require_recorded
from secure_fedrec.protection.base.layer_interfaces import Released
from secure_fedrec.protection.base.stack import Stack, hosting_of
from secure_fedrec.protection.masking.envelope import encode_ids
from secure_fedrec.protection.session import Roster
from secure_fedrec.protection.session.statement import (
    SOFTWARE,
    Later,
    Statement,
    labelled_hash,
    state_hash,
)
from secure_fedrec.streams import Streams

TABLE = ""
"""Name of the public table among the arrays of a state."""

_NONE: FloatArray = np.zeros(0)
_HELD = b"\x01"
_HELD_DOMAIN = b"secure-fedrec|v1|hosts|held-state|"


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingPlan:
    """The computation of a run: the same on every host except for the vault.

    Args:
        algorithm: the algorithm.
        stack: how uploads are protected.
        streams: streams of the draws that are equal on all hosts.
        cohort: which clients are invited.
        n_rows: rows of the shared table.
        listed: int64[k], clients that may be invited; None for all.
    """

    algorithm: Algorithm
    stack: Stack
    streams: Streams
    cohort: CohortConfig
    n_rows: int
    listed: IntArray | None = None

    def under(self, roster: Roster) -> "TrainingPlan":
        """The same among the clients of a roster: clients not on it are no longer invited.

        Raises:
            ConfigError: it lists an unknown client, or lacks a party that rounds need.
        """
        strangers = roster.numbers[roster.numbers >= self.stack.n_clients]
        if len(strangers):
            problem = (
                f"lists client {strangers[0]}, but clients are 0 to {self.stack.n_clients - 1}"
            )
            raise ConfigError("roster.version", roster.version, problem)
        for helper, host in hosting_of(self.stack).helpers().items():
            for node in (helper, host):
                if node not in roster:
                    problem = f"lacks {node}, which every round needs: {helper} is there"
                    raise ConfigError("roster.version", roster.version, problem)
        return replace(self, listed=roster.numbers)

    @property
    def code(self) -> str:
        """Names and revisions of the code that computes: equal on all hosts of a round."""
        algorithm = type(self.algorithm)
        revision = getattr(algorithm, "revision", "")
        return f"{SOFTWARE} {algorithm.__module__}.{algorithm.__qualname__} {revision}".strip()

    def price(self, releases: int) -> float:
        """Epsilon, against the server, of that many noised uploads of one client.

        Args:
            releases: how many.

        Returns:
            The largest of its parts (sums, reports, bags); 0 where nothing is noised, infinity
            where the noise is too small for a claim.
        """
        if not self._noised or not releases:
            return 0.0
        if releases not in self._prices:
            parts = self.stack.released(rounds=releases)
            self._prices[releases] = max(map(_epsilon, parts))
        return self._prices[releases]

    @property
    def budget(self) -> float:
        """Epsilon of all rounds, each of which is summed once; 0 where nothing is noised."""
        return self.price(self.algorithm.rounds)

    def require_affordable(self, releases: int) -> None:
        """Check that a client may send as many noised uploads.

        Uploads are counted, since the price of the dearest part may not grow with rounds.

        Raises:
            RefusalError: the uploads exceed the number of rounds.
        """
        if self._noised and releases > self.algorithm.rounds:
            raise RefusalError(
                f"this client's budget is spent: {releases - 1} noised uploads of "
                f"{self.algorithm.rounds} were sent, and one more would cost epsilon "
                f"{self.price(releases):.3g} of {self.budget:.3g}"
            )

    @cached_property
    def _noised(self) -> bool:
        return bool(self.stack.released(rounds=1))

    @cached_property
    def _prices(self) -> dict[int, float]:
        return {}

    def require_round(self, round_: int) -> None:
        """Check that this is the number of a round.

        Raises:
            ProtocolError: the number does not belong to a round.
        """
        if not 1 <= round_ <= self.algorithm.rounds:
            raise RefusalError(
                f"round {round_} does not exist: rounds are 1 to {self.algorithm.rounds}"
            )

    def initial(self) -> PublicState:
        """The public state before round 1."""
        return self.algorithm.initial_public(self.n_rows, self.streams)

    def require_recorded(self) -> None:
        """Refuse to record hosts whose records cannot be joined to one run.

        Raises:
            ConfigError: messages of which hosts cannot say who sent them, or that they do not show.
        """
        require_recorded(hosting_of(self.stack))
        if self.stack.codec.beyond == "clip":
            raise ConfigError("--record", True, "sites do not tell how many values they clipped")
        if isinstance(self.algorithm, Addressed):
            raise ConfigError("--record", True, "hosts do not show what one client alone is sent")
        if isinstance(self.algorithm, Exchanging):
            raise ConfigError("--record", True, "hosts do not show what clients give each other")

    def invited(self, round_: int, among: IntArray | None = None) -> IntArray:
        """int64[P], ascending: the clients of a round.

        Args:
            round_: the round.
            among: int64[k], clients that can take part; None for all.
        """
        drawn = self.cohort.draw(round_, self.stack.n_clients, self.streams)
        for some in (among, self.listed):
            if some is not None:
                drawn = np.intersect1d(drawn, some)
        return self.stack.collector.participants(drawn)

    def standing(
        self,
        agreement: Agreement,
        round_: int,
        serial: int,
        public: PublicState | bytes | None,
        clients: IntArray | None = None,
    ) -> Standing:
        """One attempt.

        Args:
            agreement: with all hosts.
            round_: its round.
            serial: its number.
            public: the public state that it is computed from, without extras sent to some clients
                only; or the server's part of it, if clients keep it secret (``hosting.Held``); None
                if it is not known yet.
            clients: int64[k], clients that take part; None for all that are invited.
        """
        state, held = b"", None
        if isinstance(public, bytes):
            held = Held(len(self._begun(1).words), public)
            state = sha256(_HELD_DOMAIN + public).digest()
        elif public is not None:
            known = {"table": public.table, **self.common(public)}
            if isinstance(self.algorithm, Exchanging):
                # Only participation is summed, so public states repeat: the round is named as well.
                known["round"] = np.array([float(round_)])
            state = state_hash(known)
        invited = clients
        if invited is None or hosting_of(self.stack).drops:
            invited = self.invited(round_)
        present = invited if clients is None else clients
        federation = agreement.federation
        return Standing(
            round=round_,
            serial=serial,
            clients=invited,
            present=present,
            statement=Statement(
                federation=federation,
                state=state,
                round=round_,
                cohort=labelled_hash("invited", encode_ids(invited), encode_ids(present)),
                settings=agreement.digest,
                code=self.code,
                price=self.price(round_),
            )
            if state
            else Later(federation=federation),
            series=agreement.series,
            roster=agreement.roster,
            keys=agreement.keys,
            held=held,
        )

    def common(self, public: PublicState) -> dict[str, FloatArray]:
        """The extras that all clients are sent."""
        parts = self._addressed(public)
        return {name: values for name, values in public.extras.items() if name not in parts}

    def sent(self, public: PublicState | bytes) -> Callable[[int], bytes]:
        """The encoded public state for each client; -1 for a host without a client."""
        if isinstance(public, bytes):
            return lambda _: _HELD + public
        parts, common = self._addressed(public), self.common(public)
        whole = encode_state({TABLE: public.table, **common})

        def with_parts(client: int) -> bytes:
            own = {name: public.extras[name] for name, who in parts.items() if client in who}
            return encode_state({TABLE: public.table, **common, **own})

        return with_parts if parts else lambda _: whole

    def _addressed(self, public: PublicState) -> Mapping[str, IntArray]:
        algorithm = self.algorithm
        return algorithm.addressed(public) if isinstance(algorithm, Addressed) else {}

    def read(
        self, agreement: Agreement, request: Request, client: int = -1
    ) -> tuple[PublicState, Standing]:
        """The public state and the attempt that a request begins.

        Args:
            agreement: with all hosts.
            request: it.
            client: the client at this host; -1 at a helper's own host.

        Raises:
            WireError: the bytes are not a state, or hold arrays for other clients.
            ProtocolError: a state of other arrays or shapes than the algorithm's, other clients are
                named than could take part, or there is no such round.
        """
        self.require_round(request.round)
        arrays = decode_state(request.state)
        table = arrays.pop(TABLE, _NONE)
        public = PublicState(round=request.round - 1, table=table, extras=arrays)
        require_arrays(self.algorithm, self._start, public)
        for name, who in self._addressed(public).items():
            if client not in who or arrays[name].shape != table.shape:
                raise WireError(f"{name} is for other clients, or of another shape than the table")
        chosen = self._chosen(request)
        at = self.standing(agreement, request.round, request.serial, public, chosen)
        at.statement.known.require_same(request.stated)
        return public, at

    def opened(
        self, agreement: Agreement, request: Request, read: Callable[[Standing], WordArray | None]
    ) -> tuple[PublicState, Standing]:
        """The same at a client, if clients keep the public state secret from the server.

        The collector is given the algorithm's step from that state.

        Args:
            agreement: with all hosts.
            request: the request that begins the attempt.
            read: the bits of the state that the server holds (``hosting.StateHidden``).

        Raises:
            WireError: a state is present where it must not be, is missing, or is not finite.
            ProtocolError: it is refused (``read``), or other clients are named than could take
                part.
        """
        held, first = request.state[1:], request.round == 1
        if request.state[:1] != _HELD or request.round < 1 or first == bool(held):
            raise WireError(f"round {request.round} cannot begin with this encrypted state")
        chosen = self._chosen(request)
        at = self.standing(agreement, request.round, request.serial, held, chosen)
        if request.stated:  # no statement after the last round
            at.statement.known.require_same(request.stated)
        start = self._begun(request.round)
        words = read(at)
        public = start.public if words is None else start.read(words)
        if not all(map(is_single, (public.table, *public.extras.values()))):
            raise WireError("the encrypted state is not finite, in single precision")
        keeper = self.stack.collector
        if isinstance(keeper, StateKeeper):
            keeper.keep(PublicStateWords(self.algorithm, public, self.stack.layout))
        return public, at

    def _chosen(self, request: Request) -> IntArray | None:
        chosen = request.clients if len(request.clients) else None
        if chosen is not None and not (
            hosting_of(self.stack).whole
            and np.array_equal(self.invited(request.round, chosen), chosen)
        ):
            raise RefusalError(f"round {request.round} is not over these {len(chosen)} clients")
        return chosen

    def _begun(self, round_: int) -> PublicStateWords:
        """The first public state, with the number of the round before a given one."""
        public = replace(self._start, round=round_ - 1)
        return PublicStateWords(self.algorithm, public, self.stack.layout)

    @cached_property
    def _start(self) -> PublicState:
        return self.initial()


def _epsilon(part: Released) -> float:
    try:
        return spend(part.events, adversary="server", delta=part.delta).epsilon
    except ConfigError:
        return math.inf
