"""Whole rounds: the sum is the integer sum over the agreed survivors, or there is none."""

from collections import Counter
from itertools import count, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.masking import (
    Federation,
    Kind,
    MaskingConfig,
    MeanLayout,
    SitePolicy,
    SumLayout,
    TableLayout,
)
from secure_fedrec.uploads import RowBlock
from tests.statements import about

DROPS = (Kind.ADVERTISE, Kind.SHARES, Kind.UPLOAD, Kind.CONFIRM, Kind.REVEAL)
STATED = about(b"s" * 32)
POLICY = SitePolicy(corrupt=0.0, dropout=0.5)
ROUNDS = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def expected_outcome(
    numbers: list[int], drops: dict[int, Kind], config: MaskingConfig
) -> tuple[bool, list[int]]:
    """Whether the round must succeed on the complete graph, and over whom."""
    stays = {kind: [n for n in numbers if drops.get(n, Kind.RESULT) > kind] for kind in DROPS}
    survivors = stays[Kind.UPLOAD]
    holds = (
        len(survivors) >= max(config.min_survivors, config.threshold + 1)
        and len(stays[Kind.CONFIRM]) >= config.quorum
    )
    revealing = stays[Kind.REVEAL]
    for number in stays[Kind.SHARES]:
        helpers = len(set(revealing) - {number})
        if number not in revealing and helpers < config.threshold:
            holds = False
    return holds, survivors


