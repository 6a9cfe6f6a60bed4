"""One point of FedDMF's figures: a method on organisations cut from a table.

The paper trains for 30 epochs and reports the last. So does this study; figures of earlier epochs
are kept, but do not select anything. Settings that the paper does not give are chosen on ``hiding``
studies, in which a share of the common items stands for items of others; they do not use unknown
data.
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
from secure_fedrec.studies.resumed import Outcome, StudySettings, keep, kept

STUDY_FORMAT: Final = 1
"""Of a study as JSON values."""

PAPER: Final = FedDMFConfig(model=DMFConfig(dropout=0.5), start="common", exchanges=8)
"""The paper's settings. Settings that it does not give (dropout, a common start, exchanges per
epoch) were chosen on ``hiding`` studies of ml-latest-small; no data across organisations was
used."""


class StudyConfig(StudySettings, section="study"):
    """What is studied.

    Args:
        method: one of ``methods.RUNS``.
        data: name of the table that is cut.
        split: how it is cut; its seed is also that of training and of what is measured on.
        algorithm: of FedDMF; the other methods take from it what they know.
        hiding: share of the common items that stand for items of others, to choose settings; 0
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
        """Three epochs of a smaller model, to test that it runs."""
        model = DMFConfig(width=8, hidden=16, dropout=self.algorithm.model.dropout)
        return replace(self, algorithm=replace(self.algorithm, epochs=3, model=model), every=3)

    def made(
        self,
        data: RatingTable,
        path: Path,
        run_id: str,
        *,
        on_epoch: Callable[[Epoch], object] | None = None,
    ) -> Outcome:
        """Train to the last epoch, and keep a checkpoint after each; ``on_epoch`` receives it.

        Raises:
            ConfigError: an organisation is left without items to measure on.
        """
        parted, beside, begun = cut(data, self), path.with_suffix(".checkpoint"), perf_counter()
        state, epochs, spent = _earlier(beside, run_id)
        seed = self.split.seed
        task = Task(data=parted, config=self.algorithm, seed=seed, resumed=state)
        last = 1 if self.method in UNTRAINED else self.algorithm.epochs
        for found in RUNS[self.method](task):
            if found.epoch % self.every == 0 or found.epoch == last:
                cosine = None if found.cosine is None else found.cosine()
                quality = measure(parted, found.scores, seed=seed)
                epochs.append({"epoch": found.epoch, "cosine": cosine, **quality})
            if found.epoch < last:
                seconds = spent + perf_counter() - begun
                keep(beside, found.state(), {"epochs": epochs, "seconds": seconds}, run_id=run_id)
            if on_epoch is not None:
                on_epoch(found)
        return {
            "common": int(parted.common.sum()),
            "own": [len(parted.own(place)) for place in range(parted.n_organisations)],
            "users": parted.n_users.tolist(),
            "seconds": spent + perf_counter() - begun,
            "epochs": epochs,
        }, {}


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
    """State to resume training from, figures of the epochs before, and the seconds they took."""
    if not path.exists():
        return None, [], 0.0
    held, so_far = kept(path, run_id=run_id)
    return held, so_far["epochs"], so_far["seconds"]
