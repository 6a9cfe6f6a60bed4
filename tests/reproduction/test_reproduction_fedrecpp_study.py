"""The study of FedRec++: lossless rows, costs counted by hand, files that are gone on with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.data.splits import k_fold
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.studies.fedrecpp.study import StudyConfig
from secure_fedrec.studies.resumed import run_study

TABLE = generate(SyntheticConfig(clients=30, items=120, mean_ratings=15.0, seed=3))


def config(method: str = "fedrec", **more: Any) -> StudyConfig:
    denoisers = {"denoisers": 1} if method == "fedrec++" else {}
    values = {"rounds": 6, "learning_rate": 0.3, "fold": 0, "predict_after": 2, **denoisers, **more}
    return StudyConfig(method=method, data="made up", **values)


def test_denoisers_take_out_what_virtual_ratings_put_in(tmp_path: Path) -> None:
    plain = run_study(TABLE, config(), tmp_path / "plain.json")
    for rho in (1.0, 3.0):
        own = run_study(TABLE, config("fedrec++", rho=rho), tmp_path / f"{rho}.json")
        assert own["digest"] == plain["digest"]
        assert own["rounds"] == plain["rounds"]
        other = run_study(TABLE, config(rho=rho), tmp_path / f"noisy{rho}.json")
        assert other["digest"] != plain["digest"]


def test_a_denoiser_is_at_every_round_of_few(tmp_path: Path) -> None:
    digests = set()
    for rho in (1.0, 2.0):
        report = run_study(TABLE, config("fedrec++", rho=rho, share=0.2), tmp_path / f"{rho}.json")
        assert {each["participants"] for each in report["rounds"]} <= {6, 7}
        digests.add(report["digest"])
    assert len(digests) == 1
    report = run_study(TABLE, config(share=0.2), tmp_path / "few.json")
    assert {each["participants"] for each in report["rounds"]} == {6}


def test_costs_are_what_clients_send_and_receive(tmp_path: Path) -> None:
    counts = k_fold(TABLE, folds=5, fold=0, seed=1).train.counts()
    report = run_study(TABLE, config(rho=1.0, rounds=1), tmp_path / "plain.json")
    assert report["vectors"]["ordinary"] == pytest.approx(2 * counts.mean())
    report = run_study(TABLE, config("fedrec++", rho=1.0, rounds=1), tmp_path / "one.json")
    own = report["vectors"]
    # Of 3 |I_u| each, but for the denoiser, who receives |I_u| of everybody else and sends a sum.
    assert 3 * (counts.sum() - counts.max()) / 29 <= own["ordinary"]
    assert own["ordinary"] <= 3 * (counts.sum() - counts.min()) / 29
    received = own["ordinary"] * 29 / 3
    assert received <= own["denoiser"] <= received + TABLE.n_items
    assert own["client"] == pytest.approx((29 * own["ordinary"] + own["denoiser"]) / 30)


def test_files_are_read_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    report = run_study(TABLE, config(), path)
    assert run_study(TABLE, config(), path) == report
    assert report["study"]["algorithm"]["decay"] == 0.9
    with pytest.raises(DataError, match="other settings"):
        run_study(TABLE, config(fold=1), path)


def test_a_killed_study_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    wanted = config("fedrec++", rho=1.0, rounds=27)
    expected = run_study(TABLE, wanted, tmp_path / "whole.json")
    count = iter(range(1, 100))

    def tell() -> None:
        if next(count) == 26:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(TABLE, wanted, tmp_path / "parts.json", on_round=tell)
    assert (tmp_path / "parts.checkpoint").exists()
    found = run_study(TABLE, wanted, tmp_path / "parts.json")
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}
    assert np.isfinite(found["rounds"][-1]["rmse"])


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedrec++", "rho": 0.0},
        {"method": "fedrec++", "rho": 1.0, "denoisers": 0},
        {"method": "fedrec", "denoisers": 1},
        {"method": "fedrec", "share": 0.0},
        {"method": "pmf"},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        config(**settings)
