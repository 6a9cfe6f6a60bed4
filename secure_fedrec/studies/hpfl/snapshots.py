"""What a method of the HPFL study has learnt after a round, and its quality."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.tables import Organisations, Records
from secure_fedrec.evaluation import (
    AccuracyRule,
    degree_of_agreement,
    mean_scores,
    ndcg_of_characteristics,
    score_quality,
    total_dissimilarity,
)

PredictClient = Callable[[int, IntArray, IntArray], FloatArray]
"""Predictions of a client's (user, item) pairs, local numbers."""

LARGEST_CLIENTS = 10
"""Clients with the most records, over which Simi runs (section 5.3.3 of the paper)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """Predictions and inner values of all clients' models at one time.

    Args:
        validation: float64[N], predictions of the validation records, in their order.
        test: float64[N], predictions of the test records.
        characteristics: float64[users of c, K] per client (eq. 8).
        knowledge: float64[K, M] per client, the public matrices that eq. 11 compares, by name;
            empty where all clients use one model.
    """

    validation: FloatArray
    test: FloatArray
    characteristics: tuple[FloatArray, ...]
    knowledge: tuple[Mapping[str, FloatArray], ...] = ()


def take_snapshot(
    organisations: Organisations,
    predict: PredictClient,
    characteristics: Sequence[FloatArray],
    knowledge: Sequence[Mapping[str, FloatArray]] = (),
) -> Snapshot:
    """Predict all held-out records."""

    def of(part: Records) -> FloatArray:
        found = [predict(client, *part.of(client)[:2]) for client in range(organisations.n_clients)]
        return np.concatenate(found)

    return Snapshot(
        validation=of(organisations.validation),
        test=of(organisations.test),
        characteristics=tuple(characteristics),
        knowledge=tuple(knowledge),
    )


def score_metrics(
    organisations: Organisations, snapshot: Snapshot, *, rule: AccuracyRule = "nearest"
) -> dict[str, dict[str, float]]:
    """ACC, AUC where there are two levels, MAE and RMSE over the records of all clients.

    Returns:
        By part, "validation" and "test", and by name of the measure.
    """
    parts = {
        "validation": (snapshot.validation, organisations.validation),
        "test": (snapshot.test, organisations.test),
    }
    return {
        name: score_quality(predicted, part.scores, organisations.levels, rule=rule).metrics()
        for name, (predicted, part) in parts.items()
    }


def ranking_metrics(
    organisations: Organisations, snapshot: Snapshot, part: Records
) -> dict[str, float]:
    """DOA and NDCG on some records, and Simi, where they are defined (eq. 9 to 11).

    DOA is as printed; "doa_untied" leaves out pairs of equal mean score.

    Simi is the mean over the public matrices KM_u, KM_v and RM, each with one vector per attribute.
    """
    counts = organisations.n_users
    means = [
        mean_scores(*part.of(client), organisations.attributes[client], n_users=counts[client])
        for client in range(organisations.n_clients)
    ]
    hidden, actual = np.concatenate(snapshot.characteristics), np.concatenate(means)
    clients = np.repeat(np.arange(organisations.n_clients), counts)
    found = {
        "doa": degree_of_agreement(hidden, actual, clients),
        "doa_untied": degree_of_agreement(hidden, actual, clients, ties=False),
        "ndcg": ndcg_of_characteristics(hidden, actual),
        "simi": _dissimilarity(organisations, snapshot),
    }
    return {name: value for name, value in found.items() if value is not None}


def _dissimilarity(organisations: Organisations, snapshot: Snapshot) -> float | None:
    if len(snapshot.knowledge) < 2:
        return None
    largest = np.argsort(-organisations.train.counts(), kind="stable")[:LARGEST_CLIENTS]
    chosen = [snapshot.knowledge[client] for client in largest.tolist()]
    totals = [total_dissimilarity([own[name] for own in chosen]) for name in chosen[0]]
    return float(np.mean(totals))
