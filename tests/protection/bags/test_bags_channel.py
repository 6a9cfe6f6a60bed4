"""Vectors reach the server as a bag: all of them, unchanged, under no name where mixes are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.engines import RecordedRun
from secure_fedrec.errors import EncodingError, LosslessnessError, ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import assert_collected
from secure_fedrec.protection import BagShape
from secure_fedrec.protection.bags import LayeredBags
from secure_fedrec.protection.bags.carried_out import carried_out
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock, SetBlock, Upload
from secure_fedrec.wire import (
    NOBODY,
    Adversary,
    Alter,
    Delay,
    Drop,
    Fault,
    Messages,
    Meter,
    Repeat,
    Step,
    Wire,
)
from tests.protection.bags.drawn import Collection, collections

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))


def channel_of(collection: Collection, execution: str | None) -> LayeredBags:
    routing = None
    if execution is not None:
        routing = RoutingLayerConfig(cell_bytes=512, layers=2, execution=execution)
    channel = LayeredBags(
        bags=collection.bags,
        n_clients=collection.n_clients,
        codec=collection.codec,
        streams=Streams.from_seed(1),
        routing=routing,
    )
    if execution == "real":
        carried_out(channel)
    return channel


@given(collections())
@settings(deadline=None)
def test_a_named_bag_is_the_multiset_of_encoded_vectors(collection: Collection) -> None:
    assert_collected(channel=channel_of(collection, None), uploads=collection.uploads)


@pytest.mark.claim("bags-exact")
@given(collections(least=2))
@settings(deadline=None)
def test_a_routed_bag_is_the_multiset_of_encoded_vectors(collection: Collection) -> None:
    assert_collected(channel=channel_of(collection, "simulated"), uploads=collection.uploads)


@pytest.mark.claim("bags-exact")
@given(collections(least=2, max_clients=3))
@settings(deadline=None, max_examples=15)
def test_real_mixes_bring_the_same_bag(collection: Collection) -> None:
    assert_collected(channel=channel_of(collection, "real"), uploads=collection.uploads, round_=3)


def test_the_property_sees_a_changed_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection(
        n_clients=2,
        codec=FixedPoint(),
        bags={"b": BagShape(width=1, most=1)},
        uploads=(upload_of([0, 1], {"b": ([1, 1], [[0.5], [-0.5]])}),),
    )
    channel = channel_of(collection, None)
    assert_collected(channel=channel, uploads=collection.uploads)
    genuine = SetBlock.__init__

    def shifted(self: SetBlock, **columns: Any) -> None:
        if columns["values"].dtype == np.uint64:
            columns["values"] = columns["values"] + np.uint64(1)
        genuine(self, **columns)

    monkeypatch.setattr(SetBlock, "__init__", shifted)
    with pytest.raises(LosslessnessError, match=r"bag 'b', vector 0: .* instead of \[-0\.5\]"):
        assert_collected(channel=channel, uploads=collection.uploads)


def upload_of(clients: list[int], bags: dict[str, tuple[list[int], list[list[float]]]]) -> Upload:
    blocks = {
        name: SetBlock(
            indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            values=np.array(values, dtype=np.float64),
        )
        for name, (lengths, values) in bags.items()
    }
    nothing = RowBlock(
        indptr=np.zeros(len(clients) + 1, dtype=np.int64),
        rows=np.empty(0, dtype=np.int32),
        values=np.empty((0, 1)),
    )
    return Upload(clients=np.array(clients), blocks={"table": nothing}, bags=blocks)


@pytest.mark.parametrize("execution", [None, "simulated", "real"])
def test_a_run_collects_the_bags_of_every_round(drafts: Any, execution: str | None) -> None:
    run = drafts.run({} if execution is None else drafts.mixes(execution))
    for round_ in (1, 2):
        run.run_round()
        for name in drafts.bags:
            vectors = drafts.vectors(name, round_=round_)
            found = run.engine.public.extras[name]
            np.testing.assert_allclose(found, vectors[np.lexsort(vectors.T[::-1])], atol=2**-33)
    assert run.engine.public.table.tolist() == [[float(sum(drafts.counts))]]
    assert run.table_digests == finished(drafts.run({})).table_digests


def finished(run: RecordedRun, rounds: int = 2) -> RecordedRun:
    for _ in range(rounds):
        run.run_round()
    return run


def test_batches_change_nothing_that_the_server_sees(drafts: Any) -> None:
    def seen(batch_bytes: int) -> list[Any]:
        run = drafts.run(drafts.mixes())
        run.engine._batch_bytes = batch_bytes
        view = finished(run, 1).transcript.view(SERVER)
        found: list[Any] = [run.table_digests]
        for bag in view.bags(1):
            messages = view.messages(Step.BAG, 1, payload=True, bag=bag)
            block = messages.payload
            assert isinstance(block, SetBlock) and block.values is not None
            assert messages.tags is not None
            found += [messages.tags.tolist(), block.lengths.tolist(), block.values.tolist()]
        return found

    whole = seen(8192)
    assert all(seen(batch_bytes) == whole for batch_bytes in (1, 7 * 64))


def test_named_vectors_show_their_owner(drafts: Any) -> None:
    view = finished(drafts.run({}), 1).transcript.view(SERVER)
    for bag in drafts.bags:
        messages = view.messages(Step.BAG, 1, payload=True, bag=bag)
        assert messages.senders.ids.tolist() == list(range(drafts.n_clients))
        assert isinstance(messages.payload, SetBlock)
        assert messages.payload.lengths.tolist() == list(drafts.counts)


def test_routed_vectors_show_no_owner_and_no_number_of_one(drafts: Any) -> None:
    run = finished(drafts.run(drafts.mixes()), 1)
    view = run.transcript.view(SERVER)
    for bag, shape in drafts.bags.items():
        messages = view.messages(Step.BAG, 1, payload=True, bag=bag)
        block = messages.payload
        assert isinstance(block, SetBlock) and messages.tags is not None
        assert set(messages.senders.ids.tolist()) == {NOBODY}
        assert set(messages.sizes.tolist()) == {512}
        assert len(messages) == drafts.n_clients * shape.most
        assert sorted(set(block.lengths.tolist())) == [0, 1]
        assert block.lengths.sum() == sum(drafts.counts)
        assert np.all(messages.tags[1:] > messages.tags[:-1])
        truth = run.truth.columns(1, f"bag.{bag}-origins")
        assert truth is not None
        assert np.bincount(truth["clients"]).tolist() == [shape.most] * drafts.n_clients
    cells = sum(shape.most for shape in drafts.bags.values())
    sent = run.engine.wire.meter.clients("messages_sent")
    assert sent.tolist() == [1 + cells] * drafts.n_clients  # the upload, and the public number


def test_who_owns_a_vector_changes_nothing_but_tags(drafts: Any) -> None:
    """The same vectors, given by other clients, in other numbers."""

    def seen(lengths: list[int]) -> list[Any]:
        vectors = [[0.5, -1.0], [0.25, 3.0], [0.5, 2.0]]
        session, messages = open_round(drafts, [0, 1, 2])
        bag = upload_of([0, 1, 2], {"users": (lengths, vectors)}).bags["users"]
        empty = SetBlock(indptr=np.zeros(4, dtype=np.int64), values=np.empty((0, 3)))
        session.submit(np.arange(3), {"users": bag, "users-2": empty})
        session.close()
        found = []
        for part in messages:
            block = part.payload
            assert isinstance(block, SetBlock) and block.values is not None
            assert part.tags is not None
            columns = (part.senders.ids, part.sizes, part.tags, block.lengths)
            found.append([sorted(block.values.tolist()), *(sorted(c.tolist()) for c in columns)])
        return found

    assert seen([3, 0, 0]) == seen([1, 1, 1]) == seen([0, 1, 2])


def open_round(drafts: Any, participants: list[int]) -> tuple[Any, list[Messages]]:
    messages: list[Messages] = []

    class Tap:
        def apply(self, sent: Messages) -> Messages:
            messages.append(sent)
            return sent

    channel = drafts.stack(drafts.mixes()).bags
    wire = Wire(meter=Meter(drafts.n_clients), faults=(Tap(),))
    return channel.open(round_=1, participants=np.array(participants), wire=wire), messages


def strike(messages: Messages) -> BoolArray:
    """The first message that carries a vector of the bag, in the second round."""
    struck = np.zeros(len(messages), dtype=bool)
    block = messages.payload
    if messages.round == 2 and isinstance(block, SetBlock) and messages.bag == "users-2":
        struck[np.flatnonzero(block.lengths)[0]] = True
    return struck


def empty_one(messages: Messages) -> BoolArray:
    """A dummy cell, or the message of a client that gives nothing."""
    struck = np.zeros(len(messages), dtype=bool)
    block = messages.payload
    if messages.round == 2 and isinstance(block, SetBlock) and messages.bag == "users":
        struck[np.flatnonzero(block.lengths == 0)[0]] = True
    return struck


FAULTS: dict[str, Callable[[], Fault]] = {
    "drop": lambda: Drop(step=Step.BAG, chooser=strike),
    "drop an empty one": lambda: Drop(step=Step.BAG, chooser=empty_one),
    "repeat": lambda: Repeat(step=Step.BAG, chooser=strike),
    "repeat an empty one": lambda: Repeat(step=Step.BAG, chooser=empty_one),
    "alter": lambda: Alter(step=Step.BAG, chooser=strike),
    "delay": lambda: Delay(step=Step.BAG, chooser=strike),
}


@pytest.mark.claim("bags-incomplete-abort")
@pytest.mark.parametrize(
    ("fault", "execution"),
    [
        (fault, execution)
        for fault in FAULTS
        for execution in (None, "simulated", "real")
        if (fault, execution) != ("alter", None)  # named messages are not authenticated
    ],
)
def test_a_faulty_bag_aborts_the_round_and_changes_nothing(
    drafts: Any, fault: str, execution: str | None
) -> None:
    layers = {} if execution is None else drafts.mixes(execution)
    run = finished(drafts.run(layers, faults=(FAULTS[fault](),)), 1)
    before = {name: value.tobytes() for name, value in run.engine.state().items()}
    with pytest.raises(ProtocolError):
        run.run_round()
    after = {name: value.tobytes() for name, value in run.engine.state().items()}
    assert after == before
    assert run.transcript.digest() == finished(drafts.run(layers), 1).transcript.digest()


@pytest.mark.claim("bags-incomplete-abort")
def test_an_altered_vector_under_a_name_is_not_detected(drafts: Any) -> None:
    """Nothing signs it: that the round goes on is what SECURITY.md says of plain messages."""
    altered = finished(drafts.run({}, faults=(FAULTS["alter"](),)))
    assert altered.table_digests != finished(drafts.run({})).table_digests


def test_a_repeat_does_not_stand_in_for_a_lost_vector(drafts: Any) -> None:
    faults = (FAULTS["drop"](), FAULTS["repeat an empty one"]())
    with pytest.raises(ProtocolError, match="arrived twice"):
        finished(drafts.run(drafts.mixes(), faults=faults))


def test_a_vector_of_another_bag_or_round_is_refused(drafts: Any) -> None:
    kept: list[Messages] = []

    class Swap:
        """Delivers the first bag's messages in place of the second's."""

        def apply(self, messages: Messages) -> Messages:
            if messages.step is not Step.BAG:
                return messages
            kept.append(messages)
            return kept[0]

    with pytest.raises(ProtocolError, match="got a message for 'users'"):
        finished(drafts.run({}, faults=(Swap(),)), 1)
    late = Delay(step=Step.BAG, chooser=lambda m: np.ones(len(m), dtype=bool))
    run = drafts.run({}, faults=(late,))
    with pytest.raises(ProtocolError, match="missing"):
        run.run_round()
    run.engine.public = replace(run.engine.public, round=1)
    with pytest.raises(ProtocolError, match=r"round 2 awaits vectors .* got BAG of round 1"):
        run.run_round()


@pytest.mark.parametrize(
    ("bags", "problem"),
    [
        ({"users": ([1], [[1.0, 2.0]])}, "were due, got"),
        ({"users": ([1], [[1.0]]), "users-2": ([1], [[1.0, 2.0, 3.0]])}, "width 1, declared 2"),
        (
            {"users": ([5], [[1.0, 2.0]] * 5), "users-2": ([1], [[1.0, 2.0, 3.0]])},
            "5 vectors of one client, at most 4",
        ),
    ],
)
def test_vectors_that_do_not_fit_their_bag_are_refused(
    drafts: Any, bags: Any, problem: str
) -> None:
    session, messages = open_round(drafts, [0, 1])
    with pytest.raises(WireError, match=problem):
        session.submit(np.array([0]), upload_of([0], bags).bags)
    assert not messages


def test_values_beyond_the_ring_s_clip_are_refused(drafts: Any) -> None:
    for bad in (5000.0, float("nan"), float("inf")):
        session, messages = open_round(drafts, [0, 1])
        given_ = {"users": ([1], [[1.0, 2.0]]), "users-2": ([1], [[1.0, 2.0, bad]])}
        with pytest.raises(EncodingError):
            session.submit(np.array([0]), upload_of([0], given_).bags)
        assert not messages  # not even the bag that was fine


@pytest.mark.claim("routing-batches")
@pytest.mark.parametrize("execution", ["simulated", "real"])
def test_one_client_alone_sends_nothing_through_mixes(drafts: Any, execution: str) -> None:
    channel = drafts.stack(drafts.mixes(execution)).bags
    wire = Wire(meter=Meter(drafts.n_clients))
    with pytest.raises(ProtocolError, match=r"1 client sends vectors .* at least 2 must"):
        channel.open(round_=1, participants=np.array([3]), wire=wire)
    empty = channel.open(round_=1, participants=np.array([], dtype=np.int64), wire=wire).close()
    assert {name: bag.shape for name, bag in empty.items()} == {"users": (0, 2), "users-2": (0, 3)}
