"""The list of attacks, by what they read, and of the kinds of secrets that they tell."""

from collections.abc import Mapping

from attacks.base import Controlled
from attacks.families.clear_uploads import ClearUploads
from attacks.families.co_occurrences.attacks import (
    CoOccurrenceChoice,
    CoOccurrenceMembership,
    CoOccurrencePersons,
    CoOccurrenceRows,
)
from attacks.families.hierarchical import AttributeCounts, Drafts, LoneRows
from attacks.families.item_changes import ScoreVectors
from attacks.families.linkage import CollusionLinkage, VirtualRowVectors
from attacks.families.moved_rows import MovedRows
from attacks.families.partners import ItemSales, PartnerMembers
from attacks.families.rated_set import Direct, Intersection, NeverTouched
from attacks.families.ratings.lattice import Lattice
from attacks.families.split.attributes import AttributeInference
from attacks.families.split.dense_layer import DenseLayerInputs
from attacks.families.split.output_bias import OutputBias
from attacks.families.split.touched_rows import SignedRows, TouchedRows
from attacks.families.sums.denoisers import DenoiserExposure, DenoiserSums
from attacks.families.sums.regression import SubsetRegression
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.scoring import attributes
from attacks.scoring.held_out import HeldOutClaim
from attacks.scoring.measures import MEASURES
from attacks.scoring.organisations import MembersClaim, SalesClaim
from attacks.scoring.profiles import HistogramClaim, LabelClaim
from attacks.scoring.sets import SetClaim
from secure_fedrec.core.registry import Registry
from secure_fedrec.errors import ConfigError

_CLEAR, _MOVED = ClearUploads(), MovedRows()
"""Attacks that read uploads and sums of any kind."""

_SUMS = SumDecoding()
"""The attack that reads sums of ratings and of changes of item tables."""

_ATTACKS: Mapping[str, tuple[Controlled, ...]] = {
    "ratings": (
        *(Direct(), Intersection(), Lattice(), CollusionLinkage(), SubsetRegression()),
        *(DenoiserSums(), DenoiserExposure(), _CLEAR, _SUMS, VirtualRowVectors(), _MOVED),
    ),
    "split": (
        *(DenseLayerInputs(), OutputBias(), TouchedRows(), SignedRows(), AttributeInference()),
        *(_CLEAR, _MOVED),
    ),
    "hierarchical": (AttributeCounts(), Drafts(), LoneRows(), _CLEAR),
    "item tables": (
        *(Direct(), Intersection(), DenseLayerInputs(), TouchedRows(), SignedRows()),
        *(AttributeInference(), LoneRows(), NeverTouched(), ScoreVectors(), _CLEAR, _SUMS, _MOVED),
    ),
    "partners": (ItemSales(), PartnerMembers()),
    "co-occurrences": (
        *(CoOccurrenceRows(), CoOccurrencePersons(), CoOccurrenceMembership()),
        *(CoOccurrenceChoice(), _CLEAR, _SUMS),
    ),
}

_TOLD = (LabelClaim, SetClaim, HistogramClaim, HeldOutClaim, SalesClaim, MembersClaim)
_KINDS = frozenset((*(claim.kind for claim in _TOLD), attributes.KIND))

SUITE: Registry[Controlled] = Registry(
    "attack", {attack.name: attack for attacks in _ATTACKS.values() for attack in attacks}
)
"""Attack by name."""


def is_kind(kind: str) -> bool:
    """Whether claims are judged by a kind of secret (``GroundTruth.secrets``).

    An attack that is not shipped is recognised by the figures that were added for it.
    """
    return kind in _KINDS or any(each.kind == kind for each in MEASURES.added.values())


UNATTACKED: Mapping[str, str | None] = {
    "parties that deviate from the protocol": None,
    "membership in the released model": "membership",
    "traffic analysis": None,
    "attribute inference": "attribute",
}
"""What the suite does not try, in words, or the secret of the attacks that try it when they run."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(attack.name for attack in attacks) for family, attacks in _ATTACKS.items()
}
"""Names of attacks by what they read: uploads of ratings, of split or hierarchical models,
changes of item tables, vectors that organisations give each other, or pairs of items."""


def attack_named(name: str, *, key: str = "attacks") -> Controlled:
    """Look an attack up.

    Raises:
        ConfigError: no attack has that name.
    """
    if name not in SUITE:
        raise ConfigError(key, name, "unknown attack", SUITE)
    return SUITE[name]
