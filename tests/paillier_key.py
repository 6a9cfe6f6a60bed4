"""One Paillier key, and its table of powers, for all tests of a process that are about neither.

A key of 2048 bits takes a tenth of a second and its table half of one: in tests that make a
federation for every case that is most of their time.
"""

from functools import cache

import pytest

from secure_fedrec.protection.paillier import Encryptor, generate_key, hosted
from tests import paillier_federation

_KEY, _TABLE = cache(generate_key), cache(Encryptor)


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Federations of this test are given the key."""
    monkeypatch.setattr(hosted, "generate_key", _KEY)
    for module in (hosted, paillier_federation):
        monkeypatch.setattr(module, "Encryptor", _TABLE)
