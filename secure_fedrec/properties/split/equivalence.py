"""Tests FURL's theorem by running it: keeping private parameters at home changes no bit of a round.

``compare_split`` runs the same federated rounds twice, once with private parameters kept on their
devices (``split_kept_home``) and once with the whole model shipped to the server and averaged there
(``split_shipped``). After every round, federated parameters and every user's private ones must have
the same bits; there is no tolerance.

The shipped run is the reference, so it is compared with itself first: run again, with the users of
every round training in the other order, it must end every round in the same bits. A model that
counts its calls, draws outside torch's generator or remembers other users fails this; then nothing
is compared, and the question is open.

That holds for one rule on both sides: ``federated_averaging`` (z_i = c_i / sum c, eq. 6), where
both compute ``w + c_i (u_i - w) / sum c`` in the same order, or ``keep_local`` (z_i = 1, eq. 7),
where both take local values as they are. It does not hold if the two runs use different rules.
They would differ by rounding, since w + (u - w) is not exactly u in floating point.

Optimisers' states belong to devices: with ``LocalTrainingConfig(keep_state=True)`` momentum and
Adam moments stay there in both runs. There is no weight decay, which would shrink every user's
private values on every device; a decay of federated parameters is a term of the loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.errors import ConfigError, SplitPersonalizationError
from secure_fedrec.properties.asserting import asserting
from secure_fedrec.properties.split.aggregation import Aggregator, keep_local
from secure_fedrec.properties.split.device_messages import SplitMessage
from secure_fedrec.properties.split.evaluation import Loss, require_callable, with_gradients
from secure_fedrec.properties.split.kept_home import KeptHome
from secure_fedrec.properties.split.memory import Memory
from secure_fedrec.properties.split.model import SplitModel, Values
from secure_fedrec.properties.split.random import is_exact
from secure_fedrec.properties.split.shipped import Shipped
from secure_fedrec.properties.split.training import Examples, LocalRuns
from secure_fedrec.properties.split.trials import largest_change, raw_bytes, same_bits
from secure_fedrec.streams import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitComparison:
    """Outcome of the two runs.

    Args:
        rounds: rounds compared; the last one holds the first difference, if there is any.
        trainings: local trainings in them.
        first_difference: in words; None if all bits agree.
        largest_difference: between parameters, absolute, after the last compared round.
        messages: all that was sent while private parameters stayed home.
        gap: why the runs could not be compared, in words; None if they could.
    """

    rounds: int
    trainings: int = 0
    first_difference: str | None = None
    largest_difference: float = 0.0
    messages: tuple[SplitMessage, ...] = ()
    gap: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the runs were compared, and agree in every bit."""
        return self.first_difference is None and self.gap is None

    @property
    def refuted(self) -> bool:
        """Whether the runs differ; with a gap, the question is open."""
        return self.first_difference is not None

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "refuted" if self.refuted else "open"
        why = self.first_difference or self.gap
        run = f"{self.rounds} rounds, {self.trainings} local trainings"
        return f"split equals unsplit: {verdict} ({run})" + (f": {why}" if why else "")


