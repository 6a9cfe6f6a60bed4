"""Fed3CR's tables as JSON values and as text: the paper's numbers, ours and the oracles'."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import numpy as np

from audits.reproduction.fed3cr.choice import Chosen, Library, at_its_end
from audits.reproduction.fed3cr.paper import ABLATION, Place
from audits.reproduction.fed3cr.search import WORST, Setting
from audits.reproduction.numbers import Cells, number, table_lines
from audits.reproduction.progress import Found
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.evaluation.intervals import paired_interval
from secure_fedrec.evaluation.oracles import ORACLES
from secure_fedrec.studies.fed3cr.study import WARM

_HIT, _NDCG = "hit_rate_at_10", "ndcg_at_10"
_FULL = "full_hit_rate_at_10"
_FEW: Final = 3
"""Most keys at an edge that a cell names; if there are more, it has their number."""
_SHOWN: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 30, 40, 50, 100)
"""Rounds whose figures are listed under a table."""


def methods_table(
    library: Library, place: Place, methods: Sequence[str], *, number_: int | str
) -> dict[str, Any]:
    """Methods on a data set under a protocol, beside rules without a model.

    Args:
        library: has the studies.
        place: data set and protocol.
        methods: rows; one without a study has no number of ours.
        number_: of the table, or the figure.
    """
    paper, oracles = library.paper, library.oracles(place)
    printed = paper.table2[place.data]
    rows = []
    for method in methods:
        chosen = library.best(place, method)
        theirs = dict(zip(paper.measures, printed.get(method, ()), strict=False))
        row = {"method": method, "name": paper.names[method], "paper": theirs}
        tuning = library.tuning(place, method)
        told = {"tuning": None if tuning is None else tuning._asdict()}
        rows.append({**row, **reported(chosen, oracles), **told})
    pairs = [pair for pair in paper.compared if pair[0] in methods and pair[1] in methods]
    return {
        "number": number_,
        **_of(library, place, paper.rounds(place)),
        "oracles": _means(oracles),
        "warning": next(
            (f.report["warning"] for f in oracles.values() if f.report["warning"]), None
        ),
        "rows": rows,
        "differences": [
            found for one, other in pairs if (found := _difference(library, place, one, other))
        ],
    }


def variants_table(
    library: Library, place: Place, number_: int, settings: Mapping[str, Setting]
) -> dict[str, Any]:
    """Table 3 (parts of Fed3CR) or 4 (other transfers) on a data set under a protocol.

    Args:
        library: has the studies.
        place: data set and protocol.
        number_: of the table.
        settings: by row; one without a study has no number of ours.
    """
    paper, table, told = library.paper, library.paper.variations[number_], []
    found = {
        row: Chosen(setting, studies)
        for row, setting in settings.items()
        if (studies := library.of_setting(place, "fed3cr", setting, ABLATION))
    }
    base = found.get(table.base)
    for row, has in table.rows.items():
        printed = table.printed.get(place.data, {}).get(row, ())
        told.append(
            {
                "row": row,
                "paper": dict(zip(paper.measures, printed, strict=False)),
                **reported(found.get(row), library.oracles(place)),
                f"over_{table.base.lower()}": (
                    gain_over(found.get(row), base) if row != table.base else None
                ),
                table.name: has,
            }
        )
    values = {"number": number_, **_of(library, place, paper.rounds(place, ABLATION))}
    if table.whole:
        values["whole_over_none"] = gain_over(found.get(table.whole), base)
    return {**values, "rows": told}


def _of(library: Library, place: Place, rounds: int) -> dict[str, Any]:
    paper_data = library.paper.data[place.data]["paper_name"]
    return {**place._asdict(), "paper_data": paper_data, "rounds": rounds}


def methods_lines(table: Mapping[str, Any]) -> list[str]:
    """Such a table as text, in %."""
    told = table["oracles"]

    def of_rule(rule: str, _: Mapping[str, Any]) -> str:
        return percent(told.get(rule, {}).get(_HIT))

    cells: Cells = {
        "": lambda row: row["name"],
        "HR paper | ours": lambda row: _beside(row, _HIT),
        **{rule: partial(of_rule, rule) for rule in ORACLES[1:]},
        "NDCG paper | ours": lambda row: _beside(row, _NDCG),
        "HR less popularity": lambda row: _gain(row["gain"], "hit"),
        "warm HR": lambda row: percent(row["ours"].get(WARM)),
        "warm HR less popularity": lambda row: _gain(row["gain"], "warm"),
        "HR of all items": lambda row: percent(row["ours"].get(_FULL)),
        "last HR": lambda row: percent(row["last"].get(_HIT)),
        "round": rounds_of,
        "edge": edges_of,
        "seeds": lambda row: str(row["seeds"]),
    }
    rows = table["rows"]
    lines = [
        *table_lines(_title(table), cells, rows),
        "; ".join(_told(rule, each) for rule, each in told.items()),
    ]
    lines += [f"WARNING: {table['warning']}"] if table["warning"] else []
    lines += [_searched(row) for row in rows if row["tuning"]]
    lines += [_along(row) for row in rows if row["seeds"]]
    return lines + [
        f"{each['name']} - {each['other_name']}: HR {span(each['hit'])}, NDCG {span(each['ndcg'])}"
        for each in table["differences"]
    ]


def variants_lines(table: Mapping[str, Any]) -> list[str]:
    """Such a table as text, in %."""

    def parts(row: Mapping[str, Any]) -> str:
        named = zip(("ACE", "con", "com"), row["parts"], strict=True)
        return " ".join(name for name, has in named if has) or "none"

    base, shown = ("C0", {"parts": parts}) if table["number"] == 3 else ("ACE", {})
    cells = {
        "": lambda row: row["row"],
        **shown,
        "HR paper | ours": lambda row: _beside(row, _HIT),
        "NDCG paper | ours": lambda row: _beside(row, _NDCG),
        f"HR over {base}": lambda row: _gain(row[f"over_{base.lower()}"], "hit"),
        "seeds": lambda row: str(row["seeds"]),
    }
    return table_lines(_title(table), cells, table["rows"])


def _title(table: Mapping[str, Any]) -> str:
    name = table["number"] if isinstance(table["number"], str) else f"Table {table['number']}"
    place = f"{table['data']} ({table['paper_data']}), protocol {table['protocol']}"
    return f"{name}, {place}, {table['rounds']} rounds; %"


def _gain(found: Mapping[str, Any] | None, key: str) -> str:
    return "-" if found is None or key not in found else span(found[key])


def stacked(found: Mapping[int, Found], name: str) -> FloatArray:
    """An array of every seed: float64[seeds, n]."""
    return np.stack([each.array(name) for _, each in sorted(found.items())])


def reported(chosen: Chosen | None, oracles: Mapping[int, Found]) -> dict[str, Any]:
    """Numbers of the chosen setting at the chosen rounds; none without a study."""
    if chosen is None:
        return {
            "seeds": 0,
            "ours": {},
            "last": {},
            "setting": {},
            "chosen": [],
            "rounds": 0,
            "gain": None,
        }
    names = (_HIT, _NDCG, _FULL, "full_ndcg_at_10")
    ours = {name: float(np.nanmean(stacked(chosen.found, f"chosen.{name}"))) for name in names}
    last = {name: float(np.nanmean(stacked(chosen.found, f"last.{name}"))) for name in names}
    reports = [found.report for found in chosen.found.values()]
    return {
        "seeds": len(reports),
        "ours": ours
        | _warm([report["rounds"][report["chosen"] - 1]["quality"] for report in reports]),
        "last": last,
        "setting": dict(chosen.setting),
        "chosen": [report["chosen"] for report in reports],
        "at_its_end": any(map(at_its_end, reports)),
        "rounds": max(len(report["rounds"]) for report in reports),
        "seconds": sum(report["seconds"] for report in reports),
        "curve": _curve(reports),
        "overlap": [report["overlap"] for report in reports if "overlap" in report],
        "files": [str(found.path) for found in chosen.found.values()],
        "gain": _over_popularity(chosen, oracles),
    }


def _curve(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Figures of some rounds, mean over seeds, independent of the chosen round."""
    last = min(len(report["rounds"]) for report in reports)
    found = []
    for round_ in (each for each in _SHOWN if each <= last):
        own = [report["rounds"][round_ - 1]["quality"] for report in reports]
        means = {name: float(np.mean([each[name] for each in own])) for name in (_HIT, _NDCG)}
        found.append({"round": float(round_), **means})
    return found


