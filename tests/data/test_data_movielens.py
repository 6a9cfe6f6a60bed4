import gzip
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.data import (
    RatingTable,
    latest_ml_1m,
    load_ml_1m,
    load_ml_100k,
    load_ml_latest_small,
)
from secure_fedrec.data.textfiles import read_numbers, read_records, whole_numbers
from secure_fedrec.errors import DataError


def rows(table: RatingTable) -> list[tuple[int, int, float]]:
    columns = (table.clients.tolist(), table.items.tolist(), table.ratings.tolist())
    return list(zip(*columns, strict=True))


def test_ml_100k(ml_100k: Path) -> None:
    table = load_ml_100k(ml_100k)
    assert rows(table) == [(0, 1, 5.0), (1, 0, 1.0), (1, 2, 3.0), (2, 1, 4.0)]
    assert table.item_labels.tolist() == [1, 2, 4]
    assert table.timestamps is not None
    assert table.timestamps.tolist() == [881250950, 881250951, 881250949, 881250952]
    assert table.demographics["gender"].tolist() == ["F", "M", "M"]
    assert table.demographics["age_band"].tolist() == ["Under 18", "18-24", "56+"]
    assert table.demographics["occupation"].tolist() == ["student", "artist", "none"]


def test_ml_1m_with_timestamps(ml_1m: Path) -> None:
    table = load_ml_1m(ml_1m)
    assert (table.n_clients, table.n_items) == (2, 3952)
    assert rows(table) == [(0, 1192, 4.0), (1, 0, 3.0), (1, 3951, 5.0)]
    assert table.timestamps is not None
    assert table.demographics["age_band"].tolist() == ["Under 18", "56+"]
    assert table.demographics["occupation"].tolist() == ["K-12 student", "self-employed"]


def test_ml_1m_without_timestamps(ml_1m: Path) -> None:
    (ml_1m / "ratings.dat").unlink()
    packed = gzip.compress(b"2::3952::5\n1::1193::4\n")
    (ml_1m / "ratings_notimestamp.dat.gz").write_bytes(packed)
    table = load_ml_1m(ml_1m)
    assert rows(table) == [(0, 1192, 4.0), (1, 3951, 5.0)]
    assert table.timestamps is None


def test_ml_1m_prefers_the_published_ratings(ml_1m: Path) -> None:
    (ml_1m / "ratings_notimestamp.dat.gz").write_bytes(b"not read")
    assert len(load_ml_1m(ml_1m)) == 3


def test_ml_1m_without_ratings_names_the_published_file(ml_1m: Path) -> None:
    (ml_1m / "ratings.dat").unlink()
    with pytest.raises(DataError, match=r"ratings\.dat: cannot be read"):
        load_ml_1m(ml_1m)


@pytest.mark.parametrize("keep", [0, 5, 20, -1, -8])
def test_ml_1m_refuses_a_bad_gzip(ml_1m: Path, keep: int) -> None:
    (ml_1m / "ratings.dat").unlink()
    path = ml_1m / "ratings_notimestamp.dat.gz"
    path.write_bytes(gzip.compress(b"2::3952::5\n1::1193::4\n")[:keep])
    with pytest.raises(DataError, match=r"notimestamp\.dat\.gz"):
        load_ml_1m(ml_1m)


def test_latest_ml_1m(ml_1m: Path) -> None:
    assert latest_ml_1m(ml_1m).tolist() == [1192, 0]


@pytest.mark.parametrize("text", ["1::1::3::9\n", "1::1::3::9\n1::2::3::9\n2::1::3::9\n"])
def test_latest_ml_1m_wants_one_item_per_client(ml_1m: Path, text: str) -> None:
    (ml_1m / "latest_rating_per_user.dat").write_text(text, encoding="ascii")
    with pytest.raises(DataError, match="exactly one latest"):
        latest_ml_1m(ml_1m)


