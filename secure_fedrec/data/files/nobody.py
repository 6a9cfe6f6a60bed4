"""Ids that stand for a missing user or item."""

import json
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.files.settings import RatingsFile
from secure_fedrec.errors import DataError

_WORDS: Final = frozenset(
    (
        *("null", "nan", "none", "nil", "na", "n/a", "n.a.", "nat", "void", "unknown"),
        *("anonymous", "anon", "undefined", "empty", "missing", "blank", "guest", "deleted"),
        "not available",
    )
)
_AROUND: Final = "<>[](){}#'\"\\"
_SIGNS: Final = re.compile(r"[-?._*#/\\]+|\\N")
_CODE: Final = re.compile(r"-*0[-0]*|9{2,}")
"""Codes of zeros, such as an empty UUID, or of nines."""

_MORE: Final = {"user": 1.25, "item": 5.0}
"""A code is likely if it has this many times the rows of any other id; item numbers may be sorted
by frequency."""
_IDS: Final = 10
"""Fewest ids from which a usual number of rows is known."""


def require_somebody(file: RatingsFile, columns: Columns) -> None:
    """Ask about ids that probably stand for a missing user or item.

    Args:
        file: settings; texts as ids are what they say.
        columns: columns of the file.

    Raises:
        DataError: there is one; with the options that leave its rows out, or keep it.
    """
    for what in ("user", "item") if file.ids != "text" else ():
        coded = columns.texts[what]
        counts = np.bincount(coded.codes, minlength=len(coded.texts))
        odd = [code for code, text in enumerate(coded.texts) if is_nothing(text)]
        odd = odd or _outstanding(coded.texts, counts, _MORE[what])
        if odd:
            raise _asked(file, columns, what, odd, int(counts[odd].sum()))


def is_nothing(text: str) -> bool:
    """Whether a text means a missing value."""
    return _SIGNS.fullmatch(text) is not None or text.strip(_AROUND).lower() in _WORDS


def _outstanding(texts: Sequence[str], counts: IntArray, more: float) -> list[int]:
    """The one negative number among others, or a code with more rows than any other id."""
    if len(texts) < _IDS:
        return []
    negative = [code for code, text in enumerate(texts) if text.startswith("-")]
    if len(negative) == 1 and all(text.removeprefix("-").isdigit() for text in texts):
        return negative
    first, second = np.argsort(counts)[-1:-3:-1].tolist()
    coded = _CODE.fullmatch(texts[first]) is not None
    return [first] if coded and counts[first] >= more * counts[second] else []


def _asked(
    file: RatingsFile, columns: Columns, what: str, odd: Sequence[int], rows: int
) -> DataError:
    """The question whether a text is an id, to be raised."""
    texts = [columns.texts[what].texts[code] for code in odd]
    elsewhere = {
        text for role, coded in columns.texts.items() if role != what for text in coded.texts
    }
    known = [each for each in file.missing_values if each not in texts]
    drop = f"say {file.advice('missing_values', json.dumps([*known, *texts]))}"
    if any(text in elsewhere and not is_nothing(text) for text in texts):
        drop = "leave these rows out of the file, since another column has it as well"
    problem = (
        f"({rows:,} of {len(columns):,} rows) probably means that the {what} is missing. If so, "
        f"{drop}; if it is "
        f"an id, {file.advice('ids', 'text')}"
    )
    return columns.refuse(what, odd[0], problem)
