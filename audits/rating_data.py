"""Rating tables as data of an audit: settings, loading, splitting, rated sets as secrets."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from audits.system import DataFacts
from secure_fedrec.data import (
    DATASETS,
    RatingTable,
    Split,
    SyntheticConfig,
    k_fold,
    latest_ml_1m,
    leave_one_out,
    load,
    locate,
)
from secure_fedrec.settings import OneOf, Settings, Within

SPLITS = ("k-fold", "leave-one-out")


class TableData(Settings, section="data"):
    """A rating table, and the shape of the synthetic one, which is that of ``SyntheticConfig``.

    Args:
        name: data set.

    Raises:
        ConfigError: there is no such data set, or a field shapes one that is not synthetic.
    """

    shape_of: ClassVar[type[Settings]] = SyntheticConfig
    name: Annotated[str, OneOf(DATASETS, "unknown data set")] = "synthetic"
    clients: int | None = None
    items: int | None = None
    rank: int | None = None
    mean_ratings: float | None = None
    popularity_exponent: float | None = None
    activity_sigma: float | None = None
    noise: float | None = None

    def _agree(self) -> None:
        if self.name != "synthetic":
            for name in self.shape:
                raise self.refusal(name, "shapes the synthetic data set only")
        _ = SyntheticConfig(seed=0, **self.shape)

    @property
    def shape(self) -> dict[str, Any]:
        """What is given of the synthetic table's shape."""
        return given(self, SyntheticConfig)


class RatingData(TableData):
    """Ratings to train on, and ratings to measure on.

    Args:
        split: "k-fold" (FedRec++'s five random parts) or "leave-one-out".
        folds: parts of the k-fold split.
        fold: the fold that is recorded and attacked, 0 to ``folds - 1``.
        utility_folds: how many folds, from the audited one on, the utility figures average over,
            1 to ``folds``.

    Raises:
        ConfigError: a field is out of range, or shapes a set that is not synthetic.
    """

    split: Annotated[str, OneOf(SPLITS, "unknown split")] = "k-fold"
    folds: Annotated[int, Within(least=2)] = 5
    fold: int = 0
    utility_folds: int = 1

    def _agree(self) -> None:
        self.require_between("fold", 0, self.folds - 1)
        self.require_between("utility_folds", 1, self.folds if self.split == "k-fold" else 1)
        TableData._agree(self)


def given(settings: Any, kind: type) -> dict[str, Any]:
    """The fields of another class that settings have too, without those that are None."""
    values = {each.name: getattr(settings, each.name, None) for each in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if value is not None}


def load_table(data: TableData, *, seed: int, data_dir: Path | None) -> RatingTable:
    """The rating table that settings name.

    Args:
        data: its settings.
        seed: of a synthetic set.
        data_dir: where data sets lie.

    Raises:
        DataError: it is missing, damaged, or holds a rating outside its scale.
    """
    synthetic = None
    if data.name == "synthetic":
        synthetic = SyntheticConfig(seed=seed, **data.shape)
    return load(data.name, data_dir, synthetic=synthetic)


def latest_items(table: RatingTable, data_dir: Path | None) -> npt.NDArray[np.int64] | None:
    """The latest item of every client, where a source other than the table knows it."""
    if table.name == "ml-1m" and table.timestamps is None:
        return latest_ml_1m(locate(table.name, data_dir))
    return None


def split_table(
    data: RatingData, table: RatingTable, *, seed: int, fold: int, data_dir: Path | None
) -> Split:
    """Training and test ratings of one fold."""
    if data.split == "k-fold":
        return k_fold(table, folds=data.folds, fold=fold, seed=seed)
    return leave_one_out(table, latest=latest_items(table, data_dir), seed=seed)


def table_facts(table: RatingTable, *, train: RatingTable, test: int, **others: Any) -> DataFacts:
    """A rating table in figures.

    Args:
        table: the whole data set.
        train: its training ratings.
        test: number of examples that the utility is measured on.
        others: further fields of ``DataFacts``.
    """
    return DataFacts(
        name=table.name,
        fingerprint=table.fingerprint(),
        clients=table.n_clients,
        items=table.n_items,
        examples=len(table),
        train=len(train),
        test=test,
        **others,
    )


def rated_sets(train: RatingTable) -> Mapping[str, npt.NDArray[Any]]:
    """Who rated what, as columns; ``audits.run.truth`` reads them back."""
    return {
        "indptr": train.indptr(),
        "items": train.items,
        "ratings": train.ratings,
        "n_items": np.array(train.n_items),
        "levels": train.scale.levels,
    }
