"""Federated probabilistic matrix factorization, the backbone of FedRec, FedRec++ and SDCF.

Client u keeps its vector U_u, the server keeps the item vectors V. In a round, all from the same
old U and V (FedRec++ eq. 3, 6 and 7):

    e_ui = r_ui - U_u . V_i
    row(u, i) = -e_ui U_u + lambda V_i                          uploaded for the client's items
    U_u <- U_u - gamma mean_i(-e_ui V_i + lambda U_u)           at the client
    V_i <- V_i - gamma (sum_u row(u, i)) / |U_i|                at the server

and gamma <- decay gamma after every round. Algorithm 2 of the paper prints the item rows after the
update of U_u; at its own learning rate that order diverges on ml-100k, while computing both from
the same point reproduces table 2, so that is what is done here.

By default the ratings are mapped to the range from -1 to 1 around the middle of their scale
(``normalise_ratings``); the paper takes the stars as they are. Step sizes depend on the scale:
products of vectors are as large as ratings, and steps larger than their inverse diverge. On the
mapped
scale the defaults train on stars of any scale, but diverge on clients with a single rating, which
need a rate of 0.1. ``PMFConfig.printed`` has the paper's settings.

With ``biases``, which the paper does not have, the table has one column more, the items' biases,
and every user a linear function of them: see ``biases``.

With a ``temperature`` the steps are those of stochastic gradient Langevin dynamics (SDCF, eq. 10):
every row carries Gaussian noise N(0, temperature / gamma), which after the step is the paper's
N(0, gamma) at temperature 1. With the literal temperature, noise exceeds vectors of d = 20; so it
is a setting.
"""

from dataclasses import asdict
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final

import numpy as np

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.biases import (
    Lines,
    fit_lines,
    initial_sums,
    next_biases,
    segment_totals,
)
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.core.kernels import (
    descend,
    gram,
    merge_values,
    pair_dot,
    rank_one_rows,
    segment_dots,
    segment_sum,
)
from secure_fedrec.core.special import ndtri
from secure_fedrec.settings import (
    Natural,
    NonNegative,
    OneOf,
    Positive,
    Rate,
    Rounds,
    Settings,
    Unit,
)
from secure_fedrec.streams import Stream, Streams, uniform_reals
from secure_fedrec.traits import RowTraits
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.vault import Rated, Vault

USER_UPDATES = ("rated", "rated+virtual")
_USER_VECTORS = "user_vectors"
_ROWS = RowTraits(rows="items", row_sets="rated", form="factorized")
_PRINTED: Final = MappingProxyType(
    {
        "normalise_ratings": False,
        "learning_rate": 0.8,
        "decay": 0.9,
        "regularization": 0.001,
        "init_scale": 0.005,
    }
)


