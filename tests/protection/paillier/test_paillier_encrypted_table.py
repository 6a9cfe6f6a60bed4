"""Rounds on an encrypted table: the plain integer table, and disagreement ends the federation."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from secure_fedrec.core.arrays import IntArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    AverageStep,
    Encryptor,
    Identity,
    Party,
    Plan,
    PrivateKey,
    Role,
    TableClient,
    TableServer,
    encrypt_vector,
    updaters,
)
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES
from tests.paillier_federation import seal

VALUES = FixedPoint(bits=32, fraction_bits=8, clip=1000.0)
COUNTS = FixedPoint(bits=16, fraction_bits=0, clip=1.0)
ROWS, WIDTH = 6, 2
CLIENTS = (0, 1, 3, 4)
STEP = AverageStep(codec=VALUES, counts=COUNTS, width=WIDTH)
SERVER = Party(Role.SERVER)
HEAD = ENVELOPE_BYTES - 64

Start = Callable[..., tuple[TableServer, dict[int, TableClient]]]


def begin(server: TableServer, clients: dict[int, TableClient], table: RingArray) -> None:
    made = [client.initialise(table) for client in clients.values()]
    sent = [message for message in made if message is not None]
    assert len(sent) == 2
    for message in sent:
        server.receive(message)


def drawn(rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Gradients and counts of one client."""
    counts = rng.integers(0, 2, ROWS)
    gradients = rng.integers(-9999, 10000, (ROWS, WIDTH)) * counts[:, None]
    return gradients.reshape(-1), counts


def upload_all(
    server: TableServer, clients: dict[int, TableClient], rng: np.random.Generator
) -> tuple[IntArray, IntArray, list[RingArray]]:
    sent = server.table()
    total, raters = np.zeros(ROWS * WIDTH, dtype=np.int64), np.zeros(ROWS, dtype=np.int64)
    tables = []
    for client in clients.values():
        tables.append(client.receive_table(sent))
        gradients, counts = drawn(rng)
        total, raters = total + gradients, raters + counts
        words = [VALUES.from_integers(gradients), COUNTS.from_integers(counts)]
        server.receive(client.upload(words))
    return total, raters, tables


def plain_step(table: list[int], total: IntArray, raters: IntArray) -> list[int]:
    """The same step in exact rationals."""
    counts = np.repeat(raters, WIDTH).tolist()
    return [
        value - (round(Fraction(sum_, count)) if count else 0)
        for value, sum_, count in zip(table, total.tolist(), counts, strict=True)
    ]


def test_the_encrypted_table_follows_the_plain_one_bit_for_bit(
    table_plan: Plan, start_table: Start
) -> None:
    server, clients = start_table()
    rng = np.random.default_rng(3)
    plain = rng.integers(-5000, 5000, ROWS * WIDTH).tolist()
    begin(server, clients, VALUES.from_integers(np.array(plain)))
    worked = set(updaters(table_plan.clients, 0))
    for round_ in range(1, 6):
        assert server.round == round_
        total, raters, tables = upload_all(server, clients, rng)
        for table in tables:
            assert VALUES.to_integers(table).tolist() == plain
        sums = server.sums()
        for number in updaters(table_plan.clients, round_):
            server.receive(clients[number].receive_sums(sums))
        worked |= set(updaters(table_plan.clients, round_))
        plain = plain_step(plain, total, raters)
    assert worked == set(CLIENTS)


@pytest.mark.parametrize("round_", range(9))
def test_two_different_clients_update(table_plan: Plan, round_: int) -> None:
    first, second = updaters(table_plan.clients, round_)
    assert first != second
    assert {first, second} <= set(CLIENTS)


def one_unit_off(table: RingArray, sums: tuple[RingArray, ...]) -> RingArray:
    moved: RingArray = STEP(table, sums)
    moved[-1] += np.uint32(1)
    return moved


@pytest.mark.claim("hosts-paillier-clients-key")
def test_an_updater_opens_one_sum(
    table_plan: Plan, start_table: Start, identities: dict[Party, Identity]
) -> None:
    """What it refuses says something of what is inside, so it answers no other one."""
    server, clients = start_table()
    begin(server, clients, VALUES.encode(np.zeros(ROWS * WIDTH)))
    upload_all(server, clients, np.random.default_rng(1))
    sums = server.sums()
    client = clients[updaters(table_plan.clients, 1)[0]]
    with pytest.raises((ProtocolError, WireError)):
        client.receive_sums(sums[:-1])  # not the server's words
    wrong = seal(
        identities[SERVER],
        Kind.SUMS,
        round_=1,
        context=table_plan.context,
        body=sums[HEAD:-65],
    )
    with pytest.raises((ProtocolError, WireError)):
        client.receive_sums(wrong)
    with pytest.raises(ProtocolError, match="its next step is nothing: it aborted"):
        client.receive_sums(sums)


