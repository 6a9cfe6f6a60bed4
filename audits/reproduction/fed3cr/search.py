"""A search for settings that favours no method: one rule, one budget, replayed from what is known.

A setting is a point: a rung on the ladder of each axis. From the start each axis is gone along in
turn, up and then down, as long as the next rung is better on validation, by more than noise; that
round of all axes is repeated until no next rung is, or the budget of studies is spent. Ladders have
no end of their own: the best value at the end of what was tried calls for the next. Which study
comes next follows from those that there are, so a search goes on wherever it was left.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, Final, NamedTuple, TypeAlias

from audits.reproduction.fed3cr.settings import Setting, ordered

Rung: TypeAlias = int | None
"""Of a ladder, counted from its unit; None is nought."""
Point: TypeAlias = tuple[Rung, ...]
WORST: Final = -1.0
"""Merit of a study that diverged."""
_DIGITS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What is varied by itself.

    Args:
        keys: settings, all of which get the value.
        start: value that the search begins with.
        unit: a value of the ladder that is not nought; None for the start.
        ratio: from one rung of the ladder to the next.
        nought: whether 0 is tried besides; it is where the start is 0.
        most: no value is above.
        gap: whether the value of the settings is 1 less that of the ladder.
        values: all there are, in order, in place of a ladder; with several keys a value of each.
    """

    keys: tuple[str, ...]
    start: Any
    unit: float | None = None
    ratio: float = 10.0**0.5
    nought: bool = False
    most: float = float("inf")
    gap: bool = False
    values: tuple[Any, ...] = ()

    def begin(self) -> Rung:
        """Where the search begins."""
        if self.values:
            return self.values.index(self.start)
        return None if self.start == 0 else 0

    def settings(self, rung: Rung) -> dict[str, Any]:
        """The settings' values on a rung."""
        value = self._value(rung)
        each = value if self.values and len(self.keys) > 1 else [value] * len(self.keys)
        return dict(zip(self.keys, each, strict=True))

    def ways(self, rung: Rung) -> list[Iterator[Rung]]:
        """Rungs from one outwards: up, down, nought."""
        if rung is None:
            return [takewhile(self._exists, count(0))]
        up, down = (
            takewhile(self._exists, count(rung + 1)),
            takewhile(self._exists, count(rung - 1, -1)),
        )
        return [up, down, *([iter([None])] if self.nought or self.start == 0 else [])]

    def edge(self, rung: Rung, tried: Sequence[Rung]) -> bool:
        """Whether a rung is the last that was tried, though there are more behind."""
        known = [each for each in tried if each is not None]
        if rung is None:
            return not known
        lowest = min(known) == rung and None not in tried
        return (self._exists(rung - 1) and lowest) or (
            self._exists(rung + 1) and max(known) == rung
        )

    def _exists(self, rung: Rung) -> bool:
        if self.values:
            return rung is not None and 0 <= rung < len(self.values)
        return bool(0 < self._on_ladder(rung) <= self.most)

    def _value(self, rung: Rung) -> Any:
        if self.values:
            assert rung is not None  # noqa: S101 - a list has no nought
            return self.values[rung]
        value = self._on_ladder(rung)
        return float(f"{1 - value:.6g}") if self.gap else value

    def _on_ladder(self, rung: Rung) -> Any:
        if rung is None:
            return 0.0
        unit = self.start if self.unit is None else self.unit
        if rung == 0:
            return unit
        value = float(f"{unit * self.ratio**rung:.{_DIGITS}g}")
        return int(value) if isinstance(unit, int) else value


class Search(NamedTuple):
    """How far a search is.

    Attributes:
        tried: points in the order they were tried.
        next: the study it takes to go on; None where it has ended, or spent its budget.
        ended: whether no next rung was better.
    """

    tried: list[Point]
    next: Setting | None
    ended: bool


@dataclass(frozen=True, slots=True)
class Space:
    """What a method is tuned over.

    Args:
        axes: in the order they are gone along.
        fixed: settings that are not varied.
        gain: how much more merit a rung must have to be better.
    """

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Any]
    gain: float = 0.0

    def setting(self, point: Point) -> Setting:
        """Settings of a point."""
        found = dict(self.fixed)
        for axis, rung in zip(self.axes, point, strict=True):
            found |= axis.settings(rung)
        return ordered(found)

    def search(self, merits: Mapping[Setting, float], budget: int) -> Search:
        """Replay a search.

        Args:
            merits: of the studies that there are, by setting; the larger the better.
            budget: how many studies it may try.
        """
        walk, tried = self._walk(), dict[Point, float]()
        point = next(walk)
        while True:
            if point not in tried:
                setting = self.setting(point)
                if len(tried) == budget or setting not in merits:
                    due = setting if len(tried) < budget else None
                    return Search([*tried], due, False)
                tried[point] = merits[setting]
            try:
                point = walk.send(tried[point])
            except StopIteration:
                return Search([*tried], None, True)

    def edges(self, point: Point, tried: Sequence[Point]) -> list[str]:
        """Keys of the axes on which a point is the last that was tried."""
        return [
            "+".join(axis.keys)
            for place, axis in enumerate(self.axes)
            if axis.edge(point[place], [each[place] for each in tried])
        ]

    def neighbours(self, point: Point) -> dict[str, list[Point]]:
        """By keys of the axis the next points along it, all else the same."""
        return {
            "+".join(axis.keys): [
                (*point[:place], rung, *point[place + 1 :])
                for way in axis.ways(point[place])
                if (rung := next(way, ...)) is not ...
            ]
            for place, axis in enumerate(self.axes)
        }

    def _walk(self) -> Generator[Point, float, None]:
        """Asks for the merit of one point after the other."""
        centre = tuple(axis.begin() for axis in self.axes)
        best, moved = (yield centre), True
        while moved:
            moved = False
            for place, axis in enumerate(self.axes):
                for way in axis.ways(centre[place]):
                    gained = False
                    for rung in way:
                        point = (*centre[:place], rung, *centre[place + 1 :])
                        merit = yield point
                        if not merit > best + self.gain:
                            break
                        centre, best, gained = point, merit, True
                    if gained:  # on the other side lies where it came from
                        moved = True
                        break
