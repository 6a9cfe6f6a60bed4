"""Methods of Fed3CR's tables by name, and their settings by dotted keys."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from secure_fedrec.algorithms.item_tables import (
    Enhanced,
    Enhancement,
    Fed3CR,
    Fed3CRConfig,
    FedMF,
    FedMFConfig,
    FedNCF,
    FedNCFConfig,
    FedRAP,
    FedRAPConfig,
    PFedRec,
    PFedRecConfig,
)
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import PLUG_IN
from secure_fedrec.algorithms.item_tables.gpfedrec import GPFedRec, GPFedRecConfig
from secure_fedrec.algorithms.item_tables.method import ItemTableMethod
from secure_fedrec.algorithms.item_tables.perfedrec import PerFedRec, PerFedRecConfig
from secure_fedrec.errors import ConfigError

FAMILY: Final[Mapping[str, tuple[Any, Any]]] = MappingProxyType(
    {
        "fedmf": (FedMF, FedMFConfig),
        "fedncf": (FedNCF, FedNCFConfig),
        "pfedrec": (PFedRec, PFedRecConfig),
        "fedrap": (FedRAP, FedRAPConfig),
        "perfedrec": (PerFedRec, PerFedRecConfig),
        "gpfedrec": (GPFedRec, GPFedRecConfig),
        "fed3cr": (Fed3CR, Fed3CRConfig),
    }
)
"""Method and settings by name."""

_BELOW: Final = tuple(
    name
    for name, (made, _) in FAMILY.items()
    if not hasattr(made, "mix") and not issubclass(made, Enhanced)
)
"""Methods that the plug-in works over: not those whose server mixes tables, nor Fed3CR itself."""

CENTRAL: Final = ("neumf", "lightgcn")
"""Models of one party that has all data; a round is one of their epochs."""

ORACLES: Final = "oracles"
"""Rules without a model, in place of a method."""

METHODS: Final = (
    ORACLES,
    *FAMILY,
    *(f"{PLUG_IN}{name}" for name in _BELOW),
    *CENTRAL,
)
"""All that can be studied."""

RANKED_AVERAGED: Final = ("fedrap", f"{PLUG_IN}fedrap")
"""Methods that rank by the averaged table, as FedRAP's public code does. The public codes of
PFedRec and GPFedRec rank by the client's trained table, and so do all other methods here."""

_ENHANCEMENT: Final = "enhancement"


def build_method(
    name: str, settings: Mapping[str, Any], *, rounds: int, n_items: int
) -> ItemTableMethod:
    """A method with its settings.

    Args:
        name: one of ``METHODS`` that is a federation's.
        settings: settings that differ from the default; a key with a dot belongs to a part,
            "local.epochs". Of a plug-in those of the method below, and "enhancement." before its
            own.
        rounds: of training.
        n_items: m.

    Raises:
        ConfigError: there is no such method or key, or a value is out of range.
    """
    below = name.removeprefix(PLUG_IN)
    if name not in METHODS or below not in FAMILY:
        raise ConfigError("study.method", name, "is not a method of a federation", FAMILY)
    nested = _nested(settings)
    made, config = FAMILY[below]
    added = nested.pop(_ENHANCEMENT, {}) if name != below else None
    method: ItemTableMethod = made(with_settings(config(rounds=rounds), nested), n_items)
    if added is None:
        return method
    return Enhanced(method, with_settings(Enhancement(), added))


def with_settings(config: Any, nested: Mapping[str, Any]) -> Any:
    """The same with some fields replaced, also within parts."""
    known = {field.name for field in fields(config)}
    values = {}
    for name, value in nested.items():
        if name not in known:
            raise ConfigError(f"study.settings.{name}", value, "is not a setting", known)
        part = getattr(config, name)
        values[name] = with_settings(part, value) if is_dataclass(part) else value
    return replace(config, **values)


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        first, dot, rest = key.partition(".")
        if dot:
            found.setdefault(first, {})[rest] = value
        else:
            found[first] = value
    return found
