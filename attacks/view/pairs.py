"""Sums of co-occurrences: how many people have each pair of items, as an adversary sees them.

An algorithm whose clients send x x^T of their rows x of 0 and 1 names its block "co-occurrences",
and so the public array of their sum: the upper triangle of the m x m matrix, row by row. Where only
the ridge regression B of every item on all others is public ("weights"), the sums follow from it:
``sums_of_weights``. This module reads those public arrays for all attacks on them, less what own
clients sent, as ``coalition`` reads sums and tables.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from attacks.base import need
from attacks.view.coalition import others_cohort, others_words, own_uploads, rows_of, words_of
from attacks.view.knowledge import Knowledge, flat_view
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.wire import Step, View

NAME: Final = "co-occurrences"
_WEIGHTS: Final = "weights"
_NOISE: Final = "noise"

_WHOLE: Final = 1e-3
"""Largest distance of a count from a whole number by float rounding."""
_NOTHING: Final = 1e-8
"""Smaller ratios of two sums are rounding errors; one pair among millions of clients is larger."""


class PairSums(NamedTuple):
    """The sum of the other clients' rows of a round.

    Attributes:
        round: which round.
        matrix: float64[m, m]; in published sums 0 stands for any number below ``floor``.
        floor: fewest clients of a published pair.
        name: the client, if only one client can have added its row; -1 otherwise.
    """

    round: int
    matrix: FloatArray
    floor: int
    name: int

    @property
    def counts(self) -> IntArray:
        """The same as whole numbers: int64[m, m]; needs that they can be numbers of people."""
        counts = np.rint(self.matrix).astype(np.int64)
        own = counts.diagonal()
        whole = np.abs(counts - self.matrix).max(initial=0.0) <= _WHOLE
        fits = whole and counts.min(initial=0) >= 0 and (counts <= np.minimum.outer(own, own)).all()
        need(fits, "the sums are not numbers of people who have pairs of items")
        return counts


def pair_view(view: View) -> View:
    """The view of the block of co-occurrences alone; needs one."""
    flat = [each for each in view.public.get("blocks", ()) if each["kind"] == "flat"]
    need(flat and flat[0]["name"] == NAME, "clients send no co-occurrences of items")
    return need(flat_view(view), "no block of the uploads is flat")


def need_triangle(view: View) -> int:
    """The number of items m, of sums of pairs; needs them not to be a sketch."""
    need(not view.public["algorithm"]["sketch"], "a sketch of the sums is not taken apart")
    return int(view.public["n_items"])


def row_starts(n_items: int) -> IntArray:
    """Place in a triangle of each pair (i, i): int64[m]."""
    rows = np.arange(n_items, dtype=np.int64)
    return rows * n_items - rows * (rows - 1) // 2


def noise_of(view: View) -> float:
    """Standard deviation of the noise that is stated to be in the diagonal of all sums."""
    if Knowledge.of(view).exact:
        return 0.0
    rounds = [r for r in view.payload_rounds(Step.MODEL) if view.has_result(r)]
    need(rounds, "no round has the payload of its public state, which states the noise")
    return float(view.extras(rounds[-1], after=True)[_NOISE][0])


def pair_sums(view: View) -> list[PairSums]:
    """The pair sums of all recorded rounds, of which there must be one."""
    seen, n_items = pair_view(view), need_triangle(view)
    server = view.sees(Step.AGGREGATE)
    told = _summed(seen) if server else _published(seen)
    scaled = view.public["algorithm"]["largest_norm"] is not None
    floor = 0 if server else int(view.public["algorithm"]["pair_floor"])
    found = [
        PairSums(round_, _square(values, n_items, scaled=scaled), floor, _name(view, round_))
        for round_, values in told
        if values.any()
    ]
    published = int(view.public["algorithm"]["pair_floor"])
    found += [
        PairSums(round_, _square(values, n_items, scaled=scaled), published, -1)
        for round_, values in _earlier(seen)
    ]
    return need(found, "no payload of a sum of co-occurrences was recorded, or no client added any")


def _summed(seen: View) -> Iterator[tuple[int, FloatArray]]:
    """The server's sum, minus what own clients sent."""
    for round_ in seen.payload_rounds(Step.AGGREGATE):
        words = others_words(seen, round_)
        if words is not None:
            yield round_, seen.codec.decode(words).reshape(-1)


def _earlier(seen: View) -> Iterator[tuple[int, FloatArray]]:
    """The sum of rounds without payloads before a recorded round."""
    known: FloatArray | None = None
    for round_ in seen.payload_rounds(Step.MODEL) if seen.sees(Step.MODEL) else ():
        if not seen.has_result(round_):
            continue
        before, after = seen.extras(round_).get(NAME), seen.extras(round_, after=True).get(NAME)
        if before is None or after is None:
            return
        if before.size:
            added = before.reshape(-1) - (0.0 if known is None else known)
            if added.any():
                yield round_, added
        known = after.reshape(-1)


def _published(seen: View) -> Iterator[tuple[int, FloatArray]]:
    """The change of what is broadcast by a round, minus what own clients sent."""
    need(seen.sees(Step.MODEL), "the view holds neither sums nor what is made of them")
    for round_ in seen.payload_rounds(Step.MODEL):
        if not seen.has_result(round_):
            continue
        after, before = seen.extras(round_, after=True), seen.extras(round_)
        if NAME in after:
            values = after[NAME].reshape(-1)
            if before[NAME].size:
                values = values - before[NAME].reshape(-1)
        else:
            matrix = sums_of_weights(after[_WEIGHTS], _shrinkage(seen), _clients(seen))
            values = matrix[np.triu_indices(len(matrix))]
        own = own_uploads(seen, round_, payload=True)
        sent = None if own is None else rows_of(own)[1]
        # Otherwise they are among the other uploads.
        if sent is not None and sent.values is not None:
            values = np.where(values != 0, values - _added(seen, sent, len(values)), 0.0)
        yield round_, values


