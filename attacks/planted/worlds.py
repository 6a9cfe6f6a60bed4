"""Tests a stack's claim as a game: a coalition has to tell which of two worlds was run.

The planted algorithm sends a client's ratings as they are, a row per rated item or all of them as
one vector for a bag, and its next public table is their sum; nothing is blurred by the algorithm. A
trial draws two worlds that differ in what is claimed to be hidden, runs one of them, and asks the
coalition which it was. If the claim holds, the coalition is right half of the time.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attacks.generic import Worlds, weigh_view
from attacks.planted.recording import PlantedSum, recorded
from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import BagShape, Sizes, Stack
from secure_fedrec.streams import Streams
from secure_fedrec.traits import RowTraits
from secure_fedrec.uploads import RowBlock, SetBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Adversary, BlockStore, OwnUploads, Truth

_ODDS = 1e-6
"""Error probability of a verdict against a claim that holds."""

_BAG = "all"

Build = Callable[[Sizes, FixedPoint, Streams], Stack]
"""Makes a stack for a federation."""


class Outcome(NamedTuple):
    """How often a coalition was right.

    Attributes:
        wins: trials in which it named the world.
        trials: number of trials.
    """

    wins: int
    trials: int

    def beats(self, odds: float = 0.5) -> bool:
        """Whether it was right more often than with these odds, with error probability 10^-6."""
        from scipy.stats import binomtest  # noqa: PLC0415 - a second, which games alone wait for

        return float(binomtest(self.wins, self.trials, odds, alternative="greater").pvalue) < _ODDS


def play(
    build: Build,
    *,
    corrupt: tuple[str, ...],
    hides: str,
    seed: int,
    trials: int = 48,
    clients: int = 10,
    items: int = 16,
    rounds: int = 2,
    cohort: int | None = None,
    in_bag: bool = False,
) -> Outcome:
    """Play a coalition against what a stack claims to hide from it.

    Args:
        build: makes the stack, anew for every trial.
        corrupt: parties of the coalition; as many clients join it as the stack says that its claim
            covers, and leave the two that the worlds differ in.
        hides: "values", "owners" or "contribution", see ``Stand``.
        seed: of worlds, coins and streams; what a layer takes from the system differs each time.
        trials: how often.
        clients: clients of a trial.
        items: rows of its table.
        rounds: rounds of its run.
        cohort: clients of a round; all, if None.
        in_bag: whether clients give their ratings to a bag instead of a sum.

    Raises:
        ConfigError: ``hides`` is not a game, or the coalition leaves no client to attack.
        UnknownTraitError: the stack does not state its traits.
    """
    sizes = Sizes(
        n_clients=clients,
        n_items=items,
        width=1,
        cohort=cohort or clients,
        bags={_BAG: BagShape(width=items, most=1)} if in_bag else {},
        popularity=np.ones(items, dtype=np.int64),
    )
    wins = 0
    for rng in np.random.default_rng(seed).spawn(trials):
        streams = Streams.from_seed(int(rng.integers(2**62)))
        stack = build(sizes, FixedPoint(), streams)
        them, known = _coalition(stack, corrupt, sizes)
        worlds = _worlds(rng, hides, stack, known, sizes)
        second = bool(rng.integers(2))
        ratings = worlds.second if second else worlds.first
        run = _run(stack, ratings, rounds=rounds, cohort=cohort, streams=streams)
        view = run.transcript.view(them, own=OwnUploads(run.truth, known))
        evidence = weigh_view(view, worlds)
        guess = evidence > 0.0 if evidence else bool(rng.integers(2))
        wins += guess == second
    return Outcome(wins=wins, trials=trials)


def _coalition(
    stack: Stack, corrupt: tuple[str, ...], sizes: Sizes
) -> tuple[Adversary, frozenset[int]]:
    """The adversary with all clients that may join it, and their numbers, denoisers included."""
    them = Adversary(name="them", corrupt=frozenset(corrupt))
    named = GroundTruth(recorded=Truth(BlockStore(None)), denoiser_clients=stack.denoisers)
    known = named.corrupted_clients(them)
    claims = stack.withstands(sizes.cohort)
    limits = [claim.with_server if them.has("server") else claim.alone for claim in claims]
    most = min([sizes.n_clients - 2, *(limit for limit in limits if limit is not None)])
    ready = [c for c in range(sizes.n_clients - 1, -1, -1) if c not in {*known, *stack.denoisers}]
    joined = ready[: max(0, min(most - len(known), len(ready) - 2))]
    parties = them.corrupt | {f"client:{client}" for client in joined}
    return Adversary(name="them", corrupt=parties), known | frozenset(joined)


def _worlds(
    rng: np.random.Generator, hides: str, stack: Stack, known: frozenset[int], sizes: Sizes
) -> Worlds:
    """Ratings that differ in two clients outside the coalition, or in one of them.

    Raises:
        ConfigError: the game is unknown, or no client is left outside.
    """
    left = [c for c in range(sizes.n_clients) if c not in {*known, *stack.denoisers}]
    if len(left) < 2:
        raise ConfigError("corrupt", sorted(known), "leaves no client to attack")
    one, other = left[:2]
    first = np.stack([_ratings(rng, sizes.n_items) for _ in range(sizes.n_clients)])
    if hides == "values":
        first[other] = rng.uniform(0.5, 1.0, sizes.n_items) * np.sign(first[one])
    second = first.copy()
    if hides in ("values", "owners"):
        second[[one, other]] = first[[other, one]]
    elif hides == "contribution":
        second[one] = _ratings(rng, sizes.n_items)
    else:
        raise ConfigError("hides", hides, "is not a game", ("values", "owners", "contribution"))
    return Worlds(first=first, second=second)


def _run(
    stack: Stack, ratings: FloatArray, *, rounds: int, cohort: int | None, streams: Streams
) -> RecordedRun:
    """A recorded run of one world."""
    clients, items = np.nonzero(ratings)
    n_clients, n_items = ratings.shape
    ends, values = np.searchsorted(clients, np.arange(n_clients + 1)), ratings[clients, items]
    vault = Vault(indptr=ends, items=items.astype(np.int32), ratings=values)
    algorithm = PlantedRatings(n_items, rounds=rounds, in_bag=stack.bags is not None)
    problem = Problem(vault=vault, n_rows=n_items, knowledge={"n_items": n_items})
    every, asked = tuple(range(1, rounds + 1)), CohortConfig(clients_per_round=cohort)
    return recorded(algorithm, problem, stack, streams, every, cohort=asked)


@dataclass(frozen=True, slots=True, eq=False)
class PlantedRatings(PlantedSum):
    """The algorithm; see the module docstring.

    Args:
        items: rows of the table.
        rounds: rounds of a run.
        in_bag: whether clients give all ratings to a bag, and an empty row to the sum.
    """

    items: int
    rounds: int
    in_bag: bool

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> "PlantedRatingStep":
        """The clients' ratings."""
        grid = np.zeros((len(clients), self.items))
        rated = vault.rated(clients)
        grid[np.repeat(np.arange(len(clients)), rated.counts), rated.items] = rated.ratings
        return PlantedRatingStep(clients, grid, self.in_bag)

    def predict(
        self, public: PublicState, vault: Vault, clients: IntArray, items: IndexArray
    ) -> FloatArray:
        """Predictions are not used; the method is required of algorithms with rated sets."""
        return np.zeros(len(items))

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """One vector."""
        return {_BAG: np.ones(vault.n_clients, dtype=np.int64)} if self.in_bag else {}

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """A row per rating."""
        return np.ones_like(vault.example_counts()) if self.in_bag else vault.example_counts()

    def public_knowledge(self) -> dict[str, Any]:
        """Rows are items, and their ratings."""
        traits = RowTraits(rows="items", row_sets="rated", form="other")
        return {"name": "planted-ratings", "traits": asdict(traits)}


