"""Commands for pipelines: ``report`` and ``compare``, and the policy that ``audit`` shares."""

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
    """The policy from command-line options.

    Raises:
        DataError: the baseline is missing or damaged.
    """
    return Policy(
        fail_on=arguments.fail_on,
        baseline=None if arguments.baseline is None else read_report(arguments.baseline),
    )


def report(arguments: argparse.Namespace) -> int:
    """``report RESULT``: write the files of a report for a finished run.

    The verdict is written as it was decided; with ``--fail-on`` or ``--baseline`` it is decided
    anew, with waivers as of today. The exit code is that of the verdict.
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
    """Try the changes of a report; the exit code is 0 if one of them passes, else 3."""
    from audits.run.tried_remedies import tried_remedies  # noqa: PLC0415 - else nothing is trained

    found = read_report(arguments.result)
    if found["manifest"].get("plugins") and not arguments.result.is_dir():
        problem = (
            "names plug-ins, which are not imported for a report without its run folder: "
            "give the run folder"
        )
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
        print("the report does not advise a change")
    return 0 if any(each["outcome"] == Outcome.PASS for each in tried) else 3


def print_verdict(found: Mapping[str, Any]) -> None:
    """Print on stderr the verdict, its reasons, and what is excused."""
    verdict = found["verdict"]
    for reason in verdict["reasons"] if verdict["exit_code"] else ():
        print(f"  {verdict['outcome']}: {_one_line(reason)}", file=sys.stderr)
    print_policy(found)
    print(f"verdict: {verdict['outcome']} (exit code {verdict['exit_code']})", file=sys.stderr)


def print_policy(found: Mapping[str, Any]) -> None:
    """Print what is excused, and which waivers excuse nothing."""
    for each in objections(found):
        if each.state in (WAIVED, KNOWN):
            print(f"  {each.state}: {_one_line(each.text)}", file=sys.stderr)
    for waiver in found.get("policy", {}).get("waivers", ()):
        if waiver["state"] == "unused":
            whose = f"{waiver['owner']} for {waiver['adversary']}/{waiver['attack']}"
            told = f"the waiver of {_one_line(whose)} excuses nothing: remove it"
            print(f"  note: {told}", file=sys.stderr)


def _one_line(text: str) -> str:
    """A text of a report on one line, so that it cannot imitate a line of this command."""
    return " ".join(text.split())


def _require_known(accept: Sequence[str], reports: Sequence[Mapping[str, Any]]) -> None:
    """Refuse an attack that is neither shipped nor in a report.

    Raises:
        ConfigError: an attack is neither shipped nor in a report.
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
            f"seeds {seeds}: the noise is known from clients only, so a figure outside it is "
            f"undecided; {FEWEST_PAIRS} pairs of seeds decide"
        )
    else:
        print(
            f"seeds {seeds}: of comparisons of equal systems, at most {comparison.ERROR_RATE:.0%} "
            "call any figure worse, where noise has one peak"
        )
    sys.stdout.flush()
    if found.unpaired:
        print(f"  note: only one side has seeds {found.unpaired}", file=sys.stderr)
    for name in accept:
        if not any(_is_about(each, name) for each in found.of(comparison.ACCEPTED)):
            print(f"  note: --accept {name} has no effect: remove it", file=sys.stderr)
    print(f"verdict: {found.verdict} (exit code {found.exit_code})")
    return found.exit_code


def _is_about(each: comparison.Difference, name: str) -> bool:
    return name in (f"{comparison.ATTACK}{each.key.attack}", each.key.metric)


def _shown(value: Any) -> str:
    """A setting on one line, cut where it is long."""
    text = "absent" if value is None else _one_line(json.dumps(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _lines(found: comparison.Comparison, *, whole: bool) -> Iterator[str]:
    """Figures that changed; figures that an attack no longer has share a line, unless ``whole``."""
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
