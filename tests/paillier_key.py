"""One Paillier key, and its table of powers, for all tests of a process that are about neither.

A key of 2048 bits takes a tenth of a second and its table half of one: in tests that make a
federation for every case that is most of their time.
"""

from functools import cache

import pytest

from secure_fedrec.protection.paillier import Encryptor, generate_key
from secure_fedrec.protection.paillier import embedded as encrypted
from secure_fedrec.protection.paillier import federation as rounds
from secure_fedrec.protection.paillier import hosted as encrypted_hosted

_KEY, _TABLE = cache(generate_key), cache(Encryptor)


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Federations of this test are given the key."""
    for module in (encrypted, encrypted_hosted):
        monkeypatch.setattr(module, "generate_key", _KEY)
    for module in (encrypted_hosted, rounds):
        monkeypatch.setattr(module, "Encryptor", _TABLE)
