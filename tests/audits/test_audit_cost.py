"""What a report says a run cost: everything that travelled, and how that is known."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from audits import peak_memory
from audits.peak_memory import peak_bytes
from audits.report import report_schema

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]


@pytest.fixture
def cost_of(
    small: dict[str, Any], command: Command, write_config: Write, tmp_path: Path
) -> Callable[..., tuple[dict[str, Any], str]]:
    """Cost block and page of an audit over layers."""

    def audited(name: str, *layers: dict[str, Any]) -> tuple[dict[str, Any], str]:
        small["algorithm"]["rounds"] = 2
        small["recording"]["payload_rounds"] = [1]
        small["adversaries"] = [{"name": "server", "corrupt": ["server"]}]
        small["run"]["check_lossless"] = False
        small["cohort"] = {"clients_per_round": 12}
        small.update(protection=list(layers), attacks=["direct"], gates=[])
        folder = tmp_path / name
        code, _, err = command("audit", write_config(small), "--out", folder, "--quiet")
        assert code in {0, 3}, err
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        schema = report_schema()
        jsonschema.Draft202012Validator(schema).validate(report)
        cost: dict[str, Any] = report["cost"]
        return cost, (folder / "report.html").read_text(encoding="utf-8")

    return audited


def by_role(cost: dict[str, Any], name: str) -> dict[str, float]:
    """What all parties of each role moved in a round together."""
    return {role["role"]: role["parties"] * role[name] for role in cost["roles"]}


@pytest.mark.parametrize(
    "layer",
    [
        {"layer": "masking"},
        {"layer": "paillier", "key_bits": 2048},
        {"layer": "paillier", "key_bits": 2048, "holder": "clients"},
    ],
    ids=["masking", "authority", "clients"],
)
def test_simulated_costs_are_those_of_a_real_run(
    cost_of: Callable[..., Any], layer: dict[str, Any]
) -> None:
    plain, _ = cost_of("plain")
    real, page = cost_of("real", layer | {"execution": "real"})
    simulated, _ = cost_of("simulated", layer)
    assert real["protocol"]["basis"] == "measured"
    assert simulated["protocol"]["basis"] == "computed"
    assert real["protocol"]["messages"] == simulated["protocol"]["messages"] > 0
    assert real["total_messages"] == simulated["total_messages"]
    assert real["total_bytes"] <= simulated["total_bytes"] < 1.02 * real["total_bytes"]
    assert real["total_messages"] - plain["total_messages"] == real["protocol"]["messages"]
    assert "and every message of it counted" in page
    assert "(measured)" in page
    assert ("Authority" in page) == (layer["layer"] == "paillier" and "holder" not in layer)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells it")
def test_memory_is_that_of_the_processes_that_share_the_work() -> None:
    """Found by attacking: whoever started the program was counted, and of workers the largest."""
    program = """
import subprocess, sys, time
import numpy as np
from audits.peak_memory import peak_bytes
from audits.run.workers import shared_out
if sys.argv[1] == "starts":  # holds a lot, and goes on with what is small
    held = np.ones(10**8)
    ended = subprocess.run([sys.executable, *sys.argv[2:]], stdout=subprocess.PIPE, check=True)
    sys.exit(sys.stdout.write(ended.stdout.decode()) and 0)
several = int(sys.argv[1]) > 1
shared = np.ones(2 * 10**7)  # 160 MB, once
def work(number):
    own = np.full(10**7, number)  # 80 MB each
    time.sleep(1.5 if several else 0)  # so that all hold theirs at once
    return int(own.sum() + shared.sum() > 0)
print(peak_bytes() / 1e6)
shared_out(work, 3, workers=int(sys.argv[1]))
print(peak_bytes() / 1e6)
"""

    def told(*words: str) -> list[float]:
        ended = subprocess.run(  # noqa: S603
            [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
        )
        return [float(line) for line in ended.stdout.split()]

    alone, one = told("1")
    assert 160 < alone < 400
    assert one - alone == pytest.approx(80, abs=25)
    before, three = told("3")
    assert before == pytest.approx(alone, abs=25)
    assert three - before == pytest.approx(240, abs=60)
    assert told("starts", "-c", program, "1") == pytest.approx([alone, one], abs=25)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells it")
def test_looks_at_memory_wait_for_each_other_and_do_without_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by attacking: every crew began with a look, and old systems counted nothing."""
    clock, asked, figure = [100.0], list[str](), peak_memory._figure

    def without_shares(name: str, key: str) -> int | None:
        asked.append(name)
        return None if key == "Pss" else figure(name, key)

    monkeypatch.setattr(peak_memory, "monotonic", lambda: clock[0])
    monkeypatch.setattr(peak_memory, "_due", 0.0)
    monkeypatch.setattr(peak_memory, "_figure", without_shares)
    monkeypatch.setattr(peak_memory, "_LARGEST_TOGETHER", {})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        for _ in range(20):  # crews of a moment
            peak_memory.look_at([other.pid, 2**22 + 1])
        other.communicate(b"\n")
    assert len(asked) == 6
    together = peak_memory._LARGEST_TOGETHER[os.getpid()]
    assert together > (figure("self/status", "VmRSS") or 0) * 0.9 > 0
    clock[0] += 0.49
    peak_memory.look_at([])
    assert len(asked) == 6
    clock[0] += 60.0
    peak_memory.look_at([])
    assert len(asked) == 8


def test_an_audit_tells_what_it_held(cost_of: Callable[..., Any]) -> None:
    cost, _ = cost_of("run")
    assert cost["peak_memory_mb"] == pytest.approx(peak_bytes() / 1e6, rel=0.2)


def test_all_that_is_sent_is_received(cost_of: Callable[..., Any]) -> None:
    layer = {"layer": "paillier", "key_bits": 2048, "execution": "real"}
    cost, _ = cost_of("run", layer)
    up, down = by_role(cost, "bytes_up_per_round"), by_role(cost, "bytes_down_per_round")
    assert up["server"] == pytest.approx(up["ordinary client"] + up["authority"])
    assert down["server"] == pytest.approx(down["ordinary client"] + down["authority"])
    assert cost["total_bytes"] == pytest.approx(2 * (up["server"] + down["server"]))


def test_a_run_without_a_protocol_has_nothing_beside_its_uploads(
    cost_of: Callable[..., Any],
) -> None:
    cost, page = cost_of("plain")
    assert cost["protocol"] | {"statement": ""} == {
        "basis": None,
        "messages": 0,
        "bytes": 0,
        "statement": "",
    }
    assert "No layer sends anything in addition to uploads" in page
    assert "Beside uploads and public tables:" not in page
