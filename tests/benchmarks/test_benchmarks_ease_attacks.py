"""The attack table of EASE on the small federation, and what its record says."""

import csv
import io
import sys

import pytest

from docs import ease_attacks as table


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], table.Row]:
    found = table.measured(table._SMALL, int(table._SMALL["clients"]))
    return {(row.stack, row.adversary): row for row in found}


def test_nothing_that_is_certain_is_false(rows: dict[tuple[str, str], table.Row]) -> None:
    assert {row.wrong for row in rows.values()} == {"0", ""}
    assert rows["plain", "server"].exposed == "80"


def test_a_floor_changes_nothing_for_the_server(rows: dict[tuple[str, str], table.Row]) -> None:
    for floor in (2, 5):
        of_floor = rows[f"masking, pair_floor {floor}", "server"]
        assert of_floor.exposed == rows["masking", "server"].exposed
        assert of_floor.membership_auc == rows["masking", "server"].membership_auc
        client = rows[f"masking, pair_floor {floor}", "client"]
        assert int(client.exposed) < int(of_floor.exposed)
        assert client.absence_proven == "0"


def test_the_regression_tells_a_client_what_the_sums_do(
    rows: dict[tuple[str, str], table.Row],
) -> None:
    assert rows["masking, solved at the server", "client"][3:] == rows["masking", "client"][3:]


def test_nobody_beats_the_one_who_knows_all_other_rows(
    rows: dict[tuple[str, str], table.Row],
) -> None:
    noised = [row for row in rows.values() if row.informed_auc]
    assert len(noised) == 2 * len(table._EPSILONS)
    assert all(float(row.membership_low) <= float(row.informed_auc) for row in noised)


def test_it_is_written_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ease_attacks", "--quick"])
    monkeypatch.setattr(sys, "stdout", written := io.StringIO())
    table.main()
    told = list(csv.DictReader(io.StringIO(written.getvalue())))
    assert len(told) == 2 * len(table.stacks(80))
