"""Files as people have them, by kind: read without an option, or asked about with what answers.

Every file is the same table written in another way. So what is read is compared with the table, and
what is asked is answered by the options that the message itself names.
"""

import bz2
import gzip
import json
import lzma
import random
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from numpy import float32

from audits.config import load_config
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.data.files.describe import look_at
from secure_fedrec.errors import DataError

Command = Callable[..., tuple[int, str, str]]
Refusal = Callable[..., str]

_DRAW = random.Random(45)
ROWS = [
    (user, item, _DRAW.randint(1, 5), 1_405_440_615 + 40_003 * (9 * (user - 1) + place))
    for user in range(1, 41)
    for place, item in enumerate(_DRAW.sample(range(1, 31), 9))
]
FIVE = RatingScale(1, 5, 1)


def at(moment: int) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def text(rows: Iterable[Iterable[Any]], separator: str = ",", header: str = "") -> str:
    lines = [separator.join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in ([header] if header else []) + lines)


def each(change: Callable[..., Iterable[Any]]) -> list[Iterable[Any]]:
    return [change(*row) for row in ROWS]


def dated(form: str, header: str = "user,item,rating,date") -> str:
    return text(each(lambda u, i, r, t: (u, i, r, at(t).strftime(form))), header=header)


def lists(separator: str, most: int = 9, header: str = "") -> str:
    items: dict[int, list[int]] = {}
    for user, item, _, _ in ROWS:
        items.setdefault(user, []).append(item)
    cut = {user: found[: 1 + user % most] for user, found in items.items()}
    if most == 1:
        cut = {user: found[:4] for user, found in items.items()}
    return text(([user, *found] for user, found in cut.items()), separator, header)


def coded(code: Any, change: Callable[[int], Any] = int, every: int = 5) -> str:
    """Ratings, and a code in every fifth row."""
    rows = [
        (user, item, code if not place % every else change(rating))
        for place, (user, item, rating, _) in enumerate(ROWS)
    ]
    return text(rows, header="user,item,rating")


class Case(NamedTuple):
    """A file, and what becomes of it.

    Attributes:
        content: its text or bytes.
        says: what a question about it says, or its refusal; empty where it is read without one.
        rows: how many are read in the end.
        time: what its times are, beside seconds: "days", "none", "micro".
        rating: what ratings are: "value", "none", or a function of the table's.
        name: how it ends.
        refused: whether no option helps.
        told: what is told from the start.
    """

    content: str | bytes
    says: str = ""
    rows: int = len(ROWS)
    time: str = "seconds"
    rating: Any = "value"
    name: str = ".csv"
    refused: bool = False
    told: dict[str, Any] = {}  # noqa: RUF012 - never changed


TYPED = "user_id:token\titem_id:token\trating:float\ttimestamp:float"
EXPECTED_TEN = len([place for place in range(len(ROWS)) if place % 5])
LIST_ROWS = sum(1 + user % 9 for user in range(1, 41))
TEN: Callable[[int], int] = lambda rating: 2 * rating  # noqa: E731
HALF: Callable[[int], float] = lambda rating: rating / 2  # noqa: E731
STEPS = [place % 11 for place in range(len(ROWS))]


def json_lines(change: Callable[..., dict[str, Any]]) -> str:
    return "".join(json.dumps(change(*row)) + "\n" for row in ROWS)


USUAL = "user,item,rating,timestamp"
ODD_TIMES: tuple[tuple[str, str, Callable[[int, int, int], int]], ...] = (
    ("timestamp", "hours", lambda u, i, t: (7 * u + i) % 24),
    ("time", "years", lambda u, i, t: 1990 + i),
    ("time_stamp", "months-and-days", lambda u, i, t: 100 * (1 + i % 12) + i),
    ("ts", "months", lambda u, i, t: 201_400 + 1 + i % 12),
    ("unixtime", "zeros", lambda u, i, t: 0),
    ("datetime", "rows", lambda u, i, t: 9 * u + i),
    ("timestamp", "zero-for-none", lambda u, i, t: t if i % 5 else 0),
)


def odd_time(name: str, change: Callable[[int, int, int], int]) -> Case:
    rows = each(lambda u, i, r, t: (u, i, r, change(u, i, t)))
    return Case(text(rows, header=f"user,item,rating,{name}"), f"'{name}' (", time="any")


