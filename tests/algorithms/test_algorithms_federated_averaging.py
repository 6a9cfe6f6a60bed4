"""FedAvg and its relatives on user models, against what their definitions say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.federated_averaging import (
    FederatedAveraging,
    FederatedAveragingConfig,
    FederatedAveragingStep,
)
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data import (
    Organisations,
    SplitShares,
    SyntheticOrganisationsConfig,
    generate_organisations,
)
from secure_fedrec.engines import LocalEngine, Problem, sizes_of, upload_rows, upload_vectors
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.model import GUMConfig
from secure_fedrec.models.gum.training import GUMTraining
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Meter, Wire

RING = FixedPoint(bits=64, fraction_bits=36, clip=2.0**14)
GUM5 = GUMConfig(hidden=3, scale=5.0)
FULL_BATCH = GUMTraining(
    optimizer="sgd", learning_rate=0.5, batch_size=None, epochs=1, patience=0, keep="last"
)
TRAINING = GUMTraining(learning_rate=0.01, batch_size=8, epochs=2, patience=0, keep="last")


@pytest.fixture(scope="module")
def data() -> Organisations:
    return generate_organisations(
        SyntheticOrganisationsConfig(
            clients=3, users=6, items=20, attributes=4, mean_records=9, seed=3
        )
    )


def algorithm(data: Organisations, **settings: Any) -> FederatedAveraging:
    config = FederatedAveragingConfig(**{"gum": GUM5, "training": TRAINING, **settings})
    return FederatedAveraging(config, data)


def started(trained: FederatedAveraging, data: Organisations, *layers: str) -> LocalEngine:
    sizes = sizes_of(trained, Problem(vault=data.vault()))
    streams = Streams.from_seed(5)
    settings = {name: MaskingLayerConfig(min_survivors=3) for name in layers}
    return LocalEngine(
        algorithm=trained,
        stack=build_stack(settings, sizes=sizes, codec=RING, streams=streams),
        vault=data.vault(),
        n_rows=trained.rows,
        streams=streams,
        wire=Wire(meter=Meter(data.n_clients)),
    )


def local_steps(engine: LocalEngine) -> FederatedAveragingStep:
    """What all clients do in the next round; nothing is sent or kept."""
    step = engine.algorithm.client_step(
        np.arange(engine.vault.n_clients), engine.public, engine.vault, Streams.from_seed(5)
    )
    assert isinstance(step, FederatedAveragingStep)
    return step


def layers_of(trained: FederatedAveraging, public: PublicState) -> FloatArray:
    return public.table


def test_round_is_the_mean_weighted_by_training_records(data: Organisations) -> None:
    trained = algorithm(data)
    engine = started(trained, data)
    for _ in range(2):
        before = layers_of(trained, engine.public)
        changes = np.stack(local_steps(engine).changes)
        weights = data.train.counts() / len(data.train)
        engine.run_round()
        expected = before + weights @ changes
        np.testing.assert_allclose(layers_of(trained, engine.public), expected, atol=1e-9)
        assert np.abs(changes).max() > 1e-3


def test_attention_is_that_of_a_server_that_sees_every_model(data: Organisations) -> None:
    """The softmax over clients, written down as FedAtt's paper has it, layer by layer."""
    trained = algorithm(data, weighting="attention", server_step=0.7)
    engine = started(trained, data)
    for _ in range(3):  # the offsets that keep exp() small differ from 0 after the first round
        before = layers_of(trained, engine.public)
        changes = local_steps(engine).changes
        engine.run_round()
        expected = []
        start = 0
        for size in trained.sizes.values():
            moves = np.stack([change[start : start + size] for change in changes])
            distances = np.sqrt((moves**2).sum(axis=1))
            attention = np.exp(distances - distances.max())
            attention /= attention.sum()
            expected.append(before[start : start + size] + 0.7 * attention @ moves)
            start += size
        found = layers_of(trained, engine.public)
        np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-9)
    assert np.abs(engine.public.extras["attention-offsets"]).max() > 0.01


