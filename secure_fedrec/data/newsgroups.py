"""20 Newsgroups by poster, FURL's *Subreddit* task in small: to which group was a post sent?

The file holds one JSON object per line: ``split`` (of the "bydate" version, not used here), the
group, the file number, the poster as an integer, subject and body. Posters with at least five posts
are the clients.

Some posts were sent more than once, or begin with the same text, which the split of a poster's
posts does not consider: under the standard settings, 9 of the 941 texts to test are also texts to
train, character by character, 4 of them of the same poster (seed 1). A model that memorises texts
gets that 1 % right; the split is kept, so that results remain comparable.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np

from secure_fedrec.data.registry import check_files, dataset_info, locate
from secure_fedrec.data.textfiles import read_bytes
from secure_fedrec.data.user_texts import UserTexts, encode_texts, split_by_user
from secure_fedrec.errors import DataError
from secure_fedrec.settings import Count, Natural, Settings, Within

_NAME: Final = "20newsgroups"
_FILE: Final = "posts.jsonl.gz"
_FIELDS: Final = {
    "split": str,
    "newsgroup": str,
    "doc": int,
    "user": int,
    "subject": str,
    "body": str,
}
_GROUPS: Final = 20
_POSTS: Final = 18_846


class NewsgroupsConfig(Settings, section="data"):
    """What to take of the posts.

    Args:
        length: characters kept of a post: its subject, a line feed, its body.
        min_posts: posters with fewer posts are left out; at least 2, one to train and one to test.
        seed: seed of the split of every poster's posts.

    Raises:
        ConfigError: a field is out of range.
    """

    length: Count = 256
    min_posts: Annotated[int, Within(least=2)] = 5
    seed: Natural = 1


class _Post(NamedTuple):
    """One line of the file."""

    user: int
    newsgroup: str
    text: str


def load_newsgroups(
    data_dir: Path | None = None, config: NewsgroupsConfig | None = None, *, verify: bool = True
) -> UserTexts:
    """Loads and parts the posts of frequent posters.

    Args:
        data_dir: as :func:`secure_fedrec.data.locate` takes it.
        config: what to take.
        verify: whether to check the file's digest and the number of posts and groups against what
            is known. Switch it off only to read an edited copy on purpose.

    Returns:
        Users in ascending order of their number in the file, classes in alphabetic order.

    Raises:
        DataError: the file is not there, damaged, or a line of it is not a post.
    """
    config = config or NewsgroupsConfig()
    folder = locate(_NAME, data_dir)
    if verify:
        check_files(dataset_info(_NAME), folder)
    path = folder / _FILE
    posts = list(_read_posts(path))
    groups = sorted({post.newsgroup for post in posts})
    if verify and (len(posts), len(groups)) != (_POSTS, _GROUPS):
        raise DataError(
            path,
            f"is incomplete: {len(posts)} posts in {len(groups)} groups, expected {_POSTS} in "
            f"{_GROUPS}",
        )
    labels, posters, counts = np.unique(
        [post.user for post in posts], return_inverse=True, return_counts=True
    )
    frequent = counts >= config.min_posts
    if not frequent.any():
        raise DataError(path, f"no poster has {config.min_posts} posts")
    rows = np.argsort(posters, kind="stable")
    rows = rows[frequent[posters[rows]]]
    users = (np.cumsum(frequent) - 1)[posters[rows]]
    text, length = encode_texts([posts[row].text for row in rows.tolist()], config.length)
    return UserTexts(
        name=_NAME,
        classes=tuple(groups),
        user_labels=labels[frequent],
        users=users,
        text=text,
        length=length,
        label=np.searchsorted(groups, [posts[row].newsgroup for row in rows.tolist()]),
        part=split_by_user(users, seed=config.seed),
    )


def _read_posts(path: Path) -> Iterator[_Post]:
    """The posts, line by line.

    Raises:
        DataError: the file cannot be read or unpacked, or a line is not a post.
    """
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(path, f"is not UTF-8 text ({error.reason})") from error
    for line, raw in enumerate(io.StringIO(text, newline="\n"), start=1):
        yield _post(path, line, raw)


def _post(path: Path, line: int, raw: str) -> _Post:
    if not raw.endswith("\n"):
        raise DataError(path, "the last line has no end: the file is cut short", line=line)
    try:
        record = json.loads(raw)
    except ValueError as error:
        raise DataError(path, f"is not JSON ({error})", line=line) from error
    if not isinstance(record, dict) or record.keys() != _FIELDS.keys():
        raise DataError(path, f"must be an object with {', '.join(_FIELDS)}", line=line)
    for name, kind in _FIELDS.items():
        # ``type is``: to Python, true is an integer.
        if type(record[name]) is not kind:
            raise DataError(path, f"{name} must be of type {kind.__name__}", line=line)
    if record["user"] < 0:
        raise DataError(path, "user must not be negative", line=line)
    text = f"{record['subject']}\n{record['body']}"
    return _Post(record["user"], record["newsgroup"], text)