def test_ml_latest_small(ml_latest_small: Path) -> None:
    table = load_ml_latest_small(ml_latest_small)
    assert rows(table) == [(0, 0, 4.5), (1, 1, 0.5)]
    assert table.client_labels.tolist() == [3, 7]
    assert table.item_labels.tolist() == [1, 10]
    assert not table.demographics


GOOD = "1\t2\t5\t881250950\n"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (GOOD + "2\t1\t1\n", 2, "has 3 columns, expected 4"),
        (GOOD + "2\t1\t1\t8812\t9\n", 2, "has 5 columns"),
        (GOOD + "2\t1\t1\t88125", 2, "cut short"),
        (GOOD + "\n" + GOOD, 2, "has 1 columns"),
        (GOOD + "2\t1\tx\t881250951\n", 2, "rating 'x' is not a number"),
        (GOOD + "2\t1\tnan\t881250951\n", 2, "rating 'nan' is not a number"),
        (GOOD + "2\t-1\t3\t881250951\n", 2, "item '-1' is not a number"),
        (GOOD + "2\t\t3\t881250951\n", 2, "item '' is not a number"),
        (GOOD + "2\t1\t1.2.3\t881250951\n", 2, "rating '1.2.3' is not a number"),
        (GOOD + "2\t1\t1e0\t881250951\n", 2, "rating '1e0' is not a number"),
        (GOOD + "2\t1\t\u00e9\t881250951\n", 2, "rating '.*' is not a number"),
        (GOOD + "2\t1\t6\t881250951\n", 2, "rating 6 is off its scale"),
        (GOOD + "2\t1\t2.5\t881250951\n", 2, "rating 2.5 is off its scale"),
        (GOOD + "2.5\t1\t2\t881250951\n", 2, "user 2.5 is not a whole number"),
        (GOOD + "9\t1\t2\t881250951\n", 2, "user 9 is not in the data set"),
        (GOOD + "2\t3\t2\t881250951\n", 2, "item 3 is not in the data set"),
        (GOOD + "2\t1\t2\t881250951.5\n", 2, "timestamp .* is not a whole number"),
        (GOOD + "2\t1\t2\t99999999999999999999\n", 2, "timestamp .* is not a whole number"),
        (GOOD + "2\t1\t2\t7\n" + GOOD, 3, "already rated"),
        ("", None, "is empty"),
    ],
)
def test_damaged_ratings(ml_100k: Path, text: str, line: int | None, problem: str) -> None:
    (ml_100k / "u.data").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=problem) as caught:
        load_ml_100k(ml_100k)
    assert caught.value.path == str(ml_100k / "u.data")
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("u.user", "1|17|F|student\n", "line 1: has 4 columns"),
        ("u.user", "1|17|X|student|5\n", "line 1: gender 'X'"),
        ("u.user", "1|old|F|student|5\n", "line 1: age 'old'"),
        ("u.user", "1|0|F|student|5\n", "line 1: age '0'"),
        ("u.user", "1|17|F|student|5\nx|17|F|student|5\n", "line 2: user 'x'"),
        ("u.user", "1|17|F|student|5\n1|17|F|student|5\n", "line 2: user 1 is repeated"),
        ("u.user", "1|17|F|\u00e9|5\n", "line 1: is not ascii"),
        ("u.user", "1|17|F|student|5\n", r"u\.data, line 1: user 2 is not in"),
        ("u.item", "1\n", "line 1: has 1 columns"),
        ("u.item", "2|B\n1|A\n", "line 2: item 1 is repeated or out of order"),
        ("u.item", "1|A\n2|B", "line 2: the last line has no end"),
    ],
)
def test_damaged_listings(ml_100k: Path, file: str, text: str, problem: str) -> None:
    (ml_100k / file).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=problem):
        load_ml_100k(ml_100k)


