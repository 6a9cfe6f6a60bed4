"""States of clients at rest: they serve once, at every step, for their owner, and nobody else."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import CheckpointError, ConfigError, ProtocolError
from secure_fedrec.protection.masking import Expected, Kind, MaskingClient, SitePolicy
from secure_fedrec.protection.masking.client.sealed_state import park
from secure_fedrec.protection.masking.messages.hybrid import PUBLIC_BYTES
from secure_fedrec.protection.session import Roster
from secure_fedrec.protection.session.journal import FileJournal, MemoryJournal
from tests.statements import about

KEY, ME = bytes(range(32)), 7
STAGES = (Kind.KEYS, Kind.BOXES, Kind.SURVIVORS, Kind.QUORUM)
Scenes = Callable[..., Any]


def again(s: Any) -> MaskingClient:
    """A new half of the client, as a new process would make it."""
    client: MaskingClient = s.federation.open_client(ME, s.expected)
    return client


def saved_at(scene: Scenes, kind: Kind, path: Path, **settings: Any) -> Any:
    """A round whose client is saved before a message waits for it."""
    s = scene(**settings)
    s.until_clients_get(kind)
    s.clients[ME].save(path, KEY)
    return s


@pytest.mark.parametrize("agreement", ["x25519", "x25519+mlkem768"])
def test_a_client_that_is_saved_before_every_message_ends_in_the_same_sum(
    scene: Scenes, tmp_path: Path, agreement: str
) -> None:
    s = scene(key_agreement=agreement)
    assert PUBLIC_BYTES
    path = tmp_path / "state"
    s.outgoing = s.server.start()
    while s.outgoing[0].data[1] != Kind.RESULT:
        if s.outgoing[0].data[1] in STAGES:
            old = s.clients[ME]
            old.save(path, KEY)
            assert path.stat().st_mode & 0o777 == 0o600
            with pytest.raises(ProtocolError, match="its state was saved"):
                old.receive(s.message_for(ME))  # what was saved is of no more use in memory
            s.clients[ME] = again(s)
            s.clients[ME].resume(path, KEY)
            assert not path.exists()
        s._turn({})
        s.outgoing = s.server.close_step()
    for number, data in s.outgoing:
        s.clients[number].receive(data)
    total = s.layout.decode(s.clients[ME].open_result(s.server.packed_result))
    assert total.tolist() == s.total(list(s.clients)).tolist()


@pytest.mark.parametrize("kind", STAGES, ids=lambda kind: kind.name)
def test_a_copy_is_refused_at_every_step(scene: Scenes, tmp_path: Path, kind: Kind) -> None:
    path, copy = tmp_path / "state", tmp_path / "copy"
    s = saved_at(scene, kind, path)
    shutil.copy(path, copy)
    resumed = again(s)
    resumed.resume(path, KEY)
    with pytest.raises(ProtocolError, match="serves once"):
        again(s).resume(copy, KEY)  # at once,
    assert copy.exists()
    (reply,) = resumed.receive(s.message_for(ME))
    with pytest.raises(ProtocolError, match="serves once"):
        again(s).resume(copy, KEY)  # after the step,
    if kind is not Kind.QUORUM:
        resumed.save(path, KEY)
        with pytest.raises(ProtocolError, match="serves once"):
            again(s).resume(copy, KEY)  # and when the next state is the one that is due
        again(s).resume(path, KEY)
    s.server.receive(reply)


def test_beacons_that_were_observed_meanwhile_are_kept(scene: Scenes, tmp_path: Path) -> None:
    """The host of the half that goes on may know later ones; one that differs costs nothing."""
    path, values = tmp_path / "state", {epoch: bytes([epoch]) * 32 for epoch in (1, 2, 3)}
    s = scene()
    for epoch in (1, 2):
        s.clients[ME].observe_beacon(epoch, values[epoch])
    s.until_clients_get(Kind.BOXES)
    s.clients[ME].save(path, KEY)
    other = again(s)
    other.observe_beacon(2, values[3])
    with pytest.raises(ProtocolError, match="the beacon of epoch 2 is not that of the saved state"):
        other.resume(path, KEY)
    resumed = again(s)
    resumed.observe_beacon(3, values[3])
    resumed.resume(path, KEY)
    for epoch in values:
        with pytest.raises(ProtocolError, match="contradicts itself"):
            resumed.observe_beacon(epoch, bytes(32))


def test_a_state_of_an_earlier_round_is_stale(scene: Scenes, tmp_path: Path) -> None:
    path = tmp_path / "state"
    s = saved_at(scene, Kind.BOXES, path)
    later = scene(federation=s.federation)
    later.until_clients_get(Kind.KEYS)
    with pytest.raises(ProtocolError, match="serves once"):
        again(s).resume(path, KEY)


def test_what_is_not_this_client_s_state_changes_nothing(scene: Scenes, tmp_path: Path) -> None:
    path, odd = tmp_path / "state", tmp_path / "odd"
    s = saved_at(scene, Kind.SURVIVORS, path)
    sealed = path.read_bytes()
    broken = [sealed[:-1], sealed + b"\0", b"", sealed[:40], b"SFMS\x01" + sealed[5:]]
    for place in (0, 4, 5, 30, len(sealed) // 2, len(sealed) - 1):
        flipped = bytearray(sealed)
        flipped[place] ^= 1
        broken.append(bytes(flipped))
    odd.touch(mode=0o600)
    for data in broken:
        odd.write_bytes(data)
        with pytest.raises(ProtocolError, match=r"no saved state|not a state that this key sealed"):
            again(s).resume(odd, KEY)
    with pytest.raises(ProtocolError, match="not a state that this key sealed"):
        again(s).resume(path, bytes(32))
    with pytest.raises(ConfigError, match="must have 32 bytes"):
        again(s).resume(path, b"short")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="only its owner may read"):
        again(s).resume(path, KEY)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="cannot be read"):
        again(s).resume(tmp_path / "nowhere", KEY)
    again(s).resume(path, KEY)  # none of it has cost the state


def test_nothing_is_saved_outside_a_round_or_after_its_reveal(
    scene: Scenes, tmp_path: Path
) -> None:
    s = scene()
    path = tmp_path / "state"
    with pytest.raises(ProtocolError, match="saves nothing in state SETUP"):
        s.clients[ME].save(path, KEY)
    s.until_clients_get(Kind.QUORUM)
    s.clients[ME].receive(s.message_for(ME))
    with pytest.raises(ProtocolError, match="saves nothing in state RESULT"):
        s.clients[ME].save(path, KEY)
    assert not path.exists()
    busy = scene()
    busy.until_clients_get(Kind.BOXES)
    with pytest.raises(ProtocolError, match="resumes nothing in state BOXES"):
        busy.clients[ME].resume(path, KEY)


def test_the_ticket_outlives_the_process(scene: Scenes, tmp_path: Path) -> None:
    path, copy, book = tmp_path / "state", tmp_path / "copy", tmp_path / "journal"
    s = scene()
    journal = FileJournal(book)
    s.clients[ME]._journal = journal
    s.until_clients_get(Kind.BOXES)
    s.clients[ME].save(path, KEY)
    shutil.copy(path, copy)
    journal.close()
    s.federation.journals[ME] = FileJournal(book)
    resumed = again(s)
    resumed.resume(path, KEY)
    s.federation.journals[ME].close()
    s.federation.journals[ME] = FileJournal(book)
    with pytest.raises(ProtocolError, match="serves once"):
        again(s).resume(copy, KEY)


def other_half(s: Any, what: str, journal: MemoryJournal) -> MaskingClient:
    """A half that differs from the one that was saved in one argument."""
    number = 20 if what == "client" else ME
    made = s.federation
    keys = {n: each.public for n, each in made.identities.items()}
    later = Roster.sign(
        Ed25519PrivateKey.generate(), version=2, server=made.server.public, clients=keys
    )
    policies = {
        "policy": SitePolicy(corrupt=0.0, dropout=0.4, min_survivors=5),
        "kem": SitePolicy(corrupt=0.0, dropout=0.4, key_agreement="x25519+mlkem768"),
    }
    return MaskingClient(
        identity=made.identities[number],
        roster=later if what == "roster" else made.roster,
        policy=policies.get(what, made.policy),
        journal=journal,
        expected=Expected(
            layout_hash=b"\7" * 32 if what == "layout" else s.layout.hash,
            statement=about(b"\7" * 32 if what == "state" else s.state),
            min_survivors=5 if what == "survivors" else 0,
        ),
    )


@pytest.mark.parametrize("kind", STAGES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("state", "another statement than expected"),
        ("layout", "another layout than expected"),
        ("survivors", "fewer than 5 survivors would do"),
        ("policy", "sums over 3 clients; this site asks for 5"),
        ("kem", "asks for the hybrid key agreement"),
        ("roster", "another roster"),
        ("client", "the journal of client 7"),
    ],
    ids=["state", "layout", "survivors", "policy", "kem", "roster", "client"],
)
def test_a_half_that_is_not_the_right_one_is_refused_and_costs_nothing(
    scene: Scenes, tmp_path: Path, kind: Kind, what: str, line: str
) -> None:
    s = scene()
    path, journal = tmp_path / "state", s.clients[ME]._journal
    setup = next(data for number, data in s.server.start() if number == ME)
    s.server = s.federation.open_server(s.config, s.server._round.public.cohort)
    if what != "client":
        with pytest.raises(ProtocolError, match=line):
            other_half(s, what, MemoryJournal()).receive(setup)  # as it would begin no such round
    s.until_clients_get(kind)
    s.clients[ME].save(path, KEY)
    sealed, held = path.read_bytes(), journal._held
    wrong = other_half(s, what, journal)
    with pytest.raises(ProtocolError, match=line):
        wrong.resume(path, KEY)
    with pytest.raises(ProtocolError, match="in state SETUP"):
        wrong.receive(s.message_for(ME))
    assert path.read_bytes() == sealed
    assert journal._held == held
    right = again(s)
    right.resume(path, KEY)
    (reply,) = right.receive(s.message_for(ME))
    s.server.receive(reply)


def test_a_folder_that_keeps_its_files_is_named_before_the_ticket_is_struck(
    scene: Scenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    s = saved_at(scene, Kind.BOXES, folder / "state")
    folder.chmod(0o555)
    with monkeypatch.context() as patch:  # what the system answers to anybody but root
        patch.setattr(os, "access", lambda path, *_, **__: path.stat().st_mode & 0o200 != 0)
        with pytest.raises(ConfigError, match="cannot be erased: its folder is read-only"):
            again(s).resume(folder / "state", KEY)
    folder.chmod(0o755)

    def denied(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patch:  # and what it does not tell beforehand
        patch.setattr(Path, "unlink", denied)
        with pytest.raises(ConfigError, match="was taken up and cannot be erased: Permission"):
            again(s).resume(folder / "state", KEY)
    with pytest.raises(ProtocolError, match="serves once"):
        again(s).resume(folder / "state", KEY)


def test_a_save_that_is_interrupted_leaves_one_half(
    scene: Scenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"

    def interrupted(*args: Any, **settings: Any) -> None:
        replace_file(*args, **settings)
        raise KeyboardInterrupt

    s = scene()
    s.until_clients_get(Kind.BOXES)
    with monkeypatch.context() as patch:
        patch.setattr(park.__module__ + ".replace_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            s.clients[ME].save(path, KEY)
    assert path.exists()
    with pytest.raises(ProtocolError, match="serves once"):
        again(s).resume(path, KEY)
    assert s.clients[ME].receive(s.message_for(ME))


def test_a_save_whose_ticket_cannot_be_struck_again_leaves_one_half(
    scene: Scenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"

    def interrupted(*args: Any, **settings: Any) -> None:
        replace_file(*args, **settings)
        monkeypatch.setattr(s.federation.journals[ME], "_save", full)
        raise KeyboardInterrupt

    def full(entries: Any) -> None:
        raise CheckpointError("No space left on device")

    s = scene()
    s.until_clients_get(Kind.BOXES)
    with monkeypatch.context() as patch:
        patch.setattr(park.__module__ + ".replace_file", interrupted)
        with pytest.raises(CheckpointError, match="No space"):
            s.clients[ME].save(path, KEY)
    monkeypatch.undo()
    with pytest.raises(ProtocolError, match="its state may have been saved"):
        s.clients[ME].receive(s.message_for(ME))
    resumed = again(s)
    resumed.resume(path, KEY)
    assert resumed.receive(s.message_for(ME))
