"""What the harness knows and no attack does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Adversary, Truth

__all__ = ["GroundTruth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """The truth about a recorded run; claims of a kind that it leaves out are not judged.

    Args:
        recorded: what was recorded apart from the transcript.
        train: the training ratings.
        denoiser_clients: client number of each denoiser; empty without denoisers.
        labels: by name, a secret class of every client: int64[n], -1 where it has none.
        sets: by name, a secret set of every client: bool[n, C].
        histograms: by name, secret counts of every client: float64[n, K].
        attributes: by name, a class of every person: int64[N], -1 where unknown. Persons are the
            clients or, where clients have members (HPFL), all members, client after client.
        auxiliary: how many persons' attributes the adversary knows; None for all but those it is
            judged on.
    """

    recorded: Truth
    train: RatingTable | None = None
    denoiser_clients: tuple[int, ...] = ()
    labels: Mapping[str, IntArray] = field(default_factory=dict)
    sets: Mapping[str, BoolArray] = field(default_factory=dict)
    histograms: Mapping[str, FloatArray] = field(default_factory=dict)
    attributes: Mapping[str, IntArray] = field(default_factory=dict)
    auxiliary: int | None = None

    @property
    def ratings(self) -> RatingTable:
        """The training ratings.

        Raises:
            ValueError: the run was not on ratings.
        """
        if self.train is None:
            raise ValueError("the run was not on ratings")
        return self.train

    def corrupted_clients(self, adversary: Adversary) -> frozenset[int]:
        """Clients on the adversary's side; nobody attacks himself."""
        # Clients are corrupted one by one, by number: there is no word for all of them.
        clients = adversary.members("client") or frozenset()
        denoisers = adversary.members("denoiser")
        if denoisers is None:
            return clients | frozenset(self.denoiser_clients)
        indices = (index for index in denoisers if index < len(self.denoiser_clients))
        return clients | frozenset(self.denoiser_clients[index] for index in indices)
