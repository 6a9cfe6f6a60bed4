"""``secure-fedrec explain``: what a name of a configuration or of a report means."""

import argparse
import dataclasses
import difflib
import re
import sys
from collections.abc import Mapping
from typing import Any

from attacks import SUITE
from attacks.scoring.measures import MEASURES, Gained
from audits.explain.cards import data_card, layer_names, layers_named, system_card
from audits.explain.figures import KEYS_TOO, figure_cards
from audits.explain.keys import Key, absent, keys, keys_named
from audits.explain.schema import config_schema
from audits.gates.gate import METRICS
from audits.plugins import explained
from audits.report.schema import report_schema
from audits.systems import DATA, SYSTEMS
from audits.terminal import print_json
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import BAG_RECORDS, RECORDS

REPORT, CONFIGURATION = "report.json", "config.json"
SCHEMAS = {REPORT: report_schema, CONFIGURATION: config_schema}
"""JSON Schemas by the file that follows them."""


def explain(arguments: argparse.Namespace) -> int:
    """``explain [NAME]``: cards, keys, a schema, or all attacks.

    Raises:
        ConfigError: nothing has that name.
    """
    name = arguments.name
    if name in SCHEMAS:
        print_json(SCHEMAS[name]())
    elif name is None:
        games = {each: attack.card.game for each, attack in SUITE.items()}
        print_json(games) if arguments.json else print(*_lines(games, 20), sep="\n")
    else:
        for each in explained(name) or (name,):
            _explain(each, as_json=arguments.json, quiet=arguments.quiet)
    return 0


def _explain(name: str, *, as_json: bool, quiet: bool) -> None:
    kind, cards = _cards(name)
    asked = kind != "figure" or name in KEYS_TOO
    found = () if kind in _CARDS_ALONE else keys_named(name, algorithms=asked)
    if not cards and not found:
        raise _unknown(name, quiet=quiet)
    if as_json:
        told: list[dict[str, Any]] = [{kind: name, **card} for card in cards]
        told += [{"key": key.path, "places": key.places, **_plain(key)} for key in found]
        print_json(told[0] if cards and len(told) == 1 else told)
    else:
        if kind == "attack":
            cards[0]["judged"] = _judged()
        for card in cards:
            print(name, *_lines(card, 10, indent="  "), sep="\n")
        _print_keys(name, found)
    if name in _OF_ALGORITHMS and not quiet:
        sys.stdout.flush()
        for line in _left_out():
            print(line, file=sys.stderr)


def _cards(name: str) -> tuple[str, list[dict[str, str]]]:
    """The kind of a name, and its cards; empty for a name that is only a key."""
    if name in METRICS:
        return "figure", figure_cards(name)
    if name in SUITE:
        return "attack", [dataclasses.asdict(SUITE[name].card)]
    if name in SYSTEMS.added:
        return "algorithm", [system_card(SYSTEMS[name])]
    if name in DATA.added:
        return "data set", [data_card(DATA[name])]
    return "layer" if (layers := layers_named(name)) else "", list(layers.values())


_CARDS_ALONE = ("attack", "layer", "algorithm", "data set")
"""Kinds that have a card and are not also keys."""


def _judged() -> str:
    """How findings of attacks are judged."""
    gains = [key for key, each in MEASURES.items() if isinstance(each.severity, Gained)]
    ends = dict.fromkeys(f"*_{key.rpartition('_')[2]}" for key in gains)
    return f"by what is gained over what is known without it (figures {', '.join(ends)})"


def _unknown(name: str, *, quiet: bool) -> ConfigError:
    """The error for an unknown name, with similar names; algorithms with unknown keys come last."""
    names = [*SUITE, *METRICS, *layer_names(), *dict.fromkeys(key.path for key in keys())]
    ends = {each.rpartition(".")[2]: each for each in reversed(names)}
    close = difflib.get_close_matches(name.rpartition(".")[2], ends, n=5)
    meant = " ".join(re.split(r"[\s_-]+", name.strip().lower()))
    records = (*RECORDS.values(), *BAG_RECORDS.values())
    called = [r.name for r in records if meant in (r.name.replace("-", " "), *r.also_called)]
    choices = [*dict.fromkeys(called), *(ends[each] for each in close)] or SUITE
    refusal = ConfigError("name", name, "is not an attack, figure, layer or key", choices)
    for line in () if quiet else _left_out():
        refusal.add_note(line)
    return refusal


def _print_keys(name: str, found: tuple[Key, ...]) -> None:
    if {key.path for key in found} != {name} and len(found) > 1:
        for key in found:  # keys of a table, or one name in several tables
            place = f" ({key.place})" if key.places else ""
            print(f"{key.path}{place}: {_unquoted(key.facts.meaning)}")
    else:
        for key in found:
            print(key.path, *_lines(key.words(), 10, indent="  "), sep="\n")


_OF_ALGORITHMS = frozenset({"algorithm", "data"})
"""Tables whose keys depend on the algorithm; keys of algorithms that are not installed are missing.
"""


def _left_out() -> list[str]:
    """Algorithms whose keys are not known here, and why."""
    return [f"keys left out: {why}" for why in absent().values()]


def _plain(key: Key) -> dict[str, Any]:
    facts = key.facts
    names = ("type", "unit", "default", "allowed", "meaning", "schema")
    return {name: getattr(facts, name) for name in names}


def _lines(card: Mapping[str, str], width: int, indent: str = "") -> list[str]:
    return [f"{indent}{field:{width}} {_unquoted(text)}" for field, text in card.items()]


def _unquoted(text: str) -> str:
    """Text without the marks of code, which a terminal does not show."""
    return text.replace("``", "`")
