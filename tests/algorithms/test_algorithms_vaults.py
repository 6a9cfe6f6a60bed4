"""A client alone is the client among all: the same state, the same upload, the same bits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attacks.planted.split import PlantedSplit
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.algorithms.federated_averaging import (
    FederatedAveraging,
    FederatedAveragingConfig,
)
from secure_fedrec.algorithms.furl.settings import FURLConfig
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.system import HPFL
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import (
    SyntheticConfig,
    SyntheticOrganisationsConfig,
    generate,
    generate_organisations,
)
from secure_fedrec.engines import Problem, sizes_of
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.model import GUMConfig
from secure_fedrec.models.gum.training import GUMTraining
from secure_fedrec.protection import BagShape, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

N = 6
STREAMS = Streams.from_seed(11)
RATINGS = generate(SyntheticConfig(clients=N, items=12, mean_ratings=5.0, seed=2))
ORGANISATIONS = generate_organisations(
    SyntheticOrganisationsConfig(
        clients=N, users=4, items=12, attributes=3, mean_records=12, seed=4
    )
)


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Parameter(torch.zeros(1, 3))
        self.items = nn.Embedding(12, 3)


def tiny_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    scores = (model.items(batch["items"]) * model.user).sum(dim=1)  # type: ignore[operator]
    loss: torch.Tensor = ((scores - batch["ratings"].float()) ** 2).mean()
    return loss


class Case(NamedTuple):
    algorithm: Callable[[], Any]
    vault: Callable[[], Vault]
    n_rows: int = 0


def furl() -> FURL:
    local = LocalTrainingConfig(optimizer="adam", keep_state=True)
    return FURL(Tiny, tiny_loss, FURLConfig(rounds=1, local=local), private=("user",))


def averaging() -> FederatedAveraging:
    training = GUMTraining(epochs=1, patience=0, keep="last")
    config = FederatedAveragingConfig(gum=GUMConfig(hidden=2), training=training)
    return FederatedAveraging(config, ORGANISATIONS)


def hpfl() -> HPFL:
    config = HPFLConfig(gum=GUMConfig(hidden=2), training=GUMTraining(epochs=1, patience=0))
    return HPFL(config, ORGANISATIONS)


def classes() -> Vault:
    vault = vault_of(RATINGS)
    counts = vault.example_counts()
    items = np.concatenate([vault.examples(client)["items"] for client in range(N)])
    columns = {"items": items.astype(np.int64), "classes": items.astype(np.int64) % 3}
    return Vault.of_examples(np.concatenate([[0], np.cumsum(counts)]), columns)


CASES = {
    "pmf": Case(lambda: PMF(PMFConfig.printed(rank=3)), lambda: vault_of(RATINGS), 12),
    "pmf, biases": Case(
        lambda: PMF(PMFConfig.printed(rank=2, biases=True)), lambda: vault_of(RATINGS), 12
    ),
    "pmf, noise": Case(
        lambda: PMF(PMFConfig.printed(rank=2, temperature=0.1)), lambda: vault_of(RATINGS), 12
    ),
    "furl": Case(furl, lambda: vault_of(RATINGS)),
    "hpfl": Case(hpfl, ORGANISATIONS.vault, hpfl().rows),
    "federated averaging": Case(averaging, ORGANISATIONS.vault),
    "planted split": Case(lambda: PlantedSplit(items=12, classes=3, rounds=1), classes),
}


def of_some(vault: Vault, clients: IntArray) -> Vault:
    """The vaults of these clients alone."""
    held = [vault.examples(client) for client in clients.tolist()]
    counts = [len(next(iter(examples.values()))) for examples in held]
    columns = {name: np.concatenate([each[name] for each in held]) for name in held[0]}
    return Vault.of_examples(np.cumsum([0, *counts]), columns, clients)


def state_of(vault: Vault, clients: IntArray) -> dict[str, Any]:
    whole = {name: vault.read(name, clients) for name in vault.names()}
    parts = {
        f"{name} {client}": vault.read_ragged(name, client)
        for name in vault.ragged_names()
        for client in clients.tolist()
    }
    return {**whole, **parts}


def upload_of(case: Case, algorithm: Algorithm, vault: Vault, clients: IntArray) -> list[Any]:
    """All arrays that some clients give out in round 1, client by client."""
    public = algorithm.initial_public(case.n_rows, STREAMS)
    step = algorithm.client_step(clients, public, vault, STREAMS)
    upload = step.upload
    step.commit(vault)
    found: list[Any] = []
    for block in (*upload.blocks.values(), *upload.bags.values()):
        ends = getattr(block, "indptr", np.arange(len(clients) + 1))
        assert block.values is not None
        found.append(np.split(block.values, ends[1:-1]))
        if hasattr(block, "rows"):
            found.append(np.split(block.rows, ends[1:-1]))
    return found


@pytest.mark.parametrize("name", CASES)
@given(chosen=st.sets(st.integers(0, N - 1), min_size=1))
@settings(max_examples=8, deadline=None)
def test_a_client_has_the_same_state_and_gives_the_same_in_any_company(
    name: str, chosen: set[int]
) -> None:
    case, clients = CASES[name], np.array(sorted(chosen))
    everybody, together, apart = np.arange(N), case.algorithm(), case.algorithm()
    all_, some = case.vault(), of_some(case.vault(), clients)
    together.initialise(all_, STREAMS)
    apart.initialise(some, STREAMS)
    for part, values in state_of(some, clients).items():
        np.testing.assert_array_equal(values, state_of(all_, clients)[part], err_msg=part)
    ours = upload_of(case, apart, some, clients)
    theirs = upload_of(case, together, all_, everybody)
    for own, of_all in zip(ours, theirs, strict=True):
        for place, client in enumerate(clients.tolist()):
            np.testing.assert_array_equal(own[place], of_all[client])
    for part, values in state_of(some, clients).items():
        np.testing.assert_array_equal(values, state_of(all_, clients)[part], err_msg=part)


@pytest.mark.parametrize("name", CASES)
def test_the_clients_of_several_vaults_make_one_sum(name: str) -> None:
    """What processes of some clients each send adds up to what one process of all sends."""
    case, sums = CASES[name], []
    for groups in ([np.arange(N)], [np.array([0, 3, 4]), np.array([1]), np.array([2, 5])]):
        algorithm = case.algorithm()
        knowledge = {"n_items": 12} if case.n_rows == 12 else {}
        problem = Problem(vault=case.vault(), n_rows=case.n_rows, knowledge=knowledge)
        shapes = getattr(algorithm, "bag_sizes", {})
        bags = {bag: BagShape(width=width, most=most) for bag, (width, most) in shapes.items()}
        sizes = sizes_of(algorithm, problem, bags=bags)
        stack = build_stack({}, sizes=sizes, codec=FixedPoint(), streams=STREAMS)
        wire = Wire(meter=Meter(N))
        session = stack.open(round_=1, participants=np.arange(N), wire=wire)
        public = algorithm.initial_public(case.n_rows, STREAMS)
        for clients in groups:
            vault = of_some(problem.vault, clients)
            algorithm.initialise(vault, STREAMS)
            session.submit(algorithm.client_step(clients, public, vault, STREAMS))
        aggregate: Aggregate = session.close()
        sums.append((aggregate, algorithm.server_step(public, aggregate)))
    (one, after), (other, again) = sums
    np.testing.assert_array_equal(one.ring, other.ring)
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_array_equal(after.table, again.table)


def test_a_vault_is_asked_for_its_own_clients_only() -> None:
    vault = of_some(vault_of(RATINGS), np.array([1, 4]))
    assert vault.clients.tolist() == [1, 4]
    assert vault.named
    assert vault.n_clients == 2
    vault.create("kept", np.array([[1.0], [4.0]]))
    vault.create_ragged("long", np.array([0, 1, 3]), np.arange(3.0)[:, None])
    assert vault.read("kept", np.array([4, 1, 4])).tolist() == [[4.0], [1.0], [4.0]]
    assert vault.read_ragged("long", 4).tolist() == [[1.0], [2.0]]
    assert vault.example_counts(np.array([4])) == len(vault.examples(4)["items"])
    for ask in (
        lambda: vault.read("kept", np.array([1, 2])),
        lambda: vault.write("kept", np.array([5]), np.zeros((1, 1))),
        lambda: vault.read_ragged("long", 0),
        lambda: vault.examples(3),
        lambda: vault.rated(np.array([0])),
        lambda: vault.example_counts(np.array([9])),
    ):
        with pytest.raises(ValueError, match="the vault does not hold client"):
            ask()
    assert vault.read("kept", np.array([1, 4])).tolist() == [[1.0], [4.0]]


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        (np.array([4, 1]), "must ascend"),
        (np.array([1, 1]), "must ascend"),
        (np.array([-1, 1]), "must ascend"),
        (np.array([1]), "1 clients for 2 segments"),
        (np.array([1.0, 2.0]), "must be int64"),
    ],
)
def test_numbers_of_clients_are_checked(clients: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Vault.of_examples(np.array([0, 1, 2]), {"items": np.arange(2)}, clients)
