"""Rating tables as data of an audit: settings, loading, splitting, rated sets as secrets."""

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from audits.system import DataFacts, Wanted
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data import (
    DATASETS,
    RatingsFile,
    RatingTable,
    Split,
    SyntheticConfig,
    filtered,
    k_fold,
    latest_ml_1m,
    leave_one_out,
    load,
    locate,
    read_ratings,
)
from secure_fedrec.data.splits import HELD_OUT, split_at
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Count, Filled, Natural, OneOf, Settings, Within

SPLITS: Final = ("k-fold", "leave-one-out")
FILE: Final = "file"
"""Name of the data set made from the user's own files."""


class Sample(Settings, section="data"):
    """Which clients and items of a rating table count.

    Args:
        min_ratings: fewest ratings of a client, by default any number.
        min_raters: fewest clients who rated an item, by default any number; with ``min_ratings``,
            until both hold.
        sample_clients: clients that are kept, drawn at random by the seed after the other two; by
            default all.
    """

    min_ratings: Count | None = None
    min_raters: Count | None = None
    sample_clients: Count | None = None

    def select(self, source: "Source", seed: int) -> "Source":
        """The selected part of a table, and of the facts of its source.

        Raises:
            DataError: nothing is left.
            ConfigError: the table has too few clients.
        """
        limits = (self.min_ratings, self.min_raters, self.sample_clients)
        if limits == (None, None, None):
            return source
        names = ("min_ratings", "min_raters", "sample_clients")
        left = filtered(source.table, **dict(zip(names, limits, strict=True)), seed=seed)
        held, latest = source.held_out, source.latest
        return Source(
            left.table,
            held_out=None if held is None else held[left.rows],
            latest=None if latest is None else left.items[latest[left.clients]],
        )


class Selection(Sample):
    """Which clients and items of a rating table count, and which rating of a client is held out.

    The other keys are those of ``Sample``.

    Args:
        held_out: what leave-one-out holds out of every client: the "latest" rating or a "random"
            one. By default the latest where times are known. Of several ratings at the same time,
            the one of the largest item number counts as the latest, in the order of the items' ids.
    """

    held_out: Annotated[str, OneOf(HELD_OUT)] | None = None


class TableData(Settings, section="data"):
    """A rating table, and the shape of the synthetic one, which is that of ``SyntheticConfig``.

    Args:
        name: data set.

    Raises:
        ConfigError: the data set is unknown, or a field for synthetic data is used with another
            set.
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
                raise self.refusal(name, "applies to the synthetic data set only")
        _ = SyntheticConfig(seed=0, **self.shape)

    @property
    def shape(self) -> dict[str, Any]:
        """The given fields of the synthetic table's shape."""
        return given(self, SyntheticConfig)

    @property
    def implicit(self) -> bool:
        """Whether it is implicit feedback."""
        return DATASETS[self.name].implicit

    def read(self, *, seed: int, data_dir: Path | None) -> "Source":
        """The whole table, and the latest ratings if its source knows them."""
        synthetic = None
        if self.name == "synthetic":
            synthetic = SyntheticConfig(seed=seed, **self.shape)
        table = load(self.name, data_dir, synthetic=synthetic)
        latest = None
        if table.name == "ml-1m" and table.timestamps is None:
            latest = latest_ml_1m(locate(table.name, data_dir))
        return Source(table, latest=latest)


class FileData(RatingsFile):
    """A rating table from the user's own files; the keys of ``RatingsFile``.

    Args:
        name: "file".
    """

    name: Literal["file"] = FILE

    def read(self, *, seed: int, data_dir: Path | None) -> "Source":
        """The whole table; ``data_dir`` is the folder that paths are relative to."""
        del seed
        return _source(self, data_dir)


class Parts(Selection):
    """How ratings are split into training and test ratings.

    Args:
        split: "k-fold" (FedRec++'s five random parts) or "leave-one-out".
        folds: parts of the k-fold split.
        fold: the fold that is recorded and attacked, 0 to ``folds - 1``.
        utility_folds: how many folds, from the audited one on, the utility figures average over,
            1 to ``folds``.
    """

    split: Annotated[str, OneOf(SPLITS, "unknown split")] = "k-fold"
    folds: Annotated[int, Within(least=2)] = 5
    fold: Natural = 0
    utility_folds: Count = 1

    def require_fitting(self, *, implicit: bool) -> None:
        """Refuse a split that does not fit.

        Raises:
            ConfigError: a fold does not exist, a key has no effect, or figures would say nothing.
        """
        self.require_between("fold", 0, self.folds - 1)
        self.require_between("utility_folds", 1, self.folds if self.split == "k-fold" else 1)
        if implicit and self.split == "k-fold":
            problem = (
                "implicit feedback has one value, so an error is meaningless: hold one item out of "
                "every client, and measure how high it is ranked"
            )
            raise self.refusal("split", problem, ("leave-one-out",))
        if self.held_out is not None and self.split != "leave-one-out":
            raise self.refusal("held_out", "has no effect without data.split = 'leave-one-out'")

    def parts(self, source: "Source", *, seed: int, fold: int) -> Split:
        """Training and test ratings of one fold."""
        if source.held_out is not None:
            return split_at(source.table, source.held_out)
        if self.split == "k-fold":
            return k_fold(source.table, folds=self.folds, fold=fold, seed=seed)
        return source.leave_one_out(self.held_out, seed=seed)


