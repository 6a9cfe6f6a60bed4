"""Bad input through the real command: exit code 2, one line that names it, nothing half-written."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from secure_fedrec.protection import STACKS

Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]
NAN, INF = float("nan"), float("inf")

UNKNOWN_KEYS = [
    ("colour", "choices: title, seed, data, algorithm, ring, cohort, recording, run, attacks"),
    ("data.colour", "choices: name, clients, items"),
    ("algorithm.colour", "choices: rank, rounds"),
    ("ring.colour", "choices: bits, fraction_bits, clip"),
    ("cohort.colour", "choices: clients_per_round, everybody_in"),
    ("recording.colour", "choices: payload_rounds, payload_senders, max_transcript_gb"),
    ("run.colour", "choices: checkpoint_every, check_lossless"),
    ("protection.0.colour", "choices: rho, filling"),
    ("protection.1.colour", "choices: count"),
    ("adversaries.0.colour", "choices: name, corrupt, taps, knows"),
    ("gates.0.colour", "choices: metric, attack, adversary, max, min, equals"),
]

WRONG_TYPES = [
    ("title", 5, "valid string"),
    ("seed", "one", "valid integer"),
    ("seed", 1.5, "valid integer"),
    ("data", "ml-100k", "must be a table, written [data]"),
    ("data.name", 3, "valid string"),
    ("data.folds", "5", "valid integer"),
    ("data.noise", "loud", "valid number"),
    ("algorithm", [], "must be a table, written [algorithm]"),
    ("algorithm.rank", 4.5, "valid integer"),
    ("algorithm.rounds", True, "valid integer"),
    ("algorithm.learning_rate", "fast", "valid number"),
    ("ring.bits", "64", "valid integer"),
    ("ring.clip", True, "valid number"),
    ("cohort.clients_per_round", 2.5, "valid integer"),
    ("recording.payload_rounds", 3, "valid"),
    ("recording.payload_rounds", [1, "two"], "valid integer"),
    ("run.check_lossless", 1, "valid boolean"),
    ("protection", {"layer": "denoisers"}, "must be a list of tables, written [[protection]]"),
    ("protection.0.layer", ["denoisers"], "unknown layer"),
    ("protection.0.rho", "1", "valid number"),
    ("protection.0.sticky", "no", "valid boolean"),
    ("protection.1.count", 1.5, "valid integer"),
    ("adversaries", "server", "must be a list of tables, written [[adversaries]]"),
    ("adversaries.0.corrupt", "server", "valid"),
    ("attacks", "all", "must be a list of names"),
    ("attacks", [1], "must be a list of names"),
    ("gates", {"metric": "mae"}, "must be a list of tables, written [[gates]]"),
    ("gates.1.max", "low", "valid number"),
    ("gates.1.metric", {}, "valid string"),
    ("adversaries.0.name", {"name": "server"}, "valid string"),
    ("cohort.clients_per_round", {}, "valid integer"),
]

WRONG_VALUES = [
    ("title", "", "must not be empty"),
    ("seed", -1, "must be between 0"),
    (
        "data.name",
        "netflix",
        "choices: ml-100k, ml-1m, ml-latest-small, lastfm-2k, douban-book, synthetic, file",
    ),
    ("data.split", "half", "choices: k-fold, leave-one-out"),
    ("data.folds", 1, "at least 2"),
    ("data.fold", 5, "between 0 and 4"),
    ("data.utility_folds", 6, "between 1 and 5"),
    ("data.items", 5, "at least 6"),
    ("data.noise", NAN, "must be finite"),
    ("algorithm.name", "ncf", "choices: ease, fed3cr, fed3cr_over_fedmf, "),
    ("algorithm.rounds", 0, "at least 1"),
    ("algorithm.learning_rate", 0.0, "must be positive"),
    ("algorithm.learning_rate", INF, "must be finite"),
    ("algorithm.user_update", "all", "choices: rated, rated+virtual"),
    ("ring.bits", 65, "between 8 and 64"),
    ("ring.clip", -1.0, "must be positive"),
    ("cohort.clients_per_round", 0, "at least 1"),
    ("cohort.clients_per_round", 41, "there are only 40 clients"),
    ("cohort.everybody_in", [2], "has no effect without cohort.clients_per_round"),
    ("recording.payload_rounds", [0], "rounds count from 1"),
    ("recording.max_transcript_gb", 1e-6, "the recording would take"),
    ("run.checkpoint_every", 0, "at least 1"),
    ("protection.0.layer", "onion", "choices: virtual-ratings, randomized-response, denoisers"),
    ("protection.0.rho", -0.5, "at least 0"),
    ("protection.0.rho", NAN, "must be finite"),
    ("protection.0.rho", INF, "must be finite"),
    ("protection.0.filling", "zero", "choices: hybrid, average, predicted"),
    ("protection.1.count", 0, "between 1 and half of the 40 clients (20)"),
    ("protection.1.count", 21, "between 1 and half of the 40 clients (20)"),
    ("adversaries.0.corrupt", ["mallory"], "choices: server, denoisers, denoiser:K, client:U"),
    ("adversaries.0.corrupt", [], "corrupts or taps something"),
    ("adversaries.0.corrupt", ["client:" + "9" * 5000], "choices: server, denoisers"),
    ("adversaries.0.corrupt", ["client:\u0663"], "choices: server, denoisers"),
    ("adversaries.0.name", " ", "must not be empty"),
    ("adversaries.0.corrupt", ["denoiser:10"], "there are 10 denoisers"),
    ("adversaries.0.corrupt", ["client:3", "client:40"], "there are 40 clients"),
    ("adversaries.0.taps", ["wifi"], "choices: network"),
    ("adversaries.0.knows", ["keys"], "choices: seed"),
    ("adversaries.1.name", "server", "is used twice"),
    ("attacks", ["lattice", "oracle"], "choices: direct, intersection, lattice"),
    ("gates.1.attack", "oracle", "choices: direct, intersection, lattice"),
    ("gates.1.adversary", "mallory", "choices: server, server+denoisers"),
    ("gates.1.metric", "f1", "choices: lossless, mae, rmse, auc"),
    ("gates.1.max", NAN, "must be finite"),
    ("gates.1.min", 0.1, "choices: max, min, equals"),
    ("gates.0.equals", None, "choices: max, min, equals"),
    ("gates.1.attack", None, "needs an attack and an adversary"),
]


def change(raw: dict[str, Any], key: str, value: object) -> None:
    """Sets (or, for None, removes) the value at a dotted key; numbers index lists of tables."""
    *path, last = key.split(".")
    table: Any = raw
    for step in path:
        table = table[int(step)] if step.isdigit() else table.setdefault(step, {})
    if value is None:
        del table[last]
    else:
        table[last] = value


def spoken(key: str) -> str:
    """How messages call a key: without the number of a table."""
    return ".".join(step for step in key.split(".") if not step.isdigit())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize(("key", "choices"), UNKNOWN_KEYS)
def test_an_unknown_key_is_named_with_the_known_ones(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    out: Path,
    key: str,
    choices: str,
) -> None:
    change(small, key, "blue")
    line = refusal("audit", write_config(small), "--out", out)
    assert line.startswith(f"{spoken(key)} = 'blue': unknown key (")
    assert choices in line
    assert not out.exists()


@pytest.mark.parametrize(("key", "value", "problem"), WRONG_TYPES)
def test_a_wrong_type_is_named(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    out: Path,
    key: str,
    value: object,
    problem: str,
) -> None:
    change(small, key, value)
    line = refusal("audit", write_config(small), "--out", out)
    assert line.startswith(f"{spoken(key)} = ")
    assert problem in line
    assert repr(value) in line or repr([*value][-1]) in line  # type: ignore[misc]
    assert not out.exists()


@pytest.mark.parametrize(
    ("round_", "problem"),
    [(0, "rounds count from 1"), (99, "there are only 6 rounds"), (2, "one cohort size")],
)
def test_rounds_of_everybody_are_refused_where_they_mean_nothing(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    out: Path,
    round_: int,
    problem: str,
) -> None:
    small["cohort"] = {"clients_per_round": 20, "everybody_in": [round_]}
    line = refusal("audit", write_config(small), "--out", out)
    assert line.startswith("cohort.everybody_in = ")
    assert problem in line
    assert not out.exists()


@pytest.mark.parametrize(("key", "value", "problem"), WRONG_VALUES)
def test_a_wrong_value_is_named(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    out: Path,
    key: str,
    value: object,
    problem: str,
) -> None:
    change(small, key, value)
    line = refusal("audit", write_config(small), "--out", out)
    assert line.split(" = ")[0] in (spoken(key), spoken(key).split(".")[0], "gates.metric")
    assert problem in line
    if isinstance(value, str | int | float):
        assert repr(value) in line or key.startswith("gates")
    assert not out.exists()


@pytest.mark.parametrize("word", ["2020-01-01", "12:30:00", "[2020-01-01T00:00:00Z]"])
def test_a_date_is_no_setting(refusal: Refusal, tmp_path: Path, out: Path, word: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"title = {word}\n")
    assert refusal("audit", config, "--out", out).startswith("title = ")
    assert not out.exists()


def test_a_required_setting_is_asked_for(
    refusal: Refusal, write_config: Write, small: dict[str, Any], out: Path
) -> None:
    waiver = {"adversary": "server", "attack": "direct", "reason": "until the next release"}
    small["waivers"] = [waiver | {"owner": "privacy@example.org", "expires": "2999-12-31"}]
    for key in ("adversaries.0.name", "gates.0.metric", "waivers.0.owner"):
        raw = json.loads(json.dumps(small))
        change(raw, key, None)
        config = write_config(raw)
        line = refusal("audit", config, "--out", out)
        table = config.read_text().splitlines().index(f"[[{key.partition('.')[0]}]]") + 1
        assert line == (
            f"{spoken(key)}: is missing; `secure-fedrec explain {spoken(key)}` says what it is "
            f"[{config.name}, line {table}]"
        )


def test_a_refusal_names_the_line_of_its_table(refusal: Refusal, tmp_path: Path) -> None:
    """Of several tables the one that is wrong; of what the command line says no line of a file."""
    config = tmp_path / "audit.toml"
    gate = '[[gates]]\nmetric = "rmse"\nmax = 1.0\n\n'
    config.write_text(f'seed = 1\n\n{gate}[[gates]]\nmetric = "rmse"\nmaximum = 1.0\n')
    assert refusal("check", config).endswith(" [audit.toml, line 9]")
    config.write_text(f'{gate}[[gates]]\nmetric = "auc"\nmax = 0.6\nattack = "direct"\n')
    assert refusal("check", config).endswith(" [audit.toml, line 6]")
    config.write_text(f'layer = "masking"\n{gate}')
    assert refusal("check", config).endswith(" [audit.toml, line 1]")
    config.write_text(gate)
    assert "audit.toml" not in refusal("check", config, "--set", "seed=many")


@pytest.mark.parametrize(
    "layers",
    [
        ["denoisers", "virtual-ratings"],
        ["virtual-ratings", "randomized-response"],
        ["randomized-response", "virtual-ratings", "denoisers"],
    ],
)
def test_layers_that_do_not_stack_are_refused_with_those_that_do(
    refusal: Refusal, write_config: Write, small: dict[str, Any], out: Path, layers: list[str]
) -> None:
    small["protection"] = [{"layer": layer} for layer in layers]
    line = refusal("audit", write_config(small), "--out", out)
    assert line.startswith(f"protection = '{' + '.join(layers)}': these layers do not stack")
    names = ", ".join(" + ".join(stack) or "none" for stack in STACKS)
    _, _, meant = line.partition(f"(choices: {names})")
    assert meant == "" or re.fullmatch("; is '.*' meant\\?", meant), line
    assert not out.exists()


def test_a_layer_is_stacked_once(
    refusal: Refusal, write_config: Write, small: dict[str, Any], out: Path
) -> None:
    small["protection"] *= 2
    line = refusal("audit", write_config(small), "--out", out)
    assert line.startswith("protection.layer = 'virtual-ratings': is stacked twice [")


def test_a_ring_too_small_for_the_cohort_names_the_fix(
    refusal: Refusal,
    command: Callable[..., tuple[int, str, str]],
    write_config: Write,
    small: dict[str, Any],
    out: Path,
) -> None:
    small["ring"] = {"bits": 16, "fraction_bits": 8, "clip": 64.0}
    line = refusal("audit", write_config(small), "--out", out)
    assert line.startswith("ring.bits = 16: 40 clients times clip 64 at 8 fraction bits")
    assert "set ring.fraction_bits to at most 3" in line
    assert not out.exists()
    small["ring"]["fraction_bits"] = 3  # the advice holds
    small["algorithm"]["rounds"] = 1
    assert command("train", write_config(small), "--quiet")[0] == 0


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("protection.colour=1", "protection.colour = 1: no table of [[protection]] has a key"),
        (
            "gates.reason=why",
            "gates.reason = 'why': 3 tables of [[gates]] may have a key 'reason', but none has: "
            "write it in the file",
        ),
        ("algorithm.colour=1", "algorithm.colour = 1: unknown key"),
        ("colour=1", "colour = 1: unknown key"),
        ("seed.first=1", "seed.first = 1: no such setting"),
        ("data.name.first=1", "data.name.first = 1: no such setting"),
        ("algorithm.rank=four", "algorithm.rank = 'four': should be a valid integer"),
        ("protection.rho=NaN", "protection.rho = nan: must be finite"),
        ("protection=none", "protection = 'none': must be a list of tables"),
    ],
)
def test_an_override_is_checked_like_the_file(
    refusal: Refusal,
    write_config: Write,
    small: dict[str, Any],
    out: Path,
    setting: str,
    problem: str,
) -> None:
    line = refusal("audit", write_config(small), "--out", out, "--set", setting)
    assert line.startswith(problem)
    assert not out.exists()


def test_a_tail_floor_against_an_active_server_is_refused_by_name(
    refusal: Refusal, write_config: Write, small: dict[str, Any], out: Path
) -> None:
    small["protection"] = [{"layer": "masking", "tail_floor": 5, "adversary": "active"}]
    line = refusal("audit", write_config(small), "--out", out)
    assert line.startswith("protection.adversary = 'active': a tail floor withstands a curious")
    assert "(choices: curious) [" in line
    assert not out.exists()
    # The same, said on the command line.
    words = ("--set", "protection.tail_floor=5", "--set", "protection.adversary=active")
    settings = {"layer": "masking", "tail_floor": 0, "adversary": "curious"}
    small["protection"] = [settings]
    line = refusal("audit", write_config(small), *words, "--out", out)
    assert "false count" in line
    assert not out.exists()
