"""A party's copy of an aggregation rule, whose state is kept from round to round.

Server optimisers, adaptive clipping and multi-task rules remember earlier rounds. That memory
counts as their input: FURL's constraints must hold for it as well. So every party of a run has its
own rule, whose state depends only on what this party got.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.aggregation import AggregationInput, Aggregator
from secure_fedrec.properties.split.model import Values

Updates: TypeAlias = tuple[dict[str, Tensor], dict[int, dict[str, Tensor]]]
"""The next federated parameters, and the next private ones by user."""


class RunningRule:
    """One party's own copy of a rule, called once a round.

    The copy is deep. State outside the rule object (a closure, a global) is not copied, and would
    be shared by all parties.

    Args:
        aggregate: the rule; it is never called itself.

    Attributes:
        rule: the copy.
    """

    def __init__(self, aggregate: Aggregator) -> None:
        try:
            self.rule: Aggregator = copy.deepcopy(aggregate)
        except Exception as failure:
            problem = f"cannot be copied for every party: {type(failure).__name__}: {failure}"
            raise ConfigError("aggregate", type(aggregate).__name__, problem) from failure

    def __call__(self, given: AggregationInput) -> Updates:
        """The rule's result for the next round, checked.

        Raises:
            ConfigError: it does not return the federated parameters and the private ones of every
                participant, in their shapes.
        """
        # Copies on both sides: a rule may write into what it got, or into what it once returned.
        summaries = {user: dict(summary) for user, summary in given.summaries.items()}
        answer = self.rule(replace(given.mapped(_copied), summaries=summaries))
        federated, private = _require_pair(answer)
        _require("federated", federated, given.federated)
        missing = sorted(given.summaries.keys() - private.keys())
        if missing:
            raise ConfigError("aggregate", missing, "no private update for these participants")
        for user, update in private.items():
            if user not in given.private:
                raise ConfigError("aggregate", user, "a private update for an unknown user")
            _require(f"user {user}", update, given.private[user])
        return _copied(federated), _copied(private)


def _require_pair(answer: object) -> tuple[Values, Mapping[int, Values]]:
    if isinstance(answer, tuple) and len(answer) == 2:
        federated, private = answer
        if isinstance(federated, Mapping) and isinstance(private, Mapping):
            return federated, private
    raise ConfigError(
        "aggregate",
        type(answer).__name__,
        "must return a pair: federated tensors by name, and private ones by user and name",
    )


def _require(whose: str, update: object, old: Values) -> None:
    if not isinstance(update, Mapping) or not all(isinstance(v, Tensor) for v in update.values()):
        raise ConfigError("aggregate", update, f"must return tensors by name ({whose})")
    shapes = {name: tuple(value.shape) for name, value in old.items()}
    returned = {name: tuple(value.shape) for name, value in update.items()}
    if returned != shapes:
        raise ConfigError("aggregate", returned, f"must return {shapes} ({whose})")


def _copied(values: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        key: value.clone() if isinstance(value, Tensor) else _copied(value)
        for key, value in values.items()
    }
