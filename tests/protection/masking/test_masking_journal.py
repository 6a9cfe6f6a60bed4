"""What a client commits to survives a crash; a damaged or shared journal is refused."""

import errno
import os
import resource
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from secure_fedrec.errors import CheckpointError, ProtocolError
from secure_fedrec.protection.masking import SERVER, ClientState, Kind
from secure_fedrec.protection.session.journal import FileJournal, MemoryJournal

ME = 7


def round_id(number: int, tail: bytes = b"\x00" * 8) -> bytes:
    return number.to_bytes(8, "little") + tail


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryJournal() if request.param == "memory" else FileJournal(tmp_path / "journal")


def test_rounds_only_grow(journal: Any) -> None:
    journal.begin(round_id(5), roster_version=2, epoch=0)
    for number in (0, 4, 5):
        with pytest.raises(ProtocolError, match="not beyond round 5"):
            journal.begin(round_id(number, b"\x01" * 8), roster_version=2, epoch=0)
    journal.begin(round_id(6), roster_version=2, epoch=0)


def test_rosters_and_epochs_only_grow_and_a_refusal_changes_nothing(journal: Any) -> None:
    journal.begin(round_id(1), roster_version=3, epoch=7)
    with pytest.raises(ProtocolError, match="older than roster 3"):
        journal.begin(round_id(2), roster_version=2, epoch=8)
    with pytest.raises(ProtocolError, match="no second attempt"):
        journal.begin(round_id(2), roster_version=3, epoch=7)
    journal.begin(round_id(2), roster_version=3, epoch=0)  # a round without a beacon
    with pytest.raises(ProtocolError, match="no second attempt"):
        journal.begin(round_id(3), roster_version=3, epoch=7)


@pytest.mark.claim("masking-never-both-shares")
def test_a_round_is_revealed_once(journal: Any) -> None:
    with pytest.raises(ProtocolError, match="a vector was sent in"):
        journal.reveal(round_id(1), b"early")
    journal.begin(round_id(1), roster_version=1, epoch=0)
    with pytest.raises(ProtocolError, match="a vector was sent in"):
        journal.reveal(round_id(1), b"early")
    journal.upload(round_id(1))
    with pytest.raises(ProtocolError, match="a vector was sent in"):
        journal.reveal(round_id(1, b"\x01" * 8), b"other")
    journal.reveal(round_id(1), b"first")
    with pytest.raises(ProtocolError, match="once"):
        journal.reveal(round_id(1), b"second")
    assert journal.revealed(round_id(1)) == b"first"
    journal.begin(round_id(2), roster_version=1, epoch=0)
    assert journal.revealed(round_id(1)) == b"first"
    journal.upload(round_id(2))
    assert journal.revealed(round_id(1)) is None
    for over in (round_id(1), round_id(2), bytes(16)):
        with pytest.raises(ProtocolError, match="sent once, in the last round begun"):
            journal.upload(over)


def test_two_rounds_are_open_and_one_vector(journal: Any) -> None:
    """Keys of the next round are agreed on before a round's reveal; its vector ends the round."""
    for number in (1, 2):
        journal.begin(round_id(number), roster_version=1, epoch=0)
    with pytest.raises(ProtocolError, match="in the last round begun"):  # 2 was begun over it
        journal.upload(round_id(1))
    with pytest.raises(ProtocolError, match="a later round"):
        journal.see(round_id(1), {3: (b"a" * 32, 1)})
    journal.upload(round_id(2))
    journal.begin(round_id(3), roster_version=1, epoch=0)
    journal.see(round_id(3), {3: (b"a" * 32, 1)})
    for number in (2, 3):
        journal.park(round_id(number), bytes([number]) * 32)
        assert journal.parked(round_id(number))
    for number, ticket in ((2, 3), (3, 2)):  # a ticket is of its round
        with pytest.raises(ProtocolError, match="serves once"):
            journal.redeem(round_id(number), bytes([ticket]) * 32, owner=SERVER)
    journal.redeem(round_id(2), b"\2" * 32, owner=SERVER)
    assert journal.parked(round_id(3))
    journal.reveal(round_id(2), b"message")
    assert journal.parked(round_id(3))
    journal.redeem(round_id(3), b"\3" * 32, owner=SERVER)
    journal.upload(round_id(3))
    with pytest.raises(ProtocolError, match="a vector was sent in"):
        journal.reveal(round_id(2), b"message")
    with pytest.raises(ProtocolError, match="in a round in progress"):
        journal.park(round_id(2), b"\2" * 32)


