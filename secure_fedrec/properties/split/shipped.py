"""Federated rounds in which the whole model is sent, with all users' private parameters.

Federated Averaging with a shared user table, without private parameters: every participant
downloads the model of all users, trains it, and sends all of it back. ``Averaging`` averages whole
tensors, including rows of absent users, without knowing the owners of rows. Only ``keep_private``
(z_i = 1) and other rules need a user's values, which are taken from the model that this user sent.
A rule with state keeps it from round to round.
"""

from collections.abc import Iterable, Mapping, Sequence

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.properties.split.aggregation import (
    AggregationInput,
    Aggregator,
    Averaging,
    Summary,
    averaged,
)
from secure_fedrec.properties.split.model import Values, parts_of
from secure_fedrec.properties.split.random import is_exact
from secure_fedrec.properties.split.running import RunningRule
from secure_fedrec.properties.split.training import LocalRuns


class Shipped:
    """The rounds; see the module docstring.

    Args:
        local: local training.
        start: state of the whole model before the first round.
        aggregate: the server's rule.

    Attributes:
        state: the server's model: every parameter and buffer, whole.
    """

    def __init__(self, local: LocalRuns, start: Values, aggregate: Aggregator) -> None:
        self._local = local
        self._split = local.split
        self._rule = RunningRule(aggregate)
        self._optimizers: dict[int, FloatArray | None] = {}
        self.state: Values = start

    def run_round(
        self, round_: int, participants: Sequence[int], *, backwards: bool = False
    ) -> None:
        """One round of some users, in ascending order.

        Args:
            round_: the round.
            participants: the users.
            backwards: whether they train in descending order, which must not change any result.
        """
        models: dict[int, Values] = {user: {} for user in participants}
        for user in reversed(participants) if backwards else participants:
            self._split.load(self.state)
            optimizer = self._optimizers.get(user)
            self._optimizers[user] = self._local.train(user, round_, optimizer)
            models[user] = self._split.state()
        summaries = self._local.summaries(participants)
        self._split.load(self.state)
        rule = self._rule.rule
        if type(rule) is Averaging:  # a subclass may do more than average
            self._load_averages(rule, self.state, models, summaries)
        else:
            self._load_averages(Averaging(), self._split.shared_buffers, models, summaries)
            self._load_aggregated(models, summaries)
        for user, model in models.items():
            # Integers cannot be averaged: those of the user are kept.
            self._split.load_private(user, parts_of(self._split.counters, model, user))
        self.state = self._split.state()

    def _load_averages(
        self,
        rule: Averaging,
        names: Iterable[str],
        models: Mapping[int, Values],
        summaries: Mapping[int, Summary],
    ) -> None:
        """Eq. 5 for whole tensors; z_i = 1 then restores the users' own values."""
        weights = rule.weights(summaries)
        total = sum(weights.values())
        for name in names:
            old = self.state[name]
            if not is_exact(old):
                local = [(weight, models[user][name]) for user, weight in weights.items()]
                self._split.load({name: averaged(old, local, total)})
        if rule.keep_private:
            for user in range(self._split.n_users):
                own = models.get(user, self.state)
                self._split.load_private(user, parts_of(self._split.slots, own, user))

    def _load_aggregated(
        self, models: Mapping[int, Values], summaries: Mapping[int, Summary]
    ) -> None:
        """Any other rule, given all that the server holds."""
        slots, federated = self._split.slots, self._split.federated
        given = AggregationInput(
            federated={name: self.state[name] for name in federated},
            private={
                user: parts_of(slots, self.state, user) for user in range(self._split.n_users)
            },
            local_federated={
                user: {name: model[name] for name in federated} for user, model in models.items()
            },
            local_private={user: parts_of(slots, model, user) for user, model in models.items()},
            summaries=summaries,
        )
        updated, private = self._rule(given)
        self._split.load(updated)
        for user, values in private.items():
            self._split.load_private(user, values)
