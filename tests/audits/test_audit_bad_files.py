"""Bad files of one's own through the real command: exit code 2, what and where, no trace."""

import gzip
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]

HEADER = b"user,item,rating,time\n"
ROWS = [
    (f"u{user}", f"i{(user + 3 * step) % 11}", (user + step) % 5 + 1)
    for user in range(6)
    for step in range(5)
]
LINES = [
    f"{user},{item},{rating},{9 + row}\n".encode() for row, (user, item, rating) in enumerate(ROWS)
]
SOUND = HEADER + b"".join(LINES)
NAMED: dict[str, Any] = {"user": "user", "item": "item", "rating": "rating", "time": "time"}
HALF_OF_ALL = b"".join(LINES[:15])


class Bad(NamedTuple):
    """A file that must be refused.

    Attributes:
        content: its bytes.
        says: what the refusal says, besides the name of the file.
        line: the line that it names; None where there is none to blame.
        data: keys of ``[data]`` beside the usual ones.
        name: of the file.
        beside: other files; the first is to blame, unless ``blamed`` says another.
    """

    content: bytes
    says: str
    line: int | None = None
    data: dict[str, Any] = {}  # noqa: RUF012 - never changed
    name: str = "ratings.csv"
    beside: dict[str, bytes] = {}  # noqa: RUF012 - never changed
    blamed: str | None = None


def changed(row: int, line: bytes) -> bytes:
    """The sound file with another line in the place of a row's (from 0)."""
    return HEADER + b"".join([*LINES[:row], line, *LINES[row + 1 :]])


def value(text: str, row: int = 4) -> bytes:
    """The sound file with another text as one rating, on line ``row + 2``."""
    user, item, _ = ROWS[row]
    return changed(row, f"{user},{item},{text},9\n".encode())


def at(time: str) -> bytes:
    return changed(4, f"u0,i1,3,{time}\n".encode())


def user(name: str) -> bytes:
    return changed(4, f"{name},i1,3,9\n".encode())


ATTRIBUTES = "".join(f"u{number},{'FM'[number % 2]}\n" for number in range(6))


def attributes(content: str, says: str, line: int | None = None, **keys: Any) -> Bad:
    table = {"path": "people.csv", "user": 1, "columns": [2], "header": False, **keys}
    return Bad(SOUND, says, line, {"attributes": table}, beside={"people.csv": content.encode()})


def split_off(content: str, says: str, line: int | None = None, **keys: Any) -> Bad:
    data = {"split": "files", "test_path": "test.csv", **keys}
    return Bad(SOUND, says, line, data, beside={"test.csv": HEADER + content.encode()})


def catalogue(content: str, says: str, line: int | None = None) -> Bad:
    table = {"path": "items.csv", "item": "item"}
    return Bad(SOUND, says, line, {"catalogue": table}, beside={"items.csv": content.encode()})


UNTOLD = {"rating": None, "time": None, "split": "leave-one-out"}
PLAIN = "is not a plain decimal number"
FIRST_TWO = b"u0,i0,3,9\nu0,i0,4,10\n"

