"""Random streams: functions of their coordinates alone, replayable by anybody with AES and HKDF."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from secure_fedrec.core.arrays import IntArray, WordArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Stream, Streams, uniform_ranks, uniform_reals

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "vectors" / "streams.json").read_text(encoding="utf-8")
)["vectors"]
LANES = st.integers(0, 2**40)
COUNTS = st.integers(0, 9)
ROUNDS = st.integers(0, 2**32 - 1)


def ints(*numbers: int) -> IntArray:
    return np.array(numbers, dtype=np.int64)


def reference_words(seed: int, name: str, round_: int, lane: int, block: int) -> tuple[int, int]:
    """Two words, derived from the published construction and nothing of the package."""
    info = b"secure-fedrec|v1|stream|" + name.encode()
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=info)
    key = hkdf.derive(seed.to_bytes(32, "little"))
    encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305
    output = encryptor.update(struct.pack("<QII", lane, round_, block)) + encryptor.finalize()
    low, high = struct.unpack("<QQ", output)
    return low, high


def single(stream: Stream, round_: int, lane: int, count: int, start: int) -> list[int]:
    words = stream.words(round_, ints(lane), ints(count), ints(start))
    assert words.dtype == np.uint64
    return [int(word) for word in words]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['name']}/{vector['lane']}")
def test_known_answers(vector: dict[str, Any]) -> None:
    seed, name = int(vector["seed"]), str(vector["name"])
    round_, lane, block = int(vector["round"]), int(vector["lane"]), int(vector["block"])
    words = [int(word, 16) for word in vector["words"]]
    assert list(reference_words(seed, name, round_, lane, block)) == words
    stream = Streams.from_seed(seed).stream(name)
    assert stream.words_at(round_, ints(lane), ints(block)).tolist() == [words]
    assert single(stream, round_, lane, 2, 2 * block) == words


@settings(deadline=None)
@given(st.lists(st.tuples(LANES, COUNTS, st.integers(0, 50)), max_size=8), ROUNDS)
def test_a_batch_draws_what_each_lane_draws_alone(
    runs: list[tuple[int, int, int]], round_: int
) -> None:
    stream = Streams.from_seed(5).stream("batch")
    lanes = ints(*(lane for lane, _, _ in runs))
    counts = ints(*(count for _, count, _ in runs))
    starts = ints(*(2 * start for _, _, start in runs))
    batch = stream.words(round_, lanes, counts, starts)
    alone = [
        word
        for lane, count, start in runs
        for word in single(stream, round_, lane, count, 2 * start)
    ]
    assert batch.tolist() == alone


@settings(deadline=None)
@given(
    st.lists(st.tuples(LANES, st.integers(0, 1000)), min_size=1, max_size=8),
    st.integers(1, 7),
    ROUNDS,
)
def test_positions_draw_the_same_in_any_company(
    places: list[tuple[int, int]], width: int, round_: int
) -> None:
    stream = Streams.from_seed(6).stream("positions")
    lanes, indices = ints(*(p[0] for p in places)), ints(*(p[1] for p in places))
    batch = stream.words_at(round_, lanes, indices, width=width)
    assert batch.shape == (len(places), width)
    for row, (lane, index) in zip(batch, places, strict=True):
        assert stream.words_at(round_, ints(lane), ints(index), width=width)[0].tolist() == (
            row.tolist()
        )


@settings(deadline=None)
@given(LANES, st.integers(0, 100), st.integers(1, 4), ROUNDS)
def test_runs_and_positions_read_the_same_words(
    lane: int, index: int, half_width: int, round_: int
) -> None:
    stream = Streams.from_seed(7).stream("both")
    width = 2 * half_width
    placed = stream.words_at(round_, ints(lane), ints(index), width=width)[0]
    assert single(stream, round_, lane, width, width * index) == placed.tolist()
    # An odd width wastes the second half of its last block and is otherwise the same.
    odd = stream.words_at(round_, ints(lane), ints(index), width=width - 1)[0]
    assert odd.tolist() == placed[:-1].tolist()


@settings(deadline=None)
@given(LANES, st.integers(0, 12), st.integers(0, 12))
def test_a_longer_run_begins_with_the_shorter(lane: int, short: int, more: int) -> None:
    stream = Streams.from_seed(8).stream("prefix")
    longer = single(stream, 1, lane, short + more, 0)
    assert single(stream, 1, lane, short, 0) == longer[:short]
    assert single(stream, 1, lane, 2, 4) == single(stream, 1, lane, 6, 0)[4:]


def test_every_coordinate_matters() -> None:
    def words(seed: int, name: str, round_: int, lane: int, index: int) -> tuple[int, ...]:
        stream = Streams.from_seed(seed).stream(name)
        return tuple(stream.words_at(round_, ints(lane), ints(index))[0].tolist())

    origin = words(1, "a", 1, 1, 1)
    moved = [
        words(2, "a", 1, 1, 1),
        words(1, "b", 1, 1, 1),
        words(1, "a", 2, 1, 1),
        words(1, "a", 1, 2, 1),
        words(1, "a", 1, 1, 2),
    ]
    assert len({origin, *moved}) == 6
    assert words(1, "a", 1, 1, 1) == origin


def test_order_of_calls_does_not_matter() -> None:
    streams = Streams.from_seed(3)
    first, second = streams.stream("x"), streams.stream("y")
    before = single(first, 1, 0, 6, 0)
    single(second, 1, 0, 1000, 0)
    single(first, 9, 5, 11, 2)
    assert single(first, 1, 0, 6, 0) == before
    assert single(Streams.from_seed(3).stream("x"), 1, 0, 6, 0) == before


def test_words_look_uniform() -> None:
    stream = Streams.from_seed(11).stream("bits")
    words = stream.words(1, ints(4), ints(20_000), ints(0))
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    deviation = 0.5 / np.sqrt(len(words))
    assert np.abs(bits - 0.5).max() < 5 * deviation
    assert len(np.unique(words)) == len(words)


def test_nothing_asked_nothing_drawn() -> None:
    stream = Streams.from_seed(0).stream("empty")
    none = np.empty(0, dtype=np.int64)
    assert stream.words(1, none, none, none).shape == (0,)
    assert stream.words_at(1, none, none, width=3).shape == (0, 3)


def test_positions_beyond_the_block_counter_are_refused() -> None:
    stream = Streams.from_seed(0).stream("far")
    stream.words_at(0, ints(0), ints(2**31 - 1), width=4)
    with pytest.raises(ValueError, match="far"):
        stream.words_at(0, ints(0), ints(2**31), width=4)


@pytest.mark.parametrize("round_", [-1, 2**32])
def test_rounds_outside_their_field_are_refused(round_: int) -> None:
    stream = Streams.from_seed(0).stream("round")
    with pytest.raises(OverflowError):
        stream.words_at(round_, ints(0), ints(0))
    with pytest.raises(OverflowError):
        stream.words(round_, ints(0), ints(2), ints(0))


@pytest.mark.parametrize("seed", [-1, 2**128])
def test_seeds_outside_128_bits_are_refused(seed: int) -> None:
    with pytest.raises(ConfigError) as refusal:
        Streams.from_seed(seed)
    assert (refusal.value.key, refusal.value.value) == ("seed", seed)


def test_the_largest_seed_is_taken_and_root_keys_have_32_bytes() -> None:
    largest = Streams.from_seed(2**128 - 1).stream("s")
    assert single(largest, 0, 0, 2, 0) == list(reference_words(2**128 - 1, "s", 0, 0, 0))
    with pytest.raises(ValueError, match="32 bytes"):
        Streams(bytes(31))


@pytest.mark.claim("system-keys")
def test_system_streams_differ_each_time() -> None:
    drawn = {tuple(single(Streams.system().stream("s"), 0, 0, 2, 0)) for _ in range(8)}
    assert len(drawn) == 8


def test_generators_are_keyed_by_round_and_lane() -> None:
    stream = Streams.from_seed(12).stream("cohort")
    keys = [(0, 0), (1, 0), (0, 1)]
    draws = [stream.generator(*key).integers(0, 2**62, 4).tolist() for key in keys]
    assert draws == [stream.generator(*key).integers(0, 2**62, 4).tolist() for key in keys]
    assert len({tuple(draw) for draw in draws}) == 3
    expected = np.random.Generator(
        np.random.Philox(key=np.array(reference_words(12, "cohort", 1, 0, 0), dtype=np.uint64))
    )
    assert expected.integers(0, 2**62, 4).tolist() == draws[1]


@pytest.mark.parametrize("size", [2, 7, 30, 1000])
def test_ranks_are_uniform(size: int) -> None:
    words = Streams.from_seed(13).stream("ranks").words(1, ints(size), ints(50_000), ints(0))
    ranks = uniform_ranks(words, np.full(len(words), size))
    observed = np.bincount(ranks, minlength=size)
    assert len(observed) == size
    expected = len(words) / size
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, size - 1) > 1e-4
    assert chi2.cdf(statistic, size - 1) > 1e-4  # too even is not random either


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**22)), min_size=1, max_size=20)
)
def test_a_rank_is_the_scaled_word(pairs: list[tuple[int, int]]) -> None:
    words = np.array([word for word, _ in pairs], dtype=np.uint64)
    ranks = uniform_ranks(words, ints(*(size for _, size in pairs)))
    assert ranks.dtype == np.int64
    assert ranks.tolist() == [((word >> 22) * size) >> 42 for word, size in pairs]
    assert all(rank < size for rank, (_, size) in zip(ranks.tolist(), pairs, strict=True))


def test_ranks_of_extreme_words() -> None:
    words: WordArray = np.array([0, 2**64 - 1, 2**64 - 1], dtype=np.uint64)
    assert uniform_ranks(words, ints(2**22, 2**22, 1)).tolist() == [0, 2**22 - 1, 0]
    with pytest.raises(ValueError, match=str(2**22)):
        uniform_ranks(words, ints(1, 2**22 + 1, 1))


def test_reals_stay_inside_the_open_interval() -> None:
    words: WordArray = np.array([0, 2**12 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    reals = uniform_reals(words)
    assert reals.tolist() == [2.0**-53, 2.0**-53, 0.5 + 2.0**-53, 1 - 2.0**-53]


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=20))
def test_reals_are_odd_grid_points_in_the_order_of_their_words(words: list[int]) -> None:
    reals = uniform_reals(np.array(sorted(words), dtype=np.uint64))
    steps = reals * 2.0**53
    assert np.array_equal(steps, np.rint(steps))
    assert np.all(steps % 2 == 1)
    assert np.all(np.diff(reals) >= 0)
    assert 0 < reals[0] <= reals[-1] < 1
