"""What a view gives of a recording, condition by condition, on one made by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import TranscriptError
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import (
    NOBODY,
    Adversary,
    BlockStore,
    Messages,
    Parties,
    Recorder,
    RecordingPolicy,
    Step,
    Transcript,
    View,
)
from secure_fedrec.wire.truth import OwnUploads, Truth

RING = {"bits": 64, "fraction_bits": 24, "clip": 16.0}
PUBLIC = {"ring": RING}
BOTH = Adversary(name="both", corrupt=frozenset({"server", "denoisers"}))
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
CLIENT = Adversary(name="client", corrupt=frozenset({"client:3"}))
TAP = Adversary(name="tap", taps=frozenset({"network"}))


def columns(**more: Any) -> dict[str, Any]:
    """One message of client 0 with rows 3 and 5."""
    one = np.zeros(1, dtype=np.int64)
    rows = np.array([3, 5], dtype=np.uint16)
    found = {"senders": one, "receivers": one, "sizes": one + 9, "lengths": one + 2, "rows": rows}
    return found | more


def recorded(**public: Any) -> Transcript:
    """Two rounds of a public table and of uploads."""
    store = BlockStore(None)
    for round_ in (1, 2):
        store.append(round_, "model", {"table": np.full((6, 4), float(round_))})
        store.append(round_, "upload", columns(values=np.ones((2, 4), dtype=np.uint64)))
    return Transcript(store, PUBLIC | public)


def rows_of(messages: Messages) -> RowBlock:
    assert isinstance(messages.payload, RowBlock)
    return messages.payload


def counted(step: Step, **more: Any) -> View:
    """A view of a message whose rows came with counts."""
    store = BlockStore(None)
    store.append(1, step.name.lower(), columns(counts=np.array([6, 7]), **more))
    return Transcript(store, PUBLIC).view(BOTH)


def test_nothing_done_to_nested_public_knowledge_reaches_another_view() -> None:
    transcript = recorded()
    view = transcript.view(SERVER)
    later: Any = view.at(1).public
    later["ring"]["bits"] = 1
    assert view.public["ring"] == RING
    own: Any = view.public
    own["ring"]["bits"] = 2
    assert transcript.view(SERVER).public["ring"] == RING
    assert transcript.public["ring"] == RING == PUBLIC["ring"]


@pytest.mark.parametrize("step", [Step.UPLOAD, Step.SHARE])
def test_counts_of_hidden_rows_are_part_of_the_payload(step: Step) -> None:
    """They are words like the values: whoever asks for none of these gets none of those."""
    view = counted(step, values=np.ones((2, 4), dtype=np.uint64))
    assert rows_of(view.messages(step, 1)).counts is None
    assert rows_of(view.messages(step, 1)).values is None
    counts = rows_of(view.messages(step, 1, payload=True)).counts
    assert counts is not None
    assert counts.tolist() == [6, 7]


def test_counts_of_a_denoiser_are_there_without_a_payload() -> None:
    counts = rows_of(counted(Step.DENOISE).messages(Step.DENOISE, 1)).counts
    assert counts is not None
    assert counts.tolist() == [6, 7]


def test_a_view_of_one_round_refuses_the_others() -> None:
    view = recorded().view(SERVER).at(1)
    assert view.rounds(Step.UPLOAD) == (1,)
    for ask in (
        lambda: view.messages(Step.UPLOAD, 2),
        lambda: view.table(2),
        lambda: view.extras(2),
    ):
        with pytest.raises(TranscriptError, match="holds round 1 only"):
            ask()


def test_tables_of_a_view_cannot_be_written_and_are_nobody_elses() -> None:
    transcript = recorded()
    table = transcript.view(SERVER).table(1)
    with pytest.raises(ValueError, match="read-only"):
        table[:] = 0
    (kept,) = transcript._store.read(1, "model")
    kept["table"][:] = 5
    assert table.tolist() == np.ones((6, 4)).tolist()


def test_a_model_is_seen_by_whom_it_is_not_hidden_from() -> None:
    hidden = recorded(model_hidden_from=["server"])
    for transcript, who in ((hidden, SERVER), (recorded(), TAP)):
        with pytest.raises(TranscriptError, match="saw no message of step MODEL"):
            transcript.view(who).table(1)
    for transcript, who in ((hidden, CLIENT), (recorded(), SERVER)):
        assert transcript.view(who).table(1).shape == (6, 4)


def test_a_model_is_no_message_and_only_a_bag_is_one_of_a_bag() -> None:
    view = recorded().view(SERVER)
    with pytest.raises(TranscriptError, match="one table for all"):
        view.messages(Step.MODEL, 1)
    with pytest.raises(TranscriptError, match="are those of one bag"):
        view.messages(Step.UPLOAD, 1, bag="drafts")
    with pytest.raises(TranscriptError, match="are those of one bag"):
        view.messages(Step.BAG, 1)


@pytest.mark.parametrize("public", [{}, {"ring": {"colour": 3}}])
def test_public_knowledge_without_a_ring_is_refused(public: dict[str, Any]) -> None:
    with pytest.raises(TranscriptError, match="names no ring"):
        Transcript(BlockStore(None), public).view(SERVER)


def test_the_digest_of_a_transcript_is_of_public_knowledge_and_columns() -> None:
    one = recorded()
    assert recorded().digest() == one.digest()
    assert recorded(something=1).digest() != one.digest()
    one._store.append(2, "upload", columns())
    assert recorded().digest() != one.digest()


def test_anonymous_messages_come_by_their_tags_over_all_blocks() -> None:
    store = BlockStore(None)
    for tag, more in ((9, {"values": np.ones((2, 4), dtype=np.uint64)}), (2, {})):
        nobody = np.full(1, NOBODY)
        tags = np.array([tag], dtype=np.uint64)
        store.append(1, "noise", columns(senders=nobody, tags=tags, **more))
    found = Transcript(store, PUBLIC).view(BOTH).messages(Step.NOISE, 1)
    assert found.tags is not None
    assert found.tags.tolist() == [2, 9]


def test_a_transcript_of_another_version_is_refused(tmp_path: Path) -> None:
    recorded().save_manifest(tmp_path)
    assert Transcript.open(tmp_path).public == PUBLIC
    manifest = json.loads((tmp_path / "transcript.json").read_text(encoding="utf-8"))
    other = json.dumps(manifest | {"schema_version": "2"})
    (tmp_path / "transcript.json").write_text(other, encoding="utf-8")
    with pytest.raises(TranscriptError, match="has transcript version '2', need '1'"):
        Transcript.open(tmp_path)


@pytest.mark.parametrize(
    ("step", "kept"), [(Step.UPLOAD, False), (Step.SHARE, False), (Step.DENOISE, True)]
)
def test_counts_of_hidden_rows_are_recorded_with_payloads_only(step: Step, kept: bool) -> None:
    recorder = Recorder(
        policy=RecordingPolicy(payload_rounds=(2,)), seen=BlockStore(None), truth=BlockStore(None),
        n_items=6,
    )  # fmt: skip
    block = RowBlock(
        indptr=np.array([0, 2]), rows=np.array([3, 5], dtype=np.int32),
        values=np.ones((2, 4), dtype=np.uint64), counts=np.array([6, 7]),
    )  # fmt: skip
    one = Parties(role="client", ids=np.zeros(1, dtype=np.int64))
    for round_ in (1, 2):
        message = Messages(
            round=round_, step=step, senders=one, receivers=one, payload=block,
            sizes=np.array([9]),
        )  # fmt: skip
        recorder.record(message, origins=None)
        recorder.end_round(round_)
    held = [next(iter(recorder.seen.read(round_, step.name.lower()))) for round_ in (1, 2)]
    assert ["counts" in each for each in held] == [kept, True]


def test_what_clients_know_of_themselves_is_theirs_alone() -> None:
    store = BlockStore(None)
    own = {"senders": np.array([1, 3, 4]), "lengths": np.array([1, 2, 1])}
    rows = np.array([0, 3, 5, 2], dtype=np.uint16)
    store.append(1, "own", {**own, "rows": rows, "values": np.arange(8).reshape(4, 2) + 0.0})
    tags = {"tags": np.array([7, 8, 9], dtype=np.uint64), "clients": np.array([4, 3, 1])}
    store.append(1, "noise-origins", tags)
    known = OwnUploads(Truth(store), {3})
    uploads = known.uploads(1)
    assert uploads is not None
    assert uploads.senders.ids.tolist() == [3]
    assert rows_of(uploads).rows.tolist() == [3, 5]
    assert known.tags(1, Step.NOISE).tolist() == [8]
    assert known.uploads(2) is None
    assert len(known.tags(2, Step.NOISE)) == 0
