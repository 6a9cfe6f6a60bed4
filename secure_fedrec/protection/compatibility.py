"""Which layers stack, and what each stack hides from whom.

Nothing is listed here but the layers. What stacks follows from their roles and from what each
requires and excludes; what a stack claims, from what its layers say of themselves. One table is for
the rows that are summed, one for the vectors that are collected in bags; both are shared by the
configuration reader, SECURITY.md and the tests.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from types import MappingProxyType

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.bags import BAG_ROUTING, LOCAL_DP
from secure_fedrec.protection.denoisers import DENOISERS
from secure_fedrec.protection.hidden_sums import CLIP, MASKING, PAILLIER, SKELLAM
from secure_fedrec.protection.layer import ROLES, Claim, Layer, Subject
from secure_fedrec.protection.linkage_hardened import LINKAGE_HARDENED
from secure_fedrec.protection.randomized_response import RANDOMIZED_RESPONSE
from secure_fedrec.protection.routed_denoisers import ROUTING
from secure_fedrec.protection.shared_upload import SHARED_UPLOAD
from secure_fedrec.protection.virtual_ratings import VIRTUAL_RATINGS

Claims = Mapping[tuple[str, ...], Claim]
"""Claim by stack of layer names."""


def _named(*layers: Layer) -> Mapping[str, Layer]:
    return MappingProxyType({layer.name: layer for layer in layers})


RECORDS = _named(
    VIRTUAL_RATINGS,
    RANDOMIZED_RESPONSE,
    DENOISERS,
    ROUTING,
    LINKAGE_HARDENED,
    SHARED_UPLOAD,
    CLIP,
    SKELLAM,
    MASKING,
    PAILLIER,
)
"""Layers over rows, by name."""

BAG_RECORDS = _named(LOCAL_DP, BAG_ROUTING)
"""Layers over bags, by name."""

LAYERS: Mapping[str, type] = MappingProxyType(
    {name: layer.settings for name, layer in RECORDS.items()}
)
"""Settings by name of a layer over rows."""

BAG_LAYERS: Mapping[str, type] = MappingProxyType(
    {name: layer.settings for name, layer in BAG_RECORDS.items()}
)
"""Settings by name of a layer over bags."""


def stacks_of(records: Iterable[Layer], bare: Claim, *, apart: Collection[str] = ()) -> Claims:
    """Every stack of some layers, and what it claims.

    Args:
        records: the layers.
        bare: the claim of no layer.
        apart: names of layers that no record builds, because what carries the stack has them.

    Raises:
        ConfigError: a layer publishes the claim of a stack that does not stand, or requires one
            that there is not.
    """
    records = tuple(records)
    known = {layer.name for layer in records}
    for layer in records:
        if not known.issuperset(layer.requires):
            raise ConfigError(f"layer {layer.name}: requires", layer.requires, "is unknown", known)
    of_role = [(*(each for each in records if each.role == role), None) for role in ROLES]
    chosen = (tuple(filter(None, each)) for each in product(*of_role))
    found: dict[tuple[str, ...], Claim] = {(): bare}
    for stack in sorted(filter(None, chosen), key=len):
        if all(_stands(layer, stack) for layer in stack) and _is_built(stack, apart):
            found[tuple(layer.name for layer in stack)] = _claim(stack)
    for layer in records:
        for published in layer.published:
            if published not in found:
                raise ConfigError(f"layer {layer.name}: published", published, "does not stack")
    return MappingProxyType(found)


def makers_of(stack: Iterable[Layer]) -> tuple[Layer, ...]:
    """Layers that make the collector, but those that another takes into what it makes."""
    makers = tuple(layer for layer in stack if layer.role != "cloak" and layer.build)
    taken = {name for maker in makers for name in maker.requires}
    return tuple(maker for maker in makers if maker.name not in taken)


def _is_built(stack: tuple[Layer, ...], apart: Collection[str]) -> bool:
    """Whether every layer is in what is built: a cloak, the one maker, or what the maker takes.

    One that is not would be left out, and its claim stated all the same.
    """
    makers, by_name = makers_of(stack), {layer.name: layer for layer in stack}
    taken = {name for maker in makers for name in _needed(maker, by_name)}
    built = taken.union(
        apart, (layer.name for layer in stack if layer.role == "cloak" and layer.build)
    )
    return len(makers) <= 1 and built.issuperset(by_name)


def _stands(layer: Layer, stack: tuple[Layer, ...]) -> bool:
    names = {other.name for other in stack}
    told = names | {other.role for other in stack if other is not layer}
    return names.issuperset(layer.requires) and told.isdisjoint(layer.excludes)


def _claim(stack: tuple[Layer, ...]) -> Claim:
    """The claim of a stack: published, its strongest layer's, or those of its layers joined."""
    names = tuple(layer.name for layer in stack)
    for layer in stack:
        if names in layer.published:
            return layer.published[names]
    claims = [layer.claim for layer in _speakers(stack) if layer.claim is not None]
    return claims[0] if len(claims) == 1 else _joined(claims)


