"""The collector: lossless in every bit, honest about what each party sees, exact about costs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import CohortConfig, RecordedRun, rating_problem
from secure_fedrec.errors import ConfigError, LosslessnessError, ProtocolError, TranscriptError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import assert_lossless, compare_runs
from secure_fedrec.properties.strategies import Federation, faults, federations, pmf_configs
from secure_fedrec.protection import (
    Denoisers,
    DenoisersConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.executions import EXECUTIONS
from secure_fedrec.protection.linkage_hardened import LinkageHardened, LinkageHardenedConfig
from secure_fedrec.protection.linkage_hardened import real as real_module
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, Drop, Meter, RecordingPolicy, Step, Wire

SLOW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def hardened_federations(draw: st.DrawFn, *, width: int, execution: str) -> Federation:
    """Any small federation whose fakes are routed as shares; every cohort fills a batch."""
    size = 4 if execution == "real" else 6
    # Reports that are dropped stack with denoisers only, whose own rows are always there.
    cloaks = ("virtual-ratings", "none")
    drawn = draw(
        federations(width=width, max_clients=size, max_items=size, max_rounds=2, cloaks=cloaks)
    )
    n = drawn.ratings.n_clients
    config = LinkageHardenedConfig(
        count=draw(st.integers(2, min(3, n))),
        cells=6,
        layers=2,
        cell_bytes=512,
        execution=execution,
    )
    collector = LinkageHardened(
        config,
        n_clients=n,
        n_items=drawn.ratings.n_items,
        width=width,
        codec=drawn.stack.codec,
        streams=drawn.streams,
    )
    invited = drawn.cohort.clients_per_round
    cohort = CohortConfig(clients_per_round=None if invited is None else max(2, invited))
    everybody = replace(drawn.scope, taking_part=None)
    stack = replace(drawn.stack, collector=collector)
    return replace(drawn, stack=stack, cohort=cohort, scope=everybody)


@pytest.mark.parametrize(("execution", "examples"), [("simulated", 60), ("real", 15)])
def test_linkage_hardened_rounds_are_lossless(execution: str, examples: int) -> None:
    @settings(SLOW, max_examples=examples)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        config = data.draw(pmf_configs(max_rounds=2))
        federation = data.draw(hardened_federations(width=config.rank, execution=execution))
        assert_lossless(algorithm=lambda: PMF(config), **federation.arguments())

    holds()


def federation_of(
    *, execution: str = "simulated", rho: float = 1.0, rounds: int = 3
) -> dict[str, Any]:
    ratings = generate(SyntheticConfig(clients=12, items=30, mean_ratings=5.0, seed=3))
    streams, codec = Streams.from_seed(5), FixedPoint()
    collector = LinkageHardened(
        LinkageHardenedConfig(cells=30, layers=2, cell_bytes=512, execution=execution),
        n_clients=12,
        n_items=30,
        width=4,
        codec=codec,
        streams=streams,
    )
    cloak = VirtualRatings(VirtualRatingsConfig(rho=rho), n_items=30, streams=streams)
    return {
        "algorithm": lambda: PMF(PMFConfig(rank=4, rounds=3)),
        "stack": Stack(codec=codec, cloak=cloak, collector=collector, n_clients=12),
        "ratings": ratings,
        "streams": streams,
        "rounds": rounds,
    }


@pytest.mark.parametrize("rho", [0.0, 1.0, 3.0])
def test_the_run_is_that_of_rho_zero_in_every_bit(rho: float) -> None:
    outcome = compare_runs(**federation_of(rho=rho))
    assert outcome.holds
    assert outcome.taken == 36


def test_real_halves_that_compute_something_else_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close = real_module.RealRound.close

    def off_by_one(self: Any) -> Any:
        aggregate = close(self)
        aggregate.counts[0] += 1
        return aggregate

    assert_lossless(**federation_of(execution="real", rounds=1))
    monkeypatch.setattr(real_module.RealRound, "close", off_by_one)
    with pytest.raises(LosslessnessError, match="real halves"):
        assert_lossless(**federation_of(execution="real", rounds=1))


@SLOW
@given(st.data())
def test_a_faulty_wire_never_yields_another_sum(data: st.DataObject) -> None:
    fault = data.draw(faults(max_round=2, steps=(Step.UPLOAD, Step.NOISE, Step.DENOISE)))
    config = data.draw(pmf_configs(max_rounds=2))
    federation = data.draw(hardened_federations(width=config.rank, execution="simulated"))
    try:
        assert_lossless(algorithm=lambda: PMF(config), **federation.arguments(faults=(fault,)))
    except ProtocolError:
        assert fault.chooser.hits  # type: ignore[attr-defined]
    else:
        assert not fault.chooser.hits  # type: ignore[attr-defined]


def test_a_fake_that_is_lost_at_every_denoiser_aborts() -> None:
    """Their sets agree; that a row is missing shows in how many there are."""
    run = federation_of()
    fault = Drop(step=Step.NOISE, chooser=lambda messages: np.arange(len(messages)) == 0)
    with pytest.raises(ProtocolError, match="denoiser 0 holds other rows"):
        assert_lossless(**run, faults=(fault,))


class Spy:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def apply(self, messages: Any) -> Any:
        self.seen.append(messages)
        return messages

    def of(self, step: Step, receiver: int) -> list[tuple[int, int, Any]]:
        """(tag or sender, row, words) of every row that one party was sent."""
        found = []
        for messages in self.seen:
            if messages.step is not step:
                continue
            keys = messages.senders.ids if messages.tags is None else messages.tags
            for place, block in enumerate(messages.payload.split()):
                if int(messages.receivers.ids[place]) == receiver:
                    rows = zip(block.rows.tolist(), block.values, strict=True)
                    found += [(int(keys[place]), row, words) for row, words in rows]
        return found


def collector_of(
    *, execution: str = "simulated", bits: int = 64, cells: int = 15, count: int = 3
) -> Any:
    return LinkageHardened(
        LinkageHardenedConfig(
            count=count, cells=cells, layers=2, cell_bytes=512, execution=execution
        ),
        n_clients=8,
        n_items=15,
        width=3,
        codec=FixedPoint(bits=bits, fraction_bits=4, clip=2.0),
        streams=Streams.from_seed(1),
    )


def submitted(collector: Any, *, batch: int = 3) -> tuple[Any, list[Any], Spy, Meter]:
    """One round of random rows: aggregate, [(client, row, words, fake)], what was sent, costs."""
    spy, meter = Spy(), Meter(8)
    wire = Wire(meter=meter, faults=(spy,))
    session = collector.open(round_=1, participants=np.arange(8), wire=wire)
    limit, truth = collector.codec.largest, []
    for start in range(0, 8, batch):
        parts = []
        for client in session.order[start : start + batch].tolist():
            rng = np.random.default_rng(client)
            rows = np.flatnonzero(rng.random(15) < 0.6).astype(np.int32)
            values = collector.codec.from_integers(rng.integers(-limit, limit, (len(rows), 3)))
            fakes = rng.random(len(rows)) < 0.5
            parts.append((rows, values, fakes))
            truth += [
                (client, *one) for one in zip(rows.tolist(), values, fakes.tolist(), strict=True)
            ]
        block = RowBlock(
            indptr=np.concatenate([[0], np.cumsum([len(rows) for rows, _, _ in parts])]),
            rows=np.concatenate([rows for rows, _, _ in parts]),
            values=np.concatenate([values for _, values, _ in parts]),
        )
        virtual = np.concatenate([fakes for _, _, fakes in parts])
        session.submit(session.order[start : start + batch], block, virtual)
    return session.close(), truth, spy, meter


@pytest.mark.parametrize("bits", [20, 32, 40, 64])
def test_the_sum_of_the_real_rows_remains(bits: int) -> None:
    for batch in (1, 3, 8):
        collector = collector_of(bits=bits)
        aggregate, truth, _, _ = submitted(collector, batch=batch)
        expected = np.zeros((15, 3), dtype=object)
        counts = [0] * 15
        for _, row, words, fake in truth:
            if not fake:
                expected[row] += collector.codec.to_integers(words).astype(object)
                counts[row] += 1
        assert collector.codec.to_integers(aggregate.ring).tolist() == expected.tolist()
        assert aggregate.counts.tolist() == counts
        assert aggregate.ring.dtype == collector.codec.dtype


def test_each_message_holds_what_its_receiver_may_see() -> None:
    collector = collector_of()
    _, truth, spy, _ = submitted(collector)
    uploads = [(client, row, words.tolist()) for client, row, words in spy.of(Step.UPLOAD, 0)]
    assert sorted(uploads) == sorted((c, row, words.tolist()) for c, row, words, _ in truth)
    fakes = sorted((row, words.tolist()) for _, row, words, fake in truth if fake)
    held = [spy.of(Step.NOISE, denoiser) for denoiser in range(3)]
    ids = [{(tag, row) for tag, row, _ in shares} for shares in held]
    assert ids[0] == ids[1] == ids[2]
    assert sorted(row for _, row in ids[0]) == [row for row, _ in fakes]
    # Together they hold the fakes; by row id, since each message carries one row.
    totals = {tag: np.zeros(3, dtype=np.uint64) for tag, _ in ids[0]}
    for shares in held:
        for tag, _, words in shares:
            totals[tag] += words
    together = sorted((row, totals[tag].tolist()) for tag, row in ids[0])
    assert together == fakes
    for messages in spy.seen:
        if messages.step is Step.NOISE:
            assert set(messages.senders.ids.tolist()) <= {-1}
            assert set(messages.payload.lengths.tolist()) <= {1}
            assert set(messages.sizes.tolist()) <= {512}


def test_no_denoiser_nor_all_but_one_hold_a_value_that_was_uploaded() -> None:
    """Linking by value: every pair of denoisers, against every upload."""
    uploads, partial, single = set(), [], []
    for _ in range(30):
        collector = collector_of()
        _, _, spy, _ = submitted(collector)
        uploads |= {(row, *words.tolist()) for _, row, words in spy.of(Step.UPLOAD, 0)}
        held = [
            {(tag, row): words for tag, row, words in spy.of(Step.NOISE, denoiser)}
            for denoiser in range(3)
        ]
        for key in held[0]:
            single += [(key[1], *shares[key].tolist()) for shares in held]
            for left_out in range(3):
                rest = [shares[key] for n, shares in enumerate(held) if n != left_out]
                partial.append((key[1], *(rest[0] + rest[1]).tolist()))
    assert not uploads & set(single)
    assert not uploads & set(partial)
    for seen in (single, partial):
        words = np.array([row[1:] for row in seen], dtype=np.uint64)
        counts = np.bincount(words.view(np.uint8).ravel(), minlength=256)
        assert chisquare(counts).pvalue > 1e-6


def test_the_paper_s_denoisers_hold_values_that_were_uploaded() -> None:
    """The control: FedRec++'s noise messages carry the very words of the uploads."""
    streams, codec = Streams.from_seed(1), FixedPoint(fraction_bits=4, clip=2.0)
    collector = Denoisers(
        DenoisersConfig(), n_clients=8, n_items=15, width=3, codec=codec, streams=streams
    )
    spy = Spy()
    wire = Wire(meter=Meter(8), faults=(spy,))
    session = collector.open(round_=1, participants=np.arange(8), wire=wire)
    values = codec.encode(np.random.default_rng(1).uniform(-2, 2, (8, 3)))
    block = RowBlock(indptr=np.arange(9), rows=np.arange(8, dtype=np.int32), values=values)
    session.submit(session.order, block, ~session.exempt(session.order))
    session.close()
    uploads = {(row, *words.tolist()) for _, row, words in spy.of(Step.UPLOAD, 0)}
    noise = {(row, *words.tolist()) for _, row, words in spy.of(Step.NOISE, 0)}
    assert len(noise) == 7
    assert noise <= uploads