def test_a_round_that_was_not_revealed_in_ends_with_the_next_vector(journal: Any) -> None:
    """Two vectors over one state may be sent, one of them may be opened."""
    for number in (1, 2):
        journal.begin(round_id(number), roster_version=1, epoch=0)
        journal.upload(round_id(number), b"1" * 32)
        assert not journal.parked(round_id(number))
        journal.park(round_id(number), b"t" * 32)
    with pytest.raises(ProtocolError, match="a vector was sent in"):
        journal.reveal(round_id(1), b"message")
    journal.begin(round_id(3), roster_version=1, epoch=0)
    journal.reveal(round_id(2), b"message")
    with pytest.raises(ProtocolError, match="answered for this public state"):
        journal.upload(round_id(3), b"1" * 32)
    journal.upload(round_id(3), b"2" * 32)


def test_a_number_far_beyond_is_refused_and_stores_nothing(journal: Any) -> None:
    far = 2**20
    for number, floor in ((far + 1, 0), (2**63, 0), (2**64 - 1, 5), (far + 8, 7)):
        with pytest.raises(ProtocolError, match=f"beyond round {floor}, the last one begun or"):
            journal.begin(round_id(number), roster_version=1, epoch=0, round_floor=floor)
    assert journal._held.generation == 0
    journal.begin(round_id(far), roster_version=1, epoch=0)
    journal.begin(round_id(10**7 + far), roster_version=1, epoch=0, round_floor=10**7)
    journal.begin(round_id(10**7 + 2 * far), roster_version=1, epoch=0, round_floor=3)
    with pytest.raises(ProtocolError, match="not beyond round"):  # a floor is none to go back to
        journal.begin(round_id(3), roster_version=1, epoch=0, round_floor=3)


def test_a_sum_is_revealed_for_once_and_tried_as_often_as_it_takes(journal: Any) -> None:
    one, other = b"1" * 32, b"2" * 32
    for number in (1, 2, 3):
        journal.begin(round_id(number), roster_version=1, epoch=0, once=one)
        journal.upload(round_id(number), one)
    journal.reveal(round_id(3), b"message")
    journal.begin(round_id(4), roster_version=1, epoch=0, once=other)
    journal.upload(round_id(4), other)
    journal.reveal(round_id(4), b"message")
    for spent in (one, other):
        with pytest.raises(ProtocolError, match="answered for this public state"):
            journal.begin(round_id(5), roster_version=1, epoch=0, once=spent)
    for number in (5, 6):  # a state that nobody named is none
        journal.begin(round_id(number), roster_version=1, epoch=0)
        journal.upload(round_id(number))
        journal.reveal(round_id(number), b"message")


def test_a_journal_is_of_one_federation(journal: Any) -> None:
    one, other = b"1" * 32, b"2" * 32
    journal.begin(round_id(1), roster_version=1, epoch=0)  # of nobody's yet
    journal.begin(round_id(2), roster_version=1, epoch=0, federation=one)
    before = journal._held
    with pytest.raises(ProtocolError, match="this journal is of another federation"):
        journal.begin(round_id(3), roster_version=1, epoch=0, federation=other)
    assert journal._held is before
    journal.begin(round_id(3), roster_version=2, epoch=0)  # nothing is stated
    with pytest.raises(ProtocolError, match="this journal is of another federation"):
        journal.begin(round_id(4), roster_version=2, epoch=0, federation=other)
    journal.begin(round_id(4), roster_version=3, epoch=0, federation=one)
    assert journal._held.federation == one


