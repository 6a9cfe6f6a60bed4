"""FURL: equations 5 to 7 on a tiny model, one client at a time, in every bit."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from secure_fedrec.algorithms import PublicState
from secure_fedrec.algorithms.furl.settings import FURLConfig
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_training import (
    LocalOptimizer,
    TrainingDraws,
    train_locally,
)
from secure_fedrec.blocks import BlockLayout
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.engines import upload_rows
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.split import ParameterSplit
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, FlatBlock
from secure_fedrec.vault import Vault

STREAMS = Streams.from_seed(9)
CODEC = FixedPoint()
COARSE = FixedPoint(fraction_bits=10)
EVERYBODY = np.arange(5)
Furls = Callable[..., FURL]
Vaults = Callable[..., Vault]


def begin(furl: FURL, vault: Vault) -> PublicState:
    public = furl.initial_public(furl.rows, STREAMS)
    furl.initialise(vault, STREAMS)
    return public


def play(
    furl: FURL, public: PublicState, vault: Vault, clients: IntArray, codec: FixedPoint = CODEC
) -> PublicState:
    """One round without an engine: encode, add up, hand over."""
    step = furl.client_step(clients, public, vault, STREAMS)
    block = step.upload.blocks["parameters"]
    step.commit(vault)
    assert isinstance(block, FlatBlock)
    layout = BlockLayout(furl.blocks(), codec)
    ring = np.zeros((layout.rows, layout.width), dtype=np.uint64)
    ring.reshape(-1)[: block.values.shape[1]] = codec.encode(block.values).sum(axis=0)
    counts = np.full(layout.rows, len(clients))
    total = Aggregate(ring=ring, counts=counts, codec=codec, layout=layout)
    return furl.server_step(public, total)


def locally(
    furl: FURL, model: nn.Module, start: FloatArray, private: FloatArray, vault: Vault, **at: int
) -> tuple[FloatArray, FloatArray]:
    """(d_i, u_p) of one client, by the local training that has tests of its own."""
    split = ParameterSplit.of(model, private=("user_embedding.*",))
    split.write_federated(model, start)
    split.write_private(model, private)
    loaded = split.read_federated(model)
    train_locally(
        model,
        furl._loss,
        vault.examples(at["client"]),
        optimizer=LocalOptimizer(model, furl.config.local),
        draws=TrainingDraws.at(STREAMS.stream("local-training"), at["round_"], at["client"]),
    )
    return split.read_federated(model) - loaded, split.read_private(model)


def test_a_round_is_equations_5_and_7(furl_of: Furls, examples_of: Vaults, tiny: Any) -> None:
    furl, vault = furl_of(), examples_of()
    public = begin(furl, vault)
    clients = np.array([0, 2, 3])
    for round_ in (1, 2):
        start = furl.federated_values(public)
        before = furl.private_values(public, vault, EVERYBODY)
        weights = vault.example_counts()[clients]
        trained = [
            locally(furl, tiny(), start, before[client], vault, round_=round_, client=client)
            for client in clients.tolist()
        ]
        public = play(furl, public, vault, clients)
        summed = sum(
            np.rint(weight * change * CODEC.scale)
            for weight, (change, _) in zip(weights, trained, strict=True)
        )
        expected = start + summed / CODEC.scale / weights.sum()
        np.testing.assert_array_equal(furl.federated_values(public), expected)
        after = furl.private_values(public, vault, EVERYBODY)
        np.testing.assert_array_equal(after[clients], [private for _, private in trained])
        absent = np.setdiff1d(EVERYBODY, clients)
        np.testing.assert_array_equal(after[absent], before[absent])
        assert public.round == round_


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_of_clients_is_the_single_ones_side_by_side(
    furl_of: Furls, examples_of: Vaults, tiny: Any, dtype: torch.dtype
) -> None:
    found = []
    for groups in ([EVERYBODY], [EVERYBODY[:2], EVERYBODY[2:]], np.split(EVERYBODY[::-1], 5)):
        furl = furl_of(build=lambda: tiny(dtype), optimizer="adam", keep_state=True)
        vault = examples_of()
        public = begin(furl, vault)
        rows: dict[int, Any] = {}
        for clients in groups:
            step = furl.client_step(clients, public, vault, STREAMS)
            block = step.upload.blocks["parameters"]
            rows |= dict(zip(clients.tolist(), np.asarray(block.values), strict=True))
            step.commit(vault)
        tables = [vault.read(name, EVERYBODY) for name in vault.names()]
        found.append([np.stack([rows[client] for client in range(5)]), *tables])
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_upload_is_the_weighted_change_and_the_weight(
    furl_of: Furls, examples_of: Vaults, tiny: Any
) -> None:
    furl, vault = furl_of(row_width=8), examples_of()
    public = begin(furl, vault)
    upload = furl.client_step(np.array([2]), public, vault, STREAMS).upload
    private = furl.private_values(public, vault, np.array([2]))[0]
    change, _ = locally(
        furl, tiny(), furl.federated_values(public), private, vault, round_=1, client=2
    )
    size = furl.split.n_federated
    assert furl.rows == -(-(size + 1) // 8)
    (flat,) = np.asarray(upload.blocks["parameters"].values)
    np.testing.assert_array_equal(flat[:size], 7 * change)
    assert len(flat) == size + 1
    assert flat[size] == 7
    np.testing.assert_array_equal(upload_rows(furl, vault, 0), [furl.rows] * 5)


def test_private_state_changes_in_commit_only(furl_of: Furls, examples_of: Vaults) -> None:
    furl, vault = furl_of(), examples_of()
    public = begin(furl, vault)
    before = furl.private_values(public, vault, EVERYBODY)
    step = furl.client_step(EVERYBODY, public, vault, STREAMS)
    _ = step.upload
    np.testing.assert_array_equal(furl.private_values(public, vault, EVERYBODY), before)
    step.commit(vault)
    assert not np.any(furl.private_values(public, vault, EVERYBODY) == before)


def test_everybody_starts_with_the_same_values_which_the_seed_decides(
    furl_of: Furls, examples_of: Vaults
) -> None:
    furl, vault = furl_of(), examples_of()
    torch.manual_seed(1)
    public = begin(furl, vault)
    private = furl.private_values(public, vault, EVERYBODY)
    np.testing.assert_array_equal(private, np.tile(private[0], (5, 1)))
    torch.manual_seed(2)
    again = furl_of().initial_public(furl.rows, STREAMS)
    np.testing.assert_array_equal(again.table, public.table)
    other = furl.initial_public(furl.rows, Streams.from_seed(10))
    assert not np.array_equal(other.table, public.table)


def test_a_round_without_clients_leaves_the_parameters(furl_of: Furls, examples_of: Vaults) -> None:
    furl, vault = furl_of(), examples_of()
    public = begin(furl, vault)
    ring = np.zeros((furl.rows, furl.width), dtype=np.uint64)
    counts, layout = np.zeros(furl.rows, dtype=np.int64), BlockLayout(furl.blocks(), CODEC)
    empty = Aggregate(ring=ring, counts=counts, codec=CODEC, layout=layout)
    after = furl.server_step(public, empty)
    np.testing.assert_array_equal(after.table, public.table)
    assert after.round == 1


def test_the_weighted_rule_is_federated_averaging_of_the_private_step(
    furl_of: Furls, examples_of: Vaults, tiny: Any
) -> None:
    """Equation 6, in the ring's bits, however long a client waits to learn the weights."""
    furl, vault = furl_of(ring=COARSE), examples_of()
    public = begin(furl, vault)
    expected = furl.private_values(public, vault, EVERYBODY)
    for round_, clients in enumerate(([0, 2], [2, 4], [1], [0, 1, 2, 3, 4], [3, 4]), start=1):
        weights = vault.example_counts()[clients]
        start, before = furl.federated_values(public), expected.copy()
        for client, weight in zip(clients, weights.tolist(), strict=True):
            own = np.asarray(before[client])
            _, trained = locally(furl, tiny(), start, own, vault, round_=round_, client=client)
            loaded = own.astype(np.float32).astype(np.float64)
            coded = np.rint(weight * (trained - loaded) * COARSE.scale) / COARSE.scale
            expected[client] = own + coded / weights.sum()
        public = play(furl, public, vault, np.array(clients), COARSE)
        found = furl.private_values(public, vault, EVERYBODY)
        np.testing.assert_array_equal(found, expected)


