"""The truth, which attacks do not see, and how claims are scored by it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from attacks.scoring.gains import Figures, Gains, Level, gain_figures
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.wire import Adversary, Truth
from secure_fedrec.wire.recording import OWN

_PRIVATE = "private-"  # kinds of private tables in the truth


ALL_CORRUPTED = "every client the claims are about is the adversary's own"
NO_CONTRAST = "there is nothing to tell apart in the truth"
NOBODY = "only the adversary's own clients have a secret to tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """An attack lacks something that it needs.

    Args:
        reason: the missing fact or message.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A claim, judged.

    Args:
        figures: measured values; a value is None where the data cannot support it.
        gains: over what is known without the view; they become figures with intervals.
        units: clients (or members of clients), pairs and positives behind the figures.
        details: further results to report.
        null_control: the same claim against a truth it cannot know.
        roc: pooled ROC curve.
    """

    figures: Figures
    units: Mapping[str, int]
    gains: Gains = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    null_control: Mapping[str, Any] | None = None
    roc: Mapping[str, list[float]] | None = None

    def at(self, level: Level) -> Figures:
        """All figures; gains have limits with the given confidence."""
        return self.figures | gain_figures(self.gains, level)


def is_honest(clients: IntArray, corrupted: frozenset[int]) -> BoolArray:
    """Which of these clients are not the adversary's own: bool[B]."""
    return ~np.isin(clients, sorted(corrupted))


def require_finite(what: str, values: FloatArray) -> None:
    """Refuse a claim that is not a finite number, since a mean would silently leave its client out.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise ValueError(f"{what} must be finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """The truth about a recorded run; claims of a kind that it leaves out are not judged.

    Args:
        recorded: the recording outside the transcript.
        train: the training ratings.
        denoiser_clients: client number of each denoiser; empty without denoisers.
        secrets: by kind and name, "labels.majority" say, a secret of every client, client after
            client. What an array holds is stated by the claim of that kind (``SecretClaim``).
        seeded: whether clients drew their initial values from the run's seed, which adversaries may
            know, and not from their own secrets.
    """

    recorded: Truth
    train: RatingTable | None = None
    denoiser_clients: tuple[int, ...] = ()
    secrets: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    seeded: bool = False

    def first_tables(self) -> Mapping[str, FloatArray] | None:
        """Private tables of the first round that hold anything, by name, as its recording has them.

        Empty if it has none; None if the clients' initial values do not follow from the seed.
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
        """The same truth with the ratings that the run trained on, which attacks decode.

        Args:
            levels: levels of the ratings, as its public knowledge has them; None where it has none.
        """
        if self.train is None or levels is None:
            return self
        return replace(self, train=self.train.on(np.asarray(levels, dtype=np.float64)))

    def of_kind(self, kind: str) -> dict[str, npt.NDArray[Any]]:
        """The secrets of a kind by name."""
        split = {key: key.partition(".") for key in self.secrets}
        return {name: self.secrets[key] for key, (of, _, name) in split.items() if of == kind}

    def corrupted_clients(self, adversary: Adversary) -> frozenset[int]:
        """The adversary's own clients, which are not attacked."""
        # Clients are corrupted by number; "all clients" cannot be named.
        clients = adversary.members("client") or frozenset()
        denoisers = adversary.members("denoiser")
        if denoisers is None:
            return clients | frozenset(self.denoiser_clients)
        indices = (index for index in denoisers if index < len(self.denoiser_clients))
        return clients | frozenset(self.denoiser_clients[index] for index in indices)


class Case(NamedTuple):
    """The truth and settings by which a claim is judged.

    Attributes:
        truth: about the run.
        corrupted: the adversary's own clients, which are not attacked.
        seed: seed of bootstraps and null controls.
    """

    truth: GroundTruth
    corrupted: frozenset[int]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecretClaim:
    """Base of a claim about a secret of clients that has a name.

    The docstring of a class says what an array of its kind of secret holds.

    Args:
        name: name of the secret.
        clients: int64[B], the clients that it is claimed of.
    """

    kind: ClassVar[str]

    name: str
    clients: IntArray

    def scored(self, case: Case) -> Iterator[Scored]:
        """Judge it by the secret of that name, if there is one."""
        truth = case.truth.of_kind(self.kind).get(self.name)
        if truth is not None:
            yield self.judged(truth, case.corrupted, case.seed)

    def judged(self, truth: Any, corrupted: frozenset[int], seed: int) -> Scored:
        """Judge it.

        Args:
            truth: the secret of every client.
            corrupted: the adversary's own clients; they are left out.
            seed: seed of the bootstrap and of the null control.

        Raises:
            InapplicableError: the claim cannot be judged.
            ValueError: a number that is claimed is not finite.
        """
        raise NotImplementedError
