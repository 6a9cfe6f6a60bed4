"""Long trainings: a study that was killed resumes where it was, with the same bits.

Until a study is complete a checkpoint lies beside its report, with the suffix ``.checkpoint``: the
engine's whole state and what was seen so far. The report carries all settings under ``study``, and
a file of other settings is refused; so is one that was made of other data, as the fingerprint under
``data_fingerprint`` says (reports of an earlier release have none). A study is made by one process
at a time: another process that needs it continues with something else, or waits and reads it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.file_lock import lock_file
from secure_fedrec.data.refusals import writable
from secure_fedrec.engines import LocalEngine
from secure_fedrec.engines.checkpoint import read_checkpoint, write_checkpoint
from secure_fedrec.engines.local_engine import RoundReport
from secure_fedrec.errors import DataError
from secure_fedrec.settings import Settings
from secure_fedrec.studies.files import arrays_beside, read_report, require_files, write_files

FINGERPRINT: Final = "data_fingerprint"
"""Key of a report: the fingerprint of its data."""

_SO_FAR: Final = "study-so-far"
_KEPT: Final = "study-kept."
_PATIENCE: Final = 1000  # attempts while other processes remove the folder

Made = TypeVar("Made")
Outcome: TypeAlias = tuple[dict[str, Any], Mapping[str, npt.NDArray[Any]]]
"""A report as JSON values, and arrays."""


@dataclass(slots=True, kw_only=True)
class Record:
    """The record of a training so far.

    Args:
        rounds: JSON values of every round.
        kept: arrays of the rounds that may be reported.
        seconds: spent on it, including time before interruptions.
    """

    rounds: list[dict[str, Any]] = field(default_factory=list)
    kept: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    seconds: float = 0.0


class BeingMadeError(DataError):
    """Another process is making the study."""


See: TypeAlias = Callable[[RoundReport, Record], object]
"""Records a round."""


def as_json(config: Any) -> dict[str, Any]:
    """Settings as they are read back from a file."""
    return plain(asdict(config))


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as they are read back from a file."""
    read: dict[str, Any] = json.loads(json.dumps(values))
    return read


class StudySettings(Settings):
    """Settings of a study that can be resumed.

    Attributes:
        paper: what it is a study of, for messages.
        version: of the files.
    """

    paper: ClassVar[str]
    version: ClassVar[int]

    def described(self) -> dict[str, Any]:
        """All settings as JSON values."""
        return as_json(self)

    def made(self, data: Any, path: Path, run_id: str, *more: Any, **told: Any) -> Outcome:
        """Train, from a checkpoint where there is one.

        Args:
            data: what it learns from.
            path: of the report, beside which a checkpoint may lie.
            run_id: of the settings and the data.
            more: nothing; settings may name more arguments.
            told: called meanwhile, for a progress bar.

        Returns:
            The report's content besides settings and fingerprint, as JSON values; and its arrays.
        """
        raise NotImplementedError


def read_study(
    path: Path, config: StudySettings, *, data: str | None = None
) -> dict[str, Any] | None:
    """The report at ``path``; None where there is none.

    Args:
        path: of the report.
        config: what is studied.
        data: fingerprint of the expected data; None if they are not available.

    Raises:
        DataError: it is damaged, of another version, of other settings or of other data.
    """
    described, version = config.described(), config.version
    if not path.exists():
        return None
    report = read_report(path, version, paper=config.paper)
    if report.get("study") != described:
        raise DataError(path, "is of a study with other settings; remove it, or use another folder")
    if "format" not in report:  # not written by any release, so fields may be missing
        raise DataError(path, f"is not a study of format {version}")
    if data is not None and report.get(FINGERPRINT, data) != data:
        raise DataError(path, "is of other data of that name; remove it, or use another folder")
    if any(each.exists() for each in _beside(path)):
        _tidy(path)
    return report


