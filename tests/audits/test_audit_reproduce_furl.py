"""``reproduce furl``: numbers of hand-made studies, what is refused, and what is said of them."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits import cli
from audits.reproduction.furl import paper as made
from audits.reproduction.furl.paper import (
    Needed,
    PaperTask,
    Stored,
    StudySource,
    find_studies,
    load_paper,
    parse_paper,
)
from audits.reproduction.furl.tables import (
    MAJORITY,
    as_lines,
    compare_task,
    learning_curves,
    notes_on,
)
from audits.reproduction.papers import read_paper
from secure_fedrec.errors import ConfigError, DataError

PAPER = load_paper()
TASK = PAPER.tasks["newsgroups"]
ROWS = tuple(PAPER.rows)
USERS = 40


def point(epoch: int, accuracy: float, **more: float) -> dict[str, float]:
    return {
        "epoch": epoch,
        "validation_accuracy": accuracy + 0.01,
        "validation_auc": accuracy + 0.02,
        "test_accuracy": accuracy,
        "test_auc": accuracy / 2,
        "test_accuracy_mixed": accuracy / 4,
        "seconds": 1.0,
        **more,
    }


def write(
    folder: Path,
    configuration: str,
    seed: int,
    accuracy: float,
    *,
    task: PaperTask = TASK,
    name: str = "",
    texts: Mapping[str, int] | None = None,
    vectors: Any = None,
    **settings: Any,
) -> Path:
    """A study of two epochs, the first of which is the better one, with its pinned settings."""
    config = replace(task.settings[configuration], **settings)
    own = {**task.texts_of(seed).settings(), **(texts or {})}
    first, last = point(1, accuracy), point(2, accuracy - 0.1)
    summary = {
        "task": task.name,
        "data_seed": own["seed"],
        "length": own.get("length", 256),
        "config": asdict(config),
        "configuration": configuration,
        "seed": seed,
        "users": own.get("users", USERS),
        "texts": {"train": 8, "validation": 1, "test": 1},
        "curve": [first, last],
        "last": last,
        "best": first,
        "majority": {"test_accuracy": 0.5 + seed / 100, "test_accuracy_mixed": 0.2},
        "seconds": 2.0,
    }
    path = folder / f"{name or f'{configuration}-{seed}'}.json"
    path.write_text(json.dumps(summary))
    if vectors is None:
        vectors = np.random.default_rng(seed).normal(size=(USERS, 3))
    np.savez(
        path.with_suffix(".npz"),
        user_embeddings=vectors,
        user_labels=np.arange(len(vectors)),
        majority_labels=np.arange(len(vectors)) % 3,
        federated=np.zeros(2),
    )
    return path


ACCURACY = {
    "global-server": (0.70, 0.72),
    "personalized-server": (0.90, 0.94),
    "global-fl": (0.50, 0.52),
    "personalized-fl": (0.88, 0.90),
    "user-only-fl": (0.84, 0.85),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All studies of newsgroups under two seeds."""
    for configuration, values in ACCURACY.items():
        for seed, accuracy in enumerate(values, start=1):
            write(tmp_path, configuration, seed, accuracy)
    return tmp_path


def stored(
    folder: Path, task: PaperTask = TASK, seeds: tuple[int, ...] = (1, 2)
) -> dict[Needed, Stored]:
    needed = made.needed_studies([task], ROWS, seeds)
    source = StudySource(folder=folder, paper=PAPER, run=False, progress=False)
    return find_studies(needed, source)


def test_means_and_intervals_over_seeds(folder: Path) -> None:
    found = compare_task(PAPER, TASK, stored(folder), (1, 2))
    rows = {row["configuration"]: row["measures"]["accuracy"] for row in found["rows"]}
    best = rows["personalized-server"]["best"]
    assert rows["personalized-server"]["paper"] == 0.6613
    assert best["mean"] == pytest.approx(0.92)
    assert best["values"] == pytest.approx({"1": 0.90, "2": 0.94})
    # Deviation 0.0283, t(1) at 97.5 % is 12.706.
    assert best["deviation"] == pytest.approx(0.04 / 2**0.5)
    assert best["high"] - best["mean"] == pytest.approx(12.7062 * 0.02, rel=1e-4)
    assert rows["personalized-server"]["last"]["mean"] == pytest.approx(0.82)
    assert rows["majority"]["best"]["mean"] == pytest.approx(0.515)
    assert rows["majority"]["last"] == rows["majority"]["best"]
    assert rows["majority"]["paper"] is None


