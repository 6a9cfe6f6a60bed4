"""What the harness knows and no attack does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from attacks.scoring.scored import Scored
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Adversary, Truth
from secure_fedrec.wire.recording import OWN

_PRIVATE = "private-"  # kinds of private tables in the truth


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """The truth about a recorded run; claims of a kind that it leaves out are not judged.

    Args:
        recorded: what was recorded apart from the transcript.
        train: the training ratings.
        denoiser_clients: client number of each denoiser; empty without denoisers.
        secrets: by kind and name, "labels.majority" say, a secret of every client, client after
            client. What an array holds is stated by the claim of that kind (``SecretClaim``).
        seeded: whether clients drew what they began with under the run's seed, which adversaries
            may know, and under no secrets of their own.
    """

    recorded: Truth
    train: RatingTable | None = None
    denoiser_clients: tuple[int, ...] = ()
    secrets: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    seeded: bool = False

    def first_tables(self) -> Mapping[str, FloatArray] | None:
        """Private tables of the first round that hold anything, by name, as its recording has them.

        They are empty where it has none, and None where nothing that clients begin with follows
        from the seed.
        """
        if not self.seeded:
            return None
        kinds = [kind for kind in self.recorded.kinds(1) if kind.startswith(_PRIVATE)]
        found = {kind: self.recorded.columns(1, kind) or {} for kind in kinds}
        tables = {kind.removeprefix(_PRIVATE): told["values"] for kind, told in found.items()}
        kept = bool(kinds) or "values" in (self.recorded.columns(1, OWN) or {})
        return {name: table for name, table in tables.items() if table.any()} or (
            None if kept else {}
        )

    @property
    def ratings(self) -> RatingTable:
        """The training ratings.

        Raises:
            ValueError: the run was not on ratings.
        """
        if self.train is None:
            raise ValueError("the run was not on ratings")
        return self.train

    def as_trained(self, levels: Sequence[float] | None) -> "GroundTruth":
        """The same with ratings as the run trained on them, which attacks decode.

        Args:
            levels: of the ratings, as its public knowledge has them; None where it has none.
        """
        if self.train is None or levels is None:
            return self
        return replace(self, train=self.train.on(np.asarray(levels, dtype=np.float64)))

    def of_kind(self, kind: str) -> dict[str, npt.NDArray[Any]]:
        """The secrets of a kind by name."""
        split = {key: key.partition(".") for key in self.secrets}
        return {name: self.secrets[key] for key, (of, _, name) in split.items() if of == kind}

    def corrupted_clients(self, adversary: Adversary) -> frozenset[int]:
        """Clients on the adversary's side; nobody attacks himself."""
        # Clients are corrupted one by one, by number: there is no word for all of them.
        clients = adversary.members("client") or frozenset()
        denoisers = adversary.members("denoiser")
        if denoisers is None:
            return clients | frozenset(self.denoiser_clients)
        indices = (index for index in denoisers if index < len(self.denoiser_clients))
        return clients | frozenset(self.denoiser_clients[index] for index in indices)


class Case(NamedTuple):
    """What a claim is judged by, once it is made.

    Attributes:
        truth: about the run.
        corrupted: the adversary's own clients; nobody attacks himself.
        seed: of bootstraps and null controls.
    """

    truth: GroundTruth
    corrupted: frozenset[int]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecretClaim:
    """Base of a claim about a secret of clients that has a name.

    The docstring of a class says what an array of its kind of secret holds.

    Args:
        name: of the secret.
        clients: int64[B], whom it is claimed of.
    """

    kind: ClassVar[str]

    name: str
    clients: IntArray

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the secret of that name; nothing where there is none."""
        truth = case.truth.of_kind(self.kind).get(self.name)
        if truth is not None:
            yield self.judged(truth, case.corrupted, case.seed)

    def judged(self, truth: Any, corrupted: frozenset[int], seed: int) -> Scored:
        """Judge it.

        Args:
            truth: the secret of every client.
            corrupted: the adversary's own clients; they are left out.
            seed: of the bootstrap and of the null control.

        Raises:
            InapplicableError: there is nothing to judge.
            ValueError: a number that is claimed is not finite.
        """
        raise NotImplementedError
