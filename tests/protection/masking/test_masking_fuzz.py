"""Mutated messages in every state, of every kind, in every field; half of them validly signed.

``SECURE_FEDREC_FUZZ`` sets the number of messages (default 20000), ``EXPLORE=1`` a fresh seed.
"""

import copy
import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking import ClientState, Kind, ServerState
from secure_fedrec.protection.masking.envelope import (
    MAC_PURPOSES,
    Context,
    Envelope,
    seal,
    seal_for_server,
)
from secure_fedrec.protection.masking.messages.hybrid import KemKey

MESSAGES = int(os.environ.get("SECURE_FEDREC_FUZZ", "20000"))
ME = 7
HEADER = [
    ("version", 0, 1),
    ("kind", 1, 2),
    ("sender", 2, 6),
    ("round_id", 6, 22),
    ("config_hash", 22, 54),
    ("roster_hash", 54, 86),
    ("cohort_hash", 86, 118),
    ("size", 118, 122),
]
CONFIG = [1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4, 32, 32]
HEADS: dict[Kind, list[int]] = {
    Kind.SETUP: [*CONFIG, 8, 4, 32, 4, 4, 4, 4],
    Kind.ADVERTISE: [8, 8, 32, 32],
    Kind.KEYS: [1, 32],
    Kind.SHARES: [32, 4, 4, 80, 32, 32, 4, 80, 32, 32],
    Kind.BOXES: [1],
    Kind.UPLOAD: [32, 64, 32, 4],
    Kind.SURVIVORS: [1, 32],
    Kind.CONFIRM: [32],
    Kind.QUORUM: [4, 4, 64, 4, 64],
    Kind.REVEAL: [32, 4, 4, 32, 4, 32, 16],
    Kind.RESULT: [32, 32, 4],
}
PAYLOADS: dict[Kind, list[int]] = {
    Kind.KEYS: [4, 4, 80, 64, 4, 80, 64],
    Kind.BOXES: [4, 4, 80, 32, 32, 4, 80, 32, 32],
    Kind.UPLOAD: [2, 3],
    Kind.SURVIVORS: [4, 4, 64, 4, 64, 32, 32],
    Kind.RESULT: [4, 32, 32],
}
HYBRID_BOXES = [4, 4, 1168, 80, 32, 32, 4, 1168, 80, 32, 32, 1168, 32]
"""With the hybrid agreement: the records of 3 and 20, then what 3 sealed, and the hash of that."""
DISPUTABLE = {False: {2, 3, 4, 6, 7, 8}, True: {7, 8, 9, 10}}
"""Fields of BOXES that may be altered on their way, by whether the agreement is hybrid: records,
but not those that vouch for a pair secret, and no pair secret."""
SIGNATURES = {2, 4}
"""Fields of SURVIVORS that may be too: who sees a wrong signature there keeps a share, no more."""
MUTATIONS = ("flip", "zero", "ones", "random", "insert", "delete", "repeat", "cut", "foreign")


def split(data: bytes, sizes: list[int]) -> list[bytes]:
    """The fields of a part; whatever the sizes leave over is one more."""
    edges = [0, *itertools.accumulate(sizes)]
    parts = [data[a:b] for a, b in itertools.pairwise(edges)]
    return [*parts, data[edges[-1] :]]


def mutate(rng: random.Random, field: bytes, how: str, foreign: bytes) -> bytes:
    """Another content for a field."""
    size = len(field)
    if how == "flip" and size:
        place = rng.randrange(size)
        return field[:place] + bytes([field[place] ^ (1 << rng.randrange(8))]) + field[place + 1 :]
    replacements = {
        "zero": bytes(size),
        "ones": b"\xff" * size,
        "random": rng.randbytes(size),
        "insert": field + rng.randbytes(rng.choice([1, 4, 32])),
        "delete": field[: rng.randrange(size)] if size else b"",
        "repeat": field + field,
        "foreign": foreign,
    }
    return replacements.get(how, field)


