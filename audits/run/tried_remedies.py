"""Tests the advice of a report: makes every change that it names, and runs the audit again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from audits.config.audit import parse_config
from audits.gates.gate import Outcome, documents_leak
from audits.gates.policy import Policy, applied
from audits.gates.verdict import FAIL, OPEN, Objection, decide, objections_to
from audits.report.endings import gates_at_risk, idle_gates, in_words, leaks
from audits.run.audit import audit
from secure_fedrec.errors import ConfigError, EncodingError

REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRemedy:
    """The result of one change.

    Args:
        change: in one line, as in reports.
        taken_out: gates that need what the change removes (exact sums, a documented leak that is
            gone, messages that are no longer sent), and adversaries that no longer see anything.
        outcome: of the audit under it ("pass", "fail", ...); "refused" where the configuration
            cannot be run with it.
        reasons: reasons of that verdict, or why it is refused.
        gone: attacks and adversaries whose findings the report promised to remove, and that are
            gone.
        left: those whose findings remain.
        opened: attacks and adversaries that learned nothing before, and learn something now.
        unforeseen: what falls or leaks now although the report did not warn of it.
        report: report of the audit under it; None where it is refused.
    """

    change: str
    taken_out: tuple[str, ...]
    outcome: str
    reasons: tuple[str, ...]
    gone: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    unforeseen: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """All fields except the report."""
        told = asdict(self)
        del told["report"]
        return told


def tried_remedies(
    report: Mapping[str, Any], *, data_dir: Path | None, progress: bool = True
) -> Iterator[TriedRemedy]:
    """Make every change of a report, one after the other, and audit the result.

    Args:
        report: a finished report, the content of ``report.json``.
        data_dir: where data sets lie.
        progress: whether to show progress bars on stderr.

    Raises:
        ConfigError, DataError: the configuration of the report itself can no longer be run.
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
    taken_out = [report["gates"][number]["name"] for number in idle_gates(report, remedy)]
    told = partial(TriedRemedy, change=in_words(remedy))
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
            ).report
        except (ConfigError, EncodingError) as refused:
            return told(taken_out=tuple(taken_out), outcome=REFUSED, reasons=(str(refused),))
    found, gone = _without_idle(found, remedy)
    before, after = _leaking(report), _leaking(found)
    said = [(each["attack"], each["adversary"]) for each in remedy["against"]]
    return told(
        taken_out=(*taken_out, *gone),
        outcome=found["verdict"]["outcome"],
        reasons=tuple(found["verdict"]["reasons"]),
        gone=tuple(_name(pair) for pair in said if pair not in after),
        left=tuple(_name(pair) for pair in said if pair in after),
        opened=tuple(_name(pair) for pair in after if pair not in before),
        unforeseen=tuple(each.text for each in _unforeseen(report, remedy, found)),
        report=found,
    )


def _leaking(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(each["attack"], each["adversary"]) for each in report["findings"] if leaks(each)]


def _name(pair: tuple[str, str]) -> str:
    return f"{pair[1]}/{pair[0]}"


def _without_idle(
    report: Mapping[str, Any], remedy: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[str]]:
    """A report judged again without idle gates and adversaries, and the names of these.

    Idle are gates that document a leak that no longer occurs, gates on attacks that have nothing to
    read after the change, and adversaries to which no attack applies any more.
    """
    measured = {
        (each["attack"], each["adversary"])
        for each in report["findings"]
        if each["status"] == "measured"
    }
    answered = {(each["attack"], each["adversary"]) for each in remedy["against"]}
    seen, leaking = {adversary for _, adversary in measured}, _leaking(report)
    blind = {adversary for _, adversary in answered if adversary not in seen}

    def is_idle(gate: Mapping[str, Any]) -> bool:
        whose = gate["attack"], gate["adversary"]
        if documents_leak(gate):
            return gate["outcome"] != Outcome.LEAK and whose not in leaking
        return gate["adversary"] in blind or (whose in answered and whose not in measured)

    idle = [number for number, gate in enumerate(report["gates"]) if is_idle(gate)]
    if not idle and not blind:
        return report, []

    def kept(gates: Sequence[Any]) -> list[Any]:
        return [each for number, each in enumerate(gates) if number not in idle]

    configuration = dict(report["configuration"])
    configuration["gates"] = kept(configuration["gates"])
    configuration["adversaries"] = [
        each for each in configuration["adversaries"] if each["name"] not in blind
    ]
    left = {
        **report,
        "configuration": configuration,
        "gates": kept(report["gates"]),
        "findings": [each for each in report["findings"] if each["adversary"] not in blind],
    }
    left.pop("policy", None)
    verdict = decide(objections_to(left), left)
    left["verdict"] = {
        **report["verdict"],
        "outcome": str(verdict.outcome),
        "exit_code": verdict.exit_code,
        "reasons": list(verdict.reasons),
    }
    names = [f"adversary {each}" for each in sorted(blind)]
    names += [report["gates"][number]["name"] for number in idle]
    return applied(left, Policy()), names


def _unforeseen(
    report: Mapping[str, Any], remedy: Mapping[str, Any], found: Mapping[str, Any]
) -> Iterator[Objection]:
    """New objections under a change that the report did not warn of.

    Not counted are gates that the clients are too few to decide, messages that no attack has read
    (the new report names them), and the absence of gates if the change removes what all of them
    need.
    """
    before = {(each.adversary, each.attack, each.metric) for each in objections_to(report)}
    warned = {(each["adversary"], each["attack"]) for each in remedy.get("open", ())}
    risky = {report["gates"][number]["name"] for number in gates_at_risk(report, remedy)}
    answered = {(each["adversary"], each["attack"]) for each in remedy["against"]}
    for each in objections_to(found):
        gate = None if each.gate is None else found["gates"][each.gate]
        whose = each.adversary, each.attack
        known = whose not in answered and (*whose, each.metric) in before
        undecided = gate is not None and each.state == OPEN and not documents_leak(gate)
        emptied = each.adversary is None and not found["gates"]
        unread = each.attack is None and each.gate is None and each.adversary is not None
        if unread:
            continue
        if known or undecided or emptied or whose in warned or (gate and gate["name"] in risky):
            continue
        if each.state in (FAIL, OPEN):
            yield each
