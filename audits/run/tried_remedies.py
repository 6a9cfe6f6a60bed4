"""Advice that was tried: every change that a report names is made, and the audit run again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from audits.config.audit import parse_config
from audits.report.endings import idle_gates, in_words
from audits.run.audit import audit
from secure_fedrec.errors import ConfigError, EncodingError

REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRemedy:
    """What came of a change.

    Args:
        change: in a line, as reports have it.
        taken_out: gates that ask for what the change takes away (``endings.idle_gates``).
        outcome: of the audit under it ("pass", "fail", ...); "refused" where the configuration
            cannot be run with it.
        reasons: of that verdict, or why it is refused.
        gone: attacks and adversaries that the report says it answers, and that it does.
        left: those that it does not.
    """

    change: str
    taken_out: tuple[str, ...]
    outcome: str
    reasons: tuple[str, ...]
    gone: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def tried_remedies(
    report: Mapping[str, Any], *, data_dir: Path | None, progress: bool = True
) -> Iterator[TriedRemedy]:
    """Make every change of a report, one after the other, and audit what it makes.

    Args:
        report: a finished report, the content of ``report.json``.
        data_dir: where data sets lie.
        progress: whether to show progress bars on stderr.

    Raises:
        ConfigError, DataError: the configuration of the report itself cannot be run any more.
    """
    parse_config(report["configuration"])
    for remedy in report.get("remedies", ()):
        yield _tried(report, remedy, data_dir=data_dir, progress=progress)


def changed(report: Mapping[str, Any], remedy: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a report, as JSON values, under one of its changes."""
    configuration, idle = report["configuration"], idle_gates(report, remedy)
    gates = [each for number, each in enumerate(configuration["gates"]) if number not in idle]
    algorithm = {"algorithm": remedy["algorithm"]} if "algorithm" in remedy else {}
    return {**configuration, **algorithm, remedy["key"]: remedy["value"], "gates": gates}


def _tried(
    report: Mapping[str, Any],
    remedy: Mapping[str, Any],
    *,
    data_dir: Path | None,
    progress: bool,
) -> TriedRemedy:
    taken_out = tuple(report["gates"][number]["name"] for number in idle_gates(report, remedy))
    told = partial(TriedRemedy, change=in_words(remedy), taken_out=taken_out)
    with TemporaryDirectory(prefix="secure-fedrec-") as folder:
        try:
            found = audit(
                parse_config(changed(report, remedy)),
                out=Path(folder) / "run",
                data_dir=data_dir,
                resume=False,
                command=["report", "--try-remedies"],
                progress=progress,
                formats=("json",),
            )
        except (ConfigError, EncodingError) as refused:
            return told(outcome=REFUSED, reasons=(str(refused),))
    leaking = {
        (each["attack"], each["adversary"])
        for each in found.report["findings"]
        if each["severity"] not in (None, "info")
    }
    said = [(each["attack"], each["adversary"]) for each in remedy["against"]]
    names = {pair: f"{pair[1]}/{pair[0]}" for pair in said}
    return told(
        outcome=str(found.verdict.outcome),
        reasons=found.verdict.reasons,
        gone=tuple(names[pair] for pair in said if pair not in leaking),
        left=tuple(names[pair] for pair in said if pair in leaking),
    )
