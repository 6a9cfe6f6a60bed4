"""The interface between engine and algorithm.

An algorithm says *what* it needs summed or collected and knows no protection. Its client half runs
for a batch of clients (a device runs a batch of one), reads private state from a vault and writes
it back; what it sends is an ``Upload``. Its server half turns an aggregate into the next public
state.

``Algorithm`` and ``ClientStep`` are all that the engine needs. Further capabilities, which a cloak,
a rating error or a projection of costs needs, are optional: ``RatingStep``, ``RatingAlgorithm``,
``NamedBlocks``, ``SizedUploads``, ``SizedSteps``, ``Exchanging``, ``Addressed``, ``VaryingExtras``,
``ReadsSingles``, ``NormalisesRatings`` and ``MeasuredStep``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from secure_fedrec.blocks import BlockShape
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.local import LocalModel, LocalUpload
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, PeerBlock, Upload
from secure_fedrec.vault import Vault


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicState:
    """The public state after a number of rounds.

    Args:
        round: completed rounds.
        table: float64[m, width] or float64[n], the shared table: item vectors, or a flat vector of
            parameters.
        extras: further public arrays by name, float64 of one dimension or more; they are broadcast
            with the table, recorded and checkpointed.
    """

    round: int
    table: FloatArray
    extras: Mapping[str, FloatArray] = field(default_factory=dict)


class ClientStep(LocalUpload, Protocol):
    """The local work of a batch of clients in one round."""

    def commit(self, vault: Vault) -> None:
        """Write the new private state back; call once, after the upload has been sent."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishedStep:
    """A ``ClientStep`` whose work is done when it is made.

    Args:
        clients: int64[B], the clients of the batch.
        upload: the clients' upload.
        commit: writes their new private state back.
    """

    clients: IntArray
    upload: Upload
    commit: Callable[[Vault], None]


class RatingStep(ClientStep, LocalModel, Protocol):
    """Capability: local work on ratings, whose rated set a cloak can cover."""


class Algorithm(Protocol):
    """A federated learner."""

    @property
    def width(self) -> int:
        """Values per uploaded row."""

    @property
    def rounds(self) -> int:
        """Rounds of a full training run."""

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """Public state before round 1.

        Args:
            n_rows: rows of the shared table.
            streams: the run's random streams.
        """

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Create the private tables."""

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> ClientStep:
        """Local work of some clients in round ``public.round + 1``."""

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Next public state; may overwrite the aggregate's arrays, which are not read again."""

    def public_knowledge(self) -> dict[str, Any]:
        """Public hyper-parameters, as JSON values; ``traits`` holds a ``RowTraits``.

        Attacks that need traits conclude nothing about an algorithm that does not state them.
        """


@runtime_checkable
class RatingAlgorithm(Algorithm, Protocol):
    """Capability: learns from ratings and predicts them; its client steps are ``RatingStep``."""

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> RatingStep:
        """Local work of some clients in round ``public.round + 1``."""

    def predict(
        self, public: PublicState, vault: Vault, clients: IntArray, items: IndexArray
    ) -> FloatArray:
        """Predicted ratings of (client, item) pairs, on the scale it trains on: float64[N]."""


@runtime_checkable
class NormalisesRatings(Protocol):
    """Capability: trains on the scale of the ratings mapped to the range from -1 to 1, or not."""

    @property
    def normalises_ratings(self) -> bool:
        """Whether the ratings that it is given and those it predicts lie on that scale."""


@runtime_checkable
class NamedBlocks(Protocol):
    """Capability: uploads are other than one block of rows with ``width`` values each."""

    def blocks(self, n_rows: int) -> tuple[BlockShape, ...]:
        """The blocks of every upload; ``n_rows`` is that of ``initial_public``."""


@runtime_checkable
class SizedUploads(Protocol):
    """Capability: states sizes of uploads that are not one row per example."""

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], rows each client sends in a round."""

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """int64[n] by name of the bag: vectors each client gives to it in a round."""


@runtime_checkable
class SizedSteps(Protocol):
    """Capability: states how much memory local work takes."""

    def step_bytes(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], bytes that each client's step works in, its upload included."""


@runtime_checkable
class Exchanging(Protocol):
    """Capability: clients give each other rows before they work, which no layer hides."""

    def give(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> PeerBlock:
        """Rows that some clients give to others that take part, in round ``public.round + 1``."""

    def take(self, clients: IntArray, given: PeerBlock, vault: Vault) -> None:
        """Keep the rows that some clients were given, ordered by receiver, then by sender."""

    def given_rows(self, n_clients: int) -> tuple[int, int, int]:
        """(messages, rows, values per row) of a round with so many clients, at most."""


@runtime_checkable
class Addressed(Protocol):
    """Capability: the server sends some of the public extras to some clients only.

    A simulated batch has all extras at once; a client's work must depend only on those that are
    sent to it.
    """

    def addressed(self, public: PublicState) -> Mapping[str, IntArray]:
        """int64[k] by name of an extra, ascending: the clients that are sent it."""


@runtime_checkable
class VaryingExtras(Protocol):
    """Capability: the number of rows of some public extras varies from round to round.

    All other arrays of a public state keep the shapes that they have before round 1: clients on
    hosts of their own refuse any other state.
    """

    def extra_rows(self, completed: int) -> Mapping[str, int | None]:
        """Rows after that many rounds, by name of an extra; None where any number is allowed."""


@runtime_checkable
class ReadsSingles(Protocol):
    """Capability: the server works on single clients' vectors, each under the client's name.

    Stacks that hide single uploads or their senders are refused.
    """

    @property
    def reads_singles(self) -> str:
        """Why, as a clause."""


@runtime_checkable
class MeasuredStep(Protocol):
    """Capability of a client step: measures the trained models before averaging."""

    def measure(self) -> Mapping[str, FloatArray]:
        """float64[B] by name of the figure; NaN for clients with nothing to measure."""
