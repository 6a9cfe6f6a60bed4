"""EASE over a federation; see the package.

A client u with the row x_u of 0 and 1 uploads x_u x_u^T once, the first time it takes part, and
zeros in any later round: sums of later rounds are added to those of earlier ones, so later users
are included without data of others. The public state is the sum, or what the server makes of it
(``EASEConfig.solved_at``); scores are computed where the row is, at the client.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.algorithms.ease.choice import Contest, kept_out, without
from secure_fedrec.algorithms.ease.config import EASEConfig
from secure_fedrec.algorithms.ease.solutions import (
    Dense,
    Projected,
    Scores,
    inverse_weights,
    low_rank,
    nystroem,
    projection,
)
from secure_fedrec.algorithms.ease.sums import Sketch, Triangle, random_signs
from secure_fedrec.blocks import BlockKind, BlockShape
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.negatives import Ragged
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, FlatBlock, Upload
from secure_fedrec.vault import Vault

if TYPE_CHECKING:
    from scipy import sparse

SUMS: Final = "co-occurrences"
"""Block, and public extra, of the sums."""
HITS: Final = "hits"
"""Block of the clients' choice."""
WEIGHTS: Final = "weights"
"""Public extra: the server's solution of the sums."""
NOISE: Final = "noise"
"""Public extra: the standard deviation of the noise in the sums."""

_ADDED: Final = "added"
_SUGGESTED_COLUMNS: Final = 256
_SOLVING: Final = 3
"""Number of m x m matrices that a solution holds in memory at once."""


