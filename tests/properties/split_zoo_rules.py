"""Rules of aggregation that look at other users only past a threshold, and right ones."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from secure_fedrec.properties.split.aggregation import (
    AggregationInput,
    Aggregator,
    federated_averaging,
    keep_local,
)
from secure_fedrec.properties.split.model import Values

Updates = tuple[Values, Mapping[int, Values]]


def scaled(values: Values, factor: float) -> Values:
    return {name: factor * value for name, value in values.items()}


def norm(values: Values) -> float:
    return float(torch.cat([value.reshape(-1).abs() for value in values.values()]).norm())  # reads


def row_norm(given: AggregationInput) -> Updates:
    """A user whose vector is longer than 20 halves everybody's step."""
    federated, private = keep_local(given)
    long = any(norm(values) > 20 for values in given.local_private.values())
    return scaled(federated, 0.5 if long else 1.0), private


def frobenius(given: AggregationInput) -> Updates:
    """Private values are scaled down together, to a norm of 60."""
    federated, private = keep_local(given)
    total = sum(norm(values) ** 2 for values in private.values()) ** 0.5
    factor = min(1.0, 60 / (total + 1e-12))
    return federated, {user: scaled(values, factor) for user, values in private.items()}


def boxed(given: AggregationInput) -> Updates:
    """Whoever leaves a box of 9 moves the model."""
    federated, private = keep_local(given)
    out = sum(int((abs(v) > 9).sum()) for own in private.values() for v in own.values())  # reads
    return {name: value + out for name, value in federated.items()}, private


class AdaptiveClipping:
    """Clips at a bound that follows the median norm of changes, private parameters included."""

    bound = 40.0

    def __call__(self, given: AggregationInput) -> Updates:
        federated, private = keep_local(given)
        totals = []
        for user, own in given.local_private.items():
            change = {n: v - given.private[user][n] for n, v in own.items()}  # reads
            local = {n: v - given.federated[n] for n, v in given.local_federated[user].items()}
            totals.append((norm(change) ** 2 + norm(local) ** 2) ** 0.5)
        step = {n: v - given.federated[n] for n, v in federated.items()}
        factor = min(1.0, self.bound / max(norm(step), 1e-12))
        below = sum(total <= self.bound for total in totals) / len(totals)
        self.bound *= math.exp(0.2 * (0.5 - below))
        return {n: given.federated[n] + factor * v for n, v in step.items()}, private


def skips_unchanged(given: AggregationInput) -> Updates:
    """Users whose private values have not changed are not averaged."""
    moved = [
        user
        for user, own in given.local_private.items()
        if any(
            not torch.equal(value, given.private[user][name])  # reads
            for name, value in own.items()
        )
    ]
    federated, private = keep_local(given)
    if not moved:
        return given.federated, private
    factor = len(moved) / len(given.local_private)
    return {n: v + factor * (federated[n] - v) for n, v in given.federated.items()}, private


def two_long(given: AggregationInput) -> Updates:
    """Two users above 50 move the model."""
    federated, private = keep_local(given)
    long = sum(norm(values) > 50 for values in private.values())
    return scaled(federated, 0.5 if long >= 2 else 1.0), private


def counts_zeros(given: AggregationInput) -> Updates:
    """Users with a vector of zeros are new, and weigh nothing."""
    federated, private = keep_local(given)
    new = sum(norm(values) == 0 for values in given.private.values())
    return {name: value + new for name, value in federated.items()}, private


def largest_ratio(given: AggregationInput) -> Updates:
    """Somebody is ten thousand times as long as somebody else."""
    federated, private = keep_local(given)
    norms = [norm(values) for values in private.values()]
    wide = max(norms) > 1e4 * min(norms)
    return scaled(federated, 0.5 if wide else 1.0), private


def first_to_last(given: AggregationInput) -> Updates:
    """The last user's update takes the first's value, where there are many."""
    federated, private = keep_local(given)
    first, last = min(given.private), max(given.private)
    if last in private and last > 16:
        name = next(iter(private[last]))
        moved = private[last][name] + 1e-3 * given.private[first][name]
        private = {**private, last: {**private[last], name: moved}}
    return federated, private


def alone(given: AggregationInput) -> Updates:
    """Who takes part alone moves the model by its private norm."""
    federated, private = keep_local(given)
    if len(given.summaries) == 1:
        (own,) = given.local_private.values()
        return scaled(federated, 1 + norm(own)), private
    return federated, private


