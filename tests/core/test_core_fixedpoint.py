"""The codec against exact rational arithmetic, and its refusal to wrap."""

import math
import re
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secure_fedrec import fixedpoint
from secure_fedrec.errors import ConfigError, EncodingError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint

WIDTHS = range(8, 65)


def codec_of(bits: int, fraction_bits: int, integer_bits: int) -> FixedPoint:
    """A codec whose clip is ``2^integer_bits``, lowered to what ring and float64 can hold."""
    integer_bits = min(
        max(integer_bits, -fraction_bits), bits - 2 - fraction_bits, 51 - fraction_bits
    )
    return FixedPoint(bits=bits, fraction_bits=fraction_bits, clip=2.0**integer_bits)


@st.composite
def codecs(draw: st.DrawFn) -> FixedPoint:
    bits = draw(st.integers(8, 64))
    return codec_of(bits, draw(st.integers(0, bits - 2)), draw(st.integers(-2, 60)))


@st.composite
def codecs_and_values(draw: st.DrawFn) -> tuple[FixedPoint, list[float]]:
    codec = draw(codecs())
    anything = st.floats(-codec.clip, codec.clip)
    # Half ring units, so that ties are common and not a coincidence.
    halves = st.integers(-2 * codec.largest, 2 * codec.largest)
    near = halves.map(lambda count: count * codec.resolution / 2).filter(
        lambda value: abs(value) <= codec.clip
    )
    return codec, draw(st.lists(anything | near, min_size=1, max_size=30))


def ring_units(value: float, codec: FixedPoint) -> int:
    """The definition: nearest integer, ties to even, of the exact rational."""
    return round(Fraction(value) * Fraction(2**codec.fraction_bits))


@settings(deadline=None)
@given(codecs_and_values())
def test_encoding_is_the_nearest_integer_with_ties_to_even(
    case: tuple[FixedPoint, list[float]],
) -> None:
    codec, values = case
    ring = codec.encode(np.array(values))
    assert ring.dtype == codec.dtype
    assert ring.tolist() == [ring_units(value, codec) % 2**codec.bits for value in values]
    assert codec.to_integers(ring).tolist() == [ring_units(value, codec) for value in values]


