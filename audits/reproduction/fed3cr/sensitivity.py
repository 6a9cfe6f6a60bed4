"""The gain of an idea over its comparison, for other values of a constant that no paper states.

The tables judge an idea by one setting. Here one value of that setting is replaced; the comparison
stays. One seed, clients paired.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from audits.reproduction.fed3cr.choice import Chosen, Library
from audits.reproduction.fed3cr.paper import ABLATION, Needed, Place
from audits.reproduction.fed3cr.search import Setting, ordered
from audits.reproduction.fed3cr.tables import gain_over, percent, reported, rounds_of, span
from audits.reproduction.numbers import table_lines


class Varied(NamedTuple):
    """One idea with one value.

    Attributes:
        told: the idea, the method or row of table 3, the setting and its value, and the comparison.
        needed: the study with it.
        other: the study of what it is compared with.
    """

    told: dict[str, Any]
    needed: Needed
    other: Needed


def varied(library: Library, place: Place) -> list[Varied]:
    """All variants of a place, without methods whose setting is not known yet."""
    found = []
    for each in library.paper.ideas(place):
        of, beside = each["of"], each["beside"]
        own, other = (_setting(library, place, side) for side in (of, beside))
        if own is None or other is None:
            continue
        for value in each["values"]:
            told = {"idea": each["idea"], "name": _name(library, of), "key": each["key"]}
            told |= {"value": value, "other_name": _name(library, beside)}
            needed = _study(library, place, of, ordered({**dict(own), each["key"]: value}))
            found.append(Varied(told, needed, _study(library, place, beside, other)))
    return found


def sensitivity(library: Library, place: Place) -> tuple[dict[str, Any], list[str]]:
    """The table as JSON values and as lines; rows whose studies are there."""
    rows = []
    for told, needed, other in varied(library, place):
        mine, theirs = (Chosen(each.setting, library.found([each])) for each in (needed, other))
        if mine.found and theirs.found:
            rows.append({**told, **reported(mine, {}), "gain": gain_over(mine, theirs)})
    cells = {
        "idea": lambda row: row["idea"],
        "": lambda row: row["name"],
        "with": lambda row: f"{row['key']} {row['value']:g}",
        "HR": lambda row: percent(row["ours"]["hit_rate_at_10"]),
        "last HR": lambda row: percent(row["last"]["hit_rate_at_10"]),
        "round": rounds_of,
        "beside": lambda row: row["other_name"],
        "HR less that": lambda row: span(row["gain"]["hit"]),
    }
    title = f"Sensitivity, {place.data}, protocol {place.protocol}, one seed; %"
    values = {"figure": "sensitivity", **place._asdict(), "rows": rows}
    return values, table_lines(title, cells, rows)


def _name(library: Library, side: Mapping[str, Any]) -> str:
    return ", ".join(
        [library.paper.names[side["method"]], *([side["row"]] if "row" in side else [])]
    )


def _setting(library: Library, place: Place, side: Mapping[str, Any]) -> Setting | None:
    chosen = library.best(place, side["method"])
    if chosen is None:
        return None
    row = side.get("row")
    return chosen.setting if row is None else library.paper.with_parts(chosen.setting, row)


def _study(library: Library, place: Place, side: Mapping[str, Any], setting: Setting) -> Needed:
    """The study of the first seed; a row of table 3 has the rounds of that table."""
    part = ABLATION if "row" in side else ""
    method = side["method"]
    rounds = library.paper.rounds(place, part, method)
    return Needed(place, method, setting, library.seeds(place)[0], rounds)
