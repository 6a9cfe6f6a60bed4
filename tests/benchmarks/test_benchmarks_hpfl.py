"""The plain PyTorch loop that HPFL is timed against does the same work; studies one by one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import hpfl, hpfl_study
from benchmarks.federations import Options
from benchmarks.hpfl import train_with_torch
from secure_fedrec.data import DATA_DIR_VARIABLE
from secure_fedrec.data.organisations.synthetic import (
    SyntheticOrganisationsConfig,
    generate_organisations,
)
from secure_fedrec.errors import EncodingError
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining, train
from secure_fedrec.studies.hpfl import table_entry as engine
from secure_fedrec.studies.hpfl.table_entry import read_study

TINY = SyntheticOrganisationsConfig(clients=3, users=12, items=40, attributes=4, seed=2)


@pytest.mark.parametrize("patience", [0, 1])
def test_the_loop_trains_the_same_model(patience: int) -> None:
    shops = generate_organisations(TINY)
    gum = GUM(GUMConfig(scale=5.0), n_users=shops.n_users[0], attributes=shops.attributes[0])
    start = gum.start(np.random.default_rng(0))
    parts = Records(*shops.train.of(0)), Records(*shops.validation.of(0))
    config = GUMTraining(learning_rate=0.05, epochs=12, patience=patience, batch_size=16)
    ours = train(gum, start, *parts, config, np.random.default_rng(3))
    loop = train_with_torch(gum, start, *parts, config, np.random.default_rng(3))
    assert (loop.epochs, loop.kept) == (ours.epochs, ours.kept)
    np.testing.assert_allclose(loop.parameters, ours.parameters, rtol=0, atol=1e-10)
    np.testing.assert_allclose(loop.errors, ours.errors, rtol=1e-10)


def test_other_forms_of_the_model_are_refused() -> None:
    gum = GUM(GUMConfig(activation="sigmoid"), n_users=3, attributes=np.ones((4, 2), np.bool_))
    none = Records(*np.zeros((3, 0)))
    with pytest.raises(ValueError, match="paper's form"):
        train_with_torch(
            gum, np.zeros(gum.layout.size), none, none, GUMTraining(), np.random.default_rng(0)
        )


def test_the_benchmark_reports_figures_of_rounds_that_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    monkeypatch.setattr(hpfl, "_QUICK_SYNTHETIC", TINY)
    found = hpfl.run(Options(quick=True))
    assert found["data"].startswith("synthetic")
    assert found["clients"] == 3
    assert 0 < found["largest_difference"] <= 1e-8
    assert found["speedup_vs_torch_loop"] > 0
    assert found.keys() >= found["targets"].keys()


def test_a_setting_that_diverges_is_a_result_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def diverging(*_: Any) -> Iterator[Any]:
        yield from ()
        raise EncodingError("left the ring")

    monkeypatch.setattr(engine, "RUNS", {"fedavg": diverging})
    monkeypatch.setattr(
        hpfl_study, "load_organisations", lambda *_, **__: generate_organisations(TINY)
    )
    out = tmp_path / "fedavg-1.json"
    named = "--method fedavg --data ml-100k-zip --seed 1 --grid quick --setting 0 --out"
    assert hpfl_study.main([*named.split(), str(out)]) == 0
    assert "fedavg ml-100k-zip from xavier, seed 1: diverged" in capsys.readouterr().out
    report = read_study(out)
    assert report["value"] is None
    assert report["trials"][0]["diverged"] == "left the ring"
