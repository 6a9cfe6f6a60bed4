"""What the functions of ``audits`` return: an audit, attacks on a recording, a recorded run.

A result without a given folder has a temporary one, which is removed when the result object is
deleted or the interpreter ends.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

from attacks.scoring.measures import MEASURES
from audits.config.audit import AuditConfig
from audits.gates.figures import figure_of
from audits.gates.gate import Outcome
from audits.gates.verdict import Verdict
from audits.report import FORMATS, WRITERS, write_report
from audits.run.folder import CONFIG_NAME, unwritten
from secure_fedrec.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("adversary", "attack", "severity", "figure", "value", "low", "high", "status", "reason"),
)
"""Columns of the frames that results return."""

ResultT = TypeVar("ResultT", bound="AuditResult | SimulatedRun")


def findings_frame(findings: Sequence[Mapping[str, Any]]) -> "pd.DataFrame":
    """Figures of findings, one row each.

    Args:
        findings: as ``report.json`` has them.

    Returns:
        A frame with the columns of ``COLUMNS``. ``severity`` is the finding's; ``value``, ``low``
        and ``high`` are float64, NaN where a figure has no interval. A finding without any figure
        has one row, its ``figure`` None and its ``value`` NaN.
    """
    import pandas as pd  # noqa: PLC0415 - only who asks for a frame waits for it

    rows = [row for each in findings for row in _rows(each)]
    frame = pd.DataFrame(rows, columns=COLUMNS, dtype=object)  # keeps None as None
    return frame.astype(dict.fromkeys(("value", "low", "high"), "float64"))


def _rows(finding: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    told = {name: finding[name] for name in COLUMNS if name in finding}
    found = {key: figure_of(finding, key) for key in MEASURES}
    known = {key: each for key, each in found.items() if each is not None}
    for key, (value, low, high) in known.items():
        span = {"low": low, "high": high} if _has_interval(finding, key) else {}
        yield {**told, "figure": key, "value": value, **span}
    if not known:
        yield {**told, "figure": None}


def _has_interval(finding: Mapping[str, Any], key: str) -> bool:
    every = {**finding["details"], **finding}
    return all(every.get(end) is not None for end in MEASURES[key].ends)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False, weakref_slot=True)
class AuditResult:
    """A finished audit.

    In a notebook it shows its verdict and its findings; ``str`` of it is what the command prints.

    Args:
        report: the content of ``report.json``.
        verdict: verdict of the audit.
        files: the written files by format.
        folder: the run folder with report, recording, truth and checkpoint; for a recording made
            elsewhere only the report.
    """

    report: Mapping[str, Any]
    verdict: Verdict
    files: Mapping[str, Path]
    folder: Path

    @property
    def holds(self) -> bool:
        """Whether the verdict is a pass; neither a documented leak nor an undecided audit is."""
        return self.verdict.outcome is Outcome.PASS

    @property
    def seed(self) -> int:
        """Seed of all random streams of the run, or of the attacks' draws on a recording."""
        seeds = self.report["manifest"]["seeds"]
        return int(seeds.get("streams", seeds["bootstrap"]))

    def to_frame(self) -> "pd.DataFrame":
        """Its findings, one row for each of their figures.

        Returns:
            A pandas DataFrame with the columns adversary, attack, severity (the finding's), figure,
            value, low, high (float64, NaN where there is none), status ("measured" or
            "not-applicable") and reason (why an attack did not apply, else None). A finding without
            any figure has one row, with the figure None.
        """
        return findings_frame(self.report["findings"])

    def save(
        self, directory: "str | os.PathLike[str]", *, formats: "str | Sequence[str]" = FORMATS
    ) -> Mapping[str, Path]:
        """Copies the run folder, recording and truth included, and writes the report into it.

        Args:
            directory: a new or empty folder; or the run folder itself, to which further formats of
                the report are added.
            formats: formats of ``audits.report.WRITERS`` to write beside ``report.json``.

        Returns:
            The files of the report by format.

        Raises:
            ConfigError: the directory holds something else, or a format is unknown.
            OSError: it cannot be written.
        """
        asked, target = formats_of(formats), Path(directory)
        _copy(self.folder, target)
        return write_report(self.report, target, asked)

    def __repr__(self) -> str:
        return f"<AuditResult: {self.verdict.outcome}, seed {self.seed}, {self.folder}>"

    def __str__(self) -> str:
        from audits.report.html import render_summary  # noqa: PLC0415 - brings the charts along

        verdict, lines = self.verdict, [render_summary(self.report).rstrip("\n")]
        if verdict.outcome is not Outcome.LEAK:  # the summary has just printed its gates
            lines += [f"  {verdict.outcome}: {reason}" for reason in verdict.reasons]
        lines.append(f"verdict: {verdict.outcome} (exit code {verdict.exit_code})")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from audits.report.html import render_frame  # noqa: PLC0415 - brings the charts along

        return render_frame(self.report)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttackResult:
    """What attacks on a recording found.

    Args:
        findings: as ``report.json`` has them, in the order of adversaries, then of attacks.
        undecided: sentences that say why they do not allow a verdict; empty if they do.
        seed: seed of the recorded run, and of all draws of the attacks.
    """

    findings: tuple[Mapping[str, Any], ...] = field(repr=False)
    undecided: tuple[str, ...]
    seed: int

    def to_frame(self) -> "pd.DataFrame":
        """Findings, one row for each of their figures: see ``AuditResult.to_frame``."""
        return findings_frame(self.findings)

    def __str__(self) -> str:
        found = self.findings
        lines = [f"{each['adversary']}/{each['attack']}: {each['sentence']}" for each in found]
        return "\n".join((*lines, *(f"  inconclusive: {reason}" for reason in self.undecided)))

    def _repr_html_(self) -> str:
        shown: str = self.to_frame().to_html(index=False, na_rep="", border=0)
        return shown


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class SimulatedRun:
    """A federation that was trained and recorded, and not attacked yet.

    Args:
        config: what was trained.
        folder: the run folder: recording, truth and checkpoint.
        history: figures of utility by round, from the first, one mapping each; empty for a round
            that was not measured.
    """

    config: AuditConfig = field(repr=False)
    folder: Path
    history: tuple[Mapping[str, float], ...] = field(repr=False)

    @property
    def seed(self) -> int:
        """Seed of every random stream of the run."""
        return self.config.seed

    def save(self, directory: "str | os.PathLike[str]") -> Path:
        """Copies the run folder, recording and truth included.

        Args:
            directory: a new or empty folder.

        Returns:
            The directory.

        Raises:
            ConfigError: the folder holds other files.
            OSError: it cannot be written.
        """
        target = Path(directory)
        _copy(self.folder, target)
        return target


