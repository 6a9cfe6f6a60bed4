"""Pairs of user spaces, the drawings, and ``reproduce furl`` from end to end."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from audits import cli
from audits.reproduction.furl import paper as made
from audits.reproduction.furl.paper import Needed, PaperTask, Stored, load_paper
from audits.reproduction.furl.spaces import (
    Group,
    compare_spaces,
    curves_chart,
    groups_of,
    pair_studies,
    spaces_chart,
)
from secure_fedrec.algorithms.local_training import seeded_torch
from secure_fedrec.errors import DataError
from secure_fedrec.evaluation.representations import representational_similarity
from secure_fedrec.models.document import DocumentModel
from secure_fedrec.studies.furl.results import StudyTexts, UserVectors

PAPER = load_paper()
NEWSGROUPS, STICKERS = PAPER.tasks["newsgroups"], PAPER.tasks["stickers"]
RNG = np.random.default_rng(5)
SERVER, FEDERATION = "personalized-server", "personalized-fl"


def study(task: PaperTask, configuration: str, seed: int, *, data_seed: int, path: Path) -> Stored:
    return Stored(
        path=path / f"{configuration}-{seed}.json",
        place=Needed(task.name, configuration, seed),
        texts=StudyTexts(task=task.name, seed=data_seed),
        config=task.settings[configuration],
        summary={},
    )


def studies(
    task: PaperTask, *of: tuple[str, int, int], path: Path = Path()
) -> dict[Needed, Stored]:
    made = [study(task, name, seed, data_seed=data, path=path) for name, seed, data in of]
    return {each.place: each for each in made}


def pairs(task: PaperTask, found: dict[Needed, Stored]) -> list[tuple[int, int, str, str]]:
    return [
        (pair.federation.place.seed, pair.server.place.seed, pair.start, pair.texts)
        for pair in pair_studies(task, found, (1, 2, 3))
    ]


def every(name: str, data: tuple[int, int, int]) -> list[tuple[str, int, int]]:
    return [(name, seed, data[seed - 1]) for seed in (1, 2, 3)]


def test_with_one_seed_the_encoders_of_server_and_device_start_alike() -> None:
    """What makes studies of one seed no independent pair; the layers behind the text do differ."""
    config = STICKERS.settings[FEDERATION]
    start = []
    for users in (1, 300):
        with seeded_torch(11):
            start.append(dict(DocumentModel(config.model(2, users=users)).named_parameters()))
    device, server = start
    for name, values in device.items():
        if name.startswith(("character_embedding", "forward_lstm", "backward_lstm")):
            assert torch.equal(values, server[name]), name
    assert not torch.equal(device["hidden.weight"], server["hidden.weight"])
    assert not server["user_embedding.weight"].any()


def test_spaces_of_different_seeds_on_the_same_texts_come_first() -> None:
    found = studies(STICKERS, *every(SERVER, (1, 1, 1)), *every(FEDERATION, (1, 1, 1)))
    assert pairs(STICKERS, found) == [
        (1, 2, "independent", "same"),
        (2, 3, "independent", "same"),
        (3, 1, "independent", "same"),
    ]


def test_posters_are_the_same_on_every_split() -> None:
    found = studies(NEWSGROUPS, *every(SERVER, (1, 2, 3)), *every(FEDERATION, (1, 2, 3)))
    assert pairs(NEWSGROUPS, found) == [
        (1, 2, "independent", "another split"),
        (2, 3, "independent", "another split"),
        (3, 1, "independent", "another split"),
    ]
    mixed = studies(NEWSGROUPS, *every(SERVER, (1, 2, 1)), *every(FEDERATION, (1, 2, 3)))
    assert pairs(NEWSGROUPS, mixed)[0] == (1, 3, "independent", "same")


def test_made_up_users_of_other_data_are_never_compared() -> None:
    found = studies(STICKERS, *every(SERVER, (1, 2, 3)), *every(FEDERATION, (1, 2, 3)))
    assert pairs(STICKERS, found) == [(seed, seed, "same encoder", "same") for seed in (1, 2, 3)]
    assert pairs(STICKERS, studies(STICKERS, (SERVER, 1, 1), (FEDERATION, 1, 2))) == []


def test_a_single_seed_is_compared_with_itself_and_said_to_be() -> None:
    found = studies(NEWSGROUPS, (SERVER, 1, 1), (FEDERATION, 1, 1))
    assert pairs(NEWSGROUPS, found) == [(1, 1, "same encoder", "same")]


def save(path: Path, vectors: Any, *, first_user: int = 0) -> None:
    np.savez(
        path.with_suffix(".npz"),
        user_embeddings=vectors,
        user_labels=np.arange(len(vectors)) + first_user,
        majority_labels=np.zeros(len(vectors), dtype=np.int64),
    )


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    found = studies(STICKERS, (SERVER, 1, 1), (FEDERATION, 2, 1), path=tmp_path)
    return pair_studies(STICKERS, found, (1, 2))[0]


def test_users_who_never_took_part_are_left_out(pair: Any) -> None:
    server = RNG.normal(size=(30, 3))
    federation = server[:, ::-1] + 0.2 * RNG.normal(size=(30, 3))
    federation[4] = 0
    save(pair.server.path, server)
    save(pair.federation.path, federation)
    found = compare_spaces(pair)
    learnt = np.arange(30) != 4
    expected = representational_similarity(server[learnt], federation[learnt])
    assert found["correlation"] == pytest.approx(expected)
    assert found["low"] > max(found["permuted"], found["untrained"])
    assert (found["users"], found["left_out"]) == (29, 1)
    assert (found["federation_seed"], found["server_seed"]) == (2, 1)


def test_spaces_that_cannot_be_compared_say_why(pair: Any) -> None:
    save(pair.server.path, RNG.normal(size=(30, 3)))
    save(pair.federation.path, np.zeros((30, 3)))
    assert "0 users" in compare_spaces(pair)["problem"]


def test_spaces_of_other_users_are_refused(pair: Any) -> None:
    save(pair.server.path, RNG.normal(size=(30, 3)))
    save(pair.federation.path, RNG.normal(size=(30, 3)), first_user=1)
    with pytest.raises(DataError, match="has other users than"):
        compare_spaces(pair)


def users(majority: Any, counts: Any = None) -> UserVectors:
    return UserVectors(
        embeddings=np.zeros((len(majority), 2)),
        users=np.arange(len(majority)),
        majority=np.asarray(majority),
        label_counts=None if counts is None else np.asarray(counts),
    )


def test_the_five_largest_groups_are_named() -> None:
    found = groups_of(users([0] * 6 + [1] * 5 + [2] * 4 + [3] * 3 + [4] * 2 + [5]), ["a", "b"])
    assert [group.name for group in found] == ["a", "b", "class 2", "class 3", "class 4", "others"]
    assert [int(group.users.sum()) for group in found] == [6, 5, 4, 3, 2, 1]
    assert [group.name for group in groups_of(users([1, 1, 0]), ["a", "b"])] == ["b", "a"]


def test_of_two_classes_users_are_told_apart_by_their_share() -> None:
    counts = [[9 - clicks, clicks] for clicks in range(8)]
    found = groups_of(users([0] * 8, counts), ["no click", "click"])
    assert [np.flatnonzero(group.users).tolist() for group in found] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]
    assert found[0].name == "lowest quarter of clicks"


def texts_of(svg: str) -> str:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own drawing
    assert root.tag.endswith("svg")
    return " ".join(root.itertext())


def test_curves_are_drawn_and_told() -> None:
    curve = {
        "seeds": 2,
        "epochs": [1, 2],
        "mean": [0.2, 0.4],
        "low": [0.1, 0.3],
        "high": [0.3, 0.5],
    }
    names = {"global-fl": "Global FL", "personalized-fl": "Personalized <FL>"}
    svg = curves_chart(dict.fromkeys(names, curve), names, task="newsgroups", measure="accuracy")
    told = texts_of(svg)
    assert "Personalized <FL> ends at 0.400 after 2 epochs" in told
    assert svg.count("clip-path") >= 4  # a band and a line of each
    assert "Accuracy in validation" in told
    assert "newsgroups" in texts_of(curves_chart({}, {}, task="newsgroups", measure="accuracy"))


def test_spaces_are_drawn_beside_each_other() -> None:
    groups = [Group("a", np.arange(30) < 12), Group("b", np.arange(30) >= 12)]
    spaces = {"Server": RNG.normal(size=(30, 3)), "FL": np.zeros((30, 3))}
    svg = spaces_chart(spaces, groups, task="stickers")
    told = texts_of(svg)
    assert "in Server and FL: a 12, b 18" in told
    assert "nothing to tell apart" in told
    assert svg.count("<use") >= 30


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("furl")
    assert cli.main(["reproduce", "furl", "--quick", "--quiet", "--out", str(out)]) == 0
    return out


def test_a_quick_run_fills_table_and_figures(quick: Path) -> None:
    result = json.loads((quick / "furl.json").read_text())
    (task,) = result["tasks"]
    assert "NOT ITS DATA" in task["our_data"]
    assert task["seeds"] == [1, 2]
    for row in task["rows"]:
        if row["configuration"] != "majority":
            assert 0 < row["measures"]["auc"]["best"]["mean"] < 1
    assert [each["start"] for each in task["similarity"]] == ["independent"] * 2
    assert task["notes"] == []
    assert not any(study["differs"] for study in task["studies"])
    assert "NOT ITS DATA" in (quick / "furl.txt").read_text()
    assert len(result["figures"]) == 2
    for figure in result["figures"]:
        drawn = Path(figure).read_text()
        assert drawn.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
        assert "Personalized FL" in texts_of(drawn)
    assert "lowest quarter of clicks" in drawn


def test_finished_studies_are_not_run_again(
    quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(made, "run_furl_study", None)
    words = ["reproduce", "furl", "--quick", "--quiet", "--json", "--out", str(quick)]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["tasks"][0]["table"] == 3
