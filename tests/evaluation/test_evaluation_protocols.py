"""What the two protocols hold out, of which the published one tells the clients."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.data.filters import filtered
from secure_fedrec.data.ratings import RatingScale, RatingTable
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.evaluation.protocols import PROTOCOLS, RankingCase, ranking_case


def table_of(
    rows: list[tuple[int, int]], *, times: list[int] | None = None, items: int | None = None
) -> RatingTable:
    """A table of (client, item) rows in the order of a file."""
    clients, things = (np.array(column) for column in zip(*rows, strict=True))
    n_clients, n_items = int(clients.max()) + 1, items or int(things.max()) + 1
    return RatingTable.from_columns(
        name="made",
        n_clients=n_clients,
        n_items=n_items,
        clients=clients,
        items=things,
        ratings=np.ones(len(rows)),
        scale=RatingScale(0.0, 1.0, 1.0),
        client_labels=np.arange(n_clients),
        item_labels=np.arange(n_items),
        timestamps=None if times is None else np.array(times),
    )


@st.composite
def tables(draw: st.DrawFn) -> RatingTable:
    items = draw(st.integers(2, 30))
    owned = st.lists(st.integers(0, items - 1), unique=True, min_size=2, max_size=min(items, 9))
    rows = [
        (c, i) for c, own in enumerate(draw(st.lists(owned, min_size=1, max_size=6))) for i in own
    ]
    rows = draw(st.permutations(rows))
    times = draw(st.none() | st.just([draw(st.integers(0, 3)) for _ in rows]))
    return table_of(rows, times=times, items=items)


@given(tables(), st.sampled_from(PROTOCOLS), st.integers(0, 5), st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_parts_of_a_case_are_disjoint(
    table: RatingTable, protocol: str, seed: int, negatives: int
) -> None:
    case = ranking_case(table, protocol=protocol, seed=seed, negatives=negatives)
    for client in range(table.n_clients):
        own = set(table.items[table.clients == client].tolist())
        train = set(case.rated.of(client).tolist())
        held = [item for item in (case.validation[client], case.test[client]) if item >= 0]
        assert len(held) == min(2, len(own) - 1)
        assert train | set(held) == own
        assert len(train) + len(held) == len(own)
        drawn = [row[client] for row in (case.validation_negatives, case.test_negatives)]
        both = [item for row in drawn for item in row.tolist() if item >= 0]
        assert len(set(both)) == len(both) == min(2 * negatives, table.n_items - len(own))
        assert not set(both) & own
        for row in drawn:
            assert row.shape == (negatives,)
            assert not np.any(np.diff(row >= 0) & (row[1:] >= 0))  # -1 only at the end
        kept = set(case.kept_out.of(client).tolist())
        assert kept == (set(held) if protocol == "published" else set())


def held(case: RankingCase) -> list[tuple[int, int]]:
    return list(zip(case.validation.tolist(), case.test.tolist(), strict=True))


def test_of_a_second_the_first_in_the_file_is_the_latest() -> None:
    rows = [(0, 4), (0, 2), (0, 7), (0, 1), (0, 3)]
    for protocol in PROTOCOLS:
        case = ranking_case(table_of(rows, times=[5, 9, 9, 9, 1]), protocol=protocol, seed=0)
        assert held(case) == [(7, 2)]


def test_without_times_the_published_protocol_takes_what_appears_last() -> None:
    """Item 1 is client 1's oldest, but nobody had it before; 0 and 2 are known from client 0."""
    rows = [(0, 2), (0, 5), (0, 0), (1, 1), (1, 2), (1, 0)]
    case = ranking_case(table_of(rows), protocol="published", seed=0)
    assert held(case) == [(5, 0), (0, 1)]
    assert case.cold.tolist() == [True, True]
    drawn = {held(ranking_case(table_of(rows), seed=seed))[1] for seed in range(40)}
    assert drawn == {(a, b) for a in (0, 1, 2) for b in (0, 1, 2) if a != b}  # clean: any of them


def test_a_known_latest_item_is_the_test_item_and_validation_is_random() -> None:
    rows = [(0, item) for item in range(6)]
    latest = np.array([2])
    for protocol in PROTOCOLS:
        seen = set()
        for seed in range(60):
            case = ranking_case(table_of(rows), protocol=protocol, seed=seed, latest=latest)
            assert case.test.tolist() == [2]
            seen.add(int(case.validation[0]))
        assert seen == {0, 1, 3, 4, 5}
    with pytest.raises(DataError, match="client 0 did not rate its latest item 9"):
        ranking_case(table_of(rows), seed=0, latest=np.array([9]))


def test_a_client_with_two_interactions_has_no_validation_item_and_is_counted() -> None:
    case = ranking_case(table_of([(0, 1), (0, 2), (1, 0), (1, 1), (1, 3)]), seed=0)
    assert case.without_validation == 1
    assert case.validation[0] == -1 < case.test[0]
    assert len(case.train) == 2


def test_a_client_with_one_interaction_is_refused_by_name() -> None:
    rows = [(0, 1), (0, 2), (1, 0)]
    with pytest.raises(DataError, match=r"client 1 has 1 interaction.*data.min_ratings"):
        ranking_case(table_of(rows), seed=0)


def test_bad_settings_are_refused() -> None:
    table = table_of([(0, 1), (0, 2)])
    with pytest.raises(ConfigError, match="protocol"):
        ranking_case(table, protocol="leaky", seed=0)
    with pytest.raises(ConfigError, match="negatives"):
        ranking_case(table, seed=0, negatives=0)
    with pytest.raises(ConfigError, match="seed"):
        ranking_case(table, seed=-1)


def test_parts_of_a_table_keep_the_order_of_its_source() -> None:
    table = table_of([(1, 3), (0, 1), (0, 0), (1, 0), (2, 2)])
    assert table.places is not None
    assert table.places.tolist() == [2, 1, 3, 0, 4]
    part = filtered(table, min_ratings=2).table
    assert part.places is not None
    assert part.places.tolist() == [2, 1, 3, 0]
    assert part.subset(part.items > 0).places.tolist() == [1, 0]  # type: ignore[union-attr]
    assert table.fingerprint() == replace(table, places=None).fingerprint()
    with pytest.raises(DataError, match="places"):
        replace(table, places=np.arange(2, dtype=np.int32))