BAD: dict[str, Bad] = {
    # What is not a file of text.
    "truncated-gzip": Bad(gzip.compress(SOUND)[:-9], "truncated gzip", name="ratings.csv.gz"),
    "gzip-of-noise": Bad(b"\x1f\x8b\x08" + bytes(40), "gzip file", name="ratings.csv.gz"),
    "gzip-in-name-only": Bad(SOUND, "gzip file", name="ratings.csv.gz"),
    "gzip-flipped-bit": Bad(
        gzip.compress(SOUND)[:-8] + b"\0\0\0\0" + gzip.compress(SOUND)[-4:],
        "gzip file",
        name="ratings.csv.gz",
    ),
    "zip-bomb": Bad(
        gzip.compress(HEADER + b"u1,i1,3,9\n" * 2_000_000, 9), "unpacks to", name="ratings.csv.gz"
    ),
    "zip-archive": Bad(b"PK\x03\x04" + SOUND, "is a zip archive or a spreadsheet"),
    "parquet-in-disguise": Bad(b"PAR1" + SOUND, "must end in .parquet"),
    "utf-16-cut": Bad(SOUND.decode().encode("utf-16")[:-1], "is not utf-16 text", 31),
    "xz-bomb": Bad(lzma.compress(HEADER + b"u1,i1,3,9\n" * 2_000_000), "unpacks to"),
    "xz-cut": Bad(lzma.compress(SOUND)[:-9], "truncated xz"),
    "database": Bad(b"SQLite format 3\0" + SOUND, "sqlite3 -header -csv"),
    "json-list": Bad(b'[{"user": 1},\n{"user": 2}]\n', "jq -c", 1),
    "json-with-a-table": Bad(b'{"user": 1, "item": [2], "rating": 3, "time": 4}\n', "is a list", 1),
    "json-cut": Bad(
        b'{"user": 1, "item": 2, "rating": 3, "time": 4}\n{"user": 1,\n', "is not a JSON object", 2
    ),
    "other-encoding": Bad(SOUND + b"caf\xe9,x,3,9\n", "not ascii", 32, {"encoding": "ascii"}),
    "utf-16-without-a-mark": Bad(SOUND.decode().encode("utf-16-le"), "zero byte", 1),
    "zero-byte": Bad(user("u\0"), "holds a zero byte", 6),
    "latin-1": Bad(changed(4, "café,i1,3,9\n".encode("latin-1")), "is not utf-8 text", 6),
    "cr-only": Bad(SOUND.replace(b"\n", b"\r"), "carriage return", 1),
    "one-cr": Bad(user("u0\rx"), "carriage return", 6),
    "long-line": Bad(changed(4, b"u" * 10_000_000 + b",i1,3,9\n"), "is longer than", 6),
    "long-line-of-many-columns": Bad(changed(4, b"u," * 5_000_000 + b"9\n"), "is longer than", 6),
    "empty": Bad(b"", "is empty"),
    "only-a-mark": Bad(b"\xef\xbb\xbf", "is an empty line", 1),
    "blank-lines": Bad(b"\n\n\n", "", 1),
    "header-only": Bad(HEADER, "holds a header and nothing else", 1),
    # What is not a table.
    "too-few-columns": Bad(changed(4, b"u0,i1,3\n"), "has 3 columns, the header has 4", 6),
    "too-many-columns": Bad(changed(4, b"u0,i1,3,9,7\n"), "has 5 columns, the header has 4", 6),
    "one-more-and-one-less": Bad(
        changed(4, b"u0,i1,3,9,7\n").replace(LINES[5], b"u0,i2,3\n"), "has 5 columns", 6
    ),
    "first-row-wider-than-its-header": Bad(changed(0, b"1,u0,i1,3,9\n"), "has 5 columns", 2),
    "cut-in-a-line": Bad(SOUND[:-8], "columns", 31),
    "blank-line": Bad(changed(4, b"\n"), "is an empty line", 6),
    "wrong-separator": Bad(SOUND, "does not occur in line 1", data={"separator": ";"}),
    "no-separator": Bad(b"useritem\nu1i1\nu2i2\n", "name data.separator", 1),
    "mixed-separators": Bad(changed(4, b"u0;i1;3;9\n"), "has 1 columns", 6),
    "open-quote": Bad(changed(4, b'"u0,i1,3,9\n'), "quotes that do not fit", 6),
    "text-after-a-quote": Bad(changed(4, b'"u0"x,i1,3,9\n'), "quotes that do not fit", 6),
    "embedded-newline": Bad(changed(4, b'"u\n0",i1,3,9\n'), "quotes that do not fit", 6),
    "quotes-and-too-few": Bad(changed(4, b'"u,0",i1,3\n'), "has 3 columns", 6),
    "header-twice": Bad(SOUND.replace(b"time", b"item", 1), "the header names 'item' twice", 1),
    "missing-column": Bad(SOUND, "has no column 'stars' (data.rating)", 1, {"rating": "stars"}),
    "column-out-of-range": Bad(SOUND, "has 4 columns, not 9 (data.time)", 1, {"time": 9}),
    "header-or-row": Bad(b"a,b\nc,d\n", "header = true", 1, {"user": 1, "item": 2, **UNTOLD}),
    "names-without-a-header": Bad(SOUND, "asked for by name", data={"header": False}),
    "header-as-a-row": Bad(
        SOUND, PLAIN, 1, {"header": False, "user": 1, "item": 2, "rating": 3, "time": None}
    ),
    # Values.
    "nan": Bad(value("nan"), f"rating column 'rating': 'nan' {PLAIN}", 6),
    "infinite": Bad(value("inf"), PLAIN, 6),
    "no-value": Bad(value(""), PLAIN, 6),
    "hexadecimal": Bad(value("0x4"), PLAIN, 6),
    "exponent": Bad(value("4e0"), PLAIN, 6),
    "underscore": Bad(value("1_0"), PLAIN, 6),
    "other-digits": Bad(value("٤"), PLAIN, 6),
    "thousands": Bad(value('"1,000"'), PLAIN, 6),
    "decimal-comma": Bad(value("3,5", 4).replace(b",", b";").replace(b"3;5", b"3,5"), PLAIN, 6),
    "mixed-scales": Bad(value("100"), "scales are mixed"),
    "one-value": Bad(b"".join([HEADER, b"u1,i1,3,9\n", b"u2,i2,3,9\n"]), "read it as implicit"),
    "off-the-scale": Bad(
        value("3.7"), "'3.7' is off the scale", 6, {"scale": {"low": 0.5, "high": 5, "step": 0.5}}
    ),
    "nothing-positive": Bad(
        SOUND, "data.positive_from", None, {"positive_from": 6, "split": "leave-one-out"}
    ),
    "negative-time": Bad(at("-5"), "time column 'time': '-5' is before 1970", 6),
    "time-in-words": Bad(at("noon"), "'noon' is not a whole number of seconds", 6),
    "time-with-two-points": Bad(at("9.5.1"), "'9.5.1' is not a whole number of seconds", 6),
    "time-in-two-units": Bad(
        at("1405440615").replace(b",9\n", b",1405440615000\n"),
        "seconds (1405440615 to 1405440615) and milliseconds (1405440615000",
        6,
    ),
    "time-missing": Bad(at(""), "time column 'time': '' is not a whole number", 6),
    "date-of-either-order": Bad(
        re.sub(rb",[0-9]+\n", b",01/02/2020\n", SOUND), "--set data.dates=day-first", 2
    ),
    "no-row-left": Bad(SOUND, "has no row left", None, {"missing_values": [1, 2, 3, 4, 5]}),
    "time-beyond-64-bits": Bad(at("9" * 20), "is not a whole number of seconds", 6),
    # Ids.
    "empty-id": Bad(user(""), "user column 'user': '' is an empty id", 6),
    "blank-id": Bad(user("  "), "is an empty id", 6),
    "ids-that-collide": Bad(user(" u0"), "differs from another id of the file only in blanks", 6),
    "id-beyond-64-bits": Bad(
        b"1,1,3\n2,1,4\n9223372036854775808,2,3\n",
        "'9223372036854775808' is not a whole number of 64 bits",
        3,
        {"ids": "number", "user": 1, "item": 2, "rating": 3, "time": None},
    ),
    "id-of-another-kind": Bad(SOUND, "'u0' is not a whole number", 2, {"ids": "number"}),
    "long-id": Bad(user("u" * 500), "is not an id", 6),
    "id-with-a-control-character": Bad(user("u\x07"), "is not an id", 6),
    "one-user": Bad(b"user,item,rating\nu,i1,3\nu,i2,4\n", "holds one user", data={"time": None}),
    "one-item": Bad(b"user,item,rating\nu,i,3\nv,i,4\n", "holds one item", data={"time": None}),
    "repeated-pair": Bad(
        HEADER + FIRST_TWO + HALF_OF_ALL, "item column 'item': this client has rated", 3
    ),
    # What is asked of it.
    "filters-leave-nothing": Bad(SOUND, "data.min_ratings = 99", data={"min_ratings": 99}),
    "sample-of-too-many": Bad(
        SOUND, "data.sample_clients = 7: there are only 6", None, {"sample_clients": 7}
    ),
    "mean-of-nothing": Bad(
        SOUND,
        "data.duplicates",
        None,
        {"rating": None, "duplicates": "mean", "split": "leave-one-out"},
    ),
    "error-of-a-constant": Bad(SOUND, "implicit feedback has one value", None, {"rating": None}),
    "latest-without-times": Bad(
        SOUND, "data.held_out", None, {"time": None, "split": "leave-one-out", "held_out": "latest"}
    ),
    "a-column-twice": Bad(SOUND, "is asked for twice", None, {"item": "user"}),
    "a-column-by-name-and-number": Bad(SOUND, "is asked for twice", None, {"item": 1}),
    "nothing-held-out": Bad(
        b"user,item,rating\na,x,1\nb,y,2\nc,x,3\n",
        "holds nothing out: no client has two ratings",
        data={"time": None, "split": "leave-one-out"},
    ),
    # Other files.
    "two-test-rows-of-implicit-feedback": split_off(
        "u0,i2,3,9\nu0,i4,3,9\n", "one row per client is held out", positive_from=1
    ),
    "test-without-a-path": Bad(SOUND, "data.test_path", None, {"split": "files"}),
    "test-of-an-unknown-user": split_off("u99,i1,3,9\n", "'u99' is not among the users", 2),
    "test-of-an-unknown-item": split_off(
        "u1,i9,3,9\nu1,i99,3,9\n", "'i99' is not among the items", 3
    ),
    "test-of-a-training-pair": split_off("u0,i0,1,9\n", "is in ratings.csv as well", 2),
    "test-off-the-scale": split_off("u0,i1,77,9\n", "'77' is off the scale, 1 to 5", 2),
    "empty-test": split_off("", "holds a header and nothing else", 1),
    "catalogue-lacks-an-item": catalogue(
        "item\ni0\ni1\n", "'i3' is not among the items", 3
    )._replace(blamed="ratings.csv"),
    "catalogue-repeats-an-item": catalogue("item\ni0\ni1\ni0\n", "is there twice", 4),
    "attributes-lack-a-client": attributes(ATTRIBUTES[:-5], "lacks 1 clients"),
    "attributes-repeat-a-client": attributes(ATTRIBUTES + "u2,F\n", "is there twice", 7),
    "attributes-all-alike": attributes(ATTRIBUTES.replace("M", "F"), "all clients have 'F'"),
    "attribute-empty": attributes(
        ATTRIBUTES.replace("u3,M", "u3,"), "attribute 2 column 2: '' is empty", 4
    ),
    "attributes-with-other-columns": attributes(ATTRIBUTES, "not 5", 1, columns=[5]),
    "attributes-are-missing": attributes(ATTRIBUTES, "does not exist", path="nobody.csv")._replace(
        blamed="nobody.csv"
    ),
}


