"""Checks FURL's theorem on the model of a configuration: whether private parameters can stay home.

Both checks of ``secure_fedrec.properties`` run on the configured model with a few users and their
own training examples: the three constraints at random parameters, and rounds that keep private
parameters at home and rounds that ship everything, which must end in the same bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from audits.system import Check
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.algorithms.local_training import Batch, seeded_torch
from secure_fedrec.properties.split import (
    Batches,
    check_split_personalization,
    federated_averaging,
    keep_local,
)
from secure_fedrec.properties.split.equivalence import compare_split

USERS = 4
"""Number of users of the checked model; every pair of them is examined."""

_BATCH = 8
_RULES = {"z_i = 1": keep_local, "z_i = c_i / sum c": federated_averaging}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitCase:
    """A model of several users with the examples of each.

    Args:
        build: makes the model that holds the parameters of all these users.
        loss: loss of one user on a batch of its examples.
        private: patterns of the names of private parameters.
        data: columns of each user's training examples.
        training: settings of local training.
    """

    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, int, Batch], Tensor]
    private: Sequence[str]
    data: Sequence[Mapping[str, npt.NDArray[Any]]]
    training: LocalTrainingConfig


def check_split(case: SplitCase, *, rounds: int, seed: int) -> list[Check]:
    """Check the three constraints, then the equality of both runs under both rules."""
    with seeded_torch(seed):
        model = case.build()
    report = check_split_personalization(
        model, case.loss, private=case.private, batches=_own_rows(case.data), seed=seed
    )
    facts = {
        "trials": report.trials,
        "users": report.n_users,
        "private": list(report.private),
        "violations": [str(each) for each in report.violations],
        "gaps": [str(each) for each in report.gaps],
    }
    holds = None if report.gaps and not report.refuted else report.holds
    found = [Check(name="split-personalization", holds=holds, text=str(report), facts=facts)]
    return [*found, *_equalities(case, model, rounds=rounds, seed=seed)]


def _equalities(case: SplitCase, model: nn.Module, *, rounds: int, seed: int) -> list[Check]:
    users = len(case.data)
    cohorts = [sorted({round_ % users, (round_ + 1) % users}) for round_ in range(rounds)]
    found = []
    for rule, aggregate in _RULES.items():
        outcome = compare_split(
            model,
            case.loss,
            private=case.private,
            data=case.data,
            cohorts=cohorts,
            training=case.training,
            aggregate=aggregate,
            seed=seed,
        )
        text = (
            f"private parameters kept at home, {rule}: {outcome.rounds} rounds equal those with "
            "everything shipped, bit for bit"
        )
        if not outcome.holds:
            found_out = outcome.first_difference or outcome.gap
            text = f"private parameters kept at home, {rule}: {found_out}"
        facts = {
            "rule": rule,
            "rounds": outcome.rounds,
            "trainings": outcome.trainings,
            "first_difference": outcome.first_difference,
            "gap": outcome.gap,
        }
        holds = None if outcome.gap is not None else outcome.holds
        found.append(Check(name="split-equals-unsplit", holds=holds, text=text, facts=facts))
    return found


def _own_rows(data: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Batches:
    """Batches of a user's own examples, drawn with replacement."""

    def draw(user: int, generator: torch.Generator) -> Batch:
        size = len(next(iter(data[user].values())))
        rows = torch.randint(size, (_BATCH,), generator=generator).numpy()
        return {name: torch.from_numpy(np.asarray(own)[rows]) for name, own in data[user].items()}

    return draw
