"""Locates a crossing: the smallest run that shows it, and the line that reads the value."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from secure_fedrec.properties.split.evaluation import Part
from secure_fedrec.properties.split.local_training import STEPS
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.reading import Line, Recorder, line_of, reading_line
from secure_fedrec.properties.split.report import Smallest
from secure_fedrec.properties.split.traces import LocalTraces, Observed, Run, Setting
from secure_fedrec.properties.split.trials import largest_change, same_bits

_TRIES: Final = 48  # attempts to leave steps out of a run

_Item = TypeVar("_Item")

Located: TypeAlias = tuple[Smallest | None, Line | str | None]
"""The smallest run that shows a violation, and the reading line, or why none can be named."""


class Crossing(NamedTuple):
    """Two trainings that end differently and differ only in one user's values.

    Args:
        one: a training.
        other: the same, where the owner's value is another or the owner has trained.
        owner: the user whose value it is.
    """

    one: Setting
    other: Setting
    owner: int


class Write(NamedTuple):
    """A training that writes values that are not its own.

    Args:
        user: the user that trains.
        name: of what is written.
        owner: the user that the tensor belongs to; None for a shared buffer.
    """

    user: int
    name: str
    owner: int | None


class _Turn(NamedTuple):
    """A training before the one that is looked at.

    Args:
        user: the user.
        late: whether it comes when the values are those of ``Setting.then``.
        added: whether only the other run has it.
    """

    user: int
    late: bool = False
    added: bool = False


class _Pair(NamedTuple):
    """A crossing with all its trainings; only the results of the last one are compared.

    Args:
        crossing: the values.
        turns: the trainings.
        also: values that change in both runs; see ``Smallest.changes``.
    """

    crossing: Crossing
    turns: tuple[_Turn, ...]
    also: tuple[str, ...]

    @property
    def runs(self) -> tuple[Run, Run]:
        """Both trainings, as sequences to run."""
        one, other = (
            Run(
                setting.others,
                tuple(each.user for each in turns if not each.late),
                setting.then,
                tuple(each.user for each in turns if each.late),
                setting.reader,
            )
            for setting, turns in (
                (self.crossing.one, [each for each in self.turns if not each.added]),
                (self.crossing.other, self.turns),
            )
        )
        return one, other

    def _changes(self) -> tuple[str, ...]:
        one, other, _ = self.crossing
        owners = same_bits(one.others, other.others) and not same_bits(one.then, other.then)
        return (*(["owner's"] if owners else []), *self.also)

    def smallest(self, steps: int, places: Sequence[int]) -> Smallest:
        """In a report's words."""
        one = self.crossing.one
        early = sum(not each.late for each in self.turns)
        changes = self._changes() if early else ()
        return Smallest(
            trains=one.reader,
            trained_before=tuple(each.user for each in self.turns),
            left_out=tuple(place for place, each in enumerate(self.turns) if each.added),
            changes=changes,
            changed_after=early if changes else 0,
            steps=steps,
            places=tuple(places),
        )


def located(traces: LocalTraces, crossing: Crossing) -> Located:
    """Where a value crosses."""
    pair = next((each for each in _pairs(traces, crossing) if _shows(traces, each)), None)
    if pair is None:
        return None, None
    pair = pair._replace(turns=_fewest_turns(traces, pair))

    def shows(shorter: LocalTraces) -> bool:
        return _shows(shorter, pair)

    shorter, steps, places = _shortest(traces, crossing.one.reader, shows)
    return pair.smallest(steps, places), _line(shorter, *pair.runs)


def located_write(
    traces: LocalTraces, states: Sequence[Values], write: Write, users: Sequence[int]
) -> Located:
    """Locate the line where a training writes values that are not its own.

    Args:
        traces: runs trainings.
        states: values of all to try; those that are clamped need to be large.
        write: what is written.
        users: users of the trial.
    """
    user = write.user
    others = tuple(each for each in users if each != user)
    histories = ((), (user,), others, (*others, user))
    runs = (Run(state, before, state, (), user) for before in histories for state in states)
    run = next((each for each in runs if traces.writes(each, *write)), None)
    if run is None:
        return None, None
    state, before = run.others, run.history

    def at(history: Sequence[int]) -> Run:
        return Run(state, tuple(history), state, (), user)

    kept = tuple(fewest(before, lambda some: traces.writes(at(some), *write)))
    shorter, steps, places = _shortest(
        traces, user, lambda shorter: shorter.writes(at(kept), *write)
    )
    smallest = Smallest(trains=user, trained_before=kept, steps=steps, places=tuple(places))
    recorder = Recorder(watched=partial(traces.tensor, write.name, write.owner))
    shorter.last(at(kept), recorder=recorder)
    return smallest, line_of(recorder.overwrites, writes=True)


