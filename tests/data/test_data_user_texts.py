"""Texts of users: the fixed alphabet, the split by user, and the guess that does not read."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.data.user_texts import (
    ALPHABET,
    CODES,
    UserTexts,
    encode_texts,
    split_by_user,
)
from secure_fedrec.errors import ConfigError, DataError


def code(character: str) -> int:
    return ALPHABET.index(character) + 2


def texts(**columns: Any) -> UserTexts:
    """Users 7, 8 and 9 with 4, 3 and 2 texts."""
    text, length = encode_texts(["one", "two", "three", "four", "a", "b", "c", "d", "e"], 4)
    whole = UserTexts(
        name="made up",
        classes=("x", "y", "z"),
        user_labels=np.array([7, 8, 9]),
        users=np.array([0, 0, 0, 0, 1, 1, 1, 2, 2]),
        text=text,
        length=length,
        label=np.array([0, 1, 1, 0, 1, 1, 0, 2, 2]),
        part=np.array([0, 0, 0, 2, 0, 0, 2, 0, 1]),
    )
    return replace(whole, **columns)


def test_characters_have_fixed_codes_and_texts_are_cut_and_padded() -> None:
    text, length = encode_texts(["Ab", "long text", "", "\tq\r\n", "né €\x07"], 4)
    assert length.tolist() == [2, 4, 1, 3, 4]
    assert text.dtype == np.uint8
    assert text[0].tolist() == [code("A"), code("b"), 0, 0]
    assert text[1].tolist() == [code(each) for each in "long"]
    assert text[2].tolist() == [code(" "), 0, 0, 0]
    assert text[3].tolist() == [code(" "), code("q"), code("\n"), 0]
    assert text[4].tolist() == [code("n"), 1, code(" "), 1]
    assert CODES == 98 == int(encode_texts(["~"], 1)[0].max()) + 1


def test_a_length_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.length"):
        encode_texts(["a"], 0)


@pytest.mark.parametrize(
    ("count", "parts"),
    [(1, (1, 0, 0)), (2, (1, 0, 1)), (5, (4, 0, 1)), (6, (4, 1, 1)), (16, (12, 2, 2))],
)
def test_every_user_is_split_8_1_1(count: int, parts: tuple[int, int, int]) -> None:
    users = np.repeat(np.arange(3), count)
    part = split_by_user(users, seed=1)
    for user in range(3):
        assert tuple(np.bincount(part[users == user], minlength=3)) == parts


def test_the_split_is_a_function_of_the_seed() -> None:
    users = np.repeat(np.arange(40), 10)
    np.testing.assert_array_equal(split_by_user(users, seed=3), split_by_user(users, seed=3))
    assert not np.array_equal(split_by_user(users, seed=3), split_by_user(users, seed=4))
    held = split_by_user(users, seed=3).reshape(40, 10) == 2
    assert len(np.unique(np.argmax(held, axis=1))) > 5  # not always the same place
    with pytest.raises(ConfigError, match=r"data\.seed"):
        split_by_user(users, seed=-1)


def test_the_majority_label_is_the_users_own_and_ties_go_to_the_frequent_one() -> None:
    # User 0 trains on labels 0, 1, 1; user 1 on 1, 1; user 2 on 2.
    assert texts().majority_labels().tolist() == [1, 1, 2]
    tied = texts(label=np.array([0, 1, 2, 0, 1, 1, 0, 2, 2]))
    assert tied.majority_labels().tolist() == [1, 1, 2]


def test_users_of_several_classes_are_found_in_all_parts() -> None:
    assert texts().mixed_users().tolist() == [True, True, False]


def test_a_device_gets_its_training_texts_and_no_user_number() -> None:
    data = texts()
    vault = data.vault()
    assert vault.example_counts().tolist() == [3, 2, 1]
    own = vault.examples(1)
    assert set(own) == {"text", "length", "label"}
    np.testing.assert_array_equal(own["text"], data.text[4:6])
    assert data.columns("train")["user"].tolist() == [0, 0, 0, 1, 1, 2]
    assert data.counts("test").tolist() == [1, 1, 0]
    with pytest.raises(ConfigError, match="unknown part"):
        data.rows("dev")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"label": np.full(9, 3)}, "label must be"),
        ({"length": np.zeros(9, dtype=np.int64)}, "length must be"),
        ({"part": np.full(9, -1)}, "part must be"),
        ({"users": np.arange(8)}, "must be"),
        ({"users": np.array([0, 1, 0, 0, 1, 1, 1, 2, 2])}, "sorted by user"),
        ({"part": np.array([0, 0, 0, 2, 0, 0, 2, 1, 2])}, "user 9 has no text to train on"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        texts(**columns)
