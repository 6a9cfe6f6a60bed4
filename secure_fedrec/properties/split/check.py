"""FURL's theorem as a check: whether private parameters of a model can stay on devices.

FURL (section 3) divides the parameters of a model into federated ones w_f and private ones w_p^i of
every user i. Keeping w_p^i on the device changes no result if

    (1) independent local training: the loss of user i does not depend on w_p^j, j != i;
    (2) independent aggregation: the next w_f depends only on w_f, on the users' local values of it
        and on summaries of their data;
    (3) the next w_p^i depends only on w_p^i, on its local value and on summaries.

``check_split_personalization`` tests all three on a user's own torch model, with random parameters
and random data. A violation is a counterexample: it names the constraint, the parameter, the two
users and the seed that reproduces it. Trials without a violation are evidence, not a proof. Parts
that no trial could reach are reported as gaps, and the check does not pass.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from tqdm import tqdm

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.asserting import asserting
from secure_fedrec.properties.split.aggregation import (
    Aggregator,
    keep_local,
)
from secure_fedrec.properties.split.evaluation import (
    Loss,
    require_callable,
    with_gradients,
)
from secure_fedrec.properties.split.independent_aggregation import (
    AggregationTrials,
    Summaries,
    example_counts,
)
from secure_fedrec.properties.split.independent_training import LocalTrials
from secure_fedrec.properties.split.model import SplitModel
from secure_fedrec.properties.split.random import (
    Batches,
    generator_of,
)
from secure_fedrec.properties.split.relations import relations_of
from secure_fedrec.properties.split.report import (
    Findings,
    SplitReport,
)
from secure_fedrec.properties.split.scales import LOG_UNIFORM, MIXED, kinds_of
from secure_fedrec.properties.split.trials import Trial
from secure_fedrec.streams import Streams

_FEW = 16  # users up to which every trial has all of them
_OF_MANY = 8  # users per trial if there are more
_OF_ALL = (MIXED, LOG_UNIFORM)  # values drawn in trials of all users


def check_split_personalization(
    model: nn.Module,
    loss: Loss,
    *,
    private: Sequence[str],
    batches: Batches,
    aggregate: Aggregator = keep_local,
    summaries: Summaries = example_counts,
    trials: int = 9,
    seed: int = 0,
    scales: Sequence[float] = (0.1, 0.5, 2.0),
) -> SplitReport:
    """Test the three constraints of split personalization.

    The model holds the parameters of all users, as it would on a server. It is tested in training
    mode and restored afterwards.

    Args:
        model: any module, on the processor.
        loss: (model, user, batch) -> scalar that the local training of that user minimises. It must
            draw random numbers from torch's generator (as dropout does), which is seeded.
        private: patterns of the names of private parameters (and buffers): ``"users.weight"`` for a
            table with one row per user, ``"heads.{user}.*"`` for a module per user; ``*`` stands
            for any part of a name. All other parameters are federated.
        batches: draws a random batch, e.g. ``random_batches(8, item=integers(50))``.
        aggregate: the server's step. The default is FURL's own.
        summaries: draws the server's knowledge of a user's data; numbers of examples by default.
        trials: number of trials; everything that trial k draws is a function of ``seed + k`` only.
        seed: seed of the first trial.
        scales: standard deviations of the random parameters, used in turn.

    Returns:
        The findings; ``report.require()`` raises unless all three hold.

    Raises:
        ConfigError: a pattern matches nothing, no parameter is private or none federated, the users
            cannot be counted, the loss is not a scalar that depends on a trainable parameter, the
            aggregator returns other shapes, or there is nothing to try.
    """
    _require_trials(trials, scales, seed)
    require_callable(loss=loss, batches=batches, aggregate=aggregate, summaries=summaries)
    split = SplitModel(model, private)
    findings = Findings()
    with with_gradients(), split.preserved():
        split.train()
        local = LocalTrials(split, loss, batches, findings)
        aggregation = AggregationTrials(split, aggregate, summaries, findings)
        try:
            local.find_ties(seed)
            drawn = list(_trials(range(seed, seed + trials), scales, split.n_users))
            for trial in tqdm(drawn, "trials", leave=False, disable=None):
                local.run(trial)
                aggregation.run(trial)
        finally:
            aggregation.finish()
            local.finish()
    return SplitReport(
        n_users=split.n_users,
        trials=trials,
        federated=split.federated,
        private=tuple(slot.name for slot in split.own),
        violations=findings.violations,
        gaps=tuple(findings.gaps.values()),
        advice=tuple(findings.advice),
        drawn=dict(findings.drawn.most_common()),
    )


@asserting(check_split_personalization)
def assert_split_personalization(report: SplitReport) -> None:
    """Fail unless the three constraints hold; a test in one line.

    Takes the arguments of ``check_split_personalization``.

    Raises:
        SplitPersonalizationError: names constraint, parameter, users, size and seed of every
            violation, and what could not be tested.
        ConfigError: see ``check_split_personalization``.
    """
    report.require()


def _require_trials(trials: int, scales: Sequence[float], seed: int) -> None:
    if not isinstance(trials, int) or trials < 1:
        problem = "must be an integer of at least 1, or no trial would be run"
        raise ConfigError("trials", trials, problem)
    if not isinstance(seed, int) or seed < 0:
        raise ConfigError("seed", seed, "must be an integer of at least 0")
    if not scales or not all(0 < scale < math.inf for scale in scales):
        raise ConfigError("scales", tuple(scales), "must be positive, finite, and at least one")


def _trials(seeds: Sequence[int], scales: Sequence[float], n_users: int) -> Iterator[Trial]:
    """One trial per seed; if trials have some of the users, a trial of all users comes first."""
    for seed in seeds:
        scale = scales[seed % len(scales)]
        if n_users > _FEW and seed == seeds[0]:
            everybody = tuple(range(n_users))
            each = relations_of(seed, n_users, each=True)
            yield Trial(seed=seed, scale=scale, users=everybody, kinds=_OF_ALL, relations=each)
        generator = generator_of(Streams.from_seed(seed), "split.users")
        number = n_users if n_users <= _FEW else _OF_MANY
        users = torch.randperm(n_users, generator=generator)[:number].tolist()
        yield Trial(
            seed=seed,
            scale=scale,
            users=tuple(sorted(users)),
            kinds=kinds_of(seed),
            relations=relations_of(seed, n_users),
        )
