"""What travels beside uploads: rows between clients, parts of the state for some, own measures."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.engines import (
    CohortConfig,
    LocalEngine,
    Problem,
    RecordedRun,
    projected_transcript_bytes,
    sizes_of,
)
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import assert_lossless
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, DenseBlock, PeerBlock, RowBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import (
    Adversary,
    Messages,
    Meter,
    Parties,
    RecordingPolicy,
    Step,
    View,
    Wire,
)

N, WIDTH = 5, 2
CODEC = FixedPoint(bits=48, fraction_bits=20, clip=1000.0)
PART, OTHER = np.array([1, 3]), np.array([0, 4])


class Ring:
    """Every client gives its number to the next one, and uploads what it was given.

    The extra "some" is for clients 1 and 3, "other" for 0 and 4.
    """

    width, rounds = WIDTH, 4

    def __init__(self, *, give: Any = None) -> None:
        self.give_instead = give

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        extras = {"all": np.ones(3), "some": np.full(2, 7.0), "other": np.full((2, 2), 8.0)}
        return PublicState(round=0, table=np.zeros((n_rows, WIDTH)), extras=extras)

    def addressed(self, public: PublicState) -> Mapping[str, IntArray]:
        return {"some": PART, "other": OTHER}

    def initialise(self, vault: Vault, streams: Streams) -> None:
        vault.create("given", np.full((vault.n_clients, 2), -1.0))

    def give(self, clients: IntArray, public: Any, vault: Vault, streams: Streams) -> PeerBlock:
        if self.give_instead is not None:
            found: PeerBlock = self.give_instead(clients)
            return found
        return given(clients, (clients + 1) % N, 10.0 * clients + public.round)

    def take(self, clients: IntArray, given: PeerBlock, vault: Vault) -> None:
        assert given.block.values is not None
        values = given.block.values[:, 0]
        vault.write("given", given.receivers, np.stack([given.senders, values], axis=1))

    def given_rows(self, n_clients: int) -> tuple[int, int, int]:
        return n_clients, n_clients, 1

    def client_step(self, clients: IntArray, public: Any, vault: Vault, streams: Any) -> "Given":
        return Given(clients, vault.read("given", clients))

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        extras = {**public.extras, "some": public.extras["some"] + 1}
        return replace(public, round=public.round + 1, table=aggregate.values, extras=extras)

    def public_knowledge(self) -> dict[str, Any]:
        return {"name": "ring"}


class Given:
    def __init__(self, clients: IntArray, held: FloatArray) -> None:
        self.clients, self._held = clients, held

    @property
    def upload(self) -> Upload:
        size = len(self.clients)
        indptr, rows = np.arange(size + 1), np.zeros(size, dtype=np.int32)
        block = RowBlock(indptr=indptr, rows=rows, values=self._held.copy())
        return Upload(clients=self.clients, blocks={TABLE: block})

    def measure(self) -> Mapping[str, FloatArray]:
        return {"held": self._held[:, 1], "odd": np.where(self.clients % 2, 1.0, np.nan)}

    def commit(self, vault: Vault) -> None:
        vault.write("given", self.clients, np.zeros_like(self._held))


def given(senders: IntArray, receivers: IntArray, values: FloatArray) -> PeerBlock:
    size = len(senders)
    block = RowBlock(
        indptr=np.arange(size + 1), rows=np.zeros(size, np.int32), values=values[:, None]
    )
    return PeerBlock(senders=senders, receivers=receivers, block=block)


def problem() -> Problem:
    return Problem(vault=Vault.of_examples(np.arange(N + 1), {"n": np.arange(N)}), n_rows=1)


def engine_of(algorithm: Ring, **settings: Any) -> LocalEngine:
    data, streams = problem(), Streams.from_seed(1)
    sizes = sizes_of(algorithm, data)
    return LocalEngine(
        algorithm=algorithm,
        stack=build_stack({}, sizes=sizes, codec=CODEC, streams=streams),
        vault=data.vault,
        n_rows=1,
        streams=streams,
        **{"wire": Wire(meter=Meter(N)), **settings},
    )


@pytest.mark.parametrize("batch_bytes", [1, 130, 10**6])
def test_clients_work_with_what_others_gave_them(batch_bytes: int) -> None:
    engine = engine_of(Ring(), batch_bytes=batch_bytes)
    for round_ in range(3):
        report = engine.run_round()
        received = 10.0 * np.roll(np.arange(N), 1) + round_
        assert engine.public.table.tolist() == [[10.0, received.sum()]]
        assert report.of_clients["held"].tolist() == received.tolist()
        assert report.metrics is not None
        assert report.metrics["held"] == received.mean()
        odd = report.of_clients["odd"]
        assert np.isnan(odd[::2]).all()
        assert (odd[1::2] == 1).all()
        assert report.metrics["odd"] == 1


def test_only_those_who_take_part_give_and_measure() -> None:
    everybody = given(np.arange(N), (np.arange(N) + 1) % N, np.zeros(N))
    engine = engine_of(Ring(), cohort=CohortConfig(clients_per_round=2))
    with pytest.raises(WireError, match="takes no part in this exchange"):
        engine.run_round()
    assert engine.public.round == 0
    silent = engine_of(
        Ring(give=lambda clients: given(clients[:0], clients[:0], np.zeros(0))),
        cohort=CohortConfig(clients_per_round=2),
    )
    report = silent.run_round()
    assert np.isnan(report.of_clients["held"]).sum() == N - 2
    with pytest.raises(WireError, match="takes no part"):
        engine_of(Ring(give=lambda clients: everybody), batch_bytes=1).run_round()


def test_plain_sums_are_of_what_others_gave_as_well() -> None:
    sizes, streams = sizes_of(Ring(), problem()), Streams.from_seed(1)
    stack = build_stack({}, sizes=sizes, codec=CODEC, streams=streams)
    found = assert_lossless(algorithm=Ring, problem=problem, streams=streams, stack=stack, rounds=3)
    assert (found.taken, found.rows) == (3 * N, 3 * N)


def test_measures_are_taken_when_they_are_asked_for() -> None:
    engine = engine_of(Ring(), measure_every=3)
    measured = [bool(engine.run_round().of_clients) for _ in range(4)]
    assert measured == [False, False, True, True]  # the last round always


class Fault:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def apply(self, messages: Messages) -> Messages:
        if messages.step is not Step.PEER or messages.round != 2:
            return messages
        every = np.arange(len(messages))
        if self.kind == "late":
            return replace(messages, round=1)
        return messages.select(every[1:] if self.kind == "lost" else every[[0, *every]])


@pytest.mark.parametrize("kind", ["lost", "repeated", "late"])
def test_a_lost_repeated_or_late_exchange_undoes_the_round(kind: str) -> None:
    engine = engine_of(Ring(), wire=Wire(meter=Meter(N), faults=(Fault(kind),)), batch_bytes=1)
    engine.run_round()
    before = engine.state()
    with pytest.raises(ProtocolError, match="between clients was lost, repeated or late"):
        engine.run_round()
    for name, values in engine.state().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)


def test_a_value_beyond_the_ring_is_not_sent() -> None:
    large = Ring(give=lambda clients: given(clients, (clients + 1) % N, np.full(len(clients), 1e4)))
    with pytest.raises(EncodingError, match="exceeds"):
        engine_of(large).run_round()


def test_nobody_gives_to_itself_or_twice_to_another() -> None:
    for senders, receivers in (([1], [1]), ([1, 1], [2, 2])):
        with pytest.raises(WireError, match="to other clients only, and to each of them once"):
            given(np.array(senders), np.array(receivers), np.zeros(len(senders)))
    with pytest.raises(WireError, match="2 receivers for 1 segments"):
        PeerBlock(
            senders=np.array([0]),
            receivers=np.array([1, 2]),
            block=given(np.array([0]), np.array([1]), np.zeros(1)).block,
        )


def recorded() -> RecordedRun:
    algorithm, data, streams = Ring(), problem(), Streams.from_seed(1)
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack({}, sizes=sizes_of(algorithm, data), codec=CODEC, streams=streams),
        problem=data,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(2,)),
    )
    for _ in range(2):
        run.run_round()
    return run


def seen_by(run: RecordedRun, *corrupt: str) -> View:
    return run.transcript.view(Adversary(name="one", corrupt=frozenset(corrupt)))


def test_an_exchange_is_seen_by_its_two_ends() -> None:
    run = recorded()
    assert not seen_by(run, "server").sees(Step.PEER)
    for clients, pairs in ((("2",), {(1, 2), (2, 3)}), (("0", "1"), {(4, 0), (0, 1), (1, 2)})):
        view = seen_by(run, *(f"client:{number}" for number in clients))
        messages = view.messages(Step.PEER, 2, payload=True)
        ends = zip(messages.senders.ids.tolist(), messages.receivers.ids.tolist(), strict=True)
        assert set(ends) == pairs
        assert isinstance(messages.payload, RowBlock)
        assert messages.payload.values is not None
        values = CODEC.decode(messages.payload.values)[:, 0]
        np.testing.assert_array_equal(values, 10.0 * messages.senders.ids + 1)
    tap = run.transcript.view(Adversary(name="tap", taps=frozenset({"network"})))
    senders, receivers, sizes = tap.traffic(2)[Step.PEER]
    assert receivers.tolist() == ((senders + 1) % N).tolist()
    assert (sizes > 0).all()


def test_a_part_is_seen_by_the_server_and_those_it_is_for() -> None:
    run = recorded()
    for corrupt, names in (
        (("server",), {"all", "some", "other"}),
        (("client:3",), {"all", "some"}),
        (("client:0",), {"all", "other"}),
        (("client:2",), {"all"}),
        (("client:1", "client:4"), {"all", "some", "other"}),
    ):
        view = seen_by(run, *corrupt)
        assert view.extras(2).keys() == names
        assert view.extras(2, after=True).keys() == names
        for after in (False, True):
            if "some" in names:
                assert view.extras(2, after=after)["some"].tolist() == [8.0 + after] * 2


def test_both_are_metered_at_both_ends() -> None:
    engine = engine_of(Ring())
    engine.run_round()
    meter = engine.wire.meter
    one = 16 + 4 + 6  # header, row number, and a value of the ring
    common = 8 * (1 * WIDTH + 3)
    upload = 16 + 4 + 6 * WIDTH
    assert meter.clients("bytes_sent").tolist() == [one + upload] * N
    extra = np.array([32, 16, 0, 16, 32])
    assert meter.clients("bytes_received").tolist() == (common + extra + one).tolist()
    assert meter.server("bytes_sent") == N * common + extra.sum()
    assert meter.clients("vectors_received").tolist() == [1] * N


def test_the_projected_size_counts_the_exchange() -> None:
    algorithm, data = Ring(), problem()
    run = recorded()
    assert run.transcript.bytes > 0
    stack = run.engine.stack
    policy = RecordingPolicy(payload_rounds=(2,))
    with_it = projected_transcript_bytes(algorithm, stack, data, policy)
    algorithm.given_rows = lambda n_clients: (0, 0, 1)  # type: ignore[method-assign]
    without = projected_transcript_bytes(algorithm, stack, data, policy)
    assert with_it - without == 4 * (N * 40 + N * 2) + N * 8


def test_a_part_that_is_not_there_or_that_the_server_cannot_read_is_refused() -> None:
    class Wrong(Ring):
        def addressed(self, public: PublicState) -> Mapping[str, IntArray]:
            return {"nothing": PART}

    with pytest.raises(WireError, match="no extra 'nothing': there are all, some, other"):
        engine_of(Wrong()).run_round()
    algorithm, data, streams = Ring(), problem(), Streams.from_seed(1)
    layers, sizes = {"paillier": EncryptionLayerConfig(holder="clients")}, sizes_of(algorithm, data)
    with pytest.raises(ConfigError, match="each is sent all of the state"):
        LocalEngine(
            algorithm=algorithm,
            stack=build_stack(layers, sizes=sizes, codec=CODEC, streams=streams),
            vault=data.vault,
            n_rows=1,
            streams=streams,
            wire=Wire(meter=Meter(N)),
        )


def test_reals_are_sent_by_the_server_only() -> None:
    part = DenseBlock(values=np.zeros(0), shape=(0,), extras={"some": np.zeros(1)})
    one = Parties(role="client", ids=np.array([0]))
    stray = Messages(
        round=1, step=Step.PART, senders=one, receivers=one, payload=part, sizes=np.array([8])
    )
    with pytest.raises(WireError, match="sent by the server"):
        Wire(meter=Meter(N)).send(stray)
