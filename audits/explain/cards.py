"""A layer in words, from its record."""

from collections.abc import Iterator, Mapping
from typing import Any

from audits.config.audit import LAYER_TABLES
from audits.explain.fields import facts_of
from audits.system import DataKind, System
from audits.systems import kinds_of
from secure_fedrec.protection import BAG_STACKS, STACKS
from secure_fedrec.protection.base.record import Layer
from secure_fedrec.protection.layers import BAG_RECORDS, RECORDS

TABLES: Mapping[str, Mapping[str, Layer]] = {"protection": RECORDS, "bag_protection": BAG_RECORDS}
"""Records of layers by the table of a configuration that names them."""

_ROLES = {
    "cloak": "cloak: changes what a client uploads",
    "clip": "clip: bounds what a client contributes",
    "noise": "noise: is added before anything is summed",
    "collector": "collector: takes uploads to their sum",
    "channel": "channel: carries messages without their sender",
}


def layers_named(name: str) -> dict[str, dict[str, str]]:
    """Cards of the layers of a name, by the table that they are written in."""
    return {
        table: layer_card(table, layers[name]) for table, layers in TABLES.items() if name in layers
    }


def layer_card(table: str, layer: Layer) -> dict[str, str]:
    """What a layer is, hides and needs, in words."""
    told = {
        "table": f"[[{table}]]",
        "role": _ROLES[layer.role],
        **_claimed(table, layer),
        "over": "rows of rated items only"
        if table == "protection" and layer.elsewhere is None
        else ("any rows" if table == "protection" else "vectors in bags"),
        "requires": ", ".join(layer.requires),
        "excludes": ", ".join(layer.excludes),
        "withstands": "; ".join(
            f"{' and '.join(stand.corrupt)} cannot tell {_GAMES[stand.hides]}"
            for stand in layer.stands
        ),
        "simulated": layer.simulated,
    }
    return {name: text for name, text in told.items() if text}


_GAMES = {
    "values": "the values of two clients with the same rows",
    "owners": "which of two uploads belongs to which client",
    "contribution": "a client's contribution from another in its place",
}


def _claimed(table: str, layer: Layer) -> dict[str, str]:
    """The claim of the smallest stack that a layer is in."""
    claims = BAG_STACKS if table == "bag_protection" else STACKS
    stack = min((each for each in claims if layer.name in each), key=len)
    claim = claims[stack]
    lossless = "yes" if claim.lossless else "no"
    if claim.lossless and claim.drops_reports:
        lossless = "relative to what it reports"
    return {
        "stack": " + ".join(stack) if len(stack) > 1 else "",
        "system": claim.system,
        "hides": claim.hides,
        "assumes": claim.assumes,
        "lossless": lossless,
        "found": claim.found,
    }


def system_card(system: System) -> dict[str, str]:
    """An algorithm with its settings, for plug-ins, which no page describes."""
    kind = system.kinds[system.default_data]
    stacks = [" + ".join(stack) or "none" for stack in system.claims]
    return {
        "keys": _keys(kind.algorithm),
        "data": ", ".join(kinds_of(system)),
        "layers": "; ".join(stacks),
        "attacks": ", ".join(system.attacks),
        "figures": ", ".join(kind.metrics),
    }


def data_card(kind: DataKind) -> dict[str, str]:
    """The settings of a data set that is a plug-in."""
    return {"keys": _keys(kind.settings), "figures": ", ".join(kind.metrics)}


def _keys(settings: type[Any]) -> str:
    """Keys of a table, with their meanings."""
    return "; ".join(f"{name}: {facts.meaning}" for name, facts in facts_of(settings).items())


def layer_names() -> Iterator[str]:
    """Names of all layers, each once."""
    yield from dict.fromkeys(name for layers in LAYER_TABLES.values() for name in layers)
