"""Fed3CR: its step against torch's autograd, each part switched off, the plug-in, refusals."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from benchmarks.fed3cr_loop import TOLERANCE, Client, compare, loss_of
from secure_fedrec.algorithms.item_tables import (
    Enhanced,
    Enhancement,
    Fed3CR,
    Fed3CRConfig,
    FedMF,
    FedMFConfig,
    FedNCF,
    FedNCFConfig,
    FedRAP,
    FedRAPConfig,
    ItemTableTraining,
    PFedRec,
    PFedRecConfig,
    ranked,
)
from secure_fedrec.algorithms.item_tables.fed3cr_consensus import consistency
from secure_fedrec.algorithms.item_tables.local import Batch, Models
from secure_fedrec.algorithms.item_tables.trainer import SHARED
from secure_fedrec.algorithms.pmf import PMF, PMFConfig
from secure_fedrec.blocks import TABLE
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.errors import ConfigError, DivergedError
from secure_fedrec.evaluation.protocols import ranking_case
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault

M, D = 40, 4
CASE = ranking_case(
    generate(SyntheticConfig(clients=6, items=M, mean_ratings=9.0, seed=2)), seed=1, negatives=3
)
SWITCHES = {
    "all": Enhancement(weight_decay=0.01, consistency=0.7, complementarity=0.9),
    "matrix": Enhancement(scale="matrix", factor=3, layers=2),
    "consensus alone": Enhancement(consistency=0, complementarity=0),
    "consistency alone": Enhancement(adaptive=False, complementarity=0),
    "complementarity alone": Enhancement(adaptive=False, consistency=0),
    "none": Enhancement(adaptive=False, consistency=0, complementarity=0),
    "consensus transfer": Enhancement(transfer="consensus", scale="matrix", factor=3),
    "unified transfer": Enhancement(
        transfer="unified", consistency=0, complementarity=0, scale="matrix", factor=3
    ),
}
SHORT = ItemTableTraining(epochs=3, batch_size=16, batch_decay=0.9)


def fed3cr(enhancement: Enhancement = SWITCHES["all"], **more: Any) -> Fed3CR:
    config = {"rank": D, "item_learning_rate": 2.0, "local": SHORT, **more}
    return Fed3CR(Fed3CRConfig(enhancement=enhancement, **config), M)


def models_of(method: Any) -> Models:
    rng, streams = np.random.default_rng(5), Streams.from_seed(4)
    return Models(
        indptr=np.array([0, M, 2 * M]),
        items=np.tile(np.arange(M, dtype=np.int32), 2),
        table=rng.normal(size=(2 * M, D)).astype(np.float32),
        personal=rng.normal(size=(2 * M, D)).astype(np.float32),
        positives_indptr=np.array([0, 2, 5]),
        positives=np.array([3, 7, M, M + 9, M + 11]),
        shared=np.repeat(method.start(streams).shared[None].astype(np.float32), 2, axis=0),
        own=method.own(np.array([2, 5]), streams),
    )


def batch_of_second() -> Batch:
    return Batch(
        clients=np.array([1]),
        begin=np.array([0]),
        end=np.array([6]),
        rows=M + np.array([0, 9, 9, 11, 30, 12]),
        labels=np.array([1, 1, 0, 1, 0, 0], dtype=np.float32),
        rates=np.array([0.5], dtype=np.float32),
    )


def copied(models: Models) -> Models:
    parts: Any = (part.copy() for part in models)
    return Models(*parts)


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_step_is_the_exact_gradient(switch: str) -> None:
    """In double precision at the same point, whatever is switched off; nobody else is touched."""
    method = fed3cr(SWITCHES[switch])
    before, batch = models_of(method), batch_of_second()
    after, losses = copied(before), np.zeros(2)
    method.step(after, batch, losses)
    parts: Any = map(wide, before)
    client = Client.of(method, Models(*parts), 1)
    share = torch.zeros(M, dtype=torch.float64)
    share[[0, 9, 11]] = 1 / 3
    loss = loss_of(
        client,
        method,
        share,
        torch.from_numpy(batch.rows - M),
        torch.from_numpy(wide(batch.labels)),
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert losses[1] == pytest.approx(loss.item(), rel=1e-6)
    added, config = method.enhancement, cast(Fed3CRConfig, method.config)
    pairs = [
        (client.table, after.table[M:], 1.0, added.weight_decay),
        (client.personal, after.personal[M:], 1.0, added.weight_decay),
        (client.vector, after.own[1], config.learning_rate / 2.0, 0.0),
    ]
    first = 0
    for layer in (each for each in client.layers if each.numel()):
        ours = after.shared[1, first : first + layer.numel()].reshape(layer.shape)
        pairs.append((layer, ours, added.generator_rate / 2.0, 0.0))
        first += layer.numel()
    for tensor, ours, rate, decay in pairs:
        assert tensor.grad is not None
        wanted = -rate * (tensor.grad + decay * tensor).detach().numpy()
        moved = ours - tensor.detach().numpy()
        assert np.abs(moved - wanted).max() <= 5e-7 + 1e-5 * np.abs(wanted).max()
        assert np.abs(wanted).max() > 1e-5
    for ours, theirs in ((after.table[:M], before.table[:M]), (after.own[0], before.own[0])):
        assert ours.tobytes() == theirs.tobytes()


def wide(part: Any) -> Any:
    return part.astype(np.float64) if part.dtype == np.float32 else part


def test_the_compiled_loop_is_the_plug_in_over_a_user_vector() -> None:
    """But for the order of sums."""
    method = fed3cr()
    before, ours, theirs = models_of(method), models_of(method), models_of(method)
    losses = np.zeros((2, 2))
    method.step(ours, batch_of_second(), losses[0])
    Enhanced.step(method, theirs, batch_of_second(), losses[1])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    for name in ("table", "personal", "shared", "own"):
        start, one, other = (getattr(models, name) for models in (before, ours, theirs))
        moved = np.abs(other - start).max()
        assert moved > 1e-3
        assert np.abs(one - other).max() <= 1e-5 * moved


def federation(method: Any) -> tuple[Any, Any, Vault, Streams]:
    algorithm, streams, train = ranked(method, CASE, threads=1), Streams.from_seed(3), CASE.train
    vault = Vault(indptr=train.indptr(), items=train.items, ratings=train.ratings)
    public = algorithm.initial_public(M, streams)
    algorithm.initialise(vault, streams)
    return algorithm, public, vault, streams


def test_a_round_ends_where_the_loop_in_pytorch_does() -> None:
    """With batches, decaying rates and the early stop."""
    local = ItemTableTraining(epochs=8, batch_size=16, batch_decay=0.9, tolerance=0.02)
    algorithm, public, vault, streams = federation(fed3cr(local=local))
    found = compare(algorithm, np.arange(6), public, vault, streams, batch=4)
    assert found["largest_difference"] <= TOLERANCE
    assert found["loop_seconds"] > 0


BELOW: dict[str, Any] = {
    "fedmf": FedMF(FedMFConfig(rank=D, item_learning_rate=2.0, local=SHORT), M),
    "fedncf": FedNCF(FedNCFConfig(rank=D, hidden=5, item_learning_rate=2.0, local=SHORT), M),
    "pfedrec": PFedRec(PFedRecConfig(rank=D, item_scale=0.5, local=SHORT), M),
    "fedrap": FedRAP(FedRAPConfig(rank=D, item_learning_rate=2.0, local=SHORT), M),
}


@pytest.mark.parametrize("name", BELOW)
def test_the_plug_in_over_every_method(name: str) -> None:
    """It trains, its consensus differs from the method's own, alone as in company."""
    rate = 2.0 if name == "pfedrec" else None
    method = Enhanced(BELOW[name], Enhancement(item_rate=rate))
    algorithm, public, vault, streams = federation(method)
    step = algorithm.client_step(np.arange(6), public, vault, streams)
    alone = algorithm.client_step(np.array([3]), public, vault, streams)
    changes = step.upload.blocks
    assert changes[TABLE].values.shape == (6 * M, D)
    assert changes[SHARED].values[3].tobytes() == alone.upload.blocks[SHARED].values[0].tobytes()
    scores = step.score()
    assert scores[3].tobytes() == alone.score()[0].tobytes()
    assert np.isfinite(scores).all() and np.ptp(scores) > 0
    generator = changes[SHARED].values[:, len(BELOW[name].start(streams).shared) :]
    assert generator.shape[1] and np.abs(generator).max(axis=1).min() > 0


