"""What an audit will take, before it is begun: ``--dry-run`` and ``run.max_memory_gb``."""

import json
import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audits
from attacks import Finding
from audits.config.audit import parse_config
from audits.gates.gate import GateConfig
from audits.run import memory
from audits.run.build import build_federation, load_dataset
from audits.run.forecast import _training
from audits.run.memory import Crew, crews, memory_parts, training_parts
from audits.run.power import GatePower, gate_power
from secure_fedrec.engines.federated_problem import state_bytes
from secure_fedrec.evaluation.intervals import mean_interval, share_interval

Command = Callable[..., tuple[int, str, str]]
Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]

PRESETS = Path(audits.__file__).with_name("configs")
SHOWN = "pairs that uploads show (protection.rho, algorithm.rounds, run.workers)"


@pytest.fixture
def little_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package counts that tests before this one have loaded."""
    monkeypatch.setattr(memory, "_BESIDE", {})


def test_a_dry_run_says_what_it_will_take_and_leaves_nothing(
    write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    code, said, _ = command(
        "audit", write_config(small), "--out", out, "--dry-run", "--quiet", "--json"
    )
    told = json.loads(said)
    assert code == 0
    assert not out.exists()
    assert {"training", "plain twin", "attacks"} <= told["seconds"].keys()
    assert all(seconds >= 0 for seconds in told["seconds"].values())
    assert told["memory_gb"] > 0.2
    assert 0 < told["disk_gb"] < 0.1
    powers = {gate["gate"]: gate["least"] for gate in told["gates"]}
    assert powers["lossless == true"] is None
    assert 0.6 < powers["server/lattice: auc <= 0.6"] < 1.0


def test_the_folder_is_as_large_as_was_said(
    write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path
) -> None:
    config, out = write_config(small), tmp_path / "run"
    told = json.loads(command("audit", config, "--dry-run", "--quiet", "--json")[1])
    assert command("train", config, "--out", out, "--quiet")[0] == 0
    found = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    # What is said holds a megabyte for a report; of a small run that is most of it.
    assert found / 1.5 <= told["disk_gb"] * 1e9 <= 1.5 * (found + 1e6)


def test_so_is_one_of_large_private_tables(
    write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path
) -> None:
    """Found by attacking: vectors of clients, and the public table, were in no checkpoint."""
    small["data"] |= {"clients": 400, "mean_ratings": 10.0}
    small["algorithm"] |= {"rank": 256, "rounds": 2}
    small["recording"]["payload_rounds"] = []
    config, out = write_config(small | {"protection": [], "gates": []}), tmp_path / "run"
    told = json.loads(command("audit", config, "--dry-run", "--quiet", "--json")[1])
    assert command("train", config, "--out", out, "--quiet")[0] == 0
    found = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert found > 400 * 256 * 8
    assert found / 1.3 <= told["disk_gb"] * 1e9 <= 1.3 * (found + 2e5)


@pytest.mark.usefixtures("little_loaded")
def test_an_audit_above_its_limit_is_refused_with_what_to_change(
    write_config: Write, small: dict[str, Any], refusal: Refusal, tmp_path: Path
) -> None:
    small["run"]["max_memory_gb"] = 0.235
    small["data"] |= {"clients": 3000, "items": 3000, "mean_ratings": 200.0}
    out = tmp_path / "run"
    problem = refusal("audit", write_config(small), "--out", out)
    assert problem.startswith("run.max_memory_gb = 0.235: the audit would take about ")
    assert (
        "most of it for pairs that uploads show (protection.rho, algorithm.rounds, run.workers)"
        in problem
    )
    assert not out.exists()
    small["run"]["max_memory_gb"] = 0.001
    problem = refusal("audit", write_config(small), "--out", out)
    assert problem == "run.max_memory_gb = 0.001: no audit of this system takes less than 0.23 GB"


def test_a_limit_below_the_packages_of_a_system_says_so(refusal: Refusal, tmp_path: Path) -> None:
    """Found by attacking: it named settings that could not help, or that the system has not."""
    preset = PRESETS / "furl-quickstart.toml"
    words = ("audit", preset, "--out", tmp_path / "run", "--set")
    least = refusal(*words, "run.max_memory_gb=0.25")
    assert re.search(r"no audit of this system takes less than 0\.[345]\d GB$", least)
    assert "rank" not in refusal(*words, "run.max_memory_gb=0.434")


@pytest.mark.usefixtures("little_loaded")
def test_a_training_above_its_limit_is_refused_as_well(
    write_config: Write, small: dict[str, Any], refusal: Refusal, command: Command, tmp_path: Path
) -> None:
    small["data"] |= {"clients": 3000, "items": 3000, "mean_ratings": 200.0}
    small["run"]["workers"] = 1  # so that there are none to do without
    parsed = parse_config(small)
    federation = build_federation(parsed, (data := load_dataset(parsed, None)).task(data.folds[0]))
    whole, training = (
        sum(parts.values()) for parts in (memory_parts(federation), training_parts(federation))
    )
    assert training < 0.9 * whole
    small["run"]["max_memory_gb"] = (whole + training) / 2e9  # the attacks would not fit
    config, out = write_config(small), tmp_path / "run"
    assert "the audit would take about" in refusal("audit", config, "--out", out)
    assert command("train", config, "--set", "algorithm.rounds=1", "--out", out, "--quiet")[0] == 0
    problem = refusal("train", config, "--set", "run.max_memory_gb=0.235", "--out", tmp_path / "2")
    assert problem.startswith("run.max_memory_gb = 0.235: the training would take about ")
    assert not (tmp_path / "2").exists()


def test_as_many_processes_share_the_work_as_memory_has_room_for(
    write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path
) -> None:
    small["run"]["workers"] = 4

    def attackers() -> tuple[Crew, float]:
        config = parse_config(small)
        dataset = load_dataset(config, None)
        federation = build_federation(config, dataset.task(dataset.folds[0]))
        return crews(federation)[1], sum(memory_parts(federation).values()) / 1e9

    unlimited, whole = attackers()
    assert (unlimited.workers, unlimited.lowered) == (4, None)
    once, each = (sum(part.values()) / 1e9 for part in (unlimited.once, unlimited.each))
    assert whole == pytest.approx(once + 4 * each)
    for room, workers in ((4.5, 4), (2.5, 2), (0.5, 1)):
        small["run"]["max_memory_gb"] = once + room * each
        found, needed = attackers()
        assert (found.workers, found.lowered is None) == (workers, workers == 4)
        assert needed == pytest.approx(once + workers * each)
    small["run"]["max_memory_gb"] = once + 2.5 * each
    _, _, told = command("audit", write_config(small), "--out", tmp_path / "run", "--quiet")
    lowered = "run.max_memory_gb has room for 2 of 4 processes that would share the attacks"
    assert told.splitlines().count(lowered) == 1


def test_memory_grows_with_what_uploads_show(small: dict[str, Any]) -> None:
    """More rounds of fresh virtual items show more pairs, up to all of them; none without."""
    found = []
    for rounds, layers in ((2, True), (20, True), (2000, True), (20, False)):
        small["algorithm"]["rounds"] = rounds
        config = parse_config(small if layers else small | {"protection": []})
        dataset = load_dataset(config, None)
        federation = build_federation(config, dataset.task(dataset.folds[0]))
        parts = memory_parts(federation)
        found.append(
            parts["pairs that uploads show (protection.rho, algorithm.rounds, run.workers)"]
        )
    few, many, most, none = found
    assert none < few < many < most <= 40 * 60 * 200


def test_words_are_those_of_the_uploads_and_pass_where_nobody_keeps_them() -> None:
    """Found by attacking: of PFedRec counted as many rows as it has positives, and always."""
    preset = tomllib.loads((PRESETS / "furl-quickstart.toml").read_text())
    told = {"algorithm": {"name": "pfedrec", "rounds": 2}, "attacks": ["intersection"], "gates": []}
    base = preset | told | {"data": {"name": "synthetic", "clients": 60, "items": 200}}

    def words(payload_rounds: list[int], *layers: dict[str, Any]) -> float:
        recording = {"payload_rounds": payload_rounds}
        config = parse_config(base | {"recording": recording, "protection": list(layers)})
        dataset = load_dataset(config, None)
        federation = build_federation(config, dataset.task(dataset.folds[0]))
        _, problem, _ = federation.fresh()
        assert problem.vault.example_counts().sum() < 60 * 200 / 4
        parts = crews(federation)[0].each
        return next(size for name, size in parts.items() if name.startswith("words"))

    masking = {"layer": "masking", "min_survivors": 50}
    assert words([1]) > 3 * 8 * 32 * 60 * 200 / 4
    assert words([1], masking) >= 3 * 8 * 33 * 60 * 200
    assert words([]) == words([3]) == words([], masking | {"execution": "simulated"}) == 0
    assert words([], masking | {"execution": "real"}) == words([1], masking)


@pytest.mark.parametrize("preset", ["quickstart", "furl-quickstart", "hpfl-quickstart"])
def test_private_tables_are_counted_before_there_are_any(preset: str) -> None:
    config = parse_config(tomllib.loads((PRESETS / f"{preset}.toml").read_text()))
    dataset = load_dataset(config, None)
    federation = build_federation(config, dataset.task(dataset.folds[0]))
    algorithm, problem, _ = federation.fresh()
    counted = state_bytes(algorithm, problem)
    assert not problem.vault.tables()
    algorithm.initialise(problem.vault, federation.streams)
    assert counted == sum(values.nbytes for values in problem.vault.tables().values()) > 0


@pytest.mark.parametrize("protection", [[], [{"layer": "masking", "min_survivors": 50}]])
def test_a_table_among_flat_parameters_shows_every_pair(protection: list[dict[str, Any]]) -> None:
    """Found by attacking: of FURL's item table as many rows counted as its vector is cut into."""
    preset = PRESETS / "furl-quickstart.toml"
    config = parse_config({**tomllib.loads(preset.read_text()), "protection": protection})
    dataset = load_dataset(config, None)
    parts = crews(build_federation(config, dataset.task(dataset.folds[0])))[1].each
    assert parts[SHOWN] == 60 * 200 * (180 + 12)