def test_generations_count_rounds_and_those_of_peers_must_grow(journal: Any) -> None:
    me = round_id(1)
    assert journal.begin(me, roster_version=1, epoch=0) == 1
    journal.see(me, {3: (b"a" * 32, 5), 4: (b"b" * 32, 1)})
    with pytest.raises(ProtocolError, match="a later round"):
        journal.see(round_id(2), {3: (b"a" * 32, 6)})
    me = round_id(2)
    assert journal.begin(me, roster_version=1, epoch=0) == 2
    before = journal._held
    for shown in (0, 4, 5):
        with pytest.raises(ProtocolError, match=r"an old journal: clients \[3\]"):
            journal.see(me, {3: (b"a" * 32, shown), 4: (b"b" * 32, 2)})
    assert journal._held is before
    journal.see(me, {3: (b"a" * 32, 6), 4: (b"c" * 32, 1)})  # 4 has a new key


def test_a_file_is_on_disk_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def watched_fsync(descriptor: int) -> None:
        events.append("fsync")
        fsync(descriptor)

    def watched_replace(self: Path, target: Path) -> Path:
        events.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    journal = FileJournal(tmp_path / "journal")
    journal.begin(round_id(1), roster_version=1, epoch=0)
    assert events == ["fsync", "replace", "fsync"]  # the file, its name, the folder
    assert (tmp_path / "journal").stat().st_mode & 0o077 == 0


def test_a_write_that_fails_begins_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = FileJournal(tmp_path / "journal")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="disk full; nothing is sent"):
            journal.begin(round_id(1), roster_version=1, epoch=0)
    journal.begin(round_id(1), roster_version=1, epoch=0)


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.begin(round_id(3), roster_version=2, epoch=2, once=b"t" * 32, federation=b"f" * 32)
    journal.upload(round_id(3), b"t" * 32)
    journal.reveal(round_id(3), b"before")
    journal.begin(round_id(4), roster_version=2, epoch=3, once=b"s" * 32)
    journal.see(round_id(4), {9: (b"k" * 32, 2**40), 10: (b"l" * 32, 1)})
    assert journal.interrupted
    journal.upload(round_id(4), b"s" * 32)
    assert journal.interrupted
    journal.park(round_id(4), b"4" * 32)
    journal.begin(round_id(5), roster_version=2, epoch=4)
    journal.park(round_id(5), b"5" * 32)
    journal = again_from(journal)
    for number in (4, 5):
        journal.redeem(round_id(number), str(number).encode() * 32, owner=SERVER)
    journal.reveal(round_id(4), b"message")
    assert journal.interrupted
    journal = again_from(journal)
    assert journal.revealed(round_id(4)) == b"message"
    for spent in (b"s" * 32, b"t" * 32):
        with pytest.raises(ProtocolError, match="answered for this public state"):
            journal.begin(round_id(6), roster_version=2, epoch=5, once=spent)
    with pytest.raises(ProtocolError, match="not beyond round 5"):
        journal.begin(round_id(5), roster_version=2, epoch=5)
    journal.upload(round_id(5))
    journal.reveal(round_id(5), b"last")
    journal = again_from(journal)
    assert not journal.interrupted
    with pytest.raises(ProtocolError, match="this journal is of another federation"):
        journal.begin(round_id(6), roster_version=2, epoch=6, federation=b"g" * 32)


def again_from(journal: FileJournal) -> FileJournal:
    """What another process reads of a journal, which is what this one had."""
    journal.close()
    again = FileJournal(journal._path)
    assert again._held == journal._held
    return again