@pytest.mark.parametrize("file", ["u.user", "u.item", "u.data"])
def test_missing_file(ml_100k: Path, file: str) -> None:
    (ml_100k / file).unlink()
    with pytest.raises(DataError, match=f"{file}: cannot be read"):
        load_ml_100k(ml_100k)


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ("1::F::2::10::4", "age band '2'"),
        ("1::F::1::21::4", "occupation '21'"),
        ("1::f::1::10::4", "gender 'f'"),
    ],
)
def test_ml_1m_refuses_unknown_codes(ml_1m: Path, user: str, problem: str) -> None:
    (ml_1m / "users.dat").write_text(user + "\n", encoding="ascii")
    with pytest.raises(DataError, match=f"line 1: {problem}"):
        load_ml_1m(ml_1m)


@pytest.mark.parametrize("row", ["1::3953::3::9", "1::0::3::9", "1:1::3::9", "1::1:::3::9"])
def test_ml_1m_refuses_bad_rows(ml_1m: Path, row: str) -> None:
    (ml_1m / "ratings.dat").write_text(row + "\n", encoding="ascii")
    with pytest.raises(DataError, match=r"ratings\.dat, line 1"):
        load_ml_1m(ml_1m)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("user,movie,rating,timestamp\n7,10,0.5,9\n", "line 1: has no column 'userId'"),
        ("userId,movieId,rating,timestamp\n", "nothing else"),
        (
            "userId,movieId,rating,timestamp\n7,10,0.5,9\n7,1,0.7,9\n",
            "line 3: rating column 'rating': '0.7'",
        ),
        ("userId,movieId,rating,timestamp\n7,10,0.0,9\n", "line 2: rating column 'rating': '0.0'"),
        (
            "userId,movieId,rating,timestamp\n7,11,0.5,9\n",
            "line 2: item column 'movieId': '11' is not among",
        ),
    ],
)
def test_ml_latest_small_refuses(ml_latest_small: Path, text: str, problem: str) -> None:
    (ml_latest_small / "ratings.csv").write_text(text, encoding="ascii")
    with pytest.raises(DataError, match=problem):
        load_ml_latest_small(ml_latest_small)


@settings(max_examples=60)
@given(text=st.text(alphabet="0129.-\t\n nax\u00e9", max_size=40))
def test_any_text_is_a_full_table_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        table = read_numbers(path, ("a", "b"), separator="\t")
    except DataError:
        return
    assert table.shape == (text.count("\n"), 2)
    assert np.isfinite(table).all()


def test_records_keep_inner_bytes_that_look_like_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "listing"
    path.write_bytes(b"1|a\x85b\x0cc\n")
    assert read_records(path, ("id", "title"), separator="|", encoding="latin-1") == [
        ["1", "a\x85b\x0cc"]
    ]


def test_whole_numbers_are_exact_or_refused(tmp_path: Path) -> None:
    exact = whole_numbers(tmp_path, np.array([0.0, 2.0**53 - 1]), "id", 1)
    assert exact.tolist() == [0, 2**53 - 1]
    with pytest.raises(DataError, match="line 4"):
        whole_numbers(tmp_path, np.array([0.0, 2.0**53]), "id", 3)


@pytest.mark.data
@pytest.mark.parametrize(
    ("read", "name", "counts"),
    [
        (load_ml_100k, "ml-100k", (943, 1682, 100_000)),
        (load_ml_1m, "ml-1m", (6040, 3952, 1_000_209)),
        (load_ml_latest_small, "ml-latest-small", (610, 9742, 100_836)),
    ],
)
def test_real_counts(
    real_data: Path,
    read: Callable[[Path], RatingTable],
    name: str,
    counts: tuple[int, int, int],
) -> None:
    started = time.perf_counter()
    table = read(real_data / name)
    # A few times what an ordinary core needs: a loop over ratings would take longer.
    assert time.perf_counter() - started < 10.0
    assert (table.n_clients, table.n_items, len(table)) == counts
    assert table.counts().min() >= 20


@pytest.mark.data
def test_real_latest_ratings_are_ratings(real_data: Path) -> None:
    table = load_ml_1m(real_data / "ml-1m")
    latest = latest_ml_1m(real_data / "ml-1m")
    named = table.items == latest[table.clients]
    assert np.array_equal(table.clients[named], np.arange(table.n_clients))