@pytest.mark.parametrize("name", BELOW)
def test_with_all_switched_off_a_step_is_the_method_s_on_the_sum_of_both_tables(name: str) -> None:
    """Nothing of the plug-in's own is left but the second table."""
    off = Enhancement(adaptive=False, consistency=0, complementarity=0, item_rate=1.0)
    below, method = BELOW[name], Enhanced(BELOW[name], off)
    ours, losses = models_of(method), np.zeros((2, 2))
    theirs = copied(ours)
    if not below.personal:
        theirs = theirs._replace(table=theirs.table + theirs.personal)
    method.step(ours, batch_of_second(), losses[0])
    below.step(theirs, batch_of_second(), losses[1])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    np.testing.assert_allclose(ours.own, theirs.own, rtol=1e-5, atol=1e-6)
    if below.personal:
        np.testing.assert_allclose(ours.personal, theirs.personal, atol=1e-5)
        np.testing.assert_allclose(ours.table, theirs.table, atol=1e-5)
    else:
        moved = theirs.table - (models_of(method).table + models_of(method).personal)
        np.testing.assert_allclose(ours.table - models_of(method).table, moved, atol=1e-5)
        np.testing.assert_allclose(ours.personal - models_of(method).personal, moved, atol=1e-5)
        assert np.abs(moved).max() > 0.01


