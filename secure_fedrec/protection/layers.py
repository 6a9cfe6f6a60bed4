"""Which layers stack, and what each stack hides from which parties.

Only the shipped layers are listed here. Which layers stack follows from their roles and from what
each requires and excludes; the claim of a stack follows from the records of its layers. One table
is for the rows that are summed, one for the vectors that are collected in bags; both are shared by
the configuration reader, SECURITY.md and the tests. A layer that is added to ``RECORDS`` is in all
that follows from it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from secure_fedrec.core.registry import Derived, Registry
from secure_fedrec.protection.bags import BAG_ROUTING, LOCAL_DP
from secure_fedrec.protection.base.compatibility import (
    Claims,
    by_name,
    claim_of,
    joined_claim,
    speakers,
    stacks_of,
)
from secure_fedrec.protection.base.record import Claim, Layer, Subject
from secure_fedrec.protection.cloaks.layer import RANDOMIZED_RESPONSE, VIRTUAL_RATINGS
from secure_fedrec.protection.denoisers.layer import DENOISERS, ROUTING
from secure_fedrec.protection.dp.layer import CLIP, SKELLAM
from secure_fedrec.protection.masking.layer import MASKING
from secure_fedrec.protection.paillier.layer import PAILLIER
from secure_fedrec.protection.plain.layer import PLAIN_CLAIM
from secure_fedrec.protection.shared_upload import SHARED_UPLOAD

RECORDS = Registry(
    "layer",
    by_name(
        VIRTUAL_RATINGS,
        RANDOMIZED_RESPONSE,
        DENOISERS,
        ROUTING,
        SHARED_UPLOAD,
        CLIP,
        SKELLAM,
        MASKING,
        PAILLIER,
    ),
)
"""Layers over rows, by name."""


BAG_RECORDS = by_name(LOCAL_DP, BAG_ROUTING)
"""Layers over bags, by name."""


LAYERS: Mapping[str, type] = Derived(
    lambda: {name: layer.settings for name, layer in RECORDS.items()}, RECORDS
)
"""Settings by name of a layer over rows."""


BAG_LAYERS: Mapping[str, type] = MappingProxyType(
    {name: layer.settings for name, layer in BAG_RECORDS.items()}
)
"""Settings by name of a layer over bags."""


def stacks_with(*layers: Layer) -> Claims:
    """Claim by stack of layer names, of the layers over rows and of some that are not among them.

    Raises:
        ConfigError: as of ``stacks_of``.
    """
    every = {**RECORDS, **{layer.name: layer for layer in layers}}
    return stacks_of(every.values(), PLAIN_CLAIM)


STACKS: Claims = Derived(stacks_with, RECORDS)
"""Claim by stack of layer names, over rows that are summed."""


BAG_STACKS = stacks_of(
    BAG_RECORDS.values(),
    Claim(
        system="HPFL's drafts as published (Wu et al. 2021)",
        hides="nothing",
        assumes="nothing",
        lossless=True,
        found="the server reads every vector and its sender; a draft of one member is that "
        "member's representation",
    ),
    apart=(LOCAL_DP.name, BAG_ROUTING.name),
)
"""Claim by stack of layer names, over vectors that are collected in bags."""


def claims_about(subject: Subject, bare: Claim) -> Claims:
    """What stacks claim over an algorithm whose rows are not of rated items.

    Args:
        subject: the algorithm.
        bare: the claim of no layer.

    Returns:
        Claims of stacks whose layers can all hide any rows; with noise if the algorithm can use it.
    """
    return Derived(lambda: _claims_about(subject, bare), RECORDS)


def _claims_about(subject: Subject, bare: Claim) -> Claims:
    found: dict[tuple[str, ...], Claim] = {(): bare}
    for names in STACKS:
        layers = [RECORDS[name] for name in names]
        if not subject.bears_noise and any(layer.traits.noise == "added" for layer in layers):
            continue
        claims = [layer.elsewhere for layer in speakers(layers)]
        told = [claim.of(subject) for claim in claims if claim is not None]
        if told and len(told) == len(claims):
            found[names] = told[0] if len(told) == 1 else joined_claim(told)
    return found


def require_compatible(layers: tuple[str, ...]) -> Claim:
    """The claim of a stack over rows.

    Raises:
        ConfigError: the layers do not stack in this order.
    """
    return claim_of(layers, STACKS, "protection", "these layers do not stack")


def require_bags_compatible(layers: tuple[str, ...]) -> Claim:
    """The claim of a stack over bags.

    Raises:
        ConfigError: the layers do not stack in this order, or hide sums, which bags have none of.
    """
    problem = "these layers do not stack over bags"
    if any(name in RECORDS and RECORDS[name].traits.uploads == "dense" for name in layers):
        problem = "hides what is summed, and the vectors of a bag are not summed"
    return claim_of(layers, BAG_STACKS, "bag_protection", problem)