class Target:
    """A half in one state, a message, and how to make wrong ones of it."""

    def __init__(self, s: Any, half: Any, kind: Kind, message: bytes, foreign: bytes) -> None:
        self.scene, self.half, self.kind = s, half, kind
        self.message = message
        self.envelope = Envelope.decode(message)
        other = Envelope.decode(foreign)
        self.head = split(self.envelope.head, HEADS[kind])
        sizes = PAYLOADS.get(kind, [])
        if kind is Kind.BOXES and s.config.hybrid:
            sizes = HYBRID_BOXES
        self.payload = split(bytes(self.envelope.payload), sizes)
        self.other_head = split(other.head, HEADS[kind])
        self.other_payload = split(bytes(other.payload), sizes)
        self.fields = [("header", place) for place in range(len(HEADER))]
        self.fields += [("head", place) for place in range(len(self.head))]
        self.fields += [("payload", place) for place in range(len(self.payload))]
        self.fields += [("proof", 0)]

    def wrong(self, rng: random.Random, field: tuple[str, int], how: str, *, signed: bool) -> bytes:
        part, place = field
        if not signed or part == "proof":
            return self._raw(rng, part, place, how)
        head, payload, context = list(self.head), list(self.payload), self.envelope.context
        if part == "head":
            foreign = self.other_head[min(place, len(self.other_head) - 1)]
            head[place] = mutate(rng, head[place], how, foreign)
            head = head[:place] if how == "cut" else head
        elif part == "payload":
            foreign = self.other_payload[min(place, len(self.other_payload) - 1)]
            payload[place] = mutate(rng, payload[place], how, foreign)
            payload = payload[:place] if how == "cut" else payload
        elif place >= 3 and place < 7:
            name = HEADER[place][0]
            names = ("round_id", "config_hash", "roster_hash", "cohort_hash")
            fields = {each: getattr(context, each) for each in names}
            fields[name] = mutate(rng, fields[name], rng.choice(["flip", "zero", "random"]), b"")
            context = Context(**fields)
        return self._seal(context, b"".join(head), b"".join(payload))

    def _seal(self, context: Context, head: bytes, payload: bytes) -> bytes:
        s, kind, sender = self.scene, self.kind, self.envelope.sender
        if kind in MAC_PURPOSES:
            key = s.mac_keys[MAC_PURPOSES[kind]]
            return seal_for_server(key, context, kind, sender, head, payload)
        identities = s.federation.identities
        identity = identities.get(sender, s.federation.server)
        return seal(identity.key, context, kind, sender, head, payload)

    def _raw(self, rng: random.Random, part: str, place: int, how: str) -> bytes:
        header = len(self.message) - sum(map(len, (*self.head, *self.payload)))
        proof = header - 122
        parts = {
            "header": [self.message[a:b] for _, a, b in HEADER],
            "head": list(self.head),
            "proof": [self.message[122 + sum(map(len, self.head)) :][:proof]],
            "payload": list(self.payload),
        }
        chosen = parts[part]
        chosen[place] = mutate(rng, chosen[place], how, rng.randbytes(len(chosen[place])))
        data = b"".join(itertools.chain(*parts.values()))
        return data[: rng.randrange(len(data))] if how == "cut" else data


@pytest.fixture(scope="module", params=["x25519", "x25519+mlkem768"])
def targets(
    scene: Any, request: pytest.FixtureRequest
) -> Iterator[tuple[list[Target], list[Target]]]:
    """Every half in every state with every kind of message: those awaited, and the others."""
    with pytest.MonkeyPatch.context() as patch:
        # The library's HPKE keys cannot be copied; they never change, so copies may share them.
        patch.setattr(KemKey, "__deepcopy__", lambda self, _: self, raising=False)
        yield collect(scene, request.param)


def collect(scene: Any, agreement: str) -> tuple[list[Target], list[Target]]:
    """Play one round and keep what is needed of it."""
    s = scene(numbers=(3, ME, 20), length=2, key_agreement=agreement)
    messages: dict[Kind, tuple[bytes, bytes]] = {}
    halves: list[Any] = [copy.deepcopy(s.server), copy.deepcopy(s.clients[ME])]
    s.outgoing = s.server.start()
    while True:
        messages[Kind(s.outgoing[0].data[1])] = s.message_for(ME), s.message_for(3)
        halves += [copy.deepcopy(s.server), copy.deepcopy(s.clients[ME])]
        if s.server.state is ServerState.SHARES:
            s.mac_keys = {
                name: s.server._round._client_keys[ME][name] for name in MAC_PURPOSES.values()
            }
        s._answer({})
        if not s.replies:
            break
        messages[Kind(s.replies[ME][1])] = s.replies[ME], s.replies[3]
        s._deliver()
        s.outgoing = s.server.close_step()
    halves += [copy.deepcopy(s.clients[ME])]
    aborted = copy.deepcopy(halves[1])
    aborted.abort("told to")
    halves += [aborted]
    awaited: list[Target] = []
    others: list[Target] = []
    states = {half.state: half for half in halves}
    for half, (kind, pair) in itertools.product(states.values(), messages.items()):
        target = Target(s, half, kind, *pair)
        (awaited if half.state.value is kind else others).append(target)
    assert {target.half.state for target in awaited + others} >= set(ClientState)
    return awaited, others


