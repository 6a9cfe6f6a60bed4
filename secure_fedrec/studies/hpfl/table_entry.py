"""One entry of HPFL's tables: a method on a data set, tuned on validation, reported on test.

The study trains every setting of the method's grid, looks at the validation records after each
round, and reports the test records at the round and the setting that were best on validation:
smallest RMSE for ratings, largest AUC for answers. "distributed" is reported at its last round,
because without early stopping no better round is known. Test records choose nothing.

As a file a study is its report, and beside it as arrays the users' characteristics; one of one
setting that diverged has a report only.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.errors import ConfigError, DataError, DivergedError, EncodingError
from secure_fedrec.evaluation import AccuracyRule
from secure_fedrec.settings import Natural, OneOf, Settings
from secure_fedrec.studies.files import read_arrays, read_report, write_files
from secure_fedrec.studies.hpfl.methods import RUNS, Task
from secure_fedrec.studies.hpfl.settings import (
    FORMS,
    GRIDS,
    METHODS,
    VARIANTS,
    Setting,
    gum_config,
    settings_of,
    starts_of,
)
from secure_fedrec.studies.hpfl.snapshots import Snapshot, ranking_metrics, score_metrics

STUDY_FORMAT = 2
"""Of a study as JSON values; since 2 with the start."""

_TO_THE_END = ("distributed",)


class StudyConfig(Settings, section="study"):
    """What is studied.

    Args:
        method: one of ``METHODS`` or ``VARIANTS``.
        seed: of the split, of start values and of all draws in training.
        grid: one of ``GRIDS``.
        start: of training, one of those that the method has, see ``starts_of``.
        form: of the user model, one of ``FORMS``.
        accuracy: how a prediction becomes a level.

    Raises:
        ConfigError: a name is unknown, or the seed negative.
    """

    method: Annotated[str, OneOf((*METHODS, *VARIANTS))]
    seed: Natural
    grid: Annotated[str, OneOf(GRIDS)]
    start: str
    form: Annotated[str, OneOf(FORMS)] = "paper"
    accuracy: AccuracyRule = "nearest"

    def _agree(self) -> None:
        if self.start not in starts_of(self.method):
            raise self.refusal("start", "unknown", starts_of(self.method))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The method's grid."""
        return settings_of(self.method, GRIDS[self.grid])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Study:
    """The result.

    Args:
        report: everything measured, as JSON values; without measures if no setting succeeded.
        snapshot: the models' state that is reported; None where the only setting that was to be
            tried diverged in its first round.
    """

    report: dict[str, Any]
    snapshot: Snapshot | None


def run_study(
    organisations: Organisations,
    config: StudyConfig,
    *,
    only: int | None = None,
    on_round: Callable[[], object] | None = None,
) -> Study:
    """Tune one method and measure the chosen setting.

    Args:
        organisations: the data; parted by the seed of ``config``.
        config: what is studied.
        only: place of the only setting to try. Studies of all places, each in a process of its own,
            make the whole with :func:`merge_reports`; one that diverged has its trial to report,
            and the value None.
        on_round: called after every round of every setting, for a progress bar.

    Raises:
        ConfigError: the method is not for data of this kind, or there is no such setting.
        DivergedError: training diverged in the first round of every setting.
    """
    _require_fit(organisations, config)
    places = range(len(config.settings))
    if only is not None and only not in places:
        raise ConfigError("study.setting", only, "is not a setting", places)
    tried = [
        _try(organisations, config, place, on_round)
        for place in (places if only is None else [only])
    ]
    if only is not None:
        return tried[0]
    report = merge_reports([each.report for each in tried])
    return Study(report=report, snapshot=tried[report["chosen"]].snapshot)