def test_the_two_private_rules_differ_unless_a_client_is_alone(
    furl_of: Furls, examples_of: Vaults
) -> None:
    found = []
    for ring in (None, CODEC):
        furl, vault = furl_of(ring=ring), examples_of()
        public = play(furl, begin(furl, vault), vault, np.array([0, 1]))
        found.append(furl.private_values(public, vault, EVERYBODY))
    assert not np.any(found[0][:2] == found[1][:2])
    np.testing.assert_array_equal(found[0][2:], found[1][2:])


def test_without_personalization_it_is_federated_averaging(
    furl_of: Furls, examples_of: Vaults
) -> None:
    furl, vault = furl_of(private=None), examples_of()
    public = begin(furl, vault)
    names = [segment.name for segment in furl.split.federated]
    assert "user_embedding.weight" in names
    after = play(furl, public, vault, EVERYBODY)
    moved = furl.federated_values(after) != furl.federated_values(public)
    assert moved.all()
    assert furl.private_values(after, vault, EVERYBODY).shape == (5, 0)


def test_moments_stay_on_the_device_if_asked(furl_of: Furls, examples_of: Vaults) -> None:
    """The second round of a client goes on with the moments of its first."""
    found = []
    for keep in (True, False):
        furl = furl_of(optimizer="momentum", learning_rate=0.1, keep_state=keep)
        vault = examples_of()
        public = begin(furl, vault)
        rounds = [public]
        for _ in range(2):
            rounds.append(play(furl, rounds[-1], vault, EVERYBODY))
        found.append([furl.federated_values(public) for public in rounds])
        assert ("optimizer_state" in vault.names()) == keep
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert not np.any(found[0][2] == found[1][2])


