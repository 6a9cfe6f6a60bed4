"""Identities, rosters and envelopes: strict files, and messages of one protocol each."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.session import Identity, Node, Role, Roster
from secure_fedrec.protection.session.envelope import Family, SignedMessages
from secure_fedrec.protection.session.journal import FileJournal

OPERATOR = Ed25519PrivateKey.generate()
PINNED = OPERATOR.public_key().public_bytes_raw()
SERVER, CLIENT = Identity.generate(Node(Role.SERVER)), Identity.generate(3)
KEYS = {SERVER.node: SERVER.public, CLIENT.node: CLIENT.public}


@pytest.mark.parametrize("node", [Node(Role.SERVER), Node(Role.CLIENT, 7), Node(Role.DENOISER, 2)])
def test_an_identity_comes_back_from_its_file(tmp_path: Path, node: Node) -> None:
    path = tmp_path / "identity"
    made = Identity.generate(node)
    made.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    read = Identity.load(path)
    assert (read.node, read.public) == (node, made.public)
    assert made.key.private_bytes_raw().hex() not in repr(made)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_an_identity_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "identity"
    CLIENT.save(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="only its owner may read") as refused:
        Identity.load(path)
    assert refused.value.key == "identity.file"


def test_a_file_that_is_no_identity_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    with pytest.raises(ConfigError, match="cannot be read"):
        Identity.load(path)
    CLIENT.save(path)
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(ConfigError, match="is not an identity"):
            Identity.load(path)
    for data in (good[:-1], good + b"\0", b""):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match="is not an identity"):
            Identity.load(path)


def test_a_roster_comes_back_from_its_file_under_the_pinned_key(tmp_path: Path) -> None:
    path = tmp_path / "roster"
    roster = Roster.of(OPERATOR, KEYS, version=4, round_floor=9)
    roster.save(path)
    read = Roster.load(path, operator=PINNED, least_version=4)
    assert (read.hash, read.version, read.round_floor) == (roster.hash, 4, 9)
    assert read.key_of(3) == CLIENT.public
    assert Node(Role.DENOISER, 3) not in read
    with pytest.raises(ProtocolError, match="roster 4 is older than roster 5"):
        Roster.load(path, operator=PINNED, least_version=5)
    with pytest.raises(ProtocolError, match="pinned operator key"):
        Roster.load(path, operator=SERVER.public)
    path.write_bytes(roster.encoded[:-1])
    with pytest.raises(ProtocolError, match="pinned operator key"):
        Roster.load(path, operator=PINNED)
    with pytest.raises(ConfigError, match="cannot be read"):
        Roster.load(tmp_path / "nowhere", operator=PINNED)


def test_a_journal_refuses_an_older_roster(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.begin(bytes([1]) + bytes(15), roster_version=4, epoch=0)
    with pytest.raises(ProtocolError, match="roster 3 is older than roster 4"):
        journal.begin(bytes([2]) + bytes(15), roster_version=3, epoch=0)
    journal.close()


def sealed(family: Family = Family.PAILLIER, *, round_: int = 5) -> bytes:
    messages = SignedMessages(family, Kind, Roster.of(OPERATOR, KEYS), round_, b"c" * 32)
    return messages.seal(3, b"body", CLIENT)


def opened(data: bytes, *, round_: int = 5, context: bytes = b"c" * 32) -> bytes:
    roster = Roster.of(OPERATOR, KEYS)
    found = SignedMessages(Family.PAILLIER, Kind, roster, round_, context).read(data)
    assert (found.kind, found.sender) == (3, CLIENT.node)
    return found.body


def test_a_message_of_another_protocol_is_refused() -> None:
    assert opened(sealed()) == b"body"
    with pytest.raises(WireError, match="another protocol"):
        opened(sealed(Family.SHARES))


def test_a_message_of_another_round_agreement_or_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match="from round 5"):
        opened(sealed(), round_=6)
    with pytest.raises(ProtocolError, match="another agreement"):
        opened(sealed(), context=bytes(32))
    with pytest.raises(WireError, match="message of version 1"):
        opened(b"\x01" + sealed()[1:])
    with pytest.raises(WireError, match="shorter than an empty one"):
        opened(sealed()[:100])
    stranger = Identity.generate(9)
    roster = Roster.of(OPERATOR, KEYS)
    foreign = SignedMessages(Family.PAILLIER, Kind, roster, 5, b"c" * 32).seal(3, b"", stranger)
    with pytest.raises(ProtocolError, match="client 9 is not on the roster"):
        opened(foreign)


def test_no_bit_of_a_message_can_be_changed() -> None:
    data = sealed()
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises((WireError, ProtocolError)):
            opened(changed)
