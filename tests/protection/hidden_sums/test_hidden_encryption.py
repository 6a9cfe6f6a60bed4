"""Encrypted uploads: who reads what, real halves against plain sums, rounds that are given up."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.engines import RecordedRun
from secure_fedrec.engines.public_state_words import PublicStateWords
from secure_fedrec.errors import LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Sizes, build_stack
from secure_fedrec.protection.base.carried_out import WatchedStep
from secure_fedrec.protection.base.dense_uploads import DenseLayout
from secure_fedrec.protection.paillier import PrivateKey, generate_key
from secure_fedrec.protection.paillier import hosted as encrypted
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.paillier.embedded import EncryptedSum
from secure_fedrec.protection.paillier.messages.tables import TableReader
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Adversary, Alter, Meter, Step, Wire

pytestmark = pytest.mark.usefixtures("one_paillier_key")

N_CLIENTS, N_ITEMS, RANK = 10, 24, 3
HOLDERS = ("authority", "clients")
Run = Callable[..., RecordedRun]
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))


def layers_of(holder: str, execution: str = "real", **settings: Any) -> dict[str, Any]:
    config = EncryptionLayerConfig(holder=holder, execution=execution, key_bits=2048, **settings)
    return {"paillier": config}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[PrivateKey]:
    """Keys made during a test, in order."""
    found: list[PrivateKey] = []

    def generate(bits: int) -> PrivateKey:
        found.append(generate_key(bits))
        return found[-1]

    monkeypatch.setattr(encrypted, "generate_key", generate)
    return found


def test_clients_with_the_key_keep_the_sums_from_the_server(run_of: Run) -> None:
    run = run_of({"paillier": EncryptionLayerConfig(holder="clients")}, done=1)
    view = run.transcript.view(SERVER)
    assert view.rounds(Step.AGGREGATE) == ()
    assert not view.sees(Step.MODEL)
    client = Adversary(name="client", corrupt=frozenset({"client:0"}))
    assert run.transcript.view(client).sees(Step.MODEL)
    opened = run_of({"paillier": EncryptionLayerConfig(holder="authority")}, done=1)
    assert opened.transcript.view(SERVER).rounds(Step.AGGREGATE) == (1,)
    assert opened.transcript.view(SERVER).sees(Step.MODEL)


@pytest.mark.parametrize("cohort", [None, 6])
@pytest.mark.parametrize("holder", HOLDERS)
def test_simulated_rounds_cost_what_real_ones_do(
    holder: str, cohort: int | None, run_of: Run
) -> None:
    real, simulated = (
        run_of(layers_of(holder, execution), cohort=cohort, done=3).engine.wire.meter.state()
        for execution in ("real", "simulated")
    )
    assert real.keys() == simulated.keys()
    for name, totals in real.items():
        assert totals.tolist() == simulated[name].tolist(), name
    beside = {"authority": 2, "clients": 4}[holder] * 3
    assert real["beside"][0] == beside
    assert bool(real["authority"].any()) == (holder == "authority")


@pytest.mark.parametrize("holder", HOLDERS)
def test_changing_cohorts_go_on_with_one_key(
    holder: str, run_of: Run, made: list[PrivateKey]
) -> None:
    plain = run_of({}, cohort=5, done=3)
    hidden = run_of(layers_of(holder), cohort=5, done=3)
    assert hidden.table_digests == plain.table_digests
    assert len({tuple(plain.engine.participants(number)) for number in (1, 2, 3)}) > 1
    assert len(made) == 1


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_decryption_that_is_off_is_caught(
    holder: str, run_of: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = DenseLayout.split

    def opened_wrongly(self: DenseLayout, words: RingArray, codec: FixedPoint) -> Aggregate:
        return split(self, _moved(words), codec)

    monkeypatch.setattr(DenseLayout, "split", opened_wrongly)
    with pytest.raises(LosslessnessError, match="sum that the halves opened"):
        run_of(layers_of(holder)).run_round()


def _moved(words: RingArray) -> RingArray:
    moved = words.copy()
    moved[0] += words.dtype.type(1)
    return moved


def test_clients_that_step_elsewhere_together_are_caught(
    run_of: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = WatchedStep.after

    def elsewhere(self: WatchedStep, *arguments: Any) -> RingArray:
        self.made[-1:] = [_moved(right(self, *arguments))]
        return self.made[-1]

    monkeypatch.setattr(WatchedStep, "after", elsewhere)
    with pytest.raises(LosslessnessError, match="next state differs"):
        run_of(layers_of("clients")).run_round()


def test_clients_that_disagree_abort_the_round_and_the_next_begins_anew(
    run_of: Run, monkeypatch: pytest.MonkeyPatch, made: list[PrivateKey]
) -> None:
    run = run_of(layers_of("clients"), done=1)
    before = run.engine.state()
    right = WatchedStep.after

    def second_is_off(self: WatchedStep, *arguments: Any) -> RingArray:
        found = right(self, *arguments)
        return found if len(self.made) == 1 else _moved(found)

    with monkeypatch.context() as patch:
        patch.setattr(WatchedStep, "after", second_is_off)
        with pytest.raises(ProtocolError, match="computed different tables"):
            run.run_round()
    for name, value in run.engine.state().items():
        assert np.array_equal(value, before[name], equal_nan=True), name
    assert len(made) == 1
    run.run_round()
    assert run.table_digests == run_of({}, done=2).table_digests
    assert len(made) == 2


def test_a_client_that_reads_another_state_is_caught(
    run_of: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, run = TableReader.open, run_of(layers_of("clients"), done=1)
    monkeypatch.setattr(TableReader, "open", lambda *given: _moved(right(*given)))
    with pytest.raises(LosslessnessError, match="client 0 decrypted another state"):
        run.run_round()


@pytest.mark.parametrize("holder", HOLDERS)
def test_bytes_that_change_on_the_way_abort_the_round(holder: str, run_of: Run) -> None:
    tries = iter([True])

    def first(parcels: Any) -> Any:
        return (np.arange(len(parcels)) == 0) & next(tries, False)

    run = run_of(layers_of(holder), faults=(Alter(stage="UPLOAD", at=200, chooser=first),))
    before = run.engine.state()
    with pytest.raises(ProtocolError, match="bad signature"):
        run.run_round()
    for name, value in run.engine.state().items():
        assert np.array_equal(value, before[name], equal_nan=True), name
    run.run_round()
    assert run.table_digests == run_of({}, done=1).table_digests


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_resumed_run_goes_on_to_the_same_bits(holder: str, run_of: Run) -> None:
    first = run_of(layers_of(holder), done=1)
    resumed = run_of(layers_of(holder))
    resumed.engine.restore(first.engine.state())
    resumed.run_round()
    assert resumed.table_digests == run_of({}, done=2).table_digests[1:]


def test_a_state_that_changed_between_rounds_is_refused(run_of: Run) -> None:
    run = run_of(layers_of("clients"), done=1)
    run.engine.public.table[0, 0] += 1.0
    with pytest.raises(
        LosslessnessError, match="client 0 decrypted another state than the engine's"
    ):
        run.run_round()


@pytest.mark.parametrize("execution", ["real", "simulated"])
def test_clients_bring_the_state_to_a_round(execution: str) -> None:
    stack = build_stack(
        layers_of("clients", execution),
        sizes=Sizes(n_clients=N_CLIENTS, n_items=N_ITEMS, width=RANK, cohort=N_CLIENTS),
        codec=FixedPoint(),
        streams=Streams.from_seed(1),
    )
    wire = Wire(meter=Meter(N_CLIENTS))
    everybody = np.arange(N_CLIENTS)
    session = stack.collector.open(round_=1, participants=everybody, wire=wire)
    empty = RowBlock(
        indptr=np.zeros(N_CLIENTS + 1, dtype=np.int64),
        rows=np.empty(0, dtype=np.int32),
        values=np.empty((0, RANK), dtype=np.uint64),
    )

    def submitted() -> None:
        session.submit(everybody, empty, np.empty(0, dtype=bool))  # a simulation hides at once
        session.close()

    with pytest.raises(ProtocolError, match="no public state was handed to the clients"):
        submitted()


@pytest.mark.parametrize("execution", ["real", "simulated"])
def test_the_broadcast_has_the_size_of_the_encrypted_state(execution: str, run_of: Run) -> None:
    run = run_of(layers_of("clients", execution), done=1)
    collector = run.engine.stack.collector
    assert isinstance(collector, EncryptedSum)
    words = PublicStateWords(run.engine.algorithm, run.engine.public).words
    size = collector.broadcast_bytes(len(words))
    received = run.engine.wire.meter.clients("bytes_received")
    # 72 words of 65 bits at 31 to a plaintext: three ciphertexts, beside 212 bytes around them.
    assert size == 3 * 512 + 212
    assert received.min() == size
    plain = run_of({}, done=1).engine.wire.meter.clients("bytes_received")
    assert set(plain.tolist()) == {8 * len(words)}
