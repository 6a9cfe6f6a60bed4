"""The list of attacks."""

from collections.abc import Mapping
from types import MappingProxyType

from attacks.base import Attack
from attacks.linkage import CollusionLinkage
from attacks.rated_set import Direct, Intersection, TailItems
from attacks.ratings import Lattice
from attacks.sums import DenoiserExposure, DenoiserSums
from secure_fedrec.errors import ConfigError

__all__ = ["SUITE", "attack_named"]

_ATTACKS: tuple[Attack, ...] = (
    Direct(),
    Intersection(),
    Lattice(),
    CollusionLinkage(),
    TailItems(),
    DenoiserSums(),
    DenoiserExposure(),
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
