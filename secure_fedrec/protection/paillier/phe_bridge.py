"""Conversion to and from python-paillier (``phe``), for integers.

``phe`` is GPL-3.0 and comes with the extra ``paillier``. This is the only module that imports it,
and nothing imports this module: so other code neither needs nor loads ``phe``.

Interoperation covers integer plaintexts at exponent 0. An ``EncryptedNumber`` carries its exponent
in the clear, and for a float that exponent tells the magnitude; a ciphertext at another exponent is
refused rather than taken for an integer.

Keys that ``phe`` makes need not meet the conditions of a DJN key, and their n cannot show whether
they do: they are imported without h, and encryption under them uses full r^n obfuscators.
"""

from typing import Any

from secure_fedrec.errors import EncodingError, MissingExtraError, ProtocolError, WireError
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.scheme.keys import PrivateKey, PublicKey

try:
    import phe as _phe  # type: ignore[import-untyped,import-not-found,unused-ignore]
except ImportError:
    _phe = None


def import_public_key(key: Any) -> PublicKey:
    """Our form of a ``phe.PaillierPublicKey``.

    Raises:
        MissingExtraError: ``phe`` is missing.
        ConfigError: n has a length that is not accepted.
    """
    _require_phe()
    return PublicKey(n=int(key.n))


def import_private_key(key: Any) -> PrivateKey:
    """Our form of a ``phe.PaillierPrivateKey``.

    Raises:
        MissingExtraError: ``phe`` is missing.
        ConfigError: p and q are not primes of equal length.
    """
    _require_phe()
    p, q = sorted((int(key.p), int(key.q)))
    return PrivateKey(p=p, q=q)


def export_public_key(key: PublicKey) -> Any:
    """A ``phe.PaillierPublicKey`` with the same n; h is left out.

    Raises:
        MissingExtraError: ``phe`` is missing.
    """
    return _require_phe().PaillierPublicKey(key.n)


def export_private_key(key: PrivateKey) -> Any:
    """A ``phe.PaillierPrivateKey`` with the same primes.

    Raises:
        MissingExtraError: ``phe`` is missing.
    """
    return _require_phe().PaillierPrivateKey(export_public_key(key.public), key.p, key.q)


def export_ciphertext(ciphertext: int, key: PublicKey) -> Any:
    """A ``phe.EncryptedNumber`` at exponent 0.

    Raises:
        MissingExtraError: ``phe`` is missing.
        WireError: the number is not a ciphertext under this key.
    """
    phe = _require_phe()
    if not 0 < ciphertext < key.n**2:
        raise WireError("a ciphertext lies outside (0, n^2)")
    return phe.EncryptedNumber(export_public_key(key), int(ciphertext), exponent=0)


def import_ciphertext(encrypted: Any, key: PublicKey) -> int:
    """The ciphertext of a ``phe.EncryptedNumber``, obfuscated by ``phe`` if it was not yet.

    Raises:
        MissingExtraError: ``phe`` is missing.
        ProtocolError: it was made under another key.
        EncodingError: its exponent is not 0: a float, whose magnitude the exponent shows.
    """
    _require_phe()
    if int(encrypted.public_key.n) != key.n:
        raise ProtocolError("the number was encrypted under another key")
    if encrypted.exponent != 0:
        raise EncodingError(
            f"an encrypted number at exponent {encrypted.exponent} is not an integer; encode to "
            "the"
            " ring before encrypting"
        )
    return int(encrypted.ciphertext(be_secure=True))


def encrypt_signed(value: int, encryptor: Encryptor) -> int:
    """Encrypt a signed integer as ``phe`` does: -x is n - x, and a third of n bounds x.

    Raises:
        EncodingError: the magnitude is above n / 3 - 1.
    """
    n = encryptor.key.n
    if abs(value) > n // 3 - 1:
        raise EncodingError("an integer is beyond n / 3 - 1, the range of phe")
    return int(encryptor.encrypt([value % n])[0])


def decrypt_signed(ciphertext: int, decryptor: Decryptor) -> int:
    """Decrypt a signed integer as ``phe`` does.

    Raises:
        EncodingError: the plaintext lies between the positive and the negative third: a sum
            overflowed.
    """
    n = decryptor.key.n
    value = decryptor.decrypt([ciphertext])[0]
    if value <= n // 3 - 1:
        return value
    if value >= n - (n // 3 - 1):
        return value - n
    raise EncodingError("a decrypted integer is beyond n / 3 - 1: a sum overflowed")


def _require_phe() -> Any:
    if _phe is None:
        raise MissingExtraError("phe", "paillier")  # GPL-3.0, so it is in no other extra
    return _phe
