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
from secure_fedrec.errors import ConfigError, LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import assert_lossless, compare_runs
from secure_fedrec.properties.strategies import Federation, faults, federations, pmf_configs
from secure_fedrec.protection import DirectSum, Stack, VirtualRatings, VirtualRatingsConfig
from secure_fedrec.protection.base.carried_out import carried_out
from secure_fedrec.protection.base.executions import EXECUTIONS
from secure_fedrec.protection.shared_upload import SharedUpload, SharedUploadConfig
from secure_fedrec.protection.shared_upload.hosted import HostedSharedSum, HostedShares
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, Meter, RecordingPolicy, Step, View, Wire

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def shared_upload(config: SharedUploadConfig, **table: Any) -> SharedUpload:
    collector = SharedUpload(config, **table)
    if config.execution == "real":
        carried_out(collector, HostedShares(collector))
    return collector


@st.composite
def shared_federations(draw: st.DrawFn, *, width: int, execution: str) -> Federation:
    """Any small federation whose rows are shared; every cohort reaches the floor."""
    # Reports that are dropped stack with denoisers only, whose own rows are always there.
    cloaks = ("virtual-ratings", "none")
    drawn = draw(federations(width=width, max_clients=6, max_items=9, max_rounds=3, cloaks=cloaks))
    n = drawn.ratings.n_clients
    invited = drawn.cohort.clients_per_round
    cohort = CohortConfig(clients_per_round=None if invited is None else max(2, invited))
    present = n if invited is None else max(2, invited)
    config = SharedUploadConfig(
        count=draw(st.integers(1, min(3, n))),
        floor=draw(st.integers(2, present)),
        execution=execution,
    )
    collector = shared_upload(
        config,
        n_clients=n,
        n_items=drawn.ratings.n_items,
        width=width,
        codec=drawn.stack.codec,
        streams=drawn.streams,
    )
    everybody = replace(drawn.scope, taking_part=None)
    stack = replace(drawn.stack, collector=collector)
    return replace(drawn, stack=stack, cohort=cohort, scope=everybody)


@pytest.mark.claim("one-sum-in-all-protections")
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_shared_uploads_are_lossless(execution: str) -> None:
    @SLOW
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        config = data.draw(pmf_configs(max_rounds=3))
        federation = data.draw(shared_federations(width=config.rank, execution=execution))
        assert_lossless(algorithm=lambda: PMF(config), **federation.arguments())

    holds()


def federation_of(
    *, execution: str = "simulated", rho: float = 1.0, count: int = 2, floor: int = 4
) -> Any:
    ratings = generate(SyntheticConfig(clients=20, items=40, mean_ratings=8.0, seed=3))
    streams, codec = Streams.from_seed(5), FixedPoint()
    collector = shared_upload(
        SharedUploadConfig(count=count, floor=floor, execution=execution),
        n_clients=20,
        n_items=40,
        width=4,
        codec=codec,
        streams=streams,
    )
    cloak = VirtualRatings(VirtualRatingsConfig(rho=rho), n_items=40, streams=streams)
    stack = Stack(codec=codec, cloak=cloak, collector=collector, n_clients=20)
    return {
        "algorithm": lambda: PMF(PMFConfig.printed(rank=4, rounds=4)),
        "stack": stack,
        "ratings": ratings,
        "streams": streams,
        "rounds": 4,
    }


@pytest.mark.parametrize("rho", [0.0, 1.0, 3.0])
def test_the_run_is_that_of_rho_zero_in_every_bit(rho: float) -> None:
    outcome = compare_runs(**federation_of(rho=rho))
    assert outcome.holds
    assert outcome.taken == 80


