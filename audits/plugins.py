"""Plug-ins: algorithms, layers, attacks, data sets and figures that a configuration adds.

A configuration names one as "package.module:OBJECT", or by the name of an entry point
(``audits.plugin_origins``). Only named plug-ins are imported, and only here. A loaded object must
keep the cheap part of the contract of its kind (``attacks.testing``, ``secure_fedrec.testing``,
``audits.contracts``), and its name must be free. It is then added to the registry of its kind,
which also holds all shipped objects.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from traceback import FrameSummary, extract_tb
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from attacks.scoring.measures import MEASURES
from attacks.suite import SUITE, attack_named
from audits.plugin_names import ALL, WORDS, require_keys, require_name
from audits.plugin_origins import Origin, extra_with, installed, origin_of, written_of
from audits.system import DataKind, System
from audits.systems import DATA, SYSTEMS
from secure_fedrec.core.registry import Registry
from secure_fedrec.errors import ConfigError, MissingExtraError, entry
from secure_fedrec.protection import RECORDS, Layer

PLUGINS = "plugins"
"""Key of a resolved configuration for the origins of its plug-ins, which is written but not read.
"""

TRAINING = ("algorithm", "layer", "data set")
"""Kinds of plug-ins that determine the bits of a training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin(Origin):
    """A plug-in that is loaded.

    Args:
        name: its own name, which gates, figures and reports use.
    """

    name: str


class _Kind(NamedTuple):
    """One kind of plug-in: its registry, its contract, and how its objects are called."""

    registry: Registry[Any]
    require: Callable[[Any], None]
    name: Callable[[Any], str] = lambda thing: str(thing.name)


def _require_attack(attack: Any) -> None:
    from attacks.testing import require_attack  # noqa: PLC0415 - plants nothing until it is needed

    measures = getattr(attack, "measures", {})
    if measures:
        _require_figures(measures)
    require_attack(attack)


def _require_layer(layer: Any) -> None:
    from secure_fedrec.testing.layers import require_layer  # noqa: PLC0415

    require_layer(layer)


def _require_system(system: Any) -> None:
    from audits.contracts import require_system  # noqa: PLC0415

    require_system(system)


def _require_data(kind: Any) -> None:
    from audits.contracts import require_data  # noqa: PLC0415

    require_data(kind)


def _require_figures(measures: Any) -> None:
    from attacks.testing import require_measures  # noqa: PLC0415

    require_measures(measures)


def _name_of_data(kind: Any) -> str:
    return str(next(each.default for each in fields(kind.settings) if each.name == "name"))


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "figures": _Kind(MEASURES, _require_figures),
        "attack": _Kind(SUITE, _require_attack),
        "algorithm": _Kind(SYSTEMS, _require_system),
        "layer": _Kind(RECORDS, _require_layer),
        "data set": _Kind(DATA, _require_data, _name_of_data),
    }
)

_LOADED: dict[tuple[str, str], tuple[object, tuple[Plugin, ...]]] = {}
"""Loaded plug-ins by kind and "package.module:OBJECT", so that an object is added only once."""


class Named(NamedTuple):
    """A configuration in which plug-ins have their own names.

    Attributes:
        settings: the configuration.
        plugins: the loaded plug-ins, in the order in which they were named.
    """

    settings: Mapping[str, Any]
    plugins: tuple[Plugin, ...]


def named(raw: Mapping[str, Any]) -> Named:
    """Load the plug-ins that a configuration names.

    Args:
        raw: its plain values; errors in values other than names of plug-ins are ignored here.

    Raises:
        ConfigError: a plug-in cannot be loaded, or breaks its contract; under the key that names
            it.
    """
    found: dict[tuple[str, str], Plugin] = {}
    told = {key: value for key, value in raw.items() if key not in (PLUGINS, "measures")}

    def own(kind: str, name: Any, key: str) -> Any:
        """The own name of a loaded plug-in, or the name as written."""
        loaded = load(kind, name, key=key)
        found.update({(each.kind, each.name): each for each in loaded})
        return loaded[0].name if loaded else name

    for name in _list(raw, "measures"):
        if not load("figures", name, key="measures"):
            raise ConfigError("measures", name, "is not a plug-in: write package.module:OBJECT")
        own("figures", name, "measures")
    attacks = [own("attack", name, "attacks") for name in _list(raw, "attacks")]
    for table, kind in (("algorithm", "algorithm"), ("data", "data set")):
        settings = raw.get(table)
        if isinstance(settings, dict) and "name" in settings:
            told[table] = {**settings, "name": own(kind, settings["name"], f"{table}.name")}
    layers = raw.get("protection")
    if isinstance(layers, list):
        told["protection"] = list(layers)
        for number, table in enumerate(layers):
            if isinstance(table, dict) and "layer" in table:
                with entry(number):
                    name = own("layer", table["layer"], "protection.layer")
                told["protection"][number] = {**table, "layer": name}
    brought = [each.name for each in found.values() if each.kind == "attack"]
    if isinstance(raw.get("attacks"), list):
        told["attacks"] = _spread(attacks, brought)
    elif "attacks" not in raw and brought:
        told["attacks"] = _spread([ALL], brought)
    names = {each.object: each.name for each in found.values() if each.kind == "attack"}
    for key in ("gates", "waivers"):
        if isinstance(tables := raw.get(key), list):
            told[key] = [_renamed(table, names) for table in tables]
    return Named(told, tuple(found.values()))


