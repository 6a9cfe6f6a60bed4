"""Whole rounds in one process: what is sent, and tables that one cohort hands to another."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    AverageStep,
    Decryptor,
    Encryptor,
    Identity,
    KeyHolding,
    Party,
    Plan,
    PrivateKey,
    Role,
    Roster,
    SlotLayout,
    TableClient,
    TableServer,
    updaters,
)
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.sizes import (
    Sent,
    authority_messages,
    table_bytes,
    table_messages,
)
from secure_fedrec.protection.session import Parcel
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES, SIGNATURE_BYTES
from tests.paillier_federation import AuthorityFederation, TableFederation, seal

OPERATOR = Ed25519PrivateKey.generate()
VALUES = FixedPoint(bits=32, fraction_bits=8, clip=1000.0)
COUNTS = FixedPoint(bits=16, fraction_bits=0, clip=1.0)
ROWS, WIDTH = 6, 2
SERVER = Party(Role.SERVER)
STEP = AverageStep(codec=VALUES, counts=COUNTS, width=WIDTH)
LAYOUTS = (
    SlotLayout(codec=VALUES, length=ROWS * WIDTH, budget=8),
    SlotLayout(codec=COUNTS, length=ROWS, budget=8),
)
TABLE = SlotLayout(codec=VALUES, length=ROWS * WIDTH, budget=1)
FIRST, SECOND = (0, 1, 3, 4), (1, 2, 5)


def given(seed: int, table: RingArray) -> list[RingArray]:
    """What a client uploads, whatever the table says."""
    del table
    return drawn(seed)


def drawn(seed: int) -> list[RingArray]:
    """Gradients and counts of one client."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 2, ROWS)
    gradients = (rng.integers(-999, 1000, (ROWS, WIDTH)) * counts[:, None]).reshape(-1)
    return [VALUES.from_integers(gradients), COUNTS.from_integers(counts)]


