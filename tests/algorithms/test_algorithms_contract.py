"""Every algorithm keeps the contract that an implementer inherits; one that breaks it is told."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
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
from secure_fedrec.data import (
    SyntheticConfig,
    SyntheticOrganisationsConfig,
    generate,
    generate_organisations,
)
from secure_fedrec.engines import Problem
from secure_fedrec.engines.local_engine import require_arrays
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.model import GUMConfig
from secure_fedrec.models.gum.training import GUMTraining
from secure_fedrec.protection import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.testing import AlgorithmContract
from secure_fedrec.vault import Vault

N = 6
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


class OnRatings(AlgorithmContract):
    def problem(self) -> Problem:
        return Problem(vault=vault_of(RATINGS), n_rows=12, knowledge={"n_items": 12})


class TestPMF(OnRatings):
    def algorithm(self) -> Algorithm:
        return PMF(PMFConfig.printed(rank=3))


class TestPMFWithBiases(OnRatings):
    def algorithm(self) -> Algorithm:
        return PMF(PMFConfig.printed(rank=2, biases=True))


class TestFURL(AlgorithmContract):
    def algorithm(self) -> Algorithm:
        local = LocalTrainingConfig(optimizer="adam", keep_state=True)
        return FURL(Tiny, tiny_loss, FURLConfig(rounds=1, local=local), private=("user",))

    def problem(self) -> Problem:
        return Problem(vault=vault_of(RATINGS))


class TestWeightedFURL(TestFURL):
    """Its public state has one sum of weights more after every round."""

    def algorithm(self) -> Algorithm:
        config = FURLConfig(rounds=1, private_rule="weighted")
        return FURL(Tiny, tiny_loss, config, private=("user",), ring=FixedPoint())


class TestFederatedAveraging(AlgorithmContract):
    def algorithm(self) -> Algorithm:
        training = GUMTraining(epochs=1, patience=0, keep="last")
        config = FederatedAveragingConfig(gum=GUMConfig(hidden=2), training=training)
        return FederatedAveraging(config, ORGANISATIONS)

    def problem(self) -> Problem:
        return Problem(vault=ORGANISATIONS.vault())


class TestHPFL(AlgorithmContract):
    def algorithm(self) -> HPFL:
        training = GUMTraining(epochs=1, patience=0)
        return HPFL(HPFLConfig(gum=GUMConfig(hidden=2), training=training), ORGANISATIONS)

    def problem(self) -> Problem:
        return Problem(vault=ORGANISATIONS.vault(), n_rows=self.algorithm().rows)

    def bags(self) -> Mapping[str, BagShape]:
        sizes = self.algorithm().bag_sizes
        return {bag: BagShape(width=width, most=most) for bag, (width, most) in sizes.items()}


class TestPlantedSplit(AlgorithmContract):
    def algorithm(self) -> Algorithm:
        return PlantedSplit(items=12, classes=3, rounds=1)

    def problem(self) -> Problem:
        items = RATINGS.items.astype(np.int64)
        indptr = np.searchsorted(RATINGS.clients, np.arange(N + 1))
        columns = {"items": items, "classes": items % 3}
        return Problem(vault=Vault.of_examples(indptr, columns))


class Faulty(OnRatings):
    """PMF with one fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def algorithm(self) -> Algorithm:
        return FaultyPMF(self.fault)


