"""What the engine asks of an algorithm.

An algorithm says *what* it needs summed and knows no protection. Its client half runs for a batch
of clients (a device runs a batch of one), reads private state from a vault and writes it back; what
it gives out is an ``Upload``. Its server half turns an aggregate into the next public state.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from secure_fedrec.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.vault import Vault

__all__ = ["Algorithm", "ClientStep", "PublicState"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicState:
    """What everybody knows after a number of rounds.

    Args:
        round: completed rounds.
        table: float64[m, d], the item vectors V.
    """

    round: int
    table: FloatArray


class ClientStep(Protocol):
    """The local work of a batch of clients in one round."""

    @property
    def clients(self) -> IntArray:
        """int64[B], the clients of the batch."""
        ...

    @property
    def rated(self) -> RowBlock:
        """Items of the clients' own ratings, without values."""
        ...

    @property
    def upload(self) -> Upload:
        """Rows of the clients' own ratings."""
        ...

    def impute(
        self, indptr: IntArray, items: IndexArray, *, method: str, local_steps: int
    ) -> FloatArray:
        """Capability: virtual ratings for unrated items."""
        ...

    def resample_residuals(
        self, indptr: IntArray, items: IndexArray, *, draws: IntArray
    ) -> FloatArray:
        """Capability: virtual ratings with residuals of the client's own ratings."""
        ...

    def rows(
        self, indptr: IntArray, items: IndexArray, virtual: BoolArray, ratings: FloatArray
    ) -> FloatArray:
        """Capability: upload rows of rated and virtual items together."""
        ...

    def commit(self, vault: Vault) -> None:
        """Write the new private state back; call once, after the upload has been sent."""
        ...


class Algorithm(Protocol):
    """A federated recommender."""

    @property
    def width(self) -> int:
        """Values per uploaded row."""
        ...

    @property
    def rounds(self) -> int:
        """Rounds of a full training run."""
        ...

    def initial_public(self, n_items: int, streams: Streams) -> PublicState:
        """Public state before round 1."""
        ...

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Create the private tables."""
        ...

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> ClientStep:
        """Local work of some clients in round ``public.round + 1``."""
        ...

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Next public state."""
        ...

    def predict(
        self, public: PublicState, vault: Vault, clients: IntArray, items: IndexArray
    ) -> FloatArray:
        """Predicted ratings of (client, item) pairs: float64[N]."""
        ...

    def public_knowledge(self) -> dict[str, Any]:
        """Hyper-parameters everybody knows, as JSON values."""
        ...
