"""Columns of times: whole numbers of seconds, or dates as ISO 8601 writes them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from secure_fedrec.core.arrays import IntArray

_DATE: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_SHOWN: Final = "2020-01-31 or 2020-01-31T10:00:00Z"
_DATED_PER_SECOND: Final = 10**6
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """Reads one column of times, which is of one kind: its first row says which."""

    def __init__(self) -> None:
        self._of_dates: bool | None = None

    @property
    def per_second(self) -> int:
        """How many units of the rows that were read are a second."""
        return _DATED_PER_SECOND if self._of_dates else 1

    def read(self, texts: Sequence[str]) -> list[int]:
        """The next rows, since 1970; nothing if one is no time of the column's kind.

        Args:
            texts: at least one.
        """
        if self._of_dates is None:
            self._of_dates = is_date(texts[0])
        return _dated(texts) if self._of_dates else whole_seconds(texts)

    def problem(self, text: str) -> str:
        """Why a text is none of the column's times, as a clause."""
        stripped = text.strip()
        if self._of_dates:
            early = _DATE.fullmatch(stripped) and _moment(stripped) is not None
            return "is before 1970" if early else f"is no date such as {_SHOWN}, as above"
        if stripped.startswith("-") and whole_seconds([stripped[1:]]):
            return "is before 1970"
        return f"is not a whole number of seconds; or have all rows as {_SHOWN}"


def in_seconds(moments: IntArray, per_second: int) -> IntArray:
    """Times in seconds where all are whole ones; else as they are, since their order counts."""
    return moments // per_second if not (moments % per_second).any() else moments


def is_date(text: str) -> bool:
    """Whether a text is a date, with or without a time of day."""
    return _DATE.fullmatch(text.strip()) is not None


def whole_seconds(texts: Sequence[str]) -> list[int]:
    """Whole numbers; blanks around one and a fraction of 0 do not count.

    More than 18 digits leave 64 bits.
    """
    if not _are_digits(texts):
        texts = [text.strip().removesuffix(".0") for text in texts]
        if not _are_digits(texts):
            return []
    return list(map(int, texts))


def _are_digits(texts: Sequence[str]) -> bool:
    joined = "".join(texts)
    sizes = set(map(len, texts))
    return joined.isascii() and joined.isdigit() and min(sizes) > 0 and max(sizes) <= 18


def _dated(texts: Sequence[str]) -> list[int]:
    """Dates; each different text is read once."""
    known = {text: _moment(text.strip()) for text in set(texts)}
    found = [each for text in texts if (each := known[text]) is not None and each >= 0]
    return found if len(found) == len(texts) else []


def _moment(text: str) -> int | None:
    """Microseconds since 1970, without a zone in UTC; None if there is no such day or time."""
    try:
        moment = datetime.fromisoformat(text) if _DATE.fullmatch(text) else None
        if moment is None:
            return None
        placed = moment.replace(tzinfo=moment.tzinfo or UTC)
        return (placed - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None
