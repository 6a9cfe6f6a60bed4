"""Rows that few clients have: counted first, and never sent."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
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
from secure_fedrec.protection.session.statement import NO_STATEMENT
from secure_fedrec.uploads import RowBlock
from tests.statements import about

CODEC = FixedPoint(bits=32, fraction_bits=8, clip=8.0)
COUNTED = replace(about(b"s" * 32), purpose=Purpose.COUNTS)
"""What a first round agrees on."""


def test_a_second_round_sums_only_rows_at_the_floor_and_clients_derive_it_themselves() -> None:
    floor, n, rows = TailFloor(floor=2, slack=1), 6, 8
    held = {number: [0, 1, *([2] if number < 3 else []), 3 + number % 5] for number in range(n)}
    blocks = {
        number: RowBlock(
            indptr=np.array([0, len(own)]),
            rows=np.array(own, dtype=np.int32),
            values=np.full((len(own), 2), 1.0 + number),
        )
        for number, own in held.items()
    }
    federation = Federation(
        range(n), policy=SitePolicy(corrupt=0.0, dropout=0.25, adversary="curious")
    )
    first = floor.presence_layout(rows, clients=n)
    config = MaskingConfig.for_cohort(
        n,
        bits=32,
        length=rows,
        layout_hash=first.hash,
        statement=COUNTED.digest,
        corrupt=0.0,
        dropout=0.25,
        adversary="curious",
    )
    server = federation.open_server(config, np.arange(n))
    clients = {
        i: federation.open_client(i, Expected(layout_hash=first.hash, statement=COUNTED))
        for i in range(n)
    }
    marks = {number: floor.presence(first, block) for number, block in blocks.items()}
    run_round(server, clients, marks, drops={5: Kind.UPLOAD})
    second = floor.second_round(
        first.decode(server.result),
        server.survivors,
        first=config,
        statement=COUNTED,
        codec=CODEC,
        width=2,
    )
    counts = Counter(row for number in range(5) for row in held[number])
    assert second.layout.rows.tolist() == [row for row in range(rows) if counts[row] >= 3]
    assert second.min_survivors == 4
    halves = {}
    for number in range(5):
        own = floor.second_round_of(
            clients[number],
            server.packed_result,
            first=first,
            statement=COUNTED,
            codec=CODEC,
            width=2,
        )
        assert own.layout.hash == second.layout.hash
        halves[number] = federation.open_client(number, own.expected(corrupt_clients=0))
    again = floor.config(second, config)
    outcome = run_round(
        federation.open_server(again, second.cohort),
        halves,
        {number: second.encode(blocks[number]) for number in range(5)},
        drops={4: Kind.UPLOAD},
    )
    aggregate = second.layout.decode(outcome.words)
    assert aggregate.counts.min() >= floor.floor
    for place, row in enumerate(second.layout.rows.tolist()):
        holders = [1.0 + number for number in range(4) if row in held[number]]
        assert aggregate.values[place].tolist() == [sum(holders)] * 2


def test_a_second_round_after_a_sparse_first_one_withstands_as_many() -> None:
    """A sparse graph's threshold is below the corrupt clients that the complete one must stand."""
    first = MaskingConfig.for_cohort(
        200, bits=32, length=10, layout_hash=bytes(32), corrupt=0.3, dropout=0.02,
        adversary="curious",
    )  # fmt: skip
    assert first.degree is not None
    assert first.threshold <= first.corrupt_clients == 60
    floor = TailFloor(floor=62, slack=5)
    second = floor.second_round(
        np.full(10, 190), np.arange(197), first=first, statement=None, codec=CODEC, width=2
    )
    config = floor.config(second, first)
    assert config.degree is None
    assert config.threshold == 61
    assert config.corrupt_clients == 60
    site = SitePolicy(corrupt=0.3, dropout=0.02, adversary="curious")
    roster = Federation(range(200), policy=site).roster
    site.for_round(second.expected(corrupt_clients=60), config, roster).require(config, roster)


