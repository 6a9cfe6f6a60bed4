"""Keystreams: counter mode written out, whatever is asked for in which pieces."""

from itertools import pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.protection.keystream import CHUNK_BYTES, Keystream

KEY = bytes(range(32))
BORDERS = (1, 15, 16, 17, 31, 32, 33, 48, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 33)


def counter_mode(size: int, key: bytes = KEY) -> bytes:
    """AES of 0, 1, 2, ... as big-endian blocks."""
    counters = b"".join(block.to_bytes(16, "big") for block in range(-(-size // 16)))
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(counters)[:size]  # noqa: S305


@pytest.mark.parametrize("size", [0, *BORDERS, 3 * CHUNK_BYTES + 5])
def test_a_keystream_is_counter_mode_from_zero(size: int) -> None:
    out = np.full(size, 7, dtype=np.uint8)
    Keystream(KEY).fill(out.data)
    assert out.tobytes() == counter_mode(size)


@given(st.lists(st.one_of(st.integers(0, 70), st.sampled_from(BORDERS)), min_size=1, max_size=8))
@settings(deadline=None)
def test_pieces_follow_one_another(sizes: list[int]) -> None:
    """Also where a piece ends within the first two blocks, which are made apart."""
    stream, out = Keystream(KEY), bytearray(sum(sizes))
    ends = [sum(sizes[:count]) for count in range(len(sizes) + 1)]
    for begin, end in pairwise(ends):
        stream.fill(memoryview(out)[begin:end])
    assert bytes(out) == counter_mode(len(out))


def test_other_keys_have_other_streams() -> None:
    streams = [bytearray(64) for _ in range(3)]
    for number, out in enumerate(streams):
        Keystream(bytes([number]) * 32).fill(memoryview(out))
    assert len({bytes(out) for out in streams}) == 3


@pytest.mark.parametrize("begun", [0, 20, 32, 100])
def test_whatever_holds_the_bytes_is_filled(begun: int) -> None:
    """Wider items, several dimensions, arrays of bytes; what is not contiguous costs no bytes."""
    expected = counter_mode(begun + 200)[begun:]
    for out in (bytearray(200), np.zeros((10, 20), np.uint8), np.zeros((5, 5), np.uint64)):
        stream = Keystream(KEY)
        stream.fill(bytearray(begun))
        with pytest.raises(TypeError, match="contiguous"):
            stream.fill(np.zeros(400, np.uint8)[::2].data)
        stream.fill(out if isinstance(out, bytearray) else out.data)
        assert bytes(out) == expected


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="key"):
        Keystream(bytes(size))
