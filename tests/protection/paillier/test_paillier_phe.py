"""Interoperation with python-paillier on integers; phe is the oracle of the scheme."""

import math

import phe  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import (
    ConfigError,
    EncodingError,
    MissingExtraError,
    ProtocolError,
    WireError,
)
from secure_fedrec.protection.paillier import Decryptor, Encryptor, PrivateKey, phe_bridge
from secure_fedrec.protection.paillier.scheme import keys

INTEGERS = st.integers(-(2**500), 2**500) | st.sampled_from([0, 1, -1])


@settings(deadline=None, max_examples=25)
@given(value=INTEGERS)
def test_phe_opens_what_we_encrypt_and_we_open_what_phe_encrypts(
    short_key: PrivateKey, value: int
) -> None:
    theirs = phe_bridge.export_private_key(short_key)
    ours = phe_bridge.encrypt_signed(value, Encryptor(short_key.public))
    exported = phe_bridge.export_ciphertext(ours, short_key.public)
    assert theirs.decrypt(exported) == value
    encrypted = theirs.public_key.encrypt(value)
    imported = phe_bridge.import_ciphertext(encrypted, short_key.public)
    assert phe_bridge.decrypt_signed(imported, Decryptor(short_key)) == value


@settings(deadline=None, max_examples=20)
@given(left=st.integers(-(2**490), 2**490), right=st.integers(-(2**490), 2**490))
def test_sums_across_the_two_agree(short_key: PrivateKey, left: int, right: int) -> None:
    theirs = phe_bridge.export_private_key(short_key)
    ours = phe_bridge.encrypt_signed(left, Encryptor(short_key.public))
    total = phe_bridge.export_ciphertext(ours, short_key.public) + theirs.public_key.encrypt(right)
    assert theirs.decrypt(total) == left + right
    imported = phe_bridge.import_ciphertext(total, short_key.public)
    assert phe_bridge.decrypt_signed(imported, Decryptor(short_key)) == left + right


def test_a_key_of_phe_at_its_real_length_works_with_full_obfuscators() -> None:
    public, private = phe.generate_paillier_keypair(n_length=2048)
    ours = phe_bridge.import_private_key(private)
    assert ours.h is None  # phe's n cannot show that a DJN generator would be sound
    assert phe_bridge.import_public_key(public) == ours.public
    ciphertext = phe_bridge.encrypt_signed(-12345, Encryptor(ours.public))
    assert private.decrypt(phe_bridge.export_ciphertext(ciphertext, ours.public)) == -12345
    theirs = phe_bridge.import_ciphertext(public.encrypt(2**70), ours.public)
    assert phe_bridge.decrypt_signed(theirs, Decryptor(ours)) == 2**70


def test_most_phe_keys_do_not_meet_the_conditions_of_djn(short_floor: None) -> None:
    suits = []
    for _ in range(40):
        _, private = phe.generate_paillier_keypair(n_length=512)
        p, q = private.p, private.q
        suits.append(p % 4 == 3 and q % 4 == 3 and math.gcd(p - 1, q - 1) == 2)
    # One in six suits; importing them as DJN keys would be wrong for most.
    assert sum(suits) < 25


def test_floats_of_phe_are_refused(short_key: PrivateKey) -> None:
    public = phe_bridge.export_public_key(short_key.public)
    with pytest.raises(EncodingError, match="exponent -"):
        phe_bridge.import_ciphertext(public.encrypt(0.5), short_key.public)


def test_what_phe_did_not_obfuscate_is_obfuscated_before_it_is_taken(
    short_key: PrivateKey,
) -> None:
    public = phe_bridge.export_public_key(short_key.public)
    bare = public.encrypt(7, r_value=1)
    assert bare.ciphertext(be_secure=False) == 7 * short_key.public.n + 1
    lazy = phe.EncryptedNumber(public, 7 * short_key.public.n + 1, exponent=0)
    taken = phe_bridge.import_ciphertext(lazy, short_key.public)
    assert taken % short_key.public.n != 1
    assert phe_bridge.decrypt_signed(taken, Decryptor(short_key)) == 7


def test_foreign_keys_and_impossible_numbers_are_refused(
    short_key: PrivateKey, other_key: PrivateKey
) -> None:
    public = phe_bridge.export_public_key(other_key.public)
    with pytest.raises(ProtocolError, match="another key"):
        phe_bridge.import_ciphertext(public.encrypt(1), short_key.public)
    n = short_key.public.n
    for number in (0, n * n):
        with pytest.raises(WireError):
            phe_bridge.export_ciphertext(number, short_key.public)
    for value in (n // 3, -(n // 3)):
        with pytest.raises(EncodingError, match="range of phe"):
            phe_bridge.encrypt_signed(value, Encryptor(short_key.public))
    (overflowed,) = Encryptor(short_key.public).encrypt([n // 2])
    with pytest.raises(EncodingError, match="overflowed"):
        phe_bridge.decrypt_signed(int(overflowed), Decryptor(short_key))


def test_phe_keys_below_the_floor_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_MINIMUM_BITS", 2048)
    public, private = phe.generate_paillier_keypair(n_length=1024)
    for take, key in (
        (phe_bridge.import_public_key, public),
        (phe_bridge.import_private_key, private),
    ):
        with pytest.raises(ConfigError, match="2048 to 8192 bits"):
            take(key)


def test_without_phe_the_bridge_names_the_extra(
    short_key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phe_bridge, "_phe", None)
    for call in (
        lambda: phe_bridge.export_public_key(short_key.public),
        lambda: phe_bridge.export_private_key(short_key),
        lambda: phe_bridge.import_public_key(short_key),
        lambda: phe_bridge.import_private_key(short_key),
        lambda: phe_bridge.export_ciphertext(5, short_key.public),
        lambda: phe_bridge.import_ciphertext(5, short_key.public),
    ):
        with pytest.raises(MissingExtraError, match=r"secure-fedrec\[paillier\]"):
            call()