@pytest.mark.claim("masking-exact-or-aborts")
@ROUNDS
@given(st.data())
def test_the_sum_is_exact_for_every_drop_pattern_or_the_round_aborts(data: st.DataObject) -> None:
    n = data.draw(st.integers(3, 8), label="n")
    numbers = sorted(
        data.draw(
            st.lists(st.integers(0, 2**32 - 2), min_size=n, max_size=n, unique=True),
            label="numbers",
        )
    )
    bits = data.draw(st.integers(8, 64), label="bits")
    length = data.draw(st.integers(1, 9), label="length")
    largest = (2 ** (bits - 1) - 1) // n
    # Both generous and demanding settings, so that rounds with drops end either way.
    demanding = data.draw(st.sampled_from([False, False, False, True]), label="demanding")
    threshold = data.draw(st.integers(2, n - 1), label="threshold") if demanding else 2
    layout = SumLayout(bits=bits, length=length, clients=n, largest=largest)
    least = max(threshold + 1, n // 2 + 1)
    survivors_least = data.draw(st.integers(least, n), label="least") if demanding else least
    config = MaskingConfig(
        clients=n,
        bits=bits,
        length=length,
        layout_hash=layout.hash,
        threshold=threshold,
        min_survivors=survivors_least,
        quorum=n // 2 + 1,
        corrupt_clients=0,
    )
    spare = n - survivors_least
    leaving = data.draw(st.integers(0, spare + 1), label="leaving")
    gone = data.draw(st.permutations(numbers), label="gone")[:leaving]
    drops = {number: data.draw(st.sampled_from(DROPS), label=f"drop {number}") for number in gone}
    values = {
        number: np.array(
            data.draw(st.lists(st.integers(-largest, largest), min_size=length, max_size=length)),
            dtype=np.int64,
        )
        for number in numbers
    }
    federation = Federation(numbers, policy=POLICY)
    vectors = {number: layout.encode(value) for number, value in values.items()}
    holds, survivors = expected_outcome(numbers, drops, config)
    if not holds:
        with pytest.raises(ProtocolError):
            federation.sum(config, vectors, statement=STATED, drops=drops)
        return
    outcome = federation.sum(config, vectors, statement=STATED, drops=drops)
    assert outcome.survivors.tolist() == survivors
    assert not outcome.faults
    expected = [sum(int(values[number][at]) for number in survivors) for at in range(length)]
    assert layout.decode(outcome.words).tolist() == expected


def test_every_pattern_of_two_drops_among_five_ends_as_it_must() -> None:
    """Exhaustive: each of two clients may fall silent at each step, or stay."""
    layout = SumLayout(bits=16, length=2, clients=5, largest=1000)
    config = MaskingConfig(
        clients=5, bits=16, length=2, layout_hash=layout.hash, threshold=2,
        min_survivors=3, quorum=3, corrupt_clients=0,
    )  # fmt: skip
    numbers, states = [1, 4, 6, 8, 9], count(1)
    federation = Federation(numbers, policy=POLICY)
    values = {number: np.array([number**3, -number]) for number in numbers}
    vectors = {number: layout.encode(value) for number, value in values.items()}
    for first, second in product((None, *DROPS), repeat=2):
        for pair in ((1, 9), (6, 4), (8, 9)):
            drops = {n: kind for n, kind in zip(pair, (first, second), strict=True) if kind}
            holds, survivors = expected_outcome(numbers, drops, config)
            assert holds
            stated = about(next(states).to_bytes(32, "little"))
            outcome = federation.sum(config, vectors, statement=stated, drops=drops)
            assert outcome.survivors.tolist() == survivors
            expected = sum(values[number] for number in survivors)
            assert np.array_equal(layout.decode(outcome.words), expected)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_weighted_means_of_any_dtype_come_out_exact(data: st.DataObject) -> None:
    codec = FixedPoint(bits=data.draw(st.sampled_from([48, 64])), fraction_bits=12, clip=4.0)
    layout = MeanLayout(codec=codec, length=5, clients=5, max_weight=1000)
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = {number: rng.uniform(-4, 4, 5).astype(dtype) for number in range(5)}
    weights = {number: data.draw(st.integers(0, 1000)) for number in range(5)}
    config = MaskingConfig.for_cohort(
        5,
        bits=codec.bits,
        length=layout.words,
        layout_hash=layout.hash,
        corrupt=0.0,
        dropout=0.25,
    )
    drops = {data.draw(st.integers(0, 4)): Kind.UPLOAD}
    outcome = Federation(range(5), policy=SitePolicy(corrupt=0.0, dropout=0.25)).sum(
        config,
        {n: layout.encode(value, weight=weights[n]) for n, value in values.items()},
        statement=STATED,
        drops=drops,
    )
    decoded = layout.decode(outcome.words)
    units = {
        n: codec.to_integers(codec.encode(value.astype(np.float64))) for n, value in values.items()
    }
    survivors = outcome.survivors.tolist()
    assert len(survivors) == 4
    assert decoded.weight == sum(weights[n] for n in survivors)
    assert np.array_equal(decoded.sums, sum(weights[n] * units[n] for n in survivors))


@pytest.mark.parametrize("agreement", ["x25519", "x25519+mlkem768"])
@pytest.mark.parametrize("adversary", ["curious", "active"])
def test_sparse_rounds_survive_drops_at_every_step(adversary: Any, agreement: Any) -> None:
    n = 130 if agreement == "x25519" else 24
    layout = SumLayout(bits=24, length=7, clients=n, largest=1000)
    if n == 130:
        config = MaskingConfig.for_cohort(
            n,
            bits=24,
            length=7,
            layout_hash=layout.hash,
            corrupt=0.02,
            dropout=0.05,
            adversary=adversary,
        )
        assert config.degree is not None
        assert config.degree < n - 1
    else:
        config = MaskingConfig(
            clients=n,
            bits=24,
            length=7,
            layout_hash=layout.hash,
            threshold=9,
            min_survivors=19,
            quorum=13,
            corrupt_clients=0,
            adversary=adversary,
            key_agreement=agreement,
        )
    policy = SitePolicy(corrupt=0.02, dropout=0.05, adversary=adversary)
    federation = Federation(range(n), policy=policy)
    rng = np.random.default_rng(3)
    values = {number: rng.integers(-1000, 1001, 7) for number in range(n)}
    drops = dict(zip([2, 5, 11, 17, 23], DROPS, strict=True))
    vectors = {number: layout.encode(value) for number, value in values.items()}
    outcome = federation.sum(config, vectors, statement=STATED, drops=drops)
    survivors = [number for number in range(n) if number not in (2, 5, 11)]
    assert outcome.survivors.tolist() == survivors
    assert not outcome.faults
    assert not outcome.aborted
    expected = sum(values[number] for number in survivors)
    assert np.array_equal(layout.decode(outcome.words), expected)


def test_the_hybrid_agreement_recovers_both_sides_of_every_pair() -> None:
    """Of each pair the lower or the higher number may be the one that drops out."""
    layout = SumLayout(bits=32, length=3, clients=5, largest=50)
    config = MaskingConfig(
        clients=5,
        bits=32,
        length=3,
        layout_hash=layout.hash,
        threshold=2,
        min_survivors=3,
        quorum=3,
        corrupt_clients=0,
        key_agreement="x25519+mlkem768",
    )
    policy = SitePolicy(corrupt=0.0, dropout=0.4, key_agreement="x25519+mlkem768")
    for gone in ({1, 5}, {2, 3}, {4}):
        values = {number: np.array([number, -number, 7]) for number in range(1, 6)}
        outcome = Federation(range(1, 6), policy=policy).sum(
            config,
            {number: layout.encode(value) for number, value in values.items()},
            statement=STATED,
            drops=dict.fromkeys(gone, Kind.UPLOAD),
        )
        stay = [number for number in values if number not in gone]
        assert np.array_equal(layout.decode(outcome.words), sum(values[number] for number in stay))


def test_clients_check_the_published_sum_and_hold_one_transcript_root(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.RESULT)
    for number, data in s.outgoing:
        s.clients[number].receive(data)
    packed = s.server.packed_result
    for client in s.clients.values():
        assert np.array_equal(client.open_result(packed), s.server.result)
        assert client.transcript_root == s.server.transcript_root
        with pytest.raises(ProtocolError, match="not the sum"):
            client.open_result(packed[:-1] + bytes([packed[-1] ^ 1]))


def test_uploads_show_nothing_of_which_rows_a_client_has() -> None:
    codec = FixedPoint(bits=32, fraction_bits=8, clip=8.0)
    layout = TableLayout(codec=codec, rows=np.arange(40), width=3, clients=4)
    config = MaskingConfig.for_cohort(
        4,
        bits=32,
        length=layout.words,
        layout_hash=layout.hash,
        corrupt=0.0,
        dropout=0.0,
    )
    blocks = {
        number: RowBlock(
            indptr=np.array([0, number]),
            rows=np.arange(number, dtype=np.int32),
            values=np.full((number, 3), 0.5),
        )
        for number in range(4)
    }
    federation = Federation(range(4), policy=SitePolicy(corrupt=0.0, dropout=0.0))
    vectors = {n: layout.encode(block) for n, block in blocks.items()}
    outcome = federation.sum(config, vectors, statement=STATED)
    aggregate = layout.decode(outcome.words)
    counts = Counter(row for block in blocks.values() for row in block.rows.tolist())
    assert aggregate.counts.tolist() == [counts[row] for row in range(40)]
    assert np.array_equal(aggregate.values, 0.5 * np.repeat(aggregate.counts[:, None], 3, axis=1))