def test_gains_are_taken_seed_by_seed_in_points(folder: Path) -> None:
    found = compare_task(PAPER, TASK, stored(folder), (1, 2))
    gains = {(gain["one"], gain["other"]): gain["measures"] for gain in found["gains"]}
    server = gains["personalized-server", "global-server"]["accuracy"]
    assert server["paper"] == 37.20
    assert server["best"]["values"] == pytest.approx({"1": 20.0, "2": 22.0})
    assert server["best"]["mean"] == pytest.approx(21.0)
    mixed = gains["personalized-server", "global-server"]["accuracy_mixed"]
    assert mixed["paper"] is None
    assert mixed["best"]["mean"] == pytest.approx(21.0 / 4)
    gap = gains["personalized-fl", "personalized-server"]["accuracy"]
    assert gap["paper"] == -3.72
    assert gap["best"]["mean"] == pytest.approx(-3.0)
    alone = gains["personalized-fl", "user-only-fl"]["accuracy"]
    assert alone["paper"] is None
    assert alone["last"]["mean"] == pytest.approx(4.5)
    over = gains["personalized-fl", "majority"]["accuracy_mixed"]
    assert over["best"]["mean"] == pytest.approx(100 * (0.89 / 4 - 0.2))


def test_a_seed_that_lacks_one_study_is_left_out_of_its_gains_only(folder: Path) -> None:
    (folder / "global-fl-2.json").unlink()
    found = compare_task(PAPER, TASK, stored(folder), (1, 2))
    gains = {(gain["one"], gain["other"]): gain["measures"] for gain in found["gains"]}
    federation = gains["personalized-fl", "global-fl"]["accuracy"]["best"]
    assert federation["values"] == pytest.approx({"1": 38.0})
    assert federation["low"] is None
    assert len(gains["personalized-fl", "user-only-fl"]["accuracy"]["best"]["values"]) == 2


def test_stickers_are_measured_by_area_and_the_majority_class_has_none(tmp_path: Path) -> None:
    stickers = PAPER.tasks["stickers"]
    write(tmp_path, "personalized-fl", 1, 0.8, task=stickers)
    found = compare_task(PAPER, stickers, stored(tmp_path, stickers, (1,)), (1,))
    rows = {row["configuration"]: row["measures"] for row in found["rows"]}
    assert rows["personalized-fl"]["auc"]["best"]["mean"] == pytest.approx(0.4)
    assert rows["personalized-fl"]["auc"]["paper"] == 0.6563
    assert rows["personalized-fl"]["accuracy"]["paper"] is None
    assert rows["majority"]["auc"]["best"] is None
    assert rows["majority"]["accuracy"]["best"]["mean"] == pytest.approx(0.51)
    assert "auc_mixed" not in rows["majority"]


def test_curves_are_drawn_where_all_seeds_were_measured(folder: Path) -> None:
    studies = dict(stored(folder))
    place = Needed("newsgroups", "global-fl", 2)
    longer = [*studies[place].summary["curve"], point(3, 0.9)]
    studies[place] = replace(studies[place], summary={**studies[place].summary, "curve": longer})
    curve = learning_curves(TASK, ROWS, studies, (1, 2))["global-fl"]
    assert curve["epochs"] == [1, 2]
    assert curve["mean"] == pytest.approx([0.52, 0.42])
    assert curve["low"] == pytest.approx([0.51, 0.41])
    assert curve["high"] == pytest.approx([0.53, 0.43])
    assert learning_curves(TASK, ROWS, {}, (1, 2)) == {}


