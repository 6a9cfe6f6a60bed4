"""Attacks on FURL itself: exact on plain uploads, at chance on hidden ones."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

from attacks import SUITE, Finding, GroundTruth, attack_named, evaluate
from attacks.families.split.output_bias import CLASSES, MAJORITY
from attacks.planted.split import plant_split
from secure_fedrec.algorithms.furl.settings import FURLConfig
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.engines import Problem, RecordedRun, sizes_of
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.document import PRIVATE as DOCUMENT_PRIVATE
from secure_fedrec.models.document import DocumentModel, document_loss
from secure_fedrec.models.ncf.split import ITEM_TABLE, PRIVATE, NCFSplit, ncf_loss
from secure_fedrec.models.settings import DocumentConfig, NCFSplitConfig
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.stacking import build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Adversary, RecordingPolicy, Transcript
from tests.attacks.configured import recorded_as

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
OUTSIDER = Adversary(name="outsider", corrupt=frozenset({"client:3"}))
FURL_ATTACKS = ("dense-layer", "output-bias", "touched-rows", "signed-rows", "attribute-inference")
HIDING: Mapping[str, Any] = {
    "masking": MaskingLayerConfig(),
    "paillier": EncryptionLayerConfig(),
}
ROUNDS = 2


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def record(
    algorithm: FURL,
    vault: Vault,
    knowledge: Mapping[str, Any],
    layers: Mapping[str, Any] | None = None,
    payload_rounds: tuple[int, ...] = (2,),
) -> RecordedRun:
    streams, codec = Streams.from_seed(11), FixedPoint()
    problem = Problem(vault=vault, knowledge=knowledge)
    sizes = sizes_of(algorithm, problem)
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers or {}, sizes=sizes, codec=codec, streams=streams),
        problem=problem,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds),
    )
    for _ in range(ROUNDS):
        run.run_round()
    return run


@cache
def table() -> RatingTable:
    return generate(SyntheticConfig(clients=40, items=80, mean_ratings=14.0, seed=5))


@cache
def on_ratings(
    *, hidden: str = "", batch_size: int | None = None, payload_rounds: tuple[int, ...] = (2,)
) -> tuple[RecordedRun, GroundTruth]:
    """FURL on explicit ratings; user vectors start at zero."""
    config = NCFSplitConfig(items=80, dim=5, hidden=(12, 6), centre=3.0, deviation=0.0)
    local = LocalTrainingConfig(learning_rate=0.3, batch_size=batch_size)
    algorithm = FURL(
        lambda: NCFSplit(config), ncf_loss, FURLConfig(rounds=ROUNDS, local=local), private=PRIVATE
    )
    layers = {hidden: HIDING[hidden]} if hidden else None
    knowledge = {"item_table": ITEM_TABLE, "negatives": 0}
    run = record(algorithm, vault_of(table()), knowledge, layers, payload_rounds)
    return run, GroundTruth(recorded=run.truth, train=table())


@cache
def on_texts(*, masked: bool = False) -> tuple[RecordedRun, GroundTruth]:
    """FURL on texts of twelve writers, each with a favourite class and an alphabet of its own."""
    rng, writers, posts, length = np.random.default_rng(2), 24, 5, 9
    labels = np.where(
        rng.random((writers, posts)) < 0.8,
        np.arange(writers)[:, None] % 4,
        rng.integers(0, 4, (writers, posts)),
    )
    alphabets = np.stack([1 + rng.choice(19, 6, replace=False) for _ in range(writers)])
    texts = np.stack([rng.choice(own, (posts, length)) for own in alphabets])
    config = DocumentConfig(
        characters=20, classes=4, user_dim=4, character_dim=3, hidden=4, mlp=8, dropout=0.0
    )
    algorithm = FURL(
        lambda: DocumentModel(config),
        document_loss,
        FURLConfig(rounds=ROUNDS, local=LocalTrainingConfig(learning_rate=0.5)),
        private=DOCUMENT_PRIVATE,
    )
    columns = {
        "text": texts.reshape(-1, length).astype(np.uint8),
        "length": np.full(writers * posts, length),
        "label": labels.reshape(-1),
    }
    vault = Vault.of_examples(np.arange(writers + 1) * posts, columns)
    layers = {"masking": MaskingLayerConfig()} if masked else None
    run = record(algorithm, vault, {}, layers)
    counts = np.stack([np.bincount(own, minlength=4) for own in labels])
    used = np.stack([np.isin(np.arange(20), own) for own in texts.reshape(writers, -1)])
    truth = GroundTruth(
        recorded=run.truth,
        secrets={
            f"labels.{MAJORITY}": counts.argmax(axis=1),
            f"sets.{CLASSES}": counts > 0,
            "sets.character_embedding.weight": used,
        },
    )
    return run, truth


def play(name: str, case: tuple[RecordedRun, GroundTruth], who: Adversary = SERVER) -> Finding:
    run, truth = case
    return evaluate(attack_named(name), who, run.transcript, truth, seed=0)


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None
    return value


# --- plain uploads --------------------------------------------------------------------------------


def test_private_vectors_come_back_from_one_full_step() -> None:
    finding = play("dense-layer", on_ratings())
    assert finding.rounds == (2,)
    assert figure(finding, "vector_cosine") > 0.9999
    assert figure(finding, "reidentified_share") == 1.0
    assert figure(finding, "vector_cosine_lift_low") > 0.0
    # The layer and the inputs were found, not told.
    assert finding.details["layer"] == "hidden.0.weight"
    assert finding.details["first_input"] == 0
    assert finding.details["fit"] > 0.999
    assert finding.null_control is not None
    assert finding.null_control["passed"]


def test_private_vectors_come_back_from_texts_as_well() -> None:
    """User inputs stand behind those of the text: the block is found by its fit."""
    finding = play("dense-layer", on_texts())
    assert finding.details["layer"] == "hidden.weight"
    assert finding.details["first_input"] == 8  # two directions of four units
    assert figure(finding, "vector_cosine") > 0.9999
    assert figure(finding, "reidentified_share") == 1.0


def told(case: tuple[RecordedRun, GroundTruth], **known: Any) -> tuple[Transcript, GroundTruth]:
    """A recording whose public knowledge names the private inputs."""
    run, truth = case
    public = {**run.transcript.public, "private_input": known}
    return Transcript(run.transcript._store, public), truth


@pytest.mark.parametrize(("first", "right"), [(8, True), (0, False)])
def test_a_known_place_is_read_and_not_searched(first: int, right: bool) -> None:
    transcript, truth = told(on_texts(), layer="hidden.weight", first=first)
    finding = evaluate(attack_named("dense-layer"), SERVER, transcript, truth, seed=0)
    assert finding.details["first_input"] == first
    assert (figure(finding, "vector_cosine") > 0.9999) is right


@pytest.mark.parametrize(
    "place", [{"layer": "none", "first": 0}, {"layer": "hidden.weight", "first": 9}]
)
def test_a_place_that_does_not_exist_is_a_reason(place: dict[str, Any]) -> None:
    transcript, truth = told(on_texts(), **place)
    finding = evaluate(attack_named("dense-layer"), SERVER, transcript, truth, seed=0)
    assert finding.reason == "no dense layer can read the private parameters"


def test_several_steps_blur_vectors_but_not_their_owners() -> None:
    exact, blurred = (
        play("dense-layer", on_ratings()),
        play("dense-layer", on_ratings(batch_size=8)),
    )
    assert figure(blurred, "user_vector_share") < figure(exact, "user_vector_share")
    assert figure(blurred, "user_vector_cosine") > 0.9
    assert figure(blurred, "reidentified_share_low") > 10 * figure(blurred, "reidentified_chance")


def test_before_the_first_training_there_is_nobody_to_name() -> None:
    """All private vectors are zero; the finding of two rounds is the second's."""
    both = play("dense-layer", on_ratings(payload_rounds=(1, 2)))
    assert both.rounds == (2,)
    first = both.details["by_round"]["1"]
    assert first["vector_cosine"] == 0.0
    assert first["reidentified_share"] == pytest.approx(1 / 40)