def test_a_second_round_takes_a_threshold_as_it_is_or_refuses_it() -> None:
    first = MaskingConfig.for_cohort(
        10, bits=32, length=1, layout_hash=bytes(32), adversary="curious"
    )
    second = TailFloor(floor=2, slack=1).second_round(
        np.array([9]), np.arange(9), first=first, statement=None, codec=CODEC, width=1
    )
    assert TailFloor.config(second, first, threshold=7).threshold == 7
    assert TailFloor.config(second, first).threshold <= 7
    # One corrupt client; 8 survivors, each of which would need 8 others.
    for wrong, key in ((1, "masking.threshold"), (8, "masking.min_survivors")):
        with pytest.raises(ConfigError, match=key):
            TailFloor.config(second, first, threshold=wrong)


@pytest.mark.claim("masking-tail-floor")
@pytest.mark.parametrize("change", ["lower_floor", "other_counts", "fewer_survivors"])
def test_a_client_refuses_a_second_round_that_its_counts_do_not_give(change: str) -> None:
    floor, n = TailFloor(floor=3), 5
    counts, cohort = np.array([5, 4, 3, 1]), np.arange(n)
    first = MaskingConfig(
        clients=n,
        bits=32,
        length=4,
        layout_hash=bytes(32),
        threshold=2,
        min_survivors=3,
        quorum=3,
        corrupt_clients=0,
        adversary="curious",
    )
    honest = floor.second_round(
        counts, cohort, first=first, statement=COUNTED, codec=CODEC, width=1
    )
    server_side = honest
    if change == "lower_floor":  # adds rows below the floor
        server_side = TailFloor(floor=2).second_round(
            np.array([5, 4, 3, 2]), cohort, first=first, statement=COUNTED, codec=CODEC, width=1
        )
    if change == "other_counts":
        server_side = floor.second_round(
            np.array([5, 5, 3, 1]), cohort, first=first, statement=COUNTED, codec=CODEC, width=1
        )
    config = floor.config(server_side, first)
    if change == "fewer_survivors":
        config = floor.config(
            TailFloor(floor=2, slack=1).second_round(
                counts, cohort, first=first, statement=COUNTED, codec=CODEC, width=1
            ),
            first,
        )
    federation = Federation(
        range(n), policy=SitePolicy(corrupt=0.0, dropout=0.4, adversary="curious")
    )
    client = federation.open_client(0, honest.expected(corrupt_clients=0))
    setup = federation.open_server(config, cohort).start()[0].data
    with pytest.raises(ProtocolError, match=r"SETUP: (another|fewer)"):
        client.receive(setup)


def test_counts_below_the_floor_everywhere_leave_nothing_to_sum() -> None:
    first = MaskingConfig.for_cohort(
        3, bits=32, length=2, layout_hash=bytes(32), corrupt=0.0, dropout=0.0, adversary="curious"
    )
    for counts in ([1, 1], [7, 1], [-1, 3]):
        with pytest.raises(ProtocolError):
            TailFloor(floor=2, slack=1).second_round(
                np.array(counts), np.arange(3), first=first, statement=None, codec=CODEC, width=1
            )


@pytest.mark.claim("masking-tail-floor")
def test_a_floor_against_an_active_server_is_refused_at_every_door() -> None:
    curious, active = (
        MaskingConfig.for_cohort(
            10,
            bits=32,
            length=1,
            layout_hash=bytes(32),
            adversary=adversary,
            statement=COUNTED.digest,
        )
        for adversary in ("curious", "active")
    )
    floor, counts = TailFloor(floor=2), np.array([9])
    second = floor.second_round(
        counts, np.arange(9), first=curious, statement=COUNTED, codec=CODEC, width=1
    )
    for door in (
        lambda: floor.second_round(
            counts, np.arange(9), first=active, statement=COUNTED, codec=CODEC, width=1
        ),
        lambda: floor.config(second, active),
        lambda: TailFloor.require_curious("active"),
    ):
        with pytest.raises(ConfigError, match="false count") as refused:
            door()
        assert refused.value.key == "tail_floor.adversary"
        assert refused.value.choices == ("curious",)


def test_two_rounds_with_the_same_counts_are_of_two_statements() -> None:
    """Else the second of them would be taken for a repeat."""
    first, later = COUNTED, replace(COUNTED, state=b"2" * 32)
    stated = [
        TailFloor(floor=2).second_round(
            np.array([9]), np.arange(9), first=curious(), statement=each, codec=CODEC, width=1
        )
        for each in (first, later)
    ]
    found = [each.statement for each in stated]
    assert None not in found
    assert len({each.digest for each in found if each}) == 2
    assert len({each.once for each in found if each}) == 2
    # The rows are another sum than the counts of one state, and one that is revealed once.
    assert found[0] is not None
    assert found[0].purpose is Purpose.UPDATE
    assert found[0].once == replace(COUNTED, purpose=Purpose.UPDATE).once != COUNTED.once
    for each in stated:
        assert each.expected(corrupt_clients=0).statement is each.statement
        assert each.statement is not None
        assert TailFloor.config(each, curious()).statement == each.statement.digest


