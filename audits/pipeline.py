"""What a pipeline asks: ``report`` and ``compare``, and the policy that ``audit`` shares."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import groupby
from typing import Any

from attacks import SUITE
from audits import comparison
from audits.comparison import FEWEST_PAIRS, runs_of
from audits.gates.gate import Outcome
from audits.gates.policy import Policy, applied, objections
from audits.gates.verdict import KNOWN, WAIVED
from audits.report import write_report
from audits.report.reading import read_report, report_file
from audits.report.text import decimal, signed
from audits.run.folder import CONFIG_NAME, unwritten
from audits.terminal import print_json
from secure_fedrec.errors import ConfigError, DataError

_SHOWN = 60
"""Characters of a setting that a comparison prints."""


def policy_of(arguments: argparse.Namespace) -> Policy:
    """The policy that options ask for.

    Raises:
        DataError: the baseline is missing or damaged.
    """
    return Policy(
        fail_on=arguments.fail_on,
        baseline=None if arguments.baseline is None else read_report(arguments.baseline),
    )


def report(arguments: argparse.Namespace) -> int:
    """``report RESULT``: the files of a report, from a run that is over.

    What is written is the verdict as it was reached; with ``--fail-on`` or ``--baseline`` it is
    reached anew, waivers as of today, and the exit code is that of the verdict.
    """
    if arguments.try_remedies:
        return _try_remedies(arguments)
    policy, folder = policy_of(arguments), report_file(arguments.result).parent
    judges = bool(policy.fail_on or policy.baseline)
    with unwritten(folder) if (folder / CONFIG_NAME).exists() else nullcontext():
        found = read_report(arguments.result)
        if judges:
            found = applied(found, policy)
        formats = [name for name in arguments.formats if judges or arguments.out or name != "json"]
        files = write_report(found, arguments.out or folder, formats)
    if arguments.json:
        print_json({name: str(path) for name, path in files.items()})
    else:
        for path in files.values():
            print(path)
    if not judges:
        return 0
    print_verdict(found)
    return int(found["verdict"]["exit_code"])


def _try_remedies(arguments: argparse.Namespace) -> int:
    """What the changes of a report come to; the exit code is 0 if one of them passes, else 3."""
    from audits.run.tried_remedies import tried_remedies  # noqa: PLC0415 - else nothing is trained

    found = read_report(arguments.result)
    if found["manifest"].get("plugins") and not arguments.result.is_dir():
        problem = "names plug-ins, which a report alone has not imported: give its run folder"
        raise DataError(arguments.result, problem)
    verdict, tried = found["verdict"], []
    if not arguments.json:
        print(f"as it is: {verdict['outcome']}")
    each_tried = tried_remedies(found, data_dir=arguments.data_dir, progress=not arguments.quiet)
    for number, each in enumerate(each_tried, start=1):
        tried.append(each.as_json())
        if arguments.json:
            continue
        print(f"{number}. {_one_line(each.change)}: {each.outcome}", flush=True)
        for words in ("taken_out", "gone", "left", "opened", "unforeseen"):
            if told := getattr(each, words):
                print(f"   {words.replace('_', ' ')}: {', '.join(told)}")
        for reason in each.reasons:
            print(f"   {each.outcome}: {_one_line(reason)}")
    if arguments.json:
        print_json({"verdict": verdict["outcome"], "tried": tried})
    elif not tried:
        print("the report names no change")
    return 0 if any(each["outcome"] == Outcome.PASS for each in tried) else 3


def print_verdict(found: Mapping[str, Any]) -> None:
    """Say on stderr what the verdict is, and why, and what is excused."""
    verdict = found["verdict"]
    for reason in verdict["reasons"] if verdict["exit_code"] else ():
        print(f"  {verdict['outcome']}: {_one_line(reason)}", file=sys.stderr)
    print_policy(found)
    print(f"verdict: {verdict['outcome']} (exit code {verdict['exit_code']})", file=sys.stderr)


def print_policy(found: Mapping[str, Any]) -> None:
    """Say what is excused, and which waivers excuse nothing."""
    for each in objections(found):
        if each.state in (WAIVED, KNOWN):
            print(f"  {each.state}: {_one_line(each.text)}", file=sys.stderr)
    for waiver in found.get("policy", {}).get("waivers", ()):
        if waiver["state"] == "unused":
            whose = f"{waiver['owner']} for {waiver['adversary']}/{waiver['attack']}"
            told = f"the waiver of {_one_line(whose)} excuses nothing: take it out"
            print(f"  note: {told}", file=sys.stderr)


def _one_line(text: str) -> str:
    """A text of a report in which no line can pass for one of ours."""
    return " ".join(text.split())


def _require_known(accept: Sequence[str], reports: Sequence[Mapping[str, Any]]) -> None:
    """Refuse an attack that is not shipped, and that no report has.

    Raises:
        ConfigError: there is one.
    """
    ran = [each["attack"] for report in reports for each in report["findings"]]
    known = [comparison.LOSSLESS, *(f"{comparison.ATTACK}{name}" for name in (*SUITE, *ran))]
    for name in accept:
        if name not in known:
            raise ConfigError("--accept", name, "is unknown", dict.fromkeys(known))


def compare(arguments: argparse.Namespace) -> int:
    """``compare A B``: what has got worse from A to B beyond its noise."""
    if not arguments.tolerance > 0:
        raise ConfigError("--tolerance", arguments.tolerance, "must be positive")
    before, after = (runs_of(result) for result in (arguments.before, arguments.after))
    accept = tuple(arguments.accept)
    _require_known(accept, (*before.values(), *after.values()))
    found = comparison.compare(before, after, tolerance=arguments.tolerance, accept=accept)
    if arguments.json:
        told = [asdict(each) | {"key": each.key._asdict()} for each in found.differences]
        pairs = {"seeds": found.seeds, "unpaired": found.unpaired}
        rate: dict[str, Any] = {"error_rate": comparison.ERROR_RATE, "exit_code": found.exit_code}
        rate["verdict"] = found.verdict
        changes = [each._asdict() for each in found.changes]
        print_json({**pairs, **rate, "changes": changes, "figures": told})
        return found.exit_code
    for change in found.changes:
        print(f"{'changed':13} {change.key}: {_shown(change.before)} to {_shown(change.after)}")
    for line in _lines(found, whole=arguments.all):
        print(line)
    same, judged = len(found.of(comparison.SAME)), len(found.differences)
    print(f"{same} of {judged} figures are the same within their noise")
    seeds = ", ".join(map(str, found.seeds))
    if len(found.seeds) < FEWEST_PAIRS:
        print(
            f"seeds {seeds}: the clients alone tell the noise, and a figure that leaves it is "
            f"undecided; {FEWEST_PAIRS} pairs of seeds decide"
        )
    else:
        print(
            f"seeds {seeds}: of comparisons of equal systems, at most {comparison.ERROR_RATE:.0%} "
            "call any figure worse, where noise has one peak"
        )
    sys.stdout.flush()
    if found.unpaired:
        print(f"  note: one side alone has seeds {found.unpaired}", file=sys.stderr)
    for name in accept:
        if not any(_is_about(each, name) for each in found.of(comparison.ACCEPTED)):
            print(f"  note: --accept {name} accepts nothing: take it out", file=sys.stderr)
    print(f"verdict: {found.verdict} (exit code {found.exit_code})")
    return found.exit_code


def _is_about(each: comparison.Difference, name: str) -> bool:
    return name in (f"{comparison.ATTACK}{each.key.attack}", each.key.metric)


def _shown(value: Any) -> str:
    """A setting on one line, cut where it is long."""
    text = "absent" if value is None else _one_line(json.dumps(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _lines(found: comparison.Comparison, *, whole: bool) -> Iterator[str]:
    """Figures that changed; those that an attack has no more stand on one line, unless whole."""
    for (outcome, adversary, attack, why), alike in groupby(found.differences, _lost_with):
        told = list(alike)
        if outcome in (comparison.LOST, comparison.GONE) and attack and not whole:
            figures = ", ".join(each.key.metric for each in told)
            yield f"{outcome:13} {adversary}/{attack}: {why or figures}"
        elif outcome != comparison.SAME or whole:
            yield from (f"{_change(each)}{f' ({why})' if why else ''}" for each in told)


def _lost_with(each: comparison.Difference) -> tuple[str, str, str, str]:
    return each.outcome, each.key.adversary, each.key.attack, _one_line(each.reason)


def _change(each: comparison.Difference) -> str:
    if each.before is None or each.after is None:
        return f"{each.outcome:13} {each.key}"
    change = f"{decimal(each.before)} to {decimal(each.after)}"
    if each.low is None or each.high is None:
        return f"{each.outcome:13} {each.key}: {change}"
    span = f"[{signed(each.low)}, {signed(each.high)}]"
    return (
        f"{each.outcome:13} {each.key}: {change}, change {signed(each.after - each.before)} {span}"
    )
