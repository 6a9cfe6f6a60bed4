"""Constraints (2) and (3), independent aggregation: an update uses no other user's private values.

The aggregator gets random parameters, local values and summaries of random cohorts, for three
successive rounds. Then only the private values of some users change in its input: in no round may a
bit of the federated update (2), or of another user's private update (3), change. Private updates
must not depend on federated values either (3). All rounds of a trial use one copy of the rule, so
that values it remembers show in a later result.

For (2) the values of all users change. For (3) those of sets of users change, such that for every
two users some set holds one and not the other; with few users, also those of each user alone. The
new values are drawn in several sizes (``split_scales``), so that they cross the thresholds of rules
that clip.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import torch

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties.split.aggregation import AggregationInput, Aggregator, Summary
from secure_fedrec.properties.split.interference import separations
from secure_fedrec.properties.split.memory import Memory
from secure_fedrec.properties.split.model import SplitModel, Values
from secure_fedrec.properties.split.probing import Change, Probe, update_of
from secure_fedrec.properties.split.random import noise_like
from secure_fedrec.properties.split.relations import Across, related
from secure_fedrec.properties.split.report import Findings
from secure_fedrec.properties.split.running import RunningRule, Updates
from secure_fedrec.properties.split.scales import LOG_UNIFORM, MISSING, NORMAL, drawn
from secure_fedrec.properties.split.trials import Trial, first_change, largest_change

Summaries: TypeAlias = Callable[[int, torch.Generator], Summary]
"""Draws the summary of a user's data: (user, generator) -> numbers by name."""

# The first round meets fresh state, the second what the rule learnt in it, and the third also what
# it made of two rounds, such as the change between them.
_ROUNDS = 3
_LARGE: Final = 2**25
_FEW: Final = 16  # users up to which each is tried alone
_NAMED: Final = 16  # readers that are named per change
_PRIVATE: Final = ("private", "local_private")

_WHICH = {
    "private": "value before the round",
    "local_private": "local value",
    "federated": "value before the round",
    "local_federated": "local value",
}


_NOT_ALONE: Final = (
    "the rule fails in a round of one participant, or its answer is not finite: not tried further"
)
_NOT_FINITE: Final = (
    "returns values that are not finite, though all that it gets are: they cannot be compared"
)


def example_counts(_user: int, generator: torch.Generator) -> Summary:
    """Between 1 and 50 training examples."""
    return {"examples": float(torch.randint(1, 51, (), generator=generator))}