def test_where_nothing_is_stated_of_the_counts_nothing_is_of_the_rows() -> None:
    second = TailFloor(floor=2).second_round(
        np.array([9]), np.arange(9), first=curious(), statement=None, codec=CODEC, width=1
    )
    assert second.statement is None
    assert TailFloor.config(second, curious()).statement == NO_STATEMENT


def test_a_row_needs_the_floor_and_the_slack() -> None:
    """A row of ``floor`` clients, one of which drops out, would be a sum below the floor."""
    counts = np.array([0, 2, 3, 4, 5])
    assert TailFloor(floor=3, slack=1).rows(counts).tolist() == [3, 4]
    assert TailFloor(floor=3).rows(counts).tolist() == [2, 3, 4]


def test_settings_of_a_floor_are_refused_by_name() -> None:
    for floor, slack, key in ((1, 0, "tail_floor.floor"), (2, -1, "tail_floor.slack")):
        with pytest.raises(ConfigError) as refused:
            TailFloor(floor=floor, slack=slack)
        assert refused.value.key == key


def curious(clients: int = 10) -> MaskingConfig:
    return MaskingConfig.for_cohort(
        clients, bits=32, length=3, layout_hash=bytes(32), corrupt=0.0, dropout=0.3,
        adversary="curious",
    )  # fmt: skip


@pytest.mark.parametrize("count", [-1, 11])
def test_a_count_that_no_cohort_gives_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError, match="a count of clients is not between 0 and 10"):
        TailFloor(floor=2).second_round(
            np.array([9, 9, count]),
            np.arange(10),
            first=curious(),
            statement=None,
            codec=CODEC,
            width=1,
        )


def test_no_more_clients_than_the_slack_may_drop_out_of_the_second_round() -> None:
    for slack, least in ((0, 10), (3, 7)):
        second = TailFloor(floor=2, slack=slack).second_round(
            np.array([9, 9, 0]),
            np.arange(10),
            first=curious(),
            statement=None,
            codec=CODEC,
            width=1,
        )
        assert second.min_survivors == second.expected(corrupt_clients=0).min_survivors == least
        assert TailFloor.config(second, curious()).min_survivors == least


def test_other_counts_or_another_cohort_or_first_round_make_another_statement() -> None:
    told = replace(COUNTED, instructions=b"i" * 32)
    found = [
        TailFloor(floor=2)
        .second_round(
            np.array(counts), cohort, first=curious(), statement=first, codec=CODEC, width=1
        )
        .statement
        for first in (COUNTED, told, replace(COUNTED, round=2))
        for counts in ([9, 8, 0], [8, 9, 0], [9, 9, 1])
        for cohort in (np.arange(10), np.arange(1, 11))
    ]
    assert len({each.digest for each in found if each}) == len(found) == 18
    assert len({each.once for each in found if each}) == 1  # rows of one state: one answer


def test_marks_beyond_the_table_are_refused() -> None:
    layout = TailFloor.presence_layout(4, clients=3)
    for row in (-1, 4):
        block = RowBlock(
            indptr=np.array([0, 1]), rows=np.array([row], dtype=np.int32), values=np.zeros((1, 2))
        )
        with pytest.raises(EncodingError, match="rows must be between 0 and 3"):
            TailFloor.presence(layout, block)


def test_the_second_round_takes_one_clients_rows() -> None:
    second = TailFloor(floor=2).second_round(
        np.array([9, 9, 0]), np.arange(10), first=curious(), statement=None, codec=CODEC, width=2
    )
    for indptr, values in (
        ([0, 1, 2], np.zeros((2, 2))),
        ([0, 1, 3], np.zeros((3, 2))),  # row 2 is below the floor
        ([0, 2], None),
    ):
        rows = np.arange(indptr[-1], dtype=np.int32)
        with pytest.raises(EncodingError, match="the rows of one client"):
            second.encode(RowBlock(indptr=np.array(indptr), rows=rows, values=values))
