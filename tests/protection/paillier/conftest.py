"""Short keys with fixed primes, and parties of a round.

Keys this short protect nothing. They exist here alone: the library refuses them, so the floor is
lowered for the modules that ask for them.
"""

import math
import random
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    AverageStep,
    Encryptor,
    Identity,
    KeyHolding,
    Party,
    Plan,
    PrivateKey,
    PublicKey,
    Role,
    Roster,
    SlotLayout,
    TableClient,
    TableServer,
    TableUpdate,
    generate_key,
)
from secure_fedrec.protection.paillier.scheme import keys
from secure_fedrec.protection.paillier.scheme.arithmetic import is_probable_prime

OPERATOR = Ed25519PrivateKey.generate()
SHORT_BITS = 512


@cache
def primes(seed: int) -> tuple[int, int]:
    """Two primes that suit a DJN key of ``SHORT_BITS`` bits."""
    source = random.Random(seed)
    found: list[int] = []
    while True:
        candidate = source.getrandbits(SHORT_BITS // 2) | 0b11 << (SHORT_BITS // 2 - 2) | 0b11
        if not is_probable_prime(candidate):
            continue
        for other in found:
            if other != candidate and math.gcd(other - 1, candidate - 1) == 2:
                return min(other, candidate), max(other, candidate)
        found.append(candidate)


def short_key_of(seed: int) -> PrivateKey:
    p, q = primes(seed)
    n = p * q
    return PrivateKey(p=p, q=q, h=pow(-(3**200) % n, n, n * n))


@pytest.fixture(scope="module")
def short_floor() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_MINIMUM_BITS", SHORT_BITS)
        yield


@pytest.fixture(scope="module")
def short_key(short_floor: None) -> PrivateKey:
    return short_key_of(1)


@pytest.fixture(scope="module")
def other_key(short_floor: None) -> PrivateKey:
    return short_key_of(2)


@pytest.fixture(scope="module")
def imported_key(short_key: PrivateKey) -> PrivateKey:
    """The same primes without h: full r^n obfuscators."""
    return PrivateKey(p=short_key.p, q=short_key.q)


@pytest.fixture(scope="session")
def real_key() -> PrivateKey:
    """A key of a length that the library accepts."""
    return generate_key(2048)


@pytest.fixture(scope="session")
def identities() -> dict[Party, Identity]:
    """Everybody who may be in a roster."""
    parties = [Party(Role.SERVER), Party(Role.AUTHORITY)]
    parties += [Party(Role.CLIENT, number) for number in range(8)]
    return {party: Identity.generate(party) for party in parties}


@pytest.fixture(scope="session")
def roster(identities: dict[Party, Identity]) -> Roster:
    return Roster.of(OPERATOR, {party: identity.public for party, identity in identities.items()})


@pytest.fixture(scope="session")
def authority_plan(roster: Roster) -> Callable[..., Plan]:
    """An agreement with an authority: one vector of values and one of counts."""

    def build(
        key: PublicKey,
        *,
        masked: bool = False,
        clients: tuple[int, ...] = (0, 2, 5),
        length: int = 11,
        bits: int = 30,
    ) -> Plan:
        values = FixedPoint(bits=bits, fraction_bits=0, clip=1000.0)
        counts = FixedPoint(bits=16, fraction_bits=0, clip=1.0)
        layouts = tuple(
            SlotLayout(codec=codec, length=size, budget=len(clients), whole_ring=masked)
            for codec, size in ((values, length), (counts, 4))
        )
        return Plan(
            holding=KeyHolding(holder="authority", masked=masked),
            key=key,
            roster=roster,
            clients=clients,
            layouts=layouts,
        )

    return build


TABLE_VALUES = FixedPoint(bits=32, fraction_bits=8, clip=1000.0)
TABLE_COUNTS = FixedPoint(bits=16, fraction_bits=0, clip=1.0)
TABLE_CLIENTS = (0, 1, 3, 4)


@pytest.fixture
def table_plan(short_key: PrivateKey, roster: Roster) -> Plan:
    layouts = (
        SlotLayout(codec=TABLE_VALUES, length=12, budget=len(TABLE_CLIENTS)),
        SlotLayout(codec=TABLE_COUNTS, length=6, budget=len(TABLE_CLIENTS)),
    )
    return Plan(
        holding=KeyHolding(holder="clients"),
        key=short_key.public,
        roster=roster,
        clients=TABLE_CLIENTS,
        layouts=layouts,
        table=SlotLayout(codec=TABLE_VALUES, length=12, budget=1),
    )


@pytest.fixture
def start_table(
    table_plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> Callable[..., tuple[TableServer, dict[int, TableClient]]]:
    """Both kinds of halves; a client may be given another update than the agreed one."""

    def build(
        steps: dict[int, TableUpdate] | None = None, *, alone: bool = False
    ) -> tuple[TableServer, dict[int, TableClient]]:
        step = AverageStep(codec=TABLE_VALUES, counts=TABLE_COUNTS, width=2)
        encryptor = Encryptor(table_plan.key)
        clients = {
            number: TableClient(
                table_plan,
                identities[Party(Role.CLIENT, number)],
                short_key,
                encryptor,
                (steps or {}).get(number, step),
                alone=alone,
            )
            for number in TABLE_CLIENTS
        }
        return TableServer(table_plan, identities[Party(Role.SERVER)]), clients

    return build