def test_attention_stays_in_the_range_of_the_ring(data: Organisations) -> None:
    """Layers that move by 5 have exp(5) = 148; after a round, weights are about 1 again."""
    training = replace(TRAINING, learning_rate=0.3, epochs=4)
    trained = algorithm(data, weighting="attention", training=training)
    engine = started(trained, data)
    for _ in range(2):
        engine.run_round()
    step = local_steps(engine)
    relation = trained.layers(step.changes[0])["relation"]
    weights = step.upload.blocks["weights"]
    assert weights.values is not None
    assert np.exp(np.linalg.norm(relation)) > 100
    assert weights.values.max() < 20


def test_attention_differs_from_counting_records(data: Organisations) -> None:
    tables = []
    for weighting in ("records", "attention"):
        engine = started(algorithm(data, weighting=weighting), data)
        engine.run_round()
        tables.append(engine.public.table)
    assert np.abs(tables[0] - tables[1]).max() > 1e-6


def test_fedsgd_is_a_gradient_step_on_all_records_together(data: Organisations) -> None:
    """One full-batch step per client, averaged, is a step down the gradient of the whole loss."""
    trained = algorithm(data, training=FULL_BATCH)
    engine = started(trained, data)
    before = layers_of(trained, engine.public)
    k, n = data.n_attributes, GUM5.hidden
    shared = torch.tensor(before, requires_grad=True)
    sizes = [k * n, k * n, k * k, n]
    user_knowledge, item_knowledge, relation, hidden = torch.split(shared, sizes)
    total = torch.zeros((), dtype=torch.float64)
    for client in range(data.n_clients):
        gum = trained.gum(client)
        parts = gum.layout.parts(trained.parameters(engine.public, engine.vault, client))
        users, items, scores = (torch.from_numpy(c.copy()) for c in data.train.of(client))
        own = torch.from_numpy(data.attributes[client].astype(float))[items]
        related = own @ relation.reshape(k, k)
        user_side = torch.from_numpy(parts.user_embeddings)[users] * related
        item_side = torch.from_numpy(parts.item_embeddings)[items] * related
        ahead = user_side @ user_knowledge.reshape(k, n) - item_side @ item_knowledge.reshape(k, n)
        predicted = GUM5.scale * torch.sigmoid(ahead @ hidden)
        total = total + ((predicted - scores) ** 2).sum() / len(data.train)
    (gradient,) = torch.autograd.grad(total, shared)
    engine.run_round()
    expected = before - FULL_BATCH.learning_rate * gradient.numpy()
    np.testing.assert_allclose(layers_of(trained, engine.public), expected, atol=1e-8)


def test_proximal_term_holds_layers_back_and_embeddings_not(data: Organisations) -> None:
    moved = []
    for proximal in (0.0, 10.0):
        engine = started(algorithm(data, proximal=proximal), data)
        step = local_steps(engine)
        own = engine.vault.read_ragged("private_parameters", 0)
        step.commit(engine.vault)
        kept = engine.vault.read_ragged("private_parameters", 0)
        moved.append((np.linalg.norm(step.changes[0]), np.linalg.norm(kept - own)))
    assert moved[1][0] < 0.5 * moved[0][0]
    assert moved[1][1] > 0.5 * moved[0][1]


def test_embeddings_stay_and_only_layers_leave(data: Organisations) -> None:
    trained = algorithm(data)
    engine = started(trained, data)
    layout = trained.gum(0).layout
    upload = local_steps(engine).upload
    # There is room for the layers alone, whatever the number of users and items.
    given = {name: len(block) for name, block in upload.blocks.items()}
    assert given == dict.fromkeys([*trained.sizes, "weights"], 3)
    assert sum(trained.sizes.values()) == layout.size - layout.private.stop
    engine.run_round()
    first, second = (trained.parameters(engine.public, engine.vault, c) for c in (0, 1))
    shared = slice(layout.private.stop, None)
    np.testing.assert_array_equal(first[shared], second[shared])
    assert not np.array_equal(first[layout.private], second[layout.private])


@pytest.mark.parametrize("weighting", ["records", "attention"])
def test_masked_rounds_have_the_bits_of_plain_ones(data: Organisations, weighting: str) -> None:
    tables = []
    for layers in ((), ("masking",)):
        engine = started(algorithm(data, weighting=weighting), data, *layers)
        for _ in range(2):
            engine.run_round()
        tables.append(engine.public.table)
    np.testing.assert_array_equal(tables[0], tables[1])