def _speakers(stack: Iterable[Layer]) -> list[Layer]:
    """The layers whose claims speak for all of a stack: each for those that it requires as well."""
    by_name = {each.name: each for each in stack}
    found: list[Layer] = []
    spoken_for: set[str] = set()
    for layer in sorted(stack, key=lambda each: len(_needed(each, by_name)), reverse=True):
        if layer.claim is not None and layer.name not in spoken_for:
            spoken_for |= _needed(layer, by_name)
            found.append(layer)
    return found


def _needed(layer: Layer, by_name: Mapping[str, Layer]) -> frozenset[str]:
    """The smallest stack that a layer is in."""
    needed, queue = set(), [layer.name]
    while queue:
        name = queue.pop()
        if name not in needed:
            needed.add(name)
            queue += by_name[name].requires
    return frozenset(needed)


def _joined(claims: Iterable[Claim]) -> Claim:
    """What several layers promise together: nothing that one of them does not."""
    claims = tuple(claims)
    texts = {
        name: "; ".join(dict.fromkeys(getattr(claim, name) for claim in claims))
        for name in ("system", "hides", "assumes", "found")
    }
    return Claim(
        **texts,
        lossless=all(claim.lossless for claim in claims),
        drops_reports=any(claim.drops_reports for claim in claims),
    )


STACKS = stacks_of(
    RECORDS.values(),
    Claim(
        system="federated PMF",
        hides="nothing",
        assumes="nothing",
        lossless=True,
        found="the server reads rated set, ratings and user vector from one upload",
    ),
)
"""Claim by stack of layer names, over rows that are summed."""

BAG_STACKS = stacks_of(
    BAG_RECORDS.values(),
    Claim(
        system="HPFL's drafts as published (Wu et al. 2021)",
        hides="nothing",
        assumes="nothing",
        lossless=True,
        found="the server reads every vector and whose it is; a draft of one member is that "
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
        Claims of the stacks of which every layer can hide any rows; with noise, if it bears that.
    """
    found: dict[tuple[str, ...], Claim] = {(): bare}
    for names in STACKS:
        layers = [RECORDS[name] for name in names]
        if not subject.bears_noise and any(layer.traits.noise == "added" for layer in layers):
            continue
        claims = [layer.elsewhere for layer in _speakers(layers)]
        told = [claim.of(subject) for claim in claims if claim is not None]
        if told and len(told) == len(claims):
            found[names] = told[0] if len(told) == 1 else _joined(told)
    return MappingProxyType(found)


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
        problem = "hides what is summed, and nothing in a bag is"
    return claim_of(layers, BAG_STACKS, "bag_protection", problem)


def claim_of(layers: tuple[str, ...], table: Claims, key: str, problem: str) -> Claim:
    """The claim of a stack in a table.

    Args:
        layers: the stack.
        table: claims by stack.
        key: table of a configuration that names the layers.
        problem: what is wrong with a stack that is not in it.

    Raises:
        ConfigError: it is not; the choices are the stacks that are.
    """
    if layers not in table:
        choices = [" + ".join(stack) or "none" for stack in table]
        raise ConfigError(key, " + ".join(map(str, layers)) or "none", problem, choices)
    return table[layers]
