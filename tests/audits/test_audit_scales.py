"""Affine images of a file end alike, and what ``describe`` writes trains on any scale."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.families.ratings.lattice import Lattice
from attacks.scoring.games import evaluate
from audits.config import load_config
from audits.run.build import load_federation
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import rating_problem
from secure_fedrec.errors import DataError
from tests.attacks.configured import SERVER, recorded_as
from tests.audits.affine_images import IMAGES, Image, trained
from tests.audits.test_audit_file_cases import ASKED, READ, ROWS, answers, options_of, saved

Command = Callable[..., tuple[int, str, str]]
SCALES: dict[str, Callable[[int], object]] = {
    **{name: image.rating for name, image in IMAGES.items()},
    "hundreds": lambda r: 20 * r,
    "around 0": lambda r: r - 3,
    "below 0": lambda r: -r,
    "tiny": lambda r: f"0.0000{r}",
    "all but the top": lambda r: 1 if r == 1 else 100,
}


def table(seed: int, levels: int, kind: str) -> RatingTable:
    """Ratings of 30 clients for 25 items on the scale from 0, drawn as a kind of data has them."""
    rng = np.random.default_rng(seed)
    clients, items = np.nonzero(rng.random((30, 25)) < 0.4)
    top = levels - 1
    drawn = {
        "noise": rng.integers(0, levels, len(clients)),
        "liked": np.where(rng.random(len(clients)) < 0.95, top, 0),
        "disliked": np.where(rng.random(len(clients)) < 0.95, 0, top),
        "two tastes": np.where(clients % 2 == items % 2, top, 0),
    }
    return RatingTable.from_columns(
        name="drawn",
        n_clients=30,
        n_items=25,
        clients=clients,
        items=items,
        ratings=drawn[kind].astype(np.float64),
        scale=RatingScale(0.0, float(top), 1.0),
        client_labels=np.arange(30),
        item_labels=np.arange(25),
    )


KINDS = ("noise", "liked", "disliked", "two tastes")
TABLES = st.builds(table, st.integers(0, 10**6), st.integers(2, 101), st.sampled_from(KINDS))
AFFINE = st.builds(
    Image,
    st.sampled_from([0.1, 0.2, 1 / 3, 0.5, 1.0, 3.0, 7.0, 25.0, 1e6]),
    st.sampled_from([-1e3, -3.0, -0.5, 0.0, 1.0, 0.3, 100.0]),
)


@given(table=TABLES, image=AFFINE, biases=st.booleans())
@settings(max_examples=40)
def test_affine_images_train_alike_to_the_bit(
    table: RatingTable, image: Image, biases: bool
) -> None:
    given = PMFConfig(rank=4, rounds=3, biases=biases)
    one, other = (trained(each, rounds=3, settings=given) for each in (table, image.of(table)))
    for _ in range(3):
        reports = [engine.run_round() for engine in (one, other)]
    assert one.public.table.tobytes() == other.public.table.tobytes()
    mae, changed = ((report.metrics or {})["mae"] for report in reports)
    assert changed / image.factor == pytest.approx(mae, rel=1e-6)


@given(table=TABLES, rank=st.sampled_from([1, 4, 20]), biases=st.booleans())
@settings(max_examples=25)
def test_the_defaults_train_on_any_ratings(table: RatingTable, rank: int, biases: bool) -> None:
    engine = trained(table, rounds=60, settings=PMFConfig(rank=rank, rounds=60, biases=biases))
    for _ in range(60):
        engine.run_round()
    state = engine.state()
    assert np.abs(state["table"]).max() < 10


def test_ratings_are_mapped_level_by_level() -> None:
    fifths = table(1, 5, "noise").on(RatingScale(0.2, 1.0, 0.2).levels)
    problem = rating_problem(PMF(PMFConfig(rank=2)), fifths)
    assert problem.knowledge["rating_levels"] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    held = np.concatenate([problem.vault.rated(np.arange(30)).ratings])
    assert set(held.tolist()) == {-1.0, -0.5, 0.0, 0.5, 1.0}
    as_given = rating_problem(PMF(PMFConfig.printed(rank=2)), fifths)
    assert as_given.knowledge["rating_levels"] == fifths.scale.levels.tolist()
    with pytest.raises(DataError, match="3 levels do not stand for"):
        fifths.on(np.arange(3.0))


@pytest.mark.parametrize("factor", [2.0, 3.0, 25.0])
def test_divergence_is_caught_and_names_settings_that_train(
    command: Command, tmp_path: Path, factor: float
) -> None:
    path, config = tmp_path / "ratings.csv", tmp_path / "audit.toml"
    lines = [f"{user},{item},{factor * rating}" for user, item, rating, _ in ROWS]
    path.write_text("\n".join(["user,item,rating", *lines]) + "\n")
    assert command("data", "describe", path, "--write", config)[0] == 0
    printed = {name: getattr(PMFConfig.printed(), name) for name in PMFConfig.trains}
    told = [f"algorithm.{name}={json.dumps(value)}" for name, value in printed.items()]
    words = [word for each in told for word in ("--set", each)]
    code, _, said = command("train", config, *words, "--out", tmp_path / "run", "--quiet")
    assert code == 2
    assert "these settings train on ratings of any scale: " in said
    advised = re.findall(
        r"(algorithm\.\w+) = ([\w.]+?)(?:,|$)", said.rstrip().split("of any scale: ")[1]
    )
    assert len(advised) == len(printed)
    words = [word for key, value in advised for word in ("--set", f"{key}={value}")]
    code, _, said = command("train", config, *words, "--out", tmp_path / "run", "--quiet")
    assert code == 0, said


def train_as_written(config_path: Path) -> dict[str, float]:
    """Errors after all rounds of a configuration, in units of the scale's width."""
    federation = load_federation(load_config(config_path), None)
    engine = federation.engine(federation.fresh())
    reports = [engine.run_round() for _ in range(federation.config.algorithm.rounds)]
    assert np.isfinite(engine.public.table).all()
    task = federation.task
    assert hasattr(task, "table")
    width = task.table.scale.high - task.table.scale.low
    return {name: value / width for name, value in (reports[-1].metrics or {}).items()}