class PMFConfig(Settings, section="algorithm"):
    """Hyper-parameters.

    Args:
        rank: d, length of the latent vectors; 0 leaves the biases alone.
        rounds: T, rounds of training.
        normalise_ratings: train on ratings mapped to the range from -1 to 1, or on those given.
        learning_rate: gamma, step size of the first round.
        decay: factor on gamma after every round.
        regularization: lambda, the pull of all vectors to 0.
        init_scale: U and V start uniform in (-init_scale, init_scale).
        user_update: "rated" is FedRec++ eq. 7; "rated+virtual" is what FedRec's code does. The
            second makes the user vectors depend on the virtual ratings, so no denoiser can make it
            lossless.
        temperature: of the Langevin noise that is added to every step; 0 is plain gradient descent.
        biases: whether items have a public bias, and users a private linear function of it.
        bias_shrinkage: lambda_b, the pull of the items' biases to 0.
        slope_shrinkage: the pull of the users' slopes to 1, in the unit of squared biases of stars
            from 1 to 5.

    Raises:
        ConfigError: a field is out of range.
    """

    trains: ClassVar[tuple[str, ...]] = tuple(_PRINTED)
    """Settings whose defaults train on ratings of any scale."""

    rank: Natural = 20
    rounds: Rounds = 100
    normalise_ratings: bool = True
    learning_rate: Positive = 1.25
    decay: Rate = 0.99
    regularization: NonNegative = 0.05
    init_scale: Positive = 0.1
    user_update: Annotated[str, OneOf(USER_UPDATES)] = "rated"
    temperature: NonNegative = 0.0
    biases: bool = False
    bias_shrinkage: Annotated[NonNegative, Unit("ratings")] = 4.0
    slope_shrinkage: NonNegative = 5.0

    def _agree(self) -> None:
        if not self.rank and not self.biases:
            raise self.refusal("rank", "must be at least 1")
        if self.biases and self.temperature:
            why = "Langevin noise belongs to gradient steps, which are not used here"
            raise self.refusal("temperature", f"must be 0 with biases: {why}")

    @classmethod
    def printed(cls, **others: Any) -> "PMFConfig":
        """The settings that FedRec++ prints for ml-100k, on stars as given.

        Args:
            others: further settings, or others than the printed ones.

        Raises:
            ConfigError: as for the class.
        """
        return cls(**{**_PRINTED, **others})

    @property
    def rating_variance(self) -> float:
        """Variance of ratings that the shrinkages assume: 1 in stars from 1 to 5."""
        return 0.25 if self.normalise_ratings else 1.0

    def step_size(self, completed_rounds: int) -> float:
        """Gamma of the round after ``completed_rounds``."""
        return float(self.learning_rate * self.decay**completed_rounds)


class PMF:
    """The algorithm; see the module docstring.

    Args:
        config: hyper-parameters.

    Attributes:
        normalises_ratings: whether the ratings it is given are mapped to the range from -1 to 1.
        width: values per uploaded row: d, and one more with biases.
        rounds: T.
    """

    def __init__(self, config: PMFConfig) -> None:
        self.config = config
        self.normalises_ratings = config.normalise_ratings
        self.width = config.rank + config.biases
        self.rounds = config.rounds

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """Item vectors, uniform around 0; their biases, 0, in a last column."""
        vectors = self._uniform(streams.stream("item-init"), np.arange(n_rows))
        if not self.config.biases:
            return PublicState(round=0, table=vectors)
        table = np.concatenate([vectors, np.zeros((n_rows, 1))], axis=1)
        return PublicState(round=0, table=table, extras=initial_sums(n_rows))

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """User vectors, uniform around 0, one stream lane per client."""
        vault.create(_USER_VECTORS, self._uniform(streams.private("user-init"), vault.clients))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> "PMFStep":
        """Rows and new user vectors of some clients."""
        return PMFStep(self.config, clients, public, vault, streams)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Gradient step on the item vectors; items without ratings stay."""
        rated = aggregate.counts > 0
        table = public.table.copy()
        mean = aggregate.values[rated] / aggregate.counts[rated, None]
        table[rated] -= self.config.step_size(public.round) * mean
        sums = dict(public.extras)
        if self.config.biases:
            table[:, -1], sums = next_biases(
                public,
                aggregate,
                shrinkage=self.config.bias_shrinkage,
                spread=self.config.rating_variance,
            )
        return PublicState(round=public.round + 1, table=table, extras=sums)

    def predict(
        self, public: PublicState, vault: Vault, clients: IntArray, items: IndexArray
    ) -> FloatArray:
        """U_u . V_i for each pair; with biases m_u + a_u b_i more."""
        asked, owners = np.unique(clients, return_inverse=True)
        users = vault.read(_USER_VECTORS, asked)
        lines = _lines(self.config, public, vault.rated(asked))
        dots = pair_dot(_with_slopes(users, lines), owners, public.table, items)
        return dots if lines is None else np.asarray(lines.means[owners] + dots)

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters."""
        return {"name": "pmf", **asdict(self.config), "traits": asdict(_ROWS)}

    def _uniform(self, stream: Stream, lanes: IntArray) -> FloatArray:
        words = stream.words_at(0, lanes, np.zeros_like(lanes), width=self.config.rank)
        return (2 * uniform_reals(words) - 1) * self.config.init_scale


