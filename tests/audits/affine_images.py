"""Affine images of ratings, trained with the defaults: errors in units of the scale.

    python -m tests.audits.affine_images [--rounds N]

prints one Markdown table of real data (``SECURE_FEDREC_DATA``): ml-100k, ml-latest-small, and the
play counts of lastfm-2k, capped. Errors are those of one fold, divided by the width of the scale.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingScale, RatingTable, k_fold, load
from secure_fedrec.data.registry import locate
from secure_fedrec.engines import LocalEngine, rating_problem, sizes_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import engine_of


class Image(NamedTuple):
    """``factor * rating + shift``."""

    factor: float
    shift: float = 0.0

    def rating(self, rating: float) -> float:
        """One rating so mapped."""
        return self.factor * rating + self.shift

    def of(self, table: RatingTable) -> RatingTable:
        """The ratings of a table so mapped, on the scale so mapped."""
        own = table.scale
        low, high = (self.factor * end + self.shift for end in (own.low, own.high))
        scale = RatingScale(low, high, self.factor * own.step)
        return replace(table, ratings=self.factor * table.ratings + self.shift, scale=scale)


IMAGES: Final = {
    "as it is": Image(1.0),
    "x 2": Image(2.0),
    "x 25": Image(25.0),
    "- 3": Image(1.0, -3.0),
    "/ 5": Image(0.2),
    "x 7": Image(7.0),
    "x 7 + 2": Image(7.0, 2.0),
}
PLAYS: Final = 1000
"""The play counts of lastfm-2k end here, and are counted in hundreds; half are above 260."""


def trained(table: RatingTable, *, rounds: int, settings: PMFConfig | None = None) -> LocalEngine:
    """Federated PMF with the defaults on one fold of a table, without protection."""
    algorithm = PMF(settings or PMFConfig(rank=10, rounds=rounds))
    split, streams = k_fold(table, folds=5, fold=0, seed=1), Streams.from_seed(1)
    problem = rating_problem(algorithm, split.train, split.test)
    sizes = sizes_of(algorithm, problem)
    stack = build_stack({}, sizes=sizes, codec=FixedPoint(), streams=streams)
    return engine_of(algorithm, problem, stack, streams)


def errors(table: RatingTable, *, rounds: int) -> Mapping[str, float]:
    """MAE and RMSE after some rounds, in units of the scale's width."""
    engine = trained(table, rounds=rounds)
    reports = [engine.run_round() for _ in range(rounds)]
    figures, width = reports[-1].metrics or {}, table.scale.high - table.scale.low
    return {name: value / width for name, value in figures.items()}


def tables() -> Iterator[tuple[str, RatingTable]]:
    """Real ratings, and play counts up to a limit."""
    for name in ("ml-100k", "ml-latest-small"):
        yield name, load(name)
    rows = np.loadtxt(locate("lastfm-2k") / "user_artists.dat", dtype=np.int64, skiprows=1)
    (users, clients), (artists, items) = (
        np.unique(column, return_inverse=True) for column in rows.T[:2]
    )
    yield (
        "lastfm-2k, plays capped",
        RatingTable.from_columns(
            name="lastfm-2k",
            n_clients=len(users),
            n_items=len(artists),
            clients=clients,
            items=items,
            ratings=np.minimum(1 + rows[:, 2] // 100, 1 + PLAYS // 100).astype(np.float64),
            scale=RatingScale(1.0, 1.0 + PLAYS // 100, 1.0),
            client_labels=users,
            item_labels=artists,
        ),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    print("| data | image | scale | MAE / width | RMSE / width | off the first |")
    print("|---|---|---|---|---|---|")
    for name, table in tables():
        first: Mapping[str, float] = {}
        for image, affine in IMAGES.items():
            changed = affine.of(table)
            found = errors(changed, rounds=rounds)
            first = first or found
            off = max(abs(found[key] - first[key]) for key in found)
            figures = f"{found['mae']:.7f} | {found['rmse']:.7f}"
            print(f"| {name} | {image} | {changed.scale} | {figures} | {off:.1e} |", flush=True)


if __name__ == "__main__":
    main()
