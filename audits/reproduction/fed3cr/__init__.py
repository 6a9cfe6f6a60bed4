"""Fed3CR's tables 2 (methods), 3 (parts) and 4 (transfers), figures 6 to 9, under two protocols.

Reading order: ``paper``, ``search``, ``choice`` (which setting is reported), ``tables``,
``figures``, ``sensitivity``.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from audits.reproduction.engine import Parts, Result, wanted_parts
from audits.reproduction.fed3cr.choice import Library
from audits.reproduction.fed3cr.figures import FIGURES, figure_of, needed_varied
from audits.reproduction.fed3cr.paper import (
    ABLATION,
    Needed,
    Paper,
    Place,
    StudySource,
    load_paper,
)
from audits.reproduction.fed3cr.search import Setting
from audits.reproduction.fed3cr.sensitivity import sensitivity, varied
from audits.reproduction.fed3cr.tables import (
    methods_lines,
    methods_table,
    variants_lines,
    variants_table,
)
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import PLUG_IN
from secure_fedrec.errors import ConfigError
from secure_fedrec.studies.fed3cr.methods import METHODS

Variants: TypeAlias = Mapping[int, Mapping[str, Setting]]
"""By table, the settings of its rows."""

_STAND_IN: Final = "NOT ITS DATA: generated interactions in their place, a few rounds"
_SENSITIVITY: Final = "sensitivity"


def reproduce(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, compare the tables, draw the figures; see ``papers.Run``."""
    parts = wanted_parts(arguments, tables=(2, 3, 4), figures=(*FIGURES, _SENSITIVITY))
    paper = load_paper(quick=arguments.quick)
    places = paper.places(arguments.data, arguments.protocol)
    library = Library(StudySource(paper=paper, **StudySource.options(arguments)), arguments.seeds)
    methods = {place: _methods(paper, parts, place, arguments.method) for place in places}
    for name in arguments.method or ():
        if not any(name in each for each in methods.values()):
            raise ConfigError("--method", name, "is in none of the tables and figures asked for")
    library.fetch_methods(places, methods)
    variants = {place: _variants(library, parts, place, methods[place]) for place in places}
    library.fetch(
        each for place in places for each in _needed(library, parts, place, variants[place])
    )
    library.source.require(library.studies, "Fed3CR")
    values = {"paper": paper.title, "quick": arguments.quick, "tables": [], "figures": []}
    result = Result(arguments.out, values, _STAND_IN if arguments.quick else "")
    for place in places:
        asked, own = arguments.method, variants[place]
        for table, lines in _tables(library, parts, place, methods[place], asked, own):
            result.tell("tables", table, lines)
    shown = [
        figure_of(name, library, place, arguments.out)
        for place in places
        for name in _drawn(library, parts, place)
    ]
    if _SENSITIVITY in parts.figures:
        shown += [sensitivity(library, place) for place in places]
    for figure, lines in shown:
        result.values["figures"].append(figure)
        result.lines += lines
    diverged = [each.stem for each, found in library.studies.items() if found.diverged]
    studies = [each.stem for each in library.studies]
    result.values |= {"diverged": diverged, "studies": studies}
    result.lines += [f"diverged, and left out: {each}" for each in diverged]
    return result.ended([found.report for found in library.studies.values()])


def _methods(paper: Paper, parts: Parts, place: Place, asked: Sequence[str] | None) -> list[str]:
    """The methods that the wanted parts need on a data set."""
    known = paper.studied(place, asked)
    due: set[str] = set()
    if 2 in parts.tables:
        due |= {name for name in known if not name.startswith(PLUG_IN)}
    if {3, 4} & set(parts.tables) or "9" in parts.figures:
        due |= {"fed3cr"}
    if _SENSITIVITY in parts.figures:
        due |= set(paper.of_ideas(place))
    if {"6", "7"} & set(parts.figures):
        due |= set(paper.overlap_methods)
    if "8" in parts.figures and place.data in paper.figure8["data"]:
        due |= {name for each in paper.figure8["methods"] for name in (each, f"{PLUG_IN}{each}")}
    return [name for name in known if name in due]


def _tables(
    library: Library,
    parts: Parts,
    place: Place,
    methods: Sequence[str],
    asked: Sequence[str] | None,
    variants: Variants,
) -> list[tuple[dict[str, Any], list[str]]]:
    """Tables 2 to 4 of one place, and figure 8 in numbers."""
    paper, found = library.paper, []
    if 2 in parts.tables:
        rows = [
            name
            for name in paper.table2[place.data]
            if name in methods or (name not in METHODS and not asked)
        ]
        table = methods_table(library, place, rows, number_=2)
        found.append((table, methods_lines(table)))
    plugged = [name for name in methods if name.startswith(PLUG_IN)]
    if plugged:
        both = [name for each in plugged for name in (each.removeprefix(PLUG_IN), each)]
        rows = [name for name in both if name in methods]
        table = methods_table(library, place, rows, number_="Figure 8")
        found.append((table, methods_lines(table)))
    for number, settings in variants.items():
        table = variants_table(library, place, number, settings)
        found.append((table, variants_lines(table)))
    return found


def _variants(library: Library, parts: Parts, place: Place, methods: Sequence[str]) -> Variants:
    """Rows of tables 3 and 4, if a place has them, from Fed3CR's own setting if it is known."""
    if "fed3cr" not in methods:
        return {}
    chosen = library.best(place, "fed3cr")
    return {
        number: {} if chosen is None else {row: each.vary(chosen.setting, row) for row in each.rows}
        for number, each in library.paper.variations.items()
        if number in parts.tables and place.data in each.printed
    }


def _needed(library: Library, parts: Parts, place: Place, variants: Variants) -> list[Needed]:
    """Studies that vary Fed3CR's own setting: tables 3 and 4, figure 9."""
    rounds, seeds = library.paper.rounds(place, ABLATION), library.seeds(place, ABLATION)
    needed = [
        Needed(place, "fed3cr", setting, seed, rounds)
        for rows in variants.values()
        for seed in seeds
        for setting in rows.values()
    ]
    if _SENSITIVITY in parts.figures:
        needed += [each for row in varied(library, place) for each in (row.needed, row.other)]
    return needed + (needed_varied(library, place) if "9" in _drawn(library, parts, place) else [])


def _drawn(library: Library, parts: Parts, place: Place) -> list[str]:
    """The wanted figures that a place has."""
    limits = {"8": library.paper.figure8["data"], "9": library.paper.figure9["data"]}
    drawn = [name for name in parts.figures if name != _SENSITIVITY]
    return [name for name in drawn if place.data in limits.get(name, [place.data])]