def test_rated_items_are_the_rows_that_changed() -> None:
    finding = play("touched-rows", on_ratings())
    assert figure(finding, "precision") == 1.0  # no other row can change
    # A rated item's row stays only where every unit it reaches is off.
    assert figure(finding, "recall") > 0.98
    assert figure(finding, "auc") > 0.99
    assert figure(finding, "lift_over_prior_low") > 0.1


def test_labels_come_from_the_output_bias() -> None:
    finding = play("output-bias", on_texts())
    assert figure(finding, "label_accuracy") > 0.9
    assert figure(finding, "label_lift_low") > 0.3
    assert figure(finding, "set_auc") > 0.9
    assert figure(finding, "set_precision") == 1.0


def test_characters_come_from_their_embeddings() -> None:
    finding = play("touched-rows", on_texts())
    assert finding.figures.get("auc") is None  # no rated set was claimed
    assert figure(finding, "set_precision") == 1.0
    assert figure(finding, "set_auc") > 0.98
    assert finding.details["set"] == "character_embedding.weight"


# --- hidden uploads -------------------------------------------------------------------------------

AT_CHANCE: Mapping[tuple[str, str], tuple[str, str | float]] = {
    ("dense-layer", "masking"): ("reidentified_share", "reidentified_chance"),
    ("dense-layer", "paillier"): ("reidentified_share", "reidentified_chance"),
    ("dense-layer", "texts"): ("reidentified_share", "reidentified_chance"),
    ("dense-layer", "planted"): ("reidentified_share", "reidentified_chance"),
    ("touched-rows", "masking"): ("auc", 0.5),
    ("touched-rows", "paillier"): ("auc", 0.5),
    ("touched-rows", "texts"): ("set_auc", 0.5),
    ("touched-rows", "planted"): ("auc", 0.5),
    ("signed-rows", "planted-implicit"): ("auc", 0.5),
    ("output-bias", "texts"): ("label_accuracy", "label_chance"),
    ("output-bias", "planted"): ("label_accuracy", "label_chance"),
    ("attribute-inference", "planted"): ("attribute_auc", 0.5),
}
"""Figure that tells, and what chance makes of it."""


