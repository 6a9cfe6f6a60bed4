"""A server that signs a false count, to be sent a row that one client alone has."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint, pack
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    Kind,
    MaskingConfig,
    Purpose,
    SitePolicy,
    TailFloor,
    run_round,
)
from secure_fedrec.protection.masking.envelope import SERVER, Envelope, seal
from secure_fedrec.protection.masking.messages.sum_messages import Result
from secure_fedrec.uploads import RowBlock
from tests.statements import about

N, ROWS, VICTIM, ALONE = 6, 4, 2, 3
CODEC = FixedPoint(bits=32, fraction_bits=8, clip=8.0)
COUNTED = replace(about(b"s" * 32), purpose=Purpose.COUNTS)
FLOOR = TailFloor(floor=3)


def rows_of(number: int) -> RowBlock:
    """Everybody has rows 0 to 2, the victim alone row 3."""
    own = [0, 1, 2] + [ALONE] * (number == VICTIM)
    values = np.array([[1.0 + number, row] for row in own])
    return RowBlock(
        indptr=np.array([0, len(own)]), rows=np.array(own, dtype=np.int32), values=values
    )


def lying_about(counts: Any, federation: Federation, result: bytes) -> Any:
    """RESULT for other counts than those that were summed, signed by the server."""
    envelope = Envelope.decode(result)
    words = CODEC.from_integers(counts)
    packed = bytes(pack(words, 32))
    told = Result.decode(envelope.head, envelope.payload)
    lie = Result(
        digest=sha256(packed).digest(), root=told.root, leaves=told.leaves, index=told.index,
        path=told.path,
    )  # fmt: skip
    message = seal(
        federation.server.key, envelope.context, Kind.RESULT, SERVER, lie.head(), lie.payload()
    )
    return message, packed


def row_of_the_victim(adversary: Any) -> Any:
    """Count, lie, and ask for the rows that the lie brings to the floor."""
    policy = SitePolicy(corrupt=0.0, dropout=0.0, adversary=adversary)
    federation = Federation(range(N), policy=policy)
    marks = FLOOR.presence_layout(ROWS, clients=N)
    first = MaskingConfig.for_cohort(
        N, bits=32, length=ROWS, layout_hash=marks.hash, corrupt=0.0, dropout=0.0,
        adversary=adversary, statement=COUNTED.digest,
    )  # fmt: skip
    server = federation.open_server(first, np.arange(N))
    expected = Expected(layout_hash=marks.hash, statement=COUNTED)
    clients = {number: federation.open_client(number, expected) for number in range(N)}
    for number, client in clients.items():
        client.load(FLOOR.presence(marks, rows_of(number)))
    outgoing = server.start()
    while outgoing[0].data[1] != Kind.RESULT:
        for number, data in outgoing:
            for reply in clients[number].receive(data):
                server.receive(reply)
        outgoing = server.close_step()
    counts = marks.decode(server.result)
    assert counts.tolist() == [N, N, N, 1]
    false = np.full(ROWS, N)
    for number, data in outgoing:
        message, packed = lying_about(false, federation, data)
        clients[number].receive(message)
    own = {
        number: FLOOR.second_round_of(
            client, packed, first=marks, statement=COUNTED, codec=CODEC, width=2
        )
        for number, client in clients.items()
    }
    second = FLOOR.second_round(
        false, np.arange(N), first=first, statement=COUNTED, codec=CODEC, width=2
    )
    outcome = run_round(
        federation.open_server(FLOOR.config(second, first), np.arange(N)),
        {
            number: federation.open_client(number, each.expected(corrupt_clients=0))
            for number, each in own.items()
        },
        {number: each.encode(rows_of(number)) for number, each in own.items()},
    )
    aggregate = second.layout.decode(outcome.words)
    return aggregate.values[second.layout.rows.tolist().index(ALONE)]


@pytest.mark.claim("masking-tail-floor")
def test_a_false_count_brings_no_row_below_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="signs a false count"):
        row_of_the_victim("active")
    # Weakened copy: a floor is taken for a protection against any server.
    monkeypatch.setattr(TailFloor, "require_curious", lambda *_, **__: None)
    assert row_of_the_victim("active").tolist() == [1.0 + VICTIM, ALONE]


def test_a_site_that_reckons_with_an_active_server_counts_for_no_floor() -> None:
    """Whatever the server calls the second round, such a site takes part in none of them."""
    federation = Federation(range(N), policy=SitePolicy(corrupt=0.0, dropout=0.0))
    curious = MaskingConfig.for_cohort(
        N, bits=32, length=ROWS, layout_hash=bytes(32), corrupt=0.0, dropout=0.0,
        adversary="curious", statement=COUNTED.digest,
    )  # fmt: skip
    second = FLOOR.second_round(
        np.full(ROWS, N), np.arange(N), first=curious, statement=COUNTED, codec=CODEC, width=2
    )
    server = federation.open_server(FLOOR.config(second, curious), np.arange(N))
    client = federation.open_client(VICTIM, second.expected(corrupt_clients=0))
    with pytest.raises(ProtocolError, match="only against an active server"):
        client.receive(server.start()[VICTIM].data)
