"""Interfaces of protection layers: cloaks at clients, collectors between clients and server.

The order of a round in a ``Stack``:

    upload --cloak--> cloaked upload --ring--> ring words --collector--> aggregate

and the vectors that an upload gives to bags go through a ``BagChannel``.

- A *cloak* changes what a client sends before it is encoded: it adds virtual rows, or drops
  reports. Only the client knows which rows are virtual.
- The *ring* encodes each row once; all receivers of a row receive the same integers.
- A *collector* sends the words over the wire and forms the sum. It handles the messages of the
  round, refuses a round in which one is missing, repeated or late, and never leaves a client out of
  the sum.

Layers are independent of the algorithm. A cloak that needs the model uses a ``LocalModel``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, runtime_checkable

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.local import LocalModel
from secure_fedrec.protection.base.events import Event
from secure_fedrec.settings import Settings, Within
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import Aggregate, RowBlock, SetBlock, Upload
from secure_fedrec.wire import Traffic, Wire

_MOST_VECTORS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cloaked:
    """An upload after the cloak, still at the clients.

    Args:
        upload: rows in ascending item order, virtual ones in between.
        virtual: bool[N], which rows are virtual; never sent.
    """

    upload: Upload
    virtual: BoolArray


class Cloak(Protocol):
    """Covers the rated sets of a batch of clients."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        """Make covered uploads; clients marked in ``exempt`` (bool[B]) send their rated items."""

    def expected_rows(self, rated: IntArray) -> tuple[IntArray, IntArray]:
        """Expected rows sent, and virtual rows among them, for clients with ``rated`` ratings."""

    def capped(self, rated: IntArray) -> IntArray:
        """Positions of the clients that have fewer unrated items than the cloak needs."""

    def describe(self) -> tuple[str, dict[str, Any]]:
        """Layer name and public settings, as JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withstood:
    """Coalitions of clients that a layer's claim covers; for others nothing is claimed.

    If a number is not limited, the claim is that the upload of every other client is only seen in
    the sum of these clients; attacks show what a coalition learns from that sum.

    Args:
        with_server: largest number of clients that may work with the server; None for any number.
        alone: largest number of clients that may work together, with or without the server; None
            for any number.
        key: setting whose value decides.
        value: that value.
        reason: why no more, as a clause.
    """

    with_server: int | None = None
    alone: int | None = None
    key: str = "adversaries.corrupt"
    value: Any = None
    reason: str = ""


class RoundSession(Protocol):
    """One round of a collector, all parties of a simulation together."""

    @property
    def order(self) -> IntArray:
        """int64[P], the clients in the order in which they must be submitted."""

    def exempt(self, clients: IntArray) -> BoolArray:
        """Which of these clients must not be cloaked."""

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        """Send the encoded rows of the next clients in ``order``."""

    def close(self) -> Aggregate:
        """Complete the round.

        Raises:
            ProtocolError: a message is missing, repeated, or of another round.
        """


class Collecting(Protocol):
    """Transports the clients' messages of a round to the server."""

    @property
    def codec(self) -> FixedPoint:
        """The ring that values are encoded in."""

    @property
    def n_clients(self) -> int:
        """Clients of the federation."""

    def withstands(self, cohort: int) -> Withstood:
        """Coalitions that the claim covers in rounds of so many clients."""


class Collector(Collecting, Protocol):
    """Forms the sum of a round from encoded rows."""

    @property
    def model_hidden_from(self) -> tuple[str, ...]:
        """Roles that forward the public table without being able to read it."""

    def participants(self, cohort: IntArray) -> IntArray:
        """Clients of the cohort that can take part, ascending; the others sit the round out."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> RoundSession:
        """Begin a round."""

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        """Messages of a round; client c sends ``rows[c]`` rows, ``virtual[c]`` of them virtual."""

    def describe(self) -> tuple[str, dict[str, Any]] | None:
        """Layer name and public settings, as JSON values; None for plain sums."""


@runtime_checkable
class Stated(Protocol):
    """Capability of a part of a stack: it states its traits. Other parts' traits are unknown."""

    @property
    def traits(self) -> Traits:
        """How the part leaves uploads and sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What a noised part of what clients send releases over a run.

    Args:
        part: "sums", "reports" (of the rated set) or "bags".
        events: what is released.
        delta: its delta.
        keys: key of a configuration by key of the package ``dp``.
        fresh: whether a repeated round draws new noise, and so is a further release.
    """

    part: str
    events: Sequence[Event]
    delta: float
    keys: Mapping[str, str]
    fresh: bool = True


@runtime_checkable
class Noised(Protocol):
    """Capability of a part of a stack: it may add noise, which has a price."""

    def released(self, *, rounds: int, repeated: int = 0) -> Released | None:
        """What that many rounds and restarted rounds release; None where no noise is added."""


class BagShape(Settings, section="bags"):
    """Public sizes of one bag.

    Args:
        width: values per vector.
        most: most vectors that a client may give in a round. It is public: clients behind mixes
            hand in so many cells each, and the price of noise is stated for so many vectors.

    Raises:
        ConfigError: a field is out of range.
    """

    width: Annotated[int, Within(1, 2**16 - 1)]
    most: Annotated[int, Within(1, _MOST_VECTORS)]


class BagRound(Protocol):
    """One round of a bag channel, all parties of a simulation together."""

    def submit(self, clients: IntArray, bags: Mapping[str, SetBlock]) -> None:
        """Send what a batch of clients gives to the bags: float64 vectors by bag.

        Raises:
            WireError: a bag is missing or unknown, or its vectors do not fit.
            EncodingError: a value cannot be encoded.
            ProtocolError: the server refuses a delivered message.
        """

    def close(self) -> dict[str, FloatArray]:
        """The bags as the server holds them: float64[N, d] each, without order or owner.

        Raises:
            ProtocolError: a message is missing or came twice.
        """


class BagChannel(Collecting, Protocol):
    """Transports vectors to the server, separately from the summed rows."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the bags."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> BagRound:
        """Begin a round."""

    def traffic(self) -> tuple[Traffic, ...]:
        """Most messages of a round with every client present."""

    def describe(self) -> dict[str, Any]:
        """Names of the layers in order, sizes and settings, as JSON values."""


class PublicStep(Protocol):
    """A round's public state and the step from it, if clients keep both from the server."""

    @property
    def words(self) -> WordArray:
        """uint64[L], the bits of the state."""

    def after(self, words: WordArray, aggregate: Aggregate) -> WordArray:
        """uint64[L], the bits of the state that an aggregate turns a state into."""


@runtime_checkable
class StateKeeper(Protocol):
    """Capability of a collector: clients may keep the public state secret from the server.

    They decrypt it, and those that open the sums make the server's step.
    """

    def keep(self, step: PublicStep) -> None:
        """Take the state of the round that is opened next."""

    def require_step(self, round_: int) -> PublicStep:
        """The state of the round in progress.

        Raises:
            ProtocolError: no step was handed over.
        """

    def broadcast_bytes(self, words: int) -> int:
        """Size of the message that brings a client a state of so many words."""