def test_a_share_that_goes_missing_in_the_sum_is_found() -> None:
    """The property can fail: a mutant whose fakes are counted is caught."""

    class Mutant(SharedUpload):
        def open(self, **kwargs: Any) -> Any:
            session = super().open(**kwargs)
            submit = session.submit

            def counted(clients: Any, block: RowBlock, virtual: Any) -> None:
                submit(clients, block, np.zeros_like(virtual))

            session.submit = counted  # type: ignore[method-assign]
            return session

    run = federation_of()
    collector = run["stack"].collector
    mutant = Mutant(
        collector.config,
        n_clients=20,
        n_items=40,
        width=4,
        codec=collector.codec,
        streams=run["streams"],
    )
    run["stack"] = replace(run["stack"], collector=mutant)
    with pytest.raises(LosslessnessError, match="sum of item"):
        assert_lossless(**run)


def test_real_halves_that_compute_something_else_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summed = HostedSharedSum.aggregate

    def off_by_one(self: Any) -> Any:
        aggregate = summed(self)
        aggregate.ring[0, 0] += aggregate.ring.dtype.type(1)
        return aggregate

    assert_lossless(**federation_of(execution="real"))
    monkeypatch.setattr(HostedSharedSum, "aggregate", off_by_one)
    with pytest.raises(LosslessnessError, match="the halves opened"):
        assert_lossless(**federation_of(execution="real"))


@SLOW
@given(st.data())
def test_a_faulty_wire_never_yields_another_sum(data: st.DataObject) -> None:
    fault = data.draw(faults(max_round=3, steps=(Step.UPLOAD, Step.SHARE, Step.DENOISE)))
    config = data.draw(pmf_configs(max_rounds=3))
    federation = data.draw(shared_federations(width=config.rank, execution="simulated"))
    try:
        assert_lossless(algorithm=lambda: PMF(config), **federation.arguments(faults=(fault,)))
    except ProtocolError:
        assert fault.chooser.hits  # type: ignore[attr-defined]
    else:
        assert not fault.chooser.hits  # type: ignore[attr-defined]


