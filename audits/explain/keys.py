"""Every key that a configuration may hold, from the settings classes behind it.

A key has the name that ``--set`` uses, such as ``protection.rho``. Its meaning may depend on the
algorithm, the data set or the layer of its table: a ``Key`` is one meaning, with its places.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attacks import SUITE
from audits.config.audit import DEFAULT_SYSTEM, LAYER_TABLES, SECTIONS, AuditConfig
from audits.config.judged import ENTRIES
from audits.explain.fields import (
    PLUGGED,
    REQUIRED,
    UNSET,
    Facts,
    facts_of,
    plugged,
    tables_of,
)
from audits.plugin_names import ALL
from audits.system import System
from audits.systems import DATA, SYSTEMS, kinds_of, system_named
from secure_fedrec.core.registry import derived
from secure_fedrec.protection import RECORDS
from secure_fedrec.settings import Settings

GENERATED = "synthetic"
"""The generated data set, whose shape ``[data]`` sets; other data sets with the same class of
settings do not have a shape to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key in one of its meanings.

    Args:
        path: dotted, as ``--set`` takes it.
        places: where it has this meaning: "algorithm/data set", or the name of a layer; empty for
            everywhere.
        facts: what it is.
    """

    path: str
    places: tuple[str, ...] = ()
    facts: Facts

    @property
    def table(self) -> str:
        """The table that it is written in; "" at the top of the file."""
        return self.path.rpartition(".")[0]

    def words(self) -> dict[str, str]:
        """All facts about it, by name."""
        place = {"place": self.place} if self.places else {}
        return {**place, **self.facts.words()}

    @property
    def place(self) -> str:
        """Its places in words."""
        words = "; ".join(_in_words(self.places))
        partly = self.table.partition(".")[0] in ("algorithm", "data") and absent()
        return f"{words} (of the algorithms that are installed)" if partly else words


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A pair of tables ``[data]`` and ``[algorithm]`` that go together.

    Args:
        system: the algorithm.
        sets: names of the data sets.
        data, algorithm: classes of the two tables.
    """

    system: System
    sets: tuple[str, ...]
    data: type[Settings]
    algorithm: type[Settings]

    @property
    def places(self) -> tuple[str, ...]:
        """The pairs of names of these tables, in the form of ``Key.places``."""
        return tuple(f"{self.system.name}/{name}" for name in self.sets)

    @property
    def idle(self) -> frozenset[str]:
        """Fields of ``data`` that only apply to a generated set, which these sets are not."""
        shape = getattr(self.data, "shape_of", None)
        if shape is None or GENERATED in self.sets or self.data is shape:
            return frozenset()
        return frozenset(facts_of(shape)) & frozenset(facts_of(self.data)) - {"name"}

    def naming(self) -> tuple[Facts, Facts]:
        """The two keys ``data.name`` and ``algorithm.name``, which choose the rest."""
        data = "data set that is trained on; `secure-fedrec data list` says where each comes from."
        algorithm = (
            "algorithm that is trained; it determines which data sets and layers can be used."
        )
        return (
            Facts.naming(
                kinds_of(self.system),
                default=self.system.default_data,
                meaning=data,
                plugin="data set",
            ),
            Facts.naming(SYSTEMS, default=DEFAULT_SYSTEM, meaning=algorithm, plugin="algorithm"),
        )


def _in_words(places: Sequence[str]) -> Iterator[str]:
    """Places in words: only the algorithm if all of its data sets are included."""
    sets: dict[str, list[str]] = {}
    for place in places:
        system, _, name = place.partition("/")
        sets.setdefault(system, []).extend([name] if name else [])
    for system, names in sets.items():
        if not names:
            yield f'layer "{system}"'
            continue
        whole = set(names) >= set(system_named(system).kinds)
        yield f'algorithm "{system}"' + ("" if whole else f" on {', '.join(names)}")


@derived(SYSTEMS)
def absent() -> Mapping[str, str]:
    """Algorithms whose settings cannot be imported here, and why: an extra is not installed."""
    found = {}
    for name in SYSTEMS:
        try:
            system_named(name)
        except ModuleNotFoundError as missing:
            found[name] = str(missing)
    return found


@derived(SYSTEMS, DATA)
def trained() -> tuple[Trained, ...]:
    """All pairs of data and algorithm, by system."""
    found: dict[tuple[object, ...], Trained] = {}
    for system in (system_named(name) for name in SYSTEMS if name not in absent()):
        for name, kind in kinds_of(system).items():
            key = (system.name, kind.settings, kind.algorithm, name == GENERATED)
            pair = found.get(key) or Trained(
                system=system, sets=(), data=kind.settings, algorithm=kind.algorithm
            )
            found[key] = replace(pair, sets=(*pair.sets, name))
    return tuple(found.values())