def test_damage_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(path)
    journal.begin(round_id(4), roster_version=2, epoch=3)
    journal.see(round_id(4), {9: (b"k" * 32, 2)})
    journal.upload(round_id(4))
    journal.reveal(round_id(4), b"message")
    journal.close()
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(CheckpointError):
            FileJournal(path)
        path.write_bytes(good[:place])
        with pytest.raises(CheckpointError):
            FileJournal(path)
    for other in (b"SFMJ\x01" + good[5:-32], good[:-32] + b"\x00", good[:-33], b""):
        path.write_bytes(other + sha256(other).digest())
        with pytest.raises(CheckpointError, match="not a journal of this version"):
            FileJournal(path)
    path.write_bytes(good)
    assert FileJournal(path).revealed(round_id(4)) == b"message"


def test_two_processes_cannot_share_a_journal(tmp_path: Path) -> None:
    first = FileJournal(tmp_path / "journal")
    with pytest.raises(CheckpointError, match="another process"):
        FileJournal(tmp_path / "journal")
    first.close()
    FileJournal(tmp_path / "journal").close()


@pytest.mark.claim("masking-journal-one-writer")
def test_one_file_has_one_lock_under_every_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "journal"
    link.symlink_to(tmp_path / "journal")
    monkeypatch.chdir(tmp_path)
    first = FileJournal("journal")
    with pytest.raises(CheckpointError, match="another process"):
        FileJournal(link)
    monkeypatch.chdir(tmp_path / "elsewhere")
    first.begin(round_id(1), roster_version=1, epoch=0)
    assert link.is_symlink()
    assert link.read_bytes() == (tmp_path / "journal").read_bytes()


