"""The findings of a check of split personalization."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from secure_fedrec.properties.check_report import CheckReport, Gap, listed
from secure_fedrec.properties.split.reading import Line

_LOCATED = 16  # for at most this many violations a line is searched
_ALIKE = 3  # per constraint and parameter
_NAMES = {
    1: "independent local training",
    2: "independent aggregation of federated parameters",
    3: "independent aggregation of private parameters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """The smallest run that shows a violation of constraint (1): trainings one after another.

    All tensors are restored after every training. The last training is looked at, in two runs that
    differ in the owner's value, or in some trainings. A write needs one run only.

    Args:
        trains: the user whose training shows it: the reader, or a user that writes into values not
            its own, this user's.
        trained_before: users that train before, once each, in this order; mostly empty. ``trains``
            is among them where a second training of it shows what the first one does not.
        left_out: places in ``trained_before`` of the trainings that only one of the runs has; empty
            where they differ in a value.
        changes: values that change in between: the "owner's" in one of the runs (if it is not
            named, it differs from the beginning), "federated" ones in both, or the "own" ones of
            ``trains``.
        changed_after: number of trainings before that.
        steps: steps of every training.
        places: of the examples in every batch that are left in it, counted from 0.
    """

    trains: int
    trained_before: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    changes: tuple[str, ...] = ()
    changed_after: int = 0
    steps: int
    places: tuple[int, ...]

    @property
    def examples(self) -> int:
        """How many a batch has."""
        return len(self.places)

    @property
    def trained_without(self) -> tuple[int, ...]:
        """Users that train before in the other run."""
        before = enumerate(self.trained_before)
        return tuple(user for place, user in before if place not in self.left_out)

    def __str__(self) -> str:
        steps = "one step" if self.steps == 1 else f"{self.steps} steps"
        examples = "one example" if self.examples == 1 else f"{self.examples} examples"
        if self.places != tuple(range(self.examples)):
            examples += f" (number {', '.join(map(str, self.places))} of the batch, from 0)"
        after = f", after {_users(self.trained_before)}" if self.trained_before else ""
        if self.left_out:
            after += f" or after {_users(self.trained_without)}"
        if self.changes:
            changed = _users(self.trained_before[: self.changed_after])
            after += f", where {' and '.join(self.changes)} values change after {changed}"
        return f"{steps} with {examples}{after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One user's value changes another user's result.

    Args:
        constraint: 1, 2 or 3 as FURL counts them: independent local training, independent
            aggregation of federated, and of private parameters.
        parameter: the parameter whose value crosses, by the name of its table, or with ``{user}``.
        owner: the user whose value it is; None for a value of the server.
        reader: the user whose local training or whose update it reaches. A federated update (2)
            reaches all users; the first other user stands for all.
        reaches: the result that it changes there.
        size: largest absolute gradient, or largest absolute change; NaN if that is not a number.
        seed: ``check_split_personalization(..., seed=seed, trials=1)`` reproduces it. The exception
            is a loss that remembers others' trainings and compares them with its own: later trials
            leave out readers that earlier ones have found.
        line: line of the code under test that reads the value, or writes it; None where it was not
            looked for, or not found.
        no_line: where the reading happens if no line can be named: in an installed package, in code
            without a file, or not followed.
        smallest: the smallest run that shows it; None for rules, for parameters that are one
            tensor, where a gradient is all that shows it, and where it was not looked for.
    """

    constraint: int
    parameter: str
    owner: int | None
    reader: int
    reaches: str
    size: float
    seed: int
    line: Line | None = None
    no_line: str = ""
    smallest: Smallest | None = None

    @property
    def users(self) -> tuple[int | None, int]:
        """(owner, reader)."""
        return self.owner, self.reader

    def __str__(self) -> str:
        whose = "the server's" if self.owner is None else f"user {self.owner}'s"
        shown = "" if self.smallest is None else f"; shown by {self.smallest}"
        line = f"\n  read {self.no_line}" if self.no_line else ""
        if self.line is not None:
            line = f"\n  {'written' if self.line.writes else 'read'} at {self.line}"
        return (
            f"constraint ({self.constraint}), {_NAMES[self.constraint]}: {whose} "
            f"{self.parameter!r} reaches user {self.reader}: {self.reaches}, by {self.size:.3g} "
            f"(seed {self.seed}{shown}){line}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport(CheckReport):
    """Outcome of ``check_split_personalization``.

    Args:
        n_users: users of the model.
        trials: random trials made.
        federated: names of the federated parameters.
        private: names of the private ones.
        violations: findings that refute split personalization, in the order of the constraints.
        gaps: parts that were not tested.
        advice: findings that do not violate a constraint but should be changed.
        drawn: how often one user's values were drawn of each kind, to be compared with others.
    """

    n_users: int
    trials: int
    federated: tuple[str, ...]
    private: tuple[str, ...]
    violations: tuple[Violation, ...]
    gaps: tuple[Gap, ...]
    advice: tuple[str, ...] = ()
    drawn: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        verdict = _refuted(self.violations) or ("holds" if self.holds else "open")
        head = (
            f"split personalization: {verdict} ({self.trials} random trials, {self.n_users} users; "
            f"private: {', '.join(self.private)}; federated: {', '.join(self.federated)})"
        )
        notes = [f"- advice: {each}" for each in self.advice]
        if self.drawn:
            counted = ", ".join(f"{kind} {number:,}" for kind, number in self.drawn.items())
            notes.append(f"- users' values that were drawn: {counted}")
        return "\n".join([head, *listed(self.violations), *listed(self.gaps), *notes])


class Findings:
    """The findings of trials so far; equal findings are kept once, as first seen.

    Attributes:
        gaps: parts that were not tested, in the order found.
        advice: findings that do not violate a constraint but should be changed, likewise.
        drawn: how often one user's values were drawn of each kind.
    """

    def __init__(self) -> None:
        self._violations: dict[tuple[object, ...], Violation] = {}
        self._located: Counter[tuple[int, str]] = Counter()
        self.gaps: dict[tuple[str, str], Gap] = {}
        self.advice: dict[str, None] = {}
        self.drawn: Counter[str] = Counter()

    def violate(
        self,
        constraint: int,
        parameter: str,
        users: tuple[int | None, int],
        reaches: str,
        size: float,
        seed: int,
        *,
        locate: Callable[[], tuple[Smallest | None, Line | str | None]] | None = None,
    ) -> None:
        """Note a ``Violation``; ``users`` are its owner and its reader.

        ``locate`` finds the line and the smallest run; it is called for the first violations only,
        of every constraint and parameter.
        """
        if (constraint, parameter, users) in self._violations:
            return
        smallest: Smallest | None = None
        line: Line | str | None = None
        alike = self._located[constraint, parameter]
        if locate is not None and alike < _ALIKE and self._located.total() < _LOCATED:
            self._located[constraint, parameter] += 1
            smallest, line = locate()
        found = Violation(
            constraint=constraint,
            parameter=parameter,
            owner=users[0],
            reader=users[1],
            reaches=reaches,
            size=size,
            seed=seed,
            line=line if isinstance(line, Line) else None,
            no_line=line if isinstance(line, str) else "",
            smallest=smallest,
        )
        self._violations[constraint, parameter, users] = found

    def leave_open(self, subject: str, problem: str, seed: int | None = None) -> None:
        """Note a part that was not tested, as a ``Gap``."""
        self.gaps.setdefault((subject, problem), Gap(subject=subject, problem=problem, seed=seed))

    def advise(self, advice: str) -> None:
        """Note a finding that does not violate a constraint but should be changed."""
        self.advice.setdefault(advice)

    @property
    def violations(self) -> tuple[Violation, ...]:
        """In the order of the constraints."""
        return tuple(sorted(self._violations.values(), key=lambda each: each.constraint))


def _users(users: tuple[int, ...]) -> str:
    if not users:
        return "nobody"
    return f"user{'s' * (len(users) > 1)} {', '.join(map(str, users))}"


def _refuted(violations: Iterable[Violation]) -> str:
    """Which constraints are refuted; they are sufficient for the theorem, but not necessary."""
    numbers = sorted({each.constraint for each in violations})
    if not numbers:
        return ""
    which = " and ".join(f"({number})" for number in numbers)
    return f"constraint{'s' if len(numbers) > 1 else ''} {which} refuted"
