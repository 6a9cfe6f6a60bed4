"""Which studies the paper's figures, and this study's own tables, are made of.

A figure is a list of studies; one that several figures have is made once, as names of files follow
from settings. Captions and sections of the paper disagree on Fig. 6 and 8: what stands here goes by
the captions.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from secure_fedrec.algorithms.feddmf.config import FedDMFConfig
from secure_fedrec.data.organisations.common_items import CommonItemsConfig
from secure_fedrec.studies.feddmf.study import PAPER, StudyConfig

SEEDS: Final = (0, 1, 2)
"""The paper repeats three times."""

_FEDDMF: Final = ("feddmf-exchanged", "feddmf-summed")
_RULES: Final = ("popularity", "popularity-by-activity")
_LINES: Final = ("feddmf-exchanged", "popularity")
_RIVALS: Final = ("dmf", "fedavg", *_FEDDMF, *_RULES)
_HALF: Final = 0.5
_SHARES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)


def _studies(
    methods: tuple[str, ...], feddmf: FedDMFConfig = PAPER, **split: Any
) -> list[StudyConfig]:
    """Of all seeds; FedDMF without a margin and with the paper's."""
    margins = replace(feddmf, margin=0.0), feddmf
    if split.get("organisations", 2) == 2:  # a share of one half is what equal parts are
        split |= {key: None for key in ("items", "users") if split.get(key) == _HALF}
    return [
        StudyConfig(method=method, split=CommonItemsConfig(seed=seed, **split), algorithm=algorithm)
        for seed in SEEDS
        for method in methods
        for algorithm in (margins if method in _FEDDMF else (PAPER,))
    ]


def _along(
    key: str, values: tuple[float, ...], methods: tuple[str, ...]
) -> tuple[StudyConfig, ...]:
    """Studies that differ in one key of the split."""
    return tuple(study for value in values for study in _studies(methods, PAPER, **{key: value}))


def _on_all_pairs(study: StudyConfig) -> StudyConfig:
    training = replace(PAPER.training, negatives=None)
    return replace(study, algorithm=replace(study.algorithm, training=training))


FIGURES: Final[Mapping[str, tuple[StudyConfig, ...]]] = MappingProxyType(
    {
        "5": tuple(_studies(("dmf", "fedavg", *_FEDDMF, "alone", *_RULES, "random"))),
        "6": _along("items", (0.1, 0.2, 0.3, 0.4, 0.5), _LINES),
        "7": _along("common", _SHARES, (*_LINES, "random")),
        "8": _along("users", _SHARES, _LINES),
        "starts": tuple(
            study
            for feddmf in (PAPER, replace(PAPER, start="independent"))
            for study in _studies(_RIVALS, feddmf)
        ),
        "similarity": tuple(
            study
            for feddmf in (PAPER, replace(PAPER, similarity="batch"))
            for study in _studies(_RIVALS, feddmf)
        ),
        "organisations": _along("organisations", (2, 4, 8), _RIVALS),
        "ml-100k": tuple(replace(study, data="ml-100k") for study in _studies(_RIVALS)),
        "all-pairs": tuple(map(_on_all_pairs, _studies(_RIVALS))),
    }
)
"""Studies by figure: 5 to 8 of the paper; separate starts, as the paper has them, and the loss of a
batch's pairs, each beside ``PAPER``; federations of 2, 4 and 8; another table; all pairs."""


def file_name(study: StudyConfig) -> str:
    """Of the report of a study, told apart by what differs between studies of a figure."""
    split, parts = study.split, [study.data, study.method, f"{study.split.organisations}"]
    parts += [f"common{split.common:g}"]
    parts += [f"items{split.items:g}"] if split.items not in (None, _HALF) else []
    parts += [f"users{split.users:g}"] if split.users not in (None, _HALF) else []
    if study.method in _FEDDMF:
        algorithm = study.algorithm
        parts += [f"margin{algorithm.margin:g}"]
        parts += [f"start-{algorithm.start}"] if algorithm.start != PAPER.start else []
        parts += [algorithm.similarity] if algorithm.similarity != PAPER.similarity else []
    parts += ["all-pairs"] if study.algorithm.training.negatives is None else []
    return "-".join([*parts, f"seed{split.seed}"]) + ".json"
