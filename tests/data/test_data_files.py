"""Ratings from files of one's own: every way to write a table gives the same table."""

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.data import RatingScale, RatingsFile, RatingTable, read_ratings
from secure_fedrec.data.files import AttributesFile, CatalogueFile
from secure_fedrec.data.files.describe import look_at
from secure_fedrec.errors import ConfigError, DataError

ROWS = [("bob", "x", 3.5, 20), ("ann", "z", 0.5, 10), ("bob", "y", 5.0, 30), ("ann", "x", 2.0, 10)]
HALF_STARS = RatingScale(0.5, 5.0, 0.5)


def write(path: Path, rows: list[Any], separator: str = ",", header: str = "") -> Path:
    lines = [separator.join(map(str, row)) for row in rows]
    path.write_text("".join(f"{line}\n" for line in ([header] if header else []) + lines))
    return path


def read(path: Path, **keys: Any) -> RatingTable:
    columns = {"user": 1, "item": 2, "rating": 3, "time": 4}
    asked = {key: each for key, each in {**columns, **keys}.items() if each is not None}
    return read_ratings(RatingsFile(path=path.name, **asked), path.parent).table


@pytest.fixture
def plain(tmp_path: Path) -> RatingTable:
    return read(write(tmp_path / "plain.csv", ROWS), scale=HALF_STARS)


def test_a_table(plain: RatingTable) -> None:
    assert plain.client_labels.tolist() == ["ann", "bob"]
    assert plain.item_labels.tolist() == ["x", "y", "z"]
    assert plain.clients.tolist() == [0, 0, 1, 1]
    assert plain.items.tolist() == [0, 2, 0, 1]
    assert plain.ratings.tolist() == [2.0, 0.5, 3.5, 5.0]
    assert plain.timestamps is not None
    assert plain.timestamps.tolist() == [10, 10, 20, 30]
    assert plain.name == "plain.csv"
    assert "ann" not in repr(plain)


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", "::", " ", "@@@"])
@pytest.mark.parametrize("header", [False, True])
def test_any_separator(tmp_path: Path, plain: RatingTable, separator: str, header: bool) -> None:
    names = separator.join(["userId", "item", "stars", "ts"]) if header else ""
    path = write(tmp_path / "r.dat", ROWS, separator, names)
    told = "auto" if separator not in (" ", "@@@") else separator
    table = read(path, scale=HALF_STARS, separator=told)
    assert table.fingerprint() == plain.fingerprint()
    if header:
        named = {"user": "userId", "item": "item", "rating": "stars", "time": "ts"}
        again = read(path, scale=HALF_STARS, separator=separator, **named)
        assert again.fingerprint() == plain.fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: raw[:-1],
        lambda raw: raw.replace(b"bob,", b'"bob",'),
        lambda raw: raw.replace(b",", b" , "),
        gzip.compress,
    ],
    ids=["mark", "crlf", "no-last-end", "quotes", "blanks", "gzip"],
)
def test_any_spelling(tmp_path: Path, plain: RatingTable, change: Any) -> None:
    path = tmp_path / "plain.csv"
    path.write_bytes(change(path.read_bytes()))
    assert read(path, scale=HALF_STARS).fingerprint() == plain.fingerprint()


def test_parquet(tmp_path: Path, plain: RatingTable) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    users, items, stars, times = zip(*ROWS, strict=True)
    for kinds in (
        {},
        {"r": arrow.float32(), "t": arrow.timestamp("s"), "u": arrow.large_string()},
        {"u": arrow.dictionary(arrow.int8(), arrow.string()), "t": arrow.int32()},
    ):
        columns = dict(zip("uirt", map(list, (users, items, stars, times)), strict=True))
        arrays = {name: arrow.array(each, kinds.get(name)) for name, each in columns.items()}
        parquet.write_table(arrow.table(arrays), tmp_path / "r.parquet")
        table = read(tmp_path / "r.parquet", scale=HALF_STARS)
        assert table.fingerprint() == plain.fingerprint()


