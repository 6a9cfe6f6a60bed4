"""What a journal refuses at its limits, and what a client does when it cannot write it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from secure_fedrec.errors import CheckpointError, ProtocolError
from secure_fedrec.protection.masking import ClientState, Kind
from secure_fedrec.protection.session.journal import MOST_ROUNDS_AHEAD, FileJournal, MemoryJournal

ME = 7


def round_id(number: int, tail: bytes = b"\x00" * 8) -> bytes:
    return number.to_bytes(8, "little") + tail


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryJournal() if request.param == "memory" else FileJournal(tmp_path / "journal")


@pytest.mark.parametrize(("last", "floor"), [(5, 0), (5, 3), (5, 900), (900, 5)])
def test_how_far_a_number_may_jump_is_counted_from_the_later_of_two(
    journal: Any, last: int, floor: int
) -> None:
    """From the last round begun or the operator's floor; not from both together."""
    journal.begin(round_id(last), roster_version=1, epoch=0)
    most = max(last, floor) + MOST_ROUNDS_AHEAD
    with pytest.raises(ProtocolError, match=f"beyond round {max(last, floor)}, the last one begun"):
        journal.begin(round_id(most + 1), roster_version=1, epoch=0, round_floor=floor)
    journal.begin(round_id(most), roster_version=1, epoch=0, round_floor=floor)


def test_a_peer_that_stayed_away_is_remembered(journal: Any) -> None:
    for number, seen in enumerate(({3: (b"a" * 32, 5)}, {4: (b"b" * 32, 1)}), start=1):
        journal.begin(round_id(number), roster_version=1, epoch=0)
        journal.see(round_id(number), seen)
    journal.begin(round_id(3), roster_version=1, epoch=0)
    with pytest.raises(ProtocolError, match=r"an old journal: clients \[3\]"):
        journal.see(round_id(3), {3: (b"a" * 32, 5)})
    journal.see(round_id(3), {3: (b"a" * 32, 6)})


def test_a_reveal_is_that_of_its_round(journal: Any) -> None:
    journal.begin(round_id(1), roster_version=1, epoch=0)
    journal.upload(round_id(1))
    journal.reveal(round_id(1), b"message")
    for other in (round_id(2), round_id(1, b"\x01" * 8)):
        assert journal.revealed(other) is None
    assert journal.revealed(round_id(1)) == b"message"


@pytest.mark.parametrize("kind", [Kind.KEYS, Kind.BOXES, Kind.QUORUM], ids=lambda kind: kind.name)
def test_no_answer_leaves_and_the_round_is_over_if_the_journal_fails(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """At SHARES the peers' generations, at UPLOAD that it is sent, at REVEAL the message itself."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    s = scene()
    s.federation.journals[ME] = FileJournal(tmp_path / "journal")
    s.clients[ME] = s.federation.open_client(ME, s.expected)
    s.clients[ME].load(s.layout.encode(s.values[ME]))
    s.until_clients_get(kind)
    client, core = s.clients[ME], s.clients[ME]._round
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="nothing is sent"):
            client.receive(s.message_for(ME))
    assert client.state is ClientState.ABORTED
    assert core._secrets.__dict__ == {}
    with pytest.raises(ProtocolError, match="client 7 aborted"):  # and nothing was kept to resend
        client.receive(s.message_for(ME))
    s.federation.journals[ME].close()
    s.federation.journals[ME] = FileJournal(tmp_path / "journal")
    with pytest.raises(ProtocolError, match="in state SETUP"):  # nor by the process that follows
        s.federation.open_client(ME, s.expected).receive(s.message_for(ME))


def test_a_client_that_revealed_has_nothing_left_to_reveal(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.QUORUM)
    core = s.clients[ME]._round
    s.clients[ME].receive(s.message_for(ME))
    assert core._secrets.__dict__ == {}
    assert core._neighbours == core._server_keys == {}