@dataclass(frozen=True, slots=True, eq=False)
class PlantedRatingStep:
    """Unchanged ratings of some clients.

    Args:
        clients: int64[B].
        grid: float64[B, m] ratings, 0 for unrated items.
        in_bag: whether they go to a bag.
    """

    clients: IntArray
    grid: FloatArray
    in_bag: bool

    @property
    def rated(self) -> RowBlock:
        """Rated items."""
        owners, items = np.nonzero(self.grid)
        ends = np.searchsorted(owners, np.arange(len(self.grid) + 1))
        return RowBlock(indptr=ends, rows=items.astype(np.int32), values=None)

    @property
    def upload(self) -> Upload:
        """A row per rating, or all of them as one vector."""
        ends = np.arange(len(self.grid) + 1)
        if self.in_bag:
            rows = np.zeros(len(self.grid), dtype=np.int32)
            nothing = RowBlock(indptr=ends, rows=rows, values=np.zeros((len(rows), 1)))
            vectors = SetBlock(indptr=ends, values=self.grid)
            return Upload(clients=self.clients, blocks={TABLE: nothing}, bags={_BAG: vectors})
        block = replace(self.rated, values=self.grid[self.grid != 0.0][:, None])
        return Upload(clients=self.clients, blocks={TABLE: block})

    def impute(
        self, indptr: IntArray, items: IndexArray, *, method: str, local_steps: int
    ) -> FloatArray:
        """A client's mean rating."""
        counts = np.maximum((self.grid != 0.0).sum(axis=1), 1)
        return np.repeat(self.grid.sum(axis=1) / counts, np.diff(indptr))

    def resample_residuals(
        self, indptr: IntArray, items: IndexArray, *, draws: IntArray
    ) -> FloatArray:
        """One of a client's ratings."""
        own = [row[row != 0.0] for row in self.grid]
        of = np.repeat(np.arange(len(own)), np.diff(indptr))
        return np.array([own[c][d % len(own[c])] for c, d in zip(of, draws, strict=True)])

    def rows(
        self, indptr: IntArray, items: IndexArray, virtual: BoolArray, ratings: FloatArray
    ) -> FloatArray:
        """Ratings, including virtual ones."""
        values = self.grid[np.repeat(np.arange(len(self.grid)), np.diff(indptr)), items]
        values[virtual] = ratings
        return values[:, None]

    def commit(self, vault: Vault) -> None:
        """Nothing is kept."""


def _ratings(rng: np.random.Generator, items: int) -> FloatArray:
    """Ratings of a third of the items, from a half to one, of either sign."""
    rated = rng.permutation(items) < items // 3
    return np.where(rated, rng.uniform(0.5, 1.0, items) * rng.choice((-1.0, 1.0), items), 0.0)