def test_learning_rates_decay_from_round_to_round(furl_of: Furls, examples_of: Vaults) -> None:
    moves = []
    for decay in (1.0, 0.5):
        furl, vault = furl_of(decay=decay, epochs=1, batch_size=None), examples_of()
        public = begin(furl, vault)
        late = PublicState(round=3, table=public.table)
        step = furl.client_step(np.array([0]), late, vault, STREAMS)
        (flat,) = np.asarray(step.upload.blocks["parameters"].values)
        moves.append(flat[: furl.split.n_federated])
    np.testing.assert_allclose(moves[1] * 8, moves[0], rtol=1e-4, atol=1e-6)


def test_a_device_can_use_its_own_model(furl_of: Furls, examples_of: Vaults) -> None:
    furl, vault = furl_of(), examples_of()
    public = play(furl, begin(furl, vault), vault, EVERYBODY)
    own = furl.private_values(public, vault, np.array([3]))[0]
    model = furl.local_model(public, vault, 3)
    assert not model.training
    user = model.get_parameter("user_embedding.weight").detach().numpy()
    np.testing.assert_array_equal(user.reshape(-1), own)


def test_public_knowledge_names_parameters_and_holds_no_value(
    furl_of: Furls, examples_of: Vaults
) -> None:
    furl = furl_of()
    known = json.loads(json.dumps(furl.public_knowledge()))
    assert known["name"] == "furl"
    assert known["local"]["learning_rate"] == 0.5
    first = {"name": "first.weight", "shape": [4, 5], "start": 0, "stop": 20}
    assert known["federated"][0] == first
    user = {"name": "user_embedding.weight", "shape": [1, 2], "start": 0, "stop": 2}
    assert known["private"] == [user]
    assert known["weight_position"] == furl.split.n_federated == 34


def test_a_client_without_an_example_is_refused_at_construction(
    furl_of: Furls, examples_of: Vaults
) -> None:
    with pytest.raises(ConfigError, match="no training example") as refused:
        furl_of().initialise(examples_of((3, 0, 2)), STREAMS)
    assert refused.value.value == "1"


def test_bad_settings_are_refused(furl_of: Furls) -> None:
    with pytest.raises(ConfigError, match="names no private parameter"):
        furl_of(private=())
    with pytest.raises(ConfigError, match="matches no parameter"):
        furl_of(private=("user_vector.*",))
    with pytest.raises(ConfigError, match="is required with private_rule = 'weighted'"):
        FURL(nn.Identity, furl_of()._loss, FURLConfig(rounds=1), private=None, ring=CODEC)
    for key, value in (
        ("rounds", 0),
        ("row_width", 0),
        ("decay", 0.0),
        ("decay", 1.1),
        ("private_rule", "mean"),
    ):
        with pytest.raises(ConfigError) as refused:
            FURLConfig(**{"rounds": 1, key: value})  # type: ignore[arg-type]
        assert refused.value.key == f"algorithm.{key}"
