"""What the server half, rosters and set-ups refuse, condition by condition."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    Kind,
    Later,
    MaskingConfig,
    MaskingServer,
    Roster,
    ServerState,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.client import secrets
from secure_fedrec.protection.masking.client.secrets import Neighbour
from secure_fedrec.protection.masking.envelope import Envelope, seal_for_server
from secure_fedrec.protection.masking.messages.key_messages import Setup, Shares, share_hashes
from secure_fedrec.protection.masking.messages.sum_messages import Upload
from secure_fedrec.protection.session.statement import NO_STATEMENT
from tests.statements import LATER, about

ME = 7


def test_a_beacon_that_is_not_due_or_short_is_refused(scene: Any) -> None:
    s = scene()
    s.until_server_gets(Kind.ADVERTISE)
    s._deliver()
    current = s.server._round
    object.__setattr__(current.public.config, "degree", 2)
    object.__setattr__(current.public, "epoch", 1)
    assert current.public.beacon_due
    for beacon in (None, b"", b"b" * 31, b"b" * 33):
        with pytest.raises(ProtocolError, match="a beacon of 32 bytes is due"):
            current.take_beacon(beacon)
    current.take_beacon(b"b" * 32)


def test_shares_for_other_neighbours_are_refused(scene: Any) -> None:
    s = scene()
    s.until_server_gets(Kind.SHARES)
    shares = Shares.decode(Envelope.decode(s.replies[ME]).head, ME, s.config)
    fewer = {number: record for number, record in shares.records.items() if number != 20}
    fields = {name: getattr(shares, name) for name in Shares.__slots__} | {"records": fewer}
    with pytest.raises(ProtocolError, match="client 7 did not serve its neighbours"):
        s.server.receive(s.client_says(s.replies[ME], head=Shares(**fields).head()))


def test_nothing_that_unmasks_is_left_at_the_server(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.RESULT)
    current = s.server._round
    assert current._reveals == current._shares == current._client_keys == {}
    assert not len(current._sum.total())


def test_a_message_of_another_round_is_refused(scene: Any) -> None:
    """Under the sender's own MAC: what was said in another round was said of another sum."""
    s = scene()
    s.until_server_gets(Kind.UPLOAD)
    envelope = Envelope.decode(s.replies[ME])
    key = s.server._round._client_keys[ME]["upload-mac"]
    other = replace(envelope.context, round_id=b"z" * 16)
    head, payload = envelope.head, bytes(envelope.payload)
    message = seal_for_server(key, other, Kind.UPLOAD, ME, head, payload)
    with pytest.raises(ProtocolError, match="another round, configuration, roster or cohort"):
        s.server.receive(message)
    assert ME in s.server.awaiting
    s.server.receive(s.replies[ME])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"identity": 3}, "server.identity"),
        ({"identity": "another"}, "server.identity"),
        ({"cohort": np.array([3, 7, 20, 21])}, "server.cohort"),
        ({"cohort": np.array([7, 3, 20, 21, 40])}, "server.cohort"),
        ({"cohort": np.array([3, 7, 20, 21, 41])}, "server.cohort"),
        ({"config": {"statement": NO_STATEMENT}}, "masking.statement"),
        ({"later": LATER}, "masking.statement"),
        ({"config": {"statement": LATER.digest}, "later": about(b"s" * 32)}, "masking.statement"),
        (
            {"config": {"statement": LATER.digest}, "later": Later(federation=b"g" * 32)},
            "masking.statement",
        ),
        ({"round_number": 0}, "server.round_number"),
        ({"round_number": 2**64}, "server.round_number"),
        ({"epoch": -1}, "server.epoch"),
    ],
)
def test_a_server_that_does_not_fit_its_round_is_refused(
    scene: Any, changes: dict[str, Any], key: str
) -> None:
    s = scene()
    fits: dict[str, Any] = {
        "identity": s.federation.server, "roster": s.federation.roster, "config": s.config,
        "cohort": np.array([3, 7, 20, 21, 40]), "round_number": 1, "epoch": 0,
    }  # fmt: skip
    MaskingServer(**fits)
    who = {3: s.federation.identities[3], "another": Federation((1,)).server}
    if "identity" in changes:
        changes = {"identity": who[changes["identity"]]}
    if "config" in changes:
        changes = {**changes, "config": replace(s.config, **changes["config"])}
    with pytest.raises(ConfigError) as refused:
        MaskingServer(**fits | changes)
    assert refused.value.key == key