def _added(seen: View, own: Any, size: int) -> FloatArray:
    words = words_of(own)
    ring = np.zeros((int(own.rows.max(initial=0)) + 1, words.shape[1]), dtype=words.dtype)
    np.add.at(ring, own.rows, words)
    values = np.zeros(size)
    told = seen.codec.decode(seen.codec.reduce(ring)).reshape(-1)[:size]
    values[: len(told)] = told
    return values


def _clients(view: View) -> int:
    return int(view.public["n_clients"])


def _shrinkage(view: View) -> float:
    return float(view.public["algorithm"]["shrinkage"]) * _clients(view)


def _name(view: View, round_: int) -> int:
    """The only client that takes part for the first time in a round, if earlier rounds are seen."""
    cohorts = [others_cohort(view, each) for each in range(1, round_ + 1)]
    seen = [cohort[0] for cohort in cohorts if cohort is not None]
    if len(seen) < round_:
        return -1
    fresh = np.setdiff1d(seen[-1], np.concatenate([seen[-1][:0], *seen[:-1]]))
    return int(fresh[0]) if len(fresh) == 1 else -1


def _square(values: FloatArray, n_items: int, *, scaled: bool) -> FloatArray:
    """The matrix of a triangle, whose pairs off the diagonal carry sqrt(2) where it is scaled."""
    upper = np.zeros((n_items, n_items))
    upper[np.triu_indices(n_items)] = values[: n_items * (n_items + 1) // 2]
    own = upper.diagonal().copy()
    matrix = upper + upper.T
    if scaled:
        matrix /= np.sqrt(2)
    matrix[np.diag_indices(n_items)] = own
    return matrix


def sums_of_weights(weights: FloatArray, shrinkage: float, clients: int) -> FloatArray:
    """The sums G behind B_ij = -P_ij / P_jj, P = (G + lambda I)^-1: float64[m, m].

    I - B is P over the diagonal d of P, column by column, so its inverse K is G + lambda I times d,
    row by row: Since G is symmetric, K_ij / K_ji = d_i / d_j gives d up to a factor for all items
    that pairs connect. The factor must make G whole numbers, with pairs at most the diagonal, and
    the diagonal at most the number of clients. If several factors do, the connected items are left
    at 0, as is an item without pairs, about which B tells nothing.

    Args:
        weights: B, float64[m, m].
        shrinkage: lambda.
        clients: most clients in the sum.

    Returns:
        G, whole numbers; needs that B is such a regression.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415 - who only reads of attacks need not wait
    from scipy.sparse.csgraph import (  # noqa: PLC0415
        breadth_first_order,
        connected_components,
    )

    size = len(weights)
    need(weights.shape == (size, size), "the weights are a projection on few directions")
    need(shrinkage > 0, "without a shrinkage the weights tell the sums only up to a factor")
    try:
        scaled = np.linalg.inv(np.eye(size) - weights)
    except np.linalg.LinAlgError:
        scaled = np.zeros((size, size))
    need(np.isfinite(scaled).all() and (scaled.diagonal() > 0).all(), "no sums have such weights")
    paired = np.abs(scaled) > _NOTHING * scaled.diagonal()[:, None]
    paired = (paired & paired.T) | np.eye(size, dtype=bool)
    graph, sums = csr_array(paired), np.zeros((size, size))
    parts, part = connected_components(graph, directed=False)
    for number in range(parts):
        items = np.flatnonzero(part == number)
        if len(items) < 2:
            continue
        order, before = breadth_first_order(graph, int(items[0]), directed=False)
        ratio = np.ones(size)
        for item in order[1:].tolist():
            ratio[item] = (
                ratio[before[item]] * scaled[item, before[item]] / scaled[before[item], item]
            )
        own = scaled[np.ix_(items, items)] / ratio[items, None]
        found = _whole(own, paired[np.ix_(items, items)], shrinkage, clients)
        if found is not None:
            sums[np.ix_(items, items)] = found
    need(sums.any(), "the weights do not tell the sums: no factor, or several, give whole numbers")
    return sums


def _whole(own: FloatArray, paired: BoolArray, shrinkage: float, clients: int) -> FloatArray | None:
    """G from G + lambda I times an unknown factor; None if no factor fits, or several do."""
    away = paired & ~np.eye(len(own), dtype=bool)
    least, fits = own[away].min(), []
    largest = own.diagonal().max()
    for count in range(1, clients + 1):  # number of people with the rarest pair
        factor = count / least
        if factor * largest - shrinkage > clients + 0.5:
            break
        sums = np.where(away, own * factor, 0.0)
        sums[np.diag_indices(len(own))] = own.diagonal() * factor - shrinkage
        whole, had = np.rint(sums), np.rint(sums.diagonal())
        if (
            np.abs(sums - whole).max() <= _WHOLE
            and (np.where(away, whole, 0.0).max(axis=1) <= had).all()
        ):
            fits.append(whole)
    return fits[0] if len(fits) == 1 else None
