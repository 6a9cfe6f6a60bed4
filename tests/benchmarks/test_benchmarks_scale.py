"""The page on scale says what was measured, and the benchmark measures rounds that are right."""

import dataclasses
import json
from typing import Any

import pytest

from benchmarks import scale
from docs import scale_picture
from secure_fedrec.planning.calibration import Calibration
from secure_fedrec.planning.costs import Plan

PAGE = scale_picture.HERE / "protection" / "scale.md"


@pytest.fixture(scope="module")
def found() -> Any:
    return json.loads(scale_picture.RESULTS.read_text(encoding="utf-8"))


def test_the_tables_are_those_of_the_record(found: Any) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = scale_picture.planned(found) + scale_picture.measured(found)
    assert len(rows) >= 8
    for row in rows:
        assert row in lines


def test_the_record_keeps_its_bars(found: Any) -> None:
    assert found["targets"] == scale.TARGETS
    for name in scale.TARGETS:
        assert found[name] <= 2
        assert found[name] == max(
            scale._apart(row, name.replace("over_plan", "seconds")) for row in found["rows"]
        )
    for row in found["rows"]:
        for way in ("up", "down"):  # some are gone before they upload
            ratio = row["measured"][f"client_bytes_{way}"] / row["planned"][f"client_bytes_{way}"]
            assert 1 - scale.DROPOUT - 0.02 < ratio <= 1


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Sizes alone are looked at: nothing is timed for it."""
    prices = {field.name: 1e-6 for field in dataclasses.fields(Calibration)}
    return scale.foretold(20, calibration=Calibration(**prices))


@pytest.mark.parametrize("most_awake", [0, 100], ids=["parked", "awake"])
def test_a_round_among_processes_is_right(
    most_awake: int, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "_MOST_AWAKE", most_awake)
    assert plan.parameters.dropped_clients == 1
    measured = scale._measured(plan.config, 1)
    planned = scale.costs_of(plan)
    assert 0.9 < measured["client_bytes_up"] / planned["client_bytes_up"] < 1
    assert measured["client_seconds"] > 0


def test_a_mix_forwards_a_batch() -> None:
    mix = scale._mix(70)
    assert mix["bytes_out_per_cell"] < mix["bytes_in_per_cell"] == 65536