def test_enough_kinds() -> None:
    assert len(BAD) >= 75


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused(
    refusal: Refusal, write_config: Write, tmp_path: Path, kind: str
) -> None:
    bad = BAD[kind]
    (tmp_path / bad.name).write_bytes(bad.content)
    for name, content in bad.beside.items():
        (tmp_path / name).write_bytes(content)
    data = {"name": "file", "path": bad.name, **NAMED, **bad.data}
    raw: dict[str, Any] = {"data": {key: each for key, each in data.items() if each is not None}}
    if "attributes" in bad.data:
        raw["algorithm"] = {"name": "furl"}
        del raw["data"]["rating"]
    before = sorted(tmp_path.rglob("*"))
    said = refusal("audit", write_config(raw), "--out", tmp_path / "out", "--quiet")
    assert bad.says in said
    file = bad.blamed or next(iter(bad.beside), bad.name)
    if bad.line is not None:
        assert f"{file}, line {bad.line}:" in said
    assert said.startswith("data.") or file in said
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "config.toml"])


def test_bad_files_are_described_or_refused(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    refused = 0
    for kind, bad in BAD.items():
        folder = tmp_path / kind
        folder.mkdir()
        (folder / bad.name).write_bytes(bad.content)
        code, out, err = command("data", "describe", folder / bad.name, "--write", folder / "c")
        assert code in (0, 2), err
        refused += code == 2
        assert (folder / "c").exists() == (code == 0)
        assert (err.count("\n"), bool(out)) == ((0, True) if code == 0 else (1, False))
    assert refused >= 45


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder, not a file"),
        (os.mkfifo, "is not an ordinary file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not an ordinary file"),
        (lambda path: path.symlink_to(path), "does not exist"),
    ],
)
def test_what_is_no_file_is_refused(
    refusal: Refusal, write_config: Write, tmp_path: Path, make: Callable[[Path], None], says: str
) -> None:
    make(tmp_path / "ratings.csv")
    config = write_config({"data": {"name": "file", "path": "ratings.csv", **NAMED}})
    said = refusal("audit", config, "--out", tmp_path / "out")
    assert said.startswith(f"{tmp_path / 'ratings.csv'}: {says}")
    assert not (tmp_path / "out").exists()


