"""What is summed: exact for every type and weight, or refused before it can be masked."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.masking import (
    EncodedVector,
    MeanLayout,
    SumLayout,
    TableLayout,
)
from secure_fedrec.uploads import RowBlock

CODEC = FixedPoint(bits=64, fraction_bits=16, clip=8.0)


def add_up(vectors: list[EncodedVector]) -> Any:
    """The plain sum in the ring."""
    total = np.zeros_like(vectors[0].words)
    for vector in vectors:
        total += vector.words
    bits = vectors[0].bits
    return total & total.dtype.type(2**bits - 1)


def rows_of(rows: list[int], values: Any, counts: list[int] | None = None) -> RowBlock:
    width = np.shape(values)[1] if rows else 2
    return RowBlock(
        indptr=np.array([0, len(rows)]),
        rows=np.array(rows, dtype=np.int32),
        values=np.array(values, dtype=np.float64).reshape(len(rows), width),
        counts=None if counts is None else np.array(counts, dtype=np.int64),
    )


@settings(deadline=None)
@given(st.data())
def test_a_weighted_mean_is_the_correctly_rounded_quotient_of_exact_sums(
    data: st.DataObject,
) -> None:
    clients, length = data.draw(st.integers(1, 6)), 4
    max_weight = data.draw(st.sampled_from([1, 10, 10**6, 2**39]))
    layout = MeanLayout(codec=CODEC, length=length, clients=clients, max_weight=max_weight)
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64]))
    vectors, weight, sums = [], 0, [Fraction(0)] * length
    for _ in range(clients):
        w = data.draw(st.integers(0, max_weight))
        values = np.array(
            data.draw(st.lists(st.floats(-8, 8), min_size=length, max_size=length))
        ).astype(dtype)
        vectors.append(layout.encode(values, weight=w))
        weight += w
        units = [round(Fraction(float(value)) * 2**16) for value in values]
        sums = [total + w * unit for total, unit in zip(sums, units, strict=True)]
    decoded = layout.decode(add_up(vectors))
    assert decoded.weight == weight
    assert decoded.sums.tolist() == [int(total) for total in sums]
    if weight:
        exact = [total / weight / 2**16 for total in sums]
        assert decoded.mean.tolist() == [float(value) for value in exact]
    else:
        with pytest.raises(ProtocolError, match="add up to 0"):
            _ = decoded.mean


def test_a_small_weight_loses_nothing_beside_a_large_one() -> None:
    layout = MeanLayout(codec=CODEC, length=1, clients=2, max_weight=5000)
    vectors = [layout.encode(np.array([3.0]), weight=5000), layout.encode(np.array([0.001]))]
    decoded = layout.decode(add_up(vectors))
    units = round(0.001 * 2**16)
    assert (decoded.weight, decoded.sums.tolist()) == (5001, [5000 * 3 * 2**16 + units])


@pytest.mark.parametrize("weight", [-1, 11, 1.0, True, np.float64(2), None])
def test_a_weight_that_does_not_fit_is_refused_not_bent(weight: Any) -> None:
    layout = MeanLayout(codec=CODEC, length=1, clients=2, max_weight=10)
    with pytest.raises(EncodingError, match="weight"):
        layout.encode(np.array([1.0]), weight=weight)


@pytest.mark.claim("masking-encodes-safely")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 8.001, -9.0])
def test_one_bad_value_is_refused_in_every_layout(bad: float) -> None:
    values = np.array([0.0, bad])
    with pytest.raises(EncodingError):
        MeanLayout(codec=CODEC, length=2, clients=2).encode(values)
    table = TableLayout(codec=CODEC, rows=np.arange(3), width=2, clients=2)
    with pytest.raises(EncodingError):
        table.encode(rows_of([1], [values]))


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(3),
        np.zeros((1, 2)),
        np.zeros(2, dtype=np.complex128),
        np.array(["1", "2"]),
        np.array([1, None]),
        np.zeros(2, dtype=np.bool_),
        np.zeros(2, dtype=np.longdouble),
    ],
)
def test_values_that_are_no_reals_of_this_shape_are_refused(values: Any) -> None:
    with pytest.raises(EncodingError):
        MeanLayout(codec=CODEC, length=2, clients=2).encode(values)


@settings(deadline=None)
@given(st.data())
def test_integer_sums_are_exact_at_the_very_edge_of_the_ring(data: st.DataObject) -> None:
    bits = data.draw(st.integers(8, 64))
    clients = data.draw(st.integers(1, 7))
    largest = (2 ** (bits - 1) - 1) // clients
    layout = SumLayout(bits=bits, length=3, clients=clients, largest=largest)
    value = st.one_of(st.integers(-largest, largest), st.sampled_from([-largest, largest]))
    rows = data.draw(st.lists(st.tuples(value, value, value), min_size=clients, max_size=clients))
    vectors = [layout.encode(np.array(row, dtype=np.int64)) for row in rows]
    assert layout.decode(add_up(vectors)).tolist() == [
        sum(column) for column in zip(*rows, strict=True)
    ]
    with pytest.raises(SumBudgetError):
        SumLayout(
            bits=bits, length=3, clients=clients + 1, largest=min(2 * max(largest, 1), 2**63 - 1)
        )


@pytest.mark.parametrize(
    "values",
    [np.array([1.0, 2.0]), np.array([101, 0]), np.array([-101, 0]), np.array([-(2**63), 0])],
)
def test_what_is_no_small_integer_is_refused(values: Any) -> None:
    with pytest.raises(EncodingError):
        SumLayout(bits=20, length=2, clients=3, largest=100).encode(values)


def test_unsigned_integers_beyond_int64_are_refused() -> None:
    layout = SumLayout(bits=64, length=1, clients=1, largest=2**62)
    with pytest.raises(EncodingError):
        layout.encode(np.array([2**64 - 1], dtype=np.uint64))


@settings(deadline=None)
@given(st.data())
def test_tables_give_exact_rows_and_exact_counts(data: st.DataObject) -> None:
    items = np.array([2, 3, 5, 8, 13])
    layout = TableLayout(codec=CODEC, rows=items, width=2, clients=5, max_count=9)
    vectors, totals, counts = [], {i: [0, 0] for i in items.tolist()}, dict.fromkeys(items, 0)
    for _ in range(data.draw(st.integers(1, 5))):
        rows = sorted(data.draw(st.sets(st.sampled_from(items.tolist()))))
        values = [[data.draw(st.floats(-8, 8)) for _ in range(2)] for _ in rows]
        own = [data.draw(st.integers(0, 9)) for _ in rows]
        vectors.append(layout.encode(rows_of(rows, np.reshape(values, (len(rows), 2)), own)))
        for row, pair, count in zip(rows, values, own, strict=True):
            counts[row] += count
            for place in range(2):
                totals[row][place] += round(Fraction(pair[place]) * 2**16)
    aggregate = layout.decode(add_up(vectors))
    assert aggregate.counts.tolist() == list(counts.values())
    assert CODEC.to_integers(aggregate.ring).tolist() == list(totals.values())


@pytest.mark.parametrize(
    "block",
    [
        rows_of([4], [[1.0, 1.0]]),  # not of the layout
        rows_of([99], [[1.0, 1.0]]),  # beyond it
        rows_of([2], [[1.0]]),  # too narrow
        rows_of([2], [[1.0, 1.0]], [10]),  # count beyond max_count
        rows_of([2], [[1.0, 1.0]], [-1]),
        rows_of([2, 2], [[1.0, 1.0]] * 2),  # twice
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused(block: RowBlock) -> None:
    layout = TableLayout(codec=CODEC, rows=np.array([2, 3, 5]), width=2, clients=5, max_count=9)
    with pytest.raises(EncodingError):
        layout.encode(block)


def test_a_client_without_rows_sends_zeros_of_the_same_size() -> None:
    layout = TableLayout(codec=CODEC, rows=np.arange(4), width=3, clients=2)
    empty = layout.encode(
        RowBlock(indptr=np.array([0, 0]), rows=np.empty(0, np.int32), values=np.empty((0, 3)))
    )
    assert not empty.words.any()
    assert empty.words.shape == layout.encode(rows_of([1], [[1.0, 2.0, 3.0]])).words.shape


@pytest.mark.claim("masking-encodes-safely")
@pytest.mark.parametrize(
    "make",
    [
        lambda: MeanLayout(codec=CODEC, length=2, clients=2, max_weight=2**44),
        lambda: SumLayout(bits=16, length=2, clients=400, largest=100),
        lambda: TableLayout(
            codec=FixedPoint(bits=16, fraction_bits=4, clip=8.0),
            rows=np.arange(2),
            width=1,
            clients=256,
        ),
        lambda: TableLayout(
            codec=FixedPoint(bits=16, fraction_bits=1, clip=1.0),
            rows=np.arange(2),
            width=1,
            clients=100,
            max_count=400,
        ),
    ],
)
def test_a_sum_that_could_leave_the_ring_is_refused_when_it_is_configured(make: Any) -> None:
    with pytest.raises(SumBudgetError, match=r"ring\.bits"):
        make()


def test_layouts_that_differ_in_anything_have_other_hashes() -> None:
    other = FixedPoint(bits=64, fraction_bits=16, clip=4.0)
    layouts: list[Any] = [
        SumLayout(bits=64, length=2, clients=2, largest=8),
        SumLayout(bits=64, length=2, clients=2, largest=9),
        SumLayout(bits=64, length=2, clients=3, largest=8),
        SumLayout(bits=63, length=2, clients=2, largest=8),
        MeanLayout(codec=CODEC, length=2, clients=2),
        MeanLayout(codec=CODEC, length=2, clients=2, max_weight=2),
        MeanLayout(codec=other, length=2, clients=2),
        TableLayout(codec=CODEC, rows=np.array([0, 1]), width=1, clients=2),
        TableLayout(codec=CODEC, rows=np.array([0, 2]), width=1, clients=2),
        TableLayout(codec=CODEC, rows=np.array([0, 1]), width=2, clients=2),
    ]
    assert len({layout.hash for layout in layouts}) == len(layouts)


@pytest.mark.parametrize(
    "words", [np.zeros(2), np.zeros(2, np.uint64), np.zeros((1, 2), np.uint32), [1, 2]]
)
def test_words_of_another_type_are_no_encoded_vector(words: Any) -> None:
    with pytest.raises(EncodingError):
        EncodedVector(words=words, bits=20, layout_hash=bytes(32), clients=2)


def test_a_word_beyond_the_ring_is_no_encoded_vector() -> None:
    with pytest.raises(EncodingError, match="is not an element"):
        EncodedVector(
            words=np.array([2**20], dtype=np.uint32), bits=20, layout_hash=bytes(32), clients=2
        )


@pytest.mark.parametrize("rows", [[], [1, 1], [2, 1], [-1, 3]])
def test_table_rows_must_ascend(rows: list[int]) -> None:
    with pytest.raises(ConfigError):
        TableLayout(codec=CODEC, rows=np.array(rows, dtype=np.int64), width=1, clients=2)