def test_release_is_what_is_summed(data: Organisations) -> None:
    def double(change: FloatArray) -> FloatArray:
        return 2 * change

    config = FederatedAveragingConfig(gum=GUM5, training=TRAINING)
    plain, doubled = algorithm(data), FederatedAveraging(config, data, release=double)
    engines = [started(each, data) for each in (plain, doubled)]
    before = layers_of(plain, engines[0].public)
    for engine in engines:
        engine.run_round()
    once, twice = (layers_of(plain, engine.public) - before for engine in engines)
    np.testing.assert_allclose(twice, 2 * once, atol=1e-9)


def test_round_that_nobody_weighs_changes_nothing(data: Organisations) -> None:
    trained = algorithm(data, weighting="attention")
    engine = started(trained, data)
    stack = engine.stack.open(round_=1, participants=np.empty(0, np.int64), wire=engine.wire)
    after = trained.server_step(engine.public, stack.close())
    np.testing.assert_array_equal(after.table, engine.public.table)
    np.testing.assert_array_equal(after.extras["attention-offsets"], np.zeros(4))
    assert after.round == 1


def test_every_client_starts_from_the_same_layers_and_own_embeddings(data: Organisations) -> None:
    engine = started(algorithm(data), data)
    again = started(algorithm(data), data)
    np.testing.assert_array_equal(engine.public.table, again.public.table)
    own = [engine.vault.read_ragged("private_parameters", client) for client in range(3)]
    assert not np.array_equal(own[0][:8], own[1][:8])


def test_sizes_of_uploads_are_announced(data: Organisations) -> None:
    trained = algorithm(data)
    assert upload_rows(trained, data.vault(), 0).tolist() == [trained.rows] * 3
    assert upload_vectors(trained, data.vault()) == {}
    assert trained.public_knowledge()["layers"]["relation"] == 16


def test_client_without_validation_record_can_train_but_not_choose() -> None:
    data = generate_organisations(
        SyntheticOrganisationsConfig(clients=2, users=5, items=20, seed=1),
        shares=SplitShares(test=0.1, validation=0.0),
    )
    started(algorithm(data), data).run_round()
    with pytest.raises(ConfigError, match="'organisation 0': does not have a validation record"):
        started(algorithm(data, training=replace(TRAINING, keep="best")), data)


def test_client_without_training_record(data: Organisations) -> None:
    vault = data.vault()
    columns = [vault.examples(client) for client in range(3)]
    joined = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    counts = [len(each["users"]) for each in columns]
    joined["held_out"][: counts[0]] = True
    emptied = type(vault).of_examples(np.cumsum([0, *counts]), joined)
    with pytest.raises(ConfigError, match="'organisation 0': does not have a training record"):
        algorithm(data).initialise(emptied, Streams.from_seed(1))


def test_vault_of_other_clients(data: Organisations) -> None:
    with pytest.raises(ConfigError, match="vaults for 3 organisations"):
        algorithm(data).initialise(data.pooled().vault(), Streams.from_seed(1))
    settings = SyntheticOrganisationsConfig(clients=3, users=99, items=20, seed=3)
    larger = generate_organisations(settings)
    with pytest.raises(ConfigError, match="user number"):
        algorithm(data).initialise(larger.vault(), Streams.from_seed(1))


def test_stack_built_for_other_blocks(data: Organisations) -> None:
    """A sum of another layout would be cut at the wrong places."""
    trained, wider = algorithm(data), algorithm(data, row_width=8)
    sizes = sizes_of(wider, Problem(vault=data.vault()))
    streams = Streams.from_seed(5)
    with pytest.raises(ConfigError, match="knowledge_user, knowledge_item, relation, hidden"):
        LocalEngine(
            algorithm=trained,
            stack=build_stack({}, sizes=sizes, codec=RING, streams=streams),
            vault=data.vault(),
            n_rows=0,
            streams=streams,
            wire=Wire(meter=Meter(data.n_clients)),
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rounds", 0),
        ("row_width", 0),
        ("server_step", 0.0),
        ("weight_unit", np.nan),
        ("proximal", -1.0),
        ("weighting", "clients"),
    ],
)
def test_settings_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"algorithm.{name}"):
        FederatedAveragingConfig(**{name: value})