def test_parquet_of_all_types(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, sizes = tmp_path / "r.parquet", range(4)

    def wrote(**columns: Any) -> dict[str, Any]:
        parquet.write_table(arrow.table(columns), path)
        return {what: number for number, what in enumerate(columns, start=1)}

    numbers: dict[str, list[Any]] = {
        "user": [2, 1, 2, 1],
        "item": [1, 3, 2, 1],
        "rating": [3.5, 0.5, 5.0, 2.0],
    }
    same = read(path, **wrote(**numbers), time=None, scale=HALF_STARS)
    gaps = {name: [*each, None] for name, each in numbers.items()}  # whole numbers become floats
    floats = {name: arrow.array(each, arrow.float64()) for name, each in gaps.items()}
    with pytest.raises(DataError, match=r"row 5, user column 'user': is empty; --set data.missing"):
        read(path, **wrote(**floats), time=None)
    dropped = read(path, **wrote(**floats), time=None, missing="drop", scale=HALF_STARS)
    assert dropped.client_labels.tolist() == [1, 2]
    assert dropped.fingerprint() == same.fingerprint()

    days = arrow.array([9 + size for size in sizes], arrow.date32())
    written = [f"0{1 + 2 * size}/31/1970" for size in sizes]
    for times, first in ((days, 9 * 86400), (written, 30 * 86400)):
        table = read(path, **wrote(**numbers, time=times), scale=HALF_STARS)
        assert table.timestamps is not None
        assert min(table.timestamps) == first
    with pytest.raises(DataError, match="time column 'time': 'noon' is not a whole number"):
        read(path, **wrote(**numbers, time=["noon"] * 4))
    flags = read(path, **wrote(**{**numbers, "rating": [True, False, True, True]}), time=None)
    assert sorted(flags.ratings.tolist()) == [0.0, 1.0, 1.0, 1.0]
    seen = look_at(path)
    assert seen.scale == RatingScale(0, 1, 1)


def test_quotes_hold_separators(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text('user,item,rating\n"a, b",x,1\n"say ""hi""",y,2\n')
    table = read(path, user="user", item="item", rating="rating", time=None)
    assert table.client_labels.tolist() == ["a, b", 'say "hi"']


def test_latin_1(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes("zoë,x,1\nann,y,2\n".encode("latin-1"))
    table = read(tmp_path / "r.csv", time=None, encoding="latin-1")
    assert table.client_labels.tolist() == ["ann", "zoë"]


def test_ids(tmp_path: Path) -> None:
    rows = [(10, 5, 1), (9, 700, 2), (-3, 5, 2)]
    path = write(tmp_path / "r.csv", rows)
    assert read(path, time=None).client_labels.tolist() == [-3, 9, 10]
    assert read(path, time=None, ids="text").client_labels.tolist() == ["-3", "10", "9"]
    write(path, [*rows, ("007", 5, 1)])
    assert read(path, time=None).client_labels.tolist() == ["-3", "007", "10", "9"]


def test_text_and_numbers_have_other_fingerprints(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", [(1, 5, 1), (2, 7, 2)])
    prints = {read(path, time=None, ids=ids).fingerprint() for ids in ("auto", "number", "text")}
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        (["1", "5", "3", "2"], (1, 5, 1)),
        (["0.5", "5", "3.5"], None),  # 3 of 4 levels in steps of 1.5 is enough
        (["-2", "-1", "0", "1", "2"], (-2, 2, 1)),
        ([str(value) for value in range(1, 11)], (1, 10, 1)),
        (["0.1", "0.2", "0.3"], (0.1, 0.3, 0.1)),
        (["20", "40", "60", "100"], (20, 100, 20)),
        (["0", "1"], (0, 1, 1)),
    ],
)
def test_a_scale_is_found(tmp_path: Path, values: list[str], scale: Any) -> None:
    rows = [(f"u{place}", f"i{place % 2}", value) for place, value in enumerate(values)]
    table = read(write(tmp_path / "r.csv", rows), time=None)
    expected = RatingScale(*map(float, scale)) if scale else RatingScale(0.5, 5.0, 1.5)
    assert table.scale == expected


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(-20, 20),
    step=st.sampled_from(["0.1", "0.25", "0.5", "1", "2", "10"]),
    count=st.integers(2, 40),
    data=st.data(),
)
def test_every_scale_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, low: int, step: str, count: int, data: Any
) -> None:
    levels = [low * Decimal(step) + place * Decimal(step) for place in range(count)]
    shuffled = data.draw(st.permutations(levels))
    path = tmp_path_factory.mktemp("scale") / "r.csv"
    write(path, [(place // 2, place % 2, level) for place, level in enumerate(shuffled)])
    if count < 3:
        path.write_text(path.read_text() + f"9,0,{levels[0]}\n")
    table = read(path, time=None)
    assert (table.scale.low, table.scale.step) == (float(levels[0]), float(step))
    assert table.scale.high == float(levels[-1])


@pytest.mark.parametrize(
    ("policy", "rating", "time"), [("first", 1.0, 5), ("last", 4.0, 3), ("mean", 2.0, 8)]
)
def test_a_pair_that_is_rated_again(tmp_path: Path, policy: str, rating: float, time: int) -> None:
    again = [("u", "x", 1, 5), ("u", "x", 2, 8), ("u", "x", 4, 3)]  # 2 1/3 on average
    others = [("v", "x", 5, 1), ("v", "y", 2, 1)]
    rows = [again[0], others[0], again[1], others[1], again[2]]
    table = read(write(tmp_path / "r.csv", rows), duplicates=policy, scale=RatingScale(1, 5, 1))
    assert len(table) == 3
    assert table.timestamps is not None
    assert (table.ratings[0], table.timestamps[0]) == (rating, time)


def test_the_mean_of_two_neighbours_is_the_upper_one(tmp_path: Path) -> None:
    rows = [("u", "x", 3), ("u", "x", 4), ("v", "y", 1)]
    table = read(write(tmp_path / "r.csv", rows), time=None, duplicates="mean")
    assert table.ratings.tolist() == [4.0, 1.0]


def test_a_mean_half_way_is_half_way_on_any_scale(tmp_path: Path) -> None:
    scale = RatingScale(0.1, 2.0, 0.1)
    for low in range(1, 20):
        rows = [("u", "x", f"0.{low}"), ("u", "x", f"{(low + 1) / 10:g}"), ("v", "y", 1)]
        if low > 9:
            rows[0] = ("u", "x", f"1.{low - 10}")
        table = read(write(tmp_path / "r.csv", rows), time=None, duplicates="mean", scale=scale)
        assert table.ratings[0] == pytest.approx((low + 1) / 10)


def test_ratings_are_kept_exactly_or_refused(tmp_path: Path) -> None:
    long = ("100000000000000.01", "100000000000000.02")
    for scale in ("auto", RatingScale(0, 1, 1)):
        with pytest.raises(DataError, match=r"line 2: rating column 3: '1000.* 64 bits"):
            rows = [("u", "x", long[0]), ("v", "y", long[1])]
            read(write(tmp_path / "r.csv", rows), time=None, scale=scale)
    for zero in ("-0", "0", "-0.0", "+0"):
        rows = [("u", "x", zero), ("u", "y", "0"), ("v", "y", "1")]
        table = read(write(tmp_path / "r.csv", rows), time=None)
        assert str(table.scale) == "0 to 1 in steps of 1"
        assert not np.signbit(table.ratings).any()


def test_times_of_parquet_keep_their_order(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for unit, per_second in (("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        for times in ([7 * per_second + 2, 7 * per_second + 1, 8 * per_second], [7, 8, 9]):
            whole = [t * per_second for t in times] if times[0] == 7 else times
            stamps = arrow.array(whole, arrow.timestamp(unit, tz="UTC"))
            columns = {"u": ["a", "a", "b"], "i": ["x", "y", "x"], "r": [1, 2, 3], "t": stamps}
            parquet.write_table(arrow.table(columns), tmp_path / "r.parquet")
            table = read(tmp_path / "r.parquet")
            assert table.timestamps is not None
            assert table.timestamps.tolist() == times


@pytest.mark.parametrize("third", ["\u00b2", "9" * 5000, "\u0663", "1_0"])
def test_what_only_looks_like_digits_is_no_time(tmp_path: Path, third: str) -> None:
    path = write(tmp_path / "r.csv", [("1", "1", third), ("2", "2", third), ("1", "2", third)])
    try:
        assert look_at(path).file.time is None
    except DataError as refused:
        assert refused.line == 1


def test_implicit_feedback(tmp_path: Path) -> None:
    rows = [("u", "x", 12), ("u", "y", 400), ("v", "x", 3), ("v", "z", 90_000), ("w", "z", 1)]
    path = write(tmp_path / "r.csv", rows)
    every = read(path, rating=None, time=None)
    assert every.ratings.tolist() == [1.0] * 5
    assert every.scale == RatingScale(0.0, 1.0, 1.0)
    table = read(path, time=None, positive_from=10.0)
    assert table.client_labels.tolist() == ["u", "v"]
    assert [table.item_labels[item] for item in table.items] == ["x", "y", "z"]
    with pytest.raises(DataError, match="5 different ratings on a grid of 90,000 levels"):
        read(path, time=None)


def test_a_catalogue_and_attributes(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", ROWS)
    (tmp_path / "items.txt").write_text("w\nx\ny\nz\n")
    (tmp_path / "people.csv").write_text("who,sex,age\nbob,M,30\ncarl,M,20\nann,F,30\n")
    table = read(
        path,
        catalogue=CatalogueFile(path="items.txt", item=1, header=False),
        attributes=AttributesFile(path="people.csv", user="who", columns=("sex",)),
    )
    assert table.item_labels.tolist() == ["w", "x", "y", "z"]
    assert table.demographics["sex"].tolist() == ["F", "M"]
    with pytest.raises(DataError, match="attribute 'age' column 'age': all clients have '30'"):
        read(path, attributes=AttributesFile(path="people.csv", user="who", columns=("age",)))


def test_a_test_file(tmp_path: Path) -> None:
    write(tmp_path / "r.csv", ROWS)
    write(tmp_path / "t.csv", [("ann", "y", 3.5, 90)])
    file = RatingsFile(path="r.csv", user=1, item=2, rating=3, time=4)
    table, held, _ = read_ratings(file, tmp_path, test_path="t.csv")
    assert held is not None
    assert held.tolist() == [False, True, False, False, False]
    assert (len(table), table.ratings[held].tolist()) == (5, [3.5])


def test_both_passes_agree_on_any_small_file(tmp_path: Path) -> None:
    """What the fast pass takes has no fault in the slow one, and what it refuses has one."""
    rng, taken, refused = np.random.default_rng(5), 0, 0
    pieces = ["a", "b", "1", ",", ",", "\n", '"', "\r\n", " ", "é"]
    for _ in range(400):
        text = "u,i\n" + "".join(rng.choice(pieces, 12))
        (tmp_path / "r.csv").write_bytes(text.encode())
        try:
            table = read(tmp_path / "r.csv", rating=None, time=None, header=True)
        except DataError as fault:
            refused += 1
            assert "is not a table" not in str(fault)  # the slow pass has always found it
            continue
        taken += 1
        assert len(table) == len(text.splitlines()) - 1
    for _ in range(100):
        rows = [",".join(rng.choice(["a", "b", "c", '"d"'], 2)) for _ in range(3)]
        (tmp_path / "r.csv").write_text("\n".join(["u,i", *rows]))
        try:
            read(tmp_path / "r.csv", rating=None, time=None, header=True, duplicates="first")
            taken += 1
        except DataError as fault:
            assert "holds one" in str(fault)
    assert taken >= 60
    assert refused >= 250


def test_any_text_is_its_time_or_refused_by_its_line(tmp_path: Path) -> None:
    rng, taken, refused = np.random.default_rng(1), 0, 0
    for _ in range(500):
        text = "".join(rng.choice(list("0123456789+-. eE_x\t\u0664"), rng.integers(0, 5)))
        (tmp_path / "r.csv").write_text(f"a,x,1,5\nb,y,2,{text}\n", encoding="utf-8")
        try:
            table = read(tmp_path / "r.csv", separator=",", header=False)
        except DataError as fault:
            refused += 1
            assert "r.csv, line 2: time column 4: " in str(fault)
            continue
        taken += 1
        assert table.timestamps is not None
        expected = Decimal(text.strip())
        # With a fraction of a second in a row, all are kept in microseconds.
        unit = 1 if expected == int(expected) else 10**6
        assert table.timestamps[1] == expected * unit
    assert min(taken, refused) >= 50


def test_what_is_seen(tmp_path: Path) -> None:
    header = "reviewerID;asin;overall;unixReviewTime"
    rows = [*ROWS, ("ann", "y", 5.0, 10), ("ann", "x", 1.0, 9)]
    seen = look_at(write(tmp_path / "r.csv", rows, ";", header))
    assert seen.file.user == "reviewerID"
    assert (seen.rows, seen.repeated, seen.tied) == (6, 1, 1)
    assert seen.file.duplicates == "last"
    assert seen.left[0].ratings == 0
    with pytest.raises(DataError, match=r"line 1: none of its columns is known to be the user"):
        look_at(write(tmp_path / "r.csv", ROWS, ",", "a,item,b,c"))


def test_no_column_is_left_out_in_silence(tmp_path: Path) -> None:
    seen = look_at(write(tmp_path / "r.csv", ROWS, ",", "user,item,how_good,time"))
    assert seen.unused == ("how_good",)
    worded = [(row[0], number, f"{row[2]} stars") for number, row in enumerate(ROWS)]
    assert look_at(write(tmp_path / "w.csv", worded)).unused == (3,)
    named: dict[str, int | str] = {"user": "a", "item": 2, "rating": 3}
    assert look_at(write(tmp_path / "n.csv", ROWS, ",", "a,b,c,d"), named).unused == ("d",)
    path = tmp_path / "comma.csv"
    path.write_text('user,item,rating\nann,x,"4,5"\nbob,y,"3,5"\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"line 2: rating column 'rating': '4,5' is not a number"):
        look_at(path)


def test_columns_of_unknown_names_are_said(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", ROWS, ",", "a,b,c,d")
    named: dict[str, int | str] = {"user": "b", "item": "a", "rating": 3}
    seen = look_at(path, named)
    assert (seen.file.user, seen.file.item, seen.file.rating, seen.file.time) == ("b", "a", 3, None)
    plain = look_at(write(tmp_path / "p.csv", ROWS, ","), {"user": 2, "item": 1})
    assert (plain.file.user, plain.file.item) == (2, 1)
    assert plain.table.n_clients == seen.table.n_clients
    with pytest.raises(DataError, match="no column 'z'"):
        look_at(path, {**named, "user": "z"})


def test_all_wrong_columns_are_named_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", ROWS, ",", "user,b,c,d")
    wrong: dict[str, int | str] = {"user": "u", "rating": "stars", "time": 9}
    with pytest.raises(DataError) as refused:
        look_at(path, wrong)
    for part in ("'u' (data.user), 'stars' (data.rating)", "not 9 (data.time)", "to be the item"):
        assert part in str(refused.value)
    with pytest.raises(DataError, match="known to be the user or the item"):
        look_at(write(tmp_path / "n.csv", ROWS, ",", "a,b,c,d"))
    with pytest.raises(DataError, match=r"'u' \(data.user\), 'stars' \(data.rating\), only"):
        read(path, **{**wrong, "item": "b", "time": "d"})


DAY = 1580428800
DATES = {
    "2020-01-31": DAY,
    " 2020-01-31 ": DAY,
    "2020-01-31 00:00": DAY,
    "2020-01-31T00:00:01Z": DAY + 1,
    "2020-01-31T02:00:01.000+02:00": DAY + 1,
    "1970-01-01": 0,
}


def test_fractions_of_a_second_keep_their_order(tmp_path: Path) -> None:
    rows = (
        "user,item,rating,date",
        *(f"{each},2020-01-31" for each in ("a,x,1", "a,y,2", "b,x,3")),
    )
    times = ("", "T10:00:00.9Z", "T10:00:00.25Z", "")
    text = "\n".join(row + time for row, time in zip(rows, times, strict=True))
    (tmp_path / "r.csv").write_text(text, encoding="utf-8")
    table = look_at(tmp_path / "r.csv").table
    assert table.timestamps is not None
    noon = (DAY + 36000) * 10**6
    assert table.timestamps.tolist() == [noon + 900_000, noon + 250_000, DAY * 10**6]


@pytest.mark.parametrize("text", DATES)
def test_a_date_is_a_time(tmp_path: Path, text: str) -> None:
    rows = "\n".join(["user,item,rating,date", f"a,x,1,{text}", "b,y,2,2021-06-01"])
    (tmp_path / "r.csv").write_text(rows, encoding="utf-8")
    seen = look_at(tmp_path / "r.csv")
    assert seen.file.time == "date"
    assert seen.table.timestamps is not None
    assert seen.table.timestamps.tolist() == [DATES[text], 1622505600]
    (tmp_path / "bare.csv").write_text(rows.partition("\n")[2], encoding="utf-8")
    assert look_at(tmp_path / "bare.csv").file.time == 4


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("2020-01-31", "2020-02-30", "is not a date such as"),
        ("2020-01-31", "1580428800", "is not a date such as"),
        ("2020-01-31", "31.1.2020", "is not a date such as"),
        ("2020-01-31", "2020-01-31T25:00", "is not a date such as"),
        ("2020-01-31", "1969-12-31T23:59:59Z", "is before 1970"),
        ("1580428800", "2020-01-31", "is not a whole number of seconds; or have all rows as"),
    ],
)
def test_a_column_of_times_is_of_one_kind(
    tmp_path: Path, first: str, second: str, problem: str
) -> None:
    (tmp_path / "r.csv").write_text(f"u,i,r,t\na,x,1,{first}\nb,y,2,{second}\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"r.csv, line 3: time column 't': '{second}' {problem}"):
        read(tmp_path / "r.csv", user="u", item="i", rating="r", time="t")


@pytest.mark.parametrize("separator", ["", "1", "x", '"', ".", "-", "\n", ",,,,,", "é"])
def test_a_separator_that_could_be_a_number_is_refused(separator: str) -> None:
    with pytest.raises(ConfigError, match=r"data\.separator"):
        RatingsFile(path="r.csv", user=1, item=2, separator=separator)