def _warm(means: Sequence[Mapping[str, Any]], rule: str = "") -> dict[str, float]:
    """HR without cold test items, mean over seeds; None if a seed lacks it."""
    found = [each.get(f"{rule}{WARM}") for each in means]
    known = [each for each in found if each is not None]
    return {WARM: float(np.mean(known))} if known and len(known) == len(found) else {}


def _over_popularity(chosen: Chosen, oracles: Mapping[int, Found]) -> dict[str, Any] | None:
    compared = {"hit": _HIT, "ndcg": _NDCG, "full": _FULL}
    arrays = {key: (f"chosen.{name}", f"popularity.{name}") for key, name in compared.items()}
    means = [each.report["means"] for seed, each in oracles.items() if seed in chosen.found]
    if all(_warm([each], "popularity.") for each in means):
        # The rule, and so the difference, is NaN where a test item is cold.
        arrays["warm"] = (f"chosen.{_HIT}", f"popularity.{WARM}")
    return _paired(chosen.found, oracles, arrays)


def gain_over(one: Chosen | None, other: Chosen | None) -> dict[str, Any] | None:
    """Difference of two methods, with clients and seeds paired."""
    if one is None or other is None:
        return None
    names = {"hit": f"chosen.{_HIT}", "ndcg": f"chosen.{_NDCG}"}
    return _paired(one.found, other.found, {key: (name, name) for key, name in names.items()})


