"""Times of the operations of a masked sum on this machine, measured in a fraction of a second.

Times are CPU seconds of one thread: the fastest of several short batches, since disturbances on a
shared machine only make a measurement longer.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from time import process_time

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.fixedpoint import pack, unpack, word_type
from secure_fedrec.protection.keystream import KEY_BYTES, MaskExpander
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import Context
from secure_fedrec.protection.masking.messages.hybrid import KemKey, seal_to
from secure_fedrec.protection.masking.messages.shamir import combine, split

_BATCHES = 5
_BATCH_SECONDS = 0.004
_MOST_WORDS = 2**18  # times of longer vectors are extrapolated from this many words
_MOST_SHARES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """CPU seconds of one operation each.

    Args:
        keygen: X25519 key pair.
        agreement: X25519 with loading the public key, and one HKDF.
        sign: Ed25519 signature.
        verify: Ed25519 verification.
        box: AES-256-GCM of 64 bytes under a key derived by HKDF, seal or open.
        kem_keygen: key pair of the hybrid KEM, derived from a secret.
        kem_seal: sealing 32 bytes to such a key.
        kem_open: opening them.
        mask: expanding one mask of the vector and adding it.
        digest: SHA-256 of the packed vector.
        tag: AES-256-GMAC of the packed vector.
        pack: packing the vector's low bits.
        unpack: unpacking and adding it to a sum.
        split: Shamir sharing of one secret among the neighbours.
        combine: Shamir recovery of one secret from a set of shares that did not occur before.
        mask_gigabytes_per_second: rate behind ``mask``, in masked words.
        client_round: a client's bookkeeping for a round, beyond the operations above.
        client_edge: the same for each neighbour.
        server_client: the server's for each client.
        server_edge: the server's for each neighbour of each client.
    """

    keygen: float
    agreement: float
    sign: float
    verify: float
    box: float
    kem_keygen: float
    kem_seal: float
    kem_open: float
    mask: float
    digest: float
    tag: float
    pack: float
    unpack: float
    split: float
    combine: float
    mask_gigabytes_per_second: float
    client_round: float = 0.0
    client_edge: float = 0.0
    server_client: float = 0.0
    server_edge: float = 0.0


def measure_operations(config: MaskingConfig) -> Calibration:
    """Measure every operation for the sizes of a configuration; bookkeeping stays 0."""
    bits = config.bits
    words = min(config.length, _MOST_WORDS)
    scale = config.length / words
    vector = np.zeros(words, dtype=word_type(bits))
    total = np.zeros_like(vector)
    packed = pack(vector, bits)
    keys = [secrets.token_bytes(KEY_BYTES) for _ in range(4)]
    expander = MaskExpander()
    tagger = AESGCM(keys[0])

    of_vector: dict[str, Callable[[], object]] = {
        "digest": lambda: hashlib.sha256(packed).digest(),
        "tag": lambda: tagger.encrypt(bytes(12), b"", packed),
        "pack": lambda: pack(vector, bits),
        "unpack": lambda: np.add(total, unpack(packed, words, bits), out=total),
    }
    masked = _seconds(lambda: expander.apply(vector, add=keys[:2], subtract=keys[2:])) / 4
    others = _public_key_operations() | _kem_operations()
    return Calibration(
        **{name: _seconds(call) for name, call in others.items()},
        **{name: _seconds(call) * scale for name, call in of_vector.items()},
        mask=masked * scale,
        **_shamir_operations(config.neighbours, config.threshold, config.clients),
        mask_gigabytes_per_second=vector.nbytes / masked / 1e9,
    )


def _public_key_operations() -> dict[str, Callable[[], object]]:
    private, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    public = other.public_key().public_bytes_raw()
    signer = Ed25519PrivateKey.generate()
    verifier, message = signer.public_key(), secrets.token_bytes(300)
    signature = signer.sign(message)
    secret = private.exchange(other.public_key())

    def derive(material: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=32, salt=message[:16], info=message).derive(material)

    return {
        "keygen": lambda: X25519PrivateKey.generate().public_key().public_bytes_raw(),
        "agreement": lambda: derive(private.exchange(X25519PublicKey.from_public_bytes(public))),
        "sign": lambda: signer.sign(message),
        "verify": lambda: verifier.verify(signature, message),
        "box": lambda: AESGCM(derive(secret)).encrypt(bytes(12), message[:64], message),
    }


def _kem_operations() -> dict[str, Callable[[], object]]:
    context = Context(
        round_id=bytes(16), config_hash=bytes(32), roster_hash=bytes(32), cohort_hash=bytes(32)
    )
    secret = secrets.token_bytes(32)
    key = KemKey(secret, "calibration", context, 0)
    sealed = seal_to(key.public, secret, b"calibration")
    return {
        "kem_keygen": lambda: KemKey(secret, "calibration", context, 0),
        "kem_seal": lambda: seal_to(key.public, secret, b"calibration"),
        "kem_open": lambda: key.open(sealed, b"calibration"),
    }


def _shamir_operations(degree: int, threshold: int, clients: int) -> dict[str, float]:
    """Splitting takes degree x threshold multiplications, combining threshold squared."""
    shares = min(degree, _MOST_SHARES)
    needed = max(2, threshold * shares // degree)
    secret = secrets.randbelow(2**254)
    points = range(clients - shares + 1, clients + 1)  # the largest indices are the slowest
    fresh = _fresh_shares(needed)
    return {
        "split": _seconds(lambda: split(secret, threshold=needed, indices=points))
        * (degree * threshold)
        / (shares * needed),
        "combine": _seconds(lambda: combine(next(fresh))) * (threshold / needed) ** 2,
    }


def _fresh_shares(needed: int) -> Iterator[dict[int, int]]:
    """Index sets that never repeat, so that no remembered interpolation weights are timed."""
    values = [secrets.randbelow(2**254) for _ in range(needed)]
    for first in count(1):
        yield dict(zip(range(first, first + needed), values, strict=True))


def _seconds(call: Callable[[], object]) -> float:
    """CPU seconds of one call, the fastest of several batches."""
    call()  # caches, lazy imports
    calls, fastest = 1, float("inf")
    batch = 0
    while batch < _BATCHES:
        start = process_time()
        for _ in range(calls):
            call()
        spent = process_time() - start
        if spent < _BATCH_SECONDS / 4 and calls < 2**20:
            calls *= 4  # too short for the clock's resolution: not counted
            continue
        fastest = min(fastest, spent / calls)
        batch += 1
    return fastest
