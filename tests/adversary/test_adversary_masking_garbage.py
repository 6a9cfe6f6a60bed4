"""Clients that send garbage, and third parties that send it in the name of others.

A wrong message that proves its sender costs that sender the round and nobody else; one that anybody
could have sent costs nobody anything.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking import (
    Fault,
    Identity,
    Kind,
    MaskingClient,
    MaskingServer,
    ServerState,
    run_round,
)
from secure_fedrec.protection.masking.client.secrets import Neighbour, RoundSecrets
from secure_fedrec.protection.masking.envelope import (
    MAC_PURPOSES,
    SERVER,
    Envelope,
    seal,
    seal_for_server,
)
from secure_fedrec.protection.masking.messages import pair_seal as pairs
from secure_fedrec.protection.masking.messages.hybrid import KemKey, pair_secret, seal_to
from secure_fedrec.protection.masking.messages.keys import fresh_key
from secure_fedrec.protection.session import Parcel

REPLIES = [Kind.ADVERTISE, Kind.SHARES, Kind.UPLOAD, Kind.CONFIRM, Kind.REVEAL]
GARBLER, HONEST = 5, 2


class Garbler:
    """A client that says what it likes at one step, under its own signature or MAC."""

    def __init__(self, attack: Any, client: MaskingClient, kind: Kind, how: str) -> None:
        self.attack, self.client, self.kind, self.how = attack, client, kind, how
        self.load, self.observe_beacon = client.load, client.observe_beacon
        self.node = client.node

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        return [
            parcel._replace(data=self.garbled(parcel.data)) for parcel in self.client.step(inbox)
        ]

    def garbled(self, reply: bytes) -> bytes:
        envelope = Envelope.decode(reply)
        if envelope.kind is not self.kind:
            return reply
        head, payload = envelope.head, bytes(envelope.payload)
        head = {
            "noise": os.urandom(len(head)),
            "empty": b"",
            "short": head[:-1],
            "long": head + b"\x00",
        }[self.how]
        arguments = envelope.context, envelope.kind, envelope.sender, head, payload
        if envelope.kind in MAC_PURPOSES:
            keys = self.attack.core._client_keys[GARBLER]
            return seal_for_server(keys[MAC_PURPOSES[envelope.kind]], *arguments)
        return seal(self.attack.federation.identities[GARBLER].key, *arguments)


@pytest.mark.claim("masking-garbage-costs-its-sender")
@pytest.mark.parametrize("how", ["noise", "empty", "short", "long"])
@pytest.mark.parametrize("kind", REPLIES)
def test_a_garbage_reply_costs_its_sender_and_not_the_round(
    attacked: Any, kind: Kind, how: str
) -> None:
    attack = attacked()
    clients = dict(attack.clients)
    clients[GARBLER] = Garbler(attack, clients[GARBLER], kind, how)
    vectors = {n: attack.layout.encode(value) for n, value in attack.values.items()}
    outcome = run_round(attack.server, clients, vectors)
    # Whoever has uploaded is in the sum: its seed is restored from the others' shares.
    gone = {GARBLER} if kind <= Kind.UPLOAD else set()
    assert set(outcome.survivors.tolist()) == set(attack.values) - gone
    expected = sum(attack.values[number] for number in outcome.survivors.tolist())
    assert np.array_equal(attack.layout.decode(outcome.words), expected)
    assert set(outcome.dropped) == {GARBLER}
    assert outcome.dropped[GARBLER]
    assert outcome.faults == (Fault(kind="bad message", client=GARBLER, about=GARBLER),)


def forgeries(attack: Any, reply: bytes, another: bytes) -> dict[str, bytes]:
    """What a third party can send in the name of a client whose reply it has seen on the way."""
    envelope = Envelope.decode(reply)
    stranger = Identity.generate(HONEST)
    forged = seal if envelope.kind not in MAC_PURPOSES else seal_for_server
    key: Any = stranger.key if forged is seal else os.urandom(32)
    place = 122 + len(envelope.head) // 2
    other = Envelope.decode(another)
    context = envelope.context
    end = 122 + len(envelope.head)
    return {
        "its own proof": forged(
            key, context, envelope.kind, HONEST, envelope.head, bytes(envelope.payload)
        ),
        "a flipped bit": reply[:place] + bytes([reply[place] ^ 1]) + reply[place + 1 :],
        "bytes behind": reply + b"\x00",
        "cut short": reply[:-1],
        "another client's": context.prefix(envelope.kind, HONEST, other.head)
        + other.proof
        + bytes(other.payload),
        "a stranger's number": reply[:2] + (77).to_bytes(4, "little") + reply[6:],
        "the server's number": reply[:2] + SERVER.to_bytes(4, "little") + reply[6:],
        "another kind": reply[:1] + bytes([reply[1] % 10 + 2]) + reply[2:],
        "another round": reply[:6] + os.urandom(16) + reply[22:],
        "no proof": reply[:end] + bytes(len(envelope.proof)) + bytes(envelope.payload),
        "noise": os.urandom(len(reply)),
        "nothing": b"",
    }


class Harassed(MaskingServer):
    """A server that is sent every forgery before and after the real message."""

    attack: Any
    ignored = 0

    def receive(self, data: bytes) -> None:
        sender = Envelope.decode(data).sender
        if sender == HONEST:
            assert self.last is not None
            self.harass(data)
            super().receive(data)
            self.harass(data)
            with pytest.raises(ProtocolError, match="not awaited"):
                super().receive(data)  # a duplicate
            assert not self.dropped
        else:
            self.last = data
            super().receive(data)

    def harass(self, data: bytes) -> None:
        before = self.awaiting
        for forgery in forgeries(self.attack, data, self.last).values():
            with pytest.raises(ProtocolError):
                super().receive(forgery)
            self.ignored += 1
        assert self.awaiting == before

    last: bytes = b""


@pytest.mark.claim("masking-garbage-costs-its-sender")
def test_nobody_is_dropped_for_what_others_send_in_its_name(attacked: Any) -> None:
    attack = attacked()
    attack.server.__class__ = Harassed
    attack.server.attack = attack
    vectors = {n: attack.layout.encode(value) for n, value in attack.values.items()}
    outcome = run_round(attack.server, attack.clients, vectors)
    assert attack.server.ignored == 2 * 12 * len(REPLIES)
    assert HONEST in outcome.survivors
    assert not outcome.dropped
    assert not outcome.faults
    expected = sum(attack.values.values())
    assert np.array_equal(attack.layout.decode(outcome.words), expected)


def test_too_many_that_send_garbage_end_the_round_by_name(attacked: Any) -> None:
    attack = attacked()
    clients = dict(attack.clients)
    garblers = (0, 1, GARBLER)
    for number in garblers:
        clients[number] = Replaced(attack, number)
    vectors = {n: attack.layout.encode(value) for n, value in attack.values.items()}
    with pytest.raises(ProtocolError) as ended:
        run_round(attack.server, clients, vectors)
    for number in garblers:
        assert f"client {number}: ADVERTISE" in str(ended.value)
    assert set(attack.server.dropped) == set(garblers)


class Replaced(Garbler):
    """A client with garbage for keys."""

    def __init__(self, attack: Any, number: int) -> None:
        super().__init__(attack, attack.clients[number], Kind.ADVERTISE, "short")

    def garbled(self, reply: bytes) -> bytes:
        envelope = Envelope.decode(reply)
        if envelope.kind is not Kind.ADVERTISE:
            return reply
        key = self.attack.federation.identities[envelope.sender].key
        return seal(key, envelope.context, envelope.kind, envelope.sender, envelope.head[:-1])


def test_a_copy_of_somebody_elses_keys_is_the_copys_fault(attacked: Any) -> None:
    """Keys are published once all advertisements are in; a copy is the later one."""
    attack = attacked()
    attack.outgoing = attack.server.start()
    replies = {n: attack.clients[n].receive(data)[0] for n, data in attack.outgoing}
    for number in set(replies) - {GARBLER}:
        attack.server.receive(replies[number])
    head = Envelope.decode(replies[HONEST]).head
    key = attack.federation.identities[GARBLER].key
    copied = seal(key, attack.core.public.context, Kind.ADVERTISE, GARBLER, head)
    with pytest.raises(ProtocolError, match="client 5 advertised a key twice"):
        attack.server.receive(copied)
    assert set(attack.server.dropped) == {GARBLER}


# Pair secrets of the hybrid agreement, which a server sees only once it has restored a seed.


def lie_about_pairs(monkeypatch: pytest.MonkeyPatch, liar: int, lie: str) -> None:
    """A client that seals its neighbours other secrets than its seed gives, or has another key."""
    honest_seal, honest_init = Neighbour.seal_pair, RoundSecrets.__init__

    def seal_pair(self: Neighbour, secrets: RoundSecrets) -> bytes:
        if self.owner != liar or lie == "KEM key":
            return honest_seal(self, secrets)
        if lie == "noise":
            return os.urandom(len(honest_seal(self, secrets)))
        other = RoundSecrets(self.context, liar, with_kem=True)
        if lie == "other secret":
            return honest_seal(self, other)
        info = pairs.seal_info(self.context, "pair-seal", liar, self.number)
        sealed = seal_to(self.keys.mask_kem, b"\x07" * 32, info)
        told = pair_secret(secrets.mask_element, self.context, self.number)
        return sealed + pairs.pair_hash(self.context, liar, self.number, told)

    def init(self: RoundSecrets, context: Any, owner: int, **how: Any) -> None:
        honest_init(self, context, owner, **how)
        if owner == liar and lie == "KEM key":
            self.mask_kem = KemKey(fresh_key(), "mask-kem", context, owner)

    monkeypatch.setattr(Neighbour, "seal_pair", seal_pair)
    monkeypatch.setattr(RoundSecrets, "__init__", init)


@pytest.mark.claim("masking-exact-or-aborts")
@pytest.mark.parametrize(
    ("lie", "liar", "uploads", "ends"),
    [
        ("other secret", 4, False, False),  # 5 masks with it, and the seed gives another
        ("other than its hash", 4, True, False),  # 5 leaves, and its masks cannot be restored
        ("other than its hash", 4, False, True),
        ("noise", 4, True, False),
        ("noise", 4, False, True),
        ("KEM key", 5, True, True),
        ("KEM key", 5, False, False),
    ],
)
def test_a_lie_about_pair_secrets_gives_no_wrong_sum_and_names_the_liar(
    attacked: Any, monkeypatch: pytest.MonkeyPatch, lie: str, liar: int, uploads: bool, ends: bool
) -> None:
    attack = attacked(key_agreement="x25519+mlkem768")
    lie_about_pairs(monkeypatch, liar, lie)
    vectors = {n: attack.layout.encode(value) for n, value in attack.values.items()}
    drops = {} if uploads else {liar: Kind.UPLOAD}
    if ends:
        outcome = run_round(attack.server, attack.clients, vectors, drops=drops)
        expected = sum(attack.values[number] for number in outcome.survivors.tolist())
        assert np.array_equal(attack.layout.decode(outcome.words), expected)
        return
    with pytest.raises(ProtocolError, match=r"pair secret|does not open|do not fit"):
        run_round(attack.server, attack.clients, vectors, drops=drops)
    assert {fault.client for fault in attack.server.faults} == {liar}
    assert attack.server.state is ServerState.ABORTED