def copied(half: Any) -> Any:
    """A copy that shares what a round does not change."""
    shared = [half._round, half._roster] if isinstance(half.state, ClientState) else []
    memo: dict[int, Any] = {id(half._roster): half._roster} if shared else {}
    current = half._round
    for name in ("_roster", "_identity", "config", "_config", "public", "_topology"):
        value = getattr(current, name, None)
        if value is not None:
            memo[id(value)] = value
    return copy.deepcopy(half, memo)


def try_message(target: Target, data: bytes, *, signed: bool = True) -> bool:
    """Whether a half took a message; anything but ``ProtocolError`` fails the test."""
    awaited = target.half.state.value is target.kind
    half = copied(target.half) if awaited else target.half
    before = half.state
    try:
        half.receive(data)
    except ProtocolError as error:
        assert str(error)
        assert half.state is before or half.state is ClientState.ABORTED
        taken = False
    else:
        taken = True
    if isinstance(half.state, ServerState):
        assert half.state is before  # messages never move the server on, steps do
        gone = target.half.awaiting - half.awaiting
        assert gone == ({ME} if taken or half.dropped else set())
        assert signed or taken or not half.dropped  # what anybody can send costs nobody anything
        if before is not ServerState.DONE:
            with pytest.raises(ProtocolError):
                _ = half.result
    return taken


def test_the_unchanged_messages_are_taken_where_they_are_awaited(targets: Any) -> None:
    awaited, _ = targets
    assert {target.kind for target in awaited} == set(Kind)
    for target in awaited:
        assert b"".join(target.head) == target.envelope.head
        context = target.envelope.context
        again = target._seal(context, target.envelope.head, bytes(target.envelope.payload))
        assert again == target.message  # the harness signs as the parties do
        assert try_message(target, target.message)


@pytest.mark.claim("masking-refuses-by-name")
def test_only_protocol_errors_come_out_of_wrong_messages(targets: Any) -> None:
    awaited, others = targets
    seed = random.SystemRandom().randrange(2**32) if "EXPLORE" in os.environ else 20261121
    rng = random.Random(seed)
    covered: set[tuple[Any, ...]] = set()
    signed_fields: set[tuple[Any, ...]] = set()
    signed_count = taken = 0
    plans = [[(t, field) for t in group for field in t.fields] for group in (awaited, others)]
    for plan in plans:
        rng.shuffle(plan)
    hybrid = awaited[0].scene.config.hybrid  # ten times the bytes: a tenth of the messages
    count = MESSAGES // 10 if hybrid else MESSAGES
    for number in range(count):
        # Every field of every message in every state comes up before any comes up again.
        plan = plans[number % 2]
        target, field = plan[(number // 2) % len(plan)]
        how = rng.choice(MUTATIONS)
        # Two in three carry a valid proof: a mutated proof or header part cannot.
        signed = rng.random() < 2 / 3 and field[0] != "proof"
        data = target.wrong(rng, field, how, signed=signed)
        signed_count += signed
        if data != target.message:
            took = try_message(target, data, signed=signed)
            taken += took
            # A box that was altered on its way is disputed; the rest must carry a valid proof, and
            # what vouches for a pair secret is the neighbour's own whoever signs the message.
            disputable = target.kind is Kind.BOXES and field[0] == "payload"
            if disputable:
                disputable = field[1] in DISPUTABLE[hybrid]
                assert disputable or not took, (seed, target.kind, field, how)
            elif target.kind is Kind.SURVIVORS and field[0] == "payload":
                disputable = field[1] in SIGNATURES
            assert signed or disputable or not took, (seed, target.kind, field, how)
        covered.add((target.half.state, target.kind, field))
        if signed and target.half.state.value is target.kind:
            signed_fields.add((target.kind, field))
    assert signed_count >= count / 2, signed_count
    everything = {(t.half.state, t.kind, field) for t in awaited + others for field in t.fields}
    if count >= 20000:
        assert covered == everything
        assert signed_fields == {
            (t.kind, field) for t in awaited for field in t.fields if field[0] != "proof"
        }
    # Corrupt parties may say other things than honest ones: some signed messages are legal.
    assert taken < count / 4
