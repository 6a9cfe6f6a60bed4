"""Ids of clients and items: from texts to the numbers of a table, and the labels they came from."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import IndexArray
from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.files.decimals import plain
from secure_fedrec.data.ratings import Labels

LONGEST_ID: Final = 128
"""Largest number of characters of an id."""

# One spelling per number: 007 and 7 may be two products.
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbering:
    """Numbers of ids in their order: by value if all are numbers, otherwise by code points.

    Args:
        labels: int64[n] or str[n], the id of each number.
        numbers: numbers of each id as text.
    """

    labels: Labels = field(repr=False)
    numbers: dict[str, int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.numbers)

    def of(self, columns: Columns, what: str) -> IndexArray:
        """The number of every row's id, int32[N]; -1 where it has none."""
        coded = columns.texts[what]
        numbers = [self.numbers.get(text, -1) for text in coded.texts]
        return np.array(numbers, dtype=np.int32)[coded.codes]


def trim(columns: Columns, what: str, kind: str) -> Columns:
    """Take the blanks from around a column's ids, and check them.

    In a column of whole numbers 7.0 is 7, unless ids are texts.

    Args:
        columns: columns of a file.
        what: the column.
        kind: "auto", "number" or "text".

    Raises:
        DataError: an id is empty, too long, no number where it must be, or equals another one but
            for the blanks.
    """
    coded = columns.texts[what]
    trimmed = [text.strip() for text in coded.texts]
    seen: set[str] = set()
    for code, text in enumerate(trimmed):
        if not text:
            raise columns.refuse(what, code, "is an empty id")
        if len(text) > LONGEST_ID or not text.isprintable():
            problem = f"is not an id: at most {LONGEST_ID} printable signs"
            raise columns.refuse(what, code, problem)
        if kind == "number" and not _is_number(_whole(text)):
            problem = "is not a whole number of 64 bits, written without leading zeros (data.ids)"
            raise columns.refuse(what, code, problem)
        if text in seen:
            raise columns.refuse(what, code, "differs from another id of the file only in blanks")
        seen.add(text)
    if kind != "text" and any("." in text for text in trimmed):
        whole = [_whole(text) for text in trimmed]
        trimmed = whole if all(map(_is_number, whole)) else trimmed
    return replace(columns, texts={**columns.texts, what: coded.renamed(trimmed)})


def _whole(text: str) -> str:
    """Returns 7 for 7.0, as written by programs that store all numbers as floats."""
    whole, _, part = plain(text).partition(".")
    return text if part.strip("0") else whole


def number(texts: Iterable[str], kind: str) -> Numbering:
    """Number ids that have been trimmed."""
    ids = set(texts)
    if kind != "text" and all(map(_is_number, ids)):
        order = sorted(ids, key=int)
        labels: Labels = np.array([int(text) for text in order], dtype=np.int64)
    else:
        order = sorted(ids)
        labels = np.array(order, dtype=np.str_)
    return Numbering(labels=labels, numbers={text: place for place, text in enumerate(order)})


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63