def test_the_servers_view_holds_identified_rows_and_the_exact_sums_of_the_real_ones() -> None:
    """What regression over rounds needs is there: the form does not claim to take it away."""
    run_ = federation_of()
    ratings = run_["ratings"]
    algorithm = run_["algorithm"]()
    recorded = RecordedRun(
        algorithm=algorithm,
        stack=run_["stack"],
        problem=rating_problem(algorithm, ratings),
        streams=run_["streams"],
        policy=RecordingPolicy(payload_rounds=(1, 2)),
    )
    for _ in range(2):
        recorded.run_round()
    rated = set(zip(ratings.clients.tolist(), ratings.items.tolist(), strict=True))
    view = recorded.transcript.view(Adversary(name="server", corrupt=frozenset({"server"})))
    for round_ in (1, 2):
        uploads = view.messages(Step.UPLOAD, round_, payload=True)
        block = uploads.payload
        assert isinstance(block, RowBlock)
        assert block.values is not None
        senders = np.repeat(uploads.senders.ids, block.lengths).tolist()
        named = list(zip(senders, block.rows.tolist(), strict=True))
        assert set(named) > rated
        real = np.array([pair in rated for pair in named])
        total = view.messages(Step.AGGREGATE, round_, payload=True).payload
        assert isinstance(total, RowBlock)
        sums = np.zeros((30, 4), dtype=np.uint64)
        np.add.at(sums, block.rows[real], block.values[real])
        assert total.values is not None
        assert total.values.tolist() == sums.tolist()
        assert total.counts is not None
        assert total.counts.tolist() == np.bincount(block.rows[real], minlength=30).tolist()
        with pytest.raises(TranscriptError):
            view.messages(Step.NOISE, round_)


