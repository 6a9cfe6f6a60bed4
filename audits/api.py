"""The functions of ``import audits``: run an audit, record a run, attack it.

The commands of the same names parse their arguments, call these functions and print the results.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attacks import attack_named
from attacks.planted.controls import positive_control
from audits.config.judged import recording_config
from audits.config.lines import source_of
from audits.gates.policy import Policy
from audits.gates.verdict import undecided, unrecorded
from audits.given import Config, RecordedRun, Run, configured, opened
from audits.options import LEVELS
from audits.report import FORMATS
from audits.report.reading import read_report
from audits.report.remedies import findings_json
from audits.results import AttackResult, AuditResult, SimulatedRun, formats_of, in_folder
from audits.run import audit as runner
from audits.run.build import require_parties
from audits.run.recording_audit import audit_recording
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import Withstood
from secure_fedrec.recording import Recording
from secure_fedrec.wire import Adversary

_PYTHON = ("python", "-c", "import audits; audits.audit(...)")
"""Shown in reports instead of a command line."""


def audit(
    config: Config | Recording,
    *,
    gates: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    adversaries: str | Sequence[str] | None = None,
    attacks: str | Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    fail_on: Sequence[str] = (),
    baseline: AuditResult | str | os.PathLike[str] | None = None,
    formats: str | Sequence[str] = FORMATS,
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
    command: Sequence[str] = _PYTHON,
) -> AuditResult:
    """Trains, records, attacks, judges, and writes a report, whatever its verdict.

    A recording that was made elsewhere is attacked and judged.

    Args:
        config: settings (``AuditConfig``), a dict as TOML gives it, the path of a TOML file or of a
            run's ``config.json``, or the name of a preset. A word that names both a file and a
            preset means the file, and a warning says so. Paths in a dict are relative to the
            working directory. Or a ``secure_fedrec.recording.Recording``.
        gates: for a recording: the tables "adversaries", "attacks", "gates" and "waivers" to judge
            it by, as a dict or the path of a TOML file.
        adversaries: for a recording: adversaries such as "server+client:3", in place of those in
            ``gates``.
        attacks: for a recording: the only attacks to run.
        out: run folder, which must be new or empty; None for a temporary one, which is removed with
            the result.
        data_dir: folder of the data sets; None for ``SECURE_FEDREC_DATA``, else the download cache.
        overrides: settings by dotted key, such as ``{"protection.rho": 2}``.
        resume: continue the run in ``out``.
        fail_on: what else fails the audit: a severity, with all worse ones, or "inconclusive".
        baseline: an earlier audit of the same system on the same data, whose findings are known: a
            result, a run folder or its ``report.json``.
        formats: formats of ``audits.report.WRITERS`` to write beside ``report.json``.
        progress: whether to show progress bars on standard error.
        tell: called with lines that say what is about to run.
        command: arguments that the report shows as its command line.

    Returns:
        The result. A returned result does not mean that the audit passed: see its ``holds``.

    Raises:
        TypeError: the configuration is of a kind that is not listed above.
        ConfigError: a setting or an argument is wrong; names the key, the value and the choices.
            For a folder it names the command's option, ``--out``.
        DataError: a file is missing or damaged, or the baseline is of another system.
        CheckpointError, TranscriptError: the run in ``out`` is damaged or was changed.
        MissingExtraError: an extra that the configuration needs is not installed.
        OSError: something could not be written; the run can be continued.
    """
    _require_folder(out, resume=resume)
    policy, asked = _policy(fail_on, baseline), formats_of(formats)
    if isinstance(config, Recording):
        if overrides or resume or data_dir is not None:
            named = {"overrides": overrides, "resume": resume, "data_dir": data_dir}
            key = next(name for name, value in named.items() if value)
            raise ConfigError(key, named[key], "applies to a configuration, not to a recording")
        judged = recording_config(gates, adversaries, attacks)
        source = None if gates is None or isinstance(gates, Mapping) else source_of(Path(gates))
        return in_folder(
            out,
            lambda folder: audit_recording(
                config,
                judged,
                out=folder,
                command=command,
                progress=progress,
                source=source,
                policy=policy,
                formats=asked,
            ),
        )
    for key, value in (("gates", gates), ("adversaries", adversaries), ("attacks", attacks)):
        if value is not None:
            raise ConfigError(key, value, "applies to a recording; a configuration names its own")
    found = configured(config, overrides or {})
    return in_folder(
        out,
        lambda folder: runner.audit(
            found.config,
            out=folder,
            data_dir=_path(data_dir),
            resume=resume,
            command=command,
            progress=progress,
            source=found.source,
            policy=policy,
            formats=asked,
            tell=tell or _silent,
        ),
    )


def simulate(
    config: Config,
    *,
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
) -> SimulatedRun:
    """Trains and records, and neither attacks nor judges.

    Args:
        config: as for ``audit``.
        out: run folder; None for a temporary one, which is removed with the result.
        data_dir: as for ``audit``.
        overrides: as for ``audit``.
        resume: continue the run in ``out``.
        progress: whether to show a progress bar on standard error.
        tell: called with a line that says what is about to run.

    Returns:
        The recorded run; ``attack`` takes it.

    Raises:
        TypeError, ConfigError, DataError, CheckpointError, TranscriptError, MissingExtraError,
        OSError: as ``audit`` does.
    """
    settings = configured(config, overrides or {}).config
    _require_folder(out, resume=resume)

    def made(folder: Path) -> SimulatedRun:
        run = runner.train(
            settings,
            out=folder,
            data_dir=_path(data_dir),
            resume=resume,
            progress=progress,
            tell=tell or _silent,
        )
        history = tuple(dict(each.metrics or {}) for each in run.history)
        return SimulatedRun(config=settings, folder=folder, history=history)

    return in_folder(out, made)


def attack(
    recording: Run,
    *,
    attacks: str | Sequence[str] | None = None,
    adversaries: str | Sequence[str | Adversary] | None = None,
    progress: bool = False,
) -> AttackResult:
    """Runs attacks on a recorded run, without training.

    Args:
        recording: the result of ``simulate`` or ``audit``, or the path of a run folder or of its
            ``transcript``.
        attacks: their names; None for those of the run's configuration.
        adversaries: names from the run's configuration, parties such as "server+denoisers", or
            ``Adversary``; None for all adversaries of the configuration.
        progress: whether to show a progress bar on standard error.

    Returns:
        The findings. Figures equal those of a whole audit of the run: an attack that runs alone has
        the same certain gains.

    Raises:
        TypeError: the recording is of a kind that is not listed above.
        ConfigError: an attack or a party is unknown, or a process is writing the run.
        CheckpointError, TranscriptError: the run is damaged, not finished, or lacks its truth.
    """
    with opened(recording) as found:
        config = found.config
        names = tuple(config.attacks if attacks is None else _several(attacks))
        for name in names:
            attack_named(name)
        who = _adversaries(found, adversaries)
        findings = runner.attack_all(
            found.transcript,
            found.truth,
            who,
            names,
            seed=config.seed,
            # The same confidence as in the whole audit.
            judged=len(config.adversaries) * len(config.attacks),
            bars=progress,
            workers=config.run.workers or 1,
        )
        controls = {name: positive_control(name) for name in names}
        told = findings_json(config, findings, controls, adversaries=who)
    reasons = (*undecided(told), *filter(None, map(unrecorded, told)))
    return AttackResult(findings=tuple(told), undecided=reasons, seed=config.seed)


def _adversaries(
    found: RecordedRun, asked: str | Sequence[str | Adversary] | None
) -> tuple[Adversary, ...]:
    """The adversaries of a recording.

    Raises:
        ConfigError: an adversary has a party that the federation does not have, or is outside all
            claims.
    """
    config, public = found.config, found.transcript.public
    if asked is None:
        return config.adversaries
    known = {each.name: each for each in config.adversaries}
    who = tuple(
        each if isinstance(each, Adversary) else known.get(each) or parties(each)
        for each in _several(asked)
    )
    require_parties(
        who,
        [Withstood(**claim) for claim in public.get("withstands", ())],
        n_clients=int(public["n_clients"]),
        denoisers=len(found.truth.denoiser_clients),
    )
    return who


def parties(text: str) -> Adversary:
    """The adversary with some parties, such as "server+denoisers".

    Raises:
        ConfigError: a party is unknown.
    """
    return Adversary(name=text, corrupt=frozenset(text.split("+")))


def _policy(
    fail_on: Sequence[str], baseline: AuditResult | str | os.PathLike[str] | None
) -> Policy:
    levels = _several(fail_on)
    for level in levels:
        if level not in LEVELS:
            raise ConfigError("fail_on", level, "unknown level", LEVELS)
    known = baseline.report if isinstance(baseline, AuditResult) else None
    if baseline is not None and not isinstance(baseline, AuditResult):
        known = read_report(Path(baseline))
    return Policy(fail_on=levels, baseline=known)


def _several(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str | Adversary) else tuple(given)


def _path(given: str | os.PathLike[str] | None) -> Path | None:
    return None if given is None else Path(given)


def _require_folder(out: str | os.PathLike[str] | None, *, resume: bool) -> None:
    if resume and out is None:
        raise ConfigError("resume", True, "needs the run folder, out")


def _silent(line: str) -> None:
    """By default nothing is printed."""
