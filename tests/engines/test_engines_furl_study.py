"""The study: every configuration learns what it can, and repeats to the bit."""

from typing import Any

import numpy as np
import pytest
import torch

from secure_fedrec.algorithms.furl.configurations import CONFIGURATIONS
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import TrainingDraws, seeded_torch
from secure_fedrec.data.user_texts import UserTexts, encode_texts, split_by_user
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.document import PRIVATE, DocumentModel, document_loss
from secure_fedrec.models.split import ParameterSplit
from secure_fedrec.streams import Streams
from secure_fedrec.studies.furl.quality import DocumentQuality
from secure_fedrec.studies.furl.study import (
    FURLStudyConfig,
    furl_algorithm,
    furl_problem,
    run_furl_study,
)

WIDTHS = {"user_dim": 4, "character_dim": 6, "hidden": 6, "mlp": 24, "dropout": 0.0}
LABELS = np.array([0, 1, 2] * 4)
"""Favourite class of each user."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def texts() -> UserTexts:
    """Of 20 texts, a user posts 15 in its own class and 5 in the next; 7 in 10 texts say which."""
    rng = np.random.default_rng(8)
    users = np.repeat(np.arange(12), 20)
    label = (LABELS[users] + (np.tile(np.arange(20), 12) % 4 == 0)) % 3
    words = np.where(rng.random(240) < 0.7, np.array(["aaa", "bbb", "ccc"])[label], "zzz")
    text, length = encode_texts([f"{word}." for word in words.tolist()], 6)
    return UserTexts(
        name="made up",
        classes=("a", "b", "c"),
        user_labels=np.arange(12),
        users=users,
        text=text,
        length=length,
        label=label,
        part=split_by_user(users, seed=1),
    )


def study(name: str, **settings: Any) -> FURLStudyConfig:
    training = {"learning_rate": 0.3, "private_learning_rate": 1.0, "batch_size": 8}
    local = LocalTrainingConfig(**{**training, **settings.pop("training", {})})
    return FURLStudyConfig(
        configuration=name,
        training=local,
        **{"clients_per_round": 4, "epochs": 2, **WIDTHS, **settings},
    )


@pytest.fixture(scope="module")
def accuracy(texts: UserTexts) -> dict[str, float]:
    """Validation and test accuracy of every configuration after 14 epochs."""
    found = {}
    for name in CONFIGURATIONS:
        config = study(name, epochs=14, evaluate_every=14)
        last = run_furl_study(config, texts, seed=2).summary["last"]
        found[name] = (last["validation_accuracy"] + last["test_accuracy"]) / 2
    return found


def test_both_text_and_user_help_on_the_server_and_on_devices(accuracy: dict[str, float]) -> None:
    """Seven tenths of the texts tell the class, the user three quarters: 0.8, 0.75, 0.93."""
    for where in ("server", "fl"):
        text, user = accuracy[f"global-{where}"], accuracy[f"user-only-{where}"]
        both = accuracy[f"personalized-{where}"]
        assert min(text, user) > 0.65, where
        assert both > max(text, user) + 0.04, where


@pytest.mark.parametrize("name", ["personalized-fl", "personalized-server"])
def test_a_study_repeats_to_the_bit_and_follows_its_seed(texts: UserTexts, name: str) -> None:
    config = study(name, training={"optimizer": "adam", "learning_rate": 0.01}, dropout=0.2)
    one, again, other = (run_furl_study(config, texts, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.user_embeddings, again.user_embeddings)
    np.testing.assert_array_equal(one.federated, again.federated)
    assert not np.array_equal(one.federated, other.federated)
    assert one.user_embeddings.shape == (12, 4)


def test_a_server_is_one_optimiser_over_all_epochs(texts: UserTexts) -> None:
    settings = {"optimizer": "momentum", "learning_rate": 0.1, "private_learning_rate": None}
    config = study("personalized-server", training=settings, decay=0.5)
    found = run_furl_study(config, texts, seed=3)
    streams = Streams.from_seed(3)
    words = streams.stream("model-init").words_at(0, np.array([0]), np.array([0]), width=1)
    with seeded_torch(int(words[0, 0])):
        model = DocumentModel(config.model(3, users=12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    columns = {name: torch.from_numpy(each) for name, each in texts.columns("train").items()}
    for epoch in (1, 2):
        draws = TrainingDraws.at(streams.stream("server-training"), epoch, 0)
        order = torch.randperm(192, generator=torch.Generator().manual_seed(draws.order))
        for start in range(0, 192, 8):
            rows = order[start : start + 8]
            optimizer.zero_grad()
            batch = {name: each[rows] for name, each in columns.items()}
            document_loss(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5
    split = ParameterSplit.of(model, private=PRIVATE)
    np.testing.assert_array_equal(found.federated, split.read_federated(model))
    np.testing.assert_array_equal(found.user_embeddings.reshape(-1), split.read_private(model))


def test_the_learning_curve_has_a_point_per_asked_epoch_and_the_last(texts: UserTexts) -> None:
    seen: list[float] = []
    config = study("user-only-fl", epochs=5, evaluate_every=2)
    result = run_furl_study(config, texts, seed=1, report=lambda point: seen.append(point["epoch"]))
    assert seen == [2, 4, 5]
    summary = result.summary
    assert [point["epoch"] for point in summary["curve"]] == seen
    assert summary["last"] is summary["curve"][-1]
    best = max(point["validation_accuracy"] for point in summary["curve"])
    assert summary["best"]["validation_accuracy"] == best
    assert summary["majority"]["test_accuracy"] == pytest.approx(0.75, abs=0.2)
    assert summary["texts"] == {"train": 192, "validation": 24, "test": 24}


def test_an_epoch_is_as_many_rounds_as_invite_every_user_once(texts: UserTexts) -> None:
    for cohort, rounds in ((4, 3), (5, 3), (12, 1), (50, 1)):
        config = study("personalized-fl", epochs=7, clients_per_round=cohort)
        assert furl_algorithm(config, classes=3, users=12).rounds == 7 * rounds


def test_global_configurations_have_no_user_vector(texts: UserTexts) -> None:
    result = run_furl_study(study("global-fl", epochs=1), texts, seed=1)
    assert result.user_embeddings.shape == (12, 0)


def test_quality_scores_each_user_with_its_own_vector(texts: UserTexts) -> None:
    config = study("personalized-fl")
    algorithm = furl_algorithm(config, classes=3, users=12)
    quality = DocumentQuality(config.model(3, users=12), texts)
    problem = furl_problem(algorithm, texts, quality=quality)
    streams = Streams.from_seed(1)
    public = algorithm.initial_public(problem.n_rows, streams)
    algorithm.initialise(problem.vault, streams)
    vectors = np.random.default_rng(1).normal(size=(12, 4))
    problem.vault.write("private_parameters", np.arange(12), vectors)
    assert problem.evaluate is not None
    measured = problem.evaluate(public, problem.vault)
    assert measured is not None
    rows = texts.rows("test")
    right = []
    for row in rows.tolist():
        model = algorithm.local_model(public, problem.vault, int(texts.users[row]))
        columns = {name: column[rows == row] for name, column in texts.columns("test").items()}
        with torch.no_grad():
            scores = model(*(torch.from_numpy(columns[name]) for name in ("text", "length")))
        right.append(int(scores.argmax()) == texts.label[row])
    assert measured["test_accuracy"] == pytest.approx(np.mean(right))
    assert {"validation_accuracy", "test_accuracy_mixed"} <= measured.keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("configuration", "local"),
        ("epochs", 0),
        ("clients_per_round", 0),
        ("evaluate_every", 0),
        ("decay", 0.0),
    ],
)
def test_settings_out_of_range_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        FURLStudyConfig(**{"configuration": "global-fl", key: value})
    assert refused.value.key == f"furl.{key}"