def in_folder(out: "str | os.PathLike[str] | None", made: Callable[[Path], ResultT]) -> ResultT:
    """Make a result whose files are in a folder.

    Args:
        out: the folder; None for a temporary one, which is removed with the result.
        made: makes the result there.

    Raises:
        Exception: the error of ``made``; the temporary folder is then removed.
    """
    if out is not None:
        return made(Path(out))
    temporary = Path(mkdtemp(prefix="secure-fedrec-"))
    try:
        result = made(temporary / "run")
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finalize(result, _remove, temporary, os.getpid())
    return result


def _remove(temporary: Path, maker: int) -> None:
    """Remove a folder, unless this is a fork of the process that made it."""
    if os.getpid() == maker:
        shutil.rmtree(temporary, ignore_errors=True)


def formats_of(formats: "str | Sequence[str]") -> tuple[str, ...]:
    """Formats of a report, including ``report.json``.

    Raises:
        ConfigError: a format is unknown.
    """
    asked = (formats,) if isinstance(formats, str) else tuple(formats)
    for name in asked:
        if name not in WRITERS:
            raise ConfigError("formats", name, "unknown format", WRITERS)
    return tuple(dict.fromkeys((FORMATS[0], *asked)))


def _copy(folder: Path, target: Path) -> None:
    """Copy a run folder, to be read by its owner alone.

    Raises:
        ConfigError: the target is not a folder, or holds something else.
    """
    if target.exists():
        if target.is_dir() and target.samefile(folder):
            return
        if not target.is_dir() or any(target.iterdir()):
            problem = "is not an empty folder; name a new one"
            raise ConfigError("directory", str(target), problem)
    if not folder.is_dir():
        raise ConfigError("directory", str(target), f"cannot be filled: {folder} was removed")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.chmod(0o700)  # before files are written
    with unwritten(folder) if (folder / CONFIG_NAME).exists() else nullcontext():
        shutil.copytree(folder, target, dirs_exist_ok=True)
