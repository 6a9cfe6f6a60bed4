"""Encrypted sums: the same bits as the ring, a budget that is kept, and one byte form."""

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    EncryptedVector,
    PaillierSum,
    PrivateKey,
    PublicKey,
)
from secure_fedrec.protection.paillier.scheme.arithmetic import ARITHMETICS

CODEC = FixedPoint(bits=24, fraction_bits=8, clip=64.0)


def ring_sum(vectors: list[RingArray], codec: FixedPoint) -> RingArray:
    """The plain path: words added modulo 2^b."""
    total = np.zeros(len(vectors[0]), dtype=codec.dtype)
    for vector in vectors:
        total += vector
    return codec.from_integers(codec.to_integers(total))


@pytest.mark.claim("paillier-exact")
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_encrypted_sum_is_the_plain_ring_sum(
    short_key: PrivateKey, data: st.DataObject
) -> None:
    bits = data.draw(st.integers(12, 64))
    fraction_bits = data.draw(st.integers(0, bits - 9))
    clip = 2.0 ** min(2, 50 - fraction_bits)
    codec = FixedPoint(bits=bits, fraction_bits=fraction_bits, clip=clip)
    clients = data.draw(st.integers(1, min(6, codec.max_terms)))
    length = data.draw(st.integers(1, 30))
    reals = st.floats(-clip, clip) | st.sampled_from([-clip, clip, 0.0])
    vector = st.lists(reals, min_size=length, max_size=length)
    words = [codec.encode(np.array(data.draw(vector))) for _ in range(clients)]
    whole_ring = data.draw(st.booleans())
    paillier = PaillierSum(
        n_clients=clients,
        length=length,
        codec=codec,
        key=short_key.public,
        whole_ring=whole_ring,
    )
    total = paillier.total(paillier.encrypt(vector) for vector in words)
    assert total.terms == clients
    found = paillier.decrypt(total, short_key)
    expected = ring_sum(words, codec)
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()
    assert codec.decode(found).tolist() == codec.decode(expected).tolist()


def test_a_real_key_sums_a_cohort_exactly(real_key: PrivateKey) -> None:
    codec = FixedPoint(bits=64, fraction_bits=32, clip=2000.0)
    rng = np.random.default_rng(7)
    words = [codec.encode(rng.normal(0, 300, 501).clip(-2000, 2000)) for _ in range(20)]
    paillier = PaillierSum(n_clients=20, length=501, codec=codec, key=real_key.public)
    total = paillier.total(paillier.encrypt(vector) for vector in words)
    found = paillier.decrypt(
        EncryptedVector.from_bytes(total.to_bytes(), key=real_key.public, layout=paillier.layout),
        real_key,
    )
    assert np.array_equal(found, ring_sum(words, codec))


def test_a_24_bit_value_takes_less_than_10_bytes(real_key: PrivateKey) -> None:
    codec = FixedPoint(bits=35, fraction_bits=12, clip=(2.0**23 - 1) / 2**12)
    paillier = PaillierSum(n_clients=1024, length=58_000, codec=codec, key=real_key.public)
    assert paillier.layout.value_bits == 24
    assert paillier.bytes_per_vector / 58_000 < 10


@pytest.mark.parametrize("name", sorted(ARITHMETICS))
def test_every_engine_adds_and_opens_what_another_encrypted(
    short_key: PrivateKey, name: str
) -> None:
    made = {
        engine: PaillierSum(
            n_clients=3,
            length=20,
            codec=CODEC,
            key=short_key.public,
            arithmetic=ARITHMETICS[engine],
        )
        for engine in ARITHMETICS
    }
    words = CODEC.encode(np.linspace(-64, 64, 20))
    vectors = [paillier.encrypt(words) for paillier in made.values()]
    total = made[name].total(vectors)
    assert np.array_equal(
        made[name].decrypt(total, short_key), ring_sum([words] * len(vectors), CODEC)
    )


def summed(key: PublicKey, n_clients: int = 3, length: int = 20) -> PaillierSum:
    return PaillierSum(n_clients=n_clients, length=length, codec=CODEC, key=key)


def some(paillier: PaillierSum) -> EncryptedVector:
    return paillier.encrypt(CODEC.encode(np.arange(paillier.layout.length) / 4.0))


def test_a_spent_budget_is_refused(short_key: PrivateKey) -> None:
    paillier = summed(short_key.public)
    vector = some(paillier)
    full = vector + vector + vector
    assert full.terms == 3
    overspends: tuple[Callable[[], EncryptedVector], ...] = (
        lambda: full + vector,
        lambda: vector + full,
        lambda: paillier.total([vector] * 4),
        lambda: EncryptedVector(
            key=full.key, layout=full.layout, terms=4, ciphertexts=full.ciphertexts
        ),
    )
    for overspend in overspends:
        with pytest.raises(ProtocolError, match="the budget of additions is spent"):
            overspend()
    assert (
        paillier.decrypt(full, short_key).tolist() == CODEC.encode(3 * np.arange(20) / 4.0).tolist()
    )


def test_a_budget_spent_on_the_wire_stays_spent(short_key: PrivateKey) -> None:
    paillier = summed(short_key.public)
    full = paillier.total([some(paillier)] * 3)
    read = EncryptedVector.from_bytes(full.to_bytes(), key=short_key.public, layout=paillier.layout)
    assert read == full
    with pytest.raises(ProtocolError, match="spent"):
        read + some(paillier)


