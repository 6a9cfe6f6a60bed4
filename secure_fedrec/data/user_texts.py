"""Texts by users, with a class each: what FURL's document model learns from.

Every user is a client of the federation and owns its texts. A text is a run of character codes from
a fixed, public alphabet; nothing about the encoding is learned from the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data.splits import random_words
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.vault import Vault

ALPHABET: Final = "\n" + "".join(map(chr, range(32, 127)))
"""The characters that have a code of their own: line feed and printable ASCII."""

CODES: Final = len(ALPHABET) + 2
"""Codes 0 to ``CODES - 1``: padding, any character outside the alphabet, then the alphabet."""

PARTS: Final = ("train", "validation", "test")
"""Parts of every user's texts, by their codes."""

_OUTSIDE: Final = 1
_SHARE_HELD: Final = 10  # one in ten for validation, one in ten for test, as FURL splits
# Keeps this split unrelated to other uses of the same seed.
_SPLIT: Final = 3

TextArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UserTexts:
    """Labelled texts of users, sorted by user.

    Args:
        name: name of the data set.
        classes: name of each class.
        user_labels: what each of the U users is called outside, in ascending order.
        users: int64[N], user of each text, ascending.
        text: uint8[N, L], character codes, 0 beyond the end.
        length: int64[N], characters of each text, 1 to L.
        label: int64[N], class of each text.
        part: int64[N], code in ``PARTS``.

    Raises:
        DataError: the columns do not fit together, or a user has no text to train on.
    """

    name: str
    classes: tuple[str, ...]
    user_labels: IntArray = field(repr=False)
    users: IntArray = field(repr=False)
    text: TextArray = field(repr=False)
    length: IntArray = field(repr=False)
    label: IntArray = field(repr=False)
    part: IntArray = field(repr=False)

    def __post_init__(self) -> None:
        size = len(self.users)
        bounds = {
            "users": (0, self.n_users),
            "length": (1, self.text.shape[1] + 1),
            "label": (0, len(self.classes)),
            "part": (0, len(PARTS)),
        }
        for column, (low, end) in bounds.items():
            values = getattr(self, column)
            if values.shape != (size,) or (size and not low <= values.min() <= values.max() < end):
                raise DataError(self.name, f"{column} must be {size} numbers in [{low}, {end})")
        if len(self.text) != size or np.any(np.diff(self.users) < 0):
            raise DataError(self.name, "texts must be sorted by user, one row each")
        idle = np.flatnonzero(self.counts("train") == 0)
        if len(idle):
            user = int(self.user_labels[idle[0]])
            raise DataError(self.name, f"user {user} has no text to train on")

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_users(self) -> int:
        """U."""
        return len(self.user_labels)

    def rows(self, part: str) -> IntArray:
        """Row numbers of a part, ascending.

        Raises:
            ConfigError: the part is unknown.
        """
        if part not in PARTS:
            raise ConfigError("data.part", part, "unknown part", PARTS)
        return np.flatnonzero(self.part == PARTS.index(part))

    def counts(self, part: str) -> IntArray:
        """int64[U], texts of each user in a part."""
        return np.bincount(self.users[self.rows(part)], minlength=self.n_users)

    def columns(self, part: str) -> dict[str, npt.NDArray[Any]]:
        """The columns of a part, with the users: what a central server trains on."""
        rows = self.rows(part)
        return {
            "text": self.text[rows],
            "length": self.length[rows],
            "label": self.label[rows],
            "user": self.users[rows],
        }

    def vault(self) -> Vault:
        """The users' vaults with their training texts; a device knows no user number."""
        indptr = np.concatenate([[0], np.cumsum(self.counts("train"))])
        columns = self.columns("train")
        del columns["user"]
        return Vault.of_examples(indptr, columns)

    def label_counts(self) -> IntArray:
        """int64[U, classes], training texts of every class by user."""
        rows = self.rows("train")
        counts = np.zeros((self.n_users, len(self.classes)), dtype=np.int64)
        np.add.at(counts, (self.users[rows], self.label[rows]), 1)
        return counts

    def majority_labels(self) -> IntArray:
        """Each user's most frequent class in training; of equals, the one frequent overall.

        The strongest guess that does not read the text: int64[U].
        """
        votes = self.label_counts()
        overall = votes.sum(0)
        return np.asarray(np.argmax(votes + overall / (overall.sum() + 1), axis=1))

    def mixed_users(self) -> BoolArray:
        """Whether each user has texts of more than one class, in all parts together: bool[U]."""
        seen = np.zeros((self.n_users, len(self.classes)), dtype=bool)
        seen[self.users, self.label] = True
        mixed: BoolArray = seen.sum(1) > 1
        return mixed


def encode_texts(texts: Sequence[str], length: int) -> tuple[TextArray, IntArray]:
    """Character codes of texts, cut after ``length`` characters.

    Tabs count as blanks and carriage returns as nothing; any other character outside the alphabet
    has one common code. An empty text is one blank.

    Returns:
        (codes uint8[N, length], lengths int64[N]).

    Raises:
        ConfigError: ``length`` is below 1.
    """
    if length < 1:
        raise ConfigError("data.length", length, "must be at least 1")
    table = np.full(128, _OUTSIDE, dtype=np.uint8)
    for code, character in enumerate(ALPHABET, start=2):
        table[ord(character)] = code
    codes = np.zeros((len(texts), length), dtype=np.uint8)
    lengths = np.zeros(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        plain = text.replace("\t", " ").replace("\r", "")[:length] or " "
        points = np.frombuffer(plain.encode("utf-32-le", "replace"), dtype="<u4")
        codes[row, : len(points)] = table[np.minimum(points, 127)]
        lengths[row] = len(points)
    return codes, lengths


def split_by_user(users: IntArray, *, seed: int) -> IntArray:
    """Parts every user's texts 0.8 / 0.1 / 0.1.

    A tenth is rounded to the nearest whole number, halves down; the test part has at least one text
    of every user, the training part at least one of every user with two or more.

    Args:
        users: int64[N], ascending.
        seed: seed of the split, at least 0.

    Returns:
        int64[N], codes in ``PARTS``; a function of (users, seed), fixed for all numpy versions.

    Raises:
        ConfigError: the seed is negative.
    """
    words = random_words(seed, _SPLIT, len(users))
    order = np.lexsort((words, users))
    counts = np.bincount(users)
    place = np.empty(len(users), dtype=np.int64)
    place[order] = np.arange(len(users)) - np.repeat(np.cumsum(counts) - counts, counts)
    tenth = -(-(2 * counts - _SHARE_HELD) // (2 * _SHARE_HELD))
    test = np.minimum(np.maximum(tenth, 1), np.maximum(counts - 1, 0))
    held = np.minimum(test + tenth, np.maximum(counts - 1, 0))
    part = np.zeros(len(users), dtype=np.int64)
    part[place < held[users]] = PARTS.index("validation")
    part[place < test[users]] = PARTS.index("test")
    return part
