"""The benchmark of the item-table family: both contenders agree, and a slow loop is no peer."""

import pytest

from benchmarks import item_tables
from benchmarks.__main__ import REGISTRY
from benchmarks.federations import Options
from benchmarks.item_tables_loop import PFedRecLoop
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import SyntheticConfig, generate


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    table = generate(SyntheticConfig(clients=30, items=60, mean_ratings=12.0, seed=1))
    monkeypatch.setattr(item_tables, "ratings_of", lambda *_: ("synthetic", table))
    monkeypatch.setattr(item_tables, "_QUICK_CLIENTS", 20)


def test_all_keys_are_there_and_both_train_alike() -> None:
    found = item_tables.run(Options(quick=True))
    assert found["clients"] == 20
    assert found["largest_difference"] <= 1e-3
    assert found["limits"]["loop_seconds"] == pytest.approx(4.0 * 20 / 30)
    assert found["speedup_vs_loop"] > 0
    for each in (found, found["fedrap"], found["fedmf"], found["fedncf"]):
        assert each["seconds_per_round"] > 0
    assert found["peak_gb"] > 0
    assert REGISTRY["item_tables"]() is item_tables.run


def test_a_loop_beyond_its_limit_gives_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(item_tables.LIMITS, "loop_seconds", 1e-9)
    assert item_tables.run(Options(quick=True))["speedup_vs_loop"] is None


def test_a_loop_that_trains_otherwise_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    true = PFedRecLoop.round

    def other(loop: PFedRecLoop, number: int, clients: IntArray) -> float:
        found = true(loop, number, clients)
        loop.model.embedding.weight.data += 0.01
        return found

    monkeypatch.setattr(PFedRecLoop, "round", other)
    with pytest.raises(AssertionError, match="the rounds differ by"):
        item_tables.run(Options(quick=True))
