"""The public side of a round, equal for all parties: clients, mask neighbours and signers.

Predicates of what a client was told decide what it accepts and gives, so that a model checker of
the protocol uses the same predicates as the clients. The check of the windows is
``graph.windows_hold``, whose signatures count is ``Topology.signers``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError, RefusalError
from secure_fedrec.protection.masking.config.committee import draw_committee
from secure_fedrec.protection.masking.config.graph import (
    graph_seed,
    harary_neighbours,
    permutation,
    windows_hold,
)
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import Context, cohort_hash
from secure_fedrec.protection.masking.messages.key_messages import Setup

NO_BEACON = bytes(32)

ShareKind: TypeAlias = Literal["mask", "self"]
"""The kind of share that is due: of which of a neighbour's two secrets."""


def enough_clients(marks: BoolArray, least: int) -> bool:
    """Whether enough clients (bool[n]) are marked to hide in a sum (``min_survivors``)."""
    return int(marks.sum()) >= least


def enough_neighbours(live: int, threshold: int) -> bool:
    """Whether the neighbours that are left can restore a client's secrets."""
    return live >= threshold


def is_quorum(signatures: int, quorum: int) -> bool:
    """Whether the number of signatures on one statement is exactly the quorum."""
    return signatures == quorum


def share_due(*, survives: bool, same_sharers: bool) -> ShareKind | None:
    """Which of a neighbour's two shares a client gives away in a round: never both.

    The share of its mask seed if the neighbour is not in the sum. The share of its self-mask seed
    if it is in the sum *and* signed the very set of sharers that this client was told of: a
    neighbour that was told of another set added other pair masks, and may be hidden by its self
    mask alone.

    Args:
        survives: whether the neighbour is among the survivors that the quorum signed.
        same_sharers: whether the neighbour's signature over its sharers is one over this client's.

    Returns:
        "mask", "self", or None if neither is due.
    """
    if not survives:
        return "mask"
    return "self" if same_sharers else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicRound:
    """The facts that SETUP fixes.

    Args:
        context: round id and hashes.
        config: the configuration.
        cohort: int64[n], client numbers, ascending. A client's *place* is its position here.
        epoch: epoch of the beacon, 0 without one.
        server_channel: the server's X25519 key of the round.

    Attributes:
        places: place of each client.
    """

    context: Context
    config: MaskingConfig
    cohort: IntArray
    epoch: int
    server_channel: bytes
    places: dict[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        places = {client: place for place, client in enumerate(self.cohort.tolist())}
        object.__setattr__(self, "places", places)

    @classmethod
    def of(cls, setup: Setup, context: Context) -> "PublicRound":
        """Check that a SETUP states the facts that its header is bound to.

        Raises:
            ProtocolError: configuration or cohort have other hashes, no public state is named
                against an active server, or no epoch where the graph needs a beacon. (Elsewhere it
                may be: beacons also draw cohorts.)
        """
        if setup.config.hash != context.config_hash:
            raise ProtocolError("SETUP: the configuration is not that of the header")
        if cohort_hash(setup.cohort) != context.cohort_hash:
            raise ProtocolError("SETUP: the cohort is not that of the header")
        if setup.config.lacks_statement:
            raise ProtocolError("SETUP: against an active server a statement must be named")
        if setup.config.needs_beacon and not setup.epoch:
            raise ProtocolError(
                "SETUP: against an active server a sparse graph needs a beacon; without one only "
                "the complete graph is safe"
            )
        return cls(
            context=context,
            config=setup.config,
            cohort=setup.cohort,
            epoch=setup.epoch,
            server_channel=setup.channel_public,
        )

    @property
    def beacon_due(self) -> bool:
        """Whether the graph must come from the beacon of the epoch."""
        return bool(self.epoch) and self.config.degree is not None

    def require_fresh_epoch(self, beacons: Mapping[int, bytes]) -> None:
        """Check that the round was set up before its beacon was known.

        Args:
            beacons: public randomness observed so far, by epoch.

        Raises:
            RefusalError: the beacon is known, or another one comes first.
        """
        epoch = self.epoch
        if epoch:
            # Whoever knew the beacon before the keys were signed could have chosen the round for
            # the graph that it gives.
            if max(beacons, default=0) >= epoch:
                raise RefusalError(f"SETUP: the beacon of epoch {epoch} is known already")
            if epoch > 1 and epoch - 1 not in beacons:
                problem = "is not the next one: the beacon of the one before was not observed"
                raise RefusalError(f"SETUP: epoch {epoch} {problem}")

    def require_neighbours(self, name: str, live: IntArray, records: Mapping[int, bytes]) -> None:
        """Check that records are of a client's live neighbours, all of them and in order.

        Args:
            name: name of the message that brought them.
            live: int64[...], places of these neighbours.
            records: by client.

        Raises:
            ProtocolError: a client is missing, unknown, or out of order.
        """
        expected = self.cohort[live].tolist()
        if list(records) != expected:
            wrong = sorted(set(records) ^ set(expected))
            raise ProtocolError(f"{name}: wrong set of neighbours (see clients {wrong[:5]})")

    def topology(self, beacon: bytes) -> "Topology":
        """The graph that a beacon gives.

        Raises:
            ProtocolError: the complete graph comes with a beacon.
        """
        if self.config.degree is None:
            if beacon != NO_BEACON:
                raise ProtocolError("KEYS: the complete graph takes no beacon")
            return Topology(self.config, NO_BEACON)
        seed = graph_seed(beacon, self.context.cohort_hash, self.context.round_id)
        return Topology(self.config, seed)


class Topology:
    """Which clients mask with each other, and which sign the survivors.

    Args:
        config: the configuration.
        seed: seed of ring and committee; not used by the complete graph.
    """

    __slots__ = ("_committee", "_config", "_order", "_rows", "seed")

    def __init__(self, config: MaskingConfig, seed: bytes) -> None:
        self.seed = seed
        self._config = config
        self._order: IntArray | None = None
        self._rows: IntArray | None = None
        self._committee: BoolArray | None = None
        if config.degree is not None:
            self._order = permutation(seed, config.clients)
            self._rows = harary_neighbours(self._order, config.degree)
            if config.committee is not None:
                self._committee = draw_committee(seed, config.clients, config.committee)

    def neighbours(self, place: int) -> IntArray:
        """int64[k], places of a client's neighbours, ascending."""
        if self._rows is not None:
            row: IntArray = self._rows[place]
            return row
        others = np.arange(self._config.clients - 1)
        return others + (others >= place)

    def live(self, place: int, marks: BoolArray) -> IntArray:
        """Places of the neighbours that are marked."""
        neighbours = self.neighbours(place)
        return neighbours[marks[neighbours]].astype(np.int64, copy=False)

    def signers(self, survivors: BoolArray) -> BoolArray:
        """bool[n], survivors whose signatures count: those on the committee, if there is one."""
        return survivors if self._committee is None else survivors & self._committee

    def require_survivors(self, survivors: BoolArray) -> None:
        """Check that a sum over these clients hides each of them.

        Raises:
            ProtocolError: they are fewer than configured, or, against an active server, their
                graph could fall apart.
        """
        least = self._config.min_survivors
        if not enough_clients(survivors, least):
            raise ProtocolError(f"{survivors.sum()} survivors; a sum needs at least {least}")
        window = self._config.window_least
        if window is None or self._order is None:
            return
        if not windows_hold(self._order, survivors, self._config.neighbours, window):
            raise ProtocolError(
                f"the survivors leave fewer than {window} clients in some "
                f"{self._config.neighbours // 2} consecutive places of the ring: the graph could "
                "be cut"
            )

    def require_live(self, place: int, client: int, marks: BoolArray) -> IntArray:
        """Places of the neighbours that are marked: enough to restore a client's secrets.

        Raises:
            ProtocolError: fewer than the threshold.
        """
        live, threshold = self.live(place, marks), self._config.threshold
        if not enough_neighbours(len(live), threshold):
            raise ProtocolError(
                f"client {client} has {len(live)} live neighbours; its secrets need {threshold}"
            )
        return live
