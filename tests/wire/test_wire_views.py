"""What a view gives of a recording, condition by condition, on one made by hand."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import TranscriptError
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, BlockStore, Messages, Step, Transcript, View

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