def compare_split(
    model: nn.Module,
    loss: Loss,
    *,
    private: Sequence[str],
    data: Sequence[Examples],
    cohorts: Sequence[Sequence[int]],
    training: LocalTrainingConfig | None = None,
    aggregate: Aggregator = keep_local,
    shipped: Aggregator | None = None,
    seed: int = 0,
) -> SplitComparison:
    """Run federated rounds with private parameters at home, and shipped, and compare every round.

    Args:
        model: holds the parameters of all users; all runs start from its values. It is restored
            afterwards, with all that it and the loss remember.
        loss: (model, user, batch) -> scalar; a batch holds some rows of the user's examples.
        private: patterns of private parameters, as in ``check_split_personalization``.
        data: the examples of every user, columns of equal length; a user without examples never
            takes part.
        cohorts: the users invited in every round.
        training: settings of local training.
        aggregate: the rule of both runs; FURL's, as in ``check_split_personalization``.
        shipped: the rule of the shipped run, if another.
        seed: seed of shuffling and dropout, which are the same in both runs.

    Raises:
        ConfigError: data do not fit the users, a cohort names a user twice or one there is not, or
            no user takes part; the model or the loss fails in the plain run, by no fault of the
            split; or see ``check_split_personalization``.
    """
    require_callable(loss=loss, aggregate=aggregate, shipped=shipped or aggregate)
    split = SplitModel(model, private)
    sizes = _sizes(data, split.n_users)
    rounds = [_participants(cohort, sizes) for cohort in cohorts]
    if not any(rounds):
        raise ConfigError(
            "cohorts", cohorts, "no user takes part, so there would be nothing to compare"
        )
    memory = Memory(model, loss, parameters=split.tensors.originals().values())
    with with_gradients(), split.preserved():
        # -0.0 + 0.0 is 0.0: an average would turn the sign of a zero that a device leaves alone.
        start = {
            name: value if is_exact(value) else value + 0.0 for name, value in split.state().items()
        }
        streams = Streams.from_seed(seed)
        local = LocalRuns(split, loss, data, training or LocalTrainingConfig(), streams)
        runs = _Runs(local, start, rounds, memory)
        try:
            reference = runs.shipped(shipped or aggregate)
            gap = runs.gap_in(reference, shipped or aggregate)
            if gap is None:
                outcome = runs.compare(reference, aggregate)
                if outcome.holds:
                    return outcome
                # What runs out only now (an iterator, a quota) is not a difference between the
                # runs.
                gap = runs.gap_in(reference, shipped or aggregate)
            if gap is None:
                return outcome
            why = f"{gap}: the runs cannot be compared"
            return SplitComparison(rounds=len(reference) - 1, gap=why)
        finally:
            memory.restore()


@asserting(compare_split)
def assert_split_equals_unsplit(outcome: SplitComparison) -> None:
    """Fail unless both runs end every round in the same bits.

    Takes the arguments of ``compare_split``.

    Raises:
        SplitPersonalizationError: names the first difference.
        ConfigError: see ``compare_split``.
    """
    if outcome.gap is not None:
        raise SplitPersonalizationError(f"the runs could not be compared: {outcome.gap}")
    if not outcome.holds:
        raise SplitPersonalizationError(
            f"private parameters cannot stay home: {outcome.first_difference}"
        )


def _sizes(data: Sequence[Examples], n_users: int) -> list[int]:
    """Numbers of examples."""
    if len(data) != n_users:
        raise ConfigError("data", len(data), f"the model has {n_users} users")
    for examples in data:
        for name, column in examples.items():
            if not isinstance(column, np.ndarray):
                raise ConfigError("data", name, "must be a NumPy array")
    lengths = [{len(column) for column in examples.values()} for examples in data]
    for user, found in enumerate(lengths):
        if len(found) != 1:
            raise ConfigError("data", sorted(found), f"user {user}'s columns need one length")
    return [found.pop() for found in lengths]


