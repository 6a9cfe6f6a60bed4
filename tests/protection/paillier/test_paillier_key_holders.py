"""Who may hold the key against whom, and what parties must agree on before a message is sent."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    KEY_HOLDINGS,
    Identity,
    KeyHolding,
    Party,
    Plan,
    PrivateKey,
    Role,
    Roster,
    SlotLayout,
)

OPERATOR = Ed25519PrivateKey.generate()
ADVERSARIES = ("curious-server", "curious-server+authority", "active-server", "nobody")


@pytest.mark.parametrize("holder", ["clients", "authority", "server"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_only_holdings_with_a_claim_are_accepted(holder: str, masked: bool, adversary: str) -> None:
    if (holder, masked, adversary) in KEY_HOLDINGS:
        claim = KeyHolding(holder=holder, masked=masked, adversary=adversary).claim
        assert claim.hides
        assert claim.assumes
        return
    with pytest.raises(ConfigError) as refusal:
        KeyHolding(holder=holder, masked=masked, adversary=adversary)
    assert refusal.value.choices is not None
    assert len(refusal.value.choices) == len(KEY_HOLDINGS)
    assert "clients against curious-server" in refusal.value.choices


def test_without_masks_only_a_curious_server_is_withstood() -> None:
    unmasked = {adversary for _, masked, adversary in KEY_HOLDINGS if not masked}
    assert unmasked == {"curious-server"}
    assert not [holding for holding in KEY_HOLDINGS if holding[0] == "server"]


@pytest.fixture
def plan(short_key: PrivateKey, authority_plan: Callable[..., Plan]) -> Plan:
    return authority_plan(short_key.public)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"clients": (0, 2)}, "protection.paillier.clients"),
        ({"minimum": 4}, "protection.paillier.clients"),
        ({"minimum": 2}, "protection.paillier.minimum"),
        ({"clients": (0, 5, 2)}, "protection.paillier.clients"),
        ({"clients": (0, 2, 2)}, "protection.paillier.clients"),
        ({"clients": (0, 2, 9)}, "paillier.roster"),
        ({"clients": (0, 2, 5, 6)}, "paillier.budget"),
        ({"layouts": ()}, "paillier.layouts"),
        ({"holding": KeyHolding(holder="authority", masked=True)}, "paillier.layouts"),
        ({"holding": KeyHolding(holder="clients")}, "paillier.table"),
    ],
)
def test_plans_that_do_not_hold_together_are_refused(
    plan: Plan, change: dict[str, object], key: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        replace(plan, **change)  # type: ignore[arg-type]
    assert refusal.value.key == key


def test_a_table_is_never_added_and_goes_with_clients_that_hold_the_key(plan: Plan) -> None:
    table = SlotLayout(codec=FixedPoint(), length=4, budget=1)
    with pytest.raises(ConfigError, match="goes with a key held by clients"):
        replace(plan, table=table)
    with pytest.raises(ConfigError, match="never added"):
        replace(plan, holding=KeyHolding(holder="clients"), table=replace(table, budget=2))
    held = replace(plan, holding=KeyHolding(holder="clients"), table=table)
    longer = replace(held, table=replace(table, length=5))
    assert len({plan.context, held.context, longer.context}) == 3


def test_an_authority_outside_the_roster_is_refused(
    plan: Plan, identities: dict[Party, Identity]
) -> None:
    keys = {p: i.public for p, i in identities.items() if p.role is not Role.AUTHORITY}
    with pytest.raises(ConfigError, match="the authority"):
        replace(plan, roster=Roster.of(OPERATOR, keys))


def test_whatever_is_agreed_changes_the_context(
    plan: Plan, other_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    fewer = {p: i.public for p, i in identities.items() if p != Party(Role.CLIENT, 7)}
    holdings = [
        KeyHolding(holder="authority", masked=True, adversary=adversary)
        for adversary in ADVERSARIES[:3]
    ]
    masked = tuple(replace(layout, whole_ring=True) for layout in plan.layouts)
    plans = [
        plan,
        replace(plan, key=other_key.public),
        replace(plan, clients=(0, 2, 6)),
        replace(plan, layouts=plan.layouts[::-1]),
        replace(plan, layouts=plan.layouts[:1]),
        replace(plan, roster=Roster.of(OPERATOR, fewer)),
        *(replace(plan, holding=holding, layouts=masked) for holding in holdings),
    ]
    contexts = [each.context for each in plans]
    assert len(set(contexts)) == len(contexts)
    assert replace(plan).context == plan.context
    loose = replace(plan, clients=(0, 2, 5, 6), layouts=_widened(plan))
    assert replace(loose, minimum=4).context == loose.context  # each party's own affair


def _widened(plan: Plan) -> tuple[SlotLayout, ...]:
    return tuple(replace(layout, budget=4) for layout in plan.layouts)


def test_rosters_that_prove_nothing_are_refused(identities: dict[Party, Identity]) -> None:
    server, client = Party(Role.SERVER), Party(Role.CLIENT, 1)
    key = identities[server].public
    for keys, problem in (
        ({client: key}, "names no server"),
        ({server: key, client: key}, "one key stands for two"),
        ({server: key, client: key[:31]}, "32 bytes"),
    ):
        with pytest.raises(ConfigError, match=problem):
            Roster.of(OPERATOR, keys)
    digests = {
        Roster.of(
            OPERATOR, {server: key, Party(Role.CLIENT, number): identities[client].public}
        ).hash
        for number in (1, 2)
    }
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("role", "number"),
    [(Role.SERVER, 1), (Role.AUTHORITY, 1), (Role.CLIENT, -1), (Role.CLIENT, 2**32)],
)
def test_parties_that_cannot_be_are_refused(role: Role, number: int) -> None:
    with pytest.raises(ConfigError):
        Party(role, number)