@pytest.mark.claim("hosts-paillier-clients-key")
def test_a_half_for_one_round_is_over_after_it(table_plan: Plan, start_table: Start) -> None:
    server, clients = start_table(alone=True)
    begin(server, clients, VALUES.encode(np.zeros(ROWS * WIDTH)))
    upload_all(server, clients, np.random.default_rng(1))
    for number in updaters(table_plan.clients, 1):
        server.receive(clients[number].receive_sums(server.sums()))
    for client in clients.values():
        with pytest.raises(ProtocolError, match="its next step is nothing: its round is over"):
            client.receive_table(server.table())


@pytest.mark.claim("paillier-clients-key-disagreement")
def test_updaters_that_disagree_end_the_federation(table_plan: Plan, start_table: Start) -> None:
    liar = updaters(table_plan.clients, 1)[1]
    server, clients = start_table({liar: one_unit_off})
    begin(server, clients, VALUES.encode(np.zeros(ROWS * WIDTH)))
    upload_all(server, clients, np.random.default_rng(1))
    sums = server.sums()
    first, second = (
        clients[number].receive_sums(sums) for number in updaters(table_plan.clients, 1)
    )
    server.receive(first)
    with pytest.raises(ProtocolError, match="computed different tables"):
        server.receive(second)
    for message in (first, second):
        with pytest.raises(ProtocolError, match="disagreed"):
            server.receive(message)
    for step in (server.table, server.sums):
        with pytest.raises(ProtocolError):
            step()


def test_first_tables_that_disagree_end_the_federation(
    table_plan: Plan, start_table: Start
) -> None:
    server, clients = start_table()
    first, second = updaters(table_plan.clients, 0)
    zeros = np.zeros(ROWS * WIDTH)
    sent = clients[first].initialise(VALUES.encode(zeros))
    other = clients[second].initialise(VALUES.encode(zeros + 1))
    assert sent is not None
    assert other is not None
    server.receive(sent)
    with pytest.raises(ProtocolError, match="computed different tables"):
        server.receive(other)


def test_an_updater_whose_ciphertexts_belie_its_digest_is_found_by_every_client(
    table_plan: Plan, start_table: Start, identities: dict[Party, Identity]
) -> None:
    server, clients = start_table()
    table = VALUES.encode(np.zeros(ROWS * WIDTH))
    liar, honest = updaters(table_plan.clients, 0)
    sent = clients[liar].initialise(table)
    other = clients[honest].initialise(table)
    assert sent is not None
    assert other is not None
    assert table_plan.table is not None
    forged = encrypt_vector(
        VALUES.encode(np.ones(ROWS * WIDTH)), table_plan.table, Encryptor(table_plan.key)
    )
    body = sent[HEAD : HEAD + 32] + forged.to_bytes()
    server.receive(
        seal(
            identities[Party(Role.CLIENT, liar)],
            Kind.UPDATE,
            round_=0,
            context=table_plan.context,
            body=body,
        )
    )
    server.receive(other)  # the digests agree
    for client in clients.values():
        with pytest.raises(ProtocolError, match="differs from its digest"):
            client.receive_table(server.table())
        with pytest.raises(ProtocolError, match="it aborted"):
            client.receive_table(server.table())


def test_the_server_cannot_slip_in_a_table_of_its_own(
    table_plan: Plan, start_table: Start, identities: dict[Party, Identity]
) -> None:
    server, clients = start_table()
    begin(server, clients, VALUES.encode(np.zeros(ROWS * WIDTH)))
    assert table_plan.table is not None
    honest = server.table()
    # Anybody can encrypt; the digest is what needs the clients' key.
    own = encrypt_vector(
        VALUES.encode(np.ones(ROWS * WIDTH)), table_plan.table, Encryptor(table_plan.key)
    )
    for digest in (honest[HEAD : HEAD + 32], bytes(32)):
        sealed = seal(
            identities[SERVER],
            Kind.TABLE,
            round_=1,
            context=table_plan.context,
            body=digest + own.to_bytes(),
        )
        client = next(iter(start_table()[1].values()))
        with pytest.raises(ProtocolError, match="differs from its digest"):
            client.receive_table(sealed)


@pytest.mark.claim("paillier-clients-key-disagreement")
def test_an_old_table_is_not_taken_for_a_new_one(
    table_plan: Plan, start_table: Start, identities: dict[Party, Identity]
) -> None:
    server, clients = start_table()
    begin(server, clients, VALUES.encode(np.zeros(ROWS * WIDTH)))
    old = server.table()
    upload_all(server, clients, np.random.default_rng(1))
    sums = server.sums()
    for number in updaters(table_plan.clients, 1):
        server.receive(clients[number].receive_sums(sums))
    client = clients[CLIENTS[0]]
    with pytest.raises(ProtocolError, match="from round 1"):
        client.receive_table(old)
    # Signed anew by the server, for this round: the digest is bound to the round as well.
    again = seal(
        identities[SERVER], Kind.TABLE, round_=2, context=table_plan.context, body=old[HEAD:-64]
    )
    with pytest.raises(ProtocolError, match="differs from its digest"):
        client.receive_table(again)


