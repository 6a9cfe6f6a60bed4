"""Hidden uploads: the bits of plain ones, nothing to read in them, and no sum without a client."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from secure_fedrec.data import RatingTable
from secure_fedrec.engines import RecordedRun
from secure_fedrec.errors import ConfigError, LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import DirectSum, Sizes, Stack, build_stack
from secure_fedrec.protection.base.executions import EXECUTIONS
from secure_fedrec.protection.dp.config import ClipConfig, SkellamLayerConfig
from secure_fedrec.protection.masking import MaskingServer, SecondRound, TailFloor
from secure_fedrec.protection.masking.embedded import MaskedSum
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.paillier.embedded import EncryptedSum
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import (
    Adversary,
    Alter,
    Delay,
    Drop,
    Fault,
    Repeat,
    Step,
)

N_CLIENTS, N_ITEMS, RANK = 10, 24, 3
Run = Callable[..., RecordedRun]
Uploads = Callable[..., RowBlock]
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
CODECS = [
    FixedPoint(),
    FixedPoint(bits=44, fraction_bits=24, clip=64.0),
    FixedPoint(bits=32, fraction_bits=20, clip=32.0),
]
SIZES: dict[str, Any] = {
    "n_clients": N_CLIENTS,
    "n_items": N_ITEMS,
    "width": RANK,
    "codec": CODECS[0],
}
LAYERS: dict[str, dict[str, Any]] = {
    "masking": {"masking": MaskingLayerConfig()},
    "masking, protocol": {"masking": MaskingLayerConfig(execution="real")},
    "masking, active": {"masking": MaskingLayerConfig(execution="real", adversary="active")},
    "paillier": {"paillier": EncryptionLayerConfig()},
    "paillier, clients' key": {"paillier": EncryptionLayerConfig(holder="clients")},
    "paillier, halves": {"paillier": EncryptionLayerConfig(execution="real", key_bits=2048)},
    "paillier, clients' key, halves": {
        "paillier": EncryptionLayerConfig(execution="real", holder="clients", key_bits=2048)
    },
}


@pytest.mark.claim("one-sum-in-all-protections")
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: f"{codec.bits} bits")
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_every_way_of_hiding_ends_in_the_bits_of_plain_sums(
    layers: dict[str, Any], codec: FixedPoint, run_of: Run
) -> None:
    plain, hidden = run_of({}, codec=codec, done=2), run_of(layers, codec=codec, done=2)
    assert hidden.table_digests == plain.table_digests
    everybody = np.arange(N_CLIENTS)
    for name in plain.engine.vault.names():
        ours = hidden.engine.vault.read(name, everybody)
        assert ours.tobytes() == plain.engine.vault.read(name, everybody).tobytes()


@pytest.mark.claim("one-sum-in-all-protections")
@settings(deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    cohort=st.integers(3, N_CLIENTS),
    codec=st.sampled_from(CODECS),
    name=st.sampled_from(["masking", "paillier"]),
)
def test_any_cohort_any_ratings(
    seed: int,
    cohort: int,
    codec: FixedPoint,
    name: str,
    table_of: Callable[..., RatingTable],
    run_of: Run,
) -> None:
    config: Any = {
        "masking": MaskingLayerConfig(),
        "paillier": EncryptionLayerConfig(),
    }[name]
    layers = {name: config}
    settings_: dict[str, Any] = {"codec": codec, "cohort": cohort, "table": table_of(seed)}
    plain = run_of({}, **settings_, done=2)
    assert run_of(layers, **settings_, done=2).table_digests == plain.table_digests


@pytest.mark.claim("protected-uploads-name-all-rows")
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_an_upload_names_every_row_and_its_words_are_noise(
    layers: dict[str, Any], run_of: Run, uploads: Uploads
) -> None:
    view = run_of(layers, done=3).transcript.view(SERVER)
    seen = []
    for round_ in (1, 2, 3):
        messages = view.messages(Step.UPLOAD, round_, payload=True)
        block = uploads(view, round_)
        assert messages.senders.ids.tolist() == list(range(N_CLIENTS))
        assert block.rows.tolist() == list(range(N_ITEMS)) * N_CLIENTS
        assert len(set(messages.sizes.tolist())) == 1
        assert block.values is not None
        assert block.counts is not None
        seen += [block.values.astype("<u8").tobytes(), block.counts.astype("<u8").tobytes()]
    # 3 rounds x 10 clients x 24 items x 4 words x 8 bytes; every byte value equally often.
    counts = np.bincount(np.frombuffer(b"".join(seen), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, 255) > 1e-6


@pytest.mark.claim("protected-uploads-name-all-rows")
def test_plain_words_fail_the_same_test(run_of: Run, uploads: Uploads) -> None:
    """The weakened copy: without pads most words are zero and small."""
    run = run_of({}, stack=_unpadded(), done=1)
    block = uploads(run.transcript.view(SERVER), 1)
    assert block.values is not None
    counts = np.bincount(np.frombuffer(block.values.tobytes(), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    assert chi2.sf(float(((counts - expected) ** 2 / expected).sum()), 255) < 1e-6


def _unpadded() -> Stack:
    stack = build_stack(
        {"masking": MaskingLayerConfig()},
        sizes=Sizes(n_clients=N_CLIENTS, n_items=N_ITEMS, width=RANK, cohort=N_CLIENTS),
        codec=CODECS[0],
        streams=Streams.from_seed(5),
    )
    assert isinstance(stack.collector, MaskedSum)

    class Zeros:
        def words_at(self, *_: object, width: int) -> Any:
            return np.zeros((N_CLIENTS, width), dtype=np.uint64)  # all clients share one key

    stack.collector.pads = Zeros()  # type: ignore[assignment]
    return stack


def test_pads_differ_between_rounds_and_between_phases(run_of: Run, uploads: Uploads) -> None:
    layers = {"masking": MaskingLayerConfig(tail_floor=2)}
    view = run_of(layers, done=3).transcript.view(SERVER)
    words = [view.messages(Step.COUNTS, 1, payload=True).payload]
    words += [view.messages(Step.COUNTS, 2, payload=True).payload]
    first, second = words
    assert isinstance(first, RowBlock)
    assert isinstance(second, RowBlock)
    assert first.counts is not None
    assert second.counts is not None
    # Equal pads would leave the difference of two 0/1 vectors.
    assert np.abs(first.counts - second.counts).min() > 1
    rows = uploads(view, 1)
    assert rows.counts is not None
    kept = np.isin(first.rows, rows.rows[: rows.lengths[0]])
    assert np.abs(first.counts[kept] - rows.counts).min() > 1


def test_what_is_short_of_all_uploads_tells_nothing_of_the_sum(
    run_of: Run, uploads: Uploads
) -> None:
    view = run_of({"masking": MaskingLayerConfig()}, done=3).transcript.view(SERVER)
    block, total = uploads(view, 1), uploads(view, 1, Step.AGGREGATE)
    assert block.values is not None
    assert total.values is not None
    words = block.values.reshape(N_CLIENTS, N_ITEMS, RANK)
    assert np.array_equal(words.sum(axis=0, dtype=np.uint64), total.values)
    for left_out in range(N_CLIENTS):
        rest = np.delete(words, left_out, axis=0).sum(axis=0, dtype=np.uint64)
        assert np.all(rest != total.values)  # even where that client has no row


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("fault", [Drop, Repeat, Delay])
def test_a_faulty_round_is_refused_and_changes_nothing(
    layers: dict[str, Any], fault: Callable[..., Fault], run_of: Run
) -> None:
    def first(messages: Any) -> Any:
        return np.arange(len(messages)) == 0

    run = run_of(layers, faults=(fault(step=Step.UPLOAD, chooser=first),))
    before = run.engine.state()
    (layer,) = layers.values()
    if fault is Repeat and layer.execution == "real":  # the protocol refuses the second alone
        run.run_round()
        assert run.table_digests == run_of(layers, done=1).table_digests
        return
    with pytest.raises(ProtocolError, match="round 1"):
        run.run_round()
    for name, value in run.engine.state().items():
        assert np.array_equal(value, before[name], equal_nan=True), name


def test_an_altered_masked_word_alters_the_sum_and_is_not_detected(run_of: Run) -> None:
    def first(messages: Any) -> Any:
        return np.arange(len(messages)) == 0

    layers = {"masking": MaskingLayerConfig()}
    altered = run_of(layers, faults=(Alter(step=Step.UPLOAD, chooser=first),))
    altered.run_round()
    clean = run_of(layers)
    clean.run_round()
    assert altered.table_digests != clean.table_digests


@pytest.mark.claim("masking-tail-floor")
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_the_tail_floor_keeps_rows_back_before_they_are_sent(
    execution: str, table_of: Callable[..., RatingTable], run_of: Run, uploads: Uploads
) -> None:
    layers = {"masking": MaskingLayerConfig(tail_floor=3, execution=execution)}
    run = run_of(layers)
    before = run.engine.public.table.copy()
    run.run_round()
    view = run.transcript.view(SERVER)
    ratings = table_of()
    raters = np.bincount(ratings.items, minlength=N_ITEMS)
    kept = np.flatnonzero(raters >= 3)
    assert 0 < len(kept) < N_ITEMS
    block = uploads(view, 1)
    assert block.rows[: block.lengths[0]].tolist() == kept.tolist()
    total = uploads(view, 1, Step.AGGREGATE)
    assert total.counts is not None
    assert total.values is not None
    assert total.counts.tolist() == raters.tolist()  # the first phase tells the counts
    assert not total.values[raters < 3].any()
    moved = np.any(run.engine.public.table != before, axis=1)
    assert np.flatnonzero(moved).tolist() == kept.tolist()


@pytest.mark.claim("masking-tail-floor")
def test_real_rounds_run_the_shipped_halves_of_the_tail_floor(
    monkeypatch: pytest.MonkeyPatch, run_of: Run
) -> None:
    """Every client derives its own second round, and the bits are those of the simulated path."""
    derived, encoded = TailFloor.second_round_of, SecondRound.encode
    calls = {"derived": 0, "encoded": 0}

    def derive(self: TailFloor, *arguments: Any, **named: Any) -> SecondRound:
        calls["derived"] += 1
        return derived(self, *arguments, **named)

    def encode(self: SecondRound, block: RowBlock) -> Any:
        calls["encoded"] += 1
        return encoded(self, block)

    monkeypatch.setattr(TailFloor, "second_round_of", derive)
    monkeypatch.setattr(SecondRound, "encode", encode)
    for codec in CODECS:
        calls.update(derived=0, encoded=0)
        real, simulated = (
            run_of(
                {"masking": MaskingLayerConfig(tail_floor=3, execution=execution)},
                codec=codec,
                done=2,
            )
            for execution in ("real", "simulated")
        )
        assert calls == {"derived": 2 * N_CLIENTS, "encoded": 2 * N_CLIENTS}
        assert real.table_digests == simulated.table_digests
    # A half that encodes other rows than the ring path sums is caught.
    monkeypatch.setattr(
        SecondRound,
        "encode",
        lambda self, block: encoded(self, replace(block, values=block.values + 1.0)),
    )
    with pytest.raises(LosslessnessError):
        run_of({"masking": MaskingLayerConfig(tail_floor=3, execution="real")}).run_round()


@pytest.mark.parametrize("name", ["masking", "paillier"])
def test_too_few_clients_are_refused(name: str, run_of: Run) -> None:
    config: Any = {
        "masking": MaskingLayerConfig(min_survivors=5),
        "paillier": EncryptionLayerConfig(min_survivors=5),
    }[name]
    stack = build_stack(
        {name: config},
        sizes=Sizes(n_clients=N_CLIENTS, n_items=N_ITEMS, width=RANK, cohort=N_CLIENTS),
        codec=CODECS[0],
        streams=Streams.from_seed(1),
    )
    with pytest.raises(ProtocolError, match="4 clients, a sum needs at least 5"):
        run_of({}, stack=stack, cohort=4).run_round()
    too_many: Any = {
        "masking": MaskingLayerConfig(min_survivors=N_CLIENTS + 1),
        "paillier": EncryptionLayerConfig(min_survivors=N_CLIENTS + 1),
    }[name]
    with pytest.raises(ConfigError, match=f"only {N_CLIENTS} clients"):
        run_of({name: too_many})


def test_a_protocol_that_sums_wrongly_is_caught(
    monkeypatch: pytest.MonkeyPatch, run_of: Run
) -> None:
    right = vars(MaskingServer)["result"].fget

    def wrong(server: MaskingServer) -> Any:
        words = right(server).copy()
        words[0] += np.uint64(1)
        return words

    monkeypatch.setattr(MaskingServer, "result", property(wrong))
    with pytest.raises(LosslessnessError):
        run_of({"masking": MaskingLayerConfig(execution="real")}).run_round()


def test_of_a_drawn_cohort_more_clients_may_be_corrupt_than_their_share() -> None:
    masks = MaskingLayerConfig(corrupt=0.1)
    assert masks.corrupt_clients(cohort=943, n_clients=943) == 94
    assert masks.corrupt_clients(cohort=64, n_clients=943) == 27
    assert MaskingLayerConfig(corrupt=0.29).corrupt_clients(cohort=100, n_clients=100) == 29


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_floor_that_no_item_reaches_leaves_everything_as_it_is(
    execution: str, run_of: Run
) -> None:
    run = run_of({"masking": MaskingLayerConfig(tail_floor=1000, execution=execution)})
    before = run.engine.public.table.copy()
    run.run_round()
    assert np.array_equal(run.engine.public.table, before)


def test_a_smallest_sum_that_no_cohort_reaches_is_refused_at_once(run_of: Run) -> None:
    configs: dict[str, Any] = {
        "masking": MaskingLayerConfig(min_survivors=5),
        "paillier": EncryptionLayerConfig(min_survivors=5),
    }
    for name, config in configs.items():
        with pytest.raises(ConfigError, match=r"protection\.min_survivors = 5: only 4 clients"):
            run_of({name: config}, cohort=4)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: MaskingLayerConfig(execution="fast"), "protection.execution"),
        (lambda: MaskingLayerConfig(min_survivors=2), "protection.min_survivors"),
        (lambda: MaskingLayerConfig(tail_floor=-1), "protection.tail_floor"),
        (lambda: MaskingLayerConfig(tail_floor=2, adversary="active"), "protection.adversary"),
        (lambda: MaskingLayerConfig(corrupt=1.0), "protection.corrupt"),
        (lambda: MaskingLayerConfig(adversary="kind"), "protection.adversary"),  # type: ignore[arg-type]
        (lambda: EncryptionLayerConfig(execution="fast"), "protection.execution"),
        (lambda: EncryptionLayerConfig(holder="server"), "protection.holder"),
        (lambda: EncryptionLayerConfig(key_bits=1024), "protection.key_bits"),
        (lambda: EncryptionLayerConfig(key_bits=2049), "protection.key_bits"),
        (lambda: EncryptionLayerConfig(key_bits=16384), "protection.key_bits"),
        (lambda: EncryptionLayerConfig(min_survivors=2), "protection.min_survivors"),
        (lambda: ClipConfig(norm=0.0), "protection.norm"),
        (lambda: ClipConfig(count_scale=float("nan")), "protection.count_scale"),
        (lambda: SkellamLayerConfig(epsilon=-1.0), "protection.epsilon"),
        (lambda: SkellamLayerConfig(epsilon=1.0, delta=0.0), "protection.delta"),
        (lambda: SkellamLayerConfig(epsilon=1.0, corrupt=-1), "protection.corrupt"),
        (lambda: SkellamLayerConfig(epsilon=1.0, least_count=0), "protection.least_count"),
    ],
)
def test_settings_out_of_range_name_their_key(make: Callable[[], object], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert refused.value.key == key


def test_the_same_collectors_can_be_made_by_hand() -> None:
    streams = Streams.from_seed(1)
    for collector in (
        DirectSum(**SIZES),
        MaskedSum(MaskingLayerConfig(), streams=streams, **SIZES),
        EncryptedSum(EncryptionLayerConfig(), streams=streams, **SIZES),
    ):
        stack = Stack(codec=CODECS[0], cloak=None, collector=collector, n_clients=N_CLIENTS)
        assert stack.traffic(np.full(N_CLIENTS, 3))[0].messages == N_CLIENTS


def test_a_tail_floor_sends_a_count_of_every_row_first() -> None:
    config, rows = MaskingLayerConfig(tail_floor=3), np.full(N_CLIENTS, 3)
    floored = MaskedSum(config, streams=Streams.from_seed(1), **SIZES)
    whole = MaskedSum(replace(config, tail_floor=0), streams=Streams.from_seed(1), **SIZES)
    counts, *rest = floored.traffic(rows, rows)
    assert tuple(rest) == whole.traffic(rows, rows)
    assert (counts.step, counts.counts, counts.width) == (Step.COUNTS, True, 0)
    assert (counts.messages, counts.rows) == (N_CLIENTS, N_CLIENTS * N_ITEMS)