class FaultyPMF(PMF):
    def __init__(self, fault: str) -> None:
        super().__init__(PMFConfig.printed(rank=2))
        self.fault, self.steps, self.moved = fault, 0, np.zeros(1)

    def public_knowledge(self) -> dict[str, Any]:
        known = super().public_knowledge()
        if self.fault == "silent":
            del known["traits"]
        return known

    def client_step(self, clients: Any, public: Any, vault: Any, streams: Any) -> Any:
        step = super().client_step(clients, public, vault, streams)
        block: Any = step.upload.block
        if self.fault == "hasty":
            step.commit(vault)
        elif self.fault == "meddling":
            public.table[0] += 1.0
        elif self.fault == "sociable":
            return _Sends(step, replace(block, values=block.values * len(clients)))
        elif self.fault == "wide":
            return _Sends(step, replace(block, values=np.hstack([block.values, block.values])))
        elif self.fault == "secretive":
            ends = np.maximum(block.indptr - 1, 0)
            less = replace(block, indptr=ends, rows=block.rows[1:], values=block.values[1:])
            return _Sends(step, less)
        elif self.fault == "endless":
            return _Sends(step, replace(block, values=block.values + np.inf))
        elif self.fault == "restless":
            return _Rereads(step, block)
        elif self.fault in ("mindful", "late") and self.steps + public.round:
            more = self.steps if self.fault == "mindful" else block.values.mean()
            step = cast(Any, _Sends(step, replace(block, values=block.values + more)))
        self.steps += 1
        return step

    def server_step(self, public: Any, aggregate: Any) -> Any:
        state = super().server_step(public, aggregate)
        if self.fault == "swinging":
            self.steps += 1
            return replace(state, table=state.table + self.steps)
        if self.fault == "rolling":
            self.moved = state.table - public.table + (0.9 * self.moved if public.round else 0.0)
            return replace(state, table=public.table + self.moved)
        if self.fault == "noting":
            self.steps += 1
            return replace(state, extras={**state.extras, "steps": np.array(self.steps)})
        if self.fault == "growing":
            return replace(state, extras={**state.extras, "norms": np.zeros(state.round)})
        return replace(state, round=7) if self.fault == "hurried" else state


class _Sends:
    def __init__(self, step: Any, block: Any) -> None:
        self.clients, self.commit = step.clients, step.commit
        self.upload = replace(step.upload, blocks={"table": block})


class _Rereads(_Sends):
    """Another upload each time that it is read."""

    @property
    def upload(self) -> Any:
        return replace(self._sent, blocks={"table": replace(self._block, values=self._grown())})

    @upload.setter
    def upload(self, sent: Any) -> None:
        self._sent, self._block = sent, sent.blocks["table"]

    def _grown(self) -> Any:
        self._block = replace(self._block, values=self._block.values * 2.0)
        return self._block.values


@pytest.mark.claim("hosts-malformed-state")
@pytest.mark.parametrize(("rows", "fits"), [(1, False), (2, False), (3, True), (4, False)])
def test_a_round_has_a_sum_of_weights(rows: int, fits: bool) -> None:
    """In FURL's rule with weights, which looks a round up among them."""
    algorithm = TestWeightedFURL().algorithm()
    start = algorithm.initial_public(0, Streams.from_seed(1))
    (name,) = start.extras
    public = replace(start, round=2, extras={name: np.ones(rows)})
    with nullcontext() if fits else pytest.raises(ProtocolError, match=r"be \(3,\)"):
        require_arrays(algorithm, start, public)


@pytest.mark.parametrize(
    ("fault", "test", "says"),
    [
        ("silent", "test_traits_are_stated", "states no traits"),
        ("sociable", "test_a_client_alone_is_the_client_among_all", "values of table of client 5"),
        ("late", "test_a_client_alone_is_the_client_among_all", "in upload 2"),
        ("mindful", "test_a_client_alone_is_the_client_among_all", "in upload 2"),
        ("restless", "test_a_client_alone_is_the_client_among_all", "read again"),
        ("endless", "test_uploads_are_as_foretold", "not finite"),
        ("swinging", "test_what_several_processes_send_is_one_sum", "is not a function"),
        ("noting", "test_what_several_processes_send_is_one_sum", "is not a function"),
        ("rolling", "test_the_servers_step_keeps_nothing_to_itself", "kept from the first"),
        ("hasty", "test_a_step_leaves_public_state_and_vault_alone", "before commit"),
        ("meddling", "test_a_step_leaves_public_state_and_vault_alone", "public state"),
        ("wide", "test_uploads_are_as_foretold", "4 wide"),
        ("secretive", "test_rows_are_as_the_traits_say", "client 0 sends rows"),
        ("sociable", "test_what_several_processes_send_is_one_sum", "depend on the batches"),
        (
            "growing",
            "test_arrays_of_a_public_state_keep_their_shapes",
            "norms is .*, but must be",
        ),
        ("hurried", "test_what_several_processes_send_is_one_sum", "to round 7"),
    ],
)
def test_what_breaks_the_contract_is_told(fault: str, test: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        getattr(Faulty(fault), test)()