def _list(raw: Mapping[str, Any], key: str) -> Sequence[Any]:
    """A list of names; empty without a list."""
    names = raw.get(key, [])
    if key == "measures" and not isinstance(names, list):
        raise ConfigError(key, names, "must be a list of names of plug-ins")
    return names if isinstance(names, list) else []


def _spread(attacks: Sequence[Any], brought: Sequence[str]) -> list[Any]:
    """A list of attacks without "all": all that are shipped, then those of the configuration."""
    if ALL not in attacks:
        return list(attacks)
    twice = next((each for each in attacks if attacks.count(each) > 1), None)
    if twice is not None:
        raise ConfigError("attacks", twice, "is named twice")
    return list(dict.fromkeys((*SUITE.shipped, *brought)))


def _renamed(table: Any, names: Mapping[str, str]) -> Any:
    """A table of a gate or waiver whose attack has its own name."""
    attack = table.get("attack") if isinstance(table, dict) else None
    if not isinstance(attack, str) or attack not in names:
        return table
    return {**table, "attack": names[attack]}


def load(kind: str, name: object, *, key: str) -> tuple[Plugin, ...]:
    """Load the plug-in that a configuration names, and add it to the registry.

    Args:
        kind: kind of plug-in, see ``plugin_origins.GROUPS``.
        name: "package.module:OBJECT", or the name of an entry point.
        key: key of the configuration, or an option.

    Returns:
        The plug-in, and those that it includes; for figures, one per figure; empty if the name is
        not a plug-in's.

    Raises:
        ConfigError: it cannot be loaded, breaks its contract, or has a name that is taken.
    """
    if isinstance(name, str) and name in WORDS:
        return ()  # reserved, whatever distribution has an entry point of that name
    shipped = isinstance(name, str) and name in _KINDS[kind].registry.shipped
    written = written_of(kind, name, key=key, shipped=shipped)
    if written is None:
        return ()
    module, thing = _imported(written, key=key)
    known = _LOADED.get((kind, written))
    if known is None or known[0] is not thing:
        known = _LOADED[kind, written] = thing, _added(kind, written, module, thing, key)
    return known[1]


def explained(name: str) -> tuple[str, ...]:
    """Load a plug-in that a user asks about; its own names, or nothing if it is not a plug-in.

    Args:
        name: "package.module:OBJECT", or the name of an entry point.

    Raises:
        ConfigError: it cannot be loaded, or does not keep the contract of any kind of plug-in.
    """
    shipped = {kind: name in each.registry.shipped for kind, each in _KINDS.items()}
    if ":" in name:
        written_of("attack", name, key="name", shipped=False)  # checks the form of the name
        _, thing = _imported(name, key="name")
        kind = _kind_of(thing)
        return _names(kind, name)
    kinds = [kind for kind in _KINDS if any(each.name == name for each in installed(kind))]
    if any(shipped.values()) or not kinds or name in WORDS:
        return ()
    return _names(kinds[0], name)


def _names(kind: str, name: str) -> tuple[str, ...]:
    return tuple(each.name for each in load(kind, name, key="name") if each.kind == kind)


def _kind_of(thing: object) -> str:
    """The kind of plug-in that an object is; an attack by default."""
    kinds = {System: "algorithm", Layer: "layer", DataKind: "data set", Mapping: "figures"}
    return next((kind for of, kind in kinds.items() if isinstance(thing, of)), "attack")


def attack_called(name: str, *, key: str) -> str:
    """The own name of an attack that a user asks for; a plug-in is loaded.

    Raises:
        ConfigError: the plug-in does not exist, or cannot be loaded.
    """
    loaded = load("attack", name, key=key)
    return loaded[0].name if loaded else attack_named(name, key=key).name


