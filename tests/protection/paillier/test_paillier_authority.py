"""Rounds with an authority: exact sums, and every message that does not belong is refused."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError, WireError
from secure_fedrec.protection.paillier import (
    Authority,
    Encryptor,
    Identity,
    Party,
    Plan,
    PrivateKey,
    Role,
    UploadingClient,
    UploadingServer,
    encrypt_vector,
)
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES
from tests.paillier_federation import seal

SERVER, AUTHORITY = Party(Role.SERVER), Party(Role.AUTHORITY)
ROUND = 3
HEAD = ENVELOPE_BYTES - 64


def values_of(plan: Plan, rng: np.random.Generator) -> list[RingArray]:
    made = []
    for layout in plan.layouts:
        largest = layout.codec.largest
        drawn = rng.integers(-largest, largest, layout.length, endpoint=True)
        drawn[rng.random(layout.length) < 0.3] = largest
        drawn[rng.random(layout.length) < 0.3] = -largest
        made.append(layout.codec.from_integers(drawn))
    return made


@dataclass
class Round:
    """All halves of one round, and every message that went between them, by kind."""

    plan: Plan
    private: PrivateKey
    identities: dict[Party, Identity]
    round: int = ROUND
    seen: dict[Kind, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        encryptor = Encryptor(self.plan.key)
        self.clients = {
            number: UploadingClient(
                self.plan, self.identities[Party(Role.CLIENT, number)], encryptor, self.round
            )
            for number in self.plan.clients
        }
        self.server = UploadingServer(self.plan, self.identities[SERVER], self.round)
        self.authority = Authority(self.plan, self.identities[AUTHORITY], self.private)

    def note(self, kind: Kind, data: bytes) -> bytes:
        self.seen.setdefault(kind, []).append(data)
        return data

    def exchange_keys(self) -> None:
        if not self.plan.holding.masked:
            return
        for client in self.clients.values():
            self.server.receive(self.note(Kind.MASK_KEY, client.advertise()))
        bundle = self.note(Kind.MASK_KEYS, self.server.mask_keys())
        for client in self.clients.values():
            client.receive_keys(bundle)

    def run(self, uploads: list[list[RingArray]]) -> tuple[RingArray, ...]:
        self.exchange_keys()
        for client, vectors in zip(self.clients.values(), uploads, strict=True):
            self.server.receive(self.note(Kind.UPLOAD, client.upload(vectors)))
        answer = self.authority.answer(self.note(Kind.SUMS, self.server.sums()), self.round)
        self.server.receive(self.note(Kind.RESULT, answer))
        return self.server.result()


@pytest.fixture(params=[False, True], ids=["bare", "masked"])
def plan(
    request: pytest.FixtureRequest, short_key: PrivateKey, authority_plan: Callable[..., Plan]
) -> Plan:
    return authority_plan(short_key.public, masked=request.param)


def assert_exact(plan: Plan, uploads: list[list[RingArray]], found: tuple[RingArray, ...]) -> None:
    for number, layout in enumerate(plan.layouts):
        integers = [layout.codec.to_integers(vectors[number]) for vectors in uploads]
        assert layout.codec.to_integers(found[number]).tolist() == np.sum(integers, axis=0).tolist()
        assert found[number].dtype == layout.codec.dtype


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    masked=st.booleans(),
    clients=st.sets(st.integers(0, 7), min_size=3, max_size=6),
    length=st.integers(1, 25),
    bits=st.sampled_from([14, 24, 30, 32, 33, 48, 63, 64]),
)
def test_the_result_is_the_integer_sum_for_any_cohort(
    short_key: PrivateKey,
    authority_plan: Callable[..., Plan],
    identities: dict[Party, Identity],
    seed: int,
    masked: bool,
    clients: set[int],
    length: int,
    bits: int,
) -> None:
    chosen = tuple(sorted(clients))
    plan = authority_plan(short_key.public, masked=masked, clients=chosen, length=length, bits=bits)
    rng = np.random.default_rng(seed)
    uploads = [values_of(plan, rng) for _ in chosen]
    assert_exact(plan, uploads, Round(plan, short_key, identities).run(uploads))


@pytest.mark.parametrize("masked", [False, True])
def test_a_round_under_a_real_key_is_exact(
    real_key: PrivateKey,
    authority_plan: Callable[..., Plan],
    identities: dict[Party, Identity],
    masked: bool,
) -> None:
    plan = authority_plan(real_key.public, masked=masked, length=300)
    uploads = [values_of(plan, np.random.default_rng(seed)) for seed in range(3)]
    assert_exact(plan, uploads, Round(plan, real_key, identities).run(uploads))


def started(plan: Plan, key: PrivateKey, identities: dict[Party, Identity]) -> Round:
    made = Round(plan, key, identities)
    made.exchange_keys()
    return made


def test_no_sum_is_opened_before_every_client_is_heard(
    plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    made = started(plan, short_key, identities)
    rng = np.random.default_rng(1)
    for missing in (3, 2, 1):
        with pytest.raises(ProtocolError, match=f"{missing} uploads are missing"):
            made.server.sums()
        with pytest.raises(ProtocolError):
            made.server.result()
        client = made.clients[plan.clients[3 - missing]]
        made.server.receive(client.upload(values_of(plan, rng)))
    made.server.sums()


def test_a_second_upload_of_a_client_is_refused_and_changes_nothing(
    plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    made = started(plan, short_key, identities)
    uploads = [values_of(plan, np.random.default_rng(seed)) for seed in range(3)]
    first, *others = plan.clients
    sent = made.clients[first].upload(uploads[0])
    made.server.receive(sent)
    with pytest.raises(ProtocolError, match="second upload"):
        made.server.receive(sent)
    with pytest.raises(ProtocolError, match="refuses the step upload"):
        made.clients[first].upload(uploads[0])
    for number, vectors in zip(others, uploads[1:], strict=True):
        made.server.receive(made.clients[number].upload(vectors))
    made.server.receive(made.authority.answer(made.server.sums(), ROUND))
    assert_exact(plan, uploads, made.server.result())


def test_values_that_do_not_fit_leave_no_byte_and_can_be_mended(
    plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    made = started(plan, short_key, identities)
    client = made.clients[plan.clients[0]]
    good = values_of(plan, np.random.default_rng(1))
    codec = plan.layouts[0].codec
    loud = codec.from_integers(np.full(plan.layouts[0].length, codec.largest + 1))
    for wrong in ([loud, good[1]], good[:1], [good[1], good[0]], [*good, good[0]]):
        with pytest.raises(EncodingError):
            client.upload(wrong)
    client.upload(good)


def test_the_authority_opens_one_sum_per_round_and_rounds_only_grow(
    plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    made = Round(plan, short_key, identities)
    made.run([values_of(plan, np.random.default_rng(seed)) for seed in range(3)])
    (sums,) = made.seen[Kind.SUMS]
    for round_ in (ROUND, ROUND - 1):
        with pytest.raises(ProtocolError, match="answered already"):
            made.authority.answer(sums, round_)
    with pytest.raises(ProtocolError, match="from round 3"):
        made.authority.answer(sums, ROUND + 1)
    restarted = Authority(
        plan, identities[AUTHORITY], short_key, last_round=made.authority.last_round
    )
    with pytest.raises(ProtocolError, match="answered already"):
        restarted.answer(sums, ROUND)


def test_the_authority_refuses_a_single_upload(
    plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    made = Round(plan, short_key, identities)
    made.run([values_of(plan, np.random.default_rng(seed)) for seed in range(3)])
    context = plan.context
    body = made.seen[Kind.UPLOAD][0][HEAD:-64]
    again = seal(identities[SERVER], Kind.SUMS, round_=9, context=context, body=body)
    with pytest.raises(ProtocolError, match="a sum over 1 of 3 clients is not opened"):
        made.authority.answer(again, 9)
    assert made.authority.last_round == ROUND


@pytest.mark.parametrize("masked", [False, True])
def test_every_wrong_message_in_every_state_is_refused(
    masked: bool,
    short_key: PrivateKey,
    authority_plan: Callable[..., Plan],
    identities: dict[Party, Identity],
) -> None:
    plan = authority_plan(short_key.public, masked=masked)
    uploads = [values_of(plan, np.random.default_rng(seed)) for seed in range(3)]
    done = Round(plan, short_key, identities)
    done.run(uploads)
    every = [(kind, data) for kind, sent in done.seen.items() for data in sent]
    fresh = Round(plan, short_key, identities)

    def refuse(accepted: set[Kind]) -> None:
        for kind, data in every:
            if kind not in accepted:
                with pytest.raises(ProtocolError):
                    fresh.server.receive(data)

    if masked:
        refuse({Kind.MASK_KEY})
        for client in fresh.clients.values():
            for _, data in every:
                with pytest.raises(ProtocolError, match="refuses the step"):
                    client.receive_keys(data)
            fresh.server.receive(client.advertise())
            with pytest.raises(ProtocolError, match="refuses the step"):
                client.advertise()
            with pytest.raises(ProtocolError, match="refuses the step upload"):
                client.upload(uploads[0])
        for client in fresh.clients.values():
            for _, data in every:  # keys of the other run among them
                with pytest.raises(ProtocolError):
                    client.receive_keys(data)
            client.receive_keys(fresh.server.mask_keys())
    for client, vectors in zip(fresh.clients.values(), uploads, strict=True):
        with pytest.raises(ProtocolError, match="refuses the step"):
            client.advertise()
        refuse({Kind.UPLOAD})
        fresh.server.receive(client.upload(vectors))
    refuse({Kind.RESULT})
    for kind, data in every:
        if kind is not Kind.SUMS:
            with pytest.raises(ProtocolError, match="awaits SUMS"):
                fresh.authority.answer(data, ROUND)
    fresh.server.receive(fresh.authority.answer(fresh.server.sums(), ROUND))
    refuse(set())
    assert_exact(plan, uploads, fresh.server.result())


def test_keys_parties_and_plans_that_do_not_match_are_refused(
    plan: Plan, short_key: PrivateKey, other_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    inside, outside = identities[Party(Role.CLIENT, 0)], identities[Party(Role.CLIENT, 1)]
    encryptor = Encryptor(plan.key)
    for build in (
        lambda: UploadingClient(plan, outside, encryptor, 1),
        lambda: UploadingClient(plan, identities[SERVER], encryptor, 1),
        lambda: UploadingClient(plan, inside, Encryptor(other_key.public), 1),
        lambda: UploadingServer(plan, inside, 1),
        lambda: Authority(plan, inside, short_key),
        lambda: Authority(plan, identities[AUTHORITY], other_key),
    ):
        with pytest.raises(ConfigError):
            build()


def test_vectors_under_another_key_are_refused(
    plan: Plan,
    short_key: PrivateKey,
    other_key: PrivateKey,
    authority_plan: Callable[..., Plan],
    identities: dict[Party, Identity],
) -> None:
    made = started(plan, short_key, identities)
    foreign = started(
        authority_plan(other_key.public, masked=plan.holding.masked), other_key, identities
    )
    vectors = values_of(plan, np.random.default_rng(1))
    sent = foreign.clients[0].upload(vectors)
    with pytest.raises(ProtocolError, match="another agreement"):
        made.server.receive(sent)
    # The same vectors, honestly signed for this agreement.
    body = sent[HEAD:-64]
    signed = seal(
        identities[Party(Role.CLIENT, 0)],
        Kind.UPLOAD,
        round_=ROUND,
        context=plan.context,
        body=body,
    )
    with pytest.raises(WireError, match="another key"):
        made.server.receive(signed)


def test_sums_and_impostors_are_no_uploads(
    plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    made = started(plan, short_key, identities)
    vectors = values_of(plan, np.random.default_rng(1))
    client = Party(Role.CLIENT, plan.clients[0])
    encryptor = Encryptor(plan.key)
    doubled = b"".join(
        (
            encrypt_vector(words, layout, encryptor) + encrypt_vector(words, layout, encryptor)
        ).to_bytes()
        for words, layout in zip(vectors, plan.layouts, strict=True)
    )
    sealed = seal(identities[client], Kind.UPLOAD, round_=ROUND, context=plan.context, body=doubled)
    with pytest.raises(ProtocolError, match="sent a sum of 2 vectors"):
        made.server.receive(sealed)
    honest = made.clients[client.number].upload(vectors)
    impostor = Identity.generate(client)
    for forged in (
        seal(impostor, Kind.UPLOAD, round_=ROUND, context=plan.context, body=honest[HEAD:-64]),
        honest[:-1] + bytes([honest[-1] ^ 1]),
        honest[:200] + bytes([honest[200] ^ 1]) + honest[201:],
    ):
        with pytest.raises(ProtocolError, match="bad signature"):
            made.server.receive(forged)
    made.server.receive(honest)


def test_fuzzed_messages_meet_one_error_and_change_nothing(
    plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    uploads = [values_of(plan, np.random.default_rng(seed)) for seed in range(3)]
    done = Round(plan, short_key, identities)
    done.run(uploads)
    source = random.Random(5)
    made = Round(plan, short_key, identities)
    samples = [(kind, data) for kind, sent in done.seen.items() for data in sent]

    def fuzz(take: Callable[[bytes], object], count: int, *, may_accept: bool = False) -> None:
        for _ in range(count):
            kind, data = source.choice(samples)
            body = bytearray(data[HEAD:-64])
            for _ in range(source.randint(1, 3)):
                place = source.randrange(len(body)) if source.random() < 0.5 else None
                if place is None:
                    body = body[: source.randrange(len(body) + 1)] or bytearray(b"x")
                else:
                    body[place] ^= 1 << source.randrange(8)
            sender = source.choice(list(identities.values()))
            signed = seal(
                sender,
                source.choice([kind, *Kind]),
                round_=source.choice([ROUND, ROUND, ROUND, 2, 2**64 - 1]),
                context=plan.context,
                body=bytes(body[: len(body) - source.randrange(2)]),
            )
            raw = bytearray(signed)
            if source.random() < 0.4:
                raw[source.randrange(len(raw))] ^= 1 << source.randrange(8)
                raw = raw[: source.choice([len(raw), source.randrange(len(raw))])]
            try:
                take(bytes(raw))
            except (ProtocolError, WireError):
                continue
            assert may_accept

    for client in made.clients.values():
        if plan.holding.masked:
            made.server.receive(client.advertise())
            fuzz(client.receive_keys, 60)
    if plan.holding.masked:
        for client in made.clients.values():
            client.receive_keys(made.server.mask_keys())
    fuzz(lambda data: made.authority.answer(data, ROUND), 200)
    # A ciphertext that its client damaged and signed is a ciphertext: it fails when it is opened.
    fuzz(started(plan, short_key, identities).server.receive, 300, may_accept=True)
    for client, vectors in zip(made.clients.values(), uploads, strict=True):
        made.server.receive(client.upload(vectors))
    made.server.receive(made.authority.answer(made.server.sums(), ROUND))
    fuzz(made.server.receive, 200)
    assert_exact(plan, uploads, made.server.result())
