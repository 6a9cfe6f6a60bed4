"""The sampler: what each word stands for, ties, fresh keys, and what the draws look like."""

import bisect
import os
from collections.abc import Callable

import numpy as np
import opendp.prelude as opendp
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from secure_fedrec.protection.dp import draw_noise, noise_table, sampler
from secure_fedrec.protection.dp.sampler import look_up, secret_words
from secure_fedrec.protection.dp.tables import Noise, NoiseTable

DRAWS = 200_000


def thresholds_of(table: NoiseTable) -> list[int]:
    return [table.threshold(m) for m in range(table.largest + 1)]


def probabilities(table: NoiseTable) -> tuple[np.ndarray, np.ndarray]:
    """All values of the noise and their probabilities."""
    thresholds = thresholds_of(table)
    sizes = np.diff(np.array([0, *thresholds], dtype=object)) / 2**127
    sizes = sizes.astype(np.float64)
    values = np.arange(-table.largest, table.largest + 1)
    return values, np.concatenate([sizes[:0:-1] / 2, sizes[:1], sizes[1:] / 2])


@pytest.mark.parametrize("noise", ["skellam", "discrete-gaussian", "discrete-laplace"])
@pytest.mark.parametrize("parameter", [0.7, 9.0, 55.5])
def test_words_mean_what_the_thresholds_say(noise: Noise, parameter: float) -> None:
    table = noise_table(noise, parameter)
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**64, 5000, dtype=np.uint64)
    # And the words next to each threshold, where a comparison could be off by one.
    near = [
        ((int(high) + step) << 1) + sign
        for high in table.high[:-1]
        for step in (-1, 1)
        for sign in (0, 1)
    ]
    known = np.concatenate([words, np.array([w for w in near if 0 <= w < 2**64], np.uint64)])
    known = known[~np.isin(known >> np.uint64(1), table.high)]
    draws = np.empty(len(known), dtype=np.int64)
    look_up(table, known, draws)
    thresholds = thresholds_of(table)
    for word, draw in zip(known.tolist(), draws.tolist(), strict=True):
        # The definition: the first m with U < T[m].
        magnitude = bisect.bisect_right(thresholds, (word >> 1) << 64)
        assert draw == (-magnitude if word & 1 else magnitude)


@pytest.mark.parametrize("offset", [-1, 0])
def test_ties_are_decided_by_the_lower_bits(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = noise_table("skellam", 30.0)
    last = table.largest - 1  # the top ones share their upper bits: a tie of several
    for magnitude in (0, 3, 17, last - 5, last - 1, last):
        low = int(table.low[magnitude]) + offset
        if low < 0:
            continue
        monkeypatch.setattr(sampler, "secret_words", lambda n, low=low: np.full(n, low, np.uint64))
        word = int(table.high[magnitude]) << 1
        draws = np.empty(2, dtype=np.int64)
        look_up(table, np.array([word, word + 1], dtype=np.uint64), draws)
        uniform = (int(table.high[magnitude]) << 64) + low
        expected = bisect.bisect_right(thresholds_of(table), uniform)
        assert draws.tolist() == [expected, -expected]
        if offset == 0:
            assert expected > magnitude


def test_more_ties_than_there_is_room_for_are_all_decided() -> None:
    table = noise_table("skellam", 30.0)
    words = np.full(1000, int(table.high[4]) << 1, dtype=np.uint64)
    draws = np.full(1000, 10**6, dtype=np.int64)
    look_up(table, words, draws)
    assert set(draws.tolist()) == {4, 5}


def test_words_are_the_keystream_of_their_key(fixed_key: Callable[[int], None]) -> None:
    fixed_key(7)
    words = secret_words(70_001)  # across chunks, and not a whole number of blocks
    cipher = Cipher(algorithms.AES256((8).to_bytes(32, "little")), modes.ECB()).encryptor()  # noqa: S305
    blocks = b"".join(block.to_bytes(16, "big") for block in range(35_001))
    expected = np.frombuffer(cipher.update(blocks), dtype="<u8")[:70_001]
    assert np.array_equal(words, expected)


def test_every_call_has_a_key_of_its_own() -> None:
    seen = {secret_words(2).tobytes() for _ in range(200)}
    assert len(seen) == 200


def test_forked_processes_draw_different_noise() -> None:
    table = noise_table("discrete-gaussian", 50.0)
    draw_noise(table, 8)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        os.write(writer, draw_noise(table, 64).tobytes())
        os._exit(0)
    ours = draw_noise(table, 64)
    theirs = np.frombuffer(os.read(reader, 64 * 8), dtype=np.int64)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert not np.array_equal(ours, theirs)


def test_same_key_same_noise_and_nothing_else(fixed_key: Callable[[int], None]) -> None:
    table = noise_table("skellam", 12.0)
    fixed_key(1)
    first = draw_noise(table, 1000)
    fixed_key(1)
    assert np.array_equal(first, draw_noise(table, 1000))
    fixed_key(2)
    assert not np.array_equal(first, draw_noise(table, 1000))


@pytest.mark.parametrize(
    ("noise", "parameter"),
    [
        ("skellam", 0.6),
        ("skellam", 1e4),
        ("discrete-gaussian", 10.0),
        ("rounded-gaussian", 3.0),
        ("discrete-laplace", 5.0),
    ],
)
def test_draws_follow_the_table(
    noise: Noise, parameter: float, fixed_key: Callable[[int], None]
) -> None:
    fixed_key(11)
    table = noise_table(noise, parameter)
    draws = draw_noise(table, DRAWS)
    values, expected = probabilities(table)
    keep = expected * DRAWS > 20
    counts = np.bincount(draws + table.largest, minlength=len(values)).astype(np.float64)
    observed = np.append(counts[keep], counts[~keep].sum())
    due = np.append(expected[keep], expected[~keep].sum()) * DRAWS
    observed, due = observed[due > 5], due[due > 5]
    assert stats.chisquare(observed, due * observed.sum() / due.sum()).pvalue > 1e-4
    error = np.sqrt(table.variance / DRAWS)
    assert abs(draws.mean()) < 5 * error
    assert draws.var() == pytest.approx(table.variance, rel=0.03)


def test_discrete_gaussian_agrees_with_an_independent_sampler(
    fixed_key: Callable[[int], None],
) -> None:
    fixed_key(5)
    opendp.enable_features("contrib")
    size, scale = 20_000, 4.0
    space = opendp.vector_domain(opendp.atom_domain(T=int), size), opendp.l2_distance(T=float)
    theirs = np.array(opendp.m.make_gaussian(*space, scale=scale)([0] * size))
    ours = draw_noise(noise_table("discrete-gaussian", scale), size)
    edges = np.arange(-8, 10) - 0.5
    table = [np.histogram(np.clip(draws, -8, 8), edges)[0] for draws in (ours, theirs)]
    assert stats.chi2_contingency(table).pvalue > 1e-6  # OpenDP cannot be seeded


def test_neighbouring_draws_are_independent(fixed_key: Callable[[int], None]) -> None:
    fixed_key(3)
    draws = draw_noise(noise_table("discrete-gaussian", 20.0), DRAWS).astype(np.float64)
    for lag in (1, 2, 32_768):  # the last is the sampler's chunk
        correlation = np.corrcoef(draws[:-lag], draws[lag:])[0, 1]
        assert abs(correlation) < 5 / np.sqrt(DRAWS - lag)


def test_no_draws_are_an_empty_array() -> None:
    assert draw_noise(noise_table("skellam", 1.0), 0).shape == (0,)