def test_steps_out_of_turn_are_refused(table_plan: Plan, start_table: Start) -> None:
    server, clients = start_table()
    table = VALUES.encode(np.zeros(ROWS * WIDTH))
    words = [VALUES.encode(np.zeros(ROWS * WIDTH)), COUNTS.encode(np.zeros(ROWS))]
    with pytest.raises(ProtocolError):
        server.table()
    with pytest.raises(ProtocolError):
        server.sums()
    client = clients[updaters(table_plan.clients, 0)[0]]
    with pytest.raises(ProtocolError, match="refuses the step upload"):
        client.upload(words)
    begin(server, clients, table)
    with pytest.raises(ProtocolError, match="begun already"):
        client.initialise(table)
    with pytest.raises(ProtocolError, match="4 uploads are missing"):
        server.sums()
    sent = server.table()
    with pytest.raises(ProtocolError, match="awaits TABLE"):
        clients[4].receive_table(clients_upload(clients[0], sent, words))
    with pytest.raises(ProtocolError, match="awaits UPLOAD"):
        server.receive(sent)
    clients[1].receive_table(sent)
    with pytest.raises(ProtocolError, match="refuses the step receive_table"):
        clients[1].receive_table(sent)
    upload = clients[1].upload(words)
    server.receive(upload)
    with pytest.raises(ProtocolError, match="second upload"):
        server.receive(upload)
    bystander = next(iter(set(CLIENTS) - set(updaters(table_plan.clients, 1))))
    with pytest.raises(ProtocolError, match="refuses the step receive_sums"):
        clients[bystander].receive_sums(sent)


def clients_upload(client: TableClient, table: bytes, words: list[RingArray]) -> bytes:
    client.receive_table(table)
    return client.upload(words)


def test_updates_that_nobody_asked_for_are_refused(
    table_plan: Plan, start_table: Start, identities: dict[Party, Identity]
) -> None:
    server, clients = start_table()
    first, _ = updaters(table_plan.clients, 0)
    sent = clients[first].initialise(VALUES.encode(np.zeros(ROWS * WIDTH)))
    assert sent is not None
    server.receive(sent)
    with pytest.raises(ProtocolError, match="no update of client"):
        server.receive(sent)
    bystander = next(iter(set(CLIENTS) - set(updaters(table_plan.clients, 0))))
    stolen = seal(
        identities[Party(Role.CLIENT, bystander)],
        Kind.UPDATE,
        round_=0,
        context=table_plan.context,
        body=sent[HEAD:-64],
    )
    with pytest.raises(ProtocolError, match="no update of client"):
        server.receive(stolen)


def test_sums_over_fewer_clients_are_not_used(
    table_plan: Plan, start_table: Start, identities: dict[Party, Identity]
) -> None:
    server, clients = start_table()
    begin(server, clients, VALUES.encode(np.zeros(ROWS * WIDTH)))
    table = server.table()
    words = [VALUES.encode(np.zeros(ROWS * WIDTH)), COUNTS.encode(np.zeros(ROWS))]
    updater = clients[updaters(table_plan.clients, 1)[0]]
    sent = clients_upload(updater, table, words)
    alone = seal(
        identities[SERVER], Kind.SUMS, round_=1, context=table_plan.context, body=sent[HEAD:-64]
    )
    with pytest.raises(ProtocolError, match="not over the whole cohort"):
        updater.receive_sums(alone)


def test_short_and_foreign_bodies_are_refused(
    table_plan: Plan, start_table: Start, identities: dict[Party, Identity]
) -> None:
    server, clients = start_table()
    begin(server, clients, VALUES.encode(np.zeros(ROWS * WIDTH)))
    honest = server.table()[HEAD:-64]
    for body in (b"", honest[:31], honest[:-1], honest + b"\0", honest[:32] + honest[33:] + b"\0"):
        sealed = seal(
            identities[SERVER], Kind.TABLE, round_=1, context=table_plan.context, body=body
        )
        with pytest.raises(WireError):
            clients[0].receive_table(sealed)
    clients[0].receive_table(server.table())  # nothing of that changed its state


def test_plans_of_another_holding_are_refused(
    short_key: PrivateKey,
    authority_plan: Callable[..., Plan],
    identities: dict[Party, Identity],
) -> None:
    other = authority_plan(short_key.public)
    with pytest.raises(ConfigError, match="is not this protocol's"):
        TableServer(other, identities[SERVER])