def merge_reports(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The report of a study whose settings were tried separately.

    Args:
        reports: of the same study, together of every setting.

    Raises:
        ConfigError: they are of different studies, or a setting is missing or was tried twice.
        DivergedError: all of them diverged.
    """
    first = reports[0]
    for report in reports:
        for key in ("data", "method", "seed", "grid", "start", "form", "accuracy", "settings"):
            if report[key] != first[key]:
                raise ConfigError(f"study.{key}", report[key], "differs within one study")
    trials = sorted((trial for each in reports for trial in each["trials"]), key=_place)
    if [_place(trial) for trial in trials] != list(range(first["settings"])):
        tried = [_place(trial) for trial in trials]
        raise ConfigError("study.settings", tried, f"are not 0 to {first['settings'] - 1}, once")
    # The earlier setting wins a tie.
    best = max(sorted(reports, key=lambda report: report["chosen"]), key=_value)
    if best["value"] is None:
        problem = f"every setting of {first['method']} diverged"
        raise DivergedError("study.grid", first["grid"], problem)
    seconds = sum(trial["seconds"] for trial in trials)
    return {**best, "seconds": seconds, "trials": trials}


def write_study(study: Study, path: Path) -> None:
    """Write a study: ``path``, and an array file of the same stem if a setting succeeded.

    Raises:
        DataError: a file cannot be written.
    """
    arrays = {}
    if study.snapshot is not None:
        own = study.snapshot.characteristics
        clients = np.repeat(np.arange(len(own)), [len(users) for users in own])
        arrays = {"characteristics": np.concatenate(own), "clients": clients}
    write_files(path, study.report, arrays)


def read_study(path: Path) -> dict[str, Any]:
    """Read a report.

    Raises:
        DataError: it is damaged, or of another version.
    """
    report = read_report(path, STUDY_FORMAT, paper="HPFL")
    if "format" not in report:
        raise DataError(path, f"is not a study of format {STUDY_FORMAT}")
    return report


def read_characteristics(path: Path) -> tuple[FloatArray, IntArray]:
    """The users' characteristics of the study at ``path``.

    Returns:
        float64[U, K], and int64[U], the client of each user.

    Raises:
        DataError: the array file is missing or damaged.
    """
    arrays: dict[str, Any] = read_arrays(path, "characteristics", "clients")
    return arrays["characteristics"], arrays["clients"]


def _place(trial: Mapping[str, Any]) -> int:
    return int(trial["place"])


def _value(report: Mapping[str, Any]) -> float:
    """The result on validation records; a study without one ranks below all others."""
    return -math.inf if report["value"] is None else float(report["value"])


def _measures(
    organisations: Organisations, config: StudyConfig, snapshot: Snapshot | None
) -> dict[str, Any]:
    """All reported measures, as JSON values; empty without a snapshot."""
    if snapshot is None:
        return {}
    ranking = {
        part: ranking_metrics(organisations, snapshot, getattr(organisations, part))
        for part in ("test", "train")
    }
    return {**score_metrics(organisations, snapshot, rule=config.accuracy), "ranking": ranking}


def _try(
    organisations: Organisations,
    config: StudyConfig,
    place: int,
    on_round: Callable[[], object] | None,
) -> Study:
    """All rounds of one setting, or those before its values left the ring."""
    setting = config.settings[place]
    value, kept, snapshot = -math.inf, 0, None
    rounds: list[dict[str, Any]] = []
    trial: dict[str, Any] = {"place": place, "setting": asdict(setting)}
    gum = gum_config(organisations, form=config.form, start=config.start)
    begun = perf_counter()
    try:
        for found in RUNS[config.method](Task(organisations, setting, gum, config.seed)):
            metrics = score_metrics(organisations, found, rule=config.accuracy)
            rounds.append(metrics)
            reached = _criterion(organisations, metrics["validation"])
            if reached > value or config.method in _TO_THE_END:
                value, kept, snapshot = reached, len(rounds), found
            if on_round is not None:
                on_round()
    except EncodingError as diverged:
        trial["diverged"] = str(diverged)
    trial |= {"seconds": perf_counter() - begun, "round": kept, "rounds": rounds}
    report = {
        "format": STUDY_FORMAT,
        "data": organisations.name,
        **asdict(config),
        "criterion": "auc" if organisations.binary else "-rmse",
        "settings": len(config.settings),
        "value": None if snapshot is None else value,  # JSON knows no infinity
        "chosen": place,
        "round": kept,
        **_measures(organisations, config, snapshot),
        "seconds": trial["seconds"],
        "trials": [trial],
    }
    return Study(report=report, snapshot=snapshot)


def _criterion(organisations: Organisations, validation: Mapping[str, float]) -> float:
    """The maximised measure."""
    return validation["auc"] if organisations.binary else -validation["rmse"]


def _require_fit(organisations: Organisations, config: StudyConfig) -> None:
    kind = {"ncd": True, "ncf": False}.get(config.method)
    if kind is not None and kind != organisations.binary:
        wanted = "answers right or wrong" if kind else "ratings"
        raise ConfigError("study.method", config.method, f"is for {wanted}")
