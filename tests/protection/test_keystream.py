"""Keystreams: counter mode written out, whatever is asked for in which pieces."""

from itertools import pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.protection.keystream import (
    CHUNK_BYTES,
    STREAM_BYTES,
    Keystream,
    Way,
    faster_way,
)

KEY = bytes(range(32))
BORDERS = (1, 15, 16, 17, 31, 32, 33, 48, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 33)


def counter_mode(size: int, key: bytes = KEY) -> bytes:
    """AES of 0, 1, 2, ... as big-endian blocks."""
    counters = b"".join(block.to_bytes(16, "big") for block in range(-(-size // 16)))
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(counters)[:size]  # noqa: S305


either_way = pytest.mark.parametrize("way", Way)


@either_way
@pytest.mark.parametrize("size", [0, *BORDERS, 3 * CHUNK_BYTES + 5])
def test_a_keystream_is_counter_mode_from_zero(size: int, way: Way) -> None:
    out = np.full(size, 7, dtype=np.uint8)
    Keystream(KEY, way).fill(out.data)
    assert out.tobytes() == counter_mode(size)


@either_way
@given(
    sizes=st.lists(st.one_of(st.integers(0, 70), st.sampled_from(BORDERS)), min_size=1, max_size=8)
)
@settings(deadline=None)
def test_pieces_follow_one_another(sizes: list[int], way: Way) -> None:
    """Also where a piece ends within the first two blocks, which GCM does not make."""
    stream, out = Keystream(KEY, way), bytearray(sum(sizes))
    ends = [sum(sizes[:count]) for count in range(len(sizes) + 1)]
    for begin, end in pairwise(ends):
        stream.fill(memoryview(out)[begin:end])
    assert bytes(out) == counter_mode(len(out))


def test_other_keys_have_other_streams() -> None:
    streams = [bytearray(64) for _ in range(3)]
    for number, out in enumerate(streams):
        Keystream(bytes([number]) * 32).fill(memoryview(out))
    assert len({bytes(out) for out in streams}) == 3


@either_way
@pytest.mark.parametrize("begun", [0, 20, 32, 100])
def test_whatever_holds_the_bytes_is_filled(begun: int, way: Way) -> None:
    """Wider items, several dimensions, arrays of bytes; what is not contiguous costs no bytes."""
    expected = counter_mode(begun + 200)[begun:]
    for out in (bytearray(200), np.zeros((10, 20), np.uint8), np.zeros((5, 5), np.uint64)):
        stream = Keystream(KEY, way)
        stream.fill(bytearray(begun))
        with pytest.raises(TypeError, match="contiguous"):
            stream.fill(np.zeros(400, np.uint8)[::2].data)
        with pytest.raises(TypeError, match="written to"):
            stream.fill(memoryview(bytes(400)))
        objects = np.array([[], {}] * 50, dtype=object)
        with pytest.raises(TypeError, match="of numbers"):
            stream.fill(objects.data)
        assert objects[0] == []
        assert stream._left == STREAM_BYTES - begun
        stream.fill(out if isinstance(out, bytearray) else out.data)
        assert bytes(out) == expected


@either_way
@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(size: int, way: Way) -> None:
    with pytest.raises(ValueError, match="key"):
        Keystream(bytes(size), way)


@either_way
def test_both_ways_end_after_as_many_bytes(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as GCM goes under one nonce; a piece that would go beyond is left alone."""
    assert STREAM_BYTES == 16 * (2 + 2**32 - 2)
    monkeypatch.setattr("secure_fedrec.protection.keystream.STREAM_BYTES", 100)
    stream, out = Keystream(KEY, way), bytearray(100)
    stream.fill(memoryview(out)[:60])
    with pytest.raises(ValueError, match="ends after 100 bytes"):
        stream.fill(memoryview(out)[50:91])
    stream.fill(memoryview(out)[60:])
    assert bytes(out) == counter_mode(100)
    with pytest.raises(ValueError, match="ends"):
        stream.fill(memoryview(out)[:1])


@pytest.mark.parametrize("quick", Way)
def test_the_way_that_takes_less_time_is_gone(quick: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that runs slower while one of the two ways is at work."""
    clock = {"now": 0.0}
    fill = Keystream.fill
    way_of: dict[Keystream, Way] = {}
    begin = Keystream.__init__

    def begun(self: Keystream, key: bytes, way: Way | None = None) -> None:
        begin(self, key, way)
        assert way is not None
        way_of[self] = way

    def timed(self: Keystream, out: memoryview | bytearray) -> None:
        fill(self, out)
        clock["now"] += 1.0 if way_of[self] is quick else 2.0

    monkeypatch.setattr(Keystream, "__init__", begun)
    monkeypatch.setattr(Keystream, "fill", timed)
    monkeypatch.setattr("secure_fedrec.protection.keystream.perf_counter", lambda: clock["now"])
    assert faster_way.__wrapped__() is quick


def test_what_was_chosen_is_kept() -> None:
    assert faster_way() in Way
    before = faster_way.cache_info().misses
    Keystream(KEY)
    assert faster_way.cache_info().misses == before