class AggregationTrials:
    """Trials of constraints (2) and (3).

    Args:
        split: the model whose parameters are aggregated.
        aggregate: under test.
        summaries: draws summaries.
        findings: where violations go.
    """

    def __init__(
        self, split: SplitModel, aggregate: Aggregator, summaries: Summaries, findings: Findings
    ) -> None:
        self._split = split
        self._aggregate = aggregate
        self._summaries = summaries
        self._findings = findings
        self._first = True
        # State that a rule keeps elsewhere (a closure, a global) is restored before each copy runs.
        self._memory = Memory(aggregate)

    def finish(self) -> None:
        """Restore the rule."""
        self._memory.restore()

    def run(self, trial: Trial) -> None:
        """Test the influence of every user of the trial."""
        plain = self._plain(trial)
        given = plain.given
        for place, other in enumerate(self._others(trial, given)):
            probe = _towards(plain, other)
            if not place and not probe.is_reproducible():
                problem = (
                    "returns something else for equal inputs: it draws, or keeps state that can "
                    "neither be copied with it nor put back"
                )
                self._findings.leave_open("aggregate", problem, trial.seed)
                return
            for owners, fields in self._moves(trial):
                self._judge_moves(trial, probe, owners, fields)
        if self._first:
            self._first = False
            missing = self._resized(trial, MISSING, given, given)
            self._advise(trial, _towards(plain, missing))

    def _plain(self, trial: Trial) -> Probe:
        """The rule at random inputs of all rounds, none of which is replaced.

        In some trials a single user takes part in one round, and in some local federated values are
        of all sizes: a rule that clips federated values may use private ones only when it clips. If
        a rule fails then, or its result is not finite, the trial uses more users, or values of one
        size.
        """
        alone = lonely_round(trial.seed) if len(trial.users) <= _FEW else None
        kind = LOG_UNIFORM if trial.seed // 2 % 2 else NORMAL
        tries = list(dict.fromkeys((a, k) for k in (kind, NORMAL) for a in (alone, None)))
        for lonely, sizes in tries:
            given = self._draw(trial, "given", self._draw_cohorts(trial, lonely), sizes)
            try:
                probe = Probe(self._begin, given, given)
            except Exception:
                if (lonely, sizes) == tries[-1]:
                    raise
                continue
            if _is_finite(probe.base):
                if lonely != alone:
                    self._findings.advise(_NOT_ALONE)
                return probe
        self._findings.leave_open("aggregate", _NOT_FINITE, trial.seed)
        return probe

    def _others(
        self, trial: Trial, given: Sequence[AggregationInput]
    ) -> Iterator[list[AggregationInput]]:
        """New values: of every size, and related to one user's."""
        cohorts, other = [each.summaries for each in given], list(given)
        sizes = LOG_UNIFORM if trial.seed // 2 % 2 else NORMAL
        for place, kind in enumerate(trial.kinds):
            other = self._draw(trial, f"other.{place}", cohorts, sizes)
            yield self._resized(trial, kind, given, other)
        yield self._related(trial, given, other)

    def _begin(self) -> RunningRule:
        self._memory.restore()
        return RunningRule(self._aggregate)

    def _moves(self, trial: Trial) -> Iterator[tuple[Sequence[int | None], Sequence[str]]]:
        """The users whose values change, and the fields.

        Private values of one, of some and of all; then federated ones, local or the server's.
        """
        few = self._split.n_users <= _FEW
        alone: list[tuple[int, ...]] = [(user,) for user in trial.users] if few else []
        # With many users, subsets would take as long as all users, and one trial has all.
        whole = len(trial.users) == self._split.n_users
        sets = separations(trial.users) if whole else ()
        for owners in (*alone, *sets, trial.users):
            yield owners, _PRIVATE
        for owners in alone or [trial.users]:
            yield owners, ("local_federated",)
        yield (None,), ("federated",)

    def _draw(
        self, trial: Trial, purpose: str, cohorts: Sequence[Mapping[int, Summary]], kind: str
    ) -> list[AggregationInput]:
        """Random values everywhere, anew in every round; local federated ones of one kind."""
        generator = trial.generator(purpose)
        federated = self._split.federated_values()
        private = self._split.private_values(0)  # all users' have the same shapes
        how = drawn(kind, self._split.n_users, generator)

        def noise(values: Values) -> Values:
            found = values.items()
            return {name: noise_like(value, trial.scale, generator) for name, value in found}

        answers = []
        for summaries in cohorts:
            like = AggregationInput.alike(federated, private, self._split.n_users, summaries)
            given = like.mapped(noise)
            local = given.local_federated.items()
            resized = {user: how.resized(user, values, federated) for user, values in local}
            answers.append(replace(given, local_federated=resized))
        return answers

    def _resized(
        self,
        trial: Trial,
        kind: str,
        given: Sequence[AggregationInput],
        other: Sequence[AggregationInput],
    ) -> list[AggregationInput]:
        """Values of one kind; unchanged users have those before the round, without training."""
        how = drawn(kind, self._split.n_users, trial.generator(f"aggregation.{kind}"))
        self._findings.drawn.update(how.kinds)

        def resized(new: Mapping[int, Values], old: Mapping[int, Values]) -> dict[int, Values]:
            return {user: how.resized(user, values, old[user]) for user, values in new.items()}

        return [
            AggregationInput(
                federated=how.resized(trial.users[0], new.federated, old.federated),
                private=resized(new.private, old.private),
                local_federated={
                    user: how.resized(user, values, old.federated)
                    for user, values in new.local_federated.items()
                },
                local_private=resized(new.local_private, old.private),
                summaries=new.summaries,
            )
            for new, old in zip(other, given, strict=True)
        ]

    def _related(
        self, trial: Trial, given: Sequence[AggregationInput], other: Sequence[AggregationInput]
    ) -> list[AggregationInput]:
        """Values made from one user's; those of that user, and of the server, are drawn again."""
        draw, (shared,) = trial.generator("related"), trial.torch_seeds("alike", [0]).values()
        reader = trial.users[trial.seed % len(trial.users)]
        self._findings.drawn.update(trial.relations)

        def made(
            new: Mapping[int, Values], old: Mapping[int, Values], federated: Values
        ) -> dict[int, Values]:
            mine = old[reader if reader in old else min(old)]
            across = Across(mine, federated, trial.seed)
            found: dict[int, Values] = {}
            for user, values in new.items():
                if old[user] is mine:
                    found[user] = values
                elif trial.relations[user] == NORMAL:
                    found[user] = across.values(user, values, draw)
                else:
                    make = related(trial.relations[user], trial.scale, draw, shared)
                    found[user] = {name: make(mine[name], value) for name, value in values.items()}
            return found

        return [
            replace(
                new,
                private=made(new.private, old.private, old.federated),
                local_federated=made(new.local_federated, old.local_federated, {}),
                local_private=made(new.local_private, old.local_private, old.federated),
            )
            for new, old in zip(other, given, strict=True)
        ]

    def _draw_cohorts(self, trial: Trial, lonely: int | None) -> list[dict[int, Summary]]:
        """Every round's participants: at least two, in about half of the rounds not all.

        Args:
            trial: whose users take part.
            lonely: the round in which a single one does, if there is one.
        """
        generator = trial.generator("cohort")
        cohorts = []
        federated = (self._split.tensors[name] for name in self._split.federated)
        size = sum(value.numel() for value in federated)
        for round_ in range(rounds_of(len(trial.users), size)):
            order = torch.randperm(len(trial.users), generator=generator).tolist()
            size = int(torch.randint(2, 2 * len(trial.users), (), generator=generator))
            size = 1 if round_ == lonely else size
            users = sorted(trial.users[position] for position in order[:size])
            cohorts.append({user: self._summary(trial, user) for user in users})
        return cohorts

    def _summary(self, trial: Trial, user: int) -> Summary:
        found: object = self._summaries(user, trial.generator("summary", user))
        if not isinstance(found, Mapping):
            raise ConfigError("summaries", type(found).__name__, "must return numbers by name")
        return found

    def _judge_moves(
        self,
        trial: Trial,
        probe: Probe,
        owners: Sequence[int | None],
        fields: Sequence[str],
    ) -> None:
        """Test that no update depends on these values, except the owners' private ones."""
        changes = probe.changes_of(owners, fields)
        answers = probe(changes)
        if fields is _PRIVATE and probe.moved(answers, None):
            self._blame(trial, probe, changes, None)
        # A user may depend on its own private values, but federated parameters on none.
        allowed = set(owners) if fields is _PRIVATE else set()
        named = 0
        for reader in range(self._split.n_users):
            if reader not in allowed and probe.moved(answers, reader) and named < _NAMED:
                named += 1
                self._blame(trial, probe, changes, reader)

    def _advise(self, trial: Trial, probe: Probe) -> None:
        """Test whether a NaN among private values would reach the model."""
        if self._findings.violations:
            return
        changes = probe.changes_of(trial.users, _PRIVATE)
        try:
            moved = probe.moved(probe(changes), None)
        except Exception:  # the rule may refuse NaN
            return
        if moved:
            self._findings.advise(
                "a NaN among private values would reach the federated update: by a product "
                "(0 * NaN is NaN), or by a look at them (isnan, isfinite)"
            )

    def _blame(
        self, trial: Trial, probe: Probe, changes: Sequence[Change], whose: int | None
    ) -> None:
        """Find the change that moves the federated update (2) or a reader's private one (3)."""
        federated = whose is None

        def moved(count: int) -> bool:
            return bool(probe.moved(probe(changes[:count]), whose))

        step = first_change(len(changes), moved)
        owner = changes[step].user
        reader = int(owner == 0) if whose is None else whose
        answers = probe(changes[: step + 1])
        round_ = probe.moved(answers, whose)[0]
        update = update_of(answers[round_], whose)
        name, size = largest_change(update, update_of(probe.base[round_], whose))
        what = "the federated update of" if federated else "the update of its"
        when = " in an earlier round" if changes[step].round < round_ else ""
        reaches = f"{what} {name!r} moves with its {_WHICH[changes[step].field]}{when}"
        self._findings.violate(
            2 if federated else 3,
            changes[step].name,
            (owner, reader),
            reaches,
            size,
            trial.seed,
            locate=lambda: (None, probe.line(changes[:step], changes[: step + 1], whose, name)),
        )


def rounds_of(users: int, size: int) -> int:
    """Number of rounds of a trial with so many users and federated values, all kept in memory."""
    return 1 if users > _FEW and users * size > _LARGE else _ROUNDS


def lonely_round(seed: int) -> int | None:
    """The round of a trial in which a single user takes part; three of nine trials have one.

    Trials cover every scale, each in a different round.
    """
    turn = seed // 3
    return turn % _ROUNDS if (seed + turn) % 3 == 0 else None


def _towards(probe: Probe, other: Sequence[AggregationInput]) -> Probe:
    """The same probe, whose results are known, with other replacement values."""
    found = copy.copy(probe)
    found.other = other
    return found


def _is_finite(answers: Sequence[Updates]) -> bool:
    """Whether all results of a rule can be compared: NaN hides differences."""
    return all(
        bool(value.isfinite().all())
        for federated, private in answers
        for values in (federated, *private.values())
        for value in values.values()
    )
