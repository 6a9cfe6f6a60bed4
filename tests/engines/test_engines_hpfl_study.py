"""The study: what chooses, what is reported, and what a file of results may hold."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from secure_fedrec.data import Organisations, SyntheticOrganisationsConfig, generate_organisations
from secure_fedrec.errors import ConfigError, DataError, EncodingError
from secure_fedrec.models.gum.model import STARTS, GUMConfig
from secure_fedrec.studies.hpfl import table_entry
from secure_fedrec.studies.hpfl.methods import RUNS, Task
from secure_fedrec.studies.hpfl.noise import local_noise
from secure_fedrec.studies.hpfl.settings import (
    GRIDS,
    METHODS,
    VARIANTS,
    Setting,
    grid_for,
    gum_config,
    settings_of,
    starts_of,
)
from secure_fedrec.studies.hpfl.snapshots import Snapshot, ranking_metrics, score_metrics
from secure_fedrec.studies.hpfl.table_entry import (
    StudyConfig,
    merge_reports,
    read_characteristics,
    read_study,
    run_study,
    write_study,
)

SETTING = Setting(learning_rate=0.01, epochs=1, batch_size=16, rounds=2)
MODEL = GUMConfig(scale=5.0, start="identity")
NETWORKS = {"ncd", "ncf"}


@pytest.fixture(scope="module")
def ratings() -> Organisations:
    return generate_organisations(
        SyntheticOrganisationsConfig(clients=3, users=8, items=24, mean_records=12, seed=1)
    )


@pytest.fixture(scope="module")
def answers() -> Organisations:
    return generate_organisations(
        SyntheticOrganisationsConfig(
            clients=2, users=8, items=24, mean_records=12, binary=True, seed=1
        )
    )


@pytest.mark.parametrize("method", sorted({*METHODS, *VARIANTS} - {"ncd"}))
def test_every_method_shows_all_held_out_records(ratings: Organisations, method: str) -> None:
    states = list(RUNS[method](Task(ratings, SETTING, MODEL, 1)))
    alone = method in {"gum", "distributed-early", "ncf"}
    assert len(states) == (1 if alone else SETTING.rounds)
    for state in states:
        assert state.validation.shape == ratings.validation.scores.shape
        assert state.test.shape == ratings.test.scores.shape
        assert [len(own) for own in state.characteristics] == list(ratings.n_users)
        assert len(state.knowledge) == (0 if method in {"gum", "ncf"} else 3)


@pytest.mark.parametrize("method", sorted({*METHODS, *VARIANTS} - NETWORKS))
def test_every_method_starts_where_it_is_told(ratings: Organisations, method: str) -> None:
    """Steps too small to be seen: predictions are those of the start, in every method."""
    still = replace(SETTING, learning_rate=1e-12)
    spread = {}
    for start in STARTS:
        model = gum_config(ratings, form="paper", start=start)
        (state, *_) = RUNS[method](Task(ratings, still, model, 1))
        spread[start] = np.ptp(state.test)
    assert spread["identity"] < 1e-6  # nobody is known: all predictions are half the scale
    assert spread["xavier"] > 0.1


@pytest.mark.parametrize("method", [*METHODS, *VARIANTS])
def test_the_start_is_named(method: str, ratings: Organisations, answers: Organisations) -> None:
    assert starts_of(method) == (("own",) if method in NETWORKS else STARTS)
    for start in starts_of(method):
        config = StudyConfig(method=method, seed=1, grid="quick", start=start)
        assert run_study(answers if method == "ncd" else ratings, config).report["start"] == start
    for start in {*STARTS, "own", "published"} - set(starts_of(method)):
        with pytest.raises(ConfigError, match=r"study\.start"):
            StudyConfig(method=method, seed=1, grid="quick", start=start)
    with pytest.raises(TypeError, match="start"):
        StudyConfig(method=method, seed=1, grid="quick")  # type: ignore[call-arg]


def test_ncd_diagnoses_answers(answers: Organisations) -> None:
    (state,) = RUNS["ncd"](Task(answers, SETTING, MODEL, 1))
    assert np.all((state.test > 0) & (state.test < 1))
    assert all(np.all((own > 0) & (own < 1)) for own in state.characteristics)


@pytest.mark.parametrize("method", ["hpfl", "fedavg", "distributed", "gum"])
def test_seed_decides_everything(ratings: Organisations, method: str) -> None:
    once, again, other = (
        list(RUNS[method](Task(ratings, SETTING, MODEL, seed)))[-1].test for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(once, again)
    assert np.any(once != other)


def test_one_model_for_all_predicts_in_the_order_of_the_records(ratings: Organisations) -> None:
    """Of one organisation, central training is training on its own: local numbers are the same."""
    alone = ratings.pooled()
    (central,) = RUNS["gum"](Task(alone, SETTING, MODEL, 1))
    (own,) = RUNS["distributed-early"](Task(alone, SETTING, MODEL, 1))
    np.testing.assert_array_equal(central.test, own.test)
    # And in many organisations, its predictions are those of the pooled numbers, dealt out.
    (dealt,) = RUNS["gum"](Task(ratings, SETTING, MODEL, 1))
    users = [ids[own.users] for ids, own in by_client(ratings, ratings.user_ids)]
    items = [ids[own.items] for ids, own in by_client(ratings, ratings.item_ids)]
    keys = list(zip(np.concatenate(users), np.concatenate(items), strict=True))
    pooled = alone.test.of(0)
    numbers = zip(alone.user_ids[0][pooled.users], alone.item_ids[0][pooled.items], strict=True)
    expected = dict(zip(numbers, central.test, strict=True))
    np.testing.assert_array_equal(dealt.test, [expected[key] for key in keys])


def by_client(data: Organisations, ids: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    return zip(ids, (data.test.of(client) for client in range(data.n_clients)), strict=True)


def test_distributed_is_worse_late_than_early() -> None:
    """Few records and many epochs: whoever stops by validation records does better."""
    data = generate_organisations(
        SyntheticOrganisationsConfig(clients=3, users=20, items=60, noise=1.0, seed=2)
    )
    setting = replace(SETTING, learning_rate=0.03, epochs=10)
    late = list(RUNS["distributed"](Task(data, setting, MODEL, 1)))[-1]
    (early,) = RUNS["distributed-early"](Task(data, setting, MODEL, 1))
    late_error = score_metrics(data, late)["test"]["rmse"]
    assert score_metrics(data, early)["test"]["rmse"] < late_error


def told(values: list[list[float]]) -> dict[str, Any]:
    """Runs whose setting with epochs e shows the constant predictions ``values[e - 1]``."""

    def run(task: Task) -> Iterator[Snapshot]:
        data = task.organisations
        for value in values[task.setting.epochs - 1]:
            if not np.isfinite(value):
                raise EncodingError("diverged")
            yield Snapshot(
                validation=np.full(len(data.validation), value),
                test=np.full(len(data.test), value),
                characteristics=tuple(np.zeros((n, data.n_attributes)) for n in data.n_users),
            )

    return {"hpfl": run, "distributed": run}


@pytest.fixture
def two_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = replace(GRIDS["quick"], epochs=(1, 2))
    monkeypatch.setattr(table_entry, "GRIDS", MappingProxyType({**GRIDS, "quick": grid}))


def study(
    data: Organisations,
    values: list[list[float]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    method: str = "hpfl",
    only: int | None = None,
) -> dict[str, Any]:
    monkeypatch.setattr(table_entry, "RUNS", told(values))
    config = StudyConfig(method=method, seed=1, grid="quick", start="xavier")
    return run_study(data, config, only=only).report


@pytest.mark.usefixtures("two_settings")
def test_validation_chooses_setting_and_round(
    ratings: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = float(ratings.validation.scores.mean())
    report = study(ratings, [[1.0, 2.0, 5.0], [5.0, mean, 5.0]], monkeypatch)
    assert (report["chosen"], report["round"]) == (1, 2)
    assert report["validation"]["rmse"] == pytest.approx(np.std(ratings.validation.scores))
    expected = np.sqrt(np.mean((ratings.test.scores - mean) ** 2))
    assert report["test"]["rmse"] == pytest.approx(expected)


@pytest.mark.usefixtures("two_settings")
def test_test_records_choose_nothing(
    ratings: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With test scores turned upside down the same round is reported."""
    upside_down = replace(ratings.test, scores=6.0 - ratings.test.scores)
    turned = replace(ratings, test=upside_down)
    values = [[1.0, 3.3], [5.0, 4.0]]
    reports = [study(data, values, monkeypatch) for data in (ratings, turned)]
    assert reports[0]["chosen"] == reports[1]["chosen"]
    assert reports[0]["round"] == reports[1]["round"]
    assert reports[0]["test"] != reports[1]["test"]


