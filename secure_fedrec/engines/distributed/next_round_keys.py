"""The server's keys of the next attempt, agreed on while one is summed (``masking.pipeline``).

They are used for the next attempt if it has the same clients, and enough of those who shared are
still in the same session; otherwise its keys are agreed on in two further exchanges. A client that
reconnects in between has no keys, and takes part one round later.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines.distributed.public_randomness import awaited
from secure_fedrec.protection.base.hosting import HostedSum, Hosting, Standing
from secure_fedrec.protection.masking import MaskingServer
from secure_fedrec.protection.masking.keys_ahead import KeysAhead
from secure_fedrec.protection.masking.pipeline import PipelinedServer
from secure_fedrec.protection.session import Hub, Identity
from secure_fedrec.protection.session.beacon import Beacon


@dataclass(frozen=True, slots=True, eq=False)
class NextRoundHalf:
    """The server's half of an attempt whose public state is not known yet.

    ``sessions`` are those in which its keys were agreed on, by client.
    """

    at: Standing
    server: MaskingServer
    sessions: Mapping[int, bytes] = field(default_factory=dict)


class NextRoundKeys:
    """Keys of the next attempts, if the stack's keys can be agreed on ahead.

    Args:
        hosting: hosting of the stack.
        identity: the server's key.
        generations: what the server remembers of clients' journals; brought up to date.
        beacon: source of public randomness at this host; None without one.
        patience: seconds to wait for a beacon that is due.

    Attributes:
        epoch: the last one that a round was begun under; 0 before the first.
        late: clients that are invited to the attempt in progress and have no keys for it.
    """

    def __init__(
        self,
        hosting: Hosting,
        identity: Identity,
        generations: dict[bytes, int],
        beacon: Beacon | None = None,
        patience: float = 120.0,
    ) -> None:
        self._hosting = hosting
        self._identity = identity
        self._generations = generations
        self._beacon = beacon
        self._patience = patience
        self.epoch = 0
        self._kept: NextRoundHalf | None = None
        self._pipeline: PipelinedServer | None = None
        self._next: Standing | None = None
        self._following: NextRoundHalf | None = None
        self.late: frozenset[int] = frozenset()

    @property
    def ready(self) -> int:
        """How many clients have keys for the next attempt."""
        return 0 if self._kept is None else len(self._kept.server.sharers)

    def take(
        self, invited: IntArray, sessions: Mapping[int, bytes], there: IntArray | None = None
    ) -> NextRoundHalf | None:
        """Take the stored keys, if they fit an attempt. They are dropped in either case.

        Args:
            invited: int64[P], the attempt's clients.
            sessions: sessions of connected clients, by client.
            there: int64[k], clients that the sum must include; None for any sufficient number.
        """
        kept, self._kept, self.late = self._kept, None, frozenset()
        if kept is None:
            return None
        here = [who for who, session in sessions.items() if session == kept.sessions.get(who)]
        present = np.array(sorted(here), dtype=np.int64)
        same = np.array_equal(kept.at.clients, invited)
        shared = np.intersect1d(kept.server.sharers, present)
        some_late = there is not None and not np.isin(there, shared).all()
        if not same or some_late or not kept.server.could_sum(present):
            kept.server.abort("too few clients are left that have keys, or others are invited")
            return None
        self.late = frozenset(np.setdiff1d(invited, shared).tolist())
        return kept

    def begin(self, standing: Callable[[], Standing] | None) -> tuple[int, int]:
        """Begin the attempt after the one that is to be driven.

        Args:
            standing: gives the next attempt without a public state; None where no attempt follows.

        Returns:
            Its round and serial; zeros if no attempt follows, or keys cannot be agreed on ahead.
        """
        self._next = None
        if standing is None or not isinstance(self._hosting, KeysAhead):
            return 0, 0
        self._next = standing()
        return self._next.round, self._next.serial

    def hub(self, at: Standing, taken: NextRoundHalf | None) -> tuple[HostedSum, Hub]:
        """The sum of an attempt, and the hub that drives it and the keys of the next.

        Args:
            at: the attempt.
            taken: the result of ``take`` for it.

        Raises:
            ProtocolError: a beacon is due that is not published.
        """
        hosting, at_next, self._following = self._hosting, self._next, None
        if not isinstance(hosting, KeysAhead):
            total = hosting.hub(at, self._identity, self._generations)
            return total, total.hub
        server = self._opened(hosting, at) if taken is None else taken.server
        if taken is None and server.beacon_due > 1:
            self._published(server.beacon_due - 1)  # clients advance by one epoch
        total = hosting.summed_by(at, server)
        following = None
        if at_next is not None:
            following = self._opened(hosting, at_next)
            self._following = NextRoundHalf(at_next, following)
        self._pipeline = PipelinedServer(server, following)
        return total, self._pipeline

    def publish(self, stage: str) -> None:
        """Make beacons known to the servers whose advertisements are in (``drive``'s between).

        Raises:
            ProtocolError: the one that is due for this attempt is not published in time.
        """
        if self._pipeline is not None:
            self._pipeline.take_beacons(self._published)

    def keep(self, sessions: Mapping[int, bytes]) -> None:
        """Keep the keys of the next attempt, once one is over, however it ended.

        Args:
            sessions: that are left of those in which they were agreed on, by client.
        """
        pipeline, self._pipeline = self._pipeline, None
        following = self._following
        if following is not None and pipeline is not None and pipeline.agreed is not None:
            self._kept = replace(following, sessions=dict(sessions))
        self._following = None

    def _opened(self, hosting: KeysAhead, at: Standing) -> MaskingServer:
        """The server's half of an attempt, under the next epoch if it takes a beacon."""
        begun = replace(at, epoch=self.epoch + 1)
        server = hosting.open_server(begun, self._identity, self._generations)
        self.epoch = max(self.epoch, server.beacon_due)
        return server

    def _published(self, epoch: int) -> bytes:
        """The beacon of an epoch, once it is there.

        Raises:
            ProtocolError: it is not in time.
        """
        return awaited(self._beacon, epoch, self._patience)
