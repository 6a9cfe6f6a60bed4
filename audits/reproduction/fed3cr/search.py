"""A search for settings that favours no method: one rule, one budget, replayed from what is known.

A setting is a point: a rung on the ladder of each axis. From the start each axis is gone along in
turn, up and then down, as long as the next rung is better on validation, by more than noise; that
round of all axes is repeated until no next rung is, or the budget of studies is spent. Ladders have
no end of their own: a finalist's value at the end of what was tried calls for the next. Which study
comes next follows from those that there are, so a search goes on wherever it was left.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any, Final, NamedTuple, TypeAlias

Setting: TypeAlias = tuple[tuple[str, Any], ...]
"""Settings of a method that are not as by default, by dotted key, in order."""
Rung: TypeAlias = int | None
"""Of a ladder, counted from its unit; None is nought."""
Point: TypeAlias = tuple[Rung, ...]
_FAR: Final = 20
WORST: Final = -1.0
"""Merit of a study that diverged."""


def ordered(settings: Mapping[str, Any]) -> Setting:
    """Settings as they name a study."""
    return tuple(sorted(settings.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What is varied by itself.

    Args:
        keys: settings, all of which get the value.
        start: value that the search begins with.
        unit: a value of the ladder that all others are counted from; None for the start.
        ratio: from one rung of the ladder to the next.
        digits: that the values of a ladder are rounded to.
        usual: whether the start is the method's default, which no study is told.
        nought: whether 0 is tried besides; it is where the start is 0.
        most: no value is above.
        gap: whether the value of the settings is 1 less that of the ladder.
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
        """Where the search begins."""
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

    def ways(self, rung: Rung) -> list[Iterator[Rung]]:
        """Rungs from one outwards: up, down, nought."""
        if rung is None:
            return [takewhile(self._exists, count(0))]
        up, down = (
            takewhile(self._exists, count(rung + 1)),
            takewhile(self._exists, count(rung - 1, -1)),
        )
        nought = not self.values and (self.nought or self.start == 0)
        return [up, down, *([iter([None])] if nought else [])]

    def beyond(self, rung: Rung, tried: Sequence[Rung]) -> list[Rung]:
        """What lies next to a rung that is the last that was tried; nothing where it is inside."""
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
        """From low to high; nought is below all."""
        return -float("inf") if rung is None else rung

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
        value = float(f"{unit * self.ratio**rung:.{self.digits}g}")
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
        finalists: how many points, the best, are to be inside.
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
        """Asks for the merit of one point after the other."""
        centre = tuple(axis.begin() for axis in self.axes)
        known = {centre: (yield centre)}
        while True:
            begun = centre
            centre = yield from self._round(centre, known)
            if centre != begun:
                continue
            beyond = self._beyond(known)
            for point in beyond:
                known[point] = yield point
            ahead = max(known, key=lambda point: known[point])
            if known[ahead] > known[centre] + self.gain:
                centre = ahead
            elif not beyond:
                return

    def _round(self, centre: Point, known: dict[Point, float]) -> Generator[Point, float, Point]:
        """Along every axis once, from a point; where that led."""
        for place, axis in enumerate(self.axes):
            for way in axis.ways(centre[place]):
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
        """What lies behind the last values that were tried, where a finalist has one of them."""
        tried = [*known]
        ahead = sorted(tried, key=lambda point: known[point], reverse=True)[: self.finalists]
        return [
            (*point[:place], rung, *point[place + 1 :])
            for point in ahead
            for place, axis in enumerate(self.axes)
            for rung in axis.beyond(point[place], [each[place] for each in tried])
        ]
