"""What FURL's and HPFL's uploads give away on ML-100K and on 20 Newsgroups."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attacks import Finding, GroundTruth, attack_named, evaluate
from attacks.families.hierarchical import ATTRIBUTES
from attacks.families.split.output_bias import CLASSES, MAJORITY
from secure_fedrec.algorithms.furl.settings import FURLConfig
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.hpfl.client_update import count_attributes
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.system import HPFL
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.data.movielens import load_ml_100k
from secure_fedrec.data.newsgroups import load_newsgroups
from secure_fedrec.data.organisations.movielens import ml_100k_by_zip
from secure_fedrec.data.organisations.split import SplitShares
from secure_fedrec.data.user_texts import CODES
from secure_fedrec.engines import Problem, RecordedRun, sizes_of
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.document import PRIVATE as DOCUMENT_PRIVATE
from secure_fedrec.models.document import DocumentModel, document_loss
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUMConfig
from secure_fedrec.models.gum.training import GUMTraining
from secure_fedrec.models.ncf.split import ITEM_TABLE, PRIVATE, NCFSplit, ncf_loss
from secure_fedrec.models.settings import DocumentConfig, NCFSplitConfig
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.stacking import build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Adversary, RecordingPolicy

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
FOLDER = os.environ.get("SECURE_FEDREC_DATA")
pytestmark = [pytest.mark.data, pytest.mark.skipif(not FOLDER, reason="no data folder")]


def folder(name: str) -> Path:
    assert FOLDER is not None
    return Path(FOLDER) / name


def record(
    algorithm: FURL | HPFL,
    problem: Problem,
    *,
    layers: dict[str, Any],
    rounds: int,
    payload_rounds: tuple[int, ...],
) -> RecordedRun:
    streams, codec = Streams.from_seed(1), FixedPoint()
    shapes = algorithm.bag_sizes if isinstance(algorithm, HPFL) else {}
    bags = {name: BagShape(width=width, most=most) for name, (width, most) in shapes.items()}
    sizes = sizes_of(algorithm, problem, bags=bags)
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=codec, streams=streams),
        problem=problem,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds),
    )
    for _ in range(rounds):
        run.run_round()
    return run


def figures(name: str, run: RecordedRun, truth: GroundTruth) -> Finding:
    finding = evaluate(attack_named(name), SERVER, run.transcript, truth, seed=0)
    assert finding.measured, finding.reason
    return finding


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None
    return value


# --- FURL, an NCF-style split of ML-100K ----------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_ncf_split_of_ml_100k(masked: bool) -> None:
    """All 943 users, user vectors from zero, one full-batch step a round; round 2 is read."""
    torch.set_num_threads(1)
    table = load_ml_100k(folder("ml-100k"))
    config = NCFSplitConfig(items=table.n_items, dim=8, hidden=(16, 8), centre=3.0, deviation=0.0)
    local = LocalTrainingConfig(learning_rate=0.1)
    algorithm = FURL(
        lambda: NCFSplit(config), ncf_loss, FURLConfig(rounds=2, local=local), private=PRIVATE
    )
    problem = Problem(
        vault=vault_of(table),
        n_rows=algorithm.rows,
        knowledge={"item_table": ITEM_TABLE, "negatives": 0},
    )
    layers = {"masking": MaskingLayerConfig()} if masked else {}
    run = record(algorithm, problem, layers=layers, rounds=2, payload_rounds=(2,))
    genders = np.unique(table.demographics["gender"], return_inverse=True)[1]
    truth = GroundTruth(recorded=run.truth, train=table, secrets={"attributes.gender": genders})
    vectors = figures("dense-layer", run, truth)
    attributes = figures("attribute-inference", run, truth)
    rated = figures("touched-rows", run, truth)
    if masked:
        low, high = (figure(vectors, f"reidentified_share_{end}") for end in ("low", "high"))
        assert low <= 1 / 943 <= high < 0.01
        assert abs(figure(vectors, "vector_cosine")) < 0.05
        assert figure(attributes, "attribute_auc_low") <= 0.5
        assert figure(attributes, "attribute_auc_high") >= 0.5
        assert figure(rated, "auc_low") <= 0.5 <= figure(rated, "auc_high")
        return
    assert figure(vectors, "vector_cosine") >= 0.99
    assert figure(vectors, "vector_cosine_lift_low") > 0.2
    assert figure(vectors, "reidentified_share") >= 0.99
    assert figure(rated, "auc") > 0.999
    assert figure(rated, "precision") == 1.0
    assert figure(attributes, "attribute_lift_low") > 0.1
    ceiling = figure(attributes, "attribute_ceiling_auc")
    assert figure(attributes, "attribute_auc") > ceiling - 0.05


# --- FURL, texts ----------------------------------------------------------------------------------


def test_labels_of_20_newsgroups() -> None:
    """Round 1 of the document model: favourite group and groups posted to, of every poster."""
    torch.set_num_threads(1)
    texts = load_newsgroups(folder("20newsgroups").parent)
    config = DocumentConfig(
        characters=CODES, classes=20, user_dim=8, character_dim=8, hidden=8, mlp=32, dropout=0.0
    )
    local = LocalTrainingConfig(learning_rate=0.5)
    algorithm = FURL(
        lambda: DocumentModel(config),
        document_loss,
        FURLConfig(rounds=1, local=local),
        private=DOCUMENT_PRIVATE,
    )
    problem = Problem(vault=texts.vault(), n_rows=algorithm.rows)
    run = record(algorithm, problem, layers={}, rounds=1, payload_rounds=(1,))
    rows = texts.rows("train")
    posted = np.zeros((texts.n_users, 20), dtype=bool)
    posted[texts.users[rows], texts.label[rows]] = True
    truth = GroundTruth(
        recorded=run.truth,
        secrets={f"labels.{MAJORITY}": texts.majority_labels(), f"sets.{CLASSES}": posted},
    )
    labels = figures("output-bias", run, truth)
    assert figure(labels, "label_accuracy") >= 0.97
    assert figure(labels, "label_lift_low") > 0.8
    assert figure(labels, "set_auc") > 0.99


# --- HPFL -----------------------------------------------------------------------------------------


def test_drafts_and_weights_of_ml_100k_by_zip_code() -> None:
    organisations = ml_100k_by_zip(folder("ml-100k"), shares=SplitShares(), seed=1)
    config = HPFLConfig(
        rounds=2,
        gum=GUMConfig(scale=5.0, start="identity"),
        training=GUMTraining(epochs=2),
        user_drafts=0.2,
        item_drafts=0.1,
    )
    algorithm = HPFL(config, organisations)
    problem = Problem(vault=organisations.vault(), n_rows=algorithm.rows)
    run = record(algorithm, problem, layers={}, rounds=2, payload_rounds=(1, 2))
    counts = []
    for client, attributes in enumerate(organisations.attributes):
        own = organisations.train.of(client)
        counts.append(count_attributes(Records(own.users, own.items, own.scores), attributes))
    histogram = np.stack(counts).astype(np.float64)
    truth = GroundTruth(recorded=run.truth, secrets={f"histograms.{ATTRIBUTES}": histogram})
    drafts = figures("drafts", run, truth)
    assert 0.01 < figure(drafts, "disclosed_share") < 0.08
    assert figure(drafts, "holder_accuracy") > 0.7
    assert figure(drafts, "holder_lift_low") > 0.5
    profile = figures("attribute-counts", run, truth)
    assert figure(profile, "histogram_error") < 0.08
    assert figure(profile, "histogram_error_lift_low") > 0.0
    assert figure(profile, "histogram_correlation") > 0.95
    assert figure(profile, "activity_correlation") > 0.9
