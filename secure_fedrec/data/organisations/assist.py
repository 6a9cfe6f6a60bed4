"""ASSISTments 2009-2010 as organisations: classes by proxy, and the two published sample clients.

HPFL divides ASSISTments by teacher (59 clients). No public preparation still has a teacher column.
The user numbers, however, were assigned in order of enrolment, and so reflect classes: users with
neighbouring numbers work on the same concepts (mean cosine of two neighbours' concept frequencies
0.68, of two random users 0.17) and on the same questions (Jaccard 0.045 against
0.005). The proxy is therefore a *block of user numbers*: users in ascending order, cut into 59
blocks of nearly equal size. Mean Jensen-Shannon divergence of two blocks' concept distributions is
0.54 bits, against 0.07 for random blocks and 0.49 for users sorted by the concept they mostly work
on: so the blocks differ as much as HPFL's clients should, and the answers were not used to form
them.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data.organisations.split import SplitShares, draw_parts
from secure_fedrec.data.organisations.tables import Organisations, organise
from secure_fedrec.data.refusals import readable, refused
from secure_fedrec.data.textfiles import read_numbers, read_records, whole_numbers
from secure_fedrec.errors import ConfigError, DataError

ASSIST_CLIENTS: Final = 59
"""Clients of the paper, and of the proxy."""

_PARTS: Final = ("train.csv", "valid.csv", "test.csv")
_COLUMNS: Final = ("user_id", "item_id", "score")
_SAMPLE_CLIENTS: Final = ("0", "1")
_ANSWER_KEYS: Final = ("user_id", "exer_id", "score", "knowledge_code")
_LEVELS: Final = np.array([0.0, 1.0])
# A list of one or more positive codes, as Python prints it: [83] or [13, 14].
_CODES: Final = re.compile(r"\[([1-9]\d{0,5}(?:, [1-9]\d{0,5})*)\]")


def assist2009_by_blocks(
    folder: Path, *, shares: SplitShares, seed: int, clients: int = ASSIST_CLIENTS
) -> Organisations:
    """Loads ASSISTments by blocks of user numbers; see the module docstring.

    The preparation comes in three files, parted for one split. They are read as one and parted
    anew, as the paper parts its records.

    Args:
        folder: holds ``train.csv``, ``valid.csv``, ``test.csv`` and ``item.csv``.
        shares: of every user's answers, held out.
        seed: seed of the split, at least 0.
        clients: number of blocks, from 1 to the number of users.

    Returns:
        The organisations; scores 0 and 1, one attribute per concept.

    Raises:
        ConfigError: there are fewer users than clients.
        DataError: a file is missing or damaged; names the file and, where possible, the line.
    """
    answers = np.concatenate([_answers(folder / part) for part in _PARTS])
    numbers, users = np.unique(answers[:, 0], return_inverse=True)
    if not 1 <= clients <= len(numbers):
        raise ConfigError("data.clients", clients, f"must be 1 to the {len(numbers)} users")
    block = users * clients // len(numbers)
    items = answers[:, 1]
    attributes, names = _concepts(folder / "item.csv", int(items.max()))
    return organise(
        name="assist2009",
        names=[f"block {number}" for number in range(clients)],
        clients=block,
        users=answers[:, 0],
        items=items,
        scores=answers[:, 2].astype(np.float64),
        parts=draw_parts(answers[:, 0], items, shares=shares, seed=seed),
        attributes=attributes,
        attribute_names=names,
        levels=_LEVELS,
    )


def assist2009_sample(folder: Path, *, shares: SplitShares, seed: int) -> Organisations:
    """Loads the two clients that HPFL's authors published, with their own test records.

    Both files number users and questions from 0: the numbers are local, and no question is known
    to be the same at both.

    Args:
        folder: holds ``hpfl-sample/train_<client>.json`` and ``hpfl-sample/test_<client>.json``.
        shares: only the share of validation is used.
        seed: seed of the validation records, at least 0.

    Returns:
        The organisations; scores 0 and 1, a single attribute.

    Raises:
        DataError: a file is missing or damaged.
    """
    rows: list[tuple[int, int, int, float, bool]] = []
    codes: dict[int, frozenset[int]] = {}
    first_user = first_item = 0
    for client, number in enumerate(_SAMPLE_CLIENTS):
        path = folder / "hpfl-sample" / f"train_{number}.json"
        answers = [(*_answer(path, each), False) for each in _list(path, _json(path))]
        path = folder / "hpfl-sample" / f"test_{number}.json"
        answers += [(*each, True) for each in _logged(path)]
        for user, item, score, own, held_out in answers:
            rows.append((client, first_user + user, first_item + item, score, held_out))
            if codes.setdefault(first_item + item, own) != own:
                raise DataError(path, f"question {item} has different concepts")
        first_user += 1 + max(user for user, *_ in answers)
        first_item += 1 + max(item for _, item, *_ in answers)
    return _sample(rows, codes, first_item, shares, seed)


def _sample(
    rows: list[tuple[int, int, int, float, bool]],
    codes: dict[int, frozenset[int]],
    n_items: int,
    shares: SplitShares,
    seed: int,
) -> Organisations:
    clients, users, items, scores, held_out = map(np.array, zip(*rows, strict=True))
    concepts = sorted(frozenset().union(*codes.values()))
    attributes = np.zeros((n_items, len(concepts)), dtype=np.bool_)
    for item, own in codes.items():
        attributes[item, np.searchsorted(concepts, sorted(own))] = True
    return organise(
        name="assist2009-sample",
        names=[f"sample {number}" for number in _SAMPLE_CLIENTS],
        clients=clients,
        users=users,
        items=items,
        scores=scores,
        parts=draw_parts(users, items, shares=shares, seed=seed, held_out=held_out),
        attributes=attributes,
        attribute_names=[f"concept {code}" for code in concepts],
        levels=_LEVELS,
    )


def _answers(path: Path) -> IntArray:
    """User, item and score of one file: int64[N, 3]."""
    rows = read_numbers(path, _COLUMNS, separator=",", header=",".join(_COLUMNS))
    wrong = np.flatnonzero(~np.isin(rows[:, 2], _LEVELS))
    if len(wrong):
        problem = f"score {rows[wrong[0], 2]:g} is neither 0 nor 1"
        raise DataError(path, problem, line=2 + int(wrong[0]))
    columns = [whole_numbers(path, rows[:, at], _COLUMNS[at], 2) for at in range(3)]
    return np.stack(columns, axis=1)


def _concepts(path: Path, largest: int) -> tuple[BoolArray, list[str]]:
    """bool[largest + 1, K] by item number, and names of the concepts.

    An item may have several rows, and a row may repeat a code: what counts is the union.
    """
    header = "item_id,knowledge_code"
    pairs: set[tuple[int, int]] = set()
    records = read_records(path, ("item_id",), separator=",", header=header, at_least=True)
    for line, record in enumerate(records, start=2):
        found = _CODES.fullmatch(",".join(record[1:]).strip('"'))
        if found is None or not re.fullmatch(r"\d{1,9}", record[0]):
            raise DataError(path, "is not an item number and a list of concepts", line=line)
        pairs |= {(int(record[0]), int(code)) for code in found[1].split(", ")}
    codes = sorted({code for _, code in pairs})
    attributes = np.zeros((1 + max(largest, *(i for i, _ in pairs)), len(codes)), dtype=np.bool_)
    items, own = np.array(sorted(pairs)).T
    attributes[items, np.searchsorted(codes, own)] = True
    return attributes, [f"concept {code}" for code in codes]


def _json(path: Path) -> object:
    with readable(path), refused(path, "is not JSON ({})", ValueError):
        return json.loads(path.read_text(encoding="utf-8"))


def _list(path: Path, value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise DataError(path, "must hold a list of records")
    return value


def _answer(path: Path, record: Any) -> tuple[int, int, float, frozenset[int]]:
    """User, question, score and concepts of one record."""
    if not isinstance(record, dict):
        raise DataError(path, f"{record!r} is not a record")
    if missing := [key for key in _ANSWER_KEYS if key not in record]:
        raise DataError(path, f"a record lacks {missing[0]!r}")
    user, item, score, codes = (record[key] for key in _ANSWER_KEYS)
    whole = [user, item, *(codes if isinstance(codes, list) else [None])]
    if not codes or any(type(number) is not int or not 0 <= number < 2**31 for number in whole):
        raise DataError(path, f"{record!r} holds a wrong number")
    if type(score) not in (int, float) or score not in (0, 1):
        raise DataError(path, f"score {score!r} is neither 0 nor 1")
    return user, item, float(score), frozenset(codes)


def _logged(path: Path) -> list[tuple[int, int, float, frozenset[int]]]:
    """Answers of a test file, where a record lists all answers of one user."""
    found = []
    for record in _list(path, _json(path)):
        if not isinstance(record, dict) or type(record.get("user_id")) is not int:
            raise DataError(path, "a record lacks 'user_id'")
        for log in _list(path, record.get("logs")):
            if not isinstance(log, dict):
                raise DataError(path, f"{log!r} is not a record")
            found.append(_answer(path, {**log, "user_id": record["user_id"]}))
    return found
