"""FURL on 20 Newsgroups: masked, encrypted and plain sums train the same model, bit for bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.data.newsgroups import load_newsgroups
from secure_fedrec.data.user_texts import UserTexts
from secure_fedrec.engines import CohortConfig, LocalEngine, sizes_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.studies.furl.study import FURLStudyConfig, furl_algorithm, furl_problem
from secure_fedrec.wire import Meter, Wire
from tests.reproduction.conftest import data_dir

COHORT, ROUNDS = 10, 2
LOCAL = LocalTrainingConfig(learning_rate=1.0, private_learning_rate=2.0, gradient_clip=1.0)
AS_PUBLISHED = FURLStudyConfig(configuration="personalized-fl", epochs=1, training=LOCAL)
"""The model whose quality the documentation reports."""
SMALL = FURLStudyConfig(
    configuration="personalized-fl",
    epochs=1,
    user_dim=8,
    character_dim=8,
    hidden=8,
    mlp=16,
    training=LOCAL,
)
"""For ciphertexts, which take a thousand times as long as masks."""

REAL_PAILLIER: Mapping[str, Any] = {"execution": "real", "key_bits": 2048, "min_survivors": 3}
RUNS: Mapping[str, tuple[FURLStudyConfig, Mapping[str, Any]]] = {
    "masked": (AS_PUBLISHED, {"masking": MaskingLayerConfig(min_survivors=8, corrupt=0.0)}),
    "masked for real": (
        AS_PUBLISHED,
        {"masking": MaskingLayerConfig(execution="real", min_survivors=8, corrupt=0.0)},
    ),
    "paillier": (AS_PUBLISHED, {"paillier": EncryptionLayerConfig(min_survivors=3)}),
    "paillier for real": (SMALL, {"paillier": EncryptionLayerConfig(**REAL_PAILLIER)}),
    "paillier of the clients for real": (
        SMALL,
        {"paillier": EncryptionLayerConfig(holder="clients", **REAL_PAILLIER)},
    ),
}


@pytest.fixture(scope="module")
def posts() -> UserTexts:
    folder = data_dir()
    if folder is None or not (folder / "20newsgroups").is_dir():
        pytest.skip("SECURE_FEDREC_DATA names no folder with 20newsgroups")
    return load_newsgroups(folder)


def trained(study: FURLStudyConfig, layers: Mapping[str, Any], data: UserTexts) -> LocalEngine:
    """The engine after some rounds."""
    furl = furl_algorithm(study, classes=len(data.classes), users=data.n_users)
    problem, streams, codec = furl_problem(furl, data), Streams.from_seed(1), FixedPoint()
    sizes = sizes_of(furl, problem, cohort=COHORT)
    engine = LocalEngine(
        algorithm=furl,
        stack=build_stack(layers, sizes=sizes, codec=codec, streams=streams),
        vault=problem.vault,
        n_rows=problem.n_rows,
        streams=streams,
        wire=Wire(meter=Meter(data.n_users)),
        cohort=CohortConfig(clients_per_round=COHORT),
    )
    for _ in range(ROUNDS):
        engine.run_round()
    return engine


@pytest.mark.parametrize("name", RUNS)
def test_protected_and_plain_training_end_in_the_same_bits(posts: UserTexts, name: str) -> None:
    study, layers = RUNS[name]
    plain, protected = trained(study, {}, posts), trained(study, layers, posts)
    np.testing.assert_array_equal(plain.public.table, protected.public.table)
    everybody = np.arange(posts.n_users)
    for table in plain.vault.names():
        np.testing.assert_array_equal(
            plain.vault.read(table, everybody), protected.vault.read(table, everybody)
        )
    furl = furl_algorithm(study, classes=len(posts.classes), users=posts.n_users)
    begun = furl.initial_public(furl.rows, Streams.from_seed(1)).table
    assert not np.array_equal(plain.public.table, begun)  # the rounds did train
