"""FURL's theorem, run: keeping private parameters at home changes no bit of any round.

``compare_split`` runs the same federated rounds twice, once with private parameters kept on their
devices (``split_kept_home``) and once with the whole model shipped to the server and averaged there
(``split_shipped``). After every round, federated parameters and every user's private ones must have
the same bits; there is no tolerance.

That holds for one rule on both sides: ``federated_averaging`` (z_i = c_i / sum c, eq. 6), where
both compute ``w + c_i (u_i - w) / sum c`` in the same order, or ``keep_local`` (z_i = 1, eq. 7),
where both take local values as they are. It does not hold between the two. Rounding alone would
part them, since w + (u - w) is not u in floating point.

Optimisers belong to devices: with ``LocalTrainingConfig(keep_state=True)`` momentum and Adam
moments stay there in both runs. There is no weight decay, which would shrink every user's private
values on every device; a decay of federated parameters is a term of the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.local_training import LocalTrainingConfig
from secure_fedrec.errors import ConfigError, SplitPersonalizationError
from secure_fedrec.properties.split_aggregation import Aggregator, federated_averaging
from secure_fedrec.properties.split_evaluation import Loss
from secure_fedrec.properties.split_kept_home import KeptHome
from secure_fedrec.properties.split_messages import SplitMessage
from secure_fedrec.properties.split_model import SplitModel, Values
from secure_fedrec.properties.split_random import is_exact
from secure_fedrec.properties.split_shipped import Shipped
from secure_fedrec.properties.split_training import Examples, LocalRuns
from secure_fedrec.properties.split_trials import largest_change, same_bits
from secure_fedrec.streams import Streams

__all__ = ["SplitComparison", "assert_split_equals_unsplit", "compare_split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitComparison:
    """Outcome of the two runs.

    Args:
        rounds: rounds compared; the last one holds the first difference, if there is any.
        trainings: local trainings in them.
        first_difference: in words; None if all bits agree.
        largest_difference: between parameters, absolute, after the last compared round.
        messages: all that was sent while private parameters stayed home.
    """

    rounds: int
    trainings: int
    first_difference: str | None
    largest_difference: float
    messages: tuple[SplitMessage, ...]

    @property
    def holds(self) -> bool:
        """Whether the runs agree in every bit."""
        return self.first_difference is None


def compare_split(
    model: nn.Module,
    loss: Loss,
    *,
    private: Sequence[str],
    data: Sequence[Examples],
    cohorts: Sequence[Sequence[int]],
    training: LocalTrainingConfig | None = None,
    aggregate: Aggregator = federated_averaging,
    shipped: Aggregator | None = None,
    seed: int = 0,
) -> SplitComparison:
    """Run federated rounds with private parameters at home, and shipped, and compare every round.

    Args:
        model: holds the parameters of all users; both runs start from its values. It is left as it
            was.
        loss: (model, user, batch) -> scalar; a batch holds some rows of the user's examples.
        private: patterns of private parameters, as in ``check_split_personalization``.
        data: the examples of every user, columns of equal length; a user without examples never
            takes part.
        cohorts: the users invited in every round.
        training: settings of local training.
        aggregate: the rule of both runs.
        shipped: the rule of the shipped run, if another.
        seed: of shuffling and dropout, which are the same in both runs.

    Raises:
        ConfigError: data do not fit the users, a cohort names a user twice or one there is not, or
            nobody takes part; or see ``check_split_personalization``.
    """
    split = SplitModel(model, private)
    sizes = _sizes(data, split.n_users)
    rounds = [_participants(cohort, sizes) for cohort in cohorts]
    if not any(rounds):
        raise ConfigError("cohorts", cohorts, "nobody takes part: nothing would be compared")
    with split.preserved():
        # -0.0 + 0.0 is 0.0: an average would turn the sign of a zero that a device leaves alone.
        start = {
            name: value if is_exact(value) else value + 0.0
            for name, value in split.state().items()
        }
        streams = Streams.from_seed(seed)
        local = LocalRuns(split, loss, data, training or LocalTrainingConfig(), streams)
        kept = KeptHome(local, start, aggregate)
        sent = Shipped(local, start, shipped or aggregate)
        return _compare(split, kept, sent, rounds)


def assert_split_equals_unsplit(
    model: nn.Module,
    loss: Loss,
    *,
    private: Sequence[str],
    data: Sequence[Examples],
    cohorts: Sequence[Sequence[int]],
    training: LocalTrainingConfig | None = None,
    aggregate: Aggregator = federated_averaging,
    shipped: Aggregator | None = None,
    seed: int = 0,
) -> None:
    """Fail unless both runs end every round in the same bits.

    Takes the arguments of ``compare_split``.

    Raises:
        SplitPersonalizationError: names the first difference.
        ConfigError: see ``compare_split``.
    """
    outcome = compare_split(
        model,
        loss,
        private=private,
        data=data,
        cohorts=cohorts,
        training=training,
        aggregate=aggregate,
        shipped=shipped,
        seed=seed,
    )
    if not outcome.holds:
        raise SplitPersonalizationError(
            f"private parameters cannot stay home: {outcome.first_difference}"
        )


def _sizes(data: Sequence[Examples], n_users: int) -> list[int]:
    """Numbers of examples."""
    if len(data) != n_users:
        raise ConfigError("data", len(data), f"the model has {n_users} users")
    lengths = [{len(column) for column in examples.values()} for examples in data]
    for user, found in enumerate(lengths):
        if len(found) != 1:
            raise ConfigError("data", sorted(found), f"user {user}'s columns need one length")
    return [found.pop() for found in lengths]


def _participants(cohort: Sequence[int], sizes: list[int]) -> list[int]:
    if len(set(cohort)) < len(cohort) or not all(0 <= user < len(sizes) for user in cohort):
        raise ConfigError("cohorts", tuple(cohort), f"must name users below {len(sizes)} once each")
    return sorted(user for user in cohort if sizes[user])


def _compare(
    split: SplitModel, kept: KeptHome, sent: Shipped, rounds: Sequence[Sequence[int]]
) -> SplitComparison:
    compared, trainings, found = 0, 0, None
    while compared < len(rounds) and found is None:
        participants = rounds[compared]
        compared += 1
        if not participants:
            continue
        before = [(kept.private(user), sent.private(user)) for user in range(split.n_users)]
        kept.run_round(compared, participants)
        sent.run_round(compared, participants)
        trainings += len(participants)
        found = _not_finite(kept) or _first_difference(split, kept, sent, participants)
        for user in set(range(split.n_users)).difference(participants):
            found = found or _moved(user, before[user], (kept.private(user), sent.private(user)))
    pairs = [(kept.federated, sent.state)]
    pairs += [(kept.private(user), sent.private(user)) for user in range(split.n_users)]
    return SplitComparison(
        rounds=compared,
        trainings=trainings,
        first_difference=None if found is None else f"round {compared}, {found}",
        largest_difference=float(np.max([largest_change(*pair)[1] for pair in pairs])),
        messages=tuple(kept.messages),
    )


def _not_finite(kept: KeptHome) -> str | None:
    """Training that diverged compares nothing: all runs end in NaN."""
    for name, value in kept.federated.items():
        if not bool(value.isfinite().all()):
            return f"federated {name!r} is not finite: nothing can be compared"
    return None


def _first_difference(
    split: SplitModel, kept: KeptHome, sent: Shipped, participants: Sequence[int]
) -> str | None:
    federated = {name: sent.state[name] for name in kept.federated}
    found = _different("federated", kept.federated, federated)
    for user in range(split.n_users):
        what = f"user {user}'s private"
        found = found or _different(what, kept.private(user), sent.private(user))
    for user in participants:
        buffers = kept.buffers(user)
        shared = {name: sent.state[name] for name in buffers}
        found = found or _different(f"as user {user} has it, the shared buffer", buffers, shared)
    return found


def _moved(user: int, before: tuple[Values, Values], after: tuple[Values, Values]) -> str | None:
    """Who takes no part keeps its private values, in both runs."""
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
    bytes_of = [each.contiguous().reshape(-1).view(torch.uint8) for each in (left, right)]
    first = int(torch.nonzero(bytes_of[0] != bytes_of[1])[0])
    return first // left.element_size()
