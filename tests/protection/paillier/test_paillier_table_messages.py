"""Messages of the encrypted table: every wrong one in every state, and damaged ones."""

import contextlib
import random
from collections.abc import Callable

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    Identity,
    Party,
    Plan,
    TableClient,
    TableServer,
    updaters,
)
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES
from tests.paillier_federation import seal

VALUES = FixedPoint(bits=32, fraction_bits=8, clip=1000.0)
COUNTS = FixedPoint(bits=16, fraction_bits=0, clip=1.0)
ROWS, WIDTH = 6, 2
CLIENTS = (0, 1, 3, 4)
HEAD = ENVELOPE_BYTES - 64

Start = Callable[..., tuple[TableServer, dict[int, TableClient]]]


def begin(server: TableServer, clients: dict[int, TableClient]) -> None:
    for client in clients.values():
        sent = client.initialise(VALUES.encode(np.zeros(ROWS * WIDTH)))
        if sent is not None:
            server.receive(sent)


def recorded(start_table: Start, table_plan: Plan) -> list[tuple[Kind, bytes]]:
    """Every message of a whole round, made by halves of the same parties."""
    server, clients = start_table()
    zeros = VALUES.encode(np.zeros(ROWS * WIDTH))
    words = [zeros, COUNTS.encode(np.zeros(ROWS))]
    made: list[tuple[Kind, bytes]] = []
    for client in clients.values():
        first = client.initialise(zeros)
        if first is not None:
            made.append((Kind.UPDATE, first))
            server.receive(first)
    made.append((Kind.TABLE, server.table()))
    for client in clients.values():
        client.receive_table(made[2][1])
        made.append((Kind.UPLOAD, client.upload(words)))
        server.receive(made[-1][1])
    made.append((Kind.SUMS, server.sums()))
    made += [
        (Kind.UPDATE, clients[number].receive_sums(made[-1][1]))
        for number in updaters(table_plan.clients, 1)
    ]
    return made


def test_every_wrong_message_in_every_state_is_refused(
    table_plan: Plan, start_table: Start
) -> None:
    every = recorded(start_table, table_plan)
    server, clients = start_table()

    def refuse(take: Callable[[bytes], object], accepted: Kind, first: int = 0) -> None:
        """Try all that is not awaited; ``first`` is where messages of this round begin."""
        for place, (kind, data) in enumerate(every):
            if kind is not accepted or place < first:
                with pytest.raises(ProtocolError):
                    take(data)

    refuse(server.receive, Kind.UPDATE)
    begin(server, clients)
    refuse(server.receive, Kind.UPLOAD)
    for number, client in clients.items():
        refuse(client.receive_table, Kind.TABLE)
        refuse(client.receive_sums, Kind.MASK_KEY)
        words = [VALUES.encode(np.zeros(ROWS * WIDTH)), COUNTS.encode(np.zeros(ROWS))]
        client.receive_table(server.table())
        refuse(client.receive_table, Kind.MASK_KEY)
        refuse(client.receive_sums, Kind.MASK_KEY)
        sent = client.upload(words)
        if number in updaters(table_plan.clients, 1):
            refuse(client.receive_sums, Kind.SUMS)
        server.receive(sent)
    refuse(server.receive, Kind.UPDATE, first=3)
    for number in updaters(table_plan.clients, 1):
        server.receive(clients[number].receive_sums(server.sums()))
    assert server.round == 2


def test_fuzzed_messages_meet_one_error(
    table_plan: Plan, start_table: Start, identities: dict[Party, Identity]
) -> None:
    every = recorded(start_table, table_plan)
    source = random.Random(8)
    server, clients = start_table()
    begin(server, clients)
    client = start_table()[1][CLIENTS[0]]
    for _ in range(600):
        kind, data = source.choice(every)
        body = bytearray(data[HEAD:-64])
        for _ in range(source.randint(1, 3)):
            body[source.randrange(len(body))] ^= 1 << source.randrange(8)
        body = body[: source.choice([len(body), source.randrange(len(body))])]
        signed = bytearray(
            seal(
                source.choice(list(identities.values())),
                source.choice([kind, kind, *Kind]),
                round_=source.choice([1, 1, 1, 0, 2]),
                context=table_plan.context,
                body=bytes(body),
            )
        )
        if source.random() < 0.3:
            signed[source.randrange(len(signed))] ^= 1 << source.randrange(8)
        with pytest.raises((ProtocolError, WireError)) as refusal:
            client.receive_table(bytes(signed))
        if "digest" in str(refusal.value):  # a damaged table ends a client
            client = start_table()[1][CLIENTS[0]]
        with contextlib.suppress(ProtocolError, WireError):
            server.receive(bytes(signed))  # accepts ciphertexts that their client damaged
    assert server.round == 1