def test_a_file_that_may_not_be_read_is_refused(
    refusal: Refusal, write_config: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ratings.csv"
    path.write_bytes(SOUND)
    path.chmod(0)
    if os.access(path, os.R_OK):  # as root: permissions stop nobody
        opened = Path.open

        def open_(self: Path, *words: Any, **others: Any) -> Any:
            if self == path:
                raise PermissionError(13, "Permission denied")
            return opened(self, *words, **others)

        monkeypatch.setattr(Path, "open", open_)
    config = write_config({"data": {"name": "file", "path": "ratings.csv", **NAMED}})
    assert "cannot be read (Permission denied)" in refusal(
        "audit", config, "--out", tmp_path / "out"
    )


def test_parquet_is_refused_likewise(refusal: Refusal, write_config: Write, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    users, items, stars = (list(column) for column in zip(*ROWS, strict=True))
    sound = {"user": users, "item": items, "rating": stars}
    path = tmp_path / "ratings.parquet"
    data = {"name": "file", "path": path.name, "user": "user", "item": "item", "rating": "rating"}

    def said(columns: dict[str, Any], cut: int = 0, **keys: Any) -> str:
        parquet.write_table(arrow.table(columns), path)
        path.write_bytes(path.read_bytes()[: len(path.read_bytes()) - cut])
        found = refusal(
            "audit", write_config({"data": {**data, **keys}}), "--out", tmp_path / "out"
        )
        assert str(path) in found
        return found

    assert "is not a sound Parquet file" in said(sound, cut=40)
    assert "row 3, user column 'user': is empty" in said(
        {**sound, "user": [*users[:2], None, *users[3:]]}
    )
    assert "is of type list<element: int64>, not numbers" in said(
        {**sound, "rating": [[1]] * len(users)}
    )
    assert "is of type double, not whole numbers" in said({**sound, "item": [0.5] * len(users)})
    assert f"row 2, rating column 'rating': 'nan' {PLAIN}" in said(
        {**sound, "rating": np.array([1.0, np.nan, *stars[2:]])}
    )
    assert "has no column 'stars' (data.rating), only 'user', 'item', 'rating'" in said(
        sound, rating="stars"
    )
    assert "holds no row" in said(
        {name: each[:0] for name, each in sound.items()} | {"user": arrow.array([], "string")},
        rating="rating",
    )
    assert not (tmp_path / "out").exists()


def test_parquet_without_its_extra_is_refused(
    refusal: Refusal, write_config: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    config = write_config({"data": {"name": "file", "path": "r.parquet", **NAMED}})
    assert "pip install 'secure-fedrec[file]'" in refusal(
        "audit", config, "--out", tmp_path / "out"
    )
