"""Attributes of clients from a file of their own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from secure_fedrec.data.files.columns import Columns
from secure_fedrec.data.files.ids import Numbering, trim
from secure_fedrec.data.files.settings import AttributesFile, Column, TextFile
from secure_fedrec.data.ratings import StrArray
from secure_fedrec.errors import DataError

Read = Callable[[Path, TextFile, Mapping[str, Column]], Columns]


def read_attributes(
    file: AttributesFile, folder: Path, ids: str, users: Numbering, read: Read
) -> dict[str, StrArray]:
    """Read the attributes of clients; rows of others are left out.

    Args:
        file: its settings.
        folder: what its path is relative to.
        ids: what ids are, see ``RatingsFile.ids``.
        users: the clients.
        read: reads the columns of a file.

    Returns:
        str[n] by attribute, called as in the settings.

    Raises:
        ConfigError: a column is not there.
        DataError: the file cannot be read or is not sound, a client is there twice or not at all, a
            value is empty, or all are alike.
    """
    path = folder / file.path
    asked = {f"attribute {column!r}": column for column in file.columns}
    columns = read(path, file, {"user": file.user, **asked})
    columns = trim(columns, "user", ids)
    columns.require_once("user")
    numbers = users.of(columns, "user")
    known = numbers >= 0
    lacking = np.flatnonzero(np.bincount(numbers[known], minlength=len(users)) == 0)
    if len(lacking):
        problem = f"lacks {len(lacking)} clients, the first is {str(users.labels[lacking[0]])!a}"
        raise DataError(path, problem)
    found = {}
    for what, column in asked.items():
        texts = [text.strip() for text in columns.texts[what].texts]
        if "" in texts:
            raise columns.refuse(what, texts.index(""), "is empty")
        values = np.empty(len(users), dtype=object)
        values[numbers[known]] = np.array(texts, dtype=object)[columns.texts[what].codes[known]]
        if len(set(values)) < 2:
            raise DataError(path, f"{columns.named[what]}: all clients have {values[0]!a}")
        found[str(column)] = values.astype(np.str_)
    return found
