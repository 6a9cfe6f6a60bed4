"""20 Newsgroups by poster: read strictly, parted by poster."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.data.newsgroups import NewsgroupsConfig, load_newsgroups
from secure_fedrec.data.user_texts import ALPHABET, PARTS
from secure_fedrec.errors import ConfigError, DataError


def post(poster: int, number: int, group: str = "sci.space", **fields: Any) -> dict[str, Any]:
    made = {
        "split": "train",
        "newsgroup": group,
        "doc": number,
        "user": poster,
        "subject": f"s{number}",
        "body": f"by {poster}\n",
    }
    return {**made, **fields}


def write(folder: Path, posts: list[Any]) -> Path:
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(each) + "\n" for each in posts)
    path = folder / "posts.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Posters 30 (6 posts in two groups), 4 (5 posts) and 9 (too few)."""
    posts = [post(30, number) for number in range(5)]
    posts += [post(9, number, "alt.atheism") for number in range(4)]
    posts += [post(4, number, "rec.autos") for number in range(5)]
    posts += [post(30, 99, "rec.autos", subject="é")]
    write(tmp_path / "20newsgroups", posts)
    return tmp_path


def test_frequent_posters_become_users(folder: Path) -> None:
    data = load_newsgroups(folder, NewsgroupsConfig(length=9), verify=False)
    assert data.user_labels.tolist() == [4, 30]
    assert data.users.tolist() == [0] * 5 + [1] * 6
    assert data.classes == ("alt.atheism", "rec.autos", "sci.space")
    assert data.label.tolist() == [1] * 5 + [2] * 5 + [1]
    assert data.mixed_users().tolist() == [False, True]
    codes = data.text[0].tolist()
    assert "".join(ALPHABET[code - 2] for code in codes[:8]) == "s0\nby 4\n"
    assert codes[8] == 0
    assert data.length.tolist() == [8] * 5 + [9] * 5 + [8]
    assert data.text[-1, 0] == 1  # outside the alphabet
    assert data.counts("train").tolist() == [4, 4]
    assert data.counts("test").tolist() == [1, 1]


def test_the_digest_is_checked_unless_switched_off(folder: Path) -> None:
    with pytest.raises(DataError, match="SHA-256"):
        load_newsgroups(folder)


def test_a_missing_folder_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="20newsgroups"):
        load_newsgroups(tmp_path)
    (tmp_path / "20newsgroups").mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        load_newsgroups(tmp_path, verify=False)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("not json", "is not JSON"),
        (["a", "list"], "must be an object"),
        ({"user": 1}, "must be an object with split"),
        (post(1, 1, extra="x"), "must be an object with split"),
        (post(1, 1, user="7"), "user must be of type int"),
        (post(1, 1, user=True), "user must be of type int"),
        (post(1, 1, body=None), "body must be of type str"),
        (post(1, 1, user=-3), "user must not be negative"),
    ],
)
def test_a_line_that_is_no_post_is_named(tmp_path: Path, broken: Any, problem: str) -> None:
    path = write(tmp_path / "20newsgroups", [post(1, 1), post(1, 2)])
    lines = gzip.decompress(path.read_bytes()).decode()
    text = broken if isinstance(broken, str) else json.dumps(broken)
    path.write_bytes(gzip.compress(f"{lines}{text}\n".encode()))
    with pytest.raises(DataError, match=problem) as refused:
        load_newsgroups(tmp_path, verify=False)
    assert refused.value.line == 3


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "20newsgroups", [post(1, number) for number in range(200)])
    sound = path.read_bytes()
    damages = {
        "is a damaged or truncated gzip file": sound[: len(sound) // 2],
        "is a damaged": b"PK" + sound[2:],
        "cut short": gzip.compress(gzip.decompress(sound)[:-1]),
        "is not UTF-8": gzip.compress(gzip.decompress(sound) + b"\xff\n"),
    }
    for problem, content in damages.items():
        path.write_bytes(content)
        with pytest.raises(DataError, match=problem):
            load_newsgroups(tmp_path, verify=False)


def test_posters_with_too_few_posts_leave_nobody(tmp_path: Path) -> None:
    write(tmp_path / "20newsgroups", [post(1, 1), post(2, 2)])
    with pytest.raises(DataError, match="no poster has 5 posts"):
        load_newsgroups(tmp_path, verify=False)


@pytest.mark.parametrize(("key", "value"), [("length", 0), ("min_posts", 1), ("seed", -1)])
def test_settings_out_of_range_are_refused(key: str, value: int) -> None:
    with pytest.raises(ConfigError) as refused:
        NewsgroupsConfig(**{key: value})
    assert refused.value.key == f"data.{key}"


@pytest.mark.data
def test_the_real_posts(real_data: Path) -> None:
    data = load_newsgroups(real_data, NewsgroupsConfig(seed=1))
    assert data.n_users == 749
    assert len(data) == 7849
    assert len(data.classes) == 20
    assert int(data.mixed_users().sum()) == 290
    assert [len(data.rows(part)) for part in PARTS] == [6142, 766, 941]
    rows = data.rows("test")
    right = data.majority_labels()[data.users[rows]] == data.label[rows]
    assert right.mean() == pytest.approx(827 / 941)
    assert np.all(data.counts("test") >= 1)
    assert np.all(data.counts("train") >= 4)
    # The texts to test that are texts to train as well, as the module tells.
    trained: dict[bytes, set[int]] = defaultdict(set)
    for row in data.rows("train"):
        trained[data.text[row].tobytes()].add(int(data.users[row]))
    repeated = [row for row in rows if data.text[row].tobytes() in trained]
    own = [row for row in repeated if int(data.users[row]) in trained[data.text[row].tobytes()]]
    assert (len(repeated), len(own)) == (9, 4)
