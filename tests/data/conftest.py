"""Tiny made-up copies of the MovieLens folders, in their published formats."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def ml_100k(tmp_path: Path) -> Path:
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    (folder / "u.user").write_text(
        "1|17|F|student|55105\n2|18|M|artist|T8H1N\n3|56|M|none|00000\n", encoding="ascii"
    )
    (folder / "u.item").write_text(
        "1|Un été (1990)|01-Jan-1990||url|0|1\n2|B||||0|0\n4|D||||0|1\n", encoding="latin-1"
    )
    (folder / "u.data").write_text(
        "2\t4\t3\t881250949\n1\t2\t5\t881250950\n2\t1\t1\t881250951\n3\t2\t4\t881250952\n",
        encoding="ascii",
    )
    return folder


@pytest.fixture
def ml_1m(tmp_path: Path) -> Path:
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    (folder / "users.dat").write_text("1::F::1::10::48067\n2::M::56::16::70072\n", encoding="ascii")
    (folder / "ratings.dat").write_text(
        "2::3952::5::978300760\n2::1::3::978302109\n1::1193::4::978301968\n", encoding="ascii"
    )
    (folder / "latest_rating_per_user.dat").write_text(
        "2::1::3::978302109\n1::1193::4::978301968\n", encoding="ascii"
    )
    return folder


@pytest.fixture
def ml_latest_small(tmp_path: Path) -> Path:
    folder = tmp_path / "ml-latest-small"
    folder.mkdir()
    (folder / "movies.csv").write_text(
        'movieId,title,genres\r\n1,"A, The (1995)",Drama\r\n10,Été (1999),Comedy\r\n',
        encoding="utf-8",
        newline="",
    )
    (folder / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\r\n7,10,0.5,964982703\r\n3,1,4.5,964981247\r\n",
        encoding="ascii",
        newline="",
    )
    return folder


@pytest.fixture
def real_data() -> Path:
    """The folder of the real data sets; skips the test where there is none."""
    named = os.environ.get("SECURE_FEDREC_DATA")
    if not named or not Path(named, "ml-100k").is_dir():
        pytest.skip("SECURE_FEDREC_DATA names no folder with the MovieLens sets")
    return Path(named)
