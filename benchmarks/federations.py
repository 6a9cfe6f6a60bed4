"""What the benchmarks run: rating sets in the published shapes, and engines on them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import (
    DATA_DIR_VARIABLE,
    RatingTable,
    SyntheticConfig,
    generate,
    k_fold,
    load,
    locate,
)
from secure_fedrec.engines import LocalEngine, rating_evaluation, vault_of
from secure_fedrec.errors import DataError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    Cloak,
    Denoisers,
    DenoisersConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Fault, Meter, Wire

__all__ = ["SHAPES", "Federation", "Options", "first_clients", "ratings_of", "training_part"]

SHAPES: Final = {
    "ml-1m": SyntheticConfig(
        clients=6040, items=3952, mean_ratings=165.6, activity_sigma=0.95, seed=1
    ),
    "ml-100k": SyntheticConfig(
        clients=943, items=1682, mean_ratings=106.0, activity_sigma=0.95, seed=1
    ),
}
"""Synthetic stand-ins with the clients, items and about the ratings of the real sets."""

_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asked for.

    Args:
        quick: measure less, to end within 45 s.
        data_dir: folder of the MovieLens sets; None reads ``SECURE_FEDREC_DATA``.
        folder: where long runs are kept and go on; None throws them away at the end.
    """

    quick: bool = False
    data_dir: Path | None = None
    folder: Path | None = None

    @property
    def data_folder(self) -> Path | None:
        """Where the real sets are, if anybody said so."""
        named = os.environ.get(DATA_DIR_VARIABLE)
        return self.data_dir or (Path(named) if named else None)

    def require_data(self) -> None:
        """Check that the folder of the command line holds every set, before long work.

        Raises:
            DataError: it does not.
        """
        if self.data_dir is not None:
            for name in SHAPES:
                locate(name, self.data_dir)


def ratings_of(name: str, options: Options) -> tuple[str, RatingTable]:
    """A real rating set if its folder is named, else its synthetic stand-in.

    Args:
        name: one of ``SHAPES``.
        options: says where real sets are.

    Returns:
        (where the ratings come from, the ratings).

    Raises:
        DataError: the folder given on the command line does not hold the set, or it is damaged.
    """
    folder = options.data_folder
    if folder is not None:
        try:
            return name, load(name, folder)
        except DataError:
            # A named folder must hold what it promises; the variable may serve other sets only.
            if options.data_dir is not None or (folder / name).exists():
                raise
    return f"synthetic ({name} shape)", generate(SHAPES[name])


def training_part(table: RatingTable) -> RatingTable:
    """Four fifths of the ratings, as in the published protocol."""
    return k_fold(table, fold=0, seed=_SEED).train


def first_clients(table: RatingTable, count: int) -> RatingTable:
    """The ratings of the first clients, renumbered as a smaller federation."""
    if count >= table.n_clients:
        return table
    keep = table.clients < count
    return RatingTable(
        name=table.name,
        n_clients=count,
        n_items=table.n_items,
        clients=table.clients[keep],
        items=table.items[keep],
        ratings=table.ratings[keep],
        scale=table.scale,
        client_labels=table.client_labels[:count],
        item_labels=table.item_labels,
    )


class Federation:
    """FedRec++ with one denoiser on a rating set; makes engines that all start from the same state.

    Args:
        table: training ratings.
        rho: virtual items per rated item.
        local_steps: T_local.
        filling: "predicted", "average" or "hybrid".
        predict_after: T_predict of the hybrid filling.
    """

    def __init__(
        self,
        table: RatingTable,
        *,
        rho: float = 3.0,
        local_steps: int = 15,
        filling: str = "predicted",
        predict_after: int = 10,
    ) -> None:
        self.table = table
        self.algorithm = PMFConfig.printed()
        self.virtual = VirtualRatingsConfig(
            rho=rho, filling=filling, predict_after=predict_after, local_steps=local_steps
        )
        self.codec = FixedPoint()
        self.streams = Streams.from_seed(_SEED)
        self.denoisers = Denoisers(
            DenoisersConfig(count=1),
            n_clients=table.n_clients,
            n_items=table.n_items,
            width=self.algorithm.rank,
            codec=self.codec,
            streams=self.streams,
        )

    @property
    def denoiser(self) -> int:
        """Client number of the denoiser."""
        return int(self.denoisers.binding.denoisers[0])

    def cloak(self) -> VirtualRatings:
        """A fresh cloak."""
        return VirtualRatings(self.virtual, n_items=self.table.n_items, streams=self.streams)

    def stack(self, cloak: Cloak | None = None) -> Stack:
        """The protection stack, with another cloak if one is given."""
        return Stack(
            codec=self.codec,
            cloak=self.cloak() if cloak is None else cloak,
            collector=self.denoisers,
            n_clients=self.table.n_clients,
        )

    def engine(
        self,
        stack: Stack | None = None,
        *,
        test: RatingTable | None = None,
        tap: Fault | None = None,
    ) -> LocalEngine:
        """An engine before its first round.

        Args:
            stack: protection; by default that of ``stack()``.
            test: held-out ratings to evaluate after every round; none by default.
            tap: sees every message on the wire.
        """
        faults = () if tap is None else (tap,)
        algorithm = PMF(self.algorithm)
        return LocalEngine(
            algorithm=algorithm,
            stack=self.stack() if stack is None else stack,
            vault=vault_of(self.table),
            n_rows=self.table.n_items,
            evaluate=None if test is None else rating_evaluation(algorithm, test),
            streams=self.streams,
            wire=Wire(meter=Meter(self.table.n_clients), faults=faults),
        )
