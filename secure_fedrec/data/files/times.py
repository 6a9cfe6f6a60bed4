"""Columns of times: numbers of seconds or milliseconds, or dates in the usual spellings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data.files.decimals import plain

GAP: Final = -(2**63)
"""Stands for a missing time."""

ORDERS: Final[Mapping[str, str]] = {"day-first": "dm", "month-first": "md"}
"""Readings of 01/02/2020, by the word of the setting."""

_MICRO: Final = 10**6
_MOST_MICRO: Final = (2**63 - 1) // _MICRO - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2100, 1, 1, tzinfo=UTC)
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_NUMBER: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]+))?")
_CLOCK: Final = (
    r"(?:(?:[T ]|, ?| ?- )(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<part>[0-9]{1,9}))?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)? ?(?P<zone>Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_WORD: Final = r"(?P<word>[A-Za-z]{3,9})\.?"
_YEAR: Final = r"(?P<year>[0-9]{4})"


def _of(pattern: str, clock: str = _CLOCK) -> "re.Pattern[str]":
    return re.compile(pattern + clock)


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A way to write a date.

    Args:
        example: of it.
        pattern: with groups of ``year``, ``month`` or ``word``, and ``day``; or of ``year``,
            ``first`` and ``then``, which are day and month in an order of their own.
    """

    example: str
    pattern: "re.Pattern[str]"


_SPELLINGS: Final = (
    _Spelling(
        "2020-01-31 or 2020-01-31T10:00:00Z",
        _of(_YEAR + r"(?P<sign>[-/.])(?P<month>[0-9]{1,2})(?P=sign)(?P<day>[0-9]{1,2})"),
    ),
    _Spelling(
        "20200131",
        _of(
            _YEAR + r"(?P<month>[0-9]{2})(?P<day>[0-9]{2})",
            r"(?:T?(?P<hour>[0-9]{2})(?P<minute>[0-9]{2})(?P<second>[0-9]{2})?(?P<zone>Z)?)?",
        ),
    ),
    _Spelling(
        "31/01/2020 or 01/31/2020 10:00 AM",
        _of(r"(?P<first>[0-9]{1,2})(?P<sign>[-/.])(?P<then>[0-9]{1,2})(?P=sign)" + _YEAR),
    ),
    _Spelling(
        "31 Jan 2020",
        _of(rf"(?:[A-Za-z]{{3,9}},? )?(?P<day>[0-9]{{1,2}})[ -]{_WORD},?[ -]{_YEAR}"),
    ),
    _Spelling("Jan 31, 2020", _of(rf"{_WORD} (?P<day>[0-9]{{1,2}}),? {_YEAR}")),
    _Spelling("01 31, 2020", _of(rf"(?P<month>[0-9]{{1,2}}) (?P<day>[0-9]{{1,2}}), {_YEAR}")),
    _Spelling(
        "Fri Jan 31 10:00:00 +0000 2020",
        re.compile(
            rf"[A-Za-z]{{3}} {_WORD} (?P<day>[0-9 ]?[0-9]) (?P<hour>[0-9]{{2}}):"
            rf"(?P<minute>[0-9]{{2}}):(?P<second>[0-9]{{2}})"
            rf"(?: (?P<zone>UTC|GMT|[+-][0-9]{{4}}))? {_YEAR}"
        ),
    ),
)


_ISO: Final = _SPELLINGS[0]


