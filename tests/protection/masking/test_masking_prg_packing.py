"""Masks and packing: tiny rings exhaustively, every width, and the keystream as AES defines it."""

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import pack, packed_size, unpack, word_type
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking.server.unmasking import RunningSum

KEYS = [bytes([number]) * 32 for number in range(6)]


def keystream(key: bytes, length: int, dtype: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
    """Counter mode written out: AES of 0, 1, 2, ... as big-endian blocks."""
    blocks = -(-length * np.dtype(dtype).itemsize // 16)
    counters = b"".join(counter.to_bytes(16, "big") for counter in range(blocks))
    stream = Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(counters)  # noqa: S305
    return np.frombuffer(stream, dtype=dtype)[:length]


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("length", [1, 3, 4, 8191, 8193, 16383, 16384, 16385, 40007])
@pytest.mark.parametrize(("plus", "minus"), [(2, 1), (0, 4), (4, 0), (5, 9), (11, 6)])
def test_masks_are_keystreams_across_every_buffer_border_and_group(
    dtype: Any, length: int, plus: int, minus: int
) -> None:
    keys = [bytes([number]) * 32 for number in range(plus + minus)]
    target = np.full(length, 7, dtype=dtype)
    MaskExpander().apply(target, add=keys[:plus], subtract=keys[plus:])
    masks = [keystream(key, length, dtype) for key in keys]
    expected = np.full(length, 7, dtype=dtype)
    with np.errstate(over="ignore"):
        for place, mask in enumerate(masks):
            expected = expected + mask if place < plus else expected - mask
    assert np.array_equal(target, expected)


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 10])
def test_a_running_sum_is_the_sum_whenever_it_is_asked_for(dtype: Any, count: int) -> None:
    rng = np.random.default_rng(count)
    high = np.iinfo(dtype).max
    vectors = [rng.integers(0, high, 100, dtype=dtype, endpoint=True) for _ in range(count)]
    running, total = RunningSum(100, dtype), np.zeros(100, dtype=dtype)
    for place, vector in enumerate(vectors):
        running.add(vector)
        with np.errstate(over="ignore"):
            total += vector
        if place % 3 == 2:
            assert np.array_equal(running.total(), total)
    assert np.array_equal(running.total(), total)
    running.wipe()
    assert not len(running.total())


def test_a_running_sum_refuses_other_vectors() -> None:
    running = RunningSum(4, np.uint32)
    for vector in (np.zeros(3, np.uint32), np.zeros(4, np.uint64)):
        with pytest.raises(ValueError, match="the sum is of uint32"):
            running.add(vector)


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 17, 32, 33, 63, 64])
def test_masks_cancel_and_cutting_commutes_with_summing(bits: int) -> None:
    """Two parties mask with each other; cut to b bits before or after the sum, all is the same."""
    dtype: Any = word_type(bits)
    low = dtype(2**bits - 1)
    rng = np.random.default_rng(bits)
    values = [rng.integers(0, 2**63, 50, dtype=np.uint64).astype(dtype) & low for _ in range(2)]
    one, other = values[0].copy(), values[1].copy()
    MaskExpander().apply(one, add=KEYS[:1], subtract=[])
    MaskExpander().apply(other, add=[], subtract=KEYS[:1])
    cut_first = ((one & low) + (other & low)) & low
    assert np.array_equal(cut_first, (one + other) & low)
    assert np.array_equal(cut_first, (values[0] + values[1]) & low)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_every_input_of_a_tiny_ring_meets_every_mask(bits: int) -> None:
    """Exhaustive: masked with a uniform mask, any two inputs give the same multiset of words."""
    ring = range(2**bits)
    images = {value: sorted((value + mask) % 2**bits for mask in ring) for value in ring}
    assert all(image == list(ring) for image in images.values())
    words = np.zeros(40_000, dtype=np.uint32)
    MaskExpander().apply(words, add=[KEYS[4]], subtract=[])
    counts = np.bincount(words & np.uint32(2**bits - 1), minlength=2**bits)
    # The largest residue is drawn as often as the others (within 6 standard deviations).
    assert np.all(np.abs(counts - 40_000 / 2**bits) < 6 * np.sqrt(40_000 / 2**bits))


@pytest.mark.parametrize("count", [255, 256, 257, 600])
def test_many_keys_are_applied_in_groups_without_loss(count: int) -> None:
    keys = [number.to_bytes(32, "little") for number in range(count)]
    words = np.arange(9, dtype=np.uint64)
    expander = MaskExpander()
    expander.apply(words, add=keys, subtract=[])
    assert not np.array_equal(words, np.arange(9))
    expander.apply(words, add=[], subtract=keys[::-1])
    assert np.array_equal(words, np.arange(9))


@pytest.mark.parametrize(
    "target", [np.zeros(4), np.zeros(4, np.int64), np.zeros((2, 2), np.uint32)]
)
def test_what_is_no_ring_vector_is_not_masked(target: npt.NDArray[Any]) -> None:
    with pytest.raises(ValueError, match="masks cover"):
        MaskExpander().apply(target, add=KEYS[:1], subtract=[])


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="key"):
        MaskExpander().apply(np.zeros(4, np.uint32), add=[b"short"], subtract=[])


@settings(deadline=None)
@given(st.integers(1, 64), st.data())
def test_packing_is_the_bit_string_of_the_values(bits: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=150))
    words = np.array(values, dtype=np.uint64).astype(word_type(bits))
    packed = bytes(pack(words, bits))
    number = sum(value << (place * bits) for place, value in enumerate(values))
    assert packed == number.to_bytes(packed_size(len(values), bits), "little")
    back = unpack(packed, len(values), bits)
    assert back.dtype == word_type(bits)
    assert back.tolist() == values


@pytest.mark.parametrize("bits", [3, 20, 24, 33, 63])
def test_only_the_low_bits_travel(bits: int) -> None:
    dtype = word_type(bits)
    words = np.full(5, np.iinfo(dtype).max, dtype=dtype)
    assert unpack(bytes(pack(words, bits)), 5, bits).tolist() == [2**bits - 1] * 5


@pytest.mark.parametrize(("bits", "length"), list(product([1, 7, 20, 31, 63], [1, 3, 5])))
def test_a_vector_has_exactly_one_encoding(bits: int, length: int) -> None:
    packed = bytes(pack(np.zeros(length, dtype=word_type(bits)), bits))
    for wrong in (packed + b"\x00", packed[:-1]):
        with pytest.raises(ProtocolError, match="bytes"):
            unpack(wrong, length, bits)
    if length * bits % 8:
        with pytest.raises(ProtocolError, match="padding"):
            unpack(packed[:-1] + b"\x80", length, bits)
