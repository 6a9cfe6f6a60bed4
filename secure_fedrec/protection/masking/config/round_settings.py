"""The public configuration of a masked sum, which every message of its round is bound to.

Layout on the wire, little-endian: u8 bits | u8 adversary | u8 key agreement | u32 clients
| u32 degree (0: complete graph) | u32 threshold | u32 survivors | u32 quorum | u32 committee (0:
all clients) | u32 corrupt clients | u32 window (0: none) | u32 length | 32 layout hash | 32 digest
of the statement.
"""

import struct
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias, get_args

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking.config.committee import overlap_of
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.masking.config.parameters import MaskingParameters, find_parameters
from secure_fedrec.protection.session.statement import NO_STATEMENT, labelled_hash
from secure_fedrec.settings import Settings, Within

KeyAgreement: TypeAlias = Literal["x25519", "x25519+mlkem768"]

_LAYOUT = struct.Struct("<BBB9I32s32s")
ENCODED_BYTES = _LAYOUT.size
_NUMBERS = (
    "clients",
    "degree",
    "threshold",
    "min_survivors",
    "quorum",
    "committee",
    "corrupt_clients",
    "window_least",
    "length",
)
"""The settings that are numbers, in the order of the layout; 0 for None."""
_ADVERSARIES = get_args(Adversary)
_AGREEMENTS = get_args(KeyAgreement)
_MOST = 2**24