class RatingData(Parts, TableData):
    """Ratings of a known data set; the keys of ``TableData``, ``Selection`` and ``Parts``.

    Raises:
        ConfigError: a field is out of range, or shapes a set that is not synthetic.
    """

    def _agree(self) -> None:
        self.require_fitting(implicit=self.implicit)
        TableData._agree(self)


class RatingFileData(Parts, FileData):
    """Ratings of the user's own files; the keys of ``RatingsFile``, ``Selection`` and ``Parts``.

    Args:
        split: "k-fold", "leave-one-out", or "files", which takes the test ratings from a file.
        test_path: file of the test ratings, made like the first, for the split "files"; its users
            and items must occur in the first (or in the catalogue), its pairs must not.

    Raises:
        ConfigError: a field is out of range, or two do not agree.
    """

    split: Annotated[str, OneOf((*SPLITS, "files"), "unknown split")] = "k-fold"
    test_path: Annotated[str, Filled()] | None = None

    def _agree(self) -> None:
        if (self.test_path is None) == (self.split == "files"):
            problem = "has no effect without data.split = 'files'"
            if self.test_path is None:
                problem = "is missing: data.split = 'files' takes the test ratings from it"
            raise self.refusal("test_path", problem)
        if self.attributes is not None:
            problem = "no attack infers attributes from what this algorithm sends; furl has one"
            raise ConfigError(self.key("attributes"), self.attributes.path, problem)
        self.require_fitting(implicit=self.implicit)
        RatingsFile._agree(self)

    def read(self, *, seed: int, data_dir: Path | None) -> "Source":
        """The whole table; ``data_dir`` is the folder that paths are relative to."""
        del seed
        return _source(self, data_dir, self.test_path)


def _source(file: RatingsFile, data_dir: Path | None, test_path: str | None = None) -> "Source":
    """Read files; prints on stderr how many rows their settings leave out."""
    found = read_ratings(file, data_dir or Path(), test_path=test_path)
    if found.left_out:
        said = f"{found.left_out:,} rows left out, in which something is missing"
        print(f"{Path(file.path).name}: {said}", file=sys.stderr)
    return Source(found.table, held_out=found.held_out)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """A rating table, and information of its source about a split.

    Args:
        table: the ratings.
        held_out: bool[N], the ratings of the user's own test file; None without one.
        latest: int64[n_clients], the item that a client rated last, if another source than the
            table knows it.
    """

    table: RatingTable = field(kw_only=False)
    held_out: BoolArray | None = None
    latest: IntArray | None = None

    def leave_one_out(self, choice: str | None, *, seed: int) -> Split:
        """One rating per client held out."""
        return leave_one_out(self.table, latest=self.latest, choice=choice, seed=seed)


def given(settings: Any, kind: type) -> dict[str, Any]:
    """The fields that settings share with another class, without those that are None."""
    values = {each.name: getattr(settings, each.name, None) for each in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if value is not None}


def load_source(wanted: Wanted) -> Source:
    """The selected part of the rating table that settings name.

    Args:
        wanted: its settings, of ``TableData`` or ``FileData`` and ``Sample``; the seed is for a
            synthetic set and for a sample; paths of own files are relative to the folder.

    Raises:
        DataError: it is missing, damaged, holds a rating outside its scale, or nothing is selected.
        ConfigError: the settings do not fit it.
    """
    whole: Source = wanted.data.read(seed=wanted.seed, data_dir=wanted.data_dir)
    found: Source = wanted.data.select(whole, wanted.seed)
    return found


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


def attribute_columns(table: RatingTable) -> dict[str, npt.NDArray[Any]]:
    """The clients' attributes as secrets: "attributes.NAME" -> int64[n], numbers of the values."""
    return {
        f"attributes.{name}": np.unique(values, return_inverse=True)[1].astype(np.int64)
        for name, values in table.demographics.items()
    }


def rated_sets(train: RatingTable) -> Mapping[str, npt.NDArray[Any]]:
    """The rated items of clients, as columns; ``audits.run.truth`` reads them back."""
    return {
        "indptr": train.indptr(),
        "items": train.items,
        "ratings": train.ratings,
        "n_items": np.array(train.n_items),
        "levels": train.scale.levels,
    }
