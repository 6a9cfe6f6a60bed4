"""The global aggregation step of split personalization, and FURL's rules.

An aggregator takes everything that a server could have after a round and returns the next federated
and private parameters. Split personalization allows it to use only part of that (section 3.3 of
FURL):

    w_f'   = a_f(w_f, u_f of all users, summaries)         constraint (2)
    w_p^i' = a_p(w_p^i, u_p^i, summaries)                  constraint (3)

so that private parameters need not be sent at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.model import Values

Summary: TypeAlias = Mapping[str, float]
"""The server's knowledge of one user's training data, such as ``{"examples": 12}``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AggregationInput:
    """The values that exist when a round's local training has ended.

    Args:
        federated: w_f, the federated parameters the round started from, by name.
        private: w_p^i of every user, by user, then by name; a row of a table goes by the table's
            name, a tensor of a user's own module by its name with ``{user}`` for the number.
        local_federated: u_f,i of every participant after its local training.
        local_private: u_p,i of every participant.
        summaries: s_i of every participant. ``"examples"`` is always there.
    """

    federated: Values
    private: Mapping[int, Values]
    local_federated: Mapping[int, Values]
    local_private: Mapping[int, Values]
    summaries: Mapping[int, Summary]

    @classmethod
    def alike(
        cls, federated: Values, private: Values, users: int, summaries: Mapping[int, Summary]
    ) -> "AggregationInput":
        """The federated values, and the same private values for all users."""
        return cls(
            federated=federated,
            private=dict.fromkeys(range(users), private),
            local_federated=dict.fromkeys(summaries, federated),
            local_private=dict.fromkeys(summaries, private),
            summaries=summaries,
        )

    def mapped(self, change: Callable[[Values], Values]) -> "AggregationInput":
        """All values changed, in the order of the fields and of the users."""

        def of_users(values: Mapping[int, Values]) -> dict[int, Values]:
            return {user: change(own) for user, own in values.items()}

        return AggregationInput(
            federated=change(self.federated),
            private=of_users(self.private),
            local_federated=of_users(self.local_federated),
            local_private=of_users(self.local_private),
            summaries=self.summaries,
        )


Aggregator: TypeAlias = Callable[[AggregationInput], tuple[Values, Mapping[int, Values]]]
"""Returns the next federated parameters, and the next private ones of (at least) the participants.

Users it does not return keep theirs.
"""


def _examples(summary: Summary) -> float:
    if "examples" not in summary:
        problem = "have no 'examples', by which this rule weighs: draw them, or give it a weight"
        raise ConfigError("summaries", sorted(summary), problem)
    return summary["examples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging:
    """Federated Averaging, weighted by any function of a user's summary.

    Args:
        weight: c_i; the number of training examples unless stated otherwise.
        keep_private: whether a private parameter simply keeps its locally trained value (z_i = 1,
            eq. 7) or takes the step that averaging a shared table gives it (z_i = c_i / sum c,
            eq. 6).
    """

    weight: Callable[[Summary], float] = _examples
    keep_private: bool = False

    def __call__(self, given: AggregationInput) -> tuple[Values, Mapping[int, Values]]:
        """Eq. 5 for federated parameters, eq. 6 or 7 for private ones."""
        weights = self.weights(given.summaries)
        total = sum(weights.values())
        federated = {
            name: averaged(
                old, [(weights[user], given.local_federated[user][name]) for user in weights], total
            )
            for name, old in given.federated.items()
        }
        if self.keep_private:
            return federated, given.local_private
        private = {
            user: {
                name: averaged(old, [(weight, given.local_private[user][name])], total)
                for name, old in given.private[user].items()
            }
            for user, weight in weights.items()
        }
        return federated, private

    def weights(self, summaries: Mapping[int, Summary]) -> dict[int, float]:
        """c_i by user, in ascending order of users: sums of floats depend on their order.

        Raises:
            ConfigError: a weight is negative, not finite, or all are 0.
        """
        weights = {user: float(self.weight(summaries[user])) for user in sorted(summaries)}
        if not (0 < sum(weights.values()) < float("inf")) or min(weights.values()) < 0:
            raise ConfigError("weight", weights, "weights must be finite and not all 0")
        return weights


federated_averaging = Averaging()
"""Federated Averaging of everything: private parameters move by z_i times their local change."""

keep_local = Averaging(keep_private=True)
"""FURL: Federated Averaging of the federated parameters; private ones keep their local value."""


def averaged(old: Tensor, local: Sequence[tuple[float, Tensor]], total: float) -> Tensor:
    """``w + (sum of c_i (u_i - w)) / total`` (eq. 5), added up in the given order.

    A term without change adds an exact zero. So the average of a table in which only user i changed
    row i, and the average of user i's row alone, have the same bits.

    Args:
        old: w.
        local: (c_i, u_i) of the users that send one.
        total: sum of the c_i of all participants.
    """
    change = torch.zeros_like(old)
    for weight, value in local:
        change = change + weight * (value - old)
    return old + change / total
