"""From somebody's own file to a verdict: described, configured, audited, and no id in the run."""

import json
import random
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from attacks.scoring.measures import MEASURES
from audits.config import load_config, parse_config
from audits.gates.gate import RATING_VALUES
from audits.own_data import drawn
from audits.rating_data import RatingFileData
from secure_fedrec.errors import ConfigError

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]
Refusal = Callable[..., str]
SHORT = ("--set", "algorithm.rounds=3", "--set", "recording.payload_rounds=[1]", "--quiet")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Half stars of 40 people with names for 30 items with names, in a folder of their own."""
    rng = random.Random(8)
    lines = ["reader;book;stars;at"]
    for reader in range(40):
        for book in rng.sample(range(30), 12):
            stars = rng.randint(1, 10) / 2
            lines.append(f"quokka-{reader:02};wombat-{book:02};{stars:g};{rng.randint(1, 99)}")
    path = tmp_path / "mine" / "ratings.csv"
    path.parent.mkdir()
    path.write_text("\n".join(lines).replace("reader;book", "user;book") + "\n")
    return path


def test_from_a_file_to_a_verdict(command: Command, own: Path, tmp_path: Path) -> None:
    config, run = tmp_path / "audit.toml", tmp_path / "run"
    code, out, err = command("data", "describe", own, "--write", config)
    assert (code, err) == (0, "")
    assert "scale          0.5 to 5 in steps of 0.5" in out
    assert f"secure-fedrec audit {config}" in out
    assert "quokka" not in out
    written = tomllib.loads(config.read_text())["data"]
    assert written["path"] == "mine/ratings.csv"
    assert written["scale"] == {"low": 0.5, "high": 5, "step": 0.5}
    code, out, _ = command("audit", config, "--out", run, *SHORT)
    assert code == 1  # FedRec++ does not hold the gates
    report = json.loads((run / "report.json").read_text())
    assert report["data"]["name"] == "ratings.csv"
    assert set(report["utility"]["mean"]) == {"mae", "rmse"}
    for path in (each for each in run.rglob("*") if each.is_file()):
        content = path.read_bytes()
        assert b"quokka" not in content, path
        assert b"wombat" not in content, path
        assert "quokka".encode("utf-32-le") not in content, path


def test_the_same_folder_is_found_from_anywhere(
    command: Command, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = own.parent / "audit.toml"
    assert command("data", "describe", own, "--write", config, "--json")[0] == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert command("check", config, "--rounds", "1", "--quiet")[0] == 0
    moved = tmp_path / "elsewhere" / "moved.toml"
    moved.write_text(config.read_text())
    assert command("check", moved, "--rounds", "1", "--quiet")[0] == 2
    found = command("check", moved, "--rounds", "1", "--quiet", "--data-dir", own.parent)
    assert found[0] == 0


def test_implicit_feedback_is_ranked(command: Command, write_config: Write, own: Path) -> None:
    data: dict[str, Any] = {"name": "file", "path": "mine/ratings.csv", "user": "user"}
    data |= {"item": "book", "rating": "stars", "positive_from": 3.0, "split": "leave-one-out"}
    raw: dict[str, Any] = {
        "data": data,
        "algorithm": {"rank": 3, "rounds": 3},
        "gates": [{"metric": "hit_rate_at_10", "min": 0.0}],
    }
    run = own.parent / "run"
    code, _, err = command("audit", write_config(raw), "--out", run, "--quiet")
    assert code == 3, err  # nobody looked
    report = json.loads((run / "report.json").read_text())
    assert set(report["utility"]["mean"]) == {"hit_rate_at_10", "ndcg_at_10"}
    raw["gates"] = [{"metric": "rmse", "max": 9.0}]
    with pytest.raises(ConfigError, match="hit_rate_at_10"):
        parse_config(raw)
    raw["adversaries"] = [{"name": "server", "corrupt": ["server"]}]
    assert set(MEASURES) >= RATING_VALUES
    for metric in sorted(RATING_VALUES):
        gate = {"attack": "lattice", "adversary": "server", "metric": metric, "max": 0.05}
        raw["gates"] = [gate]
        with pytest.raises(ConfigError, match="does not apply to implicit feedback"):
            parse_config(raw)


def test_attributes_are_inferred(command: Command, write_config: Write, own: Path) -> None:
    people = "".join(f"quokka-{place:02},{'FM'[place % 2]}\n" for place in range(40))
    (own.parent / "people.csv").write_text(people)
    table = {"path": "mine/people.csv", "user": 1, "columns": [2], "header": False}
    raw: dict[str, Any] = {
        "data": {
            **{"name": "file", "path": "mine/ratings.csv", "user": "user", "item": "book"},
            **{"attributes": table, "sample_clients": 36},
        },
        "algorithm": {"name": "furl", "rounds": 2},
        "adversaries": [{"name": "server", "corrupt": ["server"]}],
        "attacks": ["attribute-inference"],
    }
    run = own.parent / "run"
    code, _, err = command("audit", write_config(raw), "--out", run, "--quiet")
    assert code in (0, 3), err
    [finding] = json.loads((run / "report.json").read_text())["findings"]
    assert finding["status"] != "not-applicable", finding["reason"]
    for path in (each for each in run.rglob("*") if each.is_file()):
        assert b"quokka" not in path.read_bytes(), path


def test_a_configuration_behind_a_link_finds_its_file(
    command: Command, own: Path, tmp_path: Path
) -> None:
    (tmp_path / "deep" / "down").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "down")
    config = tmp_path / "link" / "audit.toml"
    assert command("data", "describe", own, "--write", config)[0] == 0
    assert command("check", config, "--rounds", "1", "--quiet")[0] == 0


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        ("rating\n1,1,1\n1,2,5\n2,1,3\n", "data.folds"),
        ("plays\n1,1,3\n2,2,3\n3,1,3\n", "data.split"),
    ],
)
def test_too_few_ratings_to_audit_get_no_configuration(
    refusal: Refusal, tmp_path: Path, rows: str, key: str
) -> None:
    path, config = tmp_path / "r.csv", tmp_path / "audit.toml"
    path.write_text("user,item," + rows)
    assert key in refusal("data", "describe", path, "--write", config)
    assert not config.exists()


def test_what_is_there_is_not_written_over(refusal: Refusal, own: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.toml"
    there.write_text("mine")
    plot = tmp_path / "there.svg"
    plot.write_text("mine")
    both = refusal("data", "describe", own, "--write", there, "--plot", plot)
    assert both.startswith("--write and --plot = ")
    assert both.endswith("already there: name other files, or write over them with --force")
    for option in ("--write", "--plot"):
        assert "already there" in refusal("data", "describe", own, option, there)
        itself = refusal("data", "describe", own, option, own, "--force")
        assert "is the file of ratings itself" in itself
    assert "choices: .svg, .png" in refusal("data", "describe", own, "--plot", tmp_path / "a.gif")
    missing = tmp_path / "no" / "a.toml"
    assert "cannot be written" in refusal("data", "describe", own, "--json", "--write", missing)
    assert there.read_text() == "mine"
    assert "applies only to a file of your own" in refusal(
        "data", "describe", "synthetic", "--plot", "x.svg"
    )
    assert "unknown data set" in refusal("data", "describe", "nothing")
    assert "does not exist" in refusal("data", "describe", "nothing.csv")


def test_what_is_there_is_written_over_by_force(
    command: Command, own: Path, tmp_path: Path
) -> None:
    there, plot = tmp_path / "there.toml", tmp_path / "there.svg"
    for each in (there, plot):
        each.write_text("mine")
    assert command("data", "describe", own, "--write", there, "--plot", plot, "--force")[0] == 0
    assert load_config(there).data.user == "user"
    assert plot.read_text().startswith("<?xml")
    assert command("init", "plain", "--out", there, "--force")[0] == 0
    assert "mine" not in there.read_text()


STRAY = "".join(
    f"r{user},b{(user * step) % 11},{step / 2 + 1:g}\n" for user in range(40) for step in (1, 2, 5)
)
HEAD = "user,item,rating\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HEAD + STRAY + "r1,b99,85\n",
            "line 122: rating column 'rating': '85' (1 of 121 rows) stands",
        ),
        (HEAD + STRAY.replace("1.5", "2").replace("3.5", "2"), "has the rating 2 alone"),
        (HEAD + "".join(f"u{n % 9},i{n},{n * n}\n" for n in range(40)), "has 40 different ratings"),
    ],
)
def test_what_ratings_are_is_not_decided_for_anybody(
    command: Command, refusal: Refusal, tmp_path: Path, text: str, said: str
) -> None:
    path, config = tmp_path / "r.csv", tmp_path / "c.toml"
    path.write_text(text)
    line = refusal("data", "describe", path, "--write", config)
    assert said in line
    assert "--set 'data.scale={" in line
    assert "--set data.positive_from=" in line
    assert not config.exists()
    code, out, _ = command("data", "describe", path)
    assert code == 0
    assert "scale          undecided: " in out
    told = ("--set", "data.positive_from=1", "--write", config)
    assert command("data", "describe", path, *told)[0] == 0
    assert load_config(config).data.positive_from == 1
    scale = "data.scale={ low = 0, high = 3000, step = 0.5 }"
    assert command("data", "describe", path, "--set", scale, "--write", config, "--force")[0] == 0
    assert load_config(config).data.scale.high == 3000
    small = "data.scale={ low = 0, high = 1, step = 0.5 }"
    assert "is off the scale" in refusal("data", "describe", path, "--set", small)
    both = ("--set", small, "--set", "data.positive_from=1")
    assert "has no effect with" in refusal("data", "describe", path, *both)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "user;item;rating\na;b;3,0\nc;d;2,5\n",
            "'3,0' is not a number: write decimals with a point",
        ),
        ("1;2;3,0\n2;3;2,5\n", "column 3: '3,0' is not a number: write decimals with a point"),
        (
            "user;item;rating\na;b;3\nc;d;2,5\n",
            "'2,5' is not a plain decimal number (such as 4, -2 or 3.5): ",
        ),
        ("sep=;\nuser;item;rating\na;b;3\n", "remove the line"),
        ('"sep=,"\nuser,item,rating\na,b,3\n', "remove the line"),
        ("user,f1,f2,f3,f4,f5,f6\na,1,,3,4,,1\nb,1,2,,,5,\n", "Write a row per rating"),
        ("1,5,3,4,4,1,1,2\n2,5,3,4,4,1,1,2\n", "Write a row per rating"),
        (
            "who,what,how,when\na,b,3,9\n",
            "--set data.user=NAME --set data.item=NAME, and likewise data.rating and data.time",
        ),
    ],
)
def test_what_spreadsheets_write_is_refused_with_what_to_do(
    refusal: Refusal, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "r.csv"
    path.write_text(text)
    assert said in refusal("data", "describe", path)


def test_columns_that_are_not_used_are_named_with_every_key(
    command: Command, refusal: Refusal, tmp_path: Path
) -> None:
    path = tmp_path / "r.csv"
    path.write_text("user,item,how,when\na,b,3,9\nb,a,4,10\n")
    _, out, _ = command("data", "describe", path)
    assert "how, when (--set data.rating=NAME or --set data.time=NAME, if it is one)" in out
    assert "is a folder" in refusal("data", "describe", tmp_path)


def test_a_setting_that_is_not_given_is_not_shown_as_python_has_it() -> None:
    data = {"name": "file", "path": "r.csv", "user": 1, "item": 2, "rating": 3}
    with pytest.raises(ConfigError, match=r"^data\.test_path: is missing: "):
        parse_config({"data": {**data, "split": "files"}})
    with pytest.raises(ConfigError, match=r"^data\.test_path = 't': has no effect without"):
        parse_config({"data": {**data, "test_path": "t"}})


def test_two_clients_are_audited_as_written(command: Command, tmp_path: Path) -> None:
    path, config = tmp_path / "r.csv", tmp_path / "c.toml"
    rows = (f"{user},{item},{1 + item % 5}\n" for user in "ab" for item in range(12))
    path.write_text("user,item,rating\n" + "".join(rows))
    assert command("data", "describe", path, "--write", config)[0] == 0
    code, _, err = command("audit", config, "--out", tmp_path / "run", *SHORT)
    assert code in (1, 3), err


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_curves_are_plotted(command: Command, own: Path, tmp_path: Path, suffix: str) -> None:
    plot = tmp_path / f"curves{suffix}"
    assert command("data", "describe", own, "--plot", plot)[0] == 0
    content = plot.read_bytes()
    assert content.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    assert b"quokka" not in content


def test_a_curve_in_signs() -> None:
    import numpy as np

    lines = drawn(np.array([100, 10, 1, 1]))
    assert len({len(line) for line in lines[:-1]}) == 1
    assert lines[0].startswith("      100 █")
    assert lines[-1].split() == ["1", "4"]


def test_counts_become_implicit_feedback(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "plays.tsv"
    rows = [
        f"u{user}\ti{user * step % 17}\t{user * step**3 + 1}"
        for user in range(9)
        for step in (1, 2, 4)
    ]
    path.write_text("user\titem\tplays\n" + "".join(f"{row}\n" for row in rows))
    config = tmp_path / "c.toml"
    code, out, _ = command("data", "describe", path, "--write", config)
    assert code == 0
    assert "these are counts" in out
    assert load_config(config).data.positive_from == 1
    assert load_config(config).data.duplicates == "last"


EVERY_KEY: dict[str, Any] = {
    "separator": ";",
    "header": True,
    "encoding": "latin-1",
    "missing": "drop",
    "layout": "rows",
    "user": "book",
    "item": 1,
    "rating": "stars",
    "missing_values": ["NULL", -1],
    "time": "at",
    "dates": {"time": "at", "dates": "day-first"},
    "ids": "text",
    "scale": {"low": 0, "high": 5, "step": 0.5},
    "positive_from": 2.5,
    "duplicates": "first",
    "catalogue": {"path": "books.csv", "item": 1, "header": False},
    "min_ratings": 2,
    "min_raters": 3,
    "sample_clients": 30,
    "held_out": {"split": "leave-one-out", "held_out": "random"},
    "split": "leave-one-out",
    "folds": 3,
    "fold": 1,
    "utility_folds": 2,
    "test_path": {"split": "files", "test_path": "test.csv"},
}


def test_every_key_of_the_data_is_taken_and_written(
    command: Command, refusal: Refusal, own: Path, tmp_path: Path
) -> None:
    told_nothing = {"name", "path", "attributes"}  # FedRec++ has no attack that infers attributes
    assert set(EVERY_KEY) | told_nothing == {each.name for each in fields(RatingFileData)}
    (own.parent / "books.csv").write_text("".join(f"wombat-{book:02}\n" for book in range(33)))
    config = tmp_path / "c.toml"
    for name, value in EVERY_KEY.items():
        keys = value if name in ("dates", "held_out", "test_path") else {name: value}
        told = [f"data.{key}={json.dumps(each)}" for key, each in keys.items()]
        if name == "catalogue":
            told = [f"data.catalogue.{key}={json.dumps(each)}" for key, each in value.items()]
        if name in ("user", "item"):
            told = ["data.user=book", "data.item=1"]
        options = [word for each in told for word in ("--set", each)]
        written = ("--write", config, "--force") if name != "test_path" else ()
        code, _, err = command("data", "describe", own, *options, *written)
        assert code == 0, (name, err)
        if written and name != "catalogue":
            kept = tomllib.loads(config.read_text())["data"]
            default = next(each.default for each in fields(RatingFileData) if each.name == name)
            assert kept.get(name, default) == keys[name], name
    for key in ("data.name", "data.path", "algorithm.rounds"):
        assert "takes only keys of [data]" in refusal("data", "describe", own, "--set", f"{key}=1")
    assert "unknown key" in refusal("data", "describe", own, "--set", "data.users=1")


def test_what_is_told_beside_the_file_is_found_from_the_configuration(
    command: Command, own: Path, tmp_path: Path
) -> None:
    (own.parent / "books.csv").write_text("".join(f"wombat-{book:02}\n" for book in range(33)))
    config = tmp_path / "c.toml"
    books = ("path=books.csv", "item=1", "header=false")
    told = [word for key in books for word in ("--set", f"data.catalogue.{key}")]
    assert command("data", "describe", own, *told, "--write", config)[0] == 0
    data = load_config(config).data
    assert data.catalogue.path == "mine/books.csv"
    assert data.read(seed=1, data_dir=tmp_path).table.n_items == 33


def test_an_audit_counts_what_it_leaves_out(command: Command, own: Path, tmp_path: Path) -> None:
    rows = own.read_text().splitlines()
    own.write_text("\n".join([*rows, ";wombat-01;3;5", "quokka-01;wombat-02;-1;5"]))
    config = tmp_path / "c.toml"
    told = ("--set", "data.missing=drop", "--set", "data.missing_values=[-1]")
    code, out, _ = command("data", "describe", own, *told, "--write", config)
    assert code == 0
    assert "left out       2 rows in which something is missing" in out
    code, _, err = command("check", config, "--rounds", "1", "--quiet")
    assert code == 0
    assert err.count("ratings.csv: 2 rows left out, in which something is missing") == 1


def test_a_fine_scale_is_audited_as_written(command: Command, tmp_path: Path) -> None:
    rng = random.Random(2)
    lines = [f"{u},{i},{rng.uniform(-10, 10):.3f}\n" for u in range(8) for i in range(12)]
    path, config = tmp_path / "jokes.csv", tmp_path / "c.toml"
    path.write_text("user,item,rating\n" + "".join(lines))
    scale = "data.scale={ low = -10, high = 10, step = 0.001 }"
    assert command("data", "describe", path, "--set", scale, "--write", config)[0] == 0
    code, _, err = command("audit", config, "--out", tmp_path / "run", *SHORT)
    assert code in (1, 3), err
