"""No file of a run holds an id of the data, no report a client's ratings or a path from outside.

Ids are planted in the data of every system, and every byte of the run folder is looked into.
"""

import json
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.suite import FAMILIES
from audits import rating_data
from audits.report import WRITERS
from audits.run.truth import read_secrets
from audits.systems import SYSTEMS
from audits.systems.furl import texts
from audits.systems.hpfl import organisations
from secure_fedrec.errors import DataError

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]

RATINGS = {"name": "synthetic", "clients": 24, "items": 30, "mean_ratings": 8.0}
SERVER = {"name": "server", "corrupt": ["server"]}
RUN = {
    "seed": 3,
    "adversaries": [SERVER],
    "recording": {"payload_rounds": [1, 2]},
    "run": {"check_lossless": False},
}
SMALL_STEPS = {"item_learning_rate": 10.0}
ITEM_TABLES = {
    name: {field.name for field in fields(system.kinds[system.default_data].algorithm)}
    for name, system in SYSTEMS.items()
    if system.attacks == FAMILIES["item tables"]
}
"""Names of the settings of every method of the family."""
GUM = {"scale": 5.0, "start": "identity"}
SYSTEMS_AUDITED: Mapping[str, dict[str, Any]] = {
    "pmf": {
        "data": RATINGS,
        "algorithm": {"name": "pmf", "rank": 3, "rounds": 2},
        "protection": [{"layer": "virtual-ratings"}, {"layer": "denoisers", "count": 6}],
    },
    "furl": {"data": RATINGS, "algorithm": {"name": "furl", "rounds": 2}},
    "furl texts": {
        "data": {"name": "stickers", "users": 24, "messages": 10, "length": 8},
        "algorithm": {
            **{"name": "furl", "rounds": 2, "user_dim": 3},
            **{"character_dim": 4, "hidden": 4, "mlp": 6},
        },
    },
    **{
        name: {
            "data": RATINGS,
            "algorithm": {
                **{"name": name, "rounds": 2, "rank": 4},
                **{key: step for key, step in SMALL_STEPS.items() if key in settings},
            },
        }
        for name, settings in ITEM_TABLES.items()
    },
    "ease": {"data": RATINGS, "algorithm": {"name": "ease"}},
    "feddmf": {
        "data": {**RATINGS, "mean_ratings": 12.0},
        "algorithm": {"name": "feddmf", "form": "served", "epochs": 2},
    },
    "hpfl": {
        "data": {"name": "synthetic", "clients": 4, "users": 8, "items": 14, "mean_records": 6.0},
        "algorithm": {
            **{"name": "hpfl", "rounds": 2, "user_drafts": 0.5, "gum": GUM},
            "training": {"epochs": 1},
        },
    },
}


@dataclass
class Planted:
    """The ids that were put into the data; text if ``strings``, where the data can have it."""

    strings: bool
    ids: set[int | str]

    def labels(self, count: int, kind: str) -> Any:
        """So many ids, ascending, none of which comes about by itself."""
        start = {"user": 7_100_000_000_000_003, "item": 8_200_000_000_000_005}[kind]
        made: list[int | str] = [start + 17 * number for number in range(count)]
        if self.strings:
            made = [f"{kind}-{number:06d}.alice@example.org" for number in range(count)]
        self.ids.update(made)
        return np.array(made)


@pytest.fixture(params=["numbers", "strings"])
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Planted:
    """Every loader hands out data whose ids are the planted ones."""
    ids = Planted(strings=request.param == "strings", ids=set())

    def table(loaded: Any) -> Any:
        try:
            return replace(
                loaded,
                client_labels=ids.labels(loaded.n_clients, "user"),
                item_labels=ids.labels(loaded.n_items, "item"),
            )
        except DataError as refused:
            assert ids.strings
            pytest.skip(f"this data has numbers as ids: {refused}")

    def users(loaded: Any) -> Any:
        if ids.strings:
            pytest.skip("this data has numbers as ids")
        return replace(loaded, user_labels=ids.labels(len(loaded.user_labels), "user"))

    def records(loaded: Any) -> Any:  # its users and items are numbers of the data set
        return replace(loaded, names=tuple(map(str, ids.labels(len(loaded.names), "user"))))

    for module, name, put in (
        (rating_data, "load", table),
        (texts, "generate_stickers", users),
        (organisations, "generate_organisations", records),
    ):
        load = getattr(module, name)

        def loaded(*given: Any, _load: Any = load, _put: Any = put, **named: Any) -> Any:
            return _put(_load(*given, **named))

        monkeypatch.setattr(module, name, loaded)
    return ids


def written(each: int | str) -> Iterator[bytes]:
    """The ways in which an id may stand in a file."""
    yield str(each).encode()
    for codec in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        yield str(each).encode(codec)
    if isinstance(each, int):
        for order in "<>":
            yield struct.pack(f"{order}q", each)
            yield struct.pack(f"{order}d", each)
        yield f"{each:x}".encode()


