"""Assertions about a federation: that an attack stays within bounds, that sums are exact.

    from audits.testing import assert_no_leak

    def test_the_server_cannot_rank_what_clients_rated(recorded_run):
        assert_no_leak(recorded_run, attack="lattice", adversary="server", max_auc=0.6)

``assert_lossless`` and ``assert_split_personalization`` are those of ``secure_fedrec.properties``.
``audits.pytest_plugin`` gives the fixture ``recorded_run``. Modules that take long to import are
imported on demand.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from attacks import Finding
    from audits.config.audit import AuditConfig
    from audits.gates.gate import GateConfig, GateResult
    from audits.results import AuditResult, SimulatedRun
    from secure_fedrec.properties import assert_lossless, assert_split_personalization
    from secure_fedrec.recording import Recording
    from secure_fedrec.wire import Adversary

    Audited: TypeAlias = (
        AuditResult
        | SimulatedRun
        | Recording
        | AuditConfig
        | Mapping[str, Any]
        | str
        | os.PathLike[str]
    )

__all__ = ["assert_lossless", "assert_no_leak", "assert_split_personalization"]


def __getattr__(name: str) -> Any:
    """The assertions that are handed on."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from secure_fedrec import properties  # noqa: PLC0415

    return getattr(properties, name)


def assert_no_leak(
    audited: "Audited",
    *,
    attack: str,
    adversary: "str | Adversary",
    data_dir: str | os.PathLike[str] | None = None,
    **bounds: float,
) -> None:
    """Fails unless an attack by an adversary stays within bounds, as a gate would judge it.

    A bound holds if the worse end of the figure's 95 % interval meets it; a figure without an
    interval is judged by its value. What was not measured does not hold: an attack that did not
    apply, a figure that the data cannot support, fewer clients than a gate needs, a control that
    failed, payloads that were not recorded.

    Args:
        audited: a result of ``audits.audit``, whose findings are judged; a result of
            ``audits.simulate``, the fixture ``recorded_run``, a run folder or a ``Recording`` of a
            loop of one's own, which is attacked; or a configuration (settings, a dict, a path, the
            name of a preset), which is trained and attacked once per call.
        attack: name of the attack.
        adversary: whose view: a name of the configuration, parties such as "server+denoisers", or
            an ``Adversary``, which a result must have as it is, not by its name alone. A recording
            does not have a seed.
        data_dir: where data sets lie, if something is trained.
        bounds: ``max_FIGURE``, or ``min_FIGURE`` of a figure that is worse the lower it is, for the
            figures that ``secure-fedrec explain`` knows: ``max_auc=0.6``.

    Raises:
        AssertionError: a bound does not hold; the message names the adversary, the attack, the
            figure, its value and limit, and the seed that repeats it.
        TypeError: an object of this type cannot be audited.
        ConfigError: no bound, an unknown figure, one that cannot fall, a wrong setting, or an
            adversary that the result does not have, or that a recording cannot show.
        DataError, TranscriptError, CheckpointError: as ``audits.audit`` and ``audits.attack`` do.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    from audits.gates.gate import Outcome, judge  # noqa: PLC0415

    who = adversary if isinstance(adversary, str) else adversary.name
    gates = _gates(attack, who, bounds)
    found, seed = _finding(audited, attack, adversary, data_dir)
    doubts = _doubts(found)
    judged = [judge(gate, findings=[_as_found(found)], utility={}, lossless=None) for gate in gates]
    broken = [_words(each) for each in judged if each.outcome is not Outcome.PASS]
    if broken or doubts:
        told = "\n  ".join((*broken, *doubts))
        raise AssertionError(f"{who}/{attack}, seed {seed}:\n  {told}\n{_again(who, attack, seed)}")


def _gates(attack: str, adversary: str, bounds: Mapping[str, float]) -> "list[GateConfig]":
    """A gate for each bound.

    Raises:
        ConfigError: gates are missing, or one is not a gate.
    """
    from attacks.scoring.measures import MEASURES  # noqa: PLC0415
    from audits.config.tables import build  # noqa: PLC0415
    from audits.gates.gate import GateConfig  # noqa: PLC0415
    from secure_fedrec.errors import ConfigError  # noqa: PLC0415

    if not bounds:
        raise ConfigError("max_FIGURE", None, "give at least one bound", MEASURES)
    gates = []
    for name, value in bounds.items():
        end, _, figure = name.partition("_")
        if end not in ("max", "min"):
            raise ConfigError(name, value, "unknown argument", ("max_FIGURE", "min_FIGURE"))
        if figure not in MEASURES:
            raise ConfigError(name, figure, "unknown figure", MEASURES)
        asked = {"metric": figure, "attack": attack, "adversary": adversary, end: value}
        gates.append(build(GateConfig, "gates", asked))
    return gates


def _finding(
    audited: "Audited",
    attack: str,
    adversary: "str | Adversary",
    data_dir: str | os.PathLike[str] | None,
) -> tuple[Mapping[str, Any], int]:
    """The finding that is asked for, as reports have it, and the seed of its run."""
    from attacks import attack_named  # noqa: PLC0415
    from audits import api  # noqa: PLC0415
    from audits.config.tables import as_table  # noqa: PLC0415
    from audits.given import configured  # noqa: PLC0415
    from audits.results import AuditResult, SimulatedRun  # noqa: PLC0415
    from secure_fedrec.recording import Recording  # noqa: PLC0415

    who = adversary if isinstance(adversary, str) else adversary.name
    if isinstance(audited, AuditResult):
        found = _of_report(audited, attack, who)
        if not isinstance(adversary, str):
            _require_same(audited, adversary)
        return found, audited.seed
    attack_named(attack)
    if isinstance(audited, Recording):
        judged = {"adversaries": [as_table(_of_recording(adversary))]}
        told = api.audit(audited, gates=judged, attacks=attack, data_dir=data_dir, formats=())
        return _of_report(told, attack, who), told.seed
    run: Any = audited
    if not (isinstance(audited, SimulatedRun) or _is_run(audited)):
        config = configured(audited, {}).config
        if isinstance(adversary, str) and adversary not in (e.name for e in config.adversaries):
            api.parties(adversary)  # checked before the training, which may take hours
        run = api.simulate(config, data_dir=data_dir)
    tried = api.attack(run, attacks=attack, adversaries=[adversary])
    return tried.findings[0], tried.seed


def _require_same(audited: "AuditResult", asked: "Adversary") -> None:
    """Refuse an adversary that has another's name: the findings are about the audit's adversary.

    Raises:
        ConfigError: the adversary differs.
    """
    from audits.config.tables import as_table, build  # noqa: PLC0415
    from secure_fedrec.errors import ConfigError  # noqa: PLC0415
    from secure_fedrec.wire import Adversary  # noqa: PLC0415

    tables = audited.report["configuration"]["adversaries"]
    table = next((each for each in tables if each["name"] == asked.name), None)
    if table is None or build(Adversary, "adversaries", table) != asked:
        problem = (
            "is another adversary than the one of this name in the audit, "
            f"{'which it does not describe' if table is None else dict(table)}: "
            "ask for that one, or give the run, which is attacked"
        )
        raise ConfigError("adversary", as_table(asked), problem)


def _of_recording(asked: "str | Adversary") -> "Adversary":
    """The adversary of a recording of a loop of one's own.

    Raises:
        ConfigError: it knows the seed, which does not apply to such a recording.
    """
    from audits import api  # noqa: PLC0415
    from secure_fedrec.errors import ConfigError  # noqa: PLC0415

    adversary = api.parties(asked) if isinstance(asked, str) else asked
    if adversary.knows:
        problem = "a recording holds nothing that follows from a seed: give a configuration or run"
        raise ConfigError("adversary.knows", sorted(adversary.knows), problem)
    return adversary


def _is_run(audited: Any) -> bool:
    """Whether it is the path of a run folder; a configuration in one is a file."""
    with suppress(TypeError):
        return Path(audited).is_dir()
    return False


def _of_report(audited: "AuditResult", attack: str, adversary: str) -> Mapping[str, Any]:
    """A finding of a report.

    Raises:
        ConfigError: the audit has no such adversary or attack.
    """
    from secure_fedrec.errors import ConfigError  # noqa: PLC0415

    found = audited.report["findings"]
    for key, asked in (("adversary", adversary), ("attack", attack)):
        known = dict.fromkeys(each[key] for each in found)
        if asked not in known:
            raise ConfigError(key, asked, "is not of this audit", known)
    return next(
        each for each in found if (each["attack"], each["adversary"]) == (attack, adversary)
    )


def _doubts(finding: Mapping[str, Any]) -> list[str]:
    """Why a finding that was measured proves nothing, in words."""
    from audits.gates.verdict import undecided, unrecorded  # noqa: PLC0415

    if finding["status"] != "measured":
        return []  # every gate on it reports this
    lacks = unrecorded(finding), finding["not_installed"]
    return [f"undecided: {each}" for each in (*undecided([finding]), *lacks) if each]


def _as_found(finding: Mapping[str, Any]) -> "Finding":
    """A finding of a report, as far as gates judge it."""
    from attacks import Finding  # noqa: PLC0415
    from audits.gates.figures import figures_of  # noqa: PLC0415

    names = ("attack", "adversary", "game", "reason", "units")
    return Finding(**{name: finding[name] for name in names}, figures=figures_of(finding))


def _words(result: "GateResult") -> str:
    """The result of a gate: figure, value and limit."""
    from audits.gates.gate import Outcome  # noqa: PLC0415

    gate = result.gate
    limit = f"{gate.metric} {'<=' if gate.bound == 'max' else '>='} {getattr(gate, gate.bound):g}"
    fell = result.outcome is Outcome.FAIL
    return f"{limit} {'does not hold' if fell else 'is undecided'}: {result.reason}"


def _again(adversary: str, attack: str, seed: int) -> str:
    return f"repeat it with seed = {seed}: adversary {adversary!r}, attack {attack!r}"
