"""Runs the shipped audits and draws README's table from their reports.

Run from the repository, with SECURE_FEDREC_DATA set:

    python docs/shipped_audits.py --results DIR [--write] [PRESET ...]

An audit whose report lies in DIR is not run again, unless its configuration or the program changed;
``--write`` puts the outcomes into README.md, which keeps its first two columns. Runs take about an
hour together on two cores.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from audits.config import parse_config
from audits.report.text import decimal, interval

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "audits" / "configs"
README = ROOT / "README.md"
ROW = re.compile(r"^\| `([\w-]+)` \|([^|]+)\| ([^|]+) \|$", re.MULTILINE)
WORDS = {"pass": "passes", "fail": "fails"}
SHOWN = 2
"""Gates that a row names at most."""


def report_of(preset: str, results: Path) -> Mapping[str, Any]:
    """The report of a preset, from an audit that is run now unless it lies there."""
    config, out = CONFIGS / f"{preset}.toml", results / preset
    if not (out / "report.json").exists():
        command = [sys.executable, "-m", "audits.cli", "audit", str(config), "--out", str(out)]
        code = subprocess.run([*command, "--quiet"], check=False, cwd=ROOT).returncode  # noqa: S603
        if code not in {0, 1, 3}:
            raise SystemExit(f"{preset} ended with exit code {code}")
    report: Mapping[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    wanted = parse_config(tomllib.loads(config.read_text(encoding="utf-8"))).digest()
    if report["manifest"]["config_sha256"] != wanted:
        raise SystemExit(f"{out} holds an audit of another configuration: remove it")
    return report


def outcome(report: Mapping[str, Any]) -> str:
    """README's third column: the verdict, what decided it, and the utility."""
    verdict = report["verdict"]["outcome"]
    gates = [gate for gate in report["gates"] if gate["metric"] not in {"lossless", "epsilon"}]
    deciding = [gate for gate in gates if gate["outcome"] == verdict and gate["attack"]]
    if verdict == "fail":
        deciding.sort(key=lambda gate: gate["threshold"] - gate["value"])
    figures, seen = [], set()
    for gate in deciding:
        if (gate["metric"], gate["attack"]) not in seen and len(figures) < SHOWN:
            seen.add((gate["metric"], gate["attack"]))
            figures.append(figure(gate))
    mean = report["utility"]["mean"]
    quality = [f"{name.upper()} {decimal(mean[name])}" for name in ("rmse",) if name in mean]
    return f"{WORDS.get(verdict, verdict)}: " + "; ".join(figures + quality)


def figure(gate: Mapping[str, Any]) -> str:
    """What a gate saw: ``server, direct: precision_gain 0.493 [0.485, 0.502]``."""
    span = interval(gate["low"], gate["high"])
    name = f"{gate['adversary']}, {gate['attack']}: {gate['metric']}"
    return f"{name} {decimal(gate['value'])}" + (f" {span}" if span else "")


def main() -> None:
    """Run what is missing and show or write the rows."""
    parser = argparse.ArgumentParser(description="Runs the shipped audits, draws README's table.")
    parser.add_argument("presets", nargs="*", metavar="PRESET")
    parser.add_argument("--results", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--write", action="store_true", help="put the outcomes into README.md")
    options = parser.parse_args()
    readme = README.read_text(encoding="utf-8")
    named = [name for name, _, _ in ROW.findall(readme) if (CONFIGS / f"{name}.toml").exists()]
    stated = {}
    for preset in tqdm(options.presets or named, desc="auditing", unit="audit"):
        stated[preset] = outcome(report_of(preset, options.results))
    for preset, text in stated.items():
        print(f"{preset}: {text}")
    if options.write:
        README.write_text(
            ROW.sub(
                lambda row: (
                    f"| `{row[1]}` |{row[2]}| {stated[row[1]]} |" if row[1] in stated else row[0]
                ),
                readme,
            ),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
