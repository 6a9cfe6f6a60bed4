"""Where a value crosses: the smallest run that shows it, and the line that reads it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from secure_fedrec.properties.split.evaluation import Part
from secure_fedrec.properties.split.local_training import STEPS
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.reading import Line, Recorder, reading_line
from secure_fedrec.properties.split.report import Smallest
from secure_fedrec.properties.split.traces import LocalTraces, Observed, Setting
from secure_fedrec.properties.split.trials import largest_change, same_bits

Located: TypeAlias = tuple[Smallest | None, Line | None]
"""The smallest run that shows a violation, and the line that reads; None where there is none."""


class Crossing(NamedTuple):
    """Two trainings that end differently, and what differs between them is one user's.

    Args:
        one: a training.
        other: the same, where the owner's value is another or the owner has trained.
        owner: whose value it is.
    """

    one: Setting
    other: Setting
    owner: int

    def without_others(self) -> "Crossing":
        """Nobody trains before but the owner and the reader."""
        kept = {self.owner, self.one.reader}

        def less(each: Setting) -> Setting:
            return each._replace(history=tuple(user for user in each.history if user in kept))

        return self._replace(one=less(self.one), other=less(self.other))

    def without_history(self) -> "Crossing":
        """Nobody trains before."""
        one, other = (each._replace(history=()) for each in (self.one, self.other))
        return self._replace(one=one, other=other)


def located(traces: LocalTraces, crossing: Crossing) -> Located:
    """Where a value crosses."""
    if not _shows(traces, crossing):
        return None, None
    shown = next(
        (each for each in _simpler(crossing) if each != crossing and _shows(traces, each)), crossing
    )
    steps, examples = STEPS, traces.training.batch_size(crossing.one.reader)
    if _shows(traces.shortened(steps=1), shown):
        steps = 1
    low, high = 0, examples
    while high - low > 1:  # few examples show what many do, if any
        middle = 1 if not low else (low + high) // 2
        if _shows(traces.shortened(steps=steps, examples=middle), shown):
            high = middle
        else:
            low = middle
    smallest = Smallest(
        trained_before=tuple(dict.fromkeys((*shown.one.history, *shown.other.history))),
        steps=steps,
        examples=high,
    )
    return smallest, _line(traces.shortened(steps=steps, examples=high), shown)


def mixed(base: Values, others: Values, parts: Sequence[Part]) -> Values:
    """A state, with some users' values from another."""
    found = dict(base)
    for name in {source for slot, _ in parts for source in slot.sources}:
        found[name] = base[name].clone()
    for slot, owner in parts:
        slot.part(found, owner).copy_(slot.part(others, owner))
    return found


def first_difference(found: Observed, expected: Observed) -> tuple[str, float] | None:
    """What differs first, in words, and by how much."""
    for (what, left), (due, right) in zip(found, expected, strict=False):
        if what != due:
            return f"local training fails ({what if not left else due}): it", float("nan")
        if not same_bits(left, right):
            name, size = largest_change(left, right) if left.keys() == right.keys() else ("", 0.0)
            return what.format(repr(name)), size
    return None if len(found) == len(expected) else ("local training", float("nan"))


def _simpler(crossing: Crossing) -> Iterator[Crossing]:
    yield crossing.without_history()
    yield crossing.without_others()


def _shows(traces: LocalTraces, crossing: Crossing) -> bool:
    return (
        first_difference(traces.observed(crossing.other), traces.observed(crossing.one)) is not None
    )


def _line(traces: LocalTraces, crossing: Crossing) -> Line | None:
    recorders = Recorder(), Recorder()
    one, other = (
        traces.observed(setting, recorder=recorder)
        for setting, recorder in zip(crossing[:2], recorders, strict=True)
    )
    ends = [
        recorders[0].last_writer(values[name])
        for (_, values), (_, there) in zip(one, other, strict=False)
        for name in values
        if name not in there or not same_bits({name: values[name]}, {name: there[name]})
    ]
    return reading_line(*recorders, ends)
