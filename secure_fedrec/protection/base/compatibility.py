"""Which layers stack, and what a stack of them promises, derived from their records."""

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from types import MappingProxyType

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.record import ROLES, Claim, Layer

Claims = Mapping[tuple[str, ...], Claim]
"""Claim by stack of layer names."""


def by_name(*layers: Layer) -> Mapping[str, Layer]:
    """Records by the name of the layer."""
    return MappingProxyType({layer.name: layer for layer in layers})


def stacks_of(records: Iterable[Layer], bare: Claim, *, apart: Collection[str] = ()) -> Claims:
    """Every stack of some layers, and what it claims.

    Args:
        records: the layers.
        bare: the claim of no layer.
        apart: names of layers that no record builds, because what carries the stack has them.

    Raises:
        ConfigError: a layer publishes the claim of a stack that is not possible, or requires an
            unknown layer.
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
    """Layers that make a collector, without those that are part of another one's."""
    makers = tuple(layer for layer in stack if layer.role != "cloak" and layer.build)
    taken = {name for maker in makers for name in maker.requires}
    return tuple(maker for maker in makers if maker.name not in taken)


def _is_built(stack: tuple[Layer, ...], apart: Collection[str]) -> bool:
    """Whether every layer is in the built stack: as cloak, as maker, or in the maker.

    Otherwise a layer would be left out, although its claim is stated.
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
    claims = [layer.claim for layer in speakers(stack) if layer.claim is not None]
    return claims[0] if len(claims) == 1 else joined_claim(claims)


def speakers(stack: Iterable[Layer]) -> list[Layer]:
    """The layers whose claims cover a whole stack: each also covers the layers that it requires."""
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


def joined_claim(claims: Iterable[Claim]) -> Claim:
    """What several layers promise together: only what each of them promises."""
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


def claim_of(layers: tuple[str, ...], table: Claims, key: str, problem: str) -> Claim:
    """The claim of a stack in a table.

    Args:
        layers: the stack.
        table: claims by stack.
        key: table of a configuration that names the layers.
        problem: what is wrong with a stack that is not in it.

    Raises:
        ConfigError: the stack is not possible; the choices list the possible ones.
    """
    if layers not in table:
        choices = [" + ".join(stack) or "none" for stack in table]
        raise ConfigError(key, " + ".join(map(str, layers)) or "none", problem, choices)
    return table[layers]
