"""``paillier``: packed encryption against python-paillier, packed and as it comes.

Judged are ``encrypt_ratio_phe`` (CPU time per value of ``phe`` with gmpy2, one value per
ciphertext, over ours), ``encrypt_ratio_packed_phe`` (``phe`` on the very plaintexts that our slots
make, over ours) and ``bytes_per_value``: 24-bit values, sums of up to 1,024 clients, 2,048 bits.
Making the key and the table of obfuscators is reported apart: a client does it once. Decryption and
addition stand beside, as does the default key length.
"""

from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any, Final

import gmpy2  # type: ignore[import-untyped,import-not-found,unused-ignore]
import numpy as np
import phe  # type: ignore[import-untyped,import-not-found,unused-ignore]

from benchmarks.federations import Options
from benchmarks.measure import Timings, interleave, progress
from secure_fedrec.core.arrays import RingArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    DEFAULT_BITS,
    Encryptor,
    PaillierSum,
    PrivateKey,
    generate_key,
    phe_bridge,
)

__all__ = ["run"]

TARGETS: Final = {
    "encrypt_ratio_phe": ">= 500",
    "encrypt_ratio_packed_phe": ">= 10",
    "bytes_per_value": "<= 10",
}

_JUDGED_BITS = 2048
_CLIENTS = 1024
_CODEC: Final = FixedPoint(bits=35, fraction_bits=12, clip=(2.0**23 - 1) / 2**12)
"""A ring for sums of 1,024 values of 24 bits."""

_PLAINTEXTS = 100  # of ours per timed call
_PHE_PLAINTEXTS = 5
_PHE_VALUES = 10
_TERMS = 4


def run(options: Options) -> dict[str, Any]:
    """All figures of the benchmark, as JSON values."""
    repeats = 5 if options.quick else 15
    judged = _at(_JUDGED_BITS, repeats)
    return {
        "benchmark": "paillier",
        "value_bits": 24,
        "clients": _CLIENTS,
        "phe": phe.__version__,
        "gmpy2": gmpy2.version(),
        **judged,
        f"at_{DEFAULT_BITS}_bits": _at(DEFAULT_BITS, max(1, repeats // 3)),
        "targets": TARGETS,
    }


def _at(bits: int, repeats: int) -> dict[str, Any]:
    progress(f"{bits} bits: key and table")
    begun = process_time()
    private = generate_key(bits)
    key_seconds = process_time() - begun
    begun = process_time()
    Encryptor(private.public)
    table_seconds = process_time() - begun
    case = _Case(private)
    progress(f"{bits} bits: the sums of both are the integer sum")
    case.require_exact()
    progress(f"{bits} bits: encrypt, decrypt, add")
    return {
        "bits": bits,
        **_figures(case, interleave(case.contenders(), repeats=repeats)),
        "bytes_per_value": case.sums.bytes_per_vector / case.values,
        "bytes_per_value_phe": float(private.public.ciphertext_bytes),
        "key_seconds": key_seconds,
        "table_seconds": table_seconds,
    }


class _Case:
    """Both contenders under one key, on one set of values."""

    def __init__(self, private: PrivateKey) -> None:
        bits = private.public.bits
        layout = PaillierSum(n_clients=_CLIENTS, length=1, codec=_CODEC, key=private.public).layout
        self.slots = layout.slots(bits)
        self.values = self.slots * _PLAINTEXTS
        self.private = private
        self.sums = PaillierSum(
            n_clients=_CLIENTS, length=self.values, codec=_CODEC, key=private.public
        )
        drawn = np.random.default_rng(1).integers(
            -_CODEC.largest, _CODEC.largest, self.values, endpoint=True
        )
        self.integers = drawn.tolist()
        self.words: RingArray = _CODEC.from_integers(drawn)
        self.plaintexts = self.sums.layout.pack(self.words, bits)[:_PHE_PLAINTEXTS]
        self.phe_public = phe_bridge.export_public_key(private.public)
        self.phe_private = phe_bridge.export_private_key(private)
        self.encrypted = self.sums.encrypt(self.words)
        self.phe_encrypted = self._phe_encrypt()

    def _phe_encrypt(self) -> list[Any]:
        return [self.phe_public.encrypt(value) for value in self.integers[:_PHE_VALUES]]

    def contenders(self) -> dict[str, Callable[[], object]]:
        """What is timed; ``_values_of`` says over how many values."""
        return {
            "encrypt": lambda: self.sums.encrypt(self.words),
            "encrypt_phe": self._phe_encrypt,
            "encrypt_packed_phe": lambda: [
                self.phe_public.raw_encrypt(plaintext) for plaintext in self.plaintexts
            ],
            "decrypt": lambda: self.sums.decrypt(self.encrypted, self.private),
            "decrypt_phe": lambda: [
                self.phe_private.decrypt(encrypted) for encrypted in self.phe_encrypted
            ],
            "add": lambda: self.sums.total([self.encrypted] * _TERMS),
            "add_phe": lambda: [left + left for left in self.phe_encrypted],
        }

    def counts(self) -> dict[str, int]:
        """Values that each contender handles in one call."""
        packed = _PHE_PLAINTEXTS * self.slots
        return {
            "encrypt": self.values,
            "encrypt_phe": _PHE_VALUES,
            "encrypt_packed_phe": packed,
            "decrypt": self.values,
            "decrypt_phe": _PHE_VALUES,
            "add": self.values * (_TERMS - 1),
            "add_phe": _PHE_VALUES,
        }

    def require_exact(self) -> None:
        """Both give the integer sum of the same values, or nothing is measured.

        Raises:
            AssertionError: one does not.
        """
        total = self.sums.decrypt(self.sums.total([self.encrypted] * _TERMS), self.private)
        expected = [_TERMS * value for value in self.integers]
        assert _CODEC.to_integers(total).tolist() == expected
        doubled = [self.phe_private.decrypt(each + each) for each in self.phe_encrypted]
        assert doubled == [2 * value for value in self.integers[:_PHE_VALUES]]
        opened = [
            self.phe_private.raw_decrypt(self.phe_public.raw_encrypt(plaintext))
            for plaintext in self.plaintexts
        ]
        assert opened == self.plaintexts


def _figures(case: _Case, timings: Timings) -> dict[str, float]:
    """CPU seconds per value, medians; ratios are medians over neighbouring measurements."""
    counts = case.counts()
    each = {name: [t / counts[name] for t in taken] for name, taken in timings.items()}

    def over(peer: str, ours: str) -> float:
        return median(a / b for a, b in zip(each[peer], each[ours], strict=True))

    return {
        "encrypt_ratio_phe": over("encrypt_phe", "encrypt"),
        "encrypt_ratio_packed_phe": over("encrypt_packed_phe", "encrypt"),
        "decrypt_ratio_phe": over("decrypt_phe", "decrypt"),
        "add_ratio_phe": over("add_phe", "add"),
        **{f"{name}_values_per_second": 1 / median(taken) for name, taken in each.items()},
    }
