"""A search for settings with the same rule and budget for all methods, replayed from known studies.

A setting is a point: a rung on the ladder of each axis. From the start, the search moves along each
axis in turn, up and then down, as long as the next rung is better on validation by more than noise.
This is repeated over all axes until no next rung is better, and then with half steps, unless the
budget of studies is spent before. Ladders do not have an end: if a finalist's value is the last
that was tried, the next value is tried. The next study follows from the existing ones, so a search
can be continued after an interruption.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any, Final, NamedTuple, TypeAlias

Setting: TypeAlias = tuple[tuple[str, Any], ...]
"""Settings of a method that differ from the default, by dotted key, in order."""
Rung: TypeAlias = float | None
"""Rung of a ladder, counted from its unit; None is the value 0."""
Point: TypeAlias = tuple[Rung, ...]
_FAR: Final = 20
WORST: Final = -1.0
"""Merit of a study that diverged."""


def ordered(settings: Mapping[str, Any]) -> Setting:
    """Settings in the form that names a study."""
    return tuple(sorted(settings.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis: settings that are varied together, independently of others.

    Args:
        keys: settings, all of which get the value.
        start: value that the search begins with.
        unit: a value of the ladder that all others are counted from; None for the start.
        ratio: from one rung of the ladder to the next.
        digits: that the values of a ladder are rounded to.
        usual: whether the start is the method's default, which no study is told.
        nought: whether 0 is tried as well; always if the start is 0.
        most: no value is above.
        gap: whether the value of the settings is 1 minus that of the ladder.
        values: all there are, in order, in place of a ladder; with several keys a value of each.
    """

    keys: tuple[str, ...]
    start: Any
    unit: float | None = None
    ratio: float = 10.0**0.5
    digits: int = 2
    usual: bool = False
    nought: bool = False
    most: float = float("inf")
    gap: bool = False
    values: tuple[Any, ...] = ()

    def begin(self) -> Rung:
        """The rung where the search begins."""
        if self.values:
            return self.values.index(self.start)
        if self.start == 0:
            return None
        return min(
            range(-_FAR, _FAR), key=lambda rung: (self._on_ladder(rung) != self.start, abs(rung))
        )

    def settings(self, rung: Rung) -> dict[str, Any]:
        """The settings' values on a rung."""
        if self.usual and rung == self.begin():
            return {}
        value = self._value(rung)
        each = value if self.values and len(self.keys) > 1 else [value] * len(self.keys)
        return dict(zip(self.keys, each, strict=True))

    def ways(self, rung: Rung, step: float = 1) -> list[Iterator[Rung]]:
        """Rungs from one outwards: up, down, 0; with half a step, those between the others."""
        if step < 1 and (self.values or rung is None):
            return []
        if rung is None:
            return [takewhile(self._exists, count(0))]
        here = self._value(rung)
        up, down = (
            (
                each
                for each in takewhile(self._exists, count(rung + way, way))
                if self._value(each) != here
            )
            for way in (step, -step)
        )
        nought = step == 1 and not self.values and (self.nought or self.start == 0)
        return [up, down, *([iter([None])] if nought else [])]

    def beyond(self, rung: Rung, tried: Sequence[Rung]) -> list[Rung]:
        """The rungs beyond one that is the last tried; empty if rungs on both sides were tried."""
        known = [each for each in tried if each is not None]
        if rung is None:
            return [] if known else [0]
        lowest = min(known) == rung and None not in tried
        due = [rung - 1] if lowest else []
        due += [rung + 1] if max(known) == rung else []
        return [each for each in due if self._exists(each)]

    def text(self, rung: Rung) -> str:
        """The value on a rung."""
        told = replace(self, usual=False).settings(rung).values()
        return "+".join(dict.fromkeys(f"{each:g}" for each in told))

    @staticmethod
    def order(rung: Rung) -> float:
        """Sort key from low to high; the value 0 comes first."""
        return -float("inf") if rung is None else rung

    def _exists(self, rung: Rung) -> bool:
        if self.values:
            return rung is not None and 0 <= rung < len(self.values)
        return bool(0 < self._on_ladder(rung) <= self.most)

    def _value(self, rung: Rung) -> Any:
        if self.values:
            assert rung is not None  # noqa: S101 - a list has no nought
            return self.values[int(rung)]
        value = self._on_ladder(rung)
        return float(f"{1 - value:.6g}") if self.gap else value

    def _on_ladder(self, rung: Rung) -> Any:
        if rung is None:
            return 0.0
        unit = self.start if self.unit is None else self.unit
        if rung == 0:
            return unit
        value = float(f"{unit * self.ratio**rung:.{self.digits}g}")
        return int(value) if isinstance(unit, int) else value


class Search(NamedTuple):
    """How far a search is.

    Attributes:
        tried: points in the order they were tried.
        next: the study that is needed next; None if the search has ended or spent its budget.
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
        finalists: number of best points that must not be at the end of a ladder.
    """

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Any]
    gain: float = 0.0
    finalists: int = 1

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
            if axis.beyond(point[place], [each[place] for each in tried])
        ]

    def along(self, merits: Mapping[Point, float]) -> dict[str, dict[str, float]]:
        """By keys of an axis and value, from low on, the best merit of what has that value."""
        found = {}
        for place, axis in enumerate(self.axes):
            best: dict[Rung, float] = {}
            for point, merit in merits.items():
                best[point[place]] = max(merit, best.get(point[place], merit))
            if len(best) > 1:
                own = sorted(best, key=axis.order)
                found["+".join(axis.keys)] = {axis.text(rung): best[rung] for rung in own}
        return found

    def _walk(self) -> Generator[Point, float, None]:
        """Requests the merits of points one after the other."""
        step: float = 1
        centre = tuple(axis.begin() for axis in self.axes)
        known = {centre: (yield centre)}
        while True:
            begun = centre
            centre = yield from self._round(centre, known, step)
            if centre != begun:
                continue
            beyond = self._beyond(known)
            for point in beyond:
                known[point] = yield point
            ahead = max(known, key=lambda point: known[point])
            if known[ahead] > known[centre] + self.gain:
                centre = ahead
            elif not beyond and step < 1:
                return
            elif not beyond:
                step /= 2

    def _round(
        self, centre: Point, known: dict[Point, float], step: float
    ) -> Generator[Point, float, Point]:
        """Move along every axis once from a point; returns the end point."""
        for place, axis in enumerate(self.axes):
            for way in axis.ways(centre[place], step):
                begun = centre
                for rung in way:
                    point = (*centre[:place], rung, *centre[place + 1 :])
                    known[point] = yield point
                    if not known[point] > known[centre] + self.gain:
                        break
                    centre = point
                if centre != begun:  # the other direction leads back to the start
                    break
        return centre

    def _beyond(self, known: Mapping[Point, float]) -> list[Point]:
        """Points beyond the last values tried, for finalists that have such a value."""
        tried = [*known]
        ahead = sorted(tried, key=lambda point: known[point], reverse=True)[: self.finalists]
        return [
            (*point[:place], rung, *point[place + 1 :])
            for point in ahead
            for place, axis in enumerate(self.axes)
            for rung in axis.beyond(point[place], [each[place] for each in tried])
        ]