def require_one_source(reports: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuse studies that were made of different data of one name.

    Args:
        reports: by path; those without a fingerprint are taken as they are.

    Raises:
        DataError: the data differ.
    """
    first: dict[str, tuple[Path, str]] = {}
    for path, report in sorted(reports.items()):
        if FINGERPRINT in report:
            name, found = str(report["study"]["data"]), str(report[FINGERPRINT])
            other, known = first.setdefault(name, (path, found))
            if found != known:
                raise DataError(path, f"and {other} are of different data, both named {name}")


def once(
    path: Path,
    read: Callable[[], Made | None],
    make: Callable[[], Made],
    *,
    wait: bool = True,
) -> Made:
    """The study at ``path``; if missing, it is made now, under a lock.

    Args:
        path: of the report.
        read: reads it; None where there is none.
        make: makes and writes it.
        wait: for another process that is making it.

    Raises:
        BeingMadeError: another process is making it, and is not waited for.
        DataError: the folder cannot be written or locked, or something that is not a file is in a
            place of the study's; or as ``read`` and ``make``.
    """
    found = read()
    if found is not None:
        return found
    require_files(path, arrays_beside(path), _beside(path)[0], written=True)
    with _alone(path, wait=wait):
        return read() or make()


def run_study(
    data: Any, config: StudySettings, path: Path, *, wait: bool = True, **told: Any
) -> dict[str, Any]:
    """Run a study, resume it, or read it if it is complete.

    Args:
        data: the data of that name, with a ``fingerprint``.
        config: what is studied.
        path: of the report; arrays lie beside.
        wait: for another process that is making it.
        told: called by ``made`` of the settings meanwhile.

    Raises:
        BeingMadeError: another process is making it, and is not waited for.
        CheckpointError: what lies beside ``path`` is of another study.
        ConfigError: a setting does not fit the data or the method.
        DataError: ``path`` is of another study, or cannot be written.
        DivergedError: training left the range of numbers.
    """
    fingerprint = data.fingerprint()

    def made() -> dict[str, Any]:
        described = config.described()
        report, arrays = config.made(data, path, f"{fingerprint} {described}", **told)
        head = {"format": config.version, "study": described, FINGERPRINT: fingerprint}
        write_files(path, {**head, **report}, arrays)
        forget(path)
        return {**head, **report}

    return once(path, lambda: read_study(path, config, data=fingerprint), made, wait=wait)


def being_made(path: Path) -> bool:
    """Whether another process is making the study at ``path`` at this moment."""
    _, beside = _beside(path)
    try:
        descriptor = os.open(beside, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # usually there is no such file; other errors are raised when it is made
        return False
    try:
        lock_file(descriptor, shared=True)
    except OSError as refused:
        return isinstance(refused, BlockingIOError)
    finally:
        os.close(descriptor)
    return False


def _tidy(path: Path) -> None:
    """Remove files that a maker left that was killed at its very end, of no other study."""
    _, beside = _beside(path)
    with suppress(OSError), os.fdopen(_opened(beside), "rb", buffering=0) as lock:
        lock_file(lock.fileno())
        if _names(beside, lock.fileno()):
            beside.unlink()
            forget(path)


def _opened(lock: Path) -> int:
    """A lock, made if missing; it does not wait on what is in its place."""
    # Writable, as network file systems grant an exclusive lock on no other.
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)


@contextmanager
def _alone(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock of a study, in a temporary file beside it."""
    _, beside = _beside(path)
    with _folder_made(path.parent) as make_folder:
        try:
            for attempt in count():
                try:
                    make_folder()
                    descriptor = _opened(beside)
                except (FileNotFoundError, FileExistsError):
                    if attempt > _PATIENCE:
                        raise
                    continue  # another process has just removed the folder
                try:
                    lock_file(descriptor, wait=wait)
                except BlockingIOError:
                    os.close(descriptor)
                    raise BeingMadeError(path, "is being made by another process") from None
                if _names(beside, descriptor):
                    break
                os.close(descriptor)  # the former holder removed the file
        except OSError as refused:
            problem = f"cannot be written ({refused.strerror or refused})"
            raise DataError(beside, problem) from refused
        try:
            yield
        finally:
            beside.unlink(missing_ok=True)
            os.close(descriptor)


@contextmanager
def _folder_made(folder: Path) -> Iterator[Callable[[], None]]:
    """Makes a folder, and those above it, when it is called; removes those that stay empty."""
    ours: list[Path] = []

    def make() -> None:
        ours.extend(each for each in (folder, *folder.parents) if not each.exists())
        folder.mkdir(parents=True, exist_ok=True)

    try:
        yield make
    finally:
        for each in ours:
            with suppress(OSError):  # it is not empty, as expected
                each.rmdir()


def _beside(path: Path) -> tuple[Path, Path]:
    """Files beside a study while it is made: its checkpoint and its lock."""
    return path.with_suffix(".checkpoint"), path.with_suffix(".lock")


def _names(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def train(
    engine: LocalEngine,
    path: Path,
    record: Record,
    *,
    run_id: str,
    see: See,
    every: int,
    on_round: Callable[[], object] | None = None,
) -> None:
    """Train to the last round, from where an earlier attempt was killed.

    The checkpoint stays until ``forget``, as the report is not written yet.

    Args:
        engine: of a training that has not begun.
        path: of the report to be.
        record: empty; gets what was seen, before a kill as well. If training ends with an error, it
            holds the rounds until then.
        run_id: of the settings and the data.
        see: called after every round.
        every: rounds from one checkpoint to the next.
        on_round: called after every round, those before included, for a progress bar.

    Raises:
        DataError: the checkpoint cannot be written.
        CheckpointError: what lies there is of another training.
    """
    (beside, _), begun = _beside(path), perf_counter()
    _go_on(engine, beside, run_id, record)
    spent, rounds = record.seconds, engine.algorithm.rounds
    told = on_round or (lambda: None)
    for _ in range(engine.public.round):
        told()
    while engine.public.round < rounds:
        report = engine.run_round()
        see(report, record)
        record.seconds = spent + perf_counter() - begun
        if report.round % every == 0:
            arrays = {f"{_KEPT}{name}": values for name, values in record.kept.items()}
            so_far = {"rounds": record.rounds, "seconds": record.seconds}
            keep(beside, {**engine.state(copied=False), **arrays}, so_far, run_id=run_id)
        told()


def forget(path: Path) -> None:
    """Take the checkpoint away: the report at ``path`` is written."""
    checkpoint, _ = _beside(path)
    checkpoint.unlink(missing_ok=True)


def keep(
    path: Path, state: Mapping[str, npt.NDArray[Any]], so_far: Mapping[str, Any], *, run_id: str
) -> None:
    """Write a checkpoint: the state to resume from, and the record so far, as JSON values.

    Raises:
        DataError: it cannot be written.
    """
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = np.array(json.dumps(so_far))
        write_checkpoint(path, {**state, _SO_FAR: text}, run_id=run_id)


def kept(path: Path, *, run_id: str, later: str | None = None) -> tuple[dict[str, Any], Any]:
    """An existing checkpoint, as ``keep`` received it.

    Args:
        path: of the checkpoint.
        run_id: as it was written with.
        later: prefix of names whose arrays are read on demand.

    Raises:
        CheckpointError: it is of another training, or damaged.
    """
    held = read_checkpoint(path, run_id=run_id, later=later)
    return held, json.loads(str(held.pop(_SO_FAR)))


def _go_on(engine: LocalEngine, path: Path, run_id: str, record: Record) -> None:
    """Restore the engine from the checkpoint, and ``record`` with the earlier rounds."""
    if not path.exists():
        return
    held, so_far = kept(path, run_id=run_id, later="vault.")
    names = [name for name in held if name.startswith(_KEPT)]
    record.kept |= {name.removeprefix(_KEPT): held.pop(name) for name in names}
    record.rounds += so_far["rounds"]
    record.seconds = so_far["seconds"]
    engine.restore(held)