def test_every_client_costs_the_public_number_of_cells() -> None:
    collector = collector_of()
    _, truth, _, meter = submitted(collector)
    upload = meter.clients("bytes_sent").copy()
    denoisers = collector.denoisers.tolist()
    ordinary = [client for client in range(8) if client not in denoisers]
    for client in ordinary:
        rows = sum(1 for owner, *_ in truth if owner == client)
        assert upload[client] == 3 * 15 * 512 + (48 + 64 + 4 + rows * (4 + 3 * 8))
        assert meter.clients("messages_sent")[client] == 3 * 15 + 1
    for client in denoisers:
        received = meter.clients("messages_received")[client]
        assert received == 8 * 15 + 3 + 3  # everybody's cells, the denoisers' sets and receipts


def test_simulated_and_real_messages_cost_the_same() -> None:
    meters = []
    for execution in EXECUTIONS:
        _, _, _, meter = submitted(collector_of(execution=execution))
        meters.append({name: column.tolist() for name, column in meter.state().items()})
    assert meters[0] == meters[1]
    assert meters[0]["beside"][0] > 0


def test_more_fakes_than_cells_are_refused_before_anything_is_sent() -> None:
    collector = collector_of(cells=2)
    spy = Spy()
    session = collector.open(
        round_=1, participants=np.arange(8), wire=Wire(meter=Meter(8), faults=(spy,))
    )
    block = RowBlock(
        indptr=np.array([0, 1, 4]),
        rows=np.array([0, 1, 2, 3], dtype=np.int32),
        values=np.zeros((4, 3), dtype=np.uint64),
    )
    with pytest.raises(ConfigError, match="client 1 has 3 virtual rows") as refusal:
        session.submit(np.arange(2), block, np.ones(4, dtype=bool))
    assert refusal.value.key == "protection.cells"
    assert spy.seen == []


def test_expected_traffic_covers_what_is_sent() -> None:
    collector = collector_of()
    _, truth, spy, _ = submitted(collector)
    rows = np.bincount([client for client, *_ in truth], minlength=8)
    fakes = np.bincount([client for client, _, _, fake in truth if fake], minlength=8)
    expected = {part.step: part for part in collector.traffic(rows, fakes)}
    for step in (Step.UPLOAD, Step.NOISE, Step.DENOISE):
        sent = [messages for messages in spy.seen if messages.step is step]
        assert sum(len(messages) for messages in sent) == expected[step].messages
        assert sum(len(messages.payload.rows) for messages in sent) <= expected[step].rows
    name, described = collector.describe()
    assert name == "linkage-hardened"
    assert described["clients"] == collector.denoisers.tolist()
    assert (
        not collector.open(round_=1, participants=np.arange(8), wire=Wire(meter=Meter(8)))
        .exempt(np.arange(8))
        .any()
    )
