"""Exact intervals of shares."""

import pytest
from scipy.stats import beta, binom

from secure_fedrec.evaluation.intervals import share_interval


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
