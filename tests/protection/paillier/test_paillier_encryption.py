"""Encryption: exact, additive, randomised, and the same integers from every engine."""

import secrets
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.protection.paillier import Decryptor, Encryptor, PrivateKey
from secure_fedrec.protection.paillier.scheme.arithmetic import (
    ARITHMETICS,
    Arithmetic,
    default_arithmetic,
)


@pytest.fixture(params=sorted(ARITHMETICS))
def engine(request: pytest.FixtureRequest) -> Arithmetic:
    return ARITHMETICS[request.param]


def test_both_engines_are_here() -> None:
    # Without gmpy2 the comparison of engines below would compare one with itself.
    assert sorted(ARITHMETICS) == ["gmpy2", "int"]


@pytest.mark.parametrize("form", ["short_key", "imported_key"])
def test_decryption_undoes_encryption_at_the_borders(
    form: str, engine: Arithmetic, request: pytest.FixtureRequest
) -> None:
    key: PrivateKey = request.getfixturevalue(form)
    n = key.public.n
    plaintexts = [0, 1, 2, key.p, key.q, n // 2, n - 2, n - 1]
    ciphertexts = Encryptor(key.public, engine).encrypt(plaintexts)
    assert Decryptor(key, engine).decrypt(ciphertexts) == plaintexts
    assert all(type(m) is int for m in Decryptor(key, engine).decrypt(ciphertexts))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_decrypt_to_the_same_integers(
    threads: int, engine: Arithmetic, short_key: PrivateKey
) -> None:
    plaintexts = list(range(40))
    ciphertexts = Encryptor(short_key.public).encrypt(plaintexts)
    for count in (0, 1, 15, 16, 40):  # below and above the number that is worth a thread
        decryptor = Decryptor(short_key, engine, threads=threads)
        assert decryptor.decrypt(ciphertexts[:count]) == plaintexts[:count]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_products_of_ciphertexts_decrypt_to_sums(
    short_key: PrivateKey, data: st.DataObject
) -> None:
    n = short_key.public.n
    terms = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=6))
    product = 1
    for ciphertext in Encryptor(short_key.public).encrypt(terms):
        product = product * ciphertext % n**2
    assert Decryptor(short_key).decrypt([product]) == [sum(terms) % n]


def test_a_real_key_adds(real_key: PrivateKey) -> None:
    left, right = 2**2000 + 17, 2**1999 + 5
    ciphertexts = Encryptor(real_key.public).encrypt([left, right])
    total = ciphertexts[0] * ciphertexts[1] % real_key.public.n**2
    assert Decryptor(real_key).decrypt([total, *ciphertexts]) == [left + right, left, right]


@pytest.mark.parametrize("plaintext", [-1, "n", "2n"])
def test_plaintexts_that_would_wrap_are_refused(
    short_key: PrivateKey, plaintext: int | str
) -> None:
    n = short_key.public.n
    value = {"n": n, "2n": 2 * n}[plaintext] if isinstance(plaintext, str) else plaintext
    with pytest.raises(EncodingError, match="outside"):
        Encryptor(short_key.public).encrypt([0, value])


@pytest.mark.parametrize("form", ["short_key", "imported_key"])
def test_equal_plaintexts_have_unrelated_ciphertexts(
    form: str, request: pytest.FixtureRequest
) -> None:
    key: PrivateKey = request.getfixturevalue(form)
    ciphertexts = Encryptor(key.public).encrypt([5] * 50)
    assert len(set(ciphertexts)) == 50
    # The textbook (1 + m n) without an obfuscator is 1 modulo n, whatever m is.
    assert len({int(c) % key.public.n for c in ciphertexts}) == 50


@pytest.mark.parametrize("form", ["short_key", "imported_key"])
def test_engines_make_the_same_ciphertexts_of_the_same_randomness(
    form: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    key: PrivateKey = request.getfixturevalue(form)
    found = []
    for engine in ARITHMETICS.values():
        drawn = iter(range(1, 100))
        monkeypatch.setattr(secrets, "token_bytes", lambda size, d=drawn: bytes([next(d)]) * size)
        monkeypatch.setattr(secrets, "randbelow", lambda limit, d=drawn: limit // (next(d) + 1))
        found.append([int(c) for c in Encryptor(key.public, engine).encrypt([0, 7, 2**300])])
    assert found[0] == found[1]


def test_obfuscators_are_powers_of_h_with_half_the_bits_of_n(
    short_key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, h = short_key.public.n, short_key.h
    assert h is not None
    drawn = bytes(range(200, 232))
    asked: list[int] = []

    def token_bytes(size: int) -> bytes:
        asked.append(size)
        return drawn

    monkeypatch.setattr(secrets, "token_bytes", token_bytes)
    (zero,) = Encryptor(short_key.public).encrypt([0])
    assert asked == [512 // 2 // 8]
    assert zero == pow(h, int.from_bytes(drawn, "little"), n * n)


def test_obfuscators_of_both_forms_are_n_th_residues(
    short_key: PrivateKey, imported_key: PrivateKey
) -> None:
    n = short_key.public.n
    order = (short_key.p - 1) * (short_key.q - 1)
    for key in (short_key, imported_key):
        for ciphertext in Encryptor(key.public).encrypt([0] * 5):
            assert pow(int(ciphertext), order, n * n) == 1


def test_an_engine_that_is_not_installed_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"secure-fedrec\[paillier\]") as refusal:
        default_arithmetic("openssl")
    assert refusal.value.choices == ("gmpy2", "int")


@pytest.mark.claim("phe-optional")
def test_without_the_extra_all_but_phe_works(short_key: PrivateKey) -> None:
    program = f"""
import sys
sys.modules["gmpy2"] = sys.modules["phe"] = None  # as if they were not installed
import secure_fedrec.protection
from secure_fedrec.errors import MissingExtraError
from secure_fedrec.protection.paillier import Decryptor, Encryptor, PrivateKey, phe_bridge
from secure_fedrec.protection.paillier.scheme import keys
from secure_fedrec.protection.paillier.scheme.arithmetic import ARITHMETICS
assert sorted(ARITHMETICS) == ["int"]
keys._MINIMUM_BITS = 512
key = PrivateKey.from_bytes(bytes.fromhex({short_key.to_bytes().hex()!r}))
assert Decryptor(key).decrypt(Encryptor(key.public).encrypt([41, 0])) == [41, 0]
try:
    phe_bridge.export_public_key(key.public)
except MissingExtraError as refusal:
    print(refusal)
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "pip install 'secure-fedrec[paillier]'" in ended.stdout


def test_the_package_loads_neither_phe_nor_torch() -> None:
    program = """
import sys
import secure_fedrec.protection.paillier
print(sorted({"phe", "torch"} & set(sys.modules)))
"""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"
