"""FURL (Bui et al. 2019) on texts and on implicit feedback.

Code that trains is imported only for training, since it imports PyTorch; settings are read, checked
and explained without it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from attacks.suite import FAMILIES
from audits.rating_data import FILE
from audits.system import Check, DataKind, Dataset, Statement, System, Task, Wanted
from audits.systems.furl.settings import (
    DocumentSettings,
    InteractionData,
    InteractionFileData,
    NCFSettings,
    NewsgroupsData,
    StickersData,
)
from secure_fedrec.data import DATASETS
from secure_fedrec.evaluation import RankingFigure, figures_of
from secure_fedrec.protection import Claim, Subject, claims_about

if TYPE_CHECKING:
    from secure_fedrec.algorithms.furl.system import FURL

_CLASSES = ("accuracy", "accuracy_mixed")
_CLICKS = ("auc", "accuracy")
_RANKING = figures_of(RankingFigure)

_KINDS: Mapping[str, DataKind] = MappingProxyType(
    {
        "stickers": DataKind(StickersData, DocumentSettings, _CLICKS),
        "20newsgroups": DataKind(NewsgroupsData, DocumentSettings, _CLASSES),
        **dict.fromkeys(DATASETS, DataKind(InteractionData, NCFSettings, _RANKING)),
        FILE: DataKind(InteractionFileData, NCFSettings, _RANKING),
    }
)

_CLAIMS = claims_about(
    Subject(
        name="FURL",
        uploads="every upload and every number of examples",
        sums="the sums of a cohort",
        few="the mean change of a small cohort is that of few clients",
    ),
    Claim(
        system="FURL as published (Bui et al. 2019)",
        hides="nothing of what is sent; private parameters are not sent",
        assumes="nothing",
        lossless=True,
        found="from one upload the server computes the private vector (first dense layer), the "
        "most frequent label (output bias) and what was read (touched embedding rows)",
    ),
)


def _load(wanted: Wanted) -> Dataset:
    from audits.systems.furl import interactions, texts  # noqa: PLC0415

    if isinstance(wanted.data, InteractionData | InteractionFileData):
        return interactions.load_feedback(wanted)
    return texts.load_texts(wanted)


def _device(
    algorithm: Any, facts: Mapping[str, Any], own: Mapping[str, npt.NDArray[Any]]
) -> "FURL":
    from audits.systems.furl import interactions, texts  # noqa: PLC0415

    if isinstance(algorithm, NCFSettings):
        return interactions.learner(algorithm, facts["n_items"])
    return texts.learner(algorithm, facts["classes"])


def _check(task: Task, algorithm: Any, *, rounds: int, seed: int) -> Sequence[Check]:
    from audits.systems.furl.checks import check_split  # noqa: PLC0415
    from audits.systems.furl.interactions import InteractionTask  # noqa: PLC0415
    from audits.systems.furl.texts import TextTask  # noqa: PLC0415

    case = task.split_case() if isinstance(task, TextTask | InteractionTask) else None
    return [] if case is None else check_split(case, rounds=rounds, seed=seed)


def _statement(algorithm: DocumentSettings | NCFSettings) -> Statement:
    leaves = (
        "the change of every federated parameter times the number of examples, and that number, "
        "for a weighted mean"
    )
    if not algorithm.personal:
        return Statement(
            name="Federated Averaging of all parameters, FURL's baseline (Bui et al. 2019)",
            stays="examples; no parameter is private",
            leaves=leaves,
        )
    return Statement(
        name="FURL, federated user representation learning (Bui et al. 2019)",
        stays="examples and private parameters (the user's embedding)",
        leaves=leaves,
        remark="The theorem of split personalization preserves quality, not privacy: keeping the "
        "private parameters at home changes no result, and nothing in it limits what the changes "
        "that are sent tell about them.",
    )


SYSTEM = System(
    name="furl",
    statement=_statement,
    kinds=_KINDS,
    default_data="stickers",
    claims=_CLAIMS,
    attacks=FAMILIES["split"],
    libraries=("numba", "torch"),
    load=_load,
    device=_device,
    check=_check,
)