def top_facts() -> dict[str, Facts]:
    """The keys at the top of a file."""
    facts = facts_of(AuditConfig)
    names = [ALL, *SUITE]
    attacks = replace(
        facts["attacks"],
        default=[ALL],
        allowed=", ".join(f'"{name}"' for name in names) + PLUGGED,
        schema={"type": "array", "items": plugged("attack", names)},
    )
    measures = Facts(
        type="list of strings",
        unit="",
        default=UNSET,
        allowed='plug-ins as "package.module:OBJECT"',
        meaning="figures that plug-ins bring, for attacks that do not bring them themselves.",
        schema={"type": "array", "items": plugged("figures", ())},
    )
    kept = {"title": facts["title"], "seed": facts["seed"]}
    return {**kept, "attacks": attacks, "measures": measures}


def layer_facts(layers: Mapping[str, Any]) -> Facts:
    """The key ``layer`` of a table of layers; layers over rows may be plug-ins."""
    meaning = "name of the layer; `secure-fedrec explain NAME` says what it hides from whom."
    plugin = "layer" if layers is LAYER_TABLES["protection"] else None
    return Facts.naming(layers, default=REQUIRED, meaning=meaning, plugin=plugin)


@derived(SYSTEMS, DATA, SUITE, RECORDS)
def keys() -> tuple[Key, ...]:
    """All keys, table by table, each meaning once."""
    return _merged((*_at_the_top(), *_of_algorithms(), *_of_the_rest()))


def _merged(every: Iterable[Key]) -> tuple[Key, ...]:
    merged: dict[tuple[str, str], Key] = {}
    for key in every:
        same = (key.path, str(key.facts))
        known = merged.get(same)
        places = dict.fromkeys((*(known.places if known else ()), *key.places))
        merged[same] = replace(key, places=tuple(places))
    tables = list(dict.fromkeys(map(_top, merged.values())))
    return tuple(sorted(merged.values(), key=lambda key: tables.index(_top(key))))


def _top(key: Key) -> str:
    return key.path.partition(".")[0] if "." in key.path else ""


def _at_the_top() -> Iterator[Key]:
    yield from (Key(path=name, facts=facts) for name, facts in top_facts().items())


def _of_algorithms() -> Iterator[Key]:
    for pair in trained():
        data, algorithm = pair.naming()
        yield Key(path="data.name", places=pair.places, facts=data)
        yield from _table("data", pair.data, pair.places, without={"name", *pair.idle})
        yield Key(path="algorithm.name", facts=algorithm)
        yield from _table("algorithm", pair.algorithm, pair.places)


def _of_the_rest() -> Iterator[Key]:
    for name, kind in SECTIONS.items():
        yield from _table(name, kind)
    for table, layers in LAYER_TABLES.items():
        yield Key(path=f"{table}.layer", facts=layer_facts(layers))
        for name, kind in layers.items():
            yield from _table(table, kind, (name,))
    for name, kind in ENTRIES.items():
        yield from _table(name, kind)


def _table(
    path: str, kind: type[Any], places: Sequence[str] = (), without: Collection[str] = ()
) -> Iterator[Key]:
    for name, facts in facts_of(kind).items():
        if name not in without:
            yield Key(path=f"{path}.{name}", places=tuple(places), facts=facts)
    for name, inner in tables_of(kind).items():
        yield from _table(f"{path}.{name}", inner, places)


def keys_named(name: str, *, algorithms: bool = True) -> tuple[Key, ...]:
    """The meanings of a key: by its path, by its table, or by the end of its path.

    Args:
        name: of it.
        algorithms: whether it may be a key that an algorithm decides about.
    """
    # What no algorithm decides about is found before any is imported, with what it brings along.
    few = _merged((*_at_the_top(), *_of_the_rest()))
    if found := _starting(few, name):
        return found
    every = keys() if algorithms else few
    return _starting(every, name) or tuple(key for key in every if key.path.endswith(f".{name}"))


def _starting(every: Sequence[Key], name: str) -> tuple[Key, ...]:
    """The key of a path, or those of a table."""
    return tuple(key for key in every if key.path == name) or tuple(
        key for key in every if key.path.startswith(f"{name}.")
    )
