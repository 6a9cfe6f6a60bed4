"""``secure-fedrec explain``: what a name of a configuration or of a report means."""

import argparse
import dataclasses
import difflib
import json
import sys
from collections.abc import Mapping
from typing import Any

from attacks import SUITE
from attacks.scoring.measures import Gained
from attacks.suite import MEASURES
from audits.explain.cards import layer_names, layers_named
from audits.explain.keys import Key, absent, keys, keys_named
from audits.explain.schema import config_schema
from audits.report.schema import report_schema
from secure_fedrec.errors import ConfigError

REPORT, CONFIGURATION = "report.json", "config.json"
SCHEMAS = {REPORT: report_schema, CONFIGURATION: config_schema}
"""JSON Schemas by the file that follows them."""


def add_explain(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="attack, figure, layer, or key of a configuration such as protection.rho or "
        f"protection; {CONFIGURATION} or {REPORT} for its JSON Schema; without one, lists all "
        "attacks",
    )
    command.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    command.add_argument("--quiet", action="store_true", help="no progress bars")


def explain(arguments: argparse.Namespace) -> int:
    """``explain [NAME]``: cards, keys, a schema, or all attacks.

    Raises:
        ConfigError: there is nothing of that name.
    """
    name = arguments.name
    if name in SCHEMAS:
        _emit(SCHEMAS[name]())
    elif name is None:
        games = {each: attack.card.game for each, attack in SUITE.items()}
        _emit(games) if arguments.json else print(*_lines(games, 20), sep="\n")
    elif found := keys_named(name) if _is_key(name) else ():
        _explain_keys(name, found, as_json=arguments.json)
    else:
        _explain_card(name, as_json=arguments.json)
    return 0


def _is_key(name: str) -> bool:
    return name not in SUITE and name not in MEASURES and name not in layer_names()


def _explain_card(name: str, *, as_json: bool) -> None:
    kind, cards = _cards(name)
    if as_json:
        told = [{kind: name, **card} for card in cards]
        _emit(told[0] if len(told) == 1 else told)
        return
    if kind == "attack":
        gains = [key for key, each in MEASURES.items() if isinstance(each.severity, Gained)]
        cards[0]["judged"] = f"by what is gained over what is known without it ({', '.join(gains)})"
    for card in cards:
        print(name, *_lines(card, 10, indent="  "), sep="\n")


def _cards(name: str) -> tuple[str, list[dict[str, str]]]:
    """What kind of thing has a name, and all that is to be said of it."""
    if name in MEASURES:
        return "figure", [MEASURES[name].card()]
    if name in SUITE:
        return "attack", [dataclasses.asdict(SUITE[name].card)]
    if layers := layers_named(name):
        return "layer", list(layers.values())
    names = [*SUITE, *MEASURES, *layer_names(), *dict.fromkeys(key.path for key in keys())]
    ends = {each.rpartition(".")[2]: each for each in reversed(names)}
    close = difflib.get_close_matches(name.rpartition(".")[2], ends, n=5)
    problem = "; ".join(["is no attack, figure, layer or key", *_left_out()])
    raise ConfigError("name", name, problem, [ends[each] for each in close] or SUITE)


def _explain_keys(name: str, found: tuple[Key, ...], *, as_json: bool) -> None:
    if as_json:
        _emit([{"key": key.path, "places": key.places, **_plain(key)} for key in found])
    elif {key.path for key in found} != {name} and len(found) > 1:
        for key in found:  # a table, or one name in several tables
            place = f" ({key.place})" if key.places else ""
            print(f"{key.path}{place}: {_unquoted(key.facts.meaning)}")
    else:
        for key in found:
            print(key.path, *_lines(key.words(), 10, indent="  "), sep="\n")
    if _OF_ALGORITHMS & {key.path.partition(".")[0] for key in found}:
        sys.stdout.flush()
        for line in _left_out():
            print(line, file=sys.stderr)


_OF_ALGORITHMS = frozenset({"algorithm", "data"})
"""Tables whose keys an algorithm decides about."""


def _left_out() -> list[str]:
    """Whose keys are not known here, and why."""
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


def _emit(value: object) -> None:
    print(json.dumps(value, indent=2))