PLAIN = text(ROWS, header="user_id,item_id,rating,timestamp")
CASES: dict[str, Case] = {
    # 01: RecBole's atomic files
    "typed": Case(text(ROWS, "\t", TYPED), name=".inter"),
    "typed-yelp": Case(
        text(ROWS, "\t", "user_id:token\tbusiness_id:token\tstars:float\tdate:float"), name=".inter"
    ),
    "typed-commas": Case(text(ROWS, ",", TYPED.replace("\t", ","))),
    "typed-implicit": Case(
        text(each(lambda u, i, r, t: (u, i, f"{t}.0")), "\t", TYPED.replace("\trating:float", "")),
        rating="none",
    ),
    "typed-label": Case(
        text(
            each(lambda u, i, r, t: (u, i, float(r > 3))),
            "\t",
            "user_id:token\titem_id:token\tlabel:float",
        ),
        rows=sum(row[2] > 3 for row in ROWS),
        time="none",
        rating="none",
    ),
    "typed-weight": Case(
        text(
            each(lambda u, i, r, t: (u, i, float(r))),
            "\t",
            "user_id:token\tartist_id:token\tweight:float",
        ),
        time="none",
        rating="none",
    ),
    # 02: blanks between columns
    "one-blank": Case(text(ROWS, " "), name=".txt"),
    "aligned": Case("".join(f"{u:>5} {i:>5} {r:>3} {t:>12}\n" for u, i, r, t in ROWS), name=".txt"),
    "aligned-left": Case(
        "".join(f"{u:<5} {i:<5} {r:<3} {t:<12}\n" for u, i, r, t in ROWS), name=".txt"
    ),
    "aligned-header": Case(
        "user  item  rating  timestamp\n"
        + "".join(f"{u:>4}  {i:>4}  {r:>6}  {t:>9}\n" for u, i, r, t in ROWS)
    ),
    "blanks-and-tabs": Case("".join(f"{u} {i}\t{r} \t{t}\n" for u, i, r, t in ROWS)),
    "two-tabs": Case(text(ROWS, "\t\t"), name=".dat"),
    "comma-and-blank": Case(text(ROWS, " , ")),
    "names-with-blanks": Case(
        text(
            each(lambda u, i, r, t: (f"user {u}", f"the item {i}", r, t)),
            header="user,item,stars,ts",
        )
    ),
    # 03: a client and its items per line
    "lists": Case(lists(" "), rows=LIST_ROWS, time="none", rating="none", name=".txt"),
    "lists-tabs": Case(lists("\t"), rows=LIST_ROWS, time="none", rating="none"),
    "lists-commas": Case(lists(","), rows=LIST_ROWS, time="none", rating="none"),
    "lists-trailing-blank": Case(
        lists(" ").replace("\n", " \n"), rows=LIST_ROWS, time="none", rating="none"
    ),
    "lists-with-nobody": Case(lists(" ") + "41\n42\n", rows=LIST_ROWS, time="none", rating="none"),
    "lists-equal": Case(lists("\t", 1), rows=160, time="none", rating="none"),
    "lists-equal-blank": Case(lists(" ", 1), rows=160, time="none", rating="none"),
    "lists-twice": Case(
        lists(" ") + "1 31 32\n", "--set data.layout=lists", LIST_ROWS + 2, "none", "none"
    ),
    "lists-with-numbers-of-items": Case(
        "".join(f"{n} " + " ".join(map(str, range(n))) + "\n" for n in range(1, 40)),
        "begins every line with the number",
        refused=True,
    ),
    # 04: codes for "not rated"
    "minus-one-of-ten": Case(
        coded(-1, TEN), "(72 of 360 rows) stands apart", EXPECTED_TEN, "none", TEN
    ),
    "minus-one-beside-zero": Case(
        text(
            [(u, i, -1 if place % 9 == 0 else place % 8) for place, (u, i, *_) in enumerate(ROWS)],
            header="user,item,rating",
        ),
        "'-1' (40 of 360 rows) stands apart",
        320,
        "none",
        None,
    ),
    "zero-of-five": Case(coded(0), "'0' (72 of 360 rows) stands apart", EXPECTED_TEN, "none"),
    "zero-of-half-stars": Case(
        text(
            [(u, i, (place % 11) / 2) for place, (u, i, *_) in enumerate(ROWS)],
            header="user,item,rating",
        ),
        "0.5 to 5 in steps of 0.5",
        sum(each != 0 for each in STEPS),
        "none",
        None,
    ),
    "ninety-nine": Case(coded(99), "stands apart", EXPECTED_TEN, "none"),
    "six-of-five": Case(coded(6), "'6'", EXPECTED_TEN, "none"),
    "percent-255": Case(
        text(
            [
                (u, i, (place * 37) % 101 if place % 9 else 255)
                for place, (u, i, *_) in enumerate(ROWS)
            ]
        ),
        "'255' (40 of 360 rows)",
        320,
        "none",
        None,
    ),
    "jester": Case(
        text(
            [
                (u, i, f"{(place * 617 % 2001 - 1000) / 100:.2f}" if place % 9 else "99")
                for place, (u, i, *_) in enumerate(ROWS)
            ]
        ),
        "'99' (40 of 360 rows)",
        320,
        "none",
        None,
    ),
    "null": Case(coded("NULL"), "'NULL' is not a plain decimal", EXPECTED_TEN, "none"),
    "nan": Case(coded("nan"), "'nan' is not a plain decimal", EXPECTED_TEN, "none"),
    "empty": Case(coded(""), "'' is not a plain decimal", EXPECTED_TEN, "none"),
    # 05: logs without a header
    "time-first": Case(
        text(each(lambda u, i, r, t: (t, u, i, r))), "column 1 reads like times ('1405440615'"
    ),
    "milliseconds-first": Case(
        text(each(lambda u, i, r, t: (1000 * t, u, i, r))),
        "column 1 reads like times",
        time="milli",
    ),
    "date-second": Case(
        text(each(lambda u, i, r, t: (u, f"{at(t):%Y-%m-%d %H:%M:%S}", i, r)), "\t"),
        "column 2 reads like times ('2014-07-15 16:10:15'",
    ),
    "places": Case(
        text(
            each(
                lambda u, i, r, t: (
                    *(u, f"{at(t):%Y-%m-%dT%H:%M:%SZ}", f"{30 + i / 7:.7f}"),
                    *(f"{-97 - i / 3:.7f}", i),
                )
            ),
            "\t",
        ),
        "column 3 reads like coordinates",
        rating="none",
        name=".txt",
    ),
    "ratings-second": Case(
        text(each(lambda u, i, r, t: (u, r, i, t))), "column 2 has 5 values that take turns"
    ),
    "row-numbers": Case(
        text([(place, u, i, r) for place, (u, i, r, _) in enumerate(ROWS)]),
        "column 1 rises from row to row ('0', '1')",
        time="none",
    ),
    "events": Case(
        text(each(lambda u, i, r, t: (u, "view" if r < 5 else "buy", i, t))),
        "column 2 has 2 values that take turns ('view', 'buy')",
        rating="none",
    ),
    "two-numbers": Case(
        text(each(lambda u, i, r, t: (u, i, 7 * i, r, t))),
        "may be ratings, but not for sure",
        rating=None,
    ),
    "venues": Case(
        text(
            each(
                lambda u, i, r, t: (
                    *(u, f"{i:024d}", f"4bf5{i % 4}", "Bar", f"{40 + i / 99:.6f}"),
                    *(f"{-74 - i / 99:.6f}", -240 - u % 2, f"{at(t):%a %b %d %H:%M:%S +0000 %Y}"),
                )
            ),
            "\t",
        ),
        "column 7 ('-241', '-240') may be ratings",
        rating=None,
    ),
    "artists": Case(
        text(each(lambda u, i, r, t: (f"{u:040d}", f"{i:08d}", f"the band {i}", r**9)), "\t"),
        "column 4 (",
        time="none",
        rating=None,
    ),
    "steam": Case(
        text(each(lambda u, i, r, t: (u, f'"game {i}"', "play" if r < 5 else "buy", f"{r}.0", 0))),
        "column 4 ('4.0', '1.0') may be ratings",
        time="none",
    ),
    "behaviour": Case(
        text(each(lambda u, i, r, t: (u, i, 4_000_037 * (i % 7 + 1), "pv", t))),
        "data.rating=null",
        rating=None,
    ),
    "usual-order": Case(text(ROWS)),
    "usual-order-dates": Case(
        text(each(lambda u, i, r, t: (u, i, r, f"{at(t):%d.%m.%Y %H:%M:%S}")))
    ),
    # 06: names of headers
    "clicks": Case(
        text(
            each(lambda u, i, r, t: (u, i, f"{at(t):%Y%m%d}", 1900, 1000 * t, int(r > 3), 0)),
            header="user_id,video_id,date,hourmin,time_ms,is_click,is_like",
        ),
        rows=sum(row[2] > 3 for row in ROWS),
        time="milli",
        rating="none",
    ),
    "liked": Case(
        text(each(lambda u, i, r, t: (u, i, r > 3)), header="userId,venue_id,liked"),
        rows=sum(row[2] > 3 for row in ROWS),
        time="none",
        rating="none",
    ),
    "bought": Case(
        text(each(lambda u, i, r, t: (u, i, "yes" if r > 3 else "No")), header="user,item,bought"),
        rows=sum(row[2] > 3 for row in ROWS),
        time="none",
        rating="none",
    ),
    "liked-in-words": Case(
        text(
            each(lambda u, i, r, t: (u, i, "like" if r > 3 else "skip")), header="user,item,liked"
        ),
        "write 1 and 0, or say --set data.rating=null",
        time="none",
        rating="none",
    ),
    "averages-beside": Case(
        text(
            each(lambda u, i, r, t: (u, i, 3.5, r, 12)),
            header="user_id,item_id,avg_rating,rating,rating_count",
        ),
        time="none",
    ),
    "a-column-called-no": Case(
        text(
            [(place, f"u{u}", r) for place, (u, i, r, t) in enumerate(ROWS)],
            header="no,name,score",
        ),
        "none of its columns is known to be the user or the item: 'no', 'name', 'score'",
        refused=True,
    ),
    "plays": Case(
        text(each(lambda u, i, r, t: (u, i, r**9)), "\t", "userID\tartistID\tweight"),
        time="none",
        rating="none",
    ),
    "small-counts": Case(
        text(each(lambda u, i, r, t: (u, i, r)), header="user,item,play_count"),
        time="none",
        rating="none",
    ),
    "book-crossing": Case(
        text(
            each(lambda u, i, r, t: (f'"{u}"', f'"{i:010d}"', f'"{2 * r - 2}"')),
            ";",
            '"User-ID";"ISBN";"Book-Rating"',
        ),
        time="none",
        rating=lambda rating: 2 * rating - 2,
    ),
    "sessions-of-users": Case(
        text(
            each(lambda u, i, r, t: (99 * u + i, u, i, 7, f"{at(t):%Y-%m-%d}")),
            ";",
            "sessionId;userId;itemId;timeframe;eventdate",
        ),
        time="days",
        rating="none",
    ),
    "profile-names": Case(
        text(ROWS, header="review_profilename,beer_beerid,review_overall,review_time")
    ),
    "created-at": Case(text(ROWS, header="reviewer_name,hotel_id,stars,created_at")),
    "durations-are-no-times": Case(
        text(each(lambda u, i, r, t: (u, i, r, 60 * r)), header="user,item,rating,watch_time"),
        time="none",
    ),
    # 07: other containers
    "json-lines": Case(
        json_lines(
            lambda u, i, r, t: {
                "reviewerID": u,
                "asin": i,
                "overall": float(r),
                "unixReviewTime": t,
            }
        ),
        name=".jsonl",
    ),
    "yelp": Case(
        json_lines(
            lambda u, i, r, t: {
                **{"review_id": f"x{u}-{i}", "user_id": f"u{u}", "business_id": f"b{i}"},
                **{"stars": float(r), "useful": 0, "text": "a\n,b", "date": str(at(t))[:19]},
            }
        ),
        name=".json",
    ),
    "goodreads": Case(
        json_lines(
            lambda u, i, r, t: {
                **{"user_id": f"u{u}", "book_id": i, "review_id": f"r{u * i}", "is_read": True},
                **{"rating": r, "date_added": f"{at(t):%a %b %d %H:%M:%S +0000 %Y}"},
                **{"read_at": ""},
            }
        ),
        name=".json",
    ),
    "json-lines-nested": Case(
        json_lines(
            lambda u, i, r, t: {"user": u, "tags": ["a"], "item": i, "rating": r, "timestamp": t}
        ),
        name=".json",
    ),
    "json-lines-gzip": Case(
        gzip.compress(
            json_lines(lambda u, i, r, t: {"user": u, "item": i, "stars": r, "ts": t}).encode()
        ),
        name=".jsonl.gz",
    ),
    "json-lines-with-gaps": Case(
        json_lines(
            lambda u, i, r, t: {"user": u, "item": i, **({"rating": r} if i > 9 else {}), "ts": t}
        ),
        "'' is not a plain decimal number",
        rows=sum(row[1] > 9 for row in ROWS),
    ),
    "xz": Case(lzma.compress(PLAIN.encode()), name=".csv.xz"),
    "xz-without-a-name": Case(lzma.compress(PLAIN.encode()), name=".data"),
    "bzip2": Case(bz2.compress(PLAIN.encode()), name=".csv.bz2"),
    "utf-16": Case(PLAIN.encode("utf-16")),
    "utf-16-big": Case(b"\xfe\xff" + PLAIN.encode("utf-16-be")),
    "utf-32": Case(PLAIN.encode("utf-32")),
    "utf-16-xz": Case(lzma.compress(PLAIN.encode("utf-16")), name=".txt.xz"),
    "sqlite": Case(b"SQLite format 3\0" + bytes(99), "sqlite3 -header -csv", refused=True),
    "zstd": Case(b"\x28\xb5\x2f\xfd" + bytes(99), "zstd -d", refused=True),
    "lines-of-items": Case(
        "1:\n" + text(each(lambda u, i, r, t: (u, r, at(t)))), "awk", refused=True
    ),
    "konect": Case("% bip weighted\n" + text(ROWS, " "), "grep -v '^[#%]'", refused=True),
    "json-list": Case("[\n" + json_lines(lambda u, i, r, t: {"user": u}), "jq -c", refused=True),
    # 08: spellings of numbers
    "float-ids": Case(
        text(each(lambda u, i, r, t: (f"{u}.0", i, r, t)), header="user,item,rating,ts")
    ),
    "mixed-float-ids": Case(
        text(
            [
                (f"{u}.0" if place % 2 else u, f"{i}.00", r, t)
                for place, (u, i, r, t) in enumerate(ROWS)
            ],
            header="user,item,rating,ts",
        )
    ),
    "savetxt": Case(text(each(lambda *row: (f"{each:.18e}" for each in row)), " "), name=".txt"),
    "thirds": Case(
        text(each(lambda u, i, r, t: (u, i, repr(r / 3), t)), header="user,item,rating,ts"),
        rating=lambda rating: rating / 3,
    ),
    "sixths-by-17-digits": Case(
        text(each(lambda u, i, r, t: (u, i, f"{r / 6:.17f}", t)), header="user,item,rating,ts"),
        rating=lambda rating: rating / 6,
    ),
    "noise": Case(
        text(each(lambda u, i, r, t: (u, i, repr(r * 1.1), t)), header="user,item,rating,ts"),
        rating=lambda rating: round(1.1 * rating, 9),
    ),
    # 09: times
    "us-dates": Case(dated("%m/%d/%Y %I:%M:%S %p")),
    "day-first": Case(dated("%d/%m/%Y %H:%M:%S")),
    "slashes": Case(dated("%Y/%m/%d %H:%M:%S")),
    "compact": Case(dated("%Y%m%d"), time="days"),
    "compact-with-time": Case(dated("%Y%m%d%H%M%S")),
    "month-names": Case(dated("%d %b %Y %H:%M:%S")),
    "us-month-names": Case(
        text(each(lambda u, i, r, t: (u, i, r, f"{at(t):%b %d, %Y, %H:%M:%S}")), "\t")
    ),
    "twitter": Case(dated("%a %b %d %H:%M:%S +0000 %Y")),
    "amazon": Case(
        text(
            each(lambda u, i, r, t: (u, i, r, f"{at(t):%m %d, %Y}")), "|", "user|item|rating|date"
        ),
        time="days",
    ),
    "offsets": Case(dated("%Y-%m-%d %H:%M:%S+00")),
    "fractions": Case(
        text(each(lambda u, i, r, t: (u, i, r, f"{t}.25")), header="user,item,rating,timestamp"),
        time="micro",
    ),
    "either-order": Case(
        text(
            each(lambda u, i, r, t: (u, i, r, f"0{1 + u % 9}/0{1 + i % 9}/2014")),
            header="user,item,rating,date",
        ),
        "may have the day or the month first",
        time="any",
    ),
    "seconds-and-milliseconds": Case(
        text(
            [(u, i, r, t if place % 8 else 1000 * t) for place, (u, i, r, t) in enumerate(ROWS)],
            header="user,item,rating,timestamp",
        ),
        "milliseconds (1405440615000 to ",
        time="none",
    ),
    # 10: encodings, and values in words
    "latin-1": Case(
        text(each(lambda u, i, r, t: (f"zoë {u}", i, r, t)), header="user,item,rating,ts").encode(
            "latin-1"
        ),
        "if it is meant to read ",
    ),
    "gb18030": Case(
        text(each(lambda u, i, r, t: (f"用户{u}", i, r, t)), header="user,item,rating,ts").encode(
            "gb18030"
        ),
        told={"encoding": "gb18030"},
    ),
    "cp1251": Case(
        text(each(lambda u, i, r, t: (f"я{u}", i, r, t)), header="user,item,rating,ts").encode(
            "cp1251"
        ),
        told={"encoding": "cp1251"},
    ),
    "thumbs": Case(
        text(
            each(lambda u, i, r, t: (u, i, "+1" if r > 2 else "-1", t)),
            header="user,item,rating,ts",
        ),
        rating=lambda rating: 1 if rating > 2 else -1,
    ),
    "truths": Case(
        text(each(lambda u, i, r, t: (u, i, str(r > 2), t)), header="user,item,rating,ts"),
        rating=lambda rating: int(rating > 2),
    ),
    "a-blank-user": Case(
        text(ROWS, header="user,item,rating,ts") + ",4,3,1405440615\n", "--set data.missing=drop"
    ),
    "a-blank-time": Case(
        text(ROWS, header="user,item,rating,ts") + "1,4,3,\n", "--set data.missing=drop"
    ),
    "header-or-row": Case(
        text(each(lambda u, i, r, t: (f"u{u}", f"i{i}")), header="who,what"),
        "may be a header or a row",
        time="none",
        rating="none",
        rows=None,  # type: ignore[arg-type]
    ),
    # 11: several columns for one role
    "product-and-store": Case(
        text(each(lambda u, i, r, t: (u, i, i % 4, r)), header="user_id,product_id,store_id,stars"),
        "'product_id' ('9', '14') and 'store_id' ('1', '2') may each be the item by name",
        time="none",
    ),
    "track-and-artist": Case(
        text(each(lambda u, i, r, t: (i, u, i % 7, r)), header="track,user,artist_id,plays"),
        "--set data.item=track or --set data.item=artist_id",
        time="none",
        rating="none",
    ),
    "customers-and-clients": Case(
        text(each(lambda u, i, r, t: (u, u // 2, i, r)), header="client_id,customer_id,isbn,stars"),
        "may each be the user by name",
        time="none",
    ),
    "click-and-like": Case(
        text(
            each(lambda u, i, r, t: (u, i, int(r > 3), int(r > 4))),
            header="user,item,click,like",
        ),
        "'click' ('1', '0') and 'like' ('0', '1') may each be the rating by name",
        rows=sum(row[2] > 3 for row in ROWS),
        time="none",
        rating="none",
    ),
    "recommended-and-hours": Case(
        text(
            each(lambda u, i, r, t: (u, i, r > 3, r * 7.5)),
            header="user_id,app_id,is_recommended,hours",
        ),
        "may each be the rating by name",
        rows=None,  # type: ignore[arg-type]
        time="none",
        rating="none",
    ),
    "rating-and-score": Case(
        text(each(lambda u, i, r, t: (u, i, r, r / 5)), header="user,item,rating,score"),
        "may each be the rating by name",
        time="none",
    ),
    "exact-names": Case(
        text(
            each(lambda u, i, r, t: (u // 2, u, i % 3, f"{i % 5}.png", i, r // 2, r, t - i, t)),
            header="customer,user_id,store_id,image,item_id,user_score,rating,event_time,timestamp",
        )
    ),
    "one-thing-by-two-names": Case(
        text(each(lambda u, i, r, t: (u, f"B{i}", i, r)), header="user_id,parent_asin,asin,rating"),
        time="none",
    ),
    "day-of-the-crawl": Case(
        text(
            each(lambda u, i, r, t: (u, i, r, f"2019-01-0{1 + i % 9}", f"{at(t):%Y-%m-%d}")),
            header="user,item,rating,Crawl_Date,Date",
        ),
        time="days",
    ),
    "delivery-and-review": Case(
        text(
            each(lambda u, i, r, t: (u, i, r, f"2019-01-0{1 + i % 9}", f"{at(t):%Y-%m-%d}")),
            header="user,item,rating,delivery_date,review_date",
        ),
        time="days",
    ),
    "one-time-in-two-spellings": Case(
        text(
            each(lambda u, i, r, t: (u, i, r, f"{at(t + 28_800):%Y-%m-%d %H:%M:%S}", t)),
            header="user,item,rating,time,timestamp",
        ),
    ),
    "release-alone": Case(
        dated("%Y-%m-%d", "user,item,rating,release_date"),
        "is named for another time than a rating's",
        time="days",
    ),
    "two-dates": Case(
        text(
            each(lambda u, i, r, t: (u, i, r, f"{at(t):%Y-%m-%d}", f"2019-01-0{1 + i % 9}")),
            header="user,item,rating,rating_date,visit_date",
        ),
        "may each be the time by name",
        time="days",
    ),
    "one-user-at-first": Case(
        text(
            [
                *((1, 1000 + i % 9, 50 + i, 3, ROWS[0][3]) for i in range(1000)),
                *((u, u * i, i, r, t) for u, i, r, t in ROWS),
            ],
            header="user_id,session,item,rating,ts",
        ),
        rows=1000 + len(ROWS),
        rating=None,
        time="any",
    ),
    # 12: ids that are none
    **{
        f"no-user-{code}": Case(
            text([*ROWS, *((code, i, 3, ROWS[0][3]) for i in range(1, 31))], header=USUAL),
            f"{code.encode('unicode_escape').decode()!s}' (30 of 390 rows) probably "
            "means that the user is missing",
        )
        for code in ("NULL", "nan", "None", "\\N", "N/A", "?", "-", "unknown", "-1", "0", "9999")
    },
    "no-item": Case(
        text([*ROWS, *((u, "NaN", 3, ROWS[0][3]) for u in range(1, 31))], header=USUAL),
        "'NaN' (30 of 390 rows) probably means that the item is missing",
    ),
    "no-user-and-no-item": Case(
        text([*ROWS, *(("null", "NA", 3, ROWS[0][3]) for _ in range(30))], header=USUAL),
        "'null' (30 of 390 rows) probably means that the user is missing",
    ),
    "no-user-or-an-item": Case(
        text([*ROWS, *((0, i, 3, ROWS[0][3]) for i in range(30))], header=USUAL),
        "leave these rows out of the file, since another column has it as well",
        rows=len(ROWS) + 30,
    ),
    # 13: times that are none
    **{f"{name}-of-{what}": odd_time(name, change) for name, what, change in ODD_TIMES},
    # 14: ids of something else
    **{
        f"{name}-alone": Case(
            text(
                each(lambda u, i, r, t: (u, i, r, f"the {i}th")), header=f"user_id,{name},stars,a"
            ),
            f"'{name}' ('9', '14') may be the item, but not for sure",
            time="none",
        )
        for name in (
            "session_id",
            "order_id",
            "transaction_id",
            "categoryId",
            "genre_id",
            "friendID",
        )
    },
    "quotes-in-the-header": Case(
        text(ROWS, header='user_id, "item_id", " rating" , "timestamp"'),
    ),
    "grades": Case(
        text(each(lambda u, i, r, t: (u, i, "FEDCBA"[r])), header="user,item,rating"),
        "write words and grades as numbers; if nothing was rated there, --set",
        refused=True,
    ),
    "of-32-bits": Case(
        text(each(lambda u, i, r, t: (u, i, f"{float32(r * 1.1):.9f}")), header="user,item,rating"),
        time="none",
        rating=lambda rating: round(1.1 * rating, 9),
    ),
    # 15: ratings of billionths
    "billionths": Case(
        text(each(lambda u, i, r, t: (u, i, f"{r / 10**9:.9f}")), header="user,item,rating"),
        time="none",
        rating=lambda rating: rating / 10**9,
    ),
}

_UNIT = {"seconds": 1, "milli": 10**-3, "micro": 10**-6}


def number_in(label: Any) -> int:
    return int(re.sub(r"\D", "", str(label)))


def require_same(case: Case, table: RatingTable) -> None:
    """The table is that of the rows, as far as the case keeps them."""
    assert case.rows is None or len(table) == case.rows
    known = {(user, item): (rating, time) for user, item, rating, time in ROWS}
    users, items = (
        [number_in(each) for each in labels] for labels in (table.client_labels, table.item_labels)
    )
    for place, (client, item) in enumerate(zip(table.clients, table.items, strict=True)):
        pair = (users[client], items[item])
        rating, time = known.get(pair, (None, None))
        if pair[0] > 1 or rating is not None:
            assert rating is not None
        if rating is None or time is None:
            continue
        if case.rating == "none":
            assert table.ratings[place] == 1
        elif case.rating is not None:
            expected = rating if case.rating == "value" else case.rating(rating)
            assert table.ratings[place] == pytest.approx(expected, abs=1e-12)
        if case.time in _UNIT:
            assert table.timestamps is not None
            assert int(table.timestamps[place] * _UNIT[case.time] + 1e-3) == time
        elif case.time == "days":
            assert table.timestamps is not None
            assert table.timestamps[place] == time - time % 86400
        elif case.time == "none":
            assert table.timestamps is None


def answers(message: str) -> list[list[str]]:
    """Each set of options that a message names, as words of a command."""
    found = []
    for part in re.split(r" or |; | if | If |, else", message):
        options = re.findall(r"--set (?:'([^']*)'|([^\s';,]+))", part)
        if options:
            said = [quoted or plain.rstrip(".:") for quoted, plain in options]
            found.append([word for each in said for word in ("--set", each)])
    return found


def saved(case: Case, folder: Path) -> Path:
    path = folder / f"ratings{case.name}"
    content = case.content
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


READ = {name: case for name, case in CASES.items() if not case.says}
ASKED = {name: case for name, case in CASES.items() if case.says and not case.refused}
REFUSED = {name: case for name, case in CASES.items() if case.refused}


@pytest.mark.parametrize("kind", READ)
def test_it_is_read_without_a_question(command: Command, tmp_path: Path, kind: str) -> None:
    case, config = READ[kind], tmp_path / "audit.toml"
    settle(command, saved(case, tmp_path), config, options_of(case), 0)
    require_same(case, read_as(config))


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_named_with_what_to_do(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DataError) as refused:
        look_at(saved(REFUSED[kind], tmp_path))
    assert REFUSED[kind].says in str(refused.value)


@pytest.mark.parametrize("kind", ASKED)
def test_every_answer_is_taken(
    command: Command, refusal: Refusal, tmp_path: Path, kind: str
) -> None:
    case, config = ASKED[kind], tmp_path / "audit.toml"
    path = saved(case, tmp_path)
    first = options_of(case)
    said = refusal("data", "describe", path, *first, "--write", config)
    assert case.says in said
    assert not config.exists()
    assert answers(said)
    for answer in answers(said):
        settle(command, path, config, first + answer)
    settle(command, path, config, first + answers(said)[0])
    require_same(case, read_as(config))


SAID = {
    "exact-names": [
        "column 'user_id' as the user (--set data.user=customer takes another)",
        "column 'item_id' as the item (--set data.item=store_id or --set data.item=image takes "
        "another)",
        "column 'rating' as the rating (--set data.rating=user_score takes another)",
        "column 'timestamp' as the time (--set data.time=event_time takes another)",
    ],
    "day-of-the-crawl": ["column 'Date' as the time (--set data.time=Crawl_Date takes another)"],
    "delivery-and-review": [
        "column 'review_date' as the time (--set data.time=delivery_date takes another)"
    ],
    "one-thing-by-two-names": [
        "column 'parent_asin' as the item (--set data.item=asin takes another)"
    ],
    "one-time-in-two-spellings": [
        "column 'timestamp' as the time (--set data.time=time takes another)"
    ],
    "usual-order": [
        "columns 1 and 2 as clients and items by their places (--set data.user=2 --set data.item=1 "
        "swaps them)"
    ],
    "profile-names": [],
    "clicks": [
        "column 'is_click' as the rating (--set data.rating=is_like takes another)",
        "column 'time_ms' as the time (--set data.time=date takes another)",
    ],
    "one-user-at-first": ["column 'user_id' as the user (--set data.user=session takes another)"],
}


@pytest.mark.parametrize("kind", SAID)
def test_what_is_taken_is_said(tmp_path: Path, kind: str) -> None:
    assert list(look_at(saved(CASES[kind], tmp_path)).taken) == SAID[kind]


def test_an_id_of_every_row_is_no_item(tmp_path: Path) -> None:
    content = text(each(lambda u, i, r, t: (u, 100 * u + i, r)), header="user_id,thing_id,stars")
    with pytest.raises(DataError, match=r"'thing_id' .* may be the item, but not for sure"):
        look_at(saved(Case(content), tmp_path))


def test_indices_from_zero_are_ids(tmp_path: Path) -> None:
    content = text(each(lambda u, i, r, t: (u - 1, i - 1, r)), header="user,item,rating")
    assert look_at(saved(Case(content), tmp_path)).table.n_clients == 40


def options_of(case: Case) -> list[str]:
    return [word for key, value in case.told.items() for word in ("--set", f"data.{key}={value}")]


def read_as(config: Path) -> RatingTable:
    """The table that a configuration reads."""
    data: Any = load_config(config).data
    table: RatingTable = data.read(seed=1, data_dir=config.parent).table
    return table


def settle(command: Command, path: Path, config: Path, told: list[str], asked: int = 1) -> None:
    """What is told is taken, and leads to a configuration, at once or by one more question."""
    code, _, said = command("data", "describe", path, *told, "--write", config, "--force")
    if code == 0:
        return
    assert code == 2, said
    assert asked, (told, said)
    assert answers(said), (told, said)
    for answer in reversed(answers(said)):
        settle(command, path, config, told + answer, asked - 1)


def test_enough_of_each_kind() -> None:
    assert len(READ) >= 45
    assert len(ASKED) >= 20