class Carried:
    """Delivers everything and notes what was sent."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def __call__(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        self.sent += [
            Sent(Kind[one.stage], one.sender, one.receiver, len(one.data))
            for one in parcels
            if one.data
        ]
        return parcels


def upload(table: RingArray, words: list[RingArray], read: RingArray) -> list[RingArray]:
    """What a client uploads that must have read a table."""
    assert read.tolist() == table.tolist()
    return words


def test_an_authority_opens_the_sum_of_every_cohort(short_key: PrivateKey) -> None:
    federation = AuthorityFederation(range(8), private=short_key, layouts=LAYOUTS)
    for cohort in (FIRST, SECOND, FIRST):
        vectors = {client: drawn(client) for client in cohort}
        carried = Carried()
        opened = federation.sum(vectors, carrier=carried)
        for number, found in enumerate(opened):
            plain = np.sum([each[number] for each in vectors.values()], axis=0, dtype=found.dtype)
            assert LAYOUTS[number].codec.reduce(plain).tolist() == found.tolist()
        bits = short_key.public.bits
        assert carried.sent == authority_messages(cohort, layouts=LAYOUTS, key_bits=bits)


def test_a_table_goes_from_cohort_to_cohort(short_key: PrivateKey) -> None:
    federation = TableFederation(range(8), private=short_key, layouts=LAYOUTS, table=TABLE)
    table = VALUES.from_integers(np.arange(ROWS * WIDTH))
    bits = short_key.public.bits
    carried = Carried()
    federation.begin(table, FIRST, carrier=carried)
    size = table_bytes(TABLE, bits)
    made = [Party(Role.CLIENT, client) for client in updaters(FIRST, 0)]
    assert carried.sent == [Sent(Kind.UPDATE, client, SERVER, size) for client in made]
    for number, cohort in enumerate((FIRST, SECOND, SECOND, FIRST), start=1):
        carried = Carried()
        vectors = {client: drawn(10 * number + client) for client in cohort}
        federation.step(
            {client: partial(upload, table, words) for client, words in vectors.items()},
            STEP,
            carrier=carried,
        )
        sums = [
            np.asarray(
                np.sum([each[place] for each in vectors.values()], axis=0, dtype=layout.codec.dtype)
            )
            for place, layout in enumerate(LAYOUTS)
        ]
        table = STEP(
            table, tuple(y.codec.reduce(words) for y, words in zip(LAYOUTS, sums, strict=True))
        )
        foreseen = table_messages(
            cohort, round_=number, layouts=LAYOUTS, table=TABLE, key_bits=bits
        )
        assert sorted(map(str, carried.sent)) == sorted(map(str, foreseen))


@pytest.mark.parametrize("anew", [False, True])
def test_uploads_of_an_aborted_round_are_taken_in_no_other(
    short_key: PrivateKey, anew: bool
) -> None:
    federation = TableFederation(range(8), private=short_key, layouts=LAYOUTS, table=TABLE)
    table, before = VALUES.from_integers(np.arange(ROWS * WIDTH)), dict[Any, Parcel]()

    def stopped(sent: Sequence[Parcel]) -> list[Parcel]:
        before.update((each[:3], each) for each in sent if each.stage == "UPLOAD")
        return [each for each in sent if each.stage != "UPLOAD"]

    def replayed(sent: Sequence[Parcel]) -> list[Parcel]:
        return [before.get(each[:3], each) for each in sent]

    federation.begin(table, FIRST)
    with pytest.raises(ProtocolError, match="4 uploads are missing"):
        federation.step({client: partial(given, 1) for client in FIRST}, STEP, carrier=stopped)
    assert len(before) == 4
    if anew:
        federation.begin(table, FIRST)
    with pytest.raises(ProtocolError, match="another agreement" if anew else "in mid-round"):
        federation.step({client: partial(given, 2) for client in FIRST}, STEP, carrier=replayed)


def test_there_is_no_round_without_a_table(short_key: PrivateKey) -> None:
    federation = TableFederation(range(8), private=short_key, layouts=LAYOUTS, table=TABLE)
    with pytest.raises(ProtocolError, match="no table yet"):
        federation.step({client: lambda _: [] for client in FIRST}, STEP)


@pytest.fixture
def plan_of(short_key: PrivateKey, roster: Roster) -> Callable[..., Plan]:
    def build(clients: tuple[int, ...], **changes: object) -> Plan:
        settings: dict[str, object] = {
            "holding": KeyHolding(holder="clients"),
            "key": short_key.public,
            "roster": roster,
            "clients": clients,
            "layouts": LAYOUTS,
            "table": TABLE,
        }
        return Plan(**(settings | changes))  # type: ignore[arg-type]

    return build


def begun(
    plan: Plan, identities: dict[Party, Identity], key: PrivateKey
) -> tuple[TableServer, dict[int, TableClient]]:
    """Both kinds of halves, at round 1."""
    server = TableServer(plan, identities[SERVER])
    clients = {
        number: TableClient(
            plan, identities[Party(Role.CLIENT, number)], key, Encryptor(plan.key), STEP
        )
        for number in plan.clients
    }
    for number in updaters(plan.clients, 0):
        sent = clients[number].initialise(VALUES.from_integers(np.arange(ROWS * WIDTH)))
        assert sent is not None
        server.receive(sent)
    return server, clients


def test_a_table_is_handed_on_once_and_between_rounds_only(
    plan_of: Callable[..., Plan], identities: dict[Party, Identity], short_key: PrivateKey
) -> None:
    server, clients = begun(plan_of(FIRST), identities, short_key)
    for number, client in clients.items():
        client.receive_table(server.table())
        server.receive(client.upload(drawn(number)))
    with pytest.raises(ProtocolError, match="awaits two updates"):
        TableServer(plan_of(SECOND), identities[SERVER], earlier=server)
    sums = server.sums()
    for number in updaters(FIRST, 1):
        server.receive(clients[number].receive_sums(sums))
    later = TableServer(plan_of(SECOND), identities[SERVER], earlier=server)
    assert later.round == 2
    with pytest.raises(ProtocolError, match="another cohort has the table"):
        server.table()
    with pytest.raises(ProtocolError, match="another cohort has the table"):
        server.receive(b"")
    with pytest.raises(ProtocolError, match="another cohort has the table"):
        TableServer(plan_of(FIRST), identities[SERVER], earlier=server)


def test_a_table_is_not_handed_to_another_key_roster_or_layout(
    plan_of: Callable[..., Plan],
    identities: dict[Party, Identity],
    short_key: PrivateKey,
    other_key: PrivateKey,
) -> None:
    server, _ = begun(plan_of(FIRST), identities, short_key)
    fewer = {party: identity.public for party, identity in list(identities.items())[:-1]}
    longer = SlotLayout(codec=VALUES, length=ROWS * WIDTH + 1, budget=1)
    for change in (
        {"key": other_key.public},
        {"roster": Roster.of(OPERATOR, fewer)},
        {"table": longer},
    ):
        with pytest.raises(ConfigError, match="another key, roster or layout"):
            TableServer(plan_of(SECOND, **change), identities[SERVER], earlier=server)
    assert server.table()  # a refusal took nothing from it


def test_another_cohort_refuses_an_old_table(
    plan_of: Callable[..., Plan], identities: dict[Party, Identity], short_key: PrivateKey
) -> None:
    server, clients = begun(plan_of(FIRST), identities, short_key)
    old = server.table()
    for number, client in clients.items():
        client.receive_table(old)
        server.receive(client.upload(drawn(number)))
    sums = server.sums()
    for number in updaters(FIRST, 1):
        server.receive(clients[number].receive_sums(sums))
    plan = plan_of(SECOND)
    later = TableServer(plan, identities[SERVER], earlier=server)
    client = TableClient(
        plan,
        identities[Party(Role.CLIENT, 2)],
        short_key,
        Encryptor(plan.key),
        STEP,
        round_=later.round,
    )
    with pytest.raises(ProtocolError, match="another agreement"):
        client.receive_table(old)
    # The server seals the old table anew, for this cohort and round: the digest tells.
    body = old[ENVELOPE_BYTES - SIGNATURE_BYTES : -SIGNATURE_BYTES]
    sealed = seal(identities[SERVER], Kind.TABLE, round_=2, context=plan.context, body=body)
    with pytest.raises(ProtocolError, match="differs from its digest"):
        client.receive_table(sealed)


def test_what_all_clients_are_sent_is_decrypted_once(
    short_key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[int] = []
    right = Decryptor.decrypt

    def counted(self: Decryptor, ciphertexts: Sequence[int]) -> list[int]:
        worked.append(len(ciphertexts))
        return right(self, ciphertexts)

    monkeypatch.setattr(Decryptor, "decrypt", counted)
    federation = TableFederation(range(8), private=short_key, layouts=LAYOUTS, table=TABLE)
    federation.begin(VALUES.from_integers(np.arange(ROWS * WIDTH)), FIRST)
    for _ in range(2):
        federation.step({client: partial(given, client) for client in FIRST}, STEP)
    # Per round the table, the sums of the gradients and those of the counts; those by two clients,
    # one after the other.
    bits = short_key.public.bits
    table, *sums = (layout.plaintexts(bits) for layout in (TABLE, *LAYOUTS))
    assert worked == 2 * [table, *sums, *sums]


def test_a_decryptor_of_another_key_is_refused(
    plan_of: Callable[..., Plan],
    identities: dict[Party, Identity],
    short_key: PrivateKey,
    other_key: PrivateKey,
) -> None:
    plan = plan_of(FIRST)
    with pytest.raises(ConfigError, match="is not the key of the plan"):
        TableClient(
            plan,
            identities[Party(Role.CLIENT, FIRST[0])],
            short_key,
            Encryptor(plan.key),
            STEP,
            decryptor=Decryptor(other_key),
        )
