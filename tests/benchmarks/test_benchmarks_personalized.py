"""The personalized benchmark: both parts run, agree with their loops, and refuse to disagree."""

import pytest

from benchmarks import furl, hpfl, personalized
from benchmarks.__main__ import REGISTRY
from benchmarks.federations import Options
from secure_fedrec.data.organisations.synthetic import SyntheticOrganisationsConfig


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECURE_FEDREC_DATA", raising=False)
    monkeypatch.setattr(
        hpfl,
        "_QUICK_SYNTHETIC",
        SyntheticOrganisationsConfig(
            clients=3, users=6, items=20, attributes=4, mean_records=12.0, seed=1
        ),
    )


def test_both_parts_are_measured_and_the_worse_is_judged() -> None:
    found = personalized.run(Options(quick=True))
    speedups = [found[part]["speedup_vs_torch_loop"] for part in ("furl", "hpfl")]
    assert found["speedup_vs_loop"] == min(speedups) > 0
    assert found["furl"]["clients_per_round"] == 10
    assert found["furl"]["largest_difference"] <= 1e-4
    assert REGISTRY["personalized"]() is personalized.run


def test_a_loop_that_trains_otherwise_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(furl, "_RATE", 0.6)
    with pytest.raises(AssertionError, match="the rounds differ by"):
        furl.run(Options(quick=True))
