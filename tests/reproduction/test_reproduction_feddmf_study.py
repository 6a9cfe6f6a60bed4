"""The study of FedDMF: figures of known scores, files that are gone on with, baselines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.reproduction.feddmf import file_name, load_paper
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.data.organisations.common_items import CommonItemsConfig, split_common_items
from secure_fedrec.errors import CheckpointError, ConfigError, DataError
from secure_fedrec.models.dmf.training import DMFTraining
from secure_fedrec.studies.feddmf.methods import RUNS, Task
from secure_fedrec.studies.feddmf.quality import measure
from secure_fedrec.studies.feddmf.study import PAPER, StudyConfig
from secure_fedrec.studies.resumed import run_study

TABLE = generate(SyntheticConfig(clients=40, items=60, mean_ratings=20.0, seed=4))
FIGURES = {name: tuple(shown.studies()) for name, shown in load_paper(quick=False).figures.items()}


def config(method: str = "feddmf-summed", **settings: Any) -> StudyConfig:
    split = CommonItemsConfig(seed=1, **settings)
    return replace(StudyConfig(method=method, split=split, data="synthetic").quick(), every=2)


@pytest.mark.parametrize("method", RUNS)
def test_every_method_is_studied(method: str, tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    report = run_study(TABLE, config(method, organisations=3), path)
    assert run_study(TABLE, config(method, organisations=3), path) == report  # read, not made again
    assert [path.name] == [each.name for each in tmp_path.iterdir()]
    trained = method not in ("popularity", "popularity-by-activity", "random")
    assert [each["epoch"] for each in report["epochs"]] == ([2, 3] if trained else [1])
    for each in report["epochs"]:
        for kind in ("sampled", "all"):
            for side in ("within", "across"):
                figures = each[kind][side]
                assert 0.0 <= figures["tuned"] <= figures["best"] <= 1.0
                assert len(each[kind]["organisations"]) == 3
            assert each["sampled"][side]["all_ones"] == pytest.approx(1 / 3, abs=0.05)


def test_scores_that_know_the_truth_are_perfect_and_constant_ones_are_the_rule() -> None:
    data = split_common_items(TABLE, CommonItemsConfig(seed=1))
    known = measure(data, lambda n, items: data.truth(n, items).astype(np.float64), seed=1)
    flat = measure(data, lambda n, items: np.full((int(data.n_users[n]), len(items)), 0.7), seed=1)
    for kind in ("sampled", "all"):
        for side in ("within", "across"):
            assert known[kind][side]["tuned"] == known[kind][side]["auc"] == 1.0
            assert known[kind][side]["printed"] == 1.0
            assert flat[kind][side]["auc"] == 0.5
            assert flat[kind][side]["tuned"] == flat[kind][side]["all_ones"]


def test_popularity_by_activity_knows_how_much_a_user_chose_and_not_what() -> None:
    """A user's items rank as by popularity; of two users, who chose more has more of every item."""
    data = split_common_items(TABLE, CommonItemsConfig(seed=1))
    task = Task(data=data, config=PAPER, seed=1)
    popular, active = (
        next(RUNS[name](task)).scores(0, data.items_of(1))
        for name in ("popularity", "popularity-by-activity")
    )
    users, _ = data.known(0)
    chosen = np.bincount(users, minlength=len(active))
    assert np.allclose(active, chosen[:, None] * popular / len(data.items_of(0)))
    assert len(np.unique(chosen)) > 5


def test_a_threshold_is_tuned_within_and_used_across() -> None:
    data = split_common_items(TABLE, CommonItemsConfig(seed=1))

    def scores(client: int, items: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        own = data.listed[client, items]
        shift = np.where(own, 0.0, 0.3)  # others' items score higher throughout
        return np.asarray(data.truth(client, items) * 0.2 + 0.2 + shift)

    found = measure(data, scores, seed=1)["all"]
    assert found["within"]["tuned"] == 1.0
    assert found["across"]["tuned"] == found["across"]["all_ones"] < 0.7
    assert found["across"]["best"] == 1.0


class KilledError(Exception):
    """Training ends without notice."""


@pytest.mark.parametrize("method", ["dmf", "fedavg", "feddmf-exchanged", "feddmf-summed"])
def test_a_killed_study_ends_in_the_same_figures(method: str, tmp_path: Path) -> None:
    whole, again = tmp_path / "whole.json", tmp_path / "again.json"
    due = run_study(TABLE, config(method), whole)

    def kill(epoch: Any) -> None:
        if epoch.epoch == 2:
            raise KilledError

    with pytest.raises(KilledError):
        run_study(TABLE, config(method), again, on_epoch=kill)
    assert not again.exists()
    seen: list[int] = []
    found = run_study(TABLE, config(method), again, on_epoch=lambda each: seen.append(each.epoch))
    assert seen == [3]
    assert {**found, "seconds": 0} == {**due, "seconds": 0}
    assert not again.with_suffix(".checkpoint").exists()


def test_files_of_other_studies_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    due = run_study(TABLE, config("popularity"), path)
    assert run_study(TABLE, config("popularity"), path) == due
    with pytest.raises(DataError, match="is of a study with other settings"):
        run_study(TABLE, config("random"), path)
    path.write_text("{}")
    with pytest.raises(DataError, match="is of a study with other settings"):
        run_study(TABLE, config("popularity"), path)
    other = tmp_path / "other.json"

    def kill(epoch: Any) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        run_study(TABLE, config(), other, on_epoch=kill)
    with pytest.raises(CheckpointError, match="another configuration"):
        run_study(TABLE, config("dmf"), other)
    with pytest.raises(ConfigError, match=r"study\.method = 'best'"):
        config("best")


def test_organisations_without_items_of_their_own_are_refused(tmp_path: Path) -> None:
    """Found by attacking: training went on to the first figure, and ended in a ValueError there."""
    settings: tuple[dict[str, Any], ...]
    settings = ({"common": 0.99}, {"organisations": 4, "common": 0.97})
    for more in settings:
        with pytest.raises(ConfigError, match="no user who has some of its own items only"):
            run_study(TABLE, config(**more), tmp_path / "study.json")
    # Every user has every item: there is no pair to be told from another, on any side.
    users, items = np.divmod(np.arange(12 * 10), 10)
    full = RatingTable.from_columns(
        name="synthetic",
        n_clients=12,
        n_items=10,
        clients=users,
        items=items,
        ratings=np.full(120, 4.0),
        scale=TABLE.scale,
        client_labels=np.arange(12),
        item_labels=np.arange(10),
    )
    with pytest.raises(ConfigError, match="leaves organisation 0 no user who has some of its own"):
        run_study(full, config(), tmp_path / "study.json")
    assert not list(tmp_path.iterdir())


def test_tuning_measures_common_items_only() -> None:
    study = replace(config(), hiding=0.3)
    data = split_common_items(TABLE, study.split)
    assert not np.any(data.hiding(study.hiding, seed=1).asked & data.asked)


def test_studies_of_all_figures_have_files_of_their_own() -> None:
    studies = set(sum(FIGURES.values(), ()))
    assert len({file_name(each) for each in studies}) == len(studies) > 100
    for figure in ("5", "6", "7", "8"):
        assert {each.split.seed for each in FIGURES[figure]} == {0, 1, 2}
        assert figure == "5" or set(FIGURES[figure]) & set(FIGURES["5"])  # equal parts
    for each in FIGURES["all-pairs"]:
        assert each.algorithm.training == DMFTraining(negatives=None)