class EASE:
    """The algorithm.

    Args:
        config: settings.
        n_clients: number of clients of the federation, which the shrinkage is a share of.
        n_items: m.

    Raises:
        ConfigError: the sums, or their solution, take more memory than allowed.
    """

    def __init__(self, config: EASEConfig, n_clients: int, n_items: int) -> None:
        self.config = config
        self.n_clients, self.n_items = n_clients, n_items
        self.width = max(1, config.sketch or n_items)
        self.rounds = config.rounds
        self._solved: tuple[FloatArray, dict[float, Scores]] | None = None
        self._signs: FloatArray | None = None
        self._require_memory()

    @cached_property
    def sums(self) -> Triangle | Sketch:
        """The layout of the sums."""
        if not self.config.sketch:
            return Triangle(self.n_items, self.config.largest_norm)
        return Sketch(self.n_items, self.config.sketch, self._drawn_signs)

    @staticmethod
    def ring(cohort: int) -> FixedPoint:
        """The narrowest ring that sums of counts of so many clients fit."""
        return FixedPoint(bits=max(8, cohort.bit_length() + 1), fraction_bits=0, clip=1.0)

    def blocks(self, n_rows: int) -> tuple[BlockShape, ...]:
        """The sums and, with candidates, the clients' votes; whole numbers where values are.

        Raises:
            ConfigError: a table of another number of items.
        """
        if n_rows != self.n_items:
            raise ConfigError("n_rows", n_rows, f"the algorithm was made for {self.n_items} items")
        whole = {"fraction_bits": 0} if self.sums.whole_numbers else {}
        shapes = [self._shape(SUMS, self.sums.values, clip=self.sums.clip, **whole)]
        if self.config.candidates:
            shapes.append(self._shape(HITS, len(self.config.candidates), clip=1.0, **whole))
        return tuple(shapes)

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """The state before any sum; the table is the shrinkage, float64[1]."""
        self._signs = None
        if self.config.sketch:
            self._signs = random_signs(self.n_items, self.config.sketch, streams)
        extras = {NOISE: np.zeros(1)}
        if self.config.solved_at == "client":
            extras[SUMS] = np.zeros((0, *self.sums.shape[1:]))
        else:
            extras[WEIGHTS] = np.zeros((0, self._weight_columns))
        return PublicState(round=0, table=np.array([self.config.shrinkage]), extras=extras)

    def extra_rows(self, completed: int) -> Mapping[str, int | None]:
        """Sums, or weights, are there after round 1."""
        name, rows = (
            (SUMS, self.sums.shape[0])
            if self.config.solved_at == "client"
            else (WEIGHTS, self.n_items)
        )
        return {name: rows if completed else 0}

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """The clients' flags whether their row was added: initially not.

        Raises:
            DataError: a client's row is not of 0 and 1, or has an item outside the catalogue.
        """
        rated = vault.rated(vault.clients)
        owners = np.repeat(vault.clients, rated.counts)
        odd = np.flatnonzero(rated.ratings != 1.0)
        if len(odd):
            client, item, value = owners[odd[0]], rated.items[odd[0]], rated.ratings[odd[0]]
            problem = f"a value of {value:g} for item {item}: a row of EASE is of 0 and 1"
            raise DataError(f"client {client}", f"{problem}, 1 for the client's items")
        outside = np.flatnonzero((rated.items < 0) | (rated.items >= self.n_items))
        if len(outside):
            client, item = owners[outside[0]], rated.items[outside[0]]
            raise DataError(f"client {client}", f"item {item}: there are {self.n_items}")
        again = np.flatnonzero((np.diff(rated.items) <= 0) & (np.diff(owners) == 0))
        if len(again):
            client, item = owners[again[0]], rated.items[again[0] + 1]
            raise DataError(f"client {client}", f"item {item}: items ascend, each of them once")
        vault.create(_ADDED, np.zeros((vault.n_clients, 1)))

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], rows of the table that every upload is cut into."""
        rows = sum(-(-shape.size // shape.width) for shape in self.blocks(n_rows))
        return np.full(vault.n_clients, rows, dtype=np.int64)

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """No vectors: the algorithm does not use bags."""
        return {}

    def step_bytes(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], the upload as reals, cut into rows and as words."""
        return np.full(vault.n_clients, 32 * self.sums.values, dtype=np.int64)

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """Upload x x^T of clients that have not added it; in a last round of choice, the votes."""
        rated = vault.rated(clients)
        owned = Ragged(rated.indptr, rated.items)
        choosing = self.config.chooses_after(public.round)
        blocks = {SUMS: FlatBlock(values=np.zeros((len(clients), self.sums.values)))}
        fresh = vault.read(_ADDED, clients)[:, 0] == 0
        kept = None
        if self.config.candidates:
            kept = kept_out(clients, owned, streams)
            found = np.zeros((len(clients), len(self.config.candidates)))
            if choosing:
                found = self._found(clients, owned, kept, public, streams)
            blocks[HITS] = FlatBlock(values=found)
        if not choosing and fresh.any():
            trained = owned if kept is None else without(owned, kept)
            values = self.sums.of(trained.indptr, trained.items)
            values[~fresh] = 0.0
            blocks[SUMS] = FlatBlock(values=values)

        def commit(vault: Vault) -> None:
            if not choosing:
                vault.write(_ADDED, clients, np.ones((len(clients), 1)))

        return FinishedStep(
            clients=clients, upload=Upload(clients=clients, blocks=blocks), commit=commit
        )

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Add the new sums; solve them where the server does, or take the clients' choice.

        Raises:
            ConfigError: the sum is singular.
        """
        after = replace(public, round=public.round + 1)
        if self.config.chooses_after(public.round):
            votes = aggregate.vector(HITS)
            best = self.config.candidates[int(np.argmax(votes))]
            return replace(after, table=np.array([best]))
        part = aggregate.of(SUMS)
        sums = aggregate.vector(SUMS).reshape(self.sums.shape)
        if self.config.pair_floor:
            sums = np.where(sums >= self.config.pair_floor, sums, 0.0)
        noise = float(np.hypot(public.extras[NOISE][0], part.noise))
        extras = {NOISE: np.array([noise])}
        if isinstance(self.sums, Triangle) and self.config.solved_at == "server":
            extras[WEIGHTS] = self._weights(self.sums, sums, noise, self.config.shrinkage)
        else:
            before = public.extras[SUMS]
            extras[SUMS] = before + sums if len(before) else sums
        return replace(after, extras=extras)

    def scores(self, public: PublicState, owned: Ragged) -> FloatArray:
        """Scores of all items by the clients' items: float64[B, m]; zeros before round 1.

        Args:
            public: the state.
            owned: items of each client.

        Raises:
            ConfigError: the sum is singular.
        """
        if not public.round:
            return np.zeros((len(owned.indptr) - 1, self.n_items))
        return self._scorer(public, float(public.table[0])).of(self._rows(owned))

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters."""
        return {"name": "ease", **asdict(self.config), "traits": asdict(OTHER_ROWS)}

    @property
    def _weight_columns(self) -> int:
        return self.n_items if self.config.solution == "inverse" else self.config.rank

    def _shape(self, name: str, size: int, **codec: Any) -> BlockShape:
        return BlockShape(name=name, kind=BlockKind.FLAT, size=size, width=self.width, **codec)

    def _rows(self, owned: Ragged) -> "sparse.csr_array":
        from scipy import sparse  # noqa: PLC0415 - who only reads of settings need not wait

        shape = (len(owned.indptr) - 1, self.n_items)
        ones = np.ones(len(owned.items))
        return sparse.csr_array((ones, owned.items, owned.indptr), shape=shape)

    def _found(
        self,
        clients: IntArray,
        owned: Ragged,
        kept: IntArray,
        public: PublicState,
        streams: Streams,
    ) -> FloatArray:
        """Whether each client finds its item under each candidate: float64[B, candidates]."""
        contest = Contest(clients, owned, kept, self.n_items, streams)
        rows, scale = self._rows(without(owned, kept)), 1.0
        if self.config.largest_norm is not None:
            longest = np.sqrt(len(self.config.candidates))
            scale = min(1.0, self.config.largest_norm / longest)
        found = [
            contest.found(self._scorer(public, each).of(rows)) for each in self.config.candidates
        ]
        return scale * np.stack(found, axis=1)

    def _scorer(self, public: PublicState, share: float) -> Scores:
        """Solved once for all batches of a round."""
        server = self.config.solved_at == "server"
        state = public.extras[WEIGHTS if server else SUMS]
        if self._solved is None or self._solved[0] is not state:
            self._solved = (state, {})
        made = self._solved[1]
        if share not in made:
            noise = float(public.extras[NOISE][0])
            made[share] = self._as_scores(state) if server else self._scores_of(state, noise, share)
        return made[share]

    def _as_scores(self, weights: FloatArray) -> Scores:
        return Dense(weights) if self.config.solution == "inverse" else Projected(weights)

    def _scores_of(self, sums: FloatArray, noise: float, share: float) -> Scores:
        if isinstance(self.sums, Triangle):
            return self._as_scores(self._weights(self.sums, sums, noise, share))
        signs, rank = self._drawn_signs(), self.config.rank
        if self.config.solution == "inverse":
            return low_rank(sums, signs, share * self.n_clients)
        return Projected(nystroem(sums, signs)[0][:, :rank])

    def _weights(self, made: Triangle, sums: FloatArray, noise: float, share: float) -> FloatArray:
        """B, or the factors of a projection."""
        matrix = made.square(sums)
        if self.config.solution == "inverse":
            return inverse_weights(matrix, share, self.n_clients)
        return projection(matrix, noise, self.config.rank)

    def _drawn_signs(self) -> FloatArray:
        if self._signs is None:
            raise RuntimeError("the signs are drawn with the first public state")
        return self._signs

    def _require_memory(self) -> None:
        """Refuse sums, or a solution, that take more than allowed."""
        config, m = self.config, self.n_items
        taken = 8 * (self.sums.values + (0 if config.sketch else _SOLVING * m * m))
        if taken <= config.max_memory_gb * 1e9:
            return
        columns = min(_SUGGESTED_COLUMNS, m)
        raise ConfigError(
            "algorithm.sketch",
            config.sketch,
            f"{m:,} items take {self.sums.values:,} sums and {taken / 1e9:.1f} GB, above "
            f"algorithm.max_memory_gb = {config.max_memory_gb:g}; a sketch of {columns} columns "
            f"takes {m * columns:,} sums and {8 * m * columns / 1e9:.2f} GB, solved at the client",
        )
