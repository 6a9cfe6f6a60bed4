"""Clipping bounds the whole contribution, in the stated norm, and refuses what is not a number."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.protection.dp import BoundedEncoding, Contribution, Part, clip_to_norm

VECTORS = arrays.arrays(
    np.float64, st.integers(1, 40), elements=st.floats(-1e200, 1e200, allow_subnormal=False)
)


@settings(deadline=None, max_examples=300)
@given(VECTORS, st.floats(1e-6, 1e6), st.sampled_from([1, 2]))
def test_norm_is_bounded_direction_kept_and_short_vectors_untouched(
    values: FloatArray, bound: float, order: int
) -> None:
    before = values.copy()
    clipped = clip_to_norm(values, bound, order=order)  # type: ignore[arg-type]
    assert np.array_equal(values, before)
    assert np.linalg.norm(clipped, order) <= bound
    norm = float(np.linalg.norm(values / (np.abs(values).max() or 1), order)) * float(
        np.abs(values).max()
    )
    if norm <= bound * (1 - 1e-12):
        assert np.array_equal(clipped, values)
    elif math.isfinite(norm) and norm > bound:
        factor = bound / norm
        tolerance = 1e-9 * bound
        np.testing.assert_allclose(clipped, values * factor, rtol=1e-9, atol=tolerance)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused_and_not_clipped(bad: float) -> None:
    with pytest.raises(EncodingError, match="NaN or infinity"):
        clip_to_norm(np.array([0.0, bad, 1.0]), 1.0)


LAYOUT = Contribution(
    parts=(
        Part(name="rows", size=6, scale=2.0),
        Part(name="counts", size=3, scale=0.5),
        Part(name="weight", size=1),
    )
)


def test_parts_are_laid_end_to_end_scaled_and_come_back() -> None:
    values = {
        "weight": np.array([7.0]),
        "rows": np.arange(6.0).reshape(2, 3),
        "counts": np.array([1.0, 0.0, 1.0]),
    }
    joined = LAYOUT.join(values)
    assert joined.tolist() == [0, 2, 4, 6, 8, 10, 0.5, 0, 0.5, 7]
    back = LAYOUT.split(joined)
    assert {name: part.tolist() for name, part in back.items()} == {
        "rows": [0, 1, 2, 3, 4, 5],
        "counts": [1, 0, 1],
        "weight": [7],
    }


@settings(deadline=None, max_examples=200)
@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 2**32))
def test_whatever_part_is_large_the_whole_is_within_its_bound(
    rows: float, counts: float, weight: float, seed: int
) -> None:
    encoding = BoundedEncoding(contribution=LAYOUT, clip=3.0, fraction_bits=6)
    rng = np.random.default_rng(seed)
    integers = encoding.encode(
        {
            "rows": rng.normal(size=6) * rows,
            "counts": rng.random(3) * counts,
            "weight": np.array([weight]),
        }
    )
    assert int((integers.astype(object) ** 2).sum()) <= encoding.bound.l2_square
    assert int(np.abs(integers).sum()) <= encoding.bound.l1
    assert int(np.abs(integers).max()) <= encoding.bound.peak


def test_a_part_left_out_or_of_another_size_is_refused() -> None:
    good = {"rows": np.zeros(6), "counts": np.zeros(3), "weight": np.zeros(1)}
    for bad in (
        {"rows": np.zeros(6), "counts": np.zeros(3)},
        {**good, "more": np.zeros(1)},
        {**good, "counts": np.zeros(4)},
    ):
        with pytest.raises(EncodingError, match=r"due|values"):
            LAYOUT.join(bad)
    with pytest.raises(EncodingError, match="shape"):
        LAYOUT.split(np.zeros(9))


def test_exact_parts_stay_outside_the_vector_and_are_named() -> None:
    layout = Contribution(
        parts=(Part(name="rows", size=4), Part(name="counts", size=2, release="exact"))
    )
    assert layout.size == 4
    assert layout.exact == ("counts",)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Part(name="x", size=0), "size"),
        (lambda: Part(name="x", size=1, scale=0.0), "scale"),
        (lambda: Part(name="x", size=1, scale=math.nan), "scale"),
        (lambda: Part(name="x", size=1, release="clear"), "release"),  # type: ignore[arg-type]
        (lambda: Contribution(parts=(Part(name="x", size=1),) * 2), "parts"),
        (lambda: Contribution(parts=(Part(name="x", size=1, release="exact"),)), "parts"),
        (lambda: encoding_with(clip=0.0), "clip"),
        (lambda: encoding_with(clip=math.inf), "clip"),
        (lambda: encoding_with(fraction_bits=-1), "fraction_bits"),
        (lambda: encoding_with(clip=1024.0, fraction_bits=21), "fraction_bits"),
        (lambda: encoding_with(rejection=1.0), "rejection"),
        (lambda: encoding_with(order=3), "order"),
    ],
)
def test_wrong_settings_are_refused_by_name(make: object, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make()  # type: ignore[operator]


def encoding_with(**changes: object) -> BoundedEncoding:
    given_ = {"contribution": LAYOUT, "clip": 1.0, "fraction_bits": 8, **changes}
    return BoundedEncoding(**given_)  # type: ignore[arg-type]