class MaskingConfig(Settings, section="masking"):
    """Settings of one masked sum; ``MaskingConfig.for_cohort`` finds safe ones.

    Args:
        clients: clients of the cohort, n.
        bits: ring width b, 1 to 64.
        length: ring words per vector, d.
        layout_hash: what the words mean (``layouts``); 32 bytes.
        degree: neighbours of each client, even; None for the complete graph.
        threshold: shares that restore a secret, t.
        min_survivors: fewest vectors that may be summed; ``overlap`` at least.
        quorum: signatures on one survivor set that clients ask for before they reveal anything;
            a curious server names one set, and clients do not confirm it.
        committee: clients that the beacon draws to give these signatures, m; None for all clients.
            Only where the server is active and the graph is not complete.
        corrupt_clients: clients that may work with the server, c.
        window_least: survivors in every degree/2 consecutive places of the ring of clients; set
            exactly when the server is active and the graph is not complete.
        adversary: the server that is withstood: "curious" follows the protocol, "active" deviates.
        key_agreement: "x25519", or "x25519+mlkem768" against later quantum computers as well.
        statement: digest of what the round agrees on (``Statement.digest``, ``Later.digest``). It
            may be missing in a plan, but not in a round against an active server.

    Raises:
        ConfigError: a setting is out of range, or they do not fit together.
    """

    clients: Annotated[int, Within(3, _MOST)]
    bits: Annotated[int, Within(1, 64)]
    length: Annotated[int, Within(1, 2**31 - 1)]
    layout_hash: bytes
    degree: int | None = None
    threshold: int
    min_survivors: int
    quorum: int
    committee: int | None = None
    corrupt_clients: int
    window_least: int | None = None
    adversary: Adversary = "active"
    key_agreement: KeyAgreement = "x25519"
    statement: bytes = NO_STATEMENT

    def _agree(self) -> None:
        for key in ("layout_hash", "statement"):
            if len(getattr(self, key)) != 32:
                raise self.refusal(key, "must have 32 bytes")
        self._check_graph()
        self._check_counts()

    @classmethod
    def for_cohort(
        cls,
        clients: int,
        *,
        bits: int,
        length: int,
        layout_hash: bytes,
        corrupt: float = 0.1,
        dropout: float = 0.1,
        adversary: Adversary = "active",
        roster: int | None = None,
        key_agreement: KeyAgreement = "x25519",
        statement: bytes = NO_STATEMENT,
    ) -> "MaskingConfig":
        """Settings from exact tail bounds (``find_parameters``): complete graph up to 128 clients.

        Args:
            clients: clients of the cohort, n.
            bits: ring width.
            length: ring words per vector.
            layout_hash: what the words mean.
            corrupt: largest fraction of corrupt clients, of the roster if one is given.
            dropout: largest fraction of dropouts that a round survives.
            adversary: the server that is withstood.
            roster: clients from which the cohort is drawn; None if the roster is the cohort.
            key_agreement: "x25519" or "x25519+mlkem768".
            statement: digest of what the round agrees on.

        Raises:
            ConfigError: no graph meets the bounds; the message says what to change.
        """
        found = find_parameters(
            clients, corrupt=corrupt, dropout=dropout, adversary=adversary, roster=roster
        )
        return cls.of(
            found,
            bits=bits,
            length=length,
            layout_hash=layout_hash,
            key_agreement=key_agreement,
            statement=statement,
        )

    @classmethod
    def of(cls, found: MaskingParameters, **others: Any) -> "MaskingConfig":
        """Settings of the parameters found for a cohort.

        Args:
            found: cohort, graph, thresholds and adversary.
            others: every field that these do not decide.
        """
        return cls(
            clients=found.n,
            degree=None if found.complete else found.degree,
            threshold=found.threshold,
            min_survivors=found.min_survivors,
            quorum=found.quorum,
            committee=found.committee,
            corrupt_clients=found.corrupt_clients,
            window_least=found.window_least,
            adversary=found.adversary,
            **others,
        )

    @cached_property
    def neighbours(self) -> int:
        """Neighbours of each client, k."""
        return self.clients - 1 if self.degree is None else self.degree

    @cached_property
    def hybrid(self) -> bool:
        """Whether keys are agreed with ML-KEM as well."""
        return self.key_agreement != "x25519"

    @cached_property
    def needs_beacon(self) -> bool:
        """Whether the graph must come from randomness that the server does not choose."""
        return self.adversary == "active" and self.degree is not None

    @cached_property
    def overlap(self) -> int:
        """Fewest clients that any sum may be over.

        Against an active server it is large enough that any two sums share an honest client.
        Clients check that all honest clients of a sum are of one epoch; so two epochs, each with
        its own ring and committee, cannot both give a sum. 1 against a curious server.
        """
        return overlap_of(self.clients, self.corrupt_clients) if self.adversary == "active" else 1

    @cached_property
    def agrees(self) -> bool:
        """Whether survivors are signed before anything is revealed (CONFIRM, QUORUM)."""
        return self.adversary == "active"

    @cached_property
    def lacks_statement(self) -> bool:
        """Whether rounds are refused: the server is active, and nothing is stated."""
        return self.adversary == "active" and self.statement == NO_STATEMENT

    @cached_property
    def hash(self) -> bytes:
        """What every message is bound to."""
        return labelled_hash("config", self.encoded)

    @cached_property
    def encoded(self) -> bytes:
        """The fixed layout of the module's description."""
        words = _ADVERSARIES.index(self.adversary), _AGREEMENTS.index(self.key_agreement)
        numbers = [getattr(self, name) or 0 for name in _NUMBERS]
        return _LAYOUT.pack(self.bits, *words, *numbers, self.layout_hash, self.statement)

    @classmethod
    def decode(cls, data: bytes) -> "MaskingConfig":
        """Inverse of ``encoded``.

        Raises:
            ProtocolError: no configuration has these bytes, or its settings do not fit together.
        """
        bits, adversary, agreement, *given, layout_hash, statement = _LAYOUT.unpack(data)
        numbers: dict[str, Any] = dict(zip(_NUMBERS, given, strict=True))
        for name in ("degree", "committee", "window_least"):
            numbers[name] = numbers[name] or None
        if adversary >= len(_ADVERSARIES) or agreement >= len(_AGREEMENTS):
            raise ProtocolError("SETUP: unknown adversary or key agreement")
        try:
            return cls(
                bits=bits,
                layout_hash=layout_hash,
                adversary=_ADVERSARIES[adversary],
                key_agreement=_AGREEMENTS[agreement],
                statement=statement,
                **numbers,
            )
        except ConfigError as error:
            raise ProtocolError(f"SETUP: {error}") from None

    def _check_graph(self) -> None:
        if self.degree is not None and (
            self.degree % 2 or not 2 <= self.degree <= self.clients - 2
        ):
            even = f"must be even, from 2 to {self.clients - 2}; None is the complete graph"
            raise self.refusal("degree", even)
        if self.needs_beacon != (self.window_least is not None):
            exactly = "must be set exactly when the graph is sparse and the server active"
            raise self.refusal("window_least", exactly)
        if self.window_least is not None:
            self.require_between("window_least", 1, self.neighbours // 2)

    def _check_counts(self) -> None:
        self.require_between("corrupt_clients", 0, self.clients - 2)
        least = 2 if self.degree is not None else max(2, self.corrupt_clients + 1)
        self.require_between("threshold", least, self.neighbours)
        # Each survivor needs t other survivors that hold its shares, and two honest ones at least
        # must stand behind a sum.
        least = max(self.threshold + 1, self.corrupt_clients + 2)
        self.require_between("min_survivors", max(least, self.overlap), self.clients)
        if self.committee is None:
            self.require_between("quorum", self.overlap, self.min_survivors)
            return
        if not self.needs_beacon:
            exactly = "may be set only where the graph is sparse and the server active"
            raise self.refusal("committee", exactly)
        self.require_between("committee", 1, self.clients - 1)
        self.require_between("quorum", overlap_of(self.committee, 0), self.committee)