class PMFStep:
    """One round's work of a batch of clients; everything is computed from the old U and V."""

    def __init__(
        self,
        config: PMFConfig,
        clients: IntArray,
        public: PublicState,
        vault: Vault,
        streams: Streams,
    ) -> None:
        self._config = config
        self.clients = clients
        self._streams, self._round = streams, public.round + 1
        self._table = public.table
        self._step_size = config.step_size(public.round)
        self._rated = rated = vault.rated(clients)
        users = vault.read(_USER_VECTORS, clients)
        lines = _lines(config, public, rated)
        self._users = _with_slopes(users, lines)
        self._means = None if lines is None else lines.means
        dots = segment_dots(self._users, rated.indptr, self._table, rated.items)
        self._residuals = self._centred(rated.ratings, rated.indptr) - dots
        # Sum of -e V over the ratings the client trains on, and their number.
        self._pull = segment_sum(self._table, rated.items, -self._residuals, rated.indptr)
        self._terms = rated.counts

    @property
    def rated(self) -> RowBlock:
        """Rated items of the clients, without values."""
        return RowBlock(indptr=self._rated.indptr, rows=self._rated.items, values=None)

    @property
    def upload(self) -> Upload:
        """Rows of the rated items, computed anew whenever they are asked for."""
        rated = self._rated
        values, _ = self._compute(rated.indptr, rated.items, rated.ratings)
        block = RowBlock(indptr=rated.indptr, rows=rated.items, values=values)
        return Upload(clients=self.clients, blocks={TABLE: block})

    def impute(
        self, indptr: IntArray, items: IndexArray, *, method: str, local_steps: int
    ) -> FloatArray:
        """Virtual ratings: the client's mean, or the prediction of a locally trained copy."""
        counts = np.diff(indptr)
        if method == "average":
            rated = self._rated
            totals = segment_totals(rated.ratings[:, None], rated.indptr)[:, 0]
            return np.repeat(totals / np.maximum(rated.counts, 1), counts)
        if method != "predicted":
            raise ValueError(f"unknown imputation method {method!r}")
        return self._predict(self._train_copies(local_steps), indptr, items)

    def resample_residuals(
        self, indptr: IntArray, items: IndexArray, *, draws: IntArray
    ) -> FloatArray:
        """Virtual ratings r' = U_u . V_i + e with e one of the client's own residuals."""
        counts = np.diff(indptr)
        own = np.repeat(self._rated.counts, counts)
        picks = np.repeat(self._rated.indptr[:-1], counts) + draws % np.maximum(own, 1)
        residuals = np.zeros(len(own))
        residuals[own > 0] = self._residuals[picks[own > 0]]
        return self._predict(self._users, indptr, items) + residuals

    def rows(
        self, indptr: IntArray, items: IndexArray, virtual: BoolArray, ratings: FloatArray
    ) -> FloatArray:
        """Rows of rated and virtual items; "rated+virtual" makes the client train on the latter.

        Raises:
            ValueError: an item is neither virtual nor rated, or the numbers do not match.
        """
        rated = self._rated
        own = (rated.indptr, rated.items, rated.ratings)
        values, residuals = self._compute(
            indptr, items, merge_values(indptr, items, virtual, ratings, *own)
        )
        if self._config.user_update == "rated+virtual":
            ends = np.concatenate([[0], np.cumsum(virtual)])[indptr]
            weights = -residuals[virtual]
            self._pull = self._pull + segment_sum(self._table, items[virtual], weights, ends)
            self._terms = self._terms + np.diff(ends)
        return values

    def commit(self, vault: Vault) -> None:
        """Step of the user vectors (eq. 7)."""
        trained = self._terms > 0
        terms = np.maximum(self._terms, 1)[:, None]
        rank = self._config.rank
        users, pull = self._users[:, :rank], self._pull[:, :rank]
        gradient = pull / terms + self._config.regularization * users
        if self._config.temperature:
            gradient -= self._noise("langevin-users", self.clients, np.zeros_like(self.clients))
        moved = users - self._step_size * gradient
        vault.write(_USER_VECTORS, self.clients, np.where(trained[:, None], moved, users))

    def _compute(
        self, indptr: IntArray, items: IndexArray, ratings: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Rows [N, d] and residuals [N]."""
        rows, residuals = rank_one_rows(
            self._table,
            items,
            self._users,
            indptr,
            self._centred(ratings, indptr),
            self._config.regularization,
        )
        if self._config.temperature:
            lanes = self.clients[_owners(indptr)]
            rows -= self._noise("langevin-rows", lanes, items.astype(np.int64))
        return rows, residuals

    def _noise(self, stream: str, lanes: IntArray, indices: IntArray) -> FloatArray:
        """Gaussian noise of SGLD, a function of (client, item, round) alone: float64[N, d]."""
        source, rank = self._streams.private(stream), self._config.rank
        words = source.words_at(self._round, lanes, indices, width=rank)
        deviation = np.sqrt(self._config.temperature / self._step_size)
        return np.asarray(deviation * ndtri(uniform_reals(words)))

    def _centred(self, ratings: FloatArray, indptr: IntArray) -> FloatArray:
        """Ratings minus their users' own constants."""
        return ratings if self._means is None else ratings - self._means[_owners(indptr)]

    def _predict(self, users: FloatArray, indptr: IntArray, items: IndexArray) -> FloatArray:
        dots = segment_dots(users, indptr, self._table, items)
        return dots if self._means is None else self._means[_owners(indptr)] + dots

    def _train_copies(self, local_steps: int) -> FloatArray:
        """U'_u: ``local_steps`` full-batch steps on the client's ratings with V held fixed.

        The loss is quadratic in U'_u, so its gradient needs only the Gram matrix of the client's
        item vectors: d^2 numbers per client instead of its ratings in every step. Slopes stay.
        """
        rated, rank = self._rated, self._config.rank
        vectors, start = self._table[:, :rank], self._users[:, :rank]
        size = np.maximum(rated.counts, 1)[:, None]
        curvature = gram(vectors, rated.items, rated.indptr) / size[:, :, None]
        target = segment_sum(vectors, rated.items, self._beside_vectors(), rated.indptr) / size
        copies = descend(
            curvature,
            target,
            start,
            step_size=self._step_size,
            shrink=self._config.regularization,
            steps=local_steps,
        )
        return np.concatenate([copies, self._users[:, rank:]], axis=1)

    def _beside_vectors(self) -> FloatArray:
        """What the vectors have to explain of the clients' ratings: float64[N]."""
        rated = self._rated
        if self._means is None:
            return rated.ratings
        slopes = self._users[:, -1:]
        lines = segment_dots(slopes, rated.indptr, self._table[:, -1:], rated.items)
        return np.asarray(self._centred(rated.ratings, rated.indptr) - lines)


def _lines(config: PMFConfig, public: PublicState, rated: Rated) -> Lines | None:
    if not config.biases:
        return None
    pull = config.slope_shrinkage * config.rating_variance
    return fit_lines(public.table[:, -1], rated, pull=pull)


def _owners(indptr: IntArray) -> IntArray:
    """Segment of each entry: int64[N]."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def _with_slopes(users: FloatArray, lines: Lines | None) -> FloatArray:
    """The vectors; with biases the slopes beside the column of those: float64[B, d + 1]."""
    return users if lines is None else np.concatenate([users, lines.slopes[:, None]], axis=1)
