"""FURL's experiment: one configuration, one seed, from first epoch to last.

An epoch is as much training as uses every example once (section 4.1): on a server one pass over the
pooled texts, in the federation ceil(users / cohort) rounds. The user numbers of a cohort are drawn
anew in every round, so within a federated epoch some users take part twice and others not at all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.furl.configurations import ConfiguredDocument
from secure_fedrec.algorithms.furl.settings import FURLConfig
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import (
    LocalOptimizer,
    TrainingDraws,
    seeded_torch,
    train_locally,
)
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data.user_texts import UserTexts
from secure_fedrec.engines.federated_problem import Problem
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.models.document import PRIVATE, DocumentModel, document_loss
from secure_fedrec.models.split import ParameterSplit
from secure_fedrec.settings import Count, Rate
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import unprotected
from secure_fedrec.studies.furl.quality import DocumentQuality, quality_of_users
from secure_fedrec.vault import Vault


class FURLStudyConfig(ConfiguredDocument, section="furl"):
    """Settings of a study, and of its model; the paper names cohort and epochs only.

    Args:
        epochs: number of epochs.
        clients_per_round: cohort of a federated round.
        training: of a client in a round, or of the server in an epoch (one pass, whatever
            ``epochs`` says there).
        decay: factor on the learning rates after every epoch.
        evaluate_every: epochs between two points of the learning curve; the last is always one.

    Raises:
        ConfigError: a field is out of range.
    """

    epochs: Count = 30
    clients_per_round: Count = 10
    training: LocalTrainingConfig = field(default_factory=LocalTrainingConfig)
    decay: Rate = 1.0
    evaluate_every: Count = 1


class StudyResult(NamedTuple):
    """What a study found.

    Attributes:
        summary: settings, learning curve and final metrics, as JSON values.
        user_embeddings: float64[U, d], the trained user vectors; d is 0 in a global configuration.
        federated: float64[n_federated], the trained shared parameters.
    """

    summary: dict[str, Any]
    user_embeddings: FloatArray
    federated: FloatArray


class _Trained(NamedTuple):
    federated: FloatArray
    private: FloatArray


def run_furl_study(
    config: FURLStudyConfig,
    data: UserTexts,
    *,
    seed: int,
    report: Callable[[Mapping[str, float]], None] | None = None,
) -> StudyResult:
    """Train one configuration and measure it after every epoch.

    Args:
        config: settings.
        data: texts; the model trains on the training part only.
        seed: of initialisation, cohorts, shuffling and dropout.
        report: told every point of the learning curve as it is measured.

    Returns:
        The result: a function of (config, data, seed) on one machine, apart from the seconds.
    """
    begun = process_time()
    quality = DocumentQuality(config.model(len(data.classes), users=data.n_users), data)
    train = _train_federation if config.configured.federated else _train_server
    curve: list[dict[str, float]] = []
    for epoch, trained in enumerate(train(config, data, Streams.from_seed(seed)), start=1):
        if epoch % config.evaluate_every and epoch != config.epochs:
            continue
        curve.append({"epoch": epoch, **quality.measure(*trained)})
        curve[-1]["seconds"] = process_time() - begun
        if report is not None:
            report(curve[-1])
    chosen = "validation_auc" if len(data.classes) == 2 else "validation_accuracy"
    rows = data.rows("test")
    majority = quality_of_users(data, rows)
    summary = {
        "configuration": config.configuration,
        "seed": seed,
        "users": data.n_users,
        "texts": {part: len(data.rows(part)) for part in ("train", "validation", "test")},
        "curve": curve,
        "last": curve[-1],
        "best": max(curve, key=lambda point: point.get(chosen, 0.0)),
        "majority": {f"test_{name}": value for name, value in majority.items()},
        "seconds": process_time() - begun,
    }
    return StudyResult(summary, trained.private, trained.federated)


def furl_algorithm(config: FURLStudyConfig, *, classes: int, users: int) -> FURL:
    """FURL, or Federated Averaging without personalization, with the rounds of all epochs."""
    rounds = _rounds_per_epoch(config, users)
    return FURL(
        lambda: DocumentModel(config.model(classes, users=1)),
        document_loss,
        FURLConfig(
            rounds=rounds * config.epochs,
            local=config.training,
            decay=config.decay ** (1 / rounds),
        ),
        private=PRIVATE if config.configured.personal else None,
    )


def furl_problem(
    algorithm: FURL, data: UserTexts, *, quality: DocumentQuality | None = None
) -> Problem:
    """Training texts in the vaults, held-out ones for the metrics of every round.

    Args:
        algorithm: what is trained.
        data: the texts.
        quality: measures a state after every round; None measures nothing.
    """

    def evaluate(public: PublicState, vault: Vault) -> Mapping[str, float] | None:
        return None if quality is None else quality.measure(*_state(algorithm, public, vault))

    return Problem(
        vault=data.vault(),
        evaluate=evaluate,
        knowledge={"classes": list(data.classes), "text_length": data.text.shape[1]},
    )


def _train_federation(
    config: FURLStudyConfig, data: UserTexts, streams: Streams
) -> Iterator[_Trained]:
    """Rounds of FURL on plain sums, epoch by epoch: every protection gives the same bits."""
    algorithm = furl_algorithm(config, classes=len(data.classes), users=data.n_users)
    problem = furl_problem(algorithm, data)
    cohort = CohortConfig(clients_per_round=min(config.clients_per_round, data.n_users))
    engine = unprotected(algorithm, problem, streams, cohort=cohort)
    for _ in range(config.epochs):
        for _ in range(_rounds_per_epoch(config, data.n_users)):
            engine.run_round()
        yield _state(algorithm, engine.public, problem.vault)


def _train_server(config: FURLStudyConfig, data: UserTexts, streams: Streams) -> Iterator[_Trained]:
    """Minibatch steps on the pooled texts, with a table of user embeddings, epoch by epoch."""
    words = streams.stream("model-init").words_at(0, np.array([0]), np.array([0]), width=1)
    with seeded_torch(int(words[0, 0])):
        model = DocumentModel(config.model(len(data.classes), users=data.n_users))
    split = ParameterSplit.of(model, private=PRIVATE if config.configured.personal else None)
    optimizer = LocalOptimizer(
        model,
        replace(config.training, epochs=1),
        private=[segment.name for segment in split.private],
    )
    examples, stream = data.columns("train"), streams.stream("server-training")
    moments = None
    for epoch in range(1, config.epochs + 1):
        train_locally(
            model,
            document_loss,
            examples,
            optimizer=optimizer,
            draws=TrainingDraws.at(stream, epoch, 0),
            state=moments,
            rate_scale=config.decay ** (epoch - 1),
        )
        moments = optimizer.state()
        private = split.read_private(model).reshape(data.n_users, -1)
        yield _Trained(split.read_federated(model), private)


def _state(algorithm: FURL, public: PublicState, vault: Vault) -> _Trained:
    """Shared values and those of every client."""
    private = algorithm.private_values(public, vault, np.arange(vault.n_clients))
    return _Trained(algorithm.federated_values(public).copy(), private)


def _rounds_per_epoch(config: FURLStudyConfig, users: int) -> int:
    return -(-users // min(config.clients_per_round, users))
