"""The tables of Fed3CR's page, as its records have them.

``python -m tests.reproduction.fed3cr_page RESULT`` writes the tables of ``RESULT``, the JSON file
of ``reproduce fed3cr``, over those of the page; the text between them is nobody's but its author's.
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from audits.reproduction.fed3cr.tables import edges_of, percent, rounds_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "reproduction-fed3cr.md"
HIT, NDCG, WARM = "hit_rate_at_10", "ndcg_at_10", "warm_hit_rate_at_10"

_COLUMNS: Final = (
    "method",
    "HR",
    "NDCG",
    "HR less popularity",
    "warm HR",
    "HR of all items",
    "round",
)


def span(found: Mapping[str, float]) -> str:
    """A difference and its interval, as the page has them."""
    return f"{100 * found['value']:+.2f} [{100 * found['low']:+.2f}, {100 * found['high']:+.2f}]"


def row_of(row: Mapping[str, Any]) -> str:
    """A method's line."""
    ours, tuning = row["ours"], row["tuning"]
    cells = [row["name"], percent(ours[HIT]), percent(ours[NDCG]), span(row["gain"]["hit"])]
    cells += [percent(ours[WARM]), percent(ours["full_hit_rate_at_10"])]
    cells.append(rounds_of(row))
    if tuning is not None:
        cells += [edges_of(row), f"{tuning['studies']}{'' if tuning['ended'] else ', not ended'}"]
    cells.append(str(row["seeds"]))
    if printed := row["paper"]:
        cells += [f"{printed[name]:.2f}" for name in (HIT, NDCG)]
    return _line(cells)


def methods_block(table: Mapping[str, Any], page: str) -> list[str]:
    """Table 2 of one set under one protocol, the rules without a model last.

    Where records do not tell what these find among warm items, the page is believed.
    """
    rows = [row for row in table["rows"] if row["seeds"]]
    head = [
        *_COLUMNS,
        *(["edge", "studies"] if any(row["tuning"] for row in rows) else []),
        "seeds",
    ]
    head += ["HR, paper", "NDCG, paper"] if any(row["paper"] for row in rows) else []
    rules = []
    for rule, each in table["oracles"].items():
        cells = [rule, percent(each[HIT]), percent(each[NDCG]), ""]
        known = re.search(re.escape(_line(cells)) + r" ([\d.]+) \|", page)
        cells.append(known[1] if known and WARM not in each else percent(each.get(WARM)))
        rules.append(_line([*cells, *[""] * (len(head) - len(cells))]))
    return [*_head(head), *map(row_of, rows), *rules]


def varied_of(row: Mapping[str, Any]) -> str:
    """A line of the table of sensitivity."""
    ours = row["ours"]
    cells = [row["idea"], row["name"], f"`{row['key']}` {row['value']:g}", percent(ours[HIT])]
    cells += [percent(row["last"][HIT]), rounds_of(row), row["other_name"]]
    return _line([*cells, span(row["gain"]["hit"])])


def along_of(row: Mapping[str, Any], keys: str) -> str:
    """What validation says along one axis of a search: the best with each value."""
    own = row["tuning"]["along"][keys]
    told = [
        f"{value} {'diverged' if found < 0 else percent(found)}" for value, found in own.items()
    ]
    return _line([row["name"], f"`{keys}`", ", ".join(told)])


def _head(names: Sequence[str]) -> list[str]:
    return [_line(names), "|---" * len(names) + "|"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def along_block(table: Mapping[str, Any]) -> list[str]:
    """What searches tried around their settings."""
    head = ("method", "setting", "best validation HR with each value")
    rows = [
        along_of(row, keys)
        for row in table["rows"]
        for keys in (row["tuning"] or {"along": ()})["along"]
    ]
    return [*_head(head), *rows]


def varied_block(figure: Mapping[str, Any]) -> list[str]:
    """What ideas bring where a constant is another."""
    head = ("idea", "method", "with", "HR", "last HR", "round", "beside", "HR less that")
    return [*_head(head), *map(varied_of, figure["rows"])]


def replaced(page: str, heading: str, block: Sequence[str]) -> str:
    """The page with the first table under a heading replaced; as it was, where it has none."""
    before, found, after = page.partition(f"### {heading}\n")
    if not found:
        return page
    lines = "\n".join(block) + "\n"
    return before + found + re.sub(r"(?m)(^\|.*\n)+", lambda _: lines, after, count=1)


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    result = json.loads(parser.parse_args().result.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for table in result["tables"]:
        if table["number"] == 2:
            place = f"{table['data']}, {table['protocol']}"
            page = replaced(page, place, methods_block(table, page))
            page = replaced(page, f"{place}: other values", along_block(table))
    for figure in result["figures"]:
        if figure["figure"] == "sensitivity":
            place = f"{figure['data']}, {figure['protocol']}"
            page = replaced(page, f"{place}: ideas with other constants", varied_block(figure))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
