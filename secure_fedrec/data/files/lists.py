"""Files of lines that list a client and all its items."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from secure_fedrec.data.files.columns import Coder, Columns
from secure_fedrec.data.files.faults import fields_of, lines
from secure_fedrec.data.files.settings import TextFile
from secure_fedrec.data.files.shape import first_lines, separator_of
from secure_fedrec.errors import DataError

_ROWS_AT_ONCE: Final = 2**17


def read_lists(path: Path, file: TextFile) -> Columns:
    """Read a client and its items from every line; a client without items has no row.

    Raises:
        DataError: the file is empty, or not sound.
    """
    first = first_lines(path, file)
    if not first:
        raise DataError(path, "is empty")
    separator = separator_of(path, first, file)
    coders = {"user": Coder(), "item": Coder()}
    users: list[str] = []
    items: list[str] = []
    places: list[int] = []
    below, counted = int(file.header is True), True
    for line, text in enumerate(lines(path, file), start=1):
        if line <= below:
            continue
        client, *listed = fields_of(path, line, text, separator)
        while listed and not listed[-1].strip():
            listed.pop()
        counted = counted and client.strip() == str(len(listed))
        users += [client] * len(listed)
        items += listed
        places += [line] * len(listed)
        if len(users) > _ROWS_AT_ONCE:
            _add(coders, users, items)
    _add(coders, users, items)
    if not places:
        raise DataError(path, "lists no item")
    if counted:
        problem = (
            "begins every line with the number of its items: have a client there, "
            "awk '{ $1 = NR; print }' FILE > lists.txt"
        )
        raise DataError(path, problem, line=1)
    return Columns(
        path=path,
        file=file,
        named={"user": "user column 1", "item": "a column of items"},
        texts={what: coder.coded() for what, coder in coders.items()},
        time=None,
        first_line=1,
        places=np.array(places, dtype=np.int64),
    )


def _add(coders: dict[str, Coder], users: list[str], items: list[str]) -> None:
    """Return the gathered rows, and clear them."""
    for what, texts in (("user", users), ("item", items)):
        coders[what].add(np.array(texts, dtype=object))
        texts.clear()


def lists_items(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first lines look like a client and its items.

    Each begins with another whole number, and none names an item twice; there are three columns or
    more, and lines differ in length or the columns share values.

    Args:
        rows: columns of lines without a header, two or more.
    """
    found = [[each.strip() for each in row if each.strip()] for row in rows]
    if len(found) < 2 or not all(each.isdecimal() for row in found for each in row):
        return False
    clients, items = [row[0] for row in found if row], [row[1:] for row in found if row]
    if len(set(clients)) < len(found) or any(len(set(each)) < len(each) for each in items):
        return False
    if len(set(map(len, items))) > 1:
        return max(map(len, items)) > 1
    columns = [set(column) for column in zip(*items, strict=True)]
    return len(columns) > 2 and all(
        len(column & set.union(*(each for each in columns if each is not column))) > len(column) / 2
        for column in columns
    )