def test_numbers_are_those_of_the_paper() -> None:
    """The table, and the differences that the paper names in words."""
    assert TASK.paper == {
        "global-server": 0.2893,
        "personalized-server": 0.6613,
        "global-fl": 0.1190,
        "personalized-fl": 0.6241,
    }
    stickers = PAPER.tasks["stickers"].paper
    for paper, one, other, points in (
        (stickers, "personalized-server", "global-server", 7.85),
        (stickers, "personalized-fl", "global-fl", 8.39),
        (TASK.paper, "personalized-server", "global-server", 37.20),
        (TASK.paper, "personalized-fl", "global-fl", 50.51),
        (TASK.paper, "personalized-fl", "personalized-server", -3.72),
    ):
        assert 100 * (paper[one] - paper[other]) == pytest.approx(points)


def test_pinned_settings() -> None:
    private = TASK.settings["personalized-fl"]
    assert (private.epochs, private.decay, private.clients_per_round) == (40, 0.96, 10)
    assert private.training.private_learning_rate == 2.0
    assert private.training.batch_size is None
    server = TASK.settings["personalized-server"]
    assert (server.epochs, server.training.optimizer) == (10, "adam")
    assert server.training.batch_size == 32
    assert TASK.texts_of(3).seed == 3
    assert PAPER.tasks["stickers"].texts_of(3).seed == 1
    assert set(PAPER.rows) == set(ACCURACY)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda raw: raw.update(seed=[1]), "seed"),
        (lambda raw: raw.update(repetitions=6), "repetitions"),
        (lambda raw: raw["rows"].update(local="Local"), "rows"),
        (lambda raw: raw["tasks"].update(tweets={}), "tasks"),
        (lambda raw: raw["tasks"]["stickers"].update(measures=[]), "tasks.stickers.measures"),
        (lambda raw: raw["tasks"]["stickers"]["texts"].update(user=3), "tasks.stickers.texts.user"),
        (lambda raw: raw["tasks"]["stickers"]["settings"].pop("global-fl"), "tasks.stickers"),
        (
            lambda raw: raw["tasks"]["stickers"]["settings"]["global-fl"].update(epochs="8"),
            "tasks.stickers.settings.global-fl.epochs",
        ),
        (
            lambda raw: raw["tasks"]["stickers"]["settings"]["global-fl"]["training"].update(
                optimizer="adagrad"
            ),
            "tasks.stickers.settings.global-fl.training.optimizer",
        ),
        (lambda raw: raw["quick"].update(task="tweets"), "quick.task"),
        (lambda raw: raw["quick"].update(repetitions=0), "quick.repetitions"),
        (lambda raw: raw["quick"]["settings"].update(epochs=0), "quick.settings.epochs"),
    ],
)
def test_a_wrong_pin_is_named(change: Callable[[dict[str, Any]], object], key: str) -> None:
    raw = read_paper("furl")
    change(raw)
    with pytest.raises(ConfigError) as refused:
        parse_paper(raw, quick=True)
    assert refused.value.key.startswith(key)


def test_what_is_compared_stands_in_the_table() -> None:
    named = {name for one, other, _ in PAPER.compared for name in (one, other)}
    assert named == {*PAPER.rows, MAJORITY}


def test_two_studies_of_one_place_with_other_settings_are_refused(folder: Path) -> None:
    write(folder, "global-fl", 2, 0.9, name="zz-again", decay=0.5)
    with pytest.raises(DataError) as refused:
        stored(folder)
    told = str(refused.value)
    assert "zz-again.json" in told
    assert "global-fl-2.json" in told
    assert "decay 0.96 and 0.5" in told
    # Of a seed that is not used, they are nobody's business.
    assert len(stored(folder, seeds=(1,))) == len(ROWS)


def test_a_split_of_its_own_is_another_setting(folder: Path) -> None:
    write(folder, "global-fl", 2, 0.9, name="zz-again", texts={"seed": 7})
    with pytest.raises(DataError, match=r"texts\.seed 2 and 7"):
        stored(folder)


def notes(folder: Path) -> list[str]:
    return notes_on(TASK, made.needed_studies([TASK], ROWS, (1, 2)), stored(folder))


def test_other_settings_than_pinned_are_used_and_told(folder: Path) -> None:
    assert notes(folder) == []
    for seed in (1, 2):
        write(folder, "global-server", seed, 0.3, epochs=2)
    assert notes(folder) == [
        "global-server-1.json, global-server-2.json: other settings than pinned: "
        "epochs = 2 (pinned: 12)"
    ]
    found = compare_task(PAPER, TASK, stored(folder), (1, 2))
    assert found["rows"][0]["measures"]["accuracy"]["best"]["mean"] == pytest.approx(0.3)


