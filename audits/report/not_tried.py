"""What an audit did not try: by kind, in the words of page one.

A verdict covers only the attacks that ran, on what was recorded. ``attacks.suite.UNATTACKED`` lists
what no attack of the suite does; the rest follows from the report.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attacks.scoring.measures import MEASURES
from attacks.suite import UNATTACKED
from audits.gates.verdict import unread
from audits.report.text import count
from secure_fedrec.errors import NOT_STATED

Report = Mapping[str, Any]

KINDS: Mapping[str, str] = {
    "no attack": "what no attack of the suite does",
    "no adversary": "views and knowledge that no adversary of the configuration has",
    "no payloads": "rounds and senders whose payloads were not recorded",
    "unread": "messages that reach an adversary and that no attack has read",
    "raised": "attacks that raised an error",
    "evidence": "attacks that lacked payloads which were sent and not recorded",
    "knowledge": "attacks that need a fact which is not stated",
    "extra": "attacks that would have searched further with an extra that is not installed",
    "nothing to read": "attacks that found nothing to read in any view",
    "switched off": "attacks of this algorithm that the configuration leaves out",
}
"""The meaning of each kind, in the order in which they are reported."""

_LACKING: Mapping[str, str] = {
    "raised": "that raised an error: {}",
    "evidence": "on all that was sent: {}",
    "knowledge": "without a fact that they need: {}",
    "extra": "without an extra that is not installed: {}",
    "nothing to read": "with nothing to read: {}",
    "switched off": "switched off: {}",
}


def not_tried(report: Report, *, rounds: int, denoisers: bool) -> list[dict[str, Any]]:
    """What an audit did not try.

    Args:
        report: with its configuration and findings.
        rounds: rounds of the whole run.
        denoisers: whether the federation has denoisers.

    Returns:
        Kind, words, and the names of the attacks concerned.
    """
    told: list[tuple[str, str, list[str]]]
    told = [("no attack", words, []) for words in _unattacked(report["findings"])]
    told += [("no adversary", f"views of {who}", []) for who in _unseen(report, denoisers)]
    known = {each["details"].get("vectors_known_beforehand") for each in report["findings"]}
    if known - {None} == {0}:
        told.append(("no adversary", "private vectors that are known beforehand", []))
    told += [("no payloads", words, []) for words in _unrecorded(report["configuration"], rounds)]
    for adversary, names in unread(report["findings"]).items():
        told.append(("unread", f"messages to {adversary}: {', '.join(names)}", []))
    by_kind: dict[str, list[str]] = {kind: [] for kind in _LACKING}
    for attack, kind in _lacking(report):
        if attack not in by_kind[kind]:
            by_kind[kind].append(attack)
    told += [
        (kind, _LACKING[kind].format(", ".join(attacks)), attacks)
        for kind, attacks in by_kind.items()
        if attacks
    ]
    return [{"kind": kind, "text": text, "attacks": attacks} for kind, text, attacks in told]


def not_tried_line(report: Report) -> str:
    """All of it in one line; empty for reports of earlier versions."""
    told: Sequence[Mapping[str, Any]] = report.get("not_tried", ())
    return "; ".join(map(_short, told))


def _short(told: Mapping[str, Any]) -> str:
    """The short form for the line: attacks with nothing to read are only counted."""
    attacks = len(told["attacks"])
    if told["kind"] == "nothing to read":
        return f"{attacks} {'attack' if attacks == 1 else 'attacks'} with nothing to read"
    return f"attacks {told['text']}" if attacks else str(told["text"])


def attacks_that_ran(report: Report) -> int:
    """How many attacks were measured, by any adversary."""
    return len({each["attack"] for each in _measured(report["findings"])})


def _measured(findings: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    return (each for each in findings if each["status"] == "measured")


def _unattacked(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What no attack does, or no attack of this audit did."""
    told = {
        MEASURES[key].secret
        for finding in _measured(findings)
        for key in MEASURES.keys() & {**finding["details"], **finding}.keys()
    }
    for words, secret in UNATTACKED.items():
        if secret is None or secret not in told:
            yield words


def _unseen(report: Report, denoisers: bool) -> Iterator[str]:
    """Parties of roles that no adversary corrupts."""
    adversaries = report["configuration"].get("adversaries", ())
    corrupt = {party for each in adversaries for party in each["corrupt"]}
    roles = {party.partition(":")[0].removesuffix("s") for party in corrupt}
    parties = {"server": "the server", "client": "clients", "denoiser": "denoisers"}
    for role, who in parties.items():
        if role not in roles and (denoisers or role != "denoiser"):
            yield who


def _unrecorded(configuration: Mapping[str, Any], rounds: int) -> Iterator[str]:
    recording = configuration["recording"]
    kept = sum(round_ <= rounds for round_ in recording["payload_rounds"])
    if kept < rounds:
        yield f"payloads of {count(rounds - kept)} of {count(rounds)} rounds"
    if recording.get("payload_senders") is not None:
        yield f"payloads of all senders but {count(len(recording['payload_senders']))}"
    for words in recording.get("left_out", ()):
        yield f"{words}, which the recording leaves out"


def _lacking(report: Report) -> Iterator[tuple[str, str]]:
    """Attacks that did not run fully, each with the kind of what it lacked."""
    measured = {each["attack"] for each in _measured(report["findings"])}
    for finding in report["findings"]:
        attack, reason = finding["attack"], finding["reason"] or ""
        if finding.get("raised") is not None:
            yield attack, "raised"
        elif NOT_STATED in reason:
            yield attack, "knowledge"
        elif finding.get("lacks"):
            yield attack, "evidence"
        elif finding.get("not_installed"):
            yield attack, "extra"
        elif attack not in measured:
            yield attack, "nothing to read"
    for attack in report.get("switched_off", ()):
        yield attack, "switched off"