def _added(kind: str, written: str, module: ModuleType, thing: Any, key: str) -> tuple[Plugin, ...]:
    """Add an object to the registry of its kind, with what it includes."""
    registry, require, name_of = _KINDS[kind]
    brought: list[Plugin] = []
    kept = thing
    try:
        if kind == "attack":
            _add_all(getattr(thing, "measures", {}), written)
        if isinstance(thing, System):
            kept, brought = _with_attacks(thing, key)
        require(kept)
        if kind != "figures":
            require_name(name_of(kept))
        if kind == "figures":
            _add_all(thing, written)
        else:
            registry.add(name_of(kept), kept, written)
    except (AssertionError, ValueError) as broken:
        if isinstance(broken, ConfigError) and broken.key == key:
            raise
        raise ConfigError(key, written, f"the {kind} {broken}") from broken
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigError(key, written, f"the {kind} raises {_told(error)}") from error
    file = getattr(module, "__file__", None)
    source = Path(file) if file is not None and Path(file).is_file() else None
    told = origin_of(kind, written, source).told()
    figures = thing if kind == "figures" else getattr(thing, "measures", {})
    of_figures = (Plugin(**{**told, "kind": "figures"}, name=key) for key in figures)
    own = () if kind == "figures" else (Plugin(**told, name=name_of(kept)),)
    return (*own, *of_figures, *brought)


def _add_all(measures: Any, origin: str) -> None:
    """Add figures, all or none."""
    if not measures:
        return
    _require_figures(measures)
    for name in measures:
        if name in MEASURES.shipped:
            raise ValueError(f"has a figure {name!r}, which is shipped")
    require_keys(measures)
    for name, measure in measures.items():
        MEASURES.add(name, measure, origin)


def _with_attacks(system: System, key: str) -> tuple[System, list[Plugin]]:
    """A system whose attacks have their own names, and those of them that are plug-ins."""
    brought: list[Plugin] = []
    names = []
    for name in system.attacks:
        loaded = load("attack", name, key=key)
        brought += loaded
        names.append(loaded[0].name if loaded else name)
    return (replace(system, attacks=tuple(names)) if brought else system), brought


def _imported(written: str, *, key: str) -> tuple[ModuleType, Any]:
    """The module and the object of "package.module:OBJECT".

    Raises:
        ConfigError: the module or object does not exist, or the module cannot be imported.
    """
    path, _, attribute = written.partition(":")
    try:
        module = import_module(path)
    except ModuleNotFoundError as absent:
        raise ConfigError(key, written, _absent(path, absent)) from absent
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        problem = f"importing {path} raises {_told(error)}"
        raise ConfigError(key, written, problem) from error
    try:
        return module, getattr(module, attribute)
    except AttributeError:
        public = [name for name in vars(module) if not name.startswith("_")]
        problem = f"the module {path} has no {attribute}"
        raise ConfigError(key, written, problem, public) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigError(key, written, f"its {attribute} raises {_told(error)}") from error


def _absent(path: str, absent: ModuleNotFoundError) -> str:
    """The error for a missing module, or for a package that it imports."""
    missing = absent.name or ""
    if path == missing or path.startswith(f"{missing}."):
        return (
            f"there is no module {missing}: install the distribution that has it, or put its "
            "folder on PYTHONPATH"
        )
    package = absent.package if isinstance(absent, MissingExtraError) else missing.partition(".")[0]
    extra = absent.extra if isinstance(absent, MissingExtraError) else extra_with(package)
    told = f"importing {path} needs {package}, which is not installed"
    return told if extra is None else f"{told}; pip install 'secure-fedrec[{extra}]' installs it"


def _told(error: BaseException, last: FrameSummary | None = None) -> str:
    """An exception in words, with a line that was reached, by default the last."""
    last = last or extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    if isinstance(error, SyntaxError) and error.filename is not None:
        where = f"{Path(error.filename).name}:{error.lineno}"
    message = " ".join(str(error).split())
    return f"{type(error).__name__}{f': {message}' if message else ''} ({where})"


def blamed(error: BaseException) -> str | None:
    """The error of a loaded plug-in, in words; None if none of its lines was reached."""
    homes = {}
    for kind, written in _LOADED:
        module = sys.modules.get(written.partition(":")[0])
        homes[getattr(module, "__file__", None)] = kind, written
    for frame in reversed(extract_tb(error.__traceback__)):
        if frame.filename in homes:
            kind, written = homes[frame.filename]
            return f"the {kind} {written} raises {_told(error, frame)}"
    return None


def written_names(plugins: Iterable[Plugin], kind: str) -> Mapping[str, str]:
    """The names in a configuration of plug-ins of a kind, by their own."""
    return {each.name: each.object for each in plugins if each.kind == kind}


def same_training(kept: Mapping[str, Any], plugins: Iterable[Plugin]) -> str | None:
    """The difference between a training's plug-ins and a kept configuration; None if equal.

    Args:
        kept: the resolved configuration of the training.
        plugins: those that are loaded.
    """
    before = {each["object"]: each for each in kept.get(PLUGINS, ()) if each["kind"] in TRAINING}
    for each in plugins:
        if each.kind in TRAINING and before.get(each.object) != each.told():
            return f"the {each.kind} {each.object} is not the one that it was begun with"
    return None