@pytest.mark.parametrize("kind", sorted({*READ, *ASKED}))
def test_what_describe_writes_trains(command: Command, tmp_path: Path, kind: str) -> None:
    case, config = {**READ, **ASKED}[kind], tmp_path / "audit.toml"
    path, told = saved(case, tmp_path), options_of(case)
    for _ in range(3):
        code, _, said = command("data", "describe", path, *told, "--write", config)
        if not code:
            break
        told += answers(said)[0]
    figures = train_as_written(config)
    assert figures
    assert all(0 <= value <= 1 for value in figures.values())


@pytest.mark.parametrize("name", SCALES)
def test_files_of_any_scale_end_alike(command: Command, tmp_path: Path, name: str) -> None:
    def written(change: Callable[[int], object]) -> dict[str, float]:
        path, config = tmp_path / "ratings.csv", tmp_path / "audit.toml"
        lines = [f"{user},{item},{change(rating)}" for user, item, rating, _ in ROWS]
        path.write_text("\n".join(["user,item,rating", *lines]) + "\n")
        code, _, said = command("data", "describe", path, "--write", config, "--force")
        assert code == 0, said
        return train_as_written(config)

    found = written(SCALES[name])
    assert 0 < found["mae"] < 0.5
    if name in IMAGES or name in ("hundreds", "around 0", "tiny"):
        assert found == pytest.approx(written(lambda rating: rating), rel=1e-6)


def test_ratings_on_a_scale_around_0_are_decoded() -> None:
    """Turning all signs gives the same rows; that people rate what they like settles it."""
    transcript, truth = recorded_as({"name": "pmf", "rank": 4, "rounds": 2})
    assert transcript.public["rating_levels"] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    finding = evaluate(Lattice(), SERVER, transcript, truth, seed=1)
    assert finding.figures["rating_accuracy"] is not None
    assert finding.figures["rating_accuracy"] > 0.8
    without = replace(truth, train=None)
    assert without.as_trained([1.0, 2.0]) is without
