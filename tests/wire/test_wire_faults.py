"""Faulty wires: a round that lost, repeated or delayed a message is refused and trains nobody."""

from collections.abc import Callable

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import LocalEngine, RecordedRun, rating_problem
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    Denoisers,
    DenoisersConfig,
    DirectSum,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.base import Collector
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Alter, Delay, Drop, Fault, Messages, RecordingPolicy, Repeat, Step

N_CLIENTS, N_ITEMS, ETA, RANK = 16, 20, 2, 3
STEPS = [Step.UPLOAD, Step.NOISE, Step.DENOISE]


def one(messages: Messages) -> BoolArray:
    """The first message of a batch."""
    struck = np.zeros(len(messages), dtype=bool)
    struck[:1] = True
    return struck


def everyone(messages: Messages) -> BoolArray:
    return np.ones(len(messages), dtype=bool)


class In:
    """Strikes in one round only."""

    def __init__(self, round_: int, fault: Fault) -> None:
        self.round = round_
        self.fault = fault

    def apply(self, messages: Messages) -> Messages:
        if messages.round == self.round:
            messages = self.fault.apply(messages)
        return messages


class Once:
    """Strikes the first batch it would change and never again."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.armed = True

    def apply(self, messages: Messages) -> Messages:
        if not self.armed:
            return messages
        delivered: Messages = self.fault.apply(messages)
        self.armed = delivered is messages
        return delivered


def run_with(*faults: Fault, denoisers: bool = True) -> RecordedRun:
    clients, items = np.nonzero(np.random.default_rng(3).random((N_CLIENTS, N_ITEMS)) < 0.3)
    ratings = RatingTable.from_columns(
        name="made up",
        n_clients=N_CLIENTS,
        n_items=N_ITEMS,
        clients=clients,
        items=items,
        ratings=np.asarray(1 + (clients + 2 * items) % 5, dtype=np.float64),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(N_CLIENTS),
        item_labels=np.arange(N_ITEMS),
    )
    streams, codec = Streams.from_seed(9), FixedPoint()
    sizes = {"n_clients": N_CLIENTS, "n_items": N_ITEMS, "width": RANK}
    collector: Collector = DirectSum(codec=codec, **sizes)
    if denoisers:
        config = DenoisersConfig(count=ETA)
        collector = Denoisers(config, codec=codec, streams=streams, **sizes)
    cloak = VirtualRatings(VirtualRatingsConfig(), n_items=N_ITEMS, streams=streams)
    algorithm = PMF(PMFConfig.printed(rank=RANK, rounds=3))
    return RecordedRun(
        algorithm=algorithm,
        stack=Stack(codec=codec, cloak=cloak, collector=collector, n_clients=N_CLIENTS),
        problem=rating_problem(algorithm, ratings),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 2)),
        faults=faults,
    )


def learned(engine: LocalEngine) -> dict[str, FloatArray]:
    """Public table and private tables."""
    everybody = np.arange(engine.vault.n_clients)
    private = {name: engine.vault.read(name, everybody) for name in engine.vault.names()}
    return {"table": engine.public.table.copy(), **private}


def same(left: dict[str, FloatArray], right: dict[str, FloatArray]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].tobytes() == right[name].tobytes() for name in left
    )


def require_refusal(run: RecordedRun) -> None:
    before, round_ = learned(run.engine), run.completed
    with pytest.raises(ProtocolError):
        run.run_round()
    assert run.completed == round_
    assert same(learned(run.engine), before)


KINDS: dict[str, Callable[[Step, Callable[[Messages], BoolArray]], Fault]] = {
    "drop": lambda step, chooser: Drop(step=step, chooser=chooser),
    "repeat": lambda step, chooser: Repeat(step=step, chooser=chooser),
    "delay": lambda step, chooser: Delay(step=step, chooser=chooser),
}


@pytest.mark.claim("incomplete-round-fails")
@pytest.mark.parametrize("chooser", [one, everyone])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.lower())
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("round_", [1, 2])
def test_a_faulty_round_is_refused(
    kind: str, step: Step, chooser: Callable[[Messages], BoolArray], round_: int
) -> None:
    run = run_with(In(round_, KINDS[kind](step, chooser)))
    for _ in range(round_ - 1):
        run.run_round()
    require_refusal(run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_faulty_round_of_plain_uploads_is_refused(kind: str) -> None:
    require_refusal(run_with(KINDS[kind](Step.UPLOAD, one), denoisers=False))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.lower())
def test_a_message_of_the_last_round_is_refused(step: Step) -> None:
    delay = Delay(step=step, chooser=everyone)
    run, healthy = run_with(delay), run_with()
    require_refusal(run)
    healthy.run_round()
    # Another run completed round 1; the held message now arrives in round 2.
    run.engine.restore(healthy.engine.state())
    with pytest.raises(ProtocolError, match="of round 1"):
        run.run_round()
    assert same(learned(run.engine), learned(healthy.engine))


@pytest.mark.claim("incomplete-round-fails")
def test_a_repeat_does_not_stand_in_for_a_lost_noise_message() -> None:
    """Counting messages per denoiser alone would accept this round and sum the wrong noise."""

    def of_denoiser_0(messages: Messages, place: int) -> BoolArray:
        struck = np.zeros(len(messages), dtype=bool)
        struck[np.flatnonzero(messages.receivers.ids == 0)[place]] = True
        return struck

    run = run_with(
        Drop(step=Step.NOISE, chooser=lambda messages: of_denoiser_0(messages, 0)),
        Repeat(step=Step.NOISE, chooser=lambda messages: of_denoiser_0(messages, 0)),
    )
    with pytest.raises(ProtocolError, match="arrived twice"):
        run.run_round()
    require_refusal(run)


@pytest.mark.claim("plain-alteration-undetected")
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.lower())
def test_an_altered_message_is_not_detected_but_changes_the_result(step: Step) -> None:
    altered, healthy = run_with(Alter(step=step, chooser=one)), run_with()
    altered.run_round()
    healthy.run_round()
    different = np.argwhere(altered.engine.public.table != healthy.engine.public.table)
    assert len(different) >= 1
    assert {column for _, column in different.tolist()} == {0}  # one bit of a first value
    gap = np.abs(altered.engine.public.table - healthy.engine.public.table).max()
    assert 0 < gap <= ETA * FixedPoint().resolution


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.lower())
def test_a_refused_round_can_be_run_again(kind: str, step: Step) -> None:
    run, healthy = run_with(Once(KINDS[kind](step, one))), run_with()
    require_refusal(run)
    for _ in range(2):
        run.run_round()
        healthy.run_round()
    assert same(learned(run.engine), learned(healthy.engine))
    assert run.transcript.digest() == healthy.transcript.digest()  # nothing of the first try left


def test_faults_of_other_steps_leave_messages_alone() -> None:
    sent: list[Messages] = []

    class Spy:
        def apply(self, messages: Messages) -> Messages:
            for kind in KINDS.values():
                for step in Step:
                    if step is not messages.step:
                        assert kind(step, everyone).apply(messages) is messages
                        assert Alter(step=step, chooser=everyone).apply(messages) is messages
            sent.append(messages)
            return messages

    run_with(Spy()).run_round()
    assert {messages.step for messages in sent} == {Step.MODEL, *STEPS}


def test_a_delayed_message_arrives_once_and_in_place_of_a_batch() -> None:
    sent: list[Messages] = []

    class Spy:
        def apply(self, messages: Messages) -> Messages:
            if messages.step is Step.UPLOAD:
                sent.append(messages)
            return messages

    run = run_with(Spy())
    for _ in range(3):
        run.run_round()
    by_round = {number: [m for m in sent if m.round == number] for number in (1, 2, 3)}
    delay = Delay(step=Step.UPLOAD, chooser=one)
    first = by_round[1][0]
    kept = delay.apply(first)
    assert kept.senders.ids.tolist() == first.senders.ids[1:].tolist()
    late = delay.apply(by_round[2][0])
    assert (late.round, late.senders.ids.tolist()) == (1, first.senders.ids[:1].tolist())
    assert delay.apply(by_round[3][0]).round == 3