def mixed(base: Values, others: Values, parts: Sequence[Part]) -> Values:
    """A state, with some users' values from another."""
    found = dict(base)
    for name in {source for slot, _ in parts for source in slot.sources}:
        found[name] = base[name].clone()
    for slot, owner in parts:
        slot.part(found, owner).copy_(slot.part(others, owner))
    return found


def first_difference(found: Observed, expected: Observed) -> tuple[str, float] | None:
    """The first difference, in words, and its size."""
    for (what, left), (due, right) in zip(found, expected, strict=False):
        if what != due:
            return f"local training fails ({what if not left else due}): it", float("nan")
        if not same_bits(left, right):
            name, size = largest_change(left, right) if left.keys() == right.keys() else ("", 0.0)
            return what.format(repr(name)), size
    return None if len(found) == len(expected) else ("local training", float("nan"))


def _pairs(traces: LocalTraces, crossing: Crossing) -> Iterator[_Pair]:
    """Pairs that may show a crossing: of the reader's first or second training, plain values first.

    Between the two, a user of the history trains again, as in the search.
    """
    one, other, owner = crossing
    added = other.history[len(one.history) :]
    turns = (*map(_Turn, one.history), *(_Turn(user, added=True) for user in added))
    again: tuple[_Turn, ...] = (_Turn(one.reader, late=True),)
    if other.history and one.reader not in other.history:
        again += (_Turn(other.history[0], late=True, added=not one.history),)
    for second in ((), again):
        for also in ((), ("federated",), ("federated", "own")):
            plain = partial(traces.plain, federated="federated" not in also, own="own" not in also)
            yield _Pair(Crossing(plain(one), plain(other), owner), (*turns, *second), also)


def _fewest_turns(traces: LocalTraces, pair: _Pair) -> tuple[_Turn, ...]:
    """The users that must have trained."""

    def shows(turns: Sequence[_Turn]) -> bool:
        return _shows(traces, pair._replace(turns=tuple(turns)))

    reader, owner = pair.crossing.one.reader, pair.crossing.owner
    for users in ({owner}, {owner, reader}):  # tried first if there are many
        some = [each for each in pair.turns if each.user in users]
        if 0 < len(some) < len(pair.turns) - 1 and shows(some):
            return tuple(fewest(some, shows))
    return tuple(fewest(pair.turns, shows))


def _shortest(
    traces: LocalTraces, user: int, shows: Callable[[LocalTraces], bool]
) -> tuple[LocalTraces, int, list[int]]:
    """The fewest steps, and then the fewest examples, that show it."""
    places = list(range(traces.training.batch_size(user)))
    steps = 1 if shows(traces.shortened(steps=1)) else STEPS

    def at(some: Sequence[int]) -> LocalTraces:
        whole = len(some) == len(places)
        return traces.shortened(steps=steps, examples=None if whole else some)

    kept = fewest(places, lambda some: shows(at(some)), least=1)
    first = places[: len(kept)]
    if kept != first and shows(at(first)):
        kept = first
    return at(kept), steps, kept


def fewest(
    items: Sequence[_Item], shows: Callable[[Sequence[_Item]], bool], least: int = 0
) -> list[_Item]:
    """The remaining elements after leaving out as many as possible, last ones first.

    Large groups are tried before small ones, and the number of tries is limited.
    """
    kept, tries = list(items), _TRIES
    size = len(kept) - least
    while size > 0:
        end, before = len(kept), len(kept)
        while end > 0 and tries:
            start = max(0, end - size)
            rest = kept[:start] + kept[end:]
            if len(rest) >= least:
                tries -= 1
                kept = rest if shows(rest) else kept
            end = start
        if size > 1 or len(kept) == before or not tries:
            size = 1 << (size - 1).bit_length() - 1 if size > 1 else 0  # the next power of two
    return kept


def _shows(traces: LocalTraces, pair: _Pair) -> bool:
    one, other = (traces.last(run) for run in pair.runs)
    return first_difference(other, one) is not None


def _line(traces: LocalTraces, *runs: Run) -> Line | str | None:
    recorders = Recorder(kept=traces.kept), Recorder(kept=traces.kept)
    one, other = (
        traces.last(run, recorder=recorder) for run, recorder in zip(runs, recorders, strict=True)
    )
    ends = [
        recorders[0].last_writer(values[name])
        for (_, values), (_, there) in zip(one, other, strict=False)
        for name in values
        if name not in there or not same_bits({name: values[name]}, {name: there[name]})
    ]
    return reading_line(*recorders, ends)
