"""A frame with two axes, written as inline SVG: the pictures of every report.

A page has two kinds of pictures, and their text is set by the browser. So they are written here, at
a tenth of what a library for all plots takes to be loaded.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from audits.report.svg import INK, MUTED, RULE, inline, variable

_INCH = 72.0
_FONT = 8.5
_MIDDLE = 3.2
"""From the middle of a line of text down to the line that it stands on."""
_DOT = 1.8
_WHOLE = (1.0, 2.0, 5.0, 10.0)
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range, the ticks on it with their words, and what it shows.

    Args:
        low: where it begins.
        high: where it ends.
        ticks: place and words of each.
        name: of the axis.
        log: whether equal factors are equally long.
    """

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    name: str
    log: bool = False

    def share(self, values: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """How far along the axis values lie, 0 to 1."""
        low, high, found = self.low, self.high, np.asarray(values, dtype=np.float64)
        if self.log:
            low, high, found = math.log10(low), math.log10(high), np.log10(found)
        return np.asarray((found - low) / (high - low))


def fitted(
    values: Sequence[float], name: str, *, margin: float, most: int, whole: bool = False
) -> Axis:
    """An axis around values, with round ticks.

    Args:
        values: finite ones.
        name: of the axis.
        margin: share of their span that is left free on either side.
        most: intervals between ticks.
        whole: whether ticks are whole numbers.
    """
    low, high = min(values), max(values)
    span = (high - low) or max(abs(high) / 10, 1e-3)
    low, high = low - margin * span, high + margin * span
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    if whole:
        power = max(power, 1.0)
    step = next(
        power * each
        for each in (_WHOLE if whole else _STEPS)
        if power * each * most >= high - low or each == _STEPS[-1]
    )
    digits = max(0, 1 - math.floor(math.log10(step)))
    digits -= f"{step:.{digits}f}".endswith("0") and digits > 0
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = [(k * step, f"{k * step:.{digits}f}") for k in range(first, last + 1)]
    return Axis(low=low, high=high, ticks=ticks, name=name)


class Frame:
    """A frame to draw in; lengths in inches, 72 SVG units each.

    Args:
        size: width and height of the picture.
        margins: room on the left, below, on the right and above, for words.
        x: the axis below.
        y: the axis on the left.
    """

    def __init__(
        self,
        size: tuple[float, float],
        margins: tuple[float, float, float, float],
        x: Axis,
        y: Axis,
    ) -> None:
        self._size = size[0] * _INCH, size[1] * _INCH
        left, below, right, above = (each * _INCH for each in margins)
        self._x, self._y = x, y
        self._left, self._right = left, self._size[0] - right
        self._top, self._bottom = above, self._size[1] - below
        self._parts: list[str] = []

    @property
    def bottom(self) -> float:
        """Where the frame ends, in SVG units from the top of the picture."""
        return self._bottom

    def grid(self, *, across: bool) -> None:
        """Rules at the ticks of the axis on the left and, if ``across``, of the one below."""
        rule = f'stroke="{variable(RULE)}"'
        for at in self._places(self._y):
            self._parts.append(self._path([(self._left, at), (self._right, at)], f"{rule} {_THIN}"))
        for at in self._places(self._x) if across else ():
            self._parts.append(self._path([(at, self._top), (at, self._bottom)], f"{rule} {_THIN}"))

    def axes(self) -> None:
        """Both axes with their ticks and words."""
        corner = [(self._left, self._top), (self._left, self._bottom), (self._right, self._bottom)]
        self._parts.append(self._path(corner, f'stroke="{variable(RULE)}" stroke-width="0.8"'))
        for at, (_, words) in zip(self._places(self._x), self._x.ticks, strict=True):
            tick = [(at, self._bottom), (at, self._bottom + 3)]
            self._parts.append(self._path(tick, f'stroke="{variable(MUTED)}" stroke-width="0.8"'))
            self.text(at, self._bottom + 13, words, anchor="middle", colour=MUTED)
        for at, (_, words) in zip(self._places(self._y), self._y.ticks, strict=True):
            self.text(self._left - 3.5, at + _MIDDLE, words, anchor="end", colour=MUTED)
        middle = (self._left + self._right) / 2
        self.text(middle, self._bottom + 25.5, self._x.name, anchor="middle", colour=MUTED)
        upright = f'transform="translate(11 {_short((self._top + self._bottom) / 2)}) rotate(-90)"'
        self.text(0, 0, self._y.name, anchor="middle", colour=MUTED, more=upright)

    def line(
        self,
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        stroke: str,
        marker: str | None = None,
    ) -> None:
        """A line through points, interrupted where one is no number.

        Args:
            x: float64[N].
            y: float64[N].
            stroke: from ``stroke``.
            marker: colour of a dot at every point.
        """
        across = self._left + self._x.share(x) * (self._right - self._left)
        down = self._bottom - self._y.share(y) * (self._bottom - self._top)
        points = list(zip(across.tolist(), down.tolist(), strict=True))
        # In a level stretch its ends say all.
        kept = [
            point
            for place, point in enumerate(points)
            if not 0 < place < len(points) - 1
            or not points[place - 1][1] == point[1] == points[place + 1][1]
        ]
        self._parts.append(self._path(kept, stroke))
        if marker is not None:
            fill = f'r="{_DOT}" fill="{variable(marker)}"'
            self._parts += [
                f'<circle cx="{_short(one)}" cy="{_short(other)}" {fill}/>' for one, other in points
            ]

    def sample(self, row: float, stroke: str, words: str) -> None:
        """A row of a legend below the frame, so far from the top."""
        ends = [(self._left + 2, row - _MIDDLE), (self._left + 25.5, row - _MIDDLE)]
        self._parts.append(self._path(ends, stroke))
        self.text(self._left + 32.5, row, words)

    def beside(self, share: float, words: str) -> None:
        """Words on the right of the frame, at a share of its height."""
        at = self._bottom - share * (self._bottom - self._top)
        self.text(self._right + 4, at + _MIDDLE, words)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        colour: str = INK,
        more: str = "",
    ) -> None:
        """Words on a line."""
        place = f'x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}"'
        told = (
            f"<text {place} {more}".rstrip() + f' fill="{variable(colour)}">{escape(words)}</text>'
        )
        self._parts.append(told)

    def finish(self, kind: str, title: str, description: str) -> str:
        """The picture, see ``svg.inline``."""
        font = f"font-size: {_FONT}px; font-family: var(--sans, sans-serif)"
        body = f'<g style="{font}" fill="none">\n' + "\n".join(self._parts) + "\n</g></svg>"
        box = f"0 0 {_short(self._size[0])} {_short(self._size[1])}"
        return inline(kind, box, title, description, body)

    def _places(self, axis: Axis) -> list[float]:
        shares = axis.share(np.array([at for at, _ in axis.ticks]))
        start, end = (self._left, self._right) if axis is self._x else (self._bottom, self._top)
        return [float(start + share * (end - start)) for share in shares]

    @staticmethod
    def _path(points: Sequence[tuple[float, float]], stroke: str) -> str:
        steps, pen = [], "M"
        for one, other in points:
            if math.isfinite(one) and math.isfinite(other):
                steps.append(f"{pen}{_short(one)} {_short(other)}")
                pen = "L"
            else:
                pen = "M"
        return f'<path d="{" ".join(steps)}" {stroke}/>'


_THIN = 'stroke-width="0.5"'


def stroke(colour: str, width: float, dash: Sequence[float] = ()) -> str:
    """How a line looks; dashes in widths of it."""
    dashes = ",".join(_short(each * width) for each in dash)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    join = 'stroke-linejoin="round"'
    return f'stroke="{variable(colour)}" stroke-width="{width}" {join}{dashed}'


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
