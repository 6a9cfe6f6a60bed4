"""Representational similarity: blind to rotation, above its controls only if users are shared."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from secure_fedrec.evaluation.representations import (
    compare_representations,
    representational_similarity,
)

RNG = np.random.default_rng(4)
SPACE = RNG.normal(size=(30, 4))


def cosines(vectors: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
    return [
        float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        for place, a in enumerate(vectors)
        for b in vectors[place + 1 :]
    ]


def test_it_is_the_rank_correlation_of_the_cosines_of_pairs() -> None:
    other = RNG.normal(size=(30, 6)) + 0.2
    expected = spearmanr(cosines(SPACE), cosines(other)).statistic
    assert representational_similarity(SPACE, other) == pytest.approx(expected)


def test_it_does_not_see_rotation_scale_or_empty_axes() -> None:
    rotation, _ = np.linalg.qr(RNG.normal(size=(4, 4)))
    turned = np.pad(3 * SPACE @ rotation, ((0, 0), (0, 2)))
    assert representational_similarity(SPACE, turned) == pytest.approx(1.0)


def test_the_interval_covers_the_correlation_and_lies_above_the_controls() -> None:
    noisy = SPACE + 0.3 * RNG.normal(size=SPACE.shape)
    report = compare_representations(SPACE, noisy, seed=1, resamples=60)
    assert report.correlation == representational_similarity(SPACE, noisy)
    assert report.low < report.correlation < report.high
    assert report.low > max(report.permuted, report.untrained)
    assert report == compare_representations(SPACE, noisy, seed=1, resamples=60)


def test_unrelated_spaces_do_not_rise_above_the_controls() -> None:
    report = compare_representations(SPACE, RNG.normal(size=SPACE.shape), seed=1, resamples=60)
    assert report.low < max(report.permuted, report.untrained)


def test_resampling_does_not_count_copies_of_one_user() -> None:
    """Pairs of a user with itself have cosine 1 in any space; counted, noise would correlate."""
    few, other = SPACE[:10], np.random.default_rng(1).normal(size=(10, 4))
    report = compare_representations(few, other, seed=2, resamples=200)
    assert report.low < report.correlation - 0.1
    assert report.low < 0.0


def test_an_interval_needs_users() -> None:
    with pytest.raises(ValueError, match="at least 10"):
        compare_representations(SPACE[:9], SPACE[:9], seed=1)


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (SPACE[:29], "need as many"),
        (np.vstack([SPACE[:29], np.zeros((1, 4))]), "user 29 has no direction"),
        (np.vstack([np.full((1, 4), np.nan), SPACE[1:]]), "user 0 has no direction"),
        (np.ones((30, 1)), "all cosines of a space are equal"),
    ],
)
def test_spaces_that_cannot_be_compared_are_refused(
    second: np.ndarray[tuple[int, ...], np.dtype[np.float64]], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        representational_similarity(SPACE, second)