class Clock:
    """Reads a column of times, which is of one kind: its first row says which.

    Args:
        order: what is first in 01/02/2020, a word of ``ORDERS``, or "auto".
        gaps: texts that stand for no time.
    """

    def __init__(self, order: str = "auto", *, gaps: frozenset[str] = frozenset()) -> None:
        self._order, self._gaps = ORDERS.get(order), gaps
        self._spelling: _Spelling | None = None
        self._started = self._asked = False
        self._parts: list[IntArray] = []
        self._micro: list[bool] = []

    def add(self, texts: Sequence[str]) -> bool:
        """Take the next rows; False if one is not a time of the column's kind.

        Args:
            texts: at least one.
        """
        self._start(texts)
        found = _digits(texts) if self._spelling is None else None
        micro = self._spelling is not None
        if found is None:
            different = set(texts)
            self._settle(different)
            known = {text: self._moment(text) for text in different}
            if self._asked or None in known.values():
                return False
            found = [known[text] or 0 for text in texts]
            micro = micro or any((each or 0) % _MICRO for each in known.values() if each != GAP)
            if not micro:
                found = [each if each == GAP else each // _MICRO for each in found]
        self._micro.append(micro)
        self._parts.append(np.array(found, dtype=np.int64))
        return True

    def moments(self) -> IntArray:
        """The times of all rows, in seconds where all are whole ones, else in microseconds."""
        if not any(self._micro):
            return np.concatenate(self._parts)
        for place, micro in enumerate(self._micro):
            part = self._parts[place]
            if not micro:
                if part.max(initial=0) > _MOST_MICRO:
                    raise OverflowError("times with fractions of a second beyond 64 bits")
                self._parts[place] = np.where(part == GAP, part, part * _MICRO)
        return in_seconds(np.concatenate(self._parts), _MICRO)

    def problem(self, text: str) -> str:
        """Why a text is not one of the column's times, as a clause; empty where it is one."""
        stripped = text.strip()
        if self._asked and self._of_two(stripped):
            words = " or ".join(f"--set data.dates={word}" for word in ORDERS)
            return f"may have the day or the month first, as all others: say {words}"
        self._start([text])
        if (moment := self._moment(text)) is not None and (moment >= 0 or moment == GAP):
            return ""
        if self._spelling is None:
            early = stripped.startswith("-") and _NUMBER.fullmatch(stripped[1:])
            example = _ISO.example
            wanted = f"is not a whole number of seconds; or have all rows as {example}"
            return "is before 1970" if early else wanted
        too_early = _read(self._spelling, stripped, self._order) is not None
        return (
            "is before 1970"
            if too_early
            else f"is not a date such as {self._spelling.example}, as above"
        )

    def _start(self, texts: Sequence[str]) -> None:
        """Determine the kind of the column from its first row that has a time."""
        if self._started:
            return
        first = next((text.strip() for text in texts if text.strip() not in self._gaps), None)
        if first is not None:
            self._started, self._spelling = True, spelling_of(first)

    def _settle(self, different: set[str]) -> None:
        """Find out whether the day or the month comes first, where it is not stated."""
        if self._order is None and self._spelling is not None:
            found = [self._spelling.pattern.fullmatch(text.strip()) for text in different]
            self._order = _told_order(match for match in found if match is not None)
            self._asked = self._order is None

    def _of_two(self, text: str) -> bool:
        return self._spelling is not None and bool(self._spelling.pattern.fullmatch(text))

    def _moment(self, text: str) -> int | None:
        """Microseconds since 1970; None where it is not one of the column's kind, or before."""
        stripped = text.strip()
        if stripped in self._gaps:
            return GAP
        if self._spelling is None:
            number = _NUMBER.fullmatch(plain(stripped))
            whole, part = (int(number[1]), _part(number[2])) if number else (0, 0)
            fits = number is not None and (not part or whole <= _MOST_MICRO)
            return whole * _MICRO + part if fits else None
        moment = _read(self._spelling, stripped, self._order)
        return moment if moment is not None and moment >= 0 else None


def spelling_of(text: str) -> _Spelling | None:
    """How a date is written, with or without a time of day; None for a text that is not a date."""
    text = text.strip()
    least = 0 if text.isdigit() else GAP  # 10010203 is a number
    read = ((each, _read(each, text, None)) for each in _SPELLINGS)
    return next((each for each, at in read if at is not None and at >= least), None)


def in_seconds(moments: IntArray, per_second: int) -> IntArray:
    """Times in seconds where all are whole ones; else as they are, since their order counts."""
    if per_second == 1:
        return moments
    there = moments != GAP
    if (moments[there] % per_second).any():
        return moments
    return np.where(there, moments // per_second, moments)


def mixed_units(moments: IntArray) -> tuple[int, str] | None:
    """The first row with another unit than most, and what is wrong; None if all have the same unit.

    Args:
        moments: int64[N], whole numbers of a column.
    """
    units = [(name, _among(moments, factor)) for name, factor in UNITS.items()]
    there = [(name, found) for name, found in units if found.any()]
    if len(there) < 2:
        return None
    ranges = " and ".join(
        f"{name} ({moments[found].min()} to {moments[found].max()})" for name, found in there
    )
    fewest = min((found for _, found in there), key=np.count_nonzero)
    return int(np.argmax(fewest)), f"the column holds {ranges}: write all in one unit"


UNITS: Final[Mapping[str, int]] = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}
"""Units of whole numbers since 1970, and how many make a second."""

_LIKELY: Final = (5 * 10**8, 4 * 10**9)
"""Seconds of the years 1985 to 2096, in which the three units cannot be confused."""


def _among(moments: IntArray, factor: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    low, high = _LIKELY
    return (moments >= low * factor) & (moments < high * factor)


def is_moment(text: str) -> bool:
    """Whether a text reads as a time since 1970, in one of the units."""
    number = _NUMBER.fullmatch(plain(text.strip()))
    value, (low, high) = int(number[1]) if number else 0, _LIKELY
    return any(low * factor <= value < high * factor for factor in UNITS.values())


def _digits(texts: Sequence[str]) -> list[int] | None:
    """Whole numbers of digits only; None if a text is not one. 18 digits fit 64 bits."""
    joined, sizes = "".join(texts), set(map(len, texts))
    if not (joined.isascii() and joined.isdigit() and min(sizes) > 0 and max(sizes) <= 18):
        return None
    return list(map(int, texts))


def _told_order(found: Iterable["re.Match[str]"]) -> str | None:
    """Whether day or month is first, by a number above 12; "" where the spelling decides it."""
    for match in found:
        if match.re.groupindex.get("first") is None:
            return ""
        if int(match["first"]) > 12:
            return ORDERS["day-first"]
        if int(match["then"]) > 12:
            return ORDERS["month-first"]
    return None


def _read(spelling: _Spelling, text: str, order: str | None) -> int | None:
    """Microseconds since 1970; None if it is not written so, or there is no such day or time.

    Args:
        spelling: spelling of the date.
        text: the date.
        order: order of day and month if it is unclear; None for any order that gives a date.
    """
    match = spelling.pattern.fullmatch(text)
    if match is None:
        return None
    if spelling is _ISO:
        try:  # much faster than by parts, and all that most files need
            return _micro(datetime.fromisoformat(text))
        except ValueError:
            pass
    found = match.groupdict()
    if "first" not in found:
        return _moment(found)
    for day, month in _PLACES if not order else [_PLACES[order == ORDERS["month-first"]]]:
        moment = _moment({**found, "day": found[day], "month": found[month]})
        if moment is not None:
            return moment
    return None


_PLACES: Final = (("first", "then"), ("then", "first"))
"""Where day and month are, by ``ORDERS``."""


def _moment(found: Mapping[str, str | None]) -> int | None:
    """Microseconds since 1970, without a zone in UTC; None if there is no such day or time."""
    try:
        word = (found.get("word") or "")[:3].lower()
        hour = int(found.get("hour") or 0)
        if half := found.get("half"):
            if not 1 <= hour <= 12:
                return None
            hour = hour % 12 + 12 * (half in "Pp")
        moment = datetime(
            int(found["year"] or 0),
            _MONTHS.index(word) + 1 if word else int(found.get("month") or 0),
            int(found["day"] or 0),
            hour,
            int(found.get("minute") or 0),
            int(found.get("second") or 0),
            _part(found.get("part")),
            tzinfo=_zone(found.get("zone")),
        )
        return _micro(moment)
    except (ValueError, OverflowError):
        return None


def _micro(moment: datetime) -> int | None:
    placed = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (placed - _EPOCH) // timedelta(microseconds=1) if placed < _LATEST else None


def _part(text: str | None) -> int:
    """Microseconds of the digits after a point."""
    return int((text or "").ljust(6, "0")[:6])


def _zone(text: str | None) -> timezone:
    if text is None or text[0] not in "+-":
        return UTC
    digits = text[1:].replace(":", "")
    away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return timezone(-away if text[0] == "-" else away)