def start_of(marks: Sequence[bytes]) -> bytes:
    """What all of them begin with."""
    low, high = min(marks), max(marks)
    same = [one == other for one, other in zip(low, high, strict=False)]
    return low[: [*same, False].index(False)]


class Traces:
    """All forms of some ids, looked for by what those of one kind have in common first."""

    def __init__(self, ids: set[int | str]) -> None:
        self._forms: list[tuple[bytes, tuple[bytes, ...]]] = []
        for kind in {str(each)[0] for each in ids}:
            for marks in zip(*(written(each) for each in ids if str(each)[0] == kind), strict=True):
                ends = start_of([mark[::-1] for mark in marks])[::-1]
                common = max(start_of(marks), ends, key=len)
                assert len(common) >= 5
                self._forms.append((common, marks))

    def within(self, content: bytes) -> list[bytes]:
        return [
            mark
            for common, marks in self._forms
            if common in content
            for mark in marks
            if mark in content
        ]


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file, and what lies in those that are archives."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = str(path.relative_to(folder))
        yield name, path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    yield f"{name}/{member}", archive.read(member)


def lists(value: Any) -> Iterator[list[Any]]:
    """Every list in a JSON value."""
    if isinstance(value, list):
        yield value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from lists(each)


def test_every_system_is_looked_into() -> None:
    assert {name.split()[0] for name in SYSTEMS_AUDITED} == set(SYSTEMS)


@pytest.mark.claim("run-folders-hold-no-ids")
@pytest.mark.parametrize("system", SYSTEMS_AUDITED)
def test_no_file_of_a_run_holds_an_id(
    system: str,
    planted: Planted,
    command: Command,
    write_config: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, run = write_config({**RUN, **SYSTEMS_AUDITED[system]}), tmp_path / "out" / "run"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    code, out, err = command(
        "audit", config, "--out", run, "--quiet", "--format", ",".join(WRITERS)
    )
    assert code == 3, err  # there are no gates
    assert len(planted.ids) >= 4
    traces, looked = Traces(planted.ids), 0
    for name, content in [*contents(run), ("stdout", out.encode()), ("stderr", err.encode())]:
        assert not traces.within(content), name
        looked += 1
    assert looked >= 20

    # What is for others names no folder of this machine, and holds nobody's ratings.
    shared = [path for path in run.iterdir() if path.name.startswith("report.")]
    assert len(shared) == len(WRITERS)
    for path in shared:
        assert str(tmp_path).encode() not in path.read_bytes()
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert json.loads((run / "report.json").read_text())["source"]["path"] == "config.toml"
    if (run / "truth" / "ratings.npz").exists():
        ratings = read_secrets(run)["ratings"]
        rows = [
            sorted(ratings["items"][low:high].tolist())
            for low, high in zip(ratings["indptr"], ratings["indptr"][1:], strict=False)
        ]
        long = [set(row) for row in rows if len(row) >= 4]
        assert len(long) >= 10
        for each in lists(json.loads((run / "report.json").read_text())):
            plain = {entry for entry in each if isinstance(entry, int)}
            assert not any(row <= plain for row in long)


def test_the_plant_would_be_found(tmp_path: Path) -> None:
    """The search sees an id in an archive, in text and as a number."""
    number, text = 7_100_000_000_000_003, "user-000001.alice@example.org"
    np.savez_compressed(tmp_path / "a.npz", one=np.array([1, number]), two=np.array([text]))
    (tmp_path / "b.json").write_text(json.dumps({"id": number}))
    found = {
        (name, each)
        for name, content in contents(tmp_path)
        for each in (number, text)
        if Traces({each}).within(content)
    }
    many = Traces({number + 17 * k for k in range(80)} | {text, text.replace("1", "2")})
    for each in (number, text):
        for mark in written(each):
            assert many.within(b"before" + mark + b"behind") == [mark]
    assert found == {("a.npz/one.npy", number), ("a.npz/two.npy", text), ("b.json", number)}


@pytest.mark.claim("run-folders-hold-no-ids")
def test_what_parties_saw_and_what_nobody_saw_is_for_its_owner(
    recorded: Path, command: Command, tmp_path: Path
) -> None:
    for name in ("transcript", "truth"):
        assert stat.S_IMODE((recorded / name).stat().st_mode) == 0o700
    out = tmp_path / "export"
    assert command("report", recorded, "--out", out, "--format", ",".join(WRITERS))[0] == 0
    assert all(path.name.startswith("report.") for path in out.rglob("*"))


def test_paths_of_data_stay_at_home(
    command: Command, write_config: Write, small: dict[str, Any], ml_100k: Path, tmp_path: Path
) -> None:
    """A refusal names the file for the user; nothing of it is kept."""
    small["data"] = {"name": "ml-100k"}
    (ml_100k / "u.data").write_text("alice@example.org\t1\t5\t0\n")
    out = tmp_path / "run"
    code, _, err = command("audit", write_config(small), "--out", out, "--data-dir", ml_100k.parent)
    assert code == 2
    assert "u.data, line 1" in err
    assert not out.exists()