class Spy:
    """A recorder that keeps what receivers read."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def record(self, messages: Any, *, origins: Any) -> None:
        del origins
        if messages.step is not Step.AGGREGATE:
            self.seen.append(messages)


def submitted(
    collector: Any, *, clients: int = 12, batch: int = 5, seed: int = 1
) -> tuple[Any, dict[int, Any], Spy, Meter]:
    """One round of random rows through a collector."""
    spy, meter = Spy(), Meter(clients)
    wire = Wire(meter=meter, recorder=spy)  # type: ignore[arg-type]
    session = collector.open(round_=1, participants=np.arange(clients), wire=wire)
    truth: dict[int, Any] = {}
    limit = collector.codec.largest
    for start in range(0, clients, batch):
        chosen = session.order[start : start + batch]
        values, virtual = [], []
        for client in chosen.tolist():
            rng = np.random.default_rng([seed, client])
            truth[client] = np.flatnonzero(rng.random(collector.n_items) < 0.5).astype(np.int32)
            size = (len(truth[client]), collector.width)
            values.append(rng.integers(-limit, limit, size))
            virtual.append(rng.random(len(truth[client])) < 0.5)
        block = RowBlock(
            indptr=np.concatenate([[0], np.cumsum([len(rows) for rows in virtual])]),
            rows=np.concatenate([truth[client] for client in chosen.tolist()]),
            values=collector.codec.from_integers(np.concatenate(values)),
        )
        session.submit(chosen, block, np.concatenate(virtual))
    return session.close(), truth, spy, meter


def collector_of(*, execution: str, bits: int = 40, count: int = 2, kem: str = "x25519") -> Any:
    return shared_upload(
        SharedUploadConfig(count=count, floor=5, execution=execution, kem=kem),
        n_clients=12,
        n_items=15,
        width=3,
        codec=FixedPoint(bits=bits, fraction_bits=4, clip=2.0),
        streams=Streams.from_seed(1),
    )


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("bits", [20, 32, 40, 64])
def test_each_message_holds_what_its_receiver_may_see(execution: str, bits: int) -> None:
    collector = collector_of(execution=execution, bits=bits)
    aggregate, truth, spy, _ = submitted(collector)
    by_holder: dict[Any, Any] = {}
    for messages in spy.seen:
        for place, sender in enumerate(messages.senders.ids.tolist()):
            part = messages.select(np.array([place])).payload
            receiver = int(messages.receivers.ids[place])
            by_holder.setdefault((messages.step, receiver), {})[sender] = part
    holders = [(Step.UPLOAD, 0), (Step.SHARE, 0), (Step.SHARE, 1)]
    assert set(by_holder) == {*holders, (Step.DENOISE, 0)}
    codec = collector.codec
    total = np.zeros((15, 4), dtype=codec.dtype)
    for holder in holders:
        assert set(by_holder[holder]) == set(truth)
        for client, block in by_holder[holder].items():
            assert block.rows.tolist() == truth[client].tolist()  # the support, and
            words = np.column_stack([block.values, codec.from_integers(block.counts)])
            np.add.at(total, block.rows, words)
    assert (codec.from_integers(codec.to_integers(total[:, :3])) == aggregate.ring).all()
    assert codec.to_integers(total[:, 3]).tolist() == aggregate.counts.tolist()


def seen_words(view: View, step: Step, round_: int, codec: FixedPoint) -> tuple[Any, Any]:
    """(client and row of each share, its words [N, d + 1]) in a view."""
    messages = view.messages(step, round_, payload=True)
    block = messages.payload
    assert isinstance(block, RowBlock)
    assert block.values is not None
    assert block.counts is not None
    senders = np.repeat(messages.senders.ids, block.lengths)
    counts = codec.from_integers(block.counts)[:, None]
    return np.column_stack([senders, block.rows]), np.concatenate([block.values, counts], axis=1)


def test_views_of_proper_subsets_are_supports_and_uniform_words() -> None:
    run = federation_of()
    ratings, codec = run["ratings"], run["stack"].codec
    algorithm = run["algorithm"]()
    recorded = RecordedRun(
        algorithm=algorithm,
        stack=run["stack"],
        problem=rating_problem(algorithm, ratings),
        streams=run["streams"],
        policy=RecordingPolicy(payload_rounds=(1,)),
    )
    recorded.run_round()
    views = {
        name: recorded.transcript.view(Adversary(name=name, corrupt=frozenset(parties)))
        for name, parties in (
            ("server", {"server"}),
            ("one denoiser", {"denoiser:1"}),
            ("denoisers", {"denoisers"}),
            ("all", {"server", "denoisers"}),
        )
    }
    assert not views["server"].sees(Step.SHARE)
    for name in ("one denoiser", "denoisers"):
        assert not views[name].sees(Step.UPLOAD)
        assert not views[name].sees(Step.AGGREGATE)
    named, server = seen_words(views["server"], Step.UPLOAD, 1, codec)
    _, one = seen_words(views["one denoiser"], Step.SHARE, 1, codec)
    both_named, both = seen_words(views["denoisers"], Step.SHARE, 1, codec)
    assert len(one) == len(server)
    assert len(both) == 2 * len(server)
    for words in (server, one, both):
        counts = np.bincount(np.ascontiguousarray(words).view(np.uint8).ravel(), minlength=256)
        assert chisquare(counts).pvalue > 1e-6
    # All together hold the rows: the shares of each (client, row) add up to its words and its mark.
    total: dict[tuple[int, int], Any] = {}
    for key, words in zip([*named.tolist(), *both_named.tolist()], [*server, *both], strict=True):
        total[tuple(key)] = total.get(tuple(key), 0) + words
    rated = set(zip(ratings.clients.tolist(), ratings.items.tolist(), strict=True))
    assert {key for key, words in total.items() if words[-1] == 1} == rated
    assert all(not words.any() for key, words in total.items() if key not in rated)


@pytest.mark.parametrize("kem", ["x25519", "mlkem768-x25519"])
def test_simulated_and_real_messages_cost_the_same(kem: str) -> None:
    meters = []
    for execution in EXECUTIONS:
        _, _, _, meter = submitted(collector_of(execution=execution, kem=kem))
        meters.append({name: column.tolist() for name, column in meter.state().items()})
    assert meters[0] == meters[1]
    assert sum(meters[0]["bytes_sent"]) > 0
    # Of each denoiser a key, HELD and CONSENT; to each PROPOSAL and AGREEMENT; to clients the keys.
    assert meters[0]["beside"][0] == 2 * (3 + 2) + 12 * 2


def test_batches_do_not_matter() -> None:
    results = [
        submitted(collector_of(execution="simulated"), batch=batch)[0] for batch in (1, 5, 12)
    ]
    for result in results[1:]:
        assert result.ring.tolist() == results[0].ring.tolist()
        assert result.counts.tolist() == results[0].counts.tolist()


def test_rounds_below_the_floor_and_impossible_settings_are_refused() -> None:
    collector = collector_of(execution="simulated")
    with pytest.raises(ProtocolError, match="4 clients are fewer than the floor of 5"):
        collector.open(round_=1, participants=np.arange(4), wire=Wire(meter=Meter(12)))
    shape = {"n_clients": 80, "n_items": 5, "width": 2, "codec": FixedPoint()}
    streams = Streams.from_seed(1)
    for config, key in (
        (SharedUploadConfig(count=81), "protection.count"),
        (SharedUploadConfig(floor=81), "protection.floor"),
    ):
        with pytest.raises(ConfigError, match="there are 80 clients") as refusal:
            SharedUpload(config, **shape, streams=streams)  # type: ignore[arg-type]
        assert refusal.value.key == key
    large = SharedUpload(SharedUploadConfig(execution="real"), **shape, streams=streams)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at most 64 run with real cryptography"):
        large.open(round_=1, participants=np.arange(65), wire=Wire(meter=Meter(80)))


def test_everybody_in_the_cohort_takes_part_and_nobody_is_exempt() -> None:
    collector = collector_of(execution="simulated")
    cohort = np.array([7, 3, 9, 1, 2, 11])
    assert collector.participants(cohort).tolist() == sorted(cohort.tolist())
    session = collector.open(round_=1, participants=np.sort(cohort), wire=Wire(meter=Meter(12)))
    assert not session.exempt(cohort).any()
    name, settings_ = collector.describe()
    assert name == "shared-upload"
    assert settings_["clients"] == collector.denoisers.tolist()
    assert len(set(settings_["clients"])) == settings_["count"] == 2


def test_expected_traffic_covers_what_is_sent() -> None:
    collector = collector_of(execution="simulated")
    _, truth, spy, _ = submitted(collector)
    rows = np.array([len(truth[client]) for client in range(12)])
    expected = {part.step: part for part in collector.traffic(rows, rows // 2)}
    for step in (Step.UPLOAD, Step.SHARE, Step.DENOISE):
        sent = [messages for messages in spy.seen if messages.step is step]
        assert sum(len(messages) for messages in sent) == expected[step].messages
        assert sum(len(messages.payload.rows) for messages in sent) <= expected[step].rows


def test_direct_sums_agree() -> None:
    """Shared uploads and plain summation of the same rated rows: the same words."""
    shape = {"n_clients": 12, "n_items": 15, "width": 3}
    shared = collector_of(execution="real", bits=64)
    direct = DirectSum(**shape, codec=shared.codec)
    rng = np.random.default_rng(0)
    block = RowBlock(
        indptr=np.arange(0, 15 * 12 + 1, 15),
        rows=np.tile(np.arange(15, dtype=np.int32), 12),
        values=shared.codec.encode(rng.uniform(-2, 2, (180, 3))),
    )
    results = []
    for collector in (shared, direct):
        session = collector.open(round_=1, participants=np.arange(12), wire=Wire(meter=Meter(12)))
        session.submit(np.arange(12), block, np.zeros(180, dtype=bool))
        results.append(session.close())
    assert results[0].ring.tolist() == results[1].ring.tolist()
    assert results[0].counts.tolist() == results[1].counts.tolist()