def test_a_statement_that_comes_later_is_named_once_and_before_the_vectors_are_due() -> None:
    federation, layout = Federation(range(4)), SumLayout(bits=20, length=2, clients=4, largest=9)
    config = MaskingConfig(
        clients=4, bits=20, length=2, layout_hash=layout.hash, threshold=2, min_survivors=3,
        quorum=3, corrupt_clients=0, statement=LATER.digest,
    )  # fmt: skip
    site = SitePolicy(corrupt=0.0, dropout=0.25)
    federation.policy = site
    stated = about(b"s" * 32)
    server = MaskingServer(
        identity=federation.server, roster=federation.roster, config=config,
        cohort=np.arange(4), round_number=1, later=LATER,
    )  # fmt: skip
    expected = Expected(layout_hash=layout.hash, statement=LATER)
    clients = {number: federation.open_client(number, expected) for number in range(4)}
    vector = layout.encode(np.array([1, -2]))
    stranger = replace(stated, federation=b"g" * 32)
    for client in clients.values():
        with pytest.raises(ConfigError, match=r"statement: must be named exactly"):
            client.load(vector)
        with pytest.raises(ConfigError, match=r"statement\.federation"):
            client.load(vector, statement=stranger)
        client.load(vector, statement=stated)
    outgoing = server.start()
    for _ in range(2):
        for number, data in outgoing:
            for reply in clients[number].receive(data):
                server.receive(reply)
        if server.state is ServerState.SHARES:
            with pytest.raises(ProtocolError, match="is not named yet"):
                server.close_step()
            with pytest.raises(ProtocolError, match="named already, or not of its federation"):
                server.name_statement(stranger)
            server.name_statement(stated)
        outgoing = server.close_step()
    with pytest.raises(ProtocolError, match="named already, or not of its federation"):
        server.name_statement(stated)
    while not server.finished:
        for number, data in outgoing:
            for reply in clients[number].receive(data):
                server.receive(reply)
        outgoing = server.close_step()
    assert layout.decode(server.result).tolist() == [4, -8]
    # A round whose statement is that of its configuration takes no other.
    fixed = federation.open_server(replace(config, statement=stated.digest), np.arange(4))
    with pytest.raises(ProtocolError, match="named already, or not of its federation"):
        fixed.name_statement(stated)
    client = federation.open_client(0, Expected(layout_hash=layout.hash, statement=stated))
    with pytest.raises(ConfigError, match="must be named exactly"):
        client.load(vector, statement=stated)


def test_a_setup_of_another_number_of_clients_is_refused(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.SETUP)
    setup = Setup.decode(Envelope.decode(s.message_for(ME)).head)
    fields = {name: getattr(setup, name) for name in Setup.__slots__}
    head = Setup(**fields | {"cohort": np.array([3, 7, 20, 21])}).head()
    with pytest.raises(ProtocolError, match="4 clients, configured 5"):
        Setup.decode(head)


def test_a_roster_that_lists_a_key_twice_is_not_read() -> None:
    operator = Ed25519PrivateKey.generate()
    public = operator.public_key().public_bytes_raw()
    keys = {1: b"a" * 32, 2: b"b" * 32}
    good = Roster.sign(operator, version=1, server=b"s" * 32, clients=keys)
    body = good.encoded[:-64].replace(b"b" * 32, b"a" * 32)
    signed = body + operator.sign(b"secure-fedrec|v1|session|roster|" + body)
    with pytest.raises(ProtocolError, match="no key twice"):
        Roster.decode(signed, operator=public)
    with pytest.raises(ConfigError, match="one key stands for two"):
        Roster.sign(operator, version=1, server=b"s" * 32, clients={1: b"a" * 32, 2: b"a" * 32})


def test_a_stranger_has_no_key() -> None:
    roster = Federation((2, 5)).roster
    for stranger in (1, 3, 6):
        with pytest.raises(ProtocolError, match=f"client {stranger} is not on the roster"):
            roster.key_of(stranger)
        with pytest.raises(ProtocolError, match=f"client {stranger} is not on the roster"):
            roster.keys_of(np.array([2, stranger]))


def test_shares_that_differ_from_their_hashes_are_disputed(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever receives them: later nobody could say who of the two lies."""
    s = scene()
    sealed = Neighbour.seal_shares

    def seal_shares(self: Neighbour, *shares: Any) -> bytes:
        with monkeypatch.context() as lying:
            if self.owner == 20:
                lying.setattr(
                    secrets, "share_hashes", lambda *of: (bytes(32), share_hashes(*of)[1])
                )
            return sealed(self, *shares)

    monkeypatch.setattr(Neighbour, "seal_shares", seal_shares)
    s.until_server_gets(Kind.UPLOAD)
    told = Upload.decode(Envelope.decode(s.replies[ME]).head)
    assert told.disputed.tolist() == [20]