def test_declaring_fewer_terms_than_were_added_is_found(short_key: PrivateKey) -> None:
    paillier = summed(short_key.public)
    full = paillier.total([some(paillier)] * 3)
    cheaper = EncryptedVector(
        key=full.key, layout=full.layout, terms=1, ciphertexts=full.ciphertexts
    )
    with pytest.raises(ProtocolError, match="counts 3 vectors, the sum declares 1"):
        paillier.decrypt(cheaper, short_key)


def test_vectors_that_do_not_belong_together_are_refused(
    short_key: PrivateKey, other_key: PrivateKey
) -> None:
    ours, theirs = summed(short_key.public), summed(other_key.public)
    longer, wider = summed(short_key.public, length=21), summed(short_key.public, n_clients=4)
    with pytest.raises(ProtocolError, match="another key"):
        some(ours) + some(theirs)
    with pytest.raises(ProtocolError, match="another key"):
        ours.decrypt(some(ours), other_key)
    for foreign in (longer, wider):
        with pytest.raises(ProtocolError, match="another layout"):
            some(ours) + some(foreign)
        with pytest.raises(ProtocolError, match="another layout"):
            ours.decrypt(some(foreign), short_key)
    with pytest.raises(ProtocolError, match="a sum needs at least one vector"):
        ours.total([])


def test_values_beyond_the_clip_are_refused_before_encryption(short_key: PrivateKey) -> None:
    paillier = summed(short_key.public)
    with pytest.raises(EncodingError, match="exceeds"):
        paillier.encrypt(CODEC.from_integers(np.full(20, CODEC.largest + 1)))


def test_a_slot_wider_than_the_key_is_refused_when_configured(short_key: PrivateKey) -> None:
    codec = FixedPoint(bits=64, fraction_bits=0, clip=2.0**30)
    PaillierSum(n_clients=2**31 - 1, length=1, codec=codec, key=short_key.public)
    with pytest.raises(ConfigError, match="between 1 and 2\\^31"):
        PaillierSum(n_clients=2**31, length=1, codec=codec, key=short_key.public)


def test_the_size_of_a_vector_depends_on_public_settings_alone(short_key: PrivateKey) -> None:
    paillier = summed(short_key.public)
    extremes = [np.zeros(20), np.full(20, 64.0), np.full(20, -64.0), np.full(20, 2.0**-8)]
    made = [paillier.encrypt(CODEC.encode(values)) for values in extremes]
    made.append(paillier.total(made[:3]))
    assert {len(vector.to_bytes()) for vector in made} == {paillier.bytes_per_vector}


@pytest.mark.parametrize("number", ["0", "n^2", "n^2 + 1", "p", "n"])
def test_numbers_that_are_no_ciphertext_are_refused(short_key: PrivateKey, number: str) -> None:
    n, p = short_key.public.n, short_key.p
    wrong = {"0": 0, "n^2": n * n, "n^2 + 1": n * n + 1, "p": 3 * p, "n": 5 * n}[number]
    vector = some(summed(short_key.public))
    width = short_key.public.ciphertext_bytes
    if wrong < 2 ** (8 * width):
        data = vector.to_bytes()[:-width] + wrong.to_bytes(width, "little")
        with pytest.raises(WireError, match="ciphertext"):
            EncryptedVector.from_bytes(data, key=vector.key, layout=vector.layout)
    with pytest.raises(WireError, match="ciphertext"):
        EncryptedVector(
            key=vector.key,
            layout=vector.layout,
            terms=1,
            ciphertexts=(*vector.ciphertexts[:-1], wrong),
        )


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_damaged_bytes_are_refused_or_another_vector(
    short_key: PrivateKey, data: st.DataObject
) -> None:
    paillier = summed(short_key.public)
    vector = damaged_sample(short_key)
    whole = vector.to_bytes()
    change = data.draw(st.sampled_from(["head", "flip", "cut", "append", "replace"]))
    limit = 80 if change == "head" else len(whole)
    place = data.draw(st.integers(0, limit - 1))
    damaged = {
        "head": whole[:place] + data.draw(st.binary(min_size=1, max_size=1)) + whole[place + 1 :],
        "flip": whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :],
        "cut": whole[:place],
        "append": whole + data.draw(st.binary(min_size=1, max_size=70)),
        "replace": data.draw(st.binary(max_size=200)),
    }[change]
    try:
        found = EncryptedVector.from_bytes(damaged, key=short_key.public, layout=paillier.layout)
    except WireError:
        return
    assert found.to_bytes() == damaged
    if damaged == whole:
        return
    try:
        paillier.decrypt(found, short_key)
    except ProtocolError:
        return
    raise AssertionError("a damaged vector was opened")


_SAMPLES: dict[bytes, EncryptedVector] = {}


def damaged_sample(key: PrivateKey) -> EncryptedVector:
    if key.public.key_id not in _SAMPLES:
        _SAMPLES[key.public.key_id] = some(summed(key.public))
    return _SAMPLES[key.public.key_id]


def test_the_byte_form_is_the_stated_one(short_key: PrivateKey) -> None:
    paillier = summed(short_key.public)
    vector = some(paillier) + some(paillier)
    data = vector.to_bytes()
    head = struct.Struct("<4sBBH32sBBHIQQI")
    assert head.unpack_from(data) == (
        *(b"SFPV", 2, 0, 512, short_key.public.key_id),
        *(0, 24, CODEC.fraction_bits, 3, CODEC.largest, 20),
        2,
    )
    width = 512 // 4
    rest = data[head.size :]
    numbers = [int.from_bytes(rest[i : i + width], "little") for i in range(0, len(rest), width)]
    assert numbers == list(vector.ciphertexts)
