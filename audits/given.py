"""The arguments that functions of ``audits`` accept, and how they are resolved.

Only two functions dispatch by type: ``configured`` finds a configuration, ``opened`` a recording.
Further kinds of configurations or recordings are registered with them.
"""

import copy
import os
import reprlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any, TypeAlias

from attacks import GroundTruth
from audits.config.audit import AuditConfig, fields_of, load_config, parse_config
from audits.config.lines import source_of
from audits.config.overrides import override
from audits.presets import PRESETS, preset_file
from audits.results import AuditResult, SimulatedRun
from audits.run.folder import unwritten
from audits.run.recorded import recorded_truth
from secure_fedrec.errors import ConfigError
from secure_fedrec.wire import Transcript

Config: TypeAlias = AuditConfig | Mapping[str, Any] | str | os.PathLike[str]
"""A configuration: settings, a table as TOML gives it, a path, or the name of a preset."""

Run: TypeAlias = AuditResult | SimulatedRun | str | os.PathLike[str]
"""A recorded run: a result with a folder, or the path of one or of its ``transcript``."""

_CONFIGS = (
    "an AuditConfig, a dict of settings as TOML gives it, the path of a TOML file or of a run's "
    "config.json, or the name of a preset (secure-fedrec init lists them)"
)
_RUNS = "an AuditResult, a SimulatedRun, or the path of a run folder or of its transcript"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A resolved configuration.

    Args:
        config: its settings.
        source: its file, for reports (``audits.config.lines.source_of``); None without a file
            written by the user.
    """

    config: AuditConfig
    source: Mapping[str, Any] | None = None


@singledispatch
def configured(given: object, overrides: Mapping[str, Any]) -> Configured:
    """Resolve a configuration.

    Args:
        given: see ``Config``. If a word names both a file and a preset, the file is read, and a
            warning says so.
        overrides: dotted key -> value, as ``--set`` has them.

    Raises:
        TypeError: the argument has another type.
        ConfigError: a setting is wrong, or there is neither a file nor a preset of that name.
        DataError: the file cannot be read.
    """
    raise TypeError(f"a configuration is {_CONFIGS}; this is {_kind_of(given)}")


def _kind_of(given: object) -> str:
    """A description of an unusable argument, shortened if it is long."""
    return f"a {type(given).__name__}: {reprlib.repr(given)}"


@configured.register
def _settings(given: AuditConfig, overrides: Mapping[str, Any]) -> Configured:
    if not overrides:
        return Configured(config=given)
    return Configured(config=_parsed(given.as_json(), overrides, given.folder))


@configured.register(Mapping)
def _table(given: Mapping[str, Any], overrides: Mapping[str, Any]) -> Configured:
    return Configured(config=_parsed(copy.deepcopy(dict(given)), overrides, Path()))


@configured.register(os.PathLike)
def _path(given: "os.PathLike[str]", overrides: Mapping[str, Any]) -> Configured:
    path = Path(given)
    return Configured(config=load_config(path, overrides), source=source_of(path))


@configured.register
def _word(given: str, overrides: Mapping[str, Any]) -> Configured:
    is_preset = given in PRESETS
    if Path(given).is_file():
        if is_preset:
            told = f"{given!r} names a file here and a preset: the file is read"
            warnings.warn(f"{told}; pass a Path to avoid this warning", stacklevel=4)
        return _path(Path(given), overrides)
    if not is_preset:
        raise ConfigError("config", given, "is neither a file nor a preset", PRESETS)
    return Configured(config=load_config(preset_file(given), overrides))


def _parsed(raw: dict[str, Any], overrides: Mapping[str, Any], folder: Path) -> AuditConfig:
    for key, value in overrides.items():
        override(raw, key, value, fields_of)
    return parse_config(raw, folder=folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """What attacks need from a finished run.

    Args:
        config: config of the run: its adversaries and attacks are used if no others are named.
        transcript: what every party saw.
        truth: what claims are scored against.
    """

    config: AuditConfig
    transcript: Transcript
    truth: GroundTruth


@singledispatch
def opened(given: object) -> AbstractContextManager[RecordedRun]:
    """Open a recording, and lock it against writers.

    Args:
        given: see ``Run``.

    Raises:
        TypeError: the argument has another type.
        ConfigError: a process is writing it.
        CheckpointError, TranscriptError: it is damaged, not finished, or lacks its truth.
    """
    raise TypeError(f"a recorded run is {_RUNS}; this is {_kind_of(given)}")


@opened.register
def _result(given: AuditResult) -> AbstractContextManager[RecordedRun]:
    return _recording(given.folder)


@opened.register
def _simulated(given: SimulatedRun) -> AbstractContextManager[RecordedRun]:
    return _recording(given.folder)


@opened.register(os.PathLike)
@opened.register(str)
def _run_folder(given: "str | os.PathLike[str]") -> AbstractContextManager[RecordedRun]:
    return _recording(Path(given))


@contextmanager
def _recording(path: Path) -> Iterator[RecordedRun]:
    """The recording of a run folder, or of the transcript in one."""
    folder = path if (path / "transcript").is_dir() else path.parent
    transcript = Transcript.open(folder / "transcript" if folder is path else path)
    with unwritten(folder):
        config, truth = recorded_truth(folder, transcript)
        yield RecordedRun(config=config, transcript=transcript, truth=truth)