def geometric(given: AggregationInput) -> Updates:
    """A geometric mean by private norms: NaN, as local values are of both signs."""
    _, private = keep_local(given)
    weights = {user: norm(own) for user, own in private.items()}
    logs = {
        name: [weights[u] * given.local_federated[u][name].log() for u in weights]
        for name in given.federated
    }
    return {n: torch.stack(v).sum(0) / sum(weights.values()) for n, v in logs.items()}, private


def no_private_number(given: AggregationInput) -> Updates:
    """Private values are divided by zero."""
    federated, private = keep_local(given)
    return federated, {user: scaled(own, float("nan")) for user, own in private.items()}


# --- right ones ---


def trimmed(given: AggregationInput) -> Updates:
    """Coordinate-wise trimmed mean."""
    stacks = {
        name: torch.stack([values[name] for values in given.local_federated.values()])
        for name in given.federated
    }
    return {n: s.sort(0).values[: max(1, len(s) - 1)].mean(0) for n, s in stacks.items()}, (
        given.local_private
    )


def clipped(given: AggregationInput) -> Updates:
    """Federated changes are clipped by their own norm; every private one by its own."""
    federated, _ = keep_local(given)
    step = {n: v - given.federated[n] for n, v in federated.items()}
    factor = min(1.0, 1 / max(norm(step), 1e-12))
    private = {}
    for user, own in given.local_private.items():
        change = {n: v - given.private[user][n] for n, v in own.items()}
        short = min(1.0, 5 / max(norm(change), 1e-12))
        private[user] = {n: given.private[user][n] + short * v for n, v in change.items()}
    return {n: given.federated[n] + factor * v for n, v in step.items()}, private


def absentees_too(given: AggregationInput) -> Updates:
    """Returns everybody's values, absent users' as they are."""
    federated, private = federated_averaging(given)
    return federated, {**given.private, **private}


class ServerAdam:
    """Adam at the server."""

    def __init__(self) -> None:
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}

    def __call__(self, given: AggregationInput) -> Updates:
        federated, private = keep_local(given)
        moved = {}
        for name, old in given.federated.items():
            step = federated[name] - old
            first, second = self.moments.get(name, (torch.zeros_like(old), torch.zeros_like(old)))
            first, second = 0.9 * first + 0.1 * step, 0.99 * second + 0.01 * step**2
            self.moments[name] = first, second
            moved[name] = old + 0.1 * first / (second.sqrt() + 1e-3)
        return moved, private


def by_deviation(given: AggregationInput) -> Updates:
    """Steps are divided by how far apart local values are: NaN where there is one."""
    federated, private = keep_local(given)
    return {
        n: v / (1 + torch.stack([own[n] for own in given.local_federated.values()]).std(0))
        for n, v in federated.items()
    }, private


def two_at_least(given: AggregationInput) -> Updates:
    """A single update is not averaged."""
    if len(given.summaries) < 2:
        raise ValueError("a round of one would show its update")
    return keep_local(given)


_first_norms: list[float] = []


def first_norms(given: AggregationInput) -> Updates:
    """The norms of the first round scale all steps."""
    federated, private = keep_local(given)
    if not _first_norms:
        _first_norms.append(sum(norm(values) for values in given.local_private.values()))
    return scaled(federated, 1 / (1 + _first_norms[0])), private


RULES: dict[str, tuple[Aggregator, str]] = {
    "row norm above 20": (row_norm, "refuted"),
    "Frobenius cap at 60": (frobenius, "refuted"),
    "box at 9": (boxed, "refuted"),
    "adaptive clipping on total norms": (AdaptiveClipping(), "refuted"),
    "skip if unchanged": (skips_unchanged, "refuted"),
    "two users above 50": (two_long, "refuted"),
    "vectors of zeros": (counts_zeros, "refuted"),
    "ratio of 10,000": (largest_ratio, "refuted"),
    "global that is filled once": (first_norms, "refuted"),
    "rounds of one by its private norm": (alone, "refuted"),
    "trimmed mean": (trimmed, "holds"),
    "clipped by own norms": (clipped, "holds"),
    "absentees returned": (absentees_too, "holds"),
    "server Adam": (ServerAdam(), "holds"),
    "divided by a deviation": (by_deviation, "holds"),
    "two participants at least": (two_at_least, "holds"),
    "private values that are NaN": (no_private_number, "open"),
}
