"""The list of attacks."""

from collections.abc import Mapping
from types import MappingProxyType

from attacks.base import Attack
from attacks.families.hierarchical.attribute_counts import AttributeCounts
from attacks.families.hierarchical.drafts import Drafts
from attacks.families.linkage import CollusionLinkage
from attacks.families.rated_set import Direct, Intersection
from attacks.families.ratings.lattice import Lattice
from attacks.families.split.attributes import AttributeInference
from attacks.families.split.dense_layer import DenseLayerInputs
from attacks.families.split.output_bias import OutputBias
from attacks.families.split.touched_rows import SignedRows, TouchedRows
from attacks.families.sums.denoisers import DenoiserExposure, DenoiserSums
from attacks.families.sums.regression import SubsetRegression
from attacks.families.sums.table_steps import TableSteps
from attacks.families.sums.tail_items import TailItems
from secure_fedrec.errors import ConfigError

__all__ = ["SUITE", "attack_named"]

_ATTACKS: tuple[Attack, ...] = (
    Direct(),
    Intersection(),
    Lattice(),
    CollusionLinkage(),
    TailItems(),
    SubsetRegression(),
    DenoiserSums(),
    DenoiserExposure(),
    TableSteps(),
    DenseLayerInputs(),
    OutputBias(),
    TouchedRows(),
    SignedRows(),
    AttributeInference(),
    AttributeCounts(),
    Drafts(),
)

SUITE: Mapping[str, Attack] = MappingProxyType({attack.name: attack for attack in _ATTACKS})
"""Attack by name."""


def attack_named(name: str, *, key: str = "attacks") -> Attack:
    """Look an attack up.

    Raises:
        ConfigError: no attack has that name.
    """
    if name not in SUITE:
        raise ConfigError(key, name, "unknown attack", SUITE)
    return SUITE[name]