def test_memory_is_that_of_the_clients_who_are_invited(small: dict[str, Any]) -> None:
    """A tenth of the clients holds about a tenth of the words, and has shown fewer pairs."""
    small["protection"] = []

    def parts(clients_per_round: int | None) -> dict[str, float]:
        small["cohort"] = {"clients_per_round": clients_per_round} if clients_per_round else {}
        config = parse_config(small)
        dataset = load_dataset(config, None)
        trainers, attackers = crews(build_federation(config, dataset.task(dataset.folds[0])))
        return {**trainers.each, **attackers.each}

    everybody, few = parts(None), parts(small["data"]["clients"] // 10)
    words, pairs = (
        next(name for name in everybody if name.startswith(start)) for start in ("words", "pairs")
    )
    assert few[words] == pytest.approx(everybody[words] / 10, rel=0.05)
    assert few[pairs] < everybody[pairs]


@pytest.mark.parametrize("limited", ["cohort", "senders"])
def test_a_gate_sees_the_clients_that_are_recorded(
    limited: str, write_config: Write, small: dict[str, Any], command: Command, tmp_path: Path
) -> None:
    """As many as the audit then has behind its figures, not all of the federation."""
    small["data"]["clients"] = 100
    small["algorithm"]["rounds"] = 12
    if limited == "cohort":
        small["cohort"] = {"clients_per_round": 20}
    else:
        small["recording"]["payload_senders"] = [0, 1, 2]
    config, out = write_config(small), tmp_path / "run"
    told = json.loads(command("audit", config, "--dry-run", "--quiet", "--json")[1])
    (gate,) = (each for each in told["gates"] if each["gate"].startswith("server/lattice"))
    command("audit", config, "--out", out, "--quiet")
    report = json.loads((out / "report.json").read_text())
    found = {(each["attack"], each["adversary"]): each for each in report["findings"]}
    lattice = found["lattice", "server"]
    behind = lattice["units"]["clients"]
    assert behind < 20
    assert gate["least"] is None
    assert gate["clients"] <= 1.5 * behind + 3


@pytest.mark.parametrize(
    ("spent", "more", "expected"),
    [
        ([5.0, 9.0, 1.0], [], (4.0, 1.0, 16.0)),
        ([5.0, 9.0, 1.0], [1.0, 4.0], (3.0, 2.0, 14.0)),
        ([5.0, 1.0], [], (4.0, 1.0, 0.0)),
        ([5.0], [], (0.0, 5.0, 0.0)),
        ([1.0, 2.0, 3.0], [], (0.0, 3.0, 0.0)),
    ],
)
def test_a_round_that_is_recorded_is_no_usual_one(
    spent: list[float], more: list[float], expected: tuple[float, ...]
) -> None:
    """The second of three rounds tried is; two of twenty are to be."""
    assert tuple(_training(spent, more, rounds=20, kept=2)) == expected


@pytest.mark.parametrize(("metric", "clients"), [("support_auc", 60), ("linked_share", 200)])
def test_what_a_gate_sees_it_decides_in_four_of_five_runs(
    small: dict[str, Any], metric: str, clients: int
) -> None:
    """Clients that differ as much as they can: each is a hit or a miss."""
    small["data"]["clients"] = clients
    small["recording"]["payload_rounds"] = [1]
    config = parse_config(small)
    dataset = load_dataset(config, None)
    federation = build_federation(config, dataset.task(dataset.folds[0]))
    gate = GateConfig(metric=metric, attack="lattice", adversary="server", max=0.5)
    least = gate_power(gate, federation).least
    assert least is not None
    hits = np.random.default_rng(1).binomial(clients, least, size=2000)
    lows = {number: share_interval(number, clients).low for number in np.unique(hits).tolist()}
    decided = np.mean([lows[number] > 0.5 for number in hits.tolist()])
    assert 0.75 < decided < 0.9
    error = GateConfig(metric="histogram_error", attack="lattice", adversary="server", min=0.5)
    mirrored = gate_power(error, federation).least
    assert mirrored is not None
    assert math.isclose(mirrored, 1.0 - least, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("attack", "cohort", "payloads", "tried", "seen", "clients"),
    [
        ("lattice", {}, [2, 4], [4], 31, 31),  # as many as there are, where everybody is invited
        ("intersection", {}, [2], [1, 2, 4, 6], 31, 31),
        ("direct", {"clients_per_round": 10}, [2, 4], [1], 10, 10),  # one round by nature
        ("lattice", {"clients_per_round": 10}, [2, 4], [4], 10, 10),  # tried on each, one counts
        ("lattice", {"clients_per_round": 10, "everybody_in": [4]}, [2, 3], [4], 40, 10),
        ("lattice", {"clients_per_round": 10, "everybody_in": [2]}, [2, 4], [4], 10, 40),
        ("intersection", {"clients_per_round": 10, "everybody_in": [7]}, [2], [1, 4], 20, 40),
        ("intersection", {"clients_per_round": 10}, [2], [1, 2, 4, 6], 20, 27),  # 30 (1 - (1/3)^2)
        (
            "subset-regression",
            {"clients_per_round": 10},
            [2, 4, 5],
            [4],
            10,
            21,
        ),
    ],
)
def test_more_rounds_show_more_clients_where_not_all_are_invited(
    attack: str,
    cohort: dict[str, Any],
    payloads: list[int],
    tried: list[int],
    seen: int,
    clients: int,
    small: dict[str, Any],
) -> None:
    """Of 40 clients in eight rounds; the fourth was tried with payloads.

    Ten are denoisers, where there are layers: not beside rounds of everybody.
    """
    small["data"]["clients"], small["algorithm"]["rounds"] = 40, 8
    small["cohort"], small["recording"]["payload_rounds"] = cohort, payloads
    layers = "everybody_in" not in cohort
    config = parse_config(small if layers else small | {"protection": []})
    dataset = load_dataset(config, None)
    federation = build_federation(config, dataset.task(dataset.folds[0]))
    assert len(federation.denoiser_clients) == (10 if layers else 0)
    gate = GateConfig(metric="auc", attack=attack, adversary="server", max=0.5)
    found = Finding(
        attack=attack,
        adversary="server",
        game="",
        rounds=tuple(tried),
        figures={"auc": 0.9},
        units={"clients": seen},
    )
    assert abs(gate_power(gate, federation, [found], 4).clients - clients) <= 1
    nothing = replace(found, reason="the view holds no uploads")
    power = gate_power(gate, federation, [nothing], 4)
    assert (power.clients, power.least, power.reason) == (0, None, nothing.reason)


@pytest.mark.parametrize(("clients", "bound"), [(30, 0.1), (60, 0.1), (30, 0.2)])
def test_a_gate_that_few_clients_cannot_hold_says_which_they_can(
    small: dict[str, Any], clients: int, bound: float
) -> None:
    """A gain of 0 of every one of them ends inconclusive under a lower bound."""
    small["data"]["clients"] = clients
    small["recording"]["payload_rounds"] = [1]
    config = parse_config(small)
    dataset = load_dataset(config, None)
    federation = build_federation(config, dataset.task(dataset.folds[0]))

    def power(metric: str, most: float) -> GatePower:
        gate = GateConfig(metric=metric, attack="lattice", adversary="server", max=most)
        return gate_power(gate, federation)

    upper = mean_interval(np.zeros(clients), seed=0, span=2.0).high
    found = power("precision_gain", bound)
    assert (found.holds is None) == (bound >= upper)
    if found.holds is not None:
        assert found.holds == pytest.approx(upper)
        assert power("precision_gain", found.holds).holds is None
    assert power("auc", bound).holds is None
    assert power("exact_clients", 0.0).least == 1.0
