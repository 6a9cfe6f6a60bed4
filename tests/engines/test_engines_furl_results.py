"""Files of FURL's studies: those of every writer are read, damaged ones are named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.studies.furl.results import (
    StudyTexts,
    read_study,
    read_vectors,
    write_study,
)
from secure_fedrec.studies.furl.study import FURLStudyConfig, run_furl_study

OLD = Path(__file__).parent / "vectors" / "furl_study_unnumbered.json"
"""Written before there was a format number: 12 stickers' users, user-only-fl, two epochs."""


def test_a_study_without_a_format_number_is_read() -> None:
    summary = read_study(OLD)
    assert "format" not in summary
    assert (summary["configuration"], summary["seed"], summary["users"]) == ("user-only-fl", 3, 12)
    assert [point["epoch"] for point in summary["curve"]] == [1, 2]
    vectors = read_vectors(OLD)
    assert vectors.embeddings.shape == (12, 2)
    assert vectors.label_counts is None
    assert vectors.majority.tolist() == [0] * 8 + [1] + [0] * 3


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    texts = StudyTexts(task="stickers", users=15, seed=2)
    data = texts.load()
    config = FURLStudyConfig(configuration="user-only-fl", epochs=1, user_dim=2, mlp=4)
    result = run_furl_study(config, data, seed=3)
    path = tmp_path / "deep" / "study.json"
    write_study(path, texts=texts, data=data, config=config, result=result)
    summary = read_study(path)
    assert (summary["format"], summary["task"], summary["data_seed"]) == (1, "stickers", 2)
    assert summary["best"] == result.summary["best"]
    vectors = read_vectors(path)
    np.testing.assert_array_equal(vectors.embeddings, result.user_embeddings)
    np.testing.assert_array_equal(vectors.majority, data.majority_labels())
    assert vectors.label_counts is not None
    assert vectors.label_counts.sum(1).tolist() == data.counts("train").tolist()
    clicks = data.label[data.rows("train")] == 1
    assert vectors.label_counts[:, 1].sum() == clicks.sum()
    assert sorted(each.name for each in path.parent.iterdir()) == ["study.json", "study.npz"]


def test_only_settings_that_mean_something_tell_texts_apart() -> None:
    assert StudyTexts(task="stickers", length=9).settings() == {"seed": 1, "users": 300}
    assert StudyTexts(task="newsgroups", users=9).settings() == {"seed": 1, "length": 256}
    with pytest.raises(ConfigError, match="unknown task"):
        StudyTexts(task="tweets")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 2}, "is not a study of format 1"),
        ({"best": None}, "best is missing or of a wrong type"),
        ({"seed": "3"}, "seed is missing or of a wrong type"),
        ({"curve": []}, "its learning curve is damaged"),
        ({"last": {"epoch": 2, "test_auc": float("nan")}}, "its learning curve is damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps({**json.loads(OLD.read_text()), **change}))
    with pytest.raises(DataError, match=problem) as refused:
        read_study(path)
    assert "one.json" in str(refused.value)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_what_is_no_study_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "one.json"
    path.write_text(text)
    with pytest.raises(DataError, match="is not a study"):
        read_study(path)


def test_arrays_that_are_missing_or_do_not_fit_are_named(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    with pytest.raises(DataError, match=r"one\.npz"):
        read_vectors(path)
    np.savez(
        path.with_suffix(".npz"),
        user_embeddings=np.zeros((3, 2)),
        user_labels=np.arange(4),
        majority_labels=np.zeros(4),
    )
    with pytest.raises(DataError, match="one user vector per user"):
        read_vectors(path)