@pytest.mark.claim("masking-journal-one-writer")
def test_a_fork_of_the_process_writes_nothing(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.begin(round_id(1), roster_version=1, epoch=0)
    before = journal._path.read_bytes()
    here, there = os.pipe()
    child = os.fork()
    if not child:  # the lock is inherited with the memory of the parent
        try:
            journal.begin(round_id(2), roster_version=1, epoch=0)
            os.write(there, b"written")
        except CheckpointError as error:
            os.write(there, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"another process opened" in os.read(here, 1000)
    assert journal._path.read_bytes() == before
    assert journal.begin(round_id(2), roster_version=1, epoch=0) == 2


def test_nothing_is_written_once_the_lock_was_taken_away(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.begin(round_id(1), roster_version=1, epoch=0)
    (tmp_path / "journal.lock").unlink()
    other = FileJournal(tmp_path / "journal")
    other.begin(round_id(2), roster_version=1, epoch=0)
    with pytest.raises(CheckpointError, match="lock was taken away"):
        journal.begin(round_id(2), roster_version=1, epoch=0)


@pytest.mark.claim("masking-journal-one-writer")
def test_the_journal_of_another_client_is_refused(scene: Any, tmp_path: Path) -> None:
    s = scene()
    other = next(number for number in s.clients if number != ME)
    for number in (ME, other):
        s.federation.journals[number] = FileJournal(tmp_path / f"{number}")
        s.clients[number] = s.federation.open_client(number, s.expected)
    s.until_clients_get(Kind.KEYS)
    for number in (ME, other):
        s.federation.journals[number].close()
    (tmp_path / f"{other}").replace(tmp_path / f"{ME}")
    again = scene(federation=s.federation)
    again.federation.journals[ME] = FileJournal(tmp_path / f"{ME}")
    again.clients[ME] = again.federation.open_client(ME, again.expected)
    setup = next(data for number, data in again.server.start() if number == ME)
    before = (tmp_path / f"{ME}").read_bytes()
    with pytest.raises(ProtocolError, match=f"the journal of client {other}"):
        again.clients[ME].receive(setup)
    assert (tmp_path / f"{ME}").read_bytes() == before


def test_a_file_that_cannot_be_read_or_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "nowhere" / "journal"):
        for _ in range(2):  # and leaves no lock behind
            with pytest.raises(CheckpointError, match=r"Is a directory|No such file"):
                FileJournal(path)
    journal = FileJournal(tmp_path / "journal")
    journal.begin(round_id(1), roster_version=1, epoch=0)
    journal.upload(round_id(1))
    before = journal._path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large; nothing is sent"):
            journal.reveal(round_id(1), b"message")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert journal._path.read_bytes() == before
    assert journal.revealed(round_id(1)) is None
    names = {"folder", "folder.lock", "journal", "journal.lock"}
    assert {path.name for path in tmp_path.iterdir()} == names  # and nothing half written


def test_a_write_that_is_interrupted_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.begin(round_id(1), roster_version=1, epoch=0)
    journal.upload(round_id(1))
    before = journal._path.read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for owner, name in ((os, "fsync"), (Path, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                journal.reveal(round_id(1), b"message")
        assert journal._path.read_bytes() == before
        assert {path.name for path in tmp_path.iterdir()} == {"journal", "journal.lock"}


def restarted(s: Any) -> Any:
    """The same client in a new process: the journal is all that is left of it."""
    s.federation.journals[ME].close()
    path = s.federation.journals[ME]._path
    s.federation.journals[ME] = FileJournal(path)
    return s.federation.open_client(ME, s.expected)


@pytest.mark.parametrize("kind", [Kind.KEYS, Kind.BOXES, Kind.SURVIVORS, Kind.QUORUM])
def test_a_restart_in_mid_round_ends_the_round_for_this_client(
    scene: Any, tmp_path: Path, kind: Kind
) -> None:
    s = scene()
    s.federation.journals[ME] = FileJournal(tmp_path / "journal")
    s.clients[ME] = s.federation.open_client(ME, s.expected)
    s.clients[ME].load(s.layout.encode(s.values[ME]))
    setup = s.server.start
    messages: list[bytes] = []

    def remember() -> Any:
        outgoing = setup()
        messages.append(next(data for number, data in outgoing if number == ME))
        return outgoing

    s.server.start = remember
    s.until_clients_get(kind)
    client = restarted(s)
    client.load(s.layout.encode(s.values[ME]))
    with pytest.raises(ProtocolError, match=r"in state SETUP"):
        client.receive(s.message_for(ME))
    with pytest.raises(ProtocolError, match="not beyond round"):
        client.receive(messages[0])  # no second R1, so no second set of keys


def test_after_a_crash_behind_the_reveal_the_same_bytes_are_sent_again(
    scene: Any, tmp_path: Path
) -> None:
    s = scene()
    s.federation.journals[ME] = FileJournal(tmp_path / "journal")
    s.clients[ME] = s.federation.open_client(ME, s.expected)
    s.clients[ME].load(s.layout.encode(s.values[ME]))
    s.until_server_gets(Kind.REVEAL)
    client = restarted(s)
    assert client.receive(s.message_for(ME)) == [s.replies[ME]]
    tampered = bytearray(s.message_for(ME))
    tampered[-1] ^= 1
    with pytest.raises(ProtocolError, match="bad signature of the server"):
        client.receive(bytes(tampered))


@pytest.mark.claim("masking-never-both-shares")
def test_nothing_leaves_if_the_journal_cannot_be_written(scene: Any) -> None:
    class Full(MemoryJournal):
        def _save(self, *_: Any) -> None:
            raise OSError(errno.ENOSPC, "disk full")

    s = scene()
    s.federation.journals[ME] = Full()
    s.clients[ME] = s.federation.open_client(ME, s.expected)
    s.until_clients_get(Kind.SETUP)
    for _ in range(2):  # it may come again, to no other end
        with pytest.raises(OSError, match="disk full"):
            s.clients[ME].receive(s.message_for(ME))
        assert s.clients[ME].state is ClientState.SETUP
        assert s.clients[ME]._round is None


def test_nothing_is_written_once_the_lock_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    closed = FileJournal(path)
    closed.begin(round_id(1), roster_version=1, epoch=0)
    closed.close()
    closed.close()
    other = FileJournal(path)
    other.begin(round_id(7), roster_version=1, epoch=0)
    other.upload(round_id(7))
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="was closed"):
        closed.begin(round_id(2), roster_version=1, epoch=0)
    with pytest.raises(CheckpointError, match="was closed"):
        closed.upload(round_id(1))
    assert path.read_bytes() == before
    other.reveal(round_id(7), b"message")