def _participants(cohort: Sequence[int], sizes: list[int]) -> list[int]:
    if not isinstance(cohort, Sequence):
        raise ConfigError("cohorts", cohort, "must be lists of users, one for every round")
    if len(set(cohort)) < len(cohort) or not all(0 <= user < len(sizes) for user in cohort):
        raise ConfigError("cohorts", tuple(cohort), f"must name users below {len(sizes)} once each")
    return sorted(user for user in cohort if sizes[user])


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """The runs that are compared; each begins with what model and loss remembered at first."""

    local: LocalRuns
    start: Values
    rounds: Sequence[Sequence[int]]
    memory: Memory

    def shipped(self, rule: Aggregator, *, backwards: bool = False) -> list[Values]:
        """States of the server's model: before the first round, and after every one.

        Raises:
            ConfigError: the model or the loss fails, though nothing is split here.
        """
        self.memory.restore()
        run = Shipped(self.local, self.start, rule)
        states = [run.state]
        for round_, participants in enumerate(self.rounds, start=1):
            try:
                if participants:
                    run.run_round(round_, participants, backwards=backwards)
            except ConfigError:
                raise
            except Exception as failure:
                problem = (
                    f"fails in round {round_} of the plain run, where nothing is split: "
                    f"{type(failure).__name__}: {failure}"
                )
                raise ConfigError(
                    "model", type(self.local.split.model).__name__, problem
                ) from failure
            states.append(run.state)
        return states

    def gap_in(self, reference: Sequence[Values], rule: Aggregator) -> str | None:
        """Why the plain run cannot be the reference: it diverged, or is not reproducible."""
        for round_, state in enumerate(reference):
            for name in self.local.split.federated:
                if not bool(state[name].isfinite().all()):
                    return f"round {round_}, federated {name!r} is not finite"
        try:
            again = self.shipped(rule, backwards=True)
        except ConfigError as failure:
            return f"the plain run cannot be run twice: {failure}"
        for round_, (one, other) in enumerate(zip(reference, again, strict=True)):
            if not same_bits(one, other):
                name, size = largest_change(one, other)
                return (
                    f"round {round_}, the plain run differs from itself when its users train in "
                    f"another order ({name!r}, by {size:.3g}): the model or the rule counts its "
                    "calls, remembers other users, or draws outside torch's generator"
                )
        return None

    def compare(self, reference: Sequence[Values], rule: Aggregator) -> SplitComparison:
        """Run with private parameters at home, and compare it with the reference round by round."""
        self.memory.restore()
        kept = KeptHome(self.local, self.start, rule)
        trainings, found = 0, None
        for compared, participants in enumerate(self.rounds, start=1):
            if participants:
                found = self._one_round(kept, compared, participants, reference)
                trainings += len(participants)
            if found is not None:
                break
        pairs = _compared(self.local.split, kept, reference[compared], ())
        return SplitComparison(
            rounds=compared,
            trainings=trainings,
            first_difference=None if found is None else f"round {compared}, {found}",
            largest_difference=float(np.max([largest_change(*pair)[1] for _, *pair in pairs])),
            messages=tuple(kept.messages),
        )

    def _one_round(
        self,
        kept: KeptHome,
        round_: int,
        participants: Sequence[int],
        reference: Sequence[Values],
    ) -> str | None:
        """The first difference after one round."""
        split = self.local.split
        absent = sorted(set(range(split.n_users)).difference(participants))
        before = {user: kept.private(user) for user in absent}
        try:
            kept.run_round(round_, participants)
        except ConfigError:
            raise
        except Exception as failure:
            return f"training at home fails: {type(failure).__name__}: {failure}"
        pairs = _compared(split, kept, reference[round_], participants)
        found = next(filter(None, starmap(_different, pairs)), None)
        for user in absent:
            sent = [
                split.parts(state, user) for state in (reference[round_ - 1], reference[round_])
            ]
            found = found or _moved(user, (before[user], sent[0]), (kept.private(user), sent[1]))
        return found


def _compared(
    split: SplitModel, kept: KeptHome, sent: Values, participants: Sequence[int]
) -> Iterator[tuple[str, Values, Values]]:
    """Values that must be equal: a description, the value kept at home, and the shipped one."""
    yield "federated", kept.federated, sent
    for user in range(split.n_users):
        yield f"user {user}'s private", kept.private(user), split.parts(sent, user)
    for user in participants:
        yield f"user {user}'s copy of the shared buffer", kept.devices[user].buffers, sent


def _moved(user: int, before: tuple[Values, Values], after: tuple[Values, Values]) -> str | None:
    """Users that do not take part keep their private values, in both runs."""
    for old, new, where in zip(before, after, ("at home", "on the server"), strict=True):
        if not same_bits(old, new):
            return f"user {user} took no part, but its private values {where} moved"
    return None


def _different(what: str, kept: Values, sent: Values) -> str | None:
    for name, value in kept.items():
        other = sent[name]
        if not same_bits({name: value}, {name: other}):
            place = _first_place(value, other)
            index = ", ".join(str(int(each)) for each in np.unravel_index(place, value.shape))
            pair = value.reshape(-1)[place].item(), other.reshape(-1)[place].item()
            return f"{what} {name!r} [{index}]: {pair[0]!r} kept at home, {pair[1]!r} shipped"
    return None


def _first_place(left: Tensor, right: Tensor) -> int:
    """Position of the first element whose bits differ."""
    first = int(torch.nonzero(raw_bytes(left) != raw_bytes(right))[0])
    return first // left.element_size()
