"""Keys: the conditions on their primes, their one byte form, and that the secret one stays put."""

import copy
import math
import pickle  # noqa: TID251 - shows that it fails

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, PrivateStateError, WireError
from secure_fedrec.protection.paillier import (
    DEFAULT_BITS,
    PrivateKey,
    PublicKey,
    generate_key,
    require_key_bits,
)
from secure_fedrec.protection.paillier.scheme import keys
from secure_fedrec.protection.paillier.scheme.arithmetic import ARITHMETICS, is_probable_prime

CARMICHAEL = (561, 1105, 1729, 825265, 1590231231043178376951698401)
STRONG_PSEUDOPRIMES = (2047, 3215031751, 3825123056546413051, 318665857834031151167461)
PRIMES = (2, 3, 5, 73, 79, 65537, 2**61 - 1, 2**127 - 1, 2**521 - 1)


@pytest.mark.parametrize("engine", sorted(ARITHMETICS))
def test_miller_rabin_knows_primes_from_pseudoprimes(engine: str) -> None:
    arithmetic = ARITHMETICS[engine]
    assert all(is_probable_prime(prime, arithmetic) for prime in PRIMES)
    false = (*CARMICHAEL, *STRONG_PSEUDOPRIMES, -7, 0, 1, 4, (2**127 - 1) * (2**61 - 1))
    assert not any(is_probable_prime(number, arithmetic) for number in false)


def test_small_numbers_are_classed_as_a_sieve_does() -> None:
    sieve = [n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(2000)]
    assert [is_probable_prime(number) for number in range(2000)] == sieve


