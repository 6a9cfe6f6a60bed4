"""Fed3CR's reproduction from first study to last drawing."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from audits.reproduction.fed3cr.choice import Chosen, Library
from audits.reproduction.fed3cr.figures import (
    Figure,
    correlation_figure,
    needed_varied,
    overlap_figure,
    plugged_figure,
    varied_figure,
)
from audits.reproduction.fed3cr.paper import (
    ABLATION,
    Needed,
    Paper,
    Place,
    load_paper,
)
from audits.reproduction.fed3cr.sensitivity import sensitivity, varied
from audits.reproduction.fed3cr.settings import Setting
from audits.reproduction.fed3cr.studies import StudySource
from audits.reproduction.fed3cr.tables import (
    ablation_lines,
    ablation_table,
    methods_lines,
    methods_table,
    transfer_lines,
    transfer_table,
)
from audits.reproduction.parts import Parts, wanted_parts
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import PLUG_IN
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.studies.fed3cr.methods import METHODS

Variants: TypeAlias = Mapping[int, Mapping[str, Setting]]
"""By table, the settings of its rows."""

_STAND_IN = "NOT ITS DATA: generated interactions in their place, a few rounds"


def reproduce_fed3cr(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run what is missing, compare the tables, draw the figures.

    Args:
        arguments: of the command, see ``audits.reproduce``.

    Returns:
        The result as JSON values, and as lines of text.

    Raises:
        ConfigError: an option has no such value.
        DataError: a data set is missing, a study of the folder is damaged or of other settings, or
            nothing is to be run and there is no study.
    """
    parts = wanted_parts(arguments, tables=(2, 3, 4), figures=("6", "7", "8", "9", "sensitivity"))
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
    if not library.studies:
        raise DataError(library.source.folder, "holds no study of Fed3CR that is needed")
    result: dict[str, Any] = {"paper": paper.title, "quick": arguments.quick, "tables": []}
    lines = [_STAND_IN, ""] if arguments.quick else []
    for place in places:
        for table, told in _tables(
            library, parts, place, methods[place], arguments.method, variants[place]
        ):
            result["tables"].append(table)
            lines += [*told, ""]
    drawn = [each for place in places for each in _figures(library, parts, place, arguments)]
    shown = [(each.values, each.lines) for each in drawn]
    if "sensitivity" in parts.figures:
        shown += [sensitivity(library, place) for place in places]
    result["figures"] = [values for values, _ in shown]
    lines += [line for _, own in shown for line in own]
    diverged = [each.stem for each, found in library.studies.items() if found.diverged]
    result["diverged"] = diverged
    result["studies"] = [each.stem for each in library.studies]
    seconds = sum(found.report["seconds"] for found in library.studies.values())
    lines += [f"diverged, and left out: {each}" for each in diverged]
    return result, [*lines, f"{len(library.studies)} studies, {seconds:.0f} s of training"]


def _methods(paper: Paper, parts: Parts, place: Place, asked: Sequence[str] | None) -> list[str]:
    """Which methods the wanted parts need on a data set."""
    known = paper.studied(place, asked)
    due: set[str] = set()
    if 2 in parts.tables:
        due |= {name for name in known if not name.startswith(PLUG_IN)}
    if {3, 4} & set(parts.tables) or "9" in parts.figures:
        due |= {"fed3cr"}
    if "sensitivity" in parts.figures:
        due |= set(paper.of_ideas(place))
    if {"6", "7"} & set(parts.figures):
        due |= set(paper.overlap_methods)
    if "8" in parts.figures and place.data in paper.plugged["data"]:
        due |= {name for each in paper.plugged["methods"] for name in (each, f"{PLUG_IN}{each}")}
    return [name for name in known if name in due]


def _tables(
    library: Library,
    parts: Parts,
    place: Place,
    methods: Sequence[str],
    asked: Sequence[str] | None,
    variants: Variants,
) -> list[tuple[dict[str, Any], list[str]]]:
    """Tables 2 to 4 of one place, and what figure 8 shows in numbers."""
    paper, found = library.paper, []
    if 2 in parts.tables:
        rows = [
            name
            for name in paper.methods[place.data]
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
    rounds = paper.rounds(place, ABLATION)
    if 3 in variants:
        table = ablation_table(library, place, _found(library, place, variants[3]), rounds)
        found.append((table, ablation_lines(table)))
    if 4 in variants:
        table = transfer_table(library, place, _found(library, place, variants[4]), rounds)
        found.append((table, transfer_lines(table)))
    return found


def _variants(library: Library, parts: Parts, place: Place, methods: Sequence[str]) -> Variants:
    """Of tables 3 and 4, where a place has them: made from Fed3CR's own setting, if there is."""
    paper = library.paper
    shown = {
        3: (paper.ablation, paper.parts, paper.with_parts),
        4: (paper.transferred, paper.transfers, paper.with_transfer),
    }
    if "fed3cr" not in methods:
        return {}
    chosen = library.best(place, "fed3cr")
    return {
        table: {} if chosen is None else {row: vary(chosen.setting, row) for row in rows}
        for table, (sets, rows, vary) in shown.items()
        if table in parts.tables and place.data in sets
    }


def _needed(library: Library, parts: Parts, place: Place, variants: Variants) -> list[Needed]:
    """What varies Fed3CR's own setting: tables 3 and 4, figure 9."""
    rounds, seeds = library.paper.rounds(place, ABLATION), library.seeds(place, ABLATION)
    needed = [
        Needed(place, "fed3cr", setting, seed, rounds)
        for rows in variants.values()
        for seed in seeds
        for setting in rows.values()
    ]
    if "sensitivity" in parts.figures:
        needed += [each for row in varied(library, place) for each in (row.needed, row.other)]
    return needed + (needed_varied(library, place) if "9" in _drawn(library, parts, place) else [])


def _found(library: Library, place: Place, settings: Mapping[str, Setting]) -> dict[str, Chosen]:
    """Studies of the rows of table 3 or 4; those that there are."""
    found = {
        row: Chosen(setting, library.of_setting(place, "fed3cr", setting, ABLATION))
        for row, setting in settings.items()
    }
    return {row: each for row, each in found.items() if each.found}


def _drawn(library: Library, parts: Parts, place: Place) -> list[str]:
    """The wanted figures that a place has."""
    limits = {"8": library.paper.plugged["data"], "9": library.paper.varied["data"]}
    drawn = [name for name in parts.figures if name != "sensitivity"]
    return [name for name in drawn if place.data in limits.get(name, [place.data])]


def _figures(
    library: Library, parts: Parts, place: Place, arguments: argparse.Namespace
) -> list[Figure]:
    """Figures of one place."""
    makers: dict[str, Callable[..., Figure]] = {
        "6": overlap_figure,
        "7": correlation_figure,
        "8": plugged_figure,
        "9": varied_figure,
    }
    return [makers[name](library, place, arguments.out) for name in _drawn(library, parts, place)]
