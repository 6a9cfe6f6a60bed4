"""FedRAP from where a run of its public code starts: the same split, negatives and first values.

One run of the public code says little by itself: what is drawn before training (the items' numbers,
99 negatives of 943 clients, one table that all of them start from) moves its HR by two points. Here
all of that is drawn as github.com/mtics/FedRAP (commit d6ee2ac) draws it under its default seed, so
that only the order of examples, and the negatives that are trained on, are ours.

``python -m tests.reproduction.fedrap_public_run FILE [--seeds N]`` prints our curves. FILE holds
"user item rating time" per line, apart by tabs or commas. A user's lines are put together and stay
in their order: the public code does that too, but by a sort that leaves equal ones in any order.
"""

import argparse
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from secure_fedrec.algorithms.item_tables import (
    FedRAP,
    FedRAPConfig,
    ranked,
    ranked_between_rounds,
)
from secure_fedrec.algorithms.item_tables.local import SingleArray
from secure_fedrec.algorithms.item_tables.method import Start
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.data.ratings import RatingScale
from secure_fedrec.errors import DataError, DivergedError, EncodingError
from secure_fedrec.evaluation.protocols import RankingCase, ranking_case
from secure_fedrec.evaluation.ranks import quality
from secure_fedrec.streams import Streams
from secure_fedrec.studies.fed3cr.study import plain_engine

PUBLIC_SEED: Final = 0
ROUNDS: Final = 8

PUBLIC: Final = (0.1357, 0.1771, 0.2280, 0.2853, 0.3457, 0.3913, 0.4719, 0.5196)
"""HR@10 after rounds 1 to 8 of the public code on ml-100k, each user's lines put together."""


class FirstValues(NamedTuple):
    """What all clients start from: float32[m, d] twice, float32[d + 1]."""

    common: SingleArray
    personal: SingleArray
    own: SingleArray


class StartsThere(FedRAP):
    """FedRAP from given values."""

    def __init__(self, values: FirstValues) -> None:
        super().__init__(FedRAPConfig(rounds=ROUNDS), len(values.common))
        self._values = values

    def start(self, streams: Streams) -> Start:
        return Start(self._values.common.astype(np.float64), np.empty(0))

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        return np.repeat(self._values.own[None], len(clients), axis=0)

    def personal_start(self, streams: Streams) -> SingleArray:
        return self._values.personal


def read_rows(path: Path) -> IntArray:
    """int64[N, 4] of a file, users one after the other.

    Raises:
        DataError: it cannot be read, or holds anything else.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        cells = [line.replace(",", "\t").split("\t") for line in lines if line.strip()]
        rows = np.array(cells, dtype=np.int64)
        if rows.shape != (len(cells), 4):
            raise ValueError(f"shape {rows.shape}")
    except (OSError, ValueError, OverflowError) as refused:
        raise DataError(path, f"is no file of four whole numbers per line ({refused})") from refused
    return np.asarray(rows[np.argsort(rows[:, 0], kind="stable")])


def numbered(rows: IntArray) -> RatingTable:
    """The table, users and items numbered as they first come, as the public code does."""
    columns = {}
    for name, labels in (("clients", rows[:, 0]), ("items", rows[:, 1])):
        known, first, place = np.unique(labels, return_index=True, return_inverse=True)
        columns[name] = np.argsort(np.argsort(first))[place], known[np.argsort(first)]
    (clients, client_labels), (items, item_labels) = columns["clients"], columns["items"]
    return RatingTable.from_columns(
        name="ml-100k",
        n_clients=len(client_labels),
        n_items=len(item_labels),
        clients=clients,
        items=items,
        ratings=rows[:, 2].astype(np.float64),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=client_labels,
        item_labels=item_labels,
        timestamps=rows[:, 3],
    )


def public_case(table: RatingTable) -> RankingCase:
    """What the public code holds out, and what it ranks it among: 99 for both items of a client.

    Raises:
        DataError: a client has rated all but fewer than 99 items; or as ``ranking_case``.
    """
    draw, indptr = random.Random(PUBLIC_SEED), table.indptr()
    negatives = np.empty((table.n_clients, 99), dtype=np.int32)
    for client in range(table.n_clients):
        rated = table.items[indptr[client] : indptr[client + 1]]
        unrated = np.setdiff1d(np.arange(table.n_items), rated).tolist()
        if len(unrated) < 99:
            raise DataError(table.name, f"client {client} has no 99 unrated items")
        negatives[client] = draw.sample(unrated, 99)
    case = ranking_case(table, protocol="published", seed=PUBLIC_SEED)
    return replace(case, validation_negatives=negatives, test_negatives=negatives)


def public_values(n_items: int, rank: int) -> FirstValues:
    """What PyTorch draws in the public code's order of layers; the second table is not used."""
    kept = torch.get_rng_state()
    torch.manual_seed(PUBLIC_SEED)
    personal, _ = torch.nn.Embedding(n_items, rank), torch.nn.Embedding(n_items, rank)
    score, common = torch.nn.Linear(rank, 1), torch.nn.Embedding(n_items, rank)
    torch.set_rng_state(kept)
    with torch.no_grad():
        own = torch.cat([score.weight[0], score.bias]).numpy()
        return FirstValues(common.weight.numpy(), personal.weight.numpy(), own)


def curve(
    case: RankingCase, seed: int, rounds: int, on_round: Callable[[], object] = lambda: None
) -> list[float]:
    """HR@10 after each of the first rounds of ours."""
    method = StartsThere(public_values(case.n_items, FedRAPConfig().rank))
    algorithm = ranked(method, case)
    engine = plain_engine(algorithm, case, seed)
    found = []
    for _ in range(rounds):
        engine.run_round()
        figures = ranked_between_rounds(algorithm, case, engine.public, engine.vault)
        found.append(quality(figures)["hit_rate_at_10"])
        on_round()
    return found


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Curves of some seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.reproduction.fedrap_public_run")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error("--seeds must be at least 1")
    try:
        case = public_case(numbered(read_rows(given.file)))
        with tqdm(total=given.seeds * ROUNDS, unit="round") as bar:
            ours = [curve(case, seed, ROUNDS, bar.update) for seed in range(given.seeds)]
    except (DataError, DivergedError, EncodingError) as refused:
        parser.error(str(refused))
    mean: FloatArray = np.mean(ours, axis=0)
    return {"ours": np.round(ours, 4).tolist(), "mean": np.round(mean, 4).tolist()}


if __name__ == "__main__":
    print(json.dumps(main()))