@cache
def hidden(place: str) -> tuple[RecordedRun, GroundTruth]:
    if place in HIDING:
        return on_ratings(hidden=place)
    if place == "texts":
        return on_texts(masked=True)
    layers = {"masking": MaskingLayerConfig()}
    return plant_split(implicit=place == "planted-implicit", layers=layers)


@pytest.mark.parametrize(
    ("name", "place"), list(AT_CHANCE), ids=[f"{name}-{place}" for name, place in AT_CHANCE]
)
def test_on_hidden_uploads_the_interval_covers_chance(name: str, place: str) -> None:
    """The attack runs on the words it is shown, and they are pads or ciphertexts."""
    finding = play(name, hidden(place))
    assert finding.measured
    metric, chance = AT_CHANCE[name, place]
    expected = figure(finding, chance) if isinstance(chance, str) else chance
    assert figure(finding, f"{metric}_low") <= expected <= figure(finding, f"{metric}_high")
    assert finding.null_control is not None
    assert finding.null_control["passed"]


def test_intervals_cover_chance_as_often_as_they_say() -> None:
    """Ten federations under masks: about one figure in twenty may miss."""
    metrics: Mapping[str, tuple[str, str | float]] = {
        "dense-layer": ("vector_cosine_lift", 0.0),
        "output-bias": ("label_accuracy", "label_chance"),
        "touched-rows": ("auc", 0.5),
        "attribute-inference": ("attribute_auc", 0.5),
    }
    covered, games = 0, 10
    for seed in range(games):
        case = plant_split(layers={"masking": MaskingLayerConfig()}, seed=seed)
        for name, (metric, chance) in metrics.items():
            finding = play(name, case)
            expected = figure(finding, chance) if isinstance(chance, str) else chance
            low, high = (figure(finding, f"{metric}_{end}") for end in ("low", "high"))
            covered += low <= expected <= high
    assert covered >= binom.ppf(1e-4, games * len(metrics), 0.93)


@pytest.mark.parametrize("name", FURL_ATTACKS)
def test_without_payloads_the_reason_is_told(name: str) -> None:
    case = plant_split(implicit=name == "signed-rows", payload_rounds=(99,))
    assert play(name, case).reason == "no payload of an upload was recorded"


# --- who sees what --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FURL_ATTACKS)
def test_who_holds_no_server_sees_no_uploads_of_others(name: str) -> None:
    """A client sees its own upload; its own secrets are nobody's finding."""
    finding = play(name, plant_split(implicit=name == "signed-rows"), OUTSIDER)
    assert not finding.measured
    assert finding.reason is not None


@pytest.mark.parametrize("name", [name for name in SUITE if name not in FURL_ATTACKS])
def test_other_attacks_do_not_apply_to_furl(name: str) -> None:
    finding = play(name, on_ratings())
    assert not finding.measured


@pytest.mark.parametrize("name", ["output-bias", "signed-rows"])
def test_attacks_say_what_a_model_lacks(name: str) -> None:
    finding = play(name, on_ratings())
    reasons = {
        "output-bias": "the output layer does not have a unit per class",
        "signed-rows": "positives are not outnumbered by sampled negatives",
    }
    assert finding.reason == reasons[name]


def test_a_client_that_is_absent_from_a_round_reads_nothing_there() -> None:
    """Every attack of the family answers a round in which no upload reached the adversary."""
    for cohort in (12, 39):
        recorded = recorded_as(
            {"name": "furl", "rounds": 3, "dim": 4, "hidden": [8]},
            {"layer": "masking"},
            cohort=cohort,
            negatives=1,
        )
        for client in range(4):
            who = Adversary(name="one", corrupt=frozenset({f"client:{client}"}))
            for name in SUITE:
                finding = evaluate(attack_named(name), who, *recorded, seed=0)
                assert finding.measured or finding.reason
