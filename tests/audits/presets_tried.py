"""Every shipped preset audited, and each change that its report names, made and audited again.

    python -m tests.audits.presets_tried OUT [--quick] [--rounds N] [--record] [PRESET ...]

prints one Markdown table. What a preset came to is kept in OUT as it is done and not run again.
``--quick`` is the small form on generated data of ``stand_ins``; ``--rounds`` cuts longer runs, and
their rows say so. ``--record`` runs nothing: rows that lie in OUT take the place of those of the
record, and the page of presets has the table of all.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from audits.config.audit import AuditConfig, load_config
from audits.gates.figures import figures_of, grades
from audits.presets import PRESETS, QUICKSTART
from audits.run.audit import audit
from audits.run.tried_remedies import TriedRemedy, tried_remedies
from tests.audits.stand_ins import STAND_INS

DOCS = Path(__file__).parents[2] / "docs"
RECORD, PAGE = DOCS / "presets-tried.json", DOCS / "reference" / "presets.md"
BEGIN, END = "<!-- tried: begin -->\n", "<!-- tried: end -->\n"
HEADS = ("preset", "verdict", "who is exposed", "change", "then", "falls or opens", "costs")


def configured(
    preset: str,
    *,
    quick: bool,
    rounds: int | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> AuditConfig:
    """A preset as it ships, or on its stand-in, and changed; its rounds cut where they are more."""
    path = QUICKSTART.with_stem(preset)
    changes = {**(STAND_INS.get(preset, {}) if quick else {}), **changes}
    config = load_config(path, changes)
    if rounds is not None and config.algorithm.rounds > rounds:
        config = load_config(path, {**changes, "algorithm.rounds": rounds})
    return config


def report_of(config: AuditConfig, data_dir: Path | None = None) -> dict[str, Any]:
    """The report of an audit whose folder is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        found = audit(
            config,
            out=Path(folder) / "run",
            data_dir=data_dir,
            resume=False,
            command=["audit"],
            progress=False,
            formats=("json",),
        )
    return dict(found.report)


def row_of(
    preset: str, config: AuditConfig
) -> tuple[dict[str, Any], dict[str, Any], list[TriedRemedy]]:
    """What a preset and its changes came to, as JSON values; its report; the changes in full."""
    report = report_of(config)
    tried = list(tried_remedies(report, data_dir=None, progress=False))
    shipped = load_config(QUICKSTART.with_stem(preset)).algorithm.rounds
    row = {
        "preset": preset,
        "data": report["data"]["name"],
        "clients": report["data"]["clients"],
        "rounds": config.algorithm.rounds,
        "shipped_rounds": shipped,
        **_told(report),
        "changes": [
            {
                "change": each.change,
                "lossless": remedy["lossless"],
                "bytes_up_per_round": remedy["bytes_up_per_round"],
                "outcome": each.outcome,
                "taken_out": list(each.taken_out),
                **{name: list(getattr(each, name)) for name in ("left", "opened", "unforeseen")},
                "reasons": list(each.reasons),
                "falls": [] if each.report is None else _falls(each.report),
                **({} if each.report is None else _told(each.report)),
            }
            for remedy, each in zip(report["remedies"], tried, strict=True)
        ],
    }
    return row, report, tried


def _told(report: Mapping[str, Any]) -> dict[str, Any]:
    """Verdict, who is exposed, utility and epsilon of a report."""
    exposed = [figures_of(each).get("clients_exposed", 0.0) for each in report["findings"]]
    epsilons = [each["epsilon"] for each in report["protection"]["privacy"]]
    return {
        "verdict": report["verdict"]["outcome"],
        "clients_exposed": int(max(exposed, default=0.0)),
        "judged": list(_judged(report)),
        "utility": {name: round(value, 4) for name, value in report["utility"]["mean"].items()},
        "epsilon": max((each for each in epsilons if each is not None), default=None),
    }


