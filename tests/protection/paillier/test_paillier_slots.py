"""Slots: what goes in comes out summed, to the bit; no sum in the budget leaves its slot."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import SlotLayout

KEY_BITS = 512


@st.composite
def layouts(draw: st.DrawFn) -> SlotLayout:
    bits = draw(st.integers(8, 64))
    largest = draw(st.integers(1, min(2 ** (bits - 2), 2**51)))
    codec = FixedPoint(bits=bits, fraction_bits=0, clip=float(largest))
    budget = draw(st.integers(1, min(codec.max_terms, 2**31 - 1)) | st.just(1))
    return SlotLayout(
        codec=codec,
        length=draw(st.integers(1, 40)),
        budget=budget,
        whole_ring=draw(st.booleans()),
    )


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[SlotLayout, list[list[int]]]:
    """A layout and up to five vectors of values that it accepts, borders preferred."""
    layout = draw(layouts())
    codec = layout.codec
    low, high = -codec.largest, codec.largest
    if layout.whole_ring:
        low, high = -(2 ** (codec.bits - 1)), 2 ** (codec.bits - 1) - 1
    value = st.sampled_from([low, high, 0, -1 if low < 0 else 0]) | st.integers(low, high)
    vector = st.lists(value, min_size=layout.length, max_size=layout.length)
    return layout, draw(st.lists(vector, min_size=1, max_size=min(5, layout.budget)))


@settings(deadline=None, max_examples=150)
@given(cohorts())
def test_sums_of_plaintexts_unpack_to_sums_of_ring_words(
    case: tuple[SlotLayout, list[list[int]]],
) -> None:
    layout, vectors = case
    codec = layout.codec
    words = [codec.from_integers(np.array(vector, dtype=np.int64)) for vector in vectors]
    packed = [layout.pack(vector, KEY_BITS) for vector in words]
    assert all(0 <= plaintext < 2 ** (KEY_BITS - 1) for p in packed for plaintext in p)
    total = [sum(column) for column in zip(*packed, strict=True)]
    found = layout.unpack(total, len(vectors), KEY_BITS)
    expected = [sum(column) % 2**codec.bits for column in zip(*vectors, strict=True)]
    assert found.tolist() == expected
    assert found.dtype == codec.dtype


@pytest.mark.parametrize("whole_ring", [False, True])
@pytest.mark.parametrize("largest", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_every_small_cohort_sums_exactly(largest: int, budget: int, whole_ring: bool) -> None:
    codec = FixedPoint(bits=8, fraction_bits=0, clip=float(largest))
    layout = SlotLayout(codec=codec, length=3, budget=budget, whole_ring=whole_ring)
    packed = {
        value: layout.pack(codec.from_integers(np.array([value, largest, -value])), 32)
        for value in range(-largest, largest + 1)
    }
    for clients in range(1, budget + 1):
        for chosen in itertools.combinations_with_replacement(packed, clients):
            total = [sum(column) for column in zip(*(packed[v] for v in chosen), strict=True)]
            found = codec.to_integers(layout.unpack(total, clients, 32))
            assert found.tolist() == [sum(chosen), clients * largest, -sum(chosen)]


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_full_budget_of_largest_values_stays_in_its_slots(sign: int) -> None:
    codec = FixedPoint(bits=35, fraction_bits=0, clip=2.0**23 - 1)
    layout = SlotLayout(codec=codec, length=70, budget=1024)
    values = np.where(np.arange(70) % 2, 1, -1) * sign * codec.largest
    total = [1024 * plaintext for plaintext in layout.pack(codec.from_integers(values), 2048)]
    found = layout.unpack(total, 1024, 2048)
    assert codec.to_integers(found).tolist() == (1024 * values).tolist()


@pytest.mark.parametrize(
    ("value_bits", "key_bits", "slots"),
    [(16, 2048, 75), (24, 2048, 58), (32, 2048, 47), (16, 3072, 113), (24, 3072, 87)],
)
def test_slots_per_plaintext_for_1024_clients(value_bits: int, key_bits: int, slots: int) -> None:
    codec = FixedPoint(bits=value_bits + 11, fraction_bits=0, clip=2.0 ** (value_bits - 1) - 1)
    layout = SlotLayout(codec=codec, length=1, budget=1024)
    assert layout.value_bits == value_bits
    assert layout.slot_bits == value_bits + 11  # log2 n + 1 guard bits
    assert layout.slots(key_bits) == slots
    assert layout.slots(key_bits) * layout.slot_bits + layout.guard_bits < key_bits


@settings(deadline=None, max_examples=200)
@given(layouts())
def test_no_sum_within_the_budget_can_touch_the_next_slot(layout: SlotLayout) -> None:
    assert layout.budget * layout.limit < 2**layout.slot_bits
    assert layout.budget < 2**layout.guard_bits


CODEC = FixedPoint(bits=20, fraction_bits=0, clip=100.0)
LAYOUT = SlotLayout(codec=CODEC, length=5, budget=7)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([0, 0, 0, 0, 101], "exceeds ring.clip"),
        ([-101, 0, 0, 0, 0], "exceeds ring.clip"),
        ([0, 0, 0, 0], "vector of 5"),
        ([0, 0, 0, 0, 2**20], "outside the ring"),
    ],
)
def test_values_that_do_not_fit_are_refused(values: list[int], problem: str) -> None:
    words = np.array([v % 2**20 if v < 0 else v for v in values], dtype=np.uint32)
    with pytest.raises(EncodingError, match=problem):
        LAYOUT.pack(words, KEY_BITS)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64, np.int32])
def test_only_ring_words_of_the_codec_are_packed(dtype: type) -> None:
    with pytest.raises(EncodingError, match="dtype"):
        LAYOUT.pack(np.zeros(5, dtype=dtype), KEY_BITS)


def test_the_lowest_64_bit_integer_is_refused() -> None:
    # Its magnitude does not fit an int64: abs() of it is negative and would pass.
    codec = FixedPoint(bits=64, fraction_bits=0, clip=100.0)
    layout = SlotLayout(codec=codec, length=1, budget=7)
    with pytest.raises(EncodingError, match="exceeds"):
        layout.pack(np.array([2**63], dtype=np.uint64), KEY_BITS)


@pytest.mark.parametrize("whole_ring", [False, True])
def test_a_cohort_that_could_leave_the_ring_is_refused(whole_ring: bool) -> None:
    codec = FixedPoint(bits=10, fraction_bits=0, clip=100.0)
    SlotLayout(codec=codec, length=5, budget=5, whole_ring=whole_ring)
    with pytest.raises(SumBudgetError, match="6 clients"):
        SlotLayout(codec=codec, length=5, budget=6, whole_ring=whole_ring)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"length": 0}, "paillier.length"),
        ({"length": 2**40}, "paillier.length"),
        ({"budget": 0}, "paillier.budget"),
        ({"budget": 2**31}, "paillier.budget"),
    ],
)
def test_layouts_out_of_range_are_refused(fields: dict[str, int], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        SlotLayout(**{"codec": CODEC, "length": 5, "budget": 7, **fields})  # type: ignore[arg-type]
    assert refusal.value.key == key


def test_a_key_without_room_for_a_slot_is_refused() -> None:
    with pytest.raises(ConfigError, match="a slot takes 11 bits"):
        LAYOUT.slots(14)
    assert LAYOUT.slots(15) == 1


def wrong_sums() -> dict[str, tuple[list[int], int, str]]:
    count_bits, slot_bits = LAYOUT.guard_bits, LAYOUT.slot_bits
    top = count_bits + 5 * slot_bits
    sound = LAYOUT.pack(CODEC.from_integers(np.array([0, 1, -1, 100, -100])), KEY_BITS)[0]
    return {
        "another count": ([sound], 2, "counts 1 vectors, the sum declares 2"),
        "no count": ([sound - 1], 1, "counts 0"),
        "a slot too large": ([sound + (101 << count_bits)], 1, "larger than 1 values can be"),
        "a filled sixth slot": ([sound + (1 << top)], 1, "more than the vector's values"),
        "beyond the slots": ([sound + (1 << (KEY_BITS - 1))], 1, "larger than its slots"),
        "too many": ([sound, sound], 1, "2 plaintexts"),
        "none": ([], 1, "0 plaintexts"),
        "nothing summed": ([sound], 0, "budget is 7"),
        "overspent": ([8 * sound], 8, "budget is 7"),
    }


@pytest.mark.parametrize("name", wrong_sums())
def test_plaintexts_that_are_no_such_sum_are_refused(name: str) -> None:
    plaintexts, terms, problem = wrong_sums()[name]
    with pytest.raises(ProtocolError, match=problem):
        LAYOUT.unpack(plaintexts, terms, KEY_BITS)


def test_canonical_bytes_tell_layouts_apart() -> None:
    other_codec = FixedPoint(bits=20, fraction_bits=0, clip=101.0)
    made = [
        LAYOUT,
        SlotLayout(codec=CODEC, length=6, budget=7),
        SlotLayout(codec=CODEC, length=5, budget=8),
        SlotLayout(codec=CODEC, length=5, budget=7, whole_ring=True),
        SlotLayout(codec=other_codec, length=5, budget=7),
    ]
    assert len({layout.to_bytes() for layout in made}) == len(made)
    assert {len(layout.to_bytes()) for layout in made} == {24}
