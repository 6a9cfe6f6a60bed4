"""One point of FedDMF's figures: a method on organisations cut from a table.

The paper trains for 30 epochs and reports the last. So does this; figures of epochs before it are
kept beside, and choose nothing. What the paper leaves open is chosen on ``hiding`` studies, in
which a share of the common items plays the items of others: they need nobody's truth.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Final

from secure_fedrec.algorithms.feddmf.config import FedDMFConfig
from secure_fedrec.data import RatingTable
from secure_fedrec.data.organisations.common_items import (
    CommonItems,
    CommonItemsConfig,
    split_common_items,
)
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.dmf.model import DMFConfig
from secure_fedrec.settings import Count, OneOf, Share
from secure_fedrec.studies.feddmf.methods import RUNS, UNTRAINED, Epoch, State, Task
from secure_fedrec.studies.feddmf.quality import measure, sides
from secure_fedrec.studies.resumed import StudySettings, keep, kept, read_or_make

STUDY_FORMAT: Final = 1
"""Of a study as JSON values."""

PAPER: Final = FedDMFConfig(model=DMFConfig(dropout=0.5), start="common", exchanges=8)
"""The paper's settings. What it leaves open (dropout, a common start, exchanges per epoch) was
chosen on ``hiding`` studies of ml-latest-small; no truth across organisations was looked at."""


class StudyConfig(StudySettings, section="study"):
    """What is studied.

    Args:
        method: one of ``methods.RUNS``.
        data: name of the table that is cut.
        split: how it is cut; its seed is also that of training and of what is measured on.
        algorithm: of FedDMF; the other methods take from it what they know.
        hiding: share of the common items that play the items of others, for choosing settings; 0
            measures on the items of others themselves.
        every: epochs from one measurement to the next.

    Raises:
        ConfigError: a name is unknown.
    """

    paper = "FedDMF"
    version = STUDY_FORMAT
    method: Annotated[str, OneOf(RUNS)]
    split: CommonItemsConfig
    data: str = "ml-latest-small"
    algorithm: FedDMFConfig = PAPER
    hiding: Share = 0.0
    every: Count = 5

    def quick(self) -> "StudyConfig":
        """Three epochs of a smaller model: that it runs, not what it reaches."""
        model = DMFConfig(width=8, hidden=16, dropout=self.algorithm.model.dropout)
        return replace(self, algorithm=replace(self.algorithm, epochs=3, model=model), every=3)


def run_study(
    table: RatingTable,
    config: StudyConfig,
    path: Path,
    *,
    on_epoch: Callable[[Epoch], object] | None = None,
    wait: bool = True,
) -> dict[str, Any]:
    """Run a study, or go on with it, or read it if it is complete.

    The report is written once the study is complete. Until then a checkpoint lies beside it, with
    the suffix ``.checkpoint``.

    Args:
        table: the data of that name.
        config: what is studied.
        path: of the report.
        on_epoch: called after every epoch.
        wait: for another process that is making it.

    Raises:
        BeingMadeError: another process is making it, and is not waited for.
        ConfigError: an organisation is left without items to measure on.
        DataError: ``path`` is of another study, or cannot be written.
        CheckpointError: what lies beside it is of another study.
        DivergedError: training left the range of numbers.
    """
    fingerprint = table.fingerprint()

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        data = cut(table, config)
        beside, begun = path.with_suffix(".checkpoint"), perf_counter()
        run_id = f"{fingerprint} {config.described()}"
        state, epochs, spent = _earlier(beside, run_id)
        task = Task(data=data, config=config.algorithm, seed=config.split.seed, resumed=state)
        last = 1 if config.method in UNTRAINED else config.algorithm.epochs
        for found in RUNS[config.method](task):
            if found.epoch % config.every == 0 or found.epoch == last:
                cosine = None if found.cosine is None else found.cosine()
                quality = measure(data, found.scores, seed=config.split.seed)
                epochs.append({"epoch": found.epoch, "cosine": cosine, **quality})
            if found.epoch < last:
                seconds = spent + perf_counter() - begun
                keep(beside, found.state(), {"epochs": epochs, "seconds": seconds}, run_id=run_id)
            if on_epoch is not None:
                on_epoch(found)
        return _report(data, epochs, spent + perf_counter() - begun), {}

    return read_or_make(path, config, make, data=fingerprint, wait=wait)


def _report(data: CommonItems, epochs: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    return {
        "common": int(data.common.sum()),
        "own": [len(data.own(place)) for place in range(data.n_organisations)],
        "users": data.n_users.tolist(),
        "seconds": seconds,
        "epochs": epochs,
    }


def cut(table: RatingTable, config: StudyConfig) -> CommonItems:
    """The organisations of a study.

    Raises:
        ConfigError: one has nothing to measure on, among its own items or among those of others
            that it is asked for, where common items are left out: no user who has some and lacks
            some.
    """
    data = split_common_items(table, config.split, name=config.data)
    data = data.hiding(config.hiding, seed=config.split.seed) if config.hiding else data
    for place in range(data.n_organisations):
        for side, items in sides(data, place).items():
            truth = data.truth(place, items)
            if not (truth.any(axis=1) & ~truth.all(axis=1)).any():
                what = "its own" if side == "within" else "others'"
                problem = f"leaves organisation {place} no user who has some of {what} items only"
                raise ConfigError("study.split.common", config.split.common, problem)
    return data


def _earlier(path: Path, run_id: str) -> tuple[State | None, list[dict[str, Any]], float]:
    """What training goes on from, figures of the epochs before, and the seconds they took."""
    if not path.exists():
        return None, [], 0.0
    held, so_far = kept(path, run_id=run_id)
    return held, so_far["epochs"], so_far["seconds"]