def _judged(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Figures above ``info`` that a gate is on."""
    found = {(each["adversary"], each["attack"]): each for each in report["findings"]}
    for gate in report["gates"]:
        finding = found.get((gate["adversary"], gate["attack"]))
        grade = finding and grades(finding).get(gate["metric"])
        if grade:
            whose = {key: gate[key] for key in ("adversary", "attack", "metric")}
            yield {**whose, "value": round(float(gate["value"]), 4), "severity": grade}


def _falls(report: Mapping[str, Any]) -> list[str]:
    """Gates that do not hold, by name and outcome."""
    return [
        f"{gate['name']} ({gate['outcome']})"
        for gate in report["gates"]
        if gate["outcome"] in ("fail", "inconclusive")
    ]


def kept_rows(
    out: Path, presets: Iterable[str], *, quick: bool, rounds: int | None
) -> Iterator[dict[str, Any]]:
    """Rows by preset, each kept in ``out`` once it is done."""
    out.mkdir(parents=True, exist_ok=True)
    for preset in presets:
        place = out / f"{preset}.json"
        if not place.exists():
            started = time.monotonic()
            config = configured(preset, quick=quick, rounds=rounds)
            row, *_ = row_of(preset, config)
            row["seconds"] = round(time.monotonic() - started)
            place.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
            print(f"{preset}: {row['verdict']}, {row['seconds']} s", flush=True)
        yield json.loads(place.read_text(encoding="utf-8"))


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows in Markdown: a line for each change, and one for a preset without any."""
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for row in rows:
        first = [f"`{row['preset']}`{_cut(row)}", row["verdict"], _exposed(row)]
        changes = [_cells(row, each) for each in row["changes"]] or [["none is named", *[""] * 3]]
        for cells in changes:
            lines.append(f"| {' | '.join([*first, *cells])} |")
            first = ["", "", ""]
    return "\n".join(lines) + "\n"


def _cut(row: Mapping[str, Any]) -> str:
    rounds, shipped = row["rounds"], row["shipped_rounds"]
    return "" if rounds >= shipped else f" ({rounds} of {shipped} rounds)"


def _exposed(row: Mapping[str, Any]) -> str:
    """Clients that are exposed beyond doubt, and figures above ``info`` under a gate."""
    several = len({each["adversary"] for each in row["judged"]}) > 1
    told = [f"{row['clients_exposed']} of {row['clients']}"]
    for each in row["judged"]:
        if each["metric"] != "clients_exposed":
            whose = f"{each['adversary']}/" * several + each["attack"]
            told.append(f"{whose} `{each['metric']}` {_number(each['value'])}")
    return "; ".join(told)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _cells(row: Mapping[str, Any], change: Mapping[str, Any]) -> list[str]:
    name = change["change"].partition(" = ")[2]
    key = "" if change["change"].startswith("protection") else "in bags: "
    if "utility" not in change:
        return [f"{key}{name}", change["outcome"], "; ".join(change["reasons"]), ""]
    wrong = [*change["falls"], *(f"{each} leaks" for each in change["opened"])]
    if change["clients_exposed"]:
        wrong.append(f"{change['clients_exposed']} of {row['clients']} exposed")
    costs = [] if change["lossless"] else ["exact sums"]
    for metric, value in change["utility"].items():
        before = row["utility"].get(metric)
        if value != before:
            costs.append(f"{metric} {_number(before)} → {_number(value)}")
    if change["epsilon"] is not None:
        costs.append(f"ε = {_number(change['epsilon'])}")
    return [key + name, change["outcome"], "; ".join(wrong), "; ".join(costs) or "nothing"]


def recorded() -> list[dict[str, Any]]:
    """Rows of the record."""
    rows: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return rows


def section(rows: Sequence[Mapping[str, Any]]) -> str:
    """What stands between the marks of the page."""
    missing = [f"`{preset}`" for preset in PRESETS if preset not in {row["preset"] for row in rows}]
    left = ""
    if missing:
        left = f"\nNot in the table, because their runs take longer: {', '.join(missing)}.\n"
    return f"\n{table(rows)}{left}\n"


def record(out: Path) -> None:
    """Put rows that are kept into the record, and its table into the page."""
    rows = {row["preset"]: row for row in (recorded() if RECORD.exists() else ())}
    for place in out.glob("*.json"):
        rows[place.stem] = json.loads(place.read_text(encoding="utf-8"))
    told = [rows[preset] for preset in PRESETS if preset in rows]
    RECORD.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + section(told) + END + rest.partition(END)[2], "utf-8")


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="where rows are kept")
    parser.add_argument("presets", nargs="*", metavar="PRESET", help="these alone")
    parser.add_argument("--quick", action="store_true", help="on small generated data")
    parser.add_argument("--rounds", type=int, metavar="N", help="no run has more rounds")
    parser.add_argument("--record", action="store_true", help="keep the rows of OUT; run nothing")
    options = parser.parse_intermixed_args(words)
    if options.record:
        record(options.out)
        return
    rows = kept_rows(
        options.out,
        options.presets or PRESETS,
        quick=options.quick,
        rounds=options.rounds,
    )
    print(table(list(rows)), end="")


if __name__ == "__main__":
    main()
