"""The study of the item-table family: files that are gone on with, what is chosen, oracles."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms.item_tables import ranked, ranked_between_rounds
from secure_fedrec.algorithms.item_tables.method import OWN, PERSONAL
from secure_fedrec.core.npz import read_npz
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.data.top_n import TopN
from secure_fedrec.engines import vault_of
from secure_fedrec.errors import CheckpointError, ConfigError, DataError
from secure_fedrec.evaluation import leaks
from secure_fedrec.evaluation.oracles import drawn_items
from secure_fedrec.evaluation.overlap import rank_biased_overlap, top_items
from secure_fedrec.evaluation.protocols import PROTOCOLS, ranking_case
from secure_fedrec.evaluation.ranks import client_figures, client_ranks, quality
from secure_fedrec.streams import Streams
from secure_fedrec.studies.fed3cr.methods import METHODS, ORACLES, build_method
from secure_fedrec.studies.fed3cr.study import FIGURES, StudyConfig, plain_engine
from secure_fedrec.studies.fed3cr.views import correlated
from secure_fedrec.studies.files import write_files
from secure_fedrec.studies.resumed import FINGERPRINT, require_one_source, run_study

DATA = TopN(generate(SyntheticConfig(clients=24, items=60, mean_ratings=12.0, seed=2)), None)
SMALL: dict[str, Any] = {"rank": 8, "item_learning_rate": 20.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "pfedrec": {"rank": 8},
    "gpfedrec": {"rank": 8},
    "fed3cr-over-pfedrec": {"rank": 8, "item_scale": 1.0, "enhancement.item_rate": 20.0},
    "fed3cr-over-fedrap": {**SMALL, "independence": 0.0},
    **{name: {"rank": 8} for name in ("neumf", "lightgcn")},
    ORACLES: {},
}


def config(method: str, rounds: int = 2, **more: Any) -> StudyConfig:
    settings = {**SETTINGS.get(method, SMALL), **more.pop("settings", {})}
    values = {"data": "made up", "protocol": "clean", "seed": 1, **more}
    return StudyConfig(method=method, rounds=rounds, settings=settings, **values)


def killed_after(rounds: int) -> Callable[[], None]:
    count = iter(range(1, 100))

    def tell() -> None:
        if next(count) == rounds:
            raise KeyboardInterrupt

    return tell


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_studied(method: str, tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    report = run_study(DATA, config(method), path)
    assert "diverged" not in report
    assert sorted(each.name for each in tmp_path.iterdir()) == ["study.json", "study.npz"]
    assert run_study(DATA, config(method), path) == report  # read, not made again
    arrays: dict[str, Any] = read_npz(path.with_suffix(".npz"))
    if method == ORACLES:
        assert {name.partition(".")[0] for name in arrays} == {
            "random",
            "popularity",
            "never drawn",
        }
        return
    assert set(report["study"]["algorithm"]) >= {"rank"}
    quality = report["rounds"][report["chosen"] - 1]["quality"]
    best = max(each["quality"]["validation_hit_rate_at_10"] for each in report["rounds"])
    assert quality["validation_hit_rate_at_10"] == best
    for name in FIGURES:
        assert len(arrays[f"chosen.{name}"]) == DATA.table.n_clients
        assert np.nanmean(arrays[f"chosen.{name}"]) == pytest.approx(quality[name], abs=1e-6)
        last = report["rounds"][-1]["quality"][name]
        assert np.nanmean(arrays[f"last.{name}"]) == pytest.approx(last, abs=1e-6)


@pytest.mark.parametrize("method", ["fed3cr", "gpfedrec"])
def test_a_killed_study_goes_on_to_the_same_bits(method: str, tmp_path: Path) -> None:
    wanted, whole, parts = (
        config(method, rounds=7),
        tmp_path / "whole.json",
        tmp_path / "parts.json",
    )
    expected = run_study(DATA, wanted, whole)
    with pytest.raises(KeyboardInterrupt):
        run_study(DATA, wanted, parts, on_round=killed_after(6))
    assert not parts.exists()
    assert parts.with_suffix(".checkpoint").exists()
    with pytest.raises(CheckpointError):
        run_study(DATA, config(method, rounds=8), parts)
    rounds: list[None] = []
    found = run_study(DATA, wanted, parts, on_round=lambda: rounds.append(None))
    assert len(rounds) == 7  # those before the kill are told as well
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}
    one, other = (read_npz(path.with_suffix(".npz")) for path in (whole, parts))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def test_a_file_of_other_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    run_study(DATA, config("fedmf"), path)
    for other in (
        config("fedmf", settings={"learning_rate": 0.5}),
        config("fedmf", seed=2),
        config("fedmf", protocol="published"),
    ):
        with pytest.raises(DataError, match="other settings"):
            run_study(DATA, other, path)


@pytest.mark.parametrize("which", ["report", "arrays", "foreign", "no digest", "odd digest"])
def test_a_study_that_was_changed_is_refused(which: str, tmp_path: Path) -> None:
    """Found by attacking: arrays of one method stood beside the report of another."""
    path, other = tmp_path / "study.json", tmp_path / "other.json"
    run_study(DATA, config("pfedrec"), path)
    arrays = path.with_suffix(".npz")
    if which == "report":
        report = json.loads(path.read_text())
        path.write_text(json.dumps({**report, "rounds": report["rounds"][:1]}))
    elif which.endswith("digest"):
        report = json.loads(path.read_text())
        del report["sha256"]
        path.write_text(json.dumps(report | ({"sha256": {}} if which == "odd digest" else {})))
    elif which == "arrays":
        whole = bytearray(arrays.read_bytes())
        whole[len(whole) // 2] ^= 1
        arrays.write_bytes(whole)
    else:
        run_study(DATA, config("fedmf"), other)
        other.with_suffix(".npz").replace(arrays)
    with pytest.raises(DataError, match="changed after it was written"):
        run_study(DATA, config("pfedrec"), path)


def test_a_report_without_format_is_refused(tmp_path: Path) -> None:
    """Found by attacking: such files were taken as they were, and the command ended within one."""
    path = tmp_path / "study.json"
    report = run_study(DATA, config("pfedrec"), path)
    for left in (("study",), tuple(set(report) - {"format"})):
        path.write_text(json.dumps({name: report[name] for name in left}))
        with pytest.raises(DataError, match="is not a study of format"):
            run_study(DATA, config("pfedrec"), path)


def test_warm_figures_are_of_items_that_somebody_trains_on(tmp_path: Path) -> None:
    sparse = generate(SyntheticConfig(clients=20, items=150, mean_ratings=8.0, seed=2))
    case = ranking_case(sparse, seed=1)
    report = run_study(TopN(sparse, None), config(ORACLES), tmp_path / "oracles.json")
    arrays: dict[str, Any] = read_npz(tmp_path / "oracles.npz")
    assert 0 < report["cold_test_items"] < case.n_clients
    for rule in ("random", "popularity", "never drawn"):
        own, warm = (arrays[f"{rule}.{kind}hit_rate_at_10"] for kind in ("", "warm_"))
        assert np.array_equal(np.isnan(warm), case.train.item_popularity()[case.test] == 0)
        assert np.array_equal(warm[~case.cold], own[~case.cold])
        mean = report["means"][f"{rule}.warm_hit_rate_at_10"]
        assert mean == pytest.approx(own[~case.cold].mean())


def test_where_every_test_item_is_cold_nothing_warm_is_told(tmp_path: Path) -> None:
    """Two clients, nothing in common."""
    apart = replace(
        DATA.table,
        n_clients=2,
        clients=np.repeat([0, 1], 3).astype(np.int32),
        items=np.arange(6, dtype=np.int32),
        ratings=DATA.table.ratings[:6],
        client_labels=DATA.table.client_labels[:2],
        demographics={},
        timestamps=None,
        places=None,
    )
    report = run_study(TopN(apart, None), config(ORACLES), tmp_path / "study.json")
    assert report["cold_test_items"] == 2
    assert report["means"]["popularity.warm_hit_rate_at_10"] is None
    assert report["means"]["popularity.hit_rate_at_10"] is not None


def test_a_study_of_other_data_is_refused(tmp_path: Path) -> None:
    path, wanted = tmp_path / "study.json", config("pfedrec")
    report = run_study(DATA, wanted, path)
    other = TopN(generate(SyntheticConfig(clients=24, items=60, mean_ratings=12.0, seed=3)), None)
    with pytest.raises(DataError, match="of other data of that name"):
        run_study(other, wanted, path)
    earlier = {name: each for name, each in report.items() if name != FINGERPRINT}
    write_files(path, earlier, read_npz(path.with_suffix(".npz")))
    assert run_study(other, wanted, path) == earlier  # an earlier release did not say


def test_studies_of_two_sources_are_no_table() -> None:
    one, other, nameless = ({"study": {"data": "made up"}, FINGERPRINT: each} for each in "aba")
    del nameless[FINGERPRINT]
    elsewhere = {**other, "study": {"data": "another"}}
    require_one_source({Path("1"): one, Path("2"): nameless, Path("3"): elsewhere, Path("4"): one})
    with pytest.raises(DataError, match="2: and 1 are of different data, both named made up"):
        require_one_source({Path("1"): one, Path("2"): other})


def test_what_diverges_is_written_down_and_not_tried_again(tmp_path: Path) -> None:
    wanted = config("fedrap", rounds=5, settings={"item_learning_rate": 1e9})
    report = run_study(DATA, wanted, tmp_path / "study.json")
    assert report["diverged"]
    assert "chosen" not in report
    assert run_study(DATA, wanted, tmp_path / "study.json") == report


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", ["fedrap", "fed3cr-over-fedrap", "fed3cr"])
def test_fedrap_ranks_by_the_averaged_table_where_its_code_is_followed(
    method: str, protocol: str, tmp_path: Path
) -> None:
    """Found beside the public code: its clients rank after the server has averaged."""
    wanted = config(method, protocol=protocol)
    report = run_study(DATA, wanted, tmp_path / "study.json")
    averaged = protocol == "published" and method != "fed3cr"
    assert ("ranked_by" in report["study"]) == averaged == wanted.averaged
    case = ranking_case(DATA.table, protocol=protocol, seed=1)
    built = build_method(method, wanted.settings, rounds=2, n_items=case.n_items)
    algorithm = ranked(built, case)
    engine = plain_engine(algorithm, case, 1)
    for told in report["rounds"]:
        trained = dict(engine.run_round().of_clients)
        del trained["training_loss"]
        between = ranked_between_rounds(algorithm, case, engine.public, engine.vault)
        own, other = (between, trained) if averaged else (trained, between)
        assert told["quality"] == quality(own) != quality(other)
    arrays = read_npz(tmp_path / "study.npz")
    assert np.array_equal(
        arrays["last.full_ndcg_at_10"], own["full_ndcg_at_10"].astype(np.float32), equal_nan=True
    )


def test_scores_of_fedrap_between_rounds_are_of_the_averaged_table() -> None:
    case = ranking_case(DATA.table, protocol="published", seed=1)
    algorithm = ranked(build_method("fedrap", SMALL, rounds=1, n_items=case.n_items), case)
    vault, streams = vault_of(case.train), Streams.from_seed(1)
    algorithm.initialise(vault, streams)
    public = algorithm.initial_public(case.n_items, streams)
    clients, personal = np.arange(case.n_clients), vault.read(PERSONAL, np.arange(case.n_clients))
    own = np.asarray(vault.read(OWN, clients))[:, :-1]
    scores = np.einsum("nid,nd->ni", personal + public.table, own)
    found = ranked_between_rounds(algorithm, case, public, vault)
    expected = client_figures(case, clients, client_ranks(case, clients, scores))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(found[name], values, equal_nan=True), name


def test_settings_by_dotted_keys() -> None:
    settings = {"local.epochs": 3, "enhancement.adaptive": False, "rank": 4}
    with pytest.raises(ConfigError, match="enhancement"):
        build_method("fedmf", settings, rounds=1, n_items=5)
    method = build_method("fed3cr-over-fedmf", settings, rounds=1, n_items=5)
    known = method.knowledge()
    assert (known["local"]["epochs"], known["enhancement"]["adaptive"], known["rank"]) == (
        3,
        False,
        4,
    )
    with pytest.raises(ConfigError, match="is not a setting"):
        build_method("fedmf", {"local.epoch": 3}, rounds=1, n_items=5)
    with pytest.raises(ConfigError, match="not a method of a federation"):
        build_method(ORACLES, {}, rounds=1, n_items=5)


def test_the_leak_is_measured_not_named(tmp_path: Path) -> None:
    clean, published = (
        run_study(DATA, config(ORACLES, rounds=10, protocol=name), tmp_path / f"{name}.json")
        for name in ("clean", "published")
    )
    assert clean["warning"] is None
    assert "leaks" in published["warning"]
    key = "never drawn.hit_rate_at_10"
    assert published["means"][key] > clean["means"][key] + 0.2


@pytest.mark.parametrize("method", ["pfedrec", "fed3cr"])
def test_the_leak_is_of_the_draws_that_are_trained_on(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ranking_case(DATA.table, protocol="published", seed=1, latest=DATA.latest)
    algorithm = ranked(build_method(method, {}, rounds=3, n_items=case.n_items), case)
    trained = np.zeros((case.n_clients, case.n_items), dtype=np.bool_)
    vault, clients = vault_of(case.train), np.arange(case.n_clients)
    for round_ in (1, 2, 3):
        drawn, _ = algorithm.draws(clients, vault, Streams.from_seed(1), round_)
        negatives = drawn.labels == 0
        trained[np.repeat(clients, np.diff(drawn.indptr))[negatives], drawn.items[negatives]] = True
    followed: list[Any] = []

    def follow(*words: Any, **settings: Any) -> Any:
        followed.append(drawn_items(*words, **settings))
        return followed[0]

    monkeypatch.setattr(leaks, "drawn_items", follow)
    run_study(DATA, config(ORACLES, rounds=3, protocol="published"), tmp_path / "study.json")
    assert trained.any()
    assert np.array_equal(followed[0], trained)


def test_views_by_hand() -> None:
    generator = np.random.default_rng(0)
    own = generator.standard_normal((30, 3)).astype(np.float32)
    assert np.allclose(np.diag(correlated(own, own)), 1)
    turned, _ = np.linalg.qr(generator.standard_normal((30, 6)))
    apart = correlated(turned[:, :3].astype(np.float32), turned[:, 3:].astype(np.float32))
    assert np.abs(apart).max() < 1e-6
    tops = top_items(own[:, 0][None], 10)
    assert rank_biased_overlap(tops, tops)[0] == pytest.approx(1)