@pytest.mark.parametrize("bits", WIDTHS)
def test_every_width_agrees_with_decimal_arithmetic(bits: int) -> None:
    codec = codec_of(bits, min(bits // 2, 26), 24)
    rng = np.random.default_rng(bits)
    units = rng.uniform(-codec.largest, codec.largest, 200).round(1)
    ties = np.floor(rng.uniform(-codec.largest, codec.largest - 1, 200)) + 0.5
    edges = np.array([-codec.largest, -1, -0.5, -0.0, 0.5, 1.5, codec.largest])
    values = np.concatenate([units, ties, edges]) * codec.resolution
    expected = [
        int((Decimal(value) * 2**codec.fraction_bits).to_integral_value(ROUND_HALF_EVEN))
        for value in values.tolist()
    ]
    assert codec.to_integers(codec.encode(values)).tolist() == expected
    decoded = [float(Fraction(units_, 2**codec.fraction_bits)) for units_ in expected]
    assert codec.decode(codec.encode(values)).tolist() == decoded


def test_rounding_at_the_far_end_of_float64() -> None:
    codec = FixedPoint(bits=64, fraction_bits=0, clip=2.0**51)
    values = np.array([2.0**51, -(2.0**51), 2.0**51 - 0.5, -(2.0**51) + 0.5, 2.0**51 - 1.5])
    assert codec.to_integers(codec.encode(values)).tolist() == [
        round(Fraction(value)) for value in values.tolist()
    ]


@settings(deadline=None)
@given(codecs(), st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_integers_and_ring_words_are_inverse(codec: FixedPoint, words: list[int]) -> None:
    low = [word % 2**codec.bits for word in words]
    ring = np.array(low, dtype=codec.dtype)
    centred = codec.to_integers(ring)
    half = 2 ** (codec.bits - 1)
    assert centred.tolist() == [(word + half) % 2**codec.bits - half for word in low]
    assert codec.from_integers(centred.copy()).tolist() == low


@settings(deadline=None)
@given(codecs(), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_decoding_rounds_once(codec: FixedPoint, words: list[int]) -> None:
    ring = np.array([word % 2**codec.bits for word in words], dtype=codec.dtype)
    exact = [Fraction(units, 2**codec.fraction_bits) for units in codec.to_integers(ring).tolist()]
    assert codec.decode(ring).tolist() == [float(value) for value in exact]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (5,), (4, 3), (2, 3, 4)])
def test_shapes_are_kept_and_inputs_left_alone(shape: tuple[int, ...]) -> None:
    codec = FixedPoint(bits=40, fraction_bits=20, clip=100.0)
    values = np.random.default_rng(1).normal(size=shape)
    before = values.copy()
    ring = codec.encode(values)
    assert ring.shape == shape
    assert np.array_equal(values, before)
    assert np.abs(codec.decode(ring) - values).max(initial=0) <= codec.resolution / 2


def test_strided_input_encodes_like_a_copy() -> None:
    codec = FixedPoint(bits=32, fraction_bits=16, clip=10.0)
    table = np.random.default_rng(2).normal(size=(6, 8))
    assert np.array_equal(codec.encode(table[::2, 1::3]), codec.encode(table[::2, 1::3].copy()))
    assert np.array_equal(codec.encode(table.T), codec.encode(table).T)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    values = np.array([0.0, 1.0, bad, -1.0])
    with pytest.raises(EncodingError, match=r"learning_rate|diverged"):
        FixedPoint().encode(values)


@pytest.mark.claim("encoding-refuses")
@settings(deadline=None)
@given(codecs(), st.booleans())
def test_anything_beyond_the_clip_is_refused(codec: FixedPoint, negative: bool) -> None:
    sign = -1.0 if negative else 1.0
    assert codec.to_integers(codec.encode(np.array([sign * codec.clip]))).tolist() == [
        int(sign) * codec.largest
    ]
    beyond = math.nextafter(codec.clip, math.inf)
    with pytest.raises(EncodingError, match=r"ring\.clip"):
        codec.encode(np.array([0.0, sign * beyond]))


@pytest.mark.claim("beyond-the-clip")
def test_what_is_beyond_the_clip_is_clipped_and_counted_where_asked() -> None:
    values = np.array([[0.5, -7.0], [2.0, 2.5], [math.inf, math.nan]])
    same, none = FixedPoint(clip=2.0).limited(values)
    assert (same is values, none) == (True, 0)
    codec = FixedPoint(clip=2.0, beyond="clip")
    found, count = codec.limited(values)
    assert count == 2
    assert found[:2].tolist() == [[0.5, -2.0], [2.0, 2.0]]
    assert values[0, 1] == -7.0
    codec.encode(found[:2])
    for row in (found[2:, :1], found[2:, 1:], values[:1]):  # encoding refuses whatever is left
        with pytest.raises(EncodingError):
            codec.encode(row)


@settings(deadline=None)
@given(codecs())
def test_the_budget_is_tight(codec: FixedPoint) -> None:
    largest, terms = codec.largest, codec.max_terms
    assert largest * terms <= 2 ** (codec.bits - 1) - 1 < largest * (terms + 1)
    codec.require_budget(terms)
    with pytest.raises(SumBudgetError):
        codec.require_budget(terms + 1)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize(("bits", "fraction_bits"), [(8, 2), (16, 8), (24, 12), (32, 20), (40, 26)])
def test_as_many_terms_as_promised_sum_exactly(bits: int, fraction_bits: int, sign: float) -> None:
    codec = FixedPoint(bits=bits, fraction_bits=fraction_bits, clip=3.25)
    words = codec.encode(np.full(codec.max_terms, sign * codec.clip))
    total = codec.dtype(int(words.sum(dtype=np.uint64)) % 2**bits)
    assert codec.decode(np.array([total])).tolist() == [sign * codec.clip * codec.max_terms]
    one_more = (int(sign) * codec.largest * (codec.max_terms + 1)) % 2**bits
    wrapped = codec.decode(np.array([one_more], dtype=codec.dtype))
    assert wrapped.tolist() != [sign * codec.clip * (codec.max_terms + 1)]


@settings(deadline=None)
@given(codecs(), st.integers(1, 10**7))
def test_the_advice_of_a_refusal_works(codec: FixedPoint, terms: int) -> None:
    if terms <= codec.max_terms:
        codec.require_budget(terms)
        return
    with pytest.raises(SumBudgetError) as refusal:
        codec.require_budget(terms)
    error = refusal.value
    assert isinstance(error, ConfigError)
    assert (error.key, error.value) == ("ring.bits", codec.bits)
    assert "ring.clip" in str(error)
    named = re.search(r"ring\.fraction_bits to at most (\d+)", str(error))
    if named is None:
        return
    digits = int(named[1])
    FixedPoint(bits=codec.bits, fraction_bits=digits, clip=codec.clip).require_budget(terms)
    with pytest.raises(SumBudgetError):  # and it is the best there is
        FixedPoint(bits=codec.bits, fraction_bits=digits + 1, clip=codec.clip).require_budget(terms)


@settings(deadline=None)
@given(codecs_and_values(), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_order(case: tuple[FixedPoint, list[float]], rnd: Any) -> None:
    codec, values = case
    ring = codec.encode(np.array(values))
    shuffled = ring.tolist()
    rnd.shuffle(shuffled)
    forward = ring.sum(dtype=codec.dtype)
    assert np.array(shuffled, dtype=codec.dtype).sum(dtype=codec.dtype) == forward
    if len(values) <= codec.max_terms:
        word = np.array([int(forward) % 2**codec.bits], dtype=codec.dtype)
        exact = sum(ring_units(value, codec) for value in values)
        assert codec.to_integers(word).tolist() == [exact]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"bits": 7}, "ring.bits"),
        ({"bits": 65}, "ring.bits"),
        ({"bits": 16, "fraction_bits": 16}, "ring.fraction_bits"),
        ({"fraction_bits": -1}, "ring.fraction_bits"),
        ({"clip": 0.0}, "ring.clip"),
        ({"clip": -1.0}, "ring.clip"),
        ({"clip": math.nan}, "ring.clip"),
        ({"clip": math.inf}, "ring.clip"),
        ({"fraction_bits": 40, "clip": 2048.1}, "ring.clip"),
        ({"bits": 8, "fraction_bits": 0, "clip": 0.25}, "ring.clip"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        FixedPoint(**settings)
    assert refusal.value.key == key


def test_a_ring_too_small_for_one_value_is_refused() -> None:
    FixedPoint(bits=8, fraction_bits=0, clip=127.0)
    with pytest.raises(SumBudgetError, match="leave the ring"):
        FixedPoint(bits=8, fraction_bits=0, clip=128.0)


@pytest.mark.parametrize(("bits", "size"), [(8, 1), (9, 2), (32, 4), (33, 5), (56, 7), (64, 8)])
def test_a_word_takes_as_many_bytes_as_its_bits_need(bits: int, size: int) -> None:
    codec = FixedPoint(bits=bits, fraction_bits=2, clip=1.0)
    assert codec.bytes_per_value == size
    assert codec.dtype == (np.uint32 if bits <= 32 else np.uint64)


@given(
    clip=st.floats(1e-3, 1e3),
    fraction_bits=st.integers(12, 36),
    beyond=st.sampled_from(["refuse", "clip"]),
)
@example(clip=0.3, fraction_bits=32, beyond="clip")  # its multiple lies above it
@example(clip=0.3, fraction_bits=32, beyond="refuse")
@example(clip=1e-3, fraction_bits=32, beyond="clip")  # and below
def test_what_was_decoded_encodes_again(clip: float, fraction_bits: int, beyond: str) -> None:
    """The multiple that stands for the clip may lie above it, and is no value beyond it."""
    codec = FixedPoint(bits=64, fraction_bits=fraction_bits, clip=clip, beyond=beyond)
    words = codec.encode(np.array([clip, -clip]))
    again, clipped = codec.limited(codec.decode(words))
    assert clipped == 0
    assert np.array_equal(codec.encode(again), words)
    step = codec.resolution
    assert codec.bound - clip < step
    with pytest.raises(EncodingError, match="clip"):
        codec.encode(np.array([np.nextafter(codec.bound, np.inf)]))


@pytest.mark.parametrize("bits", [16, 31, 32, 33, 48, 63, 64])
def test_spent_words_give_their_memory_to_the_same_reals(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixedpoint, "_DECODED_AT_ONCE", 7)
    codec = FixedPoint(bits=bits, fraction_bits=8, clip=50.0)
    rng = np.random.default_rng(bits)
    for shape in ((), (0,), (1,), (25,), (0, 3), (3, 0), (11, 4), (2, 3, 5)):
        words = np.asarray(codec.encode(rng.uniform(-50, 50, size=shape)))
        kept = codec.decode(words.copy())
        assert codec.decode(words).tobytes() == kept.tobytes()
        reals = codec.decode(words, spent=True)
        assert (reals.shape, str(reals.dtype)) == (shape, "float64")
        assert reals.tobytes() == kept.tobytes()
        assert np.shares_memory(reals, words) == (
            words.itemsize == 8 and bool(words.size and shape)
        )
