"""Attacks on encrypted sums: each succeeds on a weakened copy and fails on the library.

The weakened copies live here: floats encrypted by python-paillier, a sum without masks opened by an
authority for a server that deviates, and mask keys that nobody signed.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import phe  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secure_fedrec.core.arrays import FloatArray, IntArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    Authority,
    Decryptor,
    EncryptedVector,
    Encryptor,
    Identity,
    KeyHolding,
    PaillierSum,
    Party,
    Plan,
    PrivateKey,
    Role,
    Roster,
    SlotLayout,
    UploadingClient,
    UploadingServer,
    decrypt_vector,
    generate_key,
)
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.scheme.pairwise import PairwiseMask
from secure_fedrec.protection.paillier.scheme.words import read_words
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES
from tests.paillier_federation import seal

OPERATOR = Ed25519PrivateKey.generate()
CODEC = FixedPoint(bits=40, fraction_bits=20, clip=1000.0)
CLIENTS = (0, 1, 2)
LENGTH = 30
HEAD = ENVELOPE_BYTES - 64
SERVER = Party(Role.SERVER)


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return generate_key(2048)


@pytest.fixture(scope="module")
def encryptor(key: PrivateKey) -> Encryptor:
    return Encryptor(key.public)


# ---------------------------------------------------------------- the exponent of python-paillier

MAGNITUDES = (1e-6, 1e-3, 0.5, 100.5, 1000.0)


@pytest.mark.claim("paillier-exact")
def test_floats_of_phe_show_their_magnitude_and_ring_words_do_not(
    key: PrivateKey, encryptor: Encryptor
) -> None:
    public = phe.PaillierPublicKey(key.public.n)
    # The weakened copy: floats as they are. Whoever sees the ciphertext sees the exponent.
    guesses = [16.0 ** (public.encrypt(value).exponent + 13) for value in MAGNITUDES]
    for value, guess in zip(MAGNITUDES, guesses, strict=True):
        assert guess / 64 < value < guess * 64
    assert sorted(guesses) == guesses
    assert len(set(guesses)) == len(guesses)
    # Ours: one size, one header, and nothing beside numbers below n^2.
    paillier = PaillierSum(n_clients=3, length=1, codec=CODEC, key=key.public)
    made = [paillier.encrypt(CODEC.encode(np.array([value]))) for value in MAGNITUDES]
    width = key.public.ciphertext_bytes
    assert len({len(vector.to_bytes()) for vector in made}) == 1
    assert len({vector.to_bytes()[:-width] for vector in made}) == 1
    del encryptor


# ------------------------------------------- ciphertexts of different inputs look the same


def auc(left: FloatArray, right: FloatArray) -> float:
    """Chance that a score of the right is above one of the left."""
    return float(np.mean(right[None, :] > left[:, None]))


def test_ciphertexts_do_not_separate_two_inputs_and_bare_encodings_do(
    key: PrivateKey, encryptor: Encryptor
) -> None:
    slots = SlotLayout(codec=CODEC, length=1, budget=3).slots(key.public.bits)
    layout = SlotLayout(codec=CODEC, length=slots, budget=3)
    inputs = [CODEC.encode(np.full(slots, value)) for value in (-900.0, 900.0)]
    n = key.public.n

    def scores(words: RingArray, weak: bool) -> FloatArray:
        """Top bits of what is sent: the size of the plaintext where there is no obfuscator."""
        (plaintext,) = layout.pack(words, key.public.bits)
        sent = (
            [(1 + plaintext * n) % n**2] * 400
            if weak
            else list(encryptor.encrypt([plaintext] * 400))
        )
        return np.array([int(c >> (2 * key.public.bits - 60)) for c in sent], dtype=np.float64)

    weak = auc(scores(inputs[0], True), scores(inputs[1], True))
    ours = auc(scores(inputs[0], False), scores(inputs[1], False))
    assert weak > 0.9
    # Under no difference an AUC of 400 against 400 has a standard deviation of 0.0204.
    assert abs(ours - 0.5) < 5 * 0.0204


# ------------------------------------------------- a server that deviates, before an authority


@pytest.fixture(scope="module")
def identities() -> dict[Party, Identity]:
    parties = [SERVER, Party(Role.AUTHORITY), *(Party(Role.CLIENT, c) for c in CLIENTS)]
    return {party: Identity.generate(party) for party in parties}


def plan_of(key: PrivateKey, identities: dict[Party, Identity], *, masked: bool) -> Plan:
    adversary = "active-server" if masked else "curious-server"
    layout = SlotLayout(codec=CODEC, length=LENGTH, budget=len(CLIENTS), whole_ring=masked)
    return Plan(
        holding=KeyHolding(holder="authority", masked=masked, adversary=adversary),
        key=key.public,
        roster=Roster.of(
            OPERATOR, {party: identity.public for party, identity in identities.items()}
        ),
        clients=CLIENTS,
        layouts=(layout,),
    )


def uploads_of(
    plan: Plan, identities: dict[Party, Identity], encryptor: Encryptor, secret: IntArray
) -> list[EncryptedVector]:
    """What the server holds of a round in which client 0 uploads ``secret``."""
    server = UploadingServer(plan, identities[SERVER], 1)
    clients = [
        UploadingClient(plan, identities[Party(Role.CLIENT, number)], encryptor, 1)
        for number in CLIENTS
    ]
    if plan.holding.masked:
        for client in clients:
            server.receive(client.advertise())
        for client in clients:
            client.receive_keys(server.mask_keys())
    (layout,) = plan.layouts
    return [
        EncryptedVector.from_bytes(
            client.upload([CODEC.from_integers(secret * (number == 0))])[HEAD:-64],
            key=plan.key,
            layout=layout,
        )
        for number, client in zip(CLIENTS, clients, strict=True)
    ]


def opened_alone(
    plan: Plan,
    identities: dict[Party, Identity],
    key: PrivateKey,
    encryptor: Encryptor,
    target: EncryptedVector,
) -> IntArray:
    """The attack: one upload, dressed up as a sum of the cohort by encryptions of the server's own.

    Anybody can encrypt, so the server adds fresh zero uploads until the count is right.
    """
    (layout,) = plan.layouts
    zero = layout.pack(CODEC.encode(np.zeros(LENGTH)), plan.key.bits)
    total = target
    for _ in range(len(CLIENTS) - 1):
        numbers = tuple(map(int, encryptor.encrypt(zero)))
        total += EncryptedVector(key=plan.key, layout=layout, terms=1, ciphertexts=numbers)
    sums = seal(
        identities[SERVER], Kind.SUMS, round_=1, context=plan.context, body=total.to_bytes()
    )
    authority = Authority(plan, identities[Party(Role.AUTHORITY)], key)
    answer = authority.answer(sums, 1)
    (words,) = read_words(answer[HEAD:-64], plan.layouts)
    return CODEC.to_integers(words)


@pytest.fixture(scope="module")
def secret() -> IntArray:
    return np.random.default_rng(11).integers(-(2**20), 2**20, LENGTH)


@pytest.mark.claim("paillier-curious-only")
def test_a_dressed_up_upload_opens_without_masks_and_is_noise_with_them(
    key: PrivateKey,
    identities: dict[Party, Identity],
    encryptor: Encryptor,
    secret: IntArray,
) -> None:
    bare = plan_of(key, identities, masked=False)
    (target, *_) = uploads_of(bare, identities, encryptor, secret)
    stolen = opened_alone(bare, identities, key, encryptor, target)
    assert stolen.tolist() == secret.tolist()
    # That is why this holding is refused against an active server.
    with pytest.raises(ConfigError, match="cannot be held so"):
        replace(bare.holding, adversary="active-server")

    masked = plan_of(key, identities, masked=True)
    (target, *_) = uploads_of(masked, identities, encryptor, secret)
    noise = opened_alone(masked, identities, key, encryptor, target)
    assert not np.any(noise == secret)
    assert_uniform(noise)


def test_server_and_authority_together_see_noise_behind_masks(
    key: PrivateKey,
    identities: dict[Party, Identity],
    encryptor: Encryptor,
    secret: IntArray,
) -> None:
    decryptor = Decryptor(key)
    for masked in (False, True):
        plan = plan_of(key, identities, masked=masked)
        uploads = uploads_of(plan, identities, encryptor, secret)
        seen = [CODEC.to_integers(decrypt_vector(upload, decryptor)) for upload in uploads]
        if not masked:
            assert seen[0].tolist() == secret.tolist()
            continue
        assert_uniform(np.concatenate(seen))
        # Two of three are noise as well; only the whole cohort is the sum.
        assert_uniform(_wrapped(seen[0] + seen[1]))
        assert _wrapped(seen[0] + seen[1] + seen[2]).tolist() == secret.tolist()


def _wrapped(values: IntArray) -> IntArray:
    return CODEC.to_integers(CODEC.from_integers(values))


def assert_uniform(values: IntArray) -> None:
    """Uniform over the ring: the mean magnitude is a quarter of 2^40, within 6 deviations."""
    share = np.abs(values).mean() / 2**40
    assert abs(share - 0.25) < 6 * 0.1444 / np.sqrt(len(values))


# --------------------------------------------------------------------- key substitution


@pytest.fixture
def forged_keys() -> Iterator[dict[int, PairwiseMask]]:
    yield {number: PairwiseMask(client=number, round_=1, context=bytes(32)) for number in CLIENTS}


def test_mask_keys_put_in_by_the_server_are_refused(
    key: PrivateKey,
    identities: dict[Party, Identity],
    encryptor: Encryptor,
    forged_keys: dict[int, PairwiseMask],
) -> None:
    plan = plan_of(key, identities, masked=True)
    victim = UploadingClient(plan, identities[Party(Role.CLIENT, 0)], encryptor, 1)
    own = victim.advertise()
    server = identities[SERVER]

    def bundle(forge: Callable[[int, bytes], bytes]) -> bytes:
        parts = [own] + [forge(number, forged_keys[number].public) for number in CLIENTS[1:]]
        return seal(server, Kind.MASK_KEYS, round_=1, context=plan.context, body=b"".join(parts))

    def sealed_by_an_impostor(number: int, public: bytes) -> bytes:
        impostor = Identity.generate(Party(Role.CLIENT, number))
        return seal(impostor, Kind.MASK_KEY, round_=1, context=plan.context, body=public)

    def sealed_by_the_server(_: int, public: bytes) -> bytes:
        return seal(server, Kind.MASK_KEY, round_=1, context=plan.context, body=public)

    for forge, problem in (
        (sealed_by_an_impostor, "bad signature"),
        (sealed_by_the_server, "from a client"),
    ):
        with pytest.raises(ProtocolError, match=problem):
            victim.receive_keys(bundle(forge))


def test_mask_keys_that_nobody_signed_open_the_upload(
    forged_keys: dict[int, PairwiseMask], secret: IntArray
) -> None:
    """The weakened copy: the masks alone, on keys taken as they come."""
    context = bytes(32)
    victim = PairwiseMask(client=0, round_=1, context=context)
    keys = {0: victim.public, 1: forged_keys[1].public, 2: forged_keys[2].public}
    words = CODEC.from_integers(secret)
    masked = victim.apply(words, 0, victim.agree(keys), CODEC)
    assert_uniform(CODEC.to_integers(masked))
    for number in (1, 2):  # the server holds the other half of both
        mine = forged_keys[number].agree({0: victim.public, number: forged_keys[number].public})
        masked = forged_keys[number].apply(masked, 0, mine, CODEC)
    assert CODEC.to_integers(masked).tolist() == secret.tolist()


@pytest.mark.parametrize("weak", [bytes(32), bytes([1]) + bytes(31)])
def test_keys_of_low_order_are_refused(weak: bytes) -> None:
    mask = PairwiseMask(client=0, round_=1, context=bytes(32))
    with pytest.raises(ProtocolError, match="low order"):
        mask.agree({0: mask.public, 1: weak})


def test_repeated_and_replaced_keys_are_refused() -> None:
    mask = PairwiseMask(client=0, round_=1, context=bytes(32))
    other = PairwiseMask(client=1, round_=1, context=bytes(32))
    for keys, problem in (
        ({0: other.public, 1: other.public}, "was replaced"),
        ({1: other.public}, "was replaced"),
        ({0: mask.public, 1: other.public, 2: other.public}, "two clients show one"),
    ):
        with pytest.raises(ProtocolError, match=problem):
            mask.agree(keys)


def test_masks_of_rounds_vectors_and_agreements_are_unrelated(
    secret: IntArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = CODEC.from_integers(np.zeros_like(secret))
    pair = [X25519PrivateKey.generate() for _ in range(2)]
    found = []
    for round_, context, vector in ((1, 0, 0), (1, 0, 1), (2, 0, 0), (1, 1, 0)):
        # One pair of keys throughout: only what is bound to them differs.
        dealt = iter(pair)
        monkeypatch.setattr(X25519PrivateKey, "generate", lambda dealt=dealt: next(dealt))
        mask, other = (
            PairwiseMask(client=number, round_=round_, context=bytes([context]) * 32)
            for number in (0, 1)
        )
        secrets = mask.agree({0: mask.public, 1: other.public})
        found.append(tuple(mask.apply(words, vector, secrets, CODEC).tolist()))
    assert len(set(found)) == len(found)