def test_a_mean_over_different_settings_is_told(folder: Path) -> None:
    write(folder, "global-server", 2, 0.3, epochs=2)
    assert notes(folder)[-1] == "global-server: THE MEAN JOINS STUDIES OF DIFFERENT SETTINGS"
    write(folder, "global-server", 2, 0.3, texts={"seed": 1})
    assert notes(folder) == [
        "global-server-2.json: other settings than pinned: texts.seed = 1 (pinned: 2)"
    ]


def test_repetitions_and_gaps_are_told(folder: Path) -> None:
    write(folder, "user-only-fl", 1, 0.84, name="zz-copy")
    (folder / "personalized-fl-2.json").unlink()
    assert notes(folder) == [
        "personalized-fl: not run for seed 2",
        "zz-copy.json repeats user-only-fl-1.json and is not used",
    ]


def test_missing_studies_are_run_as_pinned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Needed] = []

    def run(needed: Needed, source: StudySource, tell: object) -> Stored:
        ran.append(needed)
        return stored(folder)[Needed("newsgroups", "global-fl", 1)]

    monkeypatch.setattr(made, "_run", run)
    needed = made.needed_studies([TASK], ROWS, (1, 2, 3))
    found = find_studies(needed, StudySource(folder=folder, paper=PAPER, progress=False))
    assert ran == [each for each in needed if each.seed == 3]
    assert set(found) == set(needed)


def test_what_another_process_made_meanwhile_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study of the folder by the name that it will have, after the folder was looked through."""
    monkeypatch.setattr(made, "run_furl_study", None)
    source = StudySource(folder=folder, paper=PAPER, progress=False)
    place = Needed("newsgroups", "global-fl", 1)
    written = stored(folder)[place]
    written.path.rename(folder / "newsgroups-global-fl-1.json")
    assert made._run(place, source, print).summary == written.summary
    (folder / "newsgroups-global-fl-1.json").rename(folder / "newsgroups-global-fl-2.json")
    with pytest.raises(DataError, match="is of global-fl on newsgroups, seed 1, not of"):
        made._run(place._replace(seed=2), source, print)


def test_text_shows_paper_and_ours(folder: Path) -> None:
    found = {
        "task": "newsgroups",
        "paper_data": TASK.paper_data,
        "our_data": TASK.our_data,
        "seeds": [1, 2],
        "between_seeds": TASK.between_seeds,
        "similarity": [],
        "notes": ["something odd"],
        **compare_task(PAPER, TASK, stored(folder), (1, 2)),
    }
    text = "\n".join(as_lines(found))
    assert "Subreddit" in text
    assert "a stand-in, 20 Newsgroups" in text
    assert re.search(r"Personalized Server +66\.13 +92\.00 \[66\.59, 117\.41\]", text)
    assert "+37.20" in text
    assert "+21.00" in text
    assert "Accuracy on users of several classes" in text
    assert "seeds differ in training and the split of the texts" in text
    assert "note: something odd" in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["furl", "--table", "2"], "--table"),
        (["furl", "--task", "tweets"], "choices: newsgroups, stickers"),
        (["furl", "--seeds", "6"], "must be 1 to 5"),
        (["furl", "--form", "paper"], "is an option of hpfl only"),
        (["furl", "--quick", "--results", "elsewhere"], "--results"),
        (["furl", "--no-run"], "holds no study"),
        (["fedrec"], "choices: fed3cr, feddmf, fedrecpp, furl, hpfl"),
    ],
)
def test_bad_usage(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", *words, "--out", str(tmp_path), "--quiet"]) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.rglob("*"))


def test_mixed_studies_end_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "global-fl", 2, 0.9, name="zz-again", decay=0.5)
    words = ["reproduce", "furl", "--results", str(folder), "--no-run", "--quiet"]
    assert cli.main([*words, "--out", str(folder / "out")]) == 2
    assert "keep one of them" in capsys.readouterr().err


def test_missing_posts_end_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "furl", "--task", "newsgroups", "--data-dir", str(tmp_path), "--quiet"]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "20newsgroups" in capsys.readouterr().err
