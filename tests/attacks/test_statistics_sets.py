"""Guessed sets and shares: precision, recall, exact sets and exact intervals."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import beta, binom

from attacks.scoring.statistics import exact_set_share
from attacks.scoring.tables import ScoreTable
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.evaluation.intervals import share_interval

Client = Sequence[tuple[float, bool]]


def table_of(clients: Sequence[Client]) -> ScoreTable:
    pairs = [pair for client in clients for pair in client]
    return ScoreTable(
        indptr=np.cumsum([0, *map(len, clients)], dtype=np.int64),
        scores=np.array([score for score, _ in pairs], dtype=np.float64),
        labels=np.array([label for _, label in pairs], dtype=np.bool_),
    )


def mask(*values: int) -> BoolArray:
    return np.array(values, dtype=np.bool_)


def test_exact_sets() -> None:
    yes, no = (0.0, True), (0.0, False)
    # Client 0 is hit exactly, 1 has one miss and one false alarm, 2 has no pairs, 3 no positives.
    table = table_of([[yes, no], [yes, yes, no], [], [no, no]])
    guess = mask(1, 0, 1, 0, 1, 0, 0)
    share = exact_set_share(guess, table)
    assert (share.value, share.n_clients) == (2 / 3, 3)
    assert share == share_interval(2, 3)


def test_nobody_guessed_is_no_success() -> None:
    nobody = exact_set_share(mask(), table_of([[], []]))
    assert math.isnan(nobody.value)
    assert (nobody.low, nobody.high, nobody.n_clients) == (0.0, 1.0, 0)


def test_a_guess_that_does_not_fit_is_refused() -> None:
    table = table_of([[(0.0, True), (0.0, False)]])
    with pytest.raises(ValueError, match="predicted"):
        exact_set_share(mask(1), table)
    with pytest.raises(TypeError, match="predicted"):
        exact_set_share(np.ones(2), table)  # type: ignore[arg-type]


def test_share_interval_is_exact() -> None:
    interval = share_interval(7, 20)
    # The definition: each end makes the observed count an event of probability 2.5 %.
    assert binom.sf(6, 20, interval.low) == pytest.approx(0.025)
    assert binom.cdf(7, 20, interval.high) == pytest.approx(0.025)
    assert share_interval(0, 943).high == pytest.approx(beta.ppf(0.975, 1, 943))
    assert (share_interval(0, 5).low, share_interval(5, 5).high) == (0.0, 1.0)
    for successes, trials in ((-1, 3), (4, 3), (0, -1)):
        with pytest.raises(ValueError, match="trials"):
            share_interval(successes, trials)