def test_a_method_without_an_item_table_is_refused() -> None:
    matrix: Any = PMF(PMFConfig.printed())
    with pytest.raises(ConfigError, match="does not have an item table"):
        Enhanced(matrix, Enhancement())
    with pytest.raises(ConfigError, match="enhanced already"):
        Enhanced(fed3cr(), Enhancement())
    with pytest.raises(ConfigError, match="must be set: pfedrec"):
        Enhanced(BELOW["pfedrec"], Enhancement())


@pytest.mark.parametrize("weight", ["consistency", "complementarity"])
def test_a_weight_that_makes_the_loss_no_number_is_stopped(weight: str) -> None:
    changed: Any = {weight: 1e30}
    enhancement = replace(SWITCHES["all"], **changed)
    algorithm, public, vault, streams = federation(fed3cr(enhancement))
    kept = vault.snapshot()
    with pytest.raises(DivergedError, match=r"round 1: the loss of client \d"):
        algorithm.client_step(np.arange(6), public, vault, streams)
    assert all(np.array_equal(kept[name], values) for name, values in vault.snapshot().items())


@pytest.mark.parametrize("row", [0, 1])
def test_a_cosine_that_is_no_number_makes_the_loss_none(row: int) -> None:
    """Of either table, as where squares of its rows overflow; so no such table is kept."""
    cosines = np.full((6, 5), 0.5, dtype=np.float32)
    cosines[row, 3] = np.nan
    assert np.isnan(consistency(np.float32(0.1), cosines))


def test_the_generator_tells_the_prototypes() -> None:
    """First layer's change over its biases' is [g; p], p of a table that stays at home."""
    method = fed3cr()
    before, after = models_of(method), models_of(method)
    method.step(after, batch_of_second(), np.zeros(2))
    change, hidden = after.shared[1] - before.shared[1], 10 * D
    weights, biases = change[: 2 * D * hidden].reshape(2 * D, hidden), change[2 * D * hidden :]
    unit = np.argmax(np.abs(biases[:hidden]))
    read = weights[:, unit] / biases[unit]
    rows = [0, 9, 11]
    truth = np.concatenate([part[M:][rows].mean(0) for part in (before.table, before.personal)])
    cosine = read @ truth / np.linalg.norm(read) / np.linalg.norm(truth)
    assert cosine > 0.99


def test_the_first_transfer_matrix_is_near_the_identity() -> None:
    for scale in ("width", "matrix"):
        method = fed3cr(Enhancement(scale=scale))
        models = models_of(method)
        client = Client.of(method, models, 1)
        factor = 10.0 if scale == "matrix" else 1.0
        centres = (part[[0, 9, 11]].mean(0) for part in (client.table, client.personal))
        matrix = client.transfer(factor, *centres).detach().numpy()
        assert 0 < np.abs(matrix - np.eye(D)).max() < 0.7


@pytest.mark.parametrize("transfer", ["consensus", "unified"])
def test_other_transfers_score_by_their_own_matrix(transfer: str) -> None:
    """And a round of a federation averages it, whoever reads prototypes or not."""
    none: dict[str, Any] = {"consistency": 0, "complementarity": 0}
    method = fed3cr(Enhancement(transfer=transfer, **none))
    models = models_of(method)
    models.shared[:] = np.random.default_rng(1).normal(size=models.shared.shape)
    assert models.shared.shape == (2, D * D)
    scores = method.scores(models, models.table[:M])
    for client in range(2):
        rows, matrix = slice(client * M, (client + 1) * M), models.shared[client].reshape(D, D)
        common, own = models.table[rows] @ matrix, models.personal[rows]
        view = own @ matrix if transfer == "unified" else own
        np.testing.assert_allclose(scores[client], (common + view) @ models.own[client], rtol=1e-4)
        np.testing.assert_allclose(method.consensus(models, client), common, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(method.own_view(models, client), view, rtol=1e-5)
    algorithm, public, vault, streams = federation(method)
    step = algorithm.client_step(vault.clients, public, vault, streams)
    assert algorithm.initial_public(M, streams).extras[SHARED].reshape(D, D) == (
        pytest.approx(np.eye(D))
    )
    assert np.abs(step.upload.blocks[SHARED].values).max() > 1e-6
    assert np.isfinite(step.losses).all()


def test_settings_of_other_transfers() -> None:
    """What studies were made with is told as before there were others."""
    assert "transfer" not in fed3cr().knowledge()["enhancement"]
    other = fed3cr(Enhancement(transfer="consensus")).knowledge()
    assert other["enhancement"]["transfer"] == "consensus"
    assert "private_input" not in other
    with pytest.raises(ConfigError, match="neither consistency nor complementarity"):
        Enhancement(transfer="unified")
    with pytest.raises(ConfigError, match="no effect without adaptive"):
        Enhancement(transfer="consensus", adaptive=False)
    none: dict[str, Any] = {"consistency": 0, "complementarity": 0}
    with pytest.raises(ConfigError, match="which only the method fed3cr supports"):
        Enhanced(FedMF(FedMFConfig(rank=D), M), Enhancement(transfer="unified", **none))
    Enhanced(FedMF(FedMFConfig(rank=D), M), Enhancement(transfer="consensus"))