def test_a_generated_key_meets_the_conditions_of_djn(real_key: PrivateKey) -> None:
    p, q, h = real_key.p, real_key.q, real_key.h
    assert h is not None
    assert real_key.public.n == p * q
    assert real_key.public.bits == 2048
    assert p.bit_length() == q.bit_length() == 1024
    assert p % 4 == q % 4 == 3
    assert math.gcd(p - 1, q - 1) == 2
    assert (q - p).bit_length() > 1024 - 100
    assert is_probable_prime(p)
    assert is_probable_prime(q)
    # h = (-x^2)^n: an n-th residue, -1 times a square for both primes.
    order = (p - 1) * (q - 1) // 2
    assert pow(h, order, (p * q) ** 2) == 1
    assert pow(h, (p - 1) // 2, p) == p - 1
    assert pow(h, (q - 1) // 2, q) == q - 1


def test_keys_are_3072_bits_by_default_and_differ() -> None:
    assert DEFAULT_BITS == 3072
    first, second = generate_key(), generate_key(2048)
    assert first.public.bits == 3072
    assert first.public.n % second.p
    assert first.public.key_id != second.public.key_id


@pytest.mark.parametrize("bits", [0, 512, 1024, 2047, 2056, 8208, 2**20])
def test_unsafe_or_odd_lengths_are_refused(bits: int) -> None:
    with pytest.raises(ConfigError, match="modulus must have 2048 to 8192 bits") as refusal:
        generate_key(bits)
    assert refusal.value.key == "paillier.bits"
    with pytest.raises(ConfigError, match="modulus must have 2048 to 8192 bits") as refusal:
        require_key_bits(bits, key="protection.key_bits")
    assert (refusal.value.key, refusal.value.value) == ("protection.key_bits", bits)


@pytest.mark.parametrize("bits", [2048, 2064, 3072, 8192])
def test_every_sixteenth_length_in_the_range_is_accepted(bits: int) -> None:
    require_key_bits(bits)


def test_short_public_keys_are_refused_from_bytes_too(real_key: PrivateKey) -> None:
    head = keys._HEAD.pack(b"SFPK", 1, 0, 1024)
    with pytest.raises(WireError, match="1024 bits are not accepted"):
        PublicKey.from_bytes(head + (2**1024 - 1).to_bytes(128, "little"))
    del real_key


def test_bytes_round_trip(short_key: PrivateKey, imported_key: PrivateKey) -> None:
    for key in (short_key, imported_key):
        public = PublicKey.from_bytes(key.public.to_bytes())
        assert public == key.public
        assert public.key_id == key.public.key_id
        private = PrivateKey.from_bytes(key.to_bytes())
        assert (private.p, private.q, private.h) == (key.p, key.q, key.h)
    assert short_key.public.key_id != imported_key.public.key_id


def test_byte_forms_have_the_stated_sizes(real_key: PrivateKey) -> None:
    assert len(real_key.public.to_bytes()) == 8 + 2048 // 8 + 2048 // 4
    assert len(real_key.to_bytes()) == 8 + 2048 // 8 + 2048 // 4


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_damaged_key_is_refused_or_another_canonical_key(
    short_key: PrivateKey, data: st.DataObject
) -> None:
    whole = data.draw(st.sampled_from([short_key.public.to_bytes(), short_key.to_bytes()]))
    place = data.draw(st.integers(0, len(whole) - 1))
    change = data.draw(st.sampled_from(["flip", "cut", "append", "head"]))
    damaged = {
        "flip": whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :],
        "cut": whole[:place],
        "append": whole + b"\0",
        "head": whole[: place % 8] + bytes([whole[place % 8] ^ 3]) + whole[place % 8 + 1 :],
    }[change]
    for read in (PublicKey.from_bytes, PrivateKey.from_bytes):
        try:
            key = read(damaged)
        except WireError:
            continue
        assert isinstance(key, PublicKey)  # one bit off, it is no private key
        assert key.to_bytes() == damaged
        assert key.key_id != short_key.public.key_id


def test_a_private_key_refuses_numbers_that_are_no_key(short_key: PrivateKey) -> None:
    p, q, h = short_key.p, short_key.q, short_key.h
    assert h is not None
    n = p * q
    not_blum = next(r for r in range(p + 2, 2**256, 4) if is_probable_prime(r))
    # Both 3 mod 4 and 1 mod 3: gcd(p - 1, q - 1) is a multiple of 6.
    start = 3 * 2**254 - 3 * 2**254 % 12 + 7
    thirds = (r for r in range(start + 12, 2**256, 12) if is_probable_prime(r))
    low, high = next(thirds), next(thirds)
    for wrong, problem in (
        ({"p": low, "q": high, "h": h}, r"gcd\(p - 1, q - 1\) = 2"),
        ({"p": q, "q": p}, "p the smaller one"),
        ({"p": p, "q": p}, "p the smaller one"),
        ({"p": p, "q": q + 2}, "must be prime"),
        ({"p": min(q, not_blum), "q": max(q, not_blum), "h": h}, "3 mod 4"),
        ({"p": p, "q": q, "h": h * (1 + n) % n**2}, "n-th residue"),
    ):
        with pytest.raises(ConfigError, match=problem) as refusal:
            PrivateKey(**wrong)
        assert str(p) not in str(refusal.value)


@pytest.mark.parametrize("h", [0, 1, "n", "n^2 - 1", "n^2"])
def test_a_public_key_refuses_a_useless_generator(short_key: PrivateKey, h: int | str) -> None:
    n = short_key.public.n
    value = {"n": n, "n^2 - 1": n * n - 1, "n^2": n * n}[h] if isinstance(h, str) else h
    with pytest.raises(ConfigError, match=r"paillier\.h"):
        PublicKey(n=n, h=value)


def test_a_private_key_is_neither_pickled_copied_nor_printed(real_key: PrivateKey) -> None:
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivateStateError):
            leak(real_key)
    shown = repr(real_key) + str(real_key) + repr(real_key.public)
    assert str(real_key.p)[:12] not in shown
    assert hex(real_key.q)[2:14] not in shown
    assert real_key.public.key_id.hex()[:16] in shown
