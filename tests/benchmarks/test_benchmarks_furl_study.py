"""The command of a FURL study: writes what it found, refuses what it cannot do."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.furl_study import main
from secure_fedrec.core.npz import read_npz

STICKERS = ("--task", "stickers", "--users", "30", "--config", "user-only-fl", "--epochs", "1")


def test_a_study_writes_its_summary_and_its_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.json"
    assert (
        main([*STICKERS, "--user-dim", "3", "--lr", "0.3", "--seed", "4", "--out", str(out)]) == 0
    )
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["task"], found["seed"], found["data_seed"]) == ("stickers", 4, 4)
    assert found["format"] == 1
    assert found["config"]["training"]["learning_rate"] == 0.3
    assert 0 < found["last"]["test_auc"] < 1
    arrays = read_npz(out.with_suffix(".npz"))
    assert arrays["user_embeddings"].shape == (30, 3)
    assert np.isfinite(arrays["federated"]).all()
    assert len(arrays["majority_labels"]) == len(arrays["user_labels"]) == 30
    assert arrays["label_counts"].shape == (30, 2)
    assert "epoch 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--dropout", "2"), "furl.dropout"),
        (("--lr", "-1"), "local.learning_rate"),
        (("--lr", "1e30"), "ring.clip"),
        (("--task", "newsgroups", "--data-dir", "nowhere"), "20newsgroups"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    out = tmp_path / "run.json"
    assert main([*STICKERS, *arguments, "--out", str(out)]) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
