"""Views: an adversary gets what its parties saw, and nothing else changes what it gets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.errors import ConfigError, TranscriptError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    Denoisers,
    DenoisersConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import (
    NOBODY,
    Adversary,
    BlockStore,
    Messages,
    RecordingPolicy,
    Step,
    Transcript,
    View,
)

N_CLIENTS, N_ITEMS, ETA, ROUNDS = 24, 30, 3, 2
PAYLOAD_ROUND, IDS_ROUND = 1, 2


@pytest.fixture(scope="module")
def run() -> RecordedRun:
    clients, items = np.nonzero(np.random.default_rng(2).random((N_CLIENTS, N_ITEMS)) < 0.3)
    ratings = RatingTable.from_columns(
        name="made up",
        n_clients=N_CLIENTS,
        n_items=N_ITEMS,
        clients=clients,
        items=items,
        ratings=np.asarray(1 + (clients * items) % 5, dtype=np.float64),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(N_CLIENTS),
        item_labels=np.arange(N_ITEMS),
    )
    streams, codec = Streams.from_seed(4), FixedPoint()
    cloak = VirtualRatings(VirtualRatingsConfig(), n_items=N_ITEMS, streams=streams)
    collector = Denoisers(
        DenoisersConfig(count=ETA),
        n_clients=N_CLIENTS,
        n_items=N_ITEMS,
        width=4,
        codec=codec,
        streams=streams,
    )
    algorithm = PMF(PMFConfig.printed(rank=4, rounds=ROUNDS))
    run = RecordedRun(
        algorithm=algorithm,
        stack=Stack(codec=codec, cloak=cloak, collector=collector, n_clients=N_CLIENTS),
        problem=rating_problem(algorithm, ratings),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(PAYLOAD_ROUND,)),
    )
    for _ in range(ROUNDS):
        run.run_round()
    return run


def adversary(*corrupt: str, taps: tuple[str, ...] = ()) -> Adversary:
    return Adversary(name="test", corrupt=frozenset(corrupt), taps=frozenset(taps))


def view_of(run: RecordedRun, *corrupt: str, taps: tuple[str, ...] = ()) -> View:
    return run.transcript.view(adversary(*corrupt, taps=taps))


def collector_of(run: RecordedRun) -> Denoisers:
    collector = run.engine.stack.collector
    assert isinstance(collector, Denoisers)
    return collector


def ordinary(run: RecordedRun) -> IntArray:
    return np.flatnonzero(~collector_of(run).binding.is_denoiser)


def rows_of(messages: Messages) -> RowBlock:
    assert isinstance(messages.payload, RowBlock)
    return messages.payload


def test_the_server_sees_named_uploads_and_sums(run: RecordedRun) -> None:
    view = view_of(run, "server")
    uploads = view.messages(Step.UPLOAD, PAYLOAD_ROUND, payload=True)
    assert uploads.senders.ids.tolist() == ordinary(run).tolist()
    assert uploads.tags is None
    assert rows_of(uploads).values is not None
    sums = view.messages(Step.DENOISE, PAYLOAD_ROUND, payload=True)
    assert sums.senders.ids.tolist() == list(range(ETA))
    assert rows_of(sums).counts is not None
    assert len(view.messages(Step.AGGREGATE, PAYLOAD_ROUND, payload=True)) == 1
    assert view.table(PAYLOAD_ROUND).shape == (N_ITEMS, 4)


def test_the_server_sees_no_noise(run: RecordedRun) -> None:
    view = view_of(run, "server")
    assert not view.sees(Step.NOISE)
    for payload in (False, True):
        with pytest.raises(TranscriptError, match="saw no message of step NOISE"):
            view.messages(Step.NOISE, PAYLOAD_ROUND, payload=payload)
    for ask in (view.rounds, view.payload_rounds):
        with pytest.raises(TranscriptError):
            ask(Step.NOISE)
    with pytest.raises(TranscriptError, match="does not tap"):
        view.traffic(PAYLOAD_ROUND)


@pytest.mark.parametrize("denoiser", range(ETA))
def test_a_denoiser_sees_its_own_messages_only(run: RecordedRun, denoiser: int) -> None:
    view = view_of(run, f"denoiser:{denoiser}")
    binding = collector_of(run).binding
    bound = (binding.group == denoiser) & ~binding.is_denoiser
    noise = view.messages(Step.NOISE, PAYLOAD_ROUND, payload=True)
    assert noise.receivers.ids.tolist() == [denoiser] * int(bound.sum())
    sums = view.messages(Step.DENOISE, PAYLOAD_ROUND, payload=True)
    assert sums.senders.ids.tolist() == [denoiser]
    for step in (Step.UPLOAD, Step.AGGREGATE):
        with pytest.raises(TranscriptError):
            view.messages(step, PAYLOAD_ROUND)


def test_all_denoisers_together_see_all_noise(run: RecordedRun) -> None:
    noise = view_of(run, "denoisers").messages(Step.NOISE, PAYLOAD_ROUND)
    assert sorted(noise.receivers.ids.tolist()) == sorted(
        collector_of(run).binding.group[ordinary(run)].tolist()
    )
    two = view_of(run, "denoiser:0", "denoiser:2").messages(Step.NOISE, PAYLOAD_ROUND)
    assert set(two.receivers.ids.tolist()) == {0, 2}


def test_a_client_sees_its_own_upload(run: RecordedRun) -> None:
    client = int(ordinary(run)[3])
    view = view_of(run, f"client:{client}")
    assert view.messages(Step.UPLOAD, PAYLOAD_ROUND).senders.ids.tolist() == [client]
    assert view.table(PAYLOAD_ROUND).shape == (N_ITEMS, 4)
    for step in (Step.DENOISE, Step.AGGREGATE):
        with pytest.raises(TranscriptError):
            view.messages(step, PAYLOAD_ROUND)


def test_anonymous_messages_come_by_tag_from_nobody(run: RecordedRun) -> None:
    noise = view_of(run, "denoisers").messages(Step.NOISE, PAYLOAD_ROUND)
    assert noise.senders.ids.tolist() == [NOBODY] * len(ordinary(run))
    assert noise.tags is not None
    assert noise.tags.tolist() == sorted(noise.tags.tolist())
    # The order of arrival is neither that of the clients nor that of the simulator.
    truth = run.truth.columns(PAYLOAD_ROUND, "noise-origins")
    assert truth is not None
    by_tag = truth["clients"][np.argsort(truth["tags"])]
    assert by_tag.tolist() != sorted(by_tag.tolist())
    assert by_tag.tolist() != truth["clients"].tolist()
    assert sorted(by_tag.tolist()) == ordinary(run).tolist()


def test_noise_is_the_virtual_part_of_the_same_words(run: RecordedRun) -> None:
    truth = run.truth.columns(PAYLOAD_ROUND, "noise-origins")
    assert truth is not None
    sender = dict(zip(truth["tags"].tolist(), truth["clients"].tolist(), strict=True))
    noise = view_of(run, "denoisers").messages(Step.NOISE, PAYLOAD_ROUND, payload=True)
    uploads = view_of(run, "server").messages(Step.UPLOAD, PAYLOAD_ROUND, payload=True)
    by_client = dict(zip(uploads.senders.ids.tolist(), rows_of(uploads).split(), strict=True))
    assert noise.tags is not None
    for tag, part in zip(noise.tags.tolist(), rows_of(noise).split(), strict=True):
        upload = by_client[sender[tag]]
        assert part.values is not None and upload.values is not None
        where = np.searchsorted(upload.rows, part.rows)
        assert upload.rows[where].tolist() == part.rows.tolist()
        assert upload.values[where].tolist() == part.values.tolist()


def test_rounds_without_payload_show_ids_and_sizes(run: RecordedRun) -> None:
    view = view_of(run, "server")
    assert view.rounds(Step.UPLOAD) == (1, 2)
    assert view.payload_rounds(Step.UPLOAD) == (1,)
    assert view.payload_rounds(Step.MODEL) == (1,)
    uploads = view.messages(Step.UPLOAD, IDS_ROUND)
    assert rows_of(uploads).values is None
    assert len(rows_of(uploads).rows) > len(uploads)
    assert np.all(uploads.sizes > 0)
    with pytest.raises(TranscriptError, match="no payload"):
        view.messages(Step.UPLOAD, IDS_ROUND, payload=True)
    with pytest.raises(TranscriptError, match="not recorded"):
        view.table(IDS_ROUND)
    with pytest.raises(TranscriptError, match="no message"):
        view.messages(Step.UPLOAD, ROUNDS + 1)


def test_a_tap_sees_ends_and_sizes(run: RecordedRun) -> None:
    view = view_of(run, taps=("network",))
    traffic = view.traffic(IDS_ROUND)
    assert set(traffic) == {Step.UPLOAD, Step.NOISE, Step.DENOISE}
    senders, receivers, sizes = traffic[Step.NOISE]
    assert senders.tolist() == [NOBODY] * len(ordinary(run))
    assert np.all(np.diff(receivers) >= 0)
    assert sorted(zip(receivers.tolist(), sizes.tolist(), strict=True)) == list(
        zip(receivers.tolist(), sizes.tolist(), strict=True)
    )
    for step in Step:
        with pytest.raises(TranscriptError):
            view.messages(step, PAYLOAD_ROUND)


def test_public_knowledge_is_read_only(run: RecordedRun) -> None:
    view = view_of(run, "server")
    assert view.codec == FixedPoint()
    public: Any = view.public
    with pytest.raises(TypeError):
        public["n_items"] = 1


def everything(view: View) -> list[Any]:
    """All that a view gives, as plain values."""
    found: list[Any] = []
    for round_ in range(1, ROUNDS + 1):
        for step in Step:
            for payload in (False, True):
                try:
                    messages = view.messages(step, round_, payload=payload)
                except TranscriptError as refusal:
                    found.append(str(refusal))
                    continue
                block = rows_of(messages)
                columns = (block.indptr, block.rows, block.values, block.counts, messages.tags)
                found.append([None if c is None else c.tolist() for c in columns])
                found.append([messages.senders.ids.tolist(), messages.receivers.ids.tolist()])
                found.append(messages.sizes.tolist())
        for ask in (view.table, view.traffic):
            try:
                answer: Any = ask(round_)
            except TranscriptError as refusal:
                found.append(str(refusal))
            else:
                found.append(repr(answer))
    return found


Hidden = Callable[[Step, dict[str, Any]], dict[str, Any]]
"""Per column, which entries the adversary must not depend on: a mask, or None for all."""


def scrambled(run: RecordedRun, hidden: Hidden) -> Transcript:
    """The same recording with every hidden entry replaced."""
    store = BlockStore(None)
    original = run.transcript._store
    for round_ in original.rounds():
        for step in Step:
            for columns in original.read(round_, step.name.lower()):
                changed = {name: column.copy() for name, column in columns.items()}
                for name, mask in hidden(step, columns).items():
                    target = changed[name]
                    target[mask] = np.flip(target[mask]) + target.dtype.type(3)
                store.append(round_, step.name.lower(), changed)
    return Transcript(store, run.transcript.public)


def hidden_from_server(step: Step, columns: dict[str, Any]) -> dict[str, Any]:
    return {name: ... for name in columns if name != "lengths"} if step is Step.NOISE else {}


def hidden_from_denoiser_1(step: Step, columns: dict[str, Any]) -> dict[str, Any]:
    if step is Step.MODEL:  # as a client, it works on the public table itself
        return {}
    if step in (Step.UPLOAD, Step.AGGREGATE):
        return {name: ... for name in columns if name != "lengths"}
    end = "receivers" if step is Step.NOISE else "senders"
    foreign = columns[end] != 1
    per_row = np.repeat(foreign, columns["lengths"])
    by_row: dict[str, Any] = {
        name: per_row for name in ("rows", "values", "counts") if name in columns
    }
    return {"sizes": foreign, **by_row}


def hidden_from_tap(step: Step, columns: dict[str, Any]) -> dict[str, Any]:
    del step
    return {name: ... for name in ("rows", "values", "counts", "tags", "table") if name in columns}


@pytest.mark.claim("view-is-own-messages")
@pytest.mark.parametrize(
    ("who", "hidden"),
    [
        (adversary("server"), hidden_from_server),
        (adversary("denoiser:1"), hidden_from_denoiser_1),
        (adversary(taps=("network",)), hidden_from_tap),
    ],
    ids=["server", "denoiser", "tap"],
)
def test_what_an_adversary_did_not_see_does_not_matter(
    run: RecordedRun, who: Adversary, hidden: Hidden
) -> None:
    other = scrambled(run, hidden)
    assert other.digest() != run.transcript.digest()
    assert everything(other.view(who)) == everything(run.transcript.view(who))
    # The same change is visible to somebody who did see those fields.
    insider = adversary("server", "denoisers")
    assert everything(other.view(insider)) != everything(run.transcript.view(insider))


def test_the_truth_is_kept_elsewhere(run: RecordedRun) -> None:
    assert run.truth.rounds() == (1, 2)
    assert run.truth.columns(1, "nothing") is None
    store = run.transcript._store
    for round_ in store.rounds():
        assert store.names(round_, "noise-origins") == []


@pytest.mark.parametrize(
    "party",
    ["", "Server", "denoiser", "denoiser:", "denoiser:-1", "clients", "client:1a", "server ", "*"],
)
def test_unknown_parties_are_refused(party: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        adversary("server", party)
    assert refusal.value.key == "adversaries.corrupt"
    assert refusal.value.value == party


def test_unknown_taps_and_idle_adversaries_are_refused() -> None:
    with pytest.raises(ConfigError) as refusal:
        adversary("server", taps=("phone",))
    assert refusal.value.key == "adversaries.taps"
    with pytest.raises(ConfigError, match="corrupts or taps"):
        adversary()


def test_members_of_roles() -> None:
    who = adversary("server", "denoiser:3", "denoiser:11", "client:5")
    assert who.members("server") is None
    assert who.members("denoiser") == frozenset({3, 11})
    assert who.members("client") == frozenset({5})
    assert adversary("denoisers").members("denoiser") is None
    assert adversary("denoisers").members("client") == frozenset()
    assert not adversary("denoisers").has("server")
