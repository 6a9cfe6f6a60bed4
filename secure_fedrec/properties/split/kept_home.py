"""Federated rounds in which private parameters do not leave their devices.

A device holds only its own private parameters. It downloads w_f, trains, and uploads its local w_f
and its number of examples, as bytes. The server aggregates what it got; then every device updates
its private parameters by itself. A party has noise in place of values that it does not have, so a
model or a rule cannot use them.

Server and devices each run their own copy of the rule, with separate states. A device that was
absent later gets the summaries of the rounds it missed, and updates its parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.properties.split.aggregation import AggregationInput, Aggregator, Summary
from secure_fedrec.properties.split.device_messages import SERVER, SplitMessage, decode, encode
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.random import generator_of, noise_like
from secure_fedrec.properties.split.running import RunningRule
from secure_fedrec.properties.split.training import LocalRuns


@dataclass(slots=True, kw_only=True, eq=False)
class _Device:
    """All that one user's device keeps between rounds."""

    private: Values
    counters: Values
    buffers: Values  # as on the device; never sent
    rule: RunningRule
    rounds: int = 0  # rounds whose summaries it received
    optimizer: FloatArray | None = None


class KeptHome:
    """Federated rounds in which private parameters do not leave their devices.

    Args:
        local: local training.
        start: state of the whole model before the first round.
        aggregate: the server's rule for w_f and every device's for w_p.

    Attributes:
        federated: w_f.
        devices: what every user's device keeps.
        messages: all that was sent, in order.
    """

    def __init__(self, local: LocalRuns, start: Values, aggregate: Aggregator) -> None:
        self._local = local
        self._split = local.split
        self._start = start
        self._rule = RunningRule(aggregate)
        self._summaries: list[tuple[int, Mapping[int, Summary]]] = []  # of every round
        self._split.load(start)
        self.federated: Values = self._split.federated_values()
        self.devices = [
            _Device(
                private=self._split.private_values(user),
                counters=self._split.counter_values(user),
                buffers=self._split.buffer_values(),
                rule=RunningRule(aggregate),
            )
            for user in range(self._split.n_users)
        ]
        self.messages: list[SplitMessage] = []

    def private(self, user: int) -> dict[str, Tensor]:
        """A user's private values, on its device."""
        return {**self.devices[user].private, **self.devices[user].counters}

    def run_round(self, round_: int, participants: Sequence[int]) -> None:
        """One round of some users, in ascending order."""
        uploads: dict[int, Values] = {}
        trained: dict[int, Values] = {}
        for user in participants:
            self._load_device(round_, user, self._send(round_, SERVER, user, self.federated))
            device = self.devices[user]
            device.optimizer = self._local.train(user, round_, device.optimizer)
            device.counters = self._split.counter_values(user)
            device.buffers = self._split.buffer_values()
            trained[user] = self._split.private_values(user)
            upload = self._split.federated_values()
            summary = self._local.summaries([user])
            uploads[user] = self._send(round_, user, SERVER, upload, summary)
        summaries = self._local.summaries(participants)
        self._summaries.append((round_, summaries))
        # A rule for w_f or for one user's w_p gets noise in place of what it must not use.
        given = self._noise(round_, SERVER, summaries)
        self.federated, _ = self._rule(
            replace(given, federated=self.federated, local_federated=uploads)
        )
        for user in participants:
            self._update_private(round_, user, trained[user])

    def _update_private(self, round_: int, user: int, trained: Values) -> None:
        """A device's own update, after the missed calls of its rule."""
        device = self.devices[user]
        for past, summaries in self._summaries[device.rounds :]:
            self._send(round_, SERVER, user, {}, summaries)
            given = self._noise(past, user, summaries)
            given = replace(given, private={**given.private, user: device.private})
            if past == round_:
                given = replace(given, local_private={**given.local_private, user: trained})
            _, update = device.rule(given)
        device.private = update[user]
        device.rounds = len(self._summaries)

    def _load_device(self, round_: int, user: int, federated: Values) -> None:
        """The module on a user's device, with noise in place of others' values."""
        split, device = self._split, self.devices[user]
        generator = generator_of(self._local.streams, "split.others", round_, user)
        split.load(self._start)
        private = [name for slot in split.own for name in slot.sources]
        split.load({name: noise_like(self._start[name], 1.0, generator) for name in private})
        split.load({**device.buffers, **federated})
        split.load_private(user, {**device.private, **device.counters})

    def _noise(self, round_: int, party: int, summaries: Mapping[int, Summary]) -> AggregationInput:
        generator = generator_of(self._local.streams, "split.withheld", round_, party + 1)

        def noise(values: Values) -> Values:
            return {name: noise_like(value, 1.0, generator) for name, value in values.items()}

        private = self.devices[0].private
        like = AggregationInput.alike(self.federated, private, len(self.devices), summaries)
        return like.mapped(noise)

    def _send(
        self,
        round_: int,
        sender: int,
        receiver: int,
        values: Values,
        summaries: Mapping[int, Summary] | None = None,
    ) -> Values:
        """Encode a message, and return what its receiver reads from the bytes."""
        message = SplitMessage(
            round=round_,
            sender=sender,
            receiver=receiver,
            names=tuple(values),
            payload=encode(values),
            summaries={} if summaries is None else summaries,
        )
        self.messages.append(message)
        return decode(message.payload, values)