@pytest.mark.usefixtures("two_settings")
def test_local_training_without_a_stop_is_reported_at_its_end(
    ratings: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = float(ratings.validation.scores.mean())
    values = [[mean, 5.0], [4.5, 4.4]]
    report = study(ratings, values, monkeypatch, method="distributed")
    assert (report["chosen"], report["round"]) == (1, 2)


@pytest.mark.usefixtures("two_settings")
def test_settings_tried_apart_make_the_same_study(
    ratings: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [[4.0, 2.0], [3.5, 3.0]]
    whole = study(ratings, values, monkeypatch)
    parts = [study(ratings, values, monkeypatch, only=place) for place in (1, 0)]
    merged = merge_reports(parts)
    for report in (whole, merged):
        del report["seconds"]
        for trial in report["trials"]:
            del trial["seconds"]
    assert merged == whole
    with pytest.raises(ConfigError, match="are not 0 to 1, once"):
        merge_reports(parts[:1])
    with pytest.raises(ConfigError, match="are not 0 to 1, once"):
        merge_reports([*parts, parts[0]])
    with pytest.raises(ConfigError, match=r"study\.start"):
        merge_reports([parts[0], {**parts[1], "start": "identity"}])
    with pytest.raises(ConfigError, match=r"study\.seed"):
        merge_reports([parts[0], {**parts[1], "seed": 2}])
    with pytest.raises(ConfigError, match="is not a setting"):
        study(ratings, values, monkeypatch, only=2)


@pytest.mark.usefixtures("two_settings")
def test_setting_that_diverges_loses(
    ratings: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = study(ratings, [[np.nan], [3.0, np.nan]], monkeypatch)
    assert (report["chosen"], report["round"]) == (1, 1)
    assert [trial["diverged"] for trial in report["trials"]] == ["diverged"] * 2
    with pytest.raises(ConfigError, match="every setting of hpfl diverged"):
        study(ratings, [[np.nan], [np.nan]], monkeypatch)


@pytest.mark.usefixtures("two_settings")
@pytest.mark.parametrize("values", [[[np.nan], [3.0, np.nan]], [[3.0], [np.nan]]])
def test_setting_that_diverges_can_be_tried_apart(
    ratings: Organisations,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    values: list[list[float]],
) -> None:
    whole = study(ratings, values, monkeypatch)
    config = StudyConfig(method="hpfl", seed=1, grid="quick", start="xavier")
    parts = []
    for place in (0, 1):
        path = tmp_path / f"{place}.json"
        path.with_suffix(".npz").write_bytes(b"of an earlier study")
        write_study(run_study(ratings, config, only=place), path)
        json.loads(path.read_text(), parse_constant=pytest.fail)  # neither NaN nor Infinity
        parts.append(read_study(path))
        reached = not np.isnan(values[place][0])
        assert path.with_suffix(".npz").exists() == reached
        assert (parts[place]["value"] is not None, "test" in parts[place]) == (reached, reached)
    merged = merge_reports(parts)
    for report in (whole, merged):
        del report["seconds"]
        for trial in report["trials"]:
            del trial["seconds"]
    assert merged == json.loads(json.dumps(whole))


@pytest.mark.usefixtures("two_settings")
def test_settings_that_all_diverged_apart_make_no_study(
    ratings: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [study(ratings, [[np.nan], [np.nan]], monkeypatch, only=place) for place in (0, 1)]
    with pytest.raises(ConfigError, match="every setting of hpfl diverged"):
        merge_reports(parts)


def test_answers_are_judged_by_area(answers: Organisations) -> None:
    config = StudyConfig(method="fedavg", seed=1, grid="quick", start="xavier")
    report = run_study(answers, config).report
    assert report["criterion"] == "auc"
    assert report["value"] == report["validation"]["auc"]
    areas = [found["validation"]["auc"] for found in report["trials"][0]["rounds"]]
    assert report["round"] == 1 + int(np.argmax(areas))


@pytest.mark.parametrize("grid", GRIDS)
def test_every_method_has_the_same_budget(grid: str) -> None:
    budgets = {method: settings_of(method, GRIDS[grid]) for method in METHODS}
    assert len({len(settings) for settings in budgets.values()}) == 1
    assert all(len(set(settings)) == len(settings) for settings in budgets.values())
    # FedProx tries every pair that FedAvg tries, and deals its strengths out to them in turn.
    pairs = [[(one.learning_rate, one.epochs) for one in budgets[m]] for m in ("fedavg", "fedprox")]
    assert pairs[0] == pairs[1]
    strengths = GRIDS[grid].proximal
    assert [setting.proximal for setting in budgets["fedprox"]] == [
        strengths[place % len(strengths)] for place in range(len(pairs[1]))
    ]
    assert {setting.proximal for setting in budgets["fedprox"]} == set(strengths)
    assert {setting.proximal for setting in budgets["fedavg"]} == {0.0}
    # FedSGD makes one pass over the records per round: as many passes as the longest of others.
    passes = max(setting.rounds * setting.epochs for setting in budgets["hpfl"])
    assert {setting.rounds * setting.epochs for setting in budgets["fedsgd"]} == {passes}


def test_ranking_measures_of_a_snapshot(ratings: Organisations) -> None:
    generator = np.random.default_rng(1)
    k = ratings.n_attributes
    knowledge = [{"one": generator.normal(size=(k, 2)), "two": np.ones((k, 3))} for _ in range(3)]
    state = Snapshot(
        validation=np.empty(0),
        test=np.empty(0),
        characteristics=tuple(generator.normal(size=(n, k)) for n in ratings.n_users),
        knowledge=tuple(knowledge),
    )
    found = ranking_metrics(ratings, state, ratings.test)
    assert set(found) == {"doa", "doa_untied", "ndcg", "simi"}
    assert found["doa"] < found["doa_untied"]
    alone = replace(state, knowledge=tuple({"one": each["one"]} for each in knowledge))
    # The second matrix is the same everywhere: the mean over both is half of the first's.
    assert found["simi"] == pytest.approx(ranking_metrics(ratings, alone, ratings.test)["simi"] / 2)
    assert "simi" not in ranking_metrics(ratings, replace(state, knowledge=()), ratings.test)


def test_noise_has_the_stated_size() -> None:
    change = np.linspace(-0.05, 0.05, 400)
    released = local_noise(change)
    assert released.shape == change.shape
    assert 0.008 < np.std(released - change) < 0.012
    np.testing.assert_array_equal(released * 2.0**12, np.rint(released * 2.0**12))
    long = local_noise(np.full(400, 1.0))  # norm 20, clipped to 5
    assert np.mean(long) == pytest.approx(0.25, abs=0.003)


def test_results_come_back(ratings: Organisations, tmp_path: Path) -> None:
    found = run_study(ratings, StudyConfig(method="fedavg", seed=1, grid="quick", start="xavier"))
    path = tmp_path / "new" / "fedavg.json"
    write_study(found, path)
    assert read_study(path) == json.loads(json.dumps(found.report))
    hidden, clients = read_characteristics(path)
    assert found.snapshot is not None
    np.testing.assert_array_equal(hidden, np.concatenate(found.snapshot.characteristics))
    assert np.bincount(clients).tolist() == list(ratings.n_users)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 0}'])
def test_damaged_results(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.json"
    path.write_text(text)
    with pytest.raises(DataError, match="is not a study"):
        read_study(path)
    path.with_suffix(".npz").write_bytes(b"PK")
    with pytest.raises(DataError, match="is not an array file of a study"):
        read_characteristics(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("method", "fedx"), ("grid", "wide"), ("form", "own"), ("accuracy", "floor"), ("seed", -1)],
)
def test_unknown_settings(name: str, value: Any) -> None:
    given: dict[str, Any] = {
        "method": "hpfl",
        "seed": 1,
        "grid": "quick",
        "start": "xavier",
        name: value,
    }
    with pytest.raises(ConfigError, match=f"study.{name}"):
        StudyConfig(**given)


def test_methods_for_other_data(ratings: Organisations, answers: Organisations) -> None:
    for data, method in ((ratings, "ncd"), (answers, "ncf")):
        with pytest.raises(ConfigError, match=r"study\.method"):
            run_study(data, StudyConfig(method=method, seed=1, grid="quick", start="own"))


def test_grid_of_data() -> None:
    assert grid_for("assist2009-sample") == grid_for("assist2009") == "assist2009"
    with pytest.raises(ConfigError, match=r"study\.grid"):
        grid_for("ml-1m")