def _paired(
    one: Mapping[int, Found], other: Mapping[int, Found], arrays: Mapping[str, tuple[str, str]]
) -> dict[str, Any] | None:
    """Differences of arrays of two studies, by key, for the seeds that both have."""
    both = sorted(one.keys() & other.keys())
    if not both:
        return None
    mine, theirs = ({seed: each[seed] for seed in both} for each in (one, other))
    return {
        key: asdict(paired_interval(stacked(mine, own), stacked(theirs, its), seed=0))
        for key, (own, its) in arrays.items()
    }


def _difference(library: Library, place: Place, one: str, other: str) -> dict[str, Any] | None:
    found = gain_over(library.best(place, one), library.best(place, other))
    names = library.paper.names
    named = {"method": one, "other": other, "name": names[one], "other_name": names[other]}
    return None if found is None else {**named, **found}


def _means(oracles: Mapping[int, Found]) -> dict[str, dict[str, float]]:
    """Means of rules over seeds."""
    found = {}
    for rule in ORACLES if oracles else ():
        reports = [each.report["means"] for each in oracles.values()]
        found[rule] = {
            name: float(np.mean([each[f"{rule}.{name}"] for each in reports]))
            for name in (_HIT, _NDCG)
        } | _warm(reports, f"{rule}.")
    return found


def rounds_of(row: Mapping[str, Any]) -> str:
    """The chosen rounds by seed, and the number of rounds."""
    return f"{'/'.join(map(str, row['chosen']))} of {row['rounds']}" if row["chosen"] else "-"


def edges_of(row: Mapping[str, Any]) -> str:
    """Where better values may be found: later rounds, and keys whose value is the last tried."""
    if row["tuning"] is None:
        return "-"
    ends, keys = ["rounds"] if row["at_its_end"] else [], row["tuning"]["edges"]
    told = keys if len(keys) <= _FEW else [f"{len(keys)} settings"]
    return ", ".join([*ends, *told]) or "inside"


def _searched(row: Mapping[str, Any]) -> str:
    """What was tuned, how far the search went, and validation results of other values."""
    told = row["tuning"]
    how = "ended" if told["ended"] else "not ended"
    chosen = ", ".join(f"{key} {value}" for key, value in row["setting"].items())
    along = "; ".join(
        f"{keys}: {', '.join(f'{value} {_tried(merit)}' for value, merit in own.items())}"
        for keys, own in told["along"].items()
    )
    head = f"{row['name']}, search of {told['studies']} studies {how}: {chosen}"
    return f"{head}. Best validation HR with each value: {along or '-'}"


def _tried(merit: float) -> str:
    return "diverged" if merit == WORST else percent(merit)


def _beside(row: Mapping[str, Any], name: str) -> str:
    return f"{number(row['paper'].get(name), 2)} | {percent(row['ours'].get(name))}"


def _along(row: Mapping[str, Any]) -> str:
    points = [
        f"{each['round']:.0f}: {percent(each[_HIT])} / {percent(each[_NDCG])}"
        for each in row["curve"]
    ]
    return f"{row['name']} by round, HR / NDCG: {'; '.join(points)}"


def _told(rule: str, means: Mapping[str, float]) -> str:
    told = f"{rule}: HR {percent(means[_HIT])}, NDCG {percent(means[_NDCG])}"
    return f"{told}, warm HR {percent(means.get(WARM))}"


def percent(value: float | None) -> str:
    """A share in %."""
    return number(None if value is None else 100 * value, 2)


def span(found: Mapping[str, float]) -> str:
    """A difference in %, and its interval."""
    ends = f"[{100 * found['low']:+.2f}, {100 * found['high']:+.2f}]"
    return f"{100 * found['value']:+.2f} {ends}".replace("-", "−")
