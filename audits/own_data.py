"""``data describe FILE``: describes and plots a file of ratings, and writes a configuration."""

import argparse
import io
import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from audits.config.audit import AuditConfig, parse_config
from audits.config.tables import build, require_table
from audits.presets import write_asked
from audits.rating_data import RatingFileData, Source
from audits.report.svg import SERIES, canvas
from audits.run.build import build_federation
from audits.systems.pmf import Ratings
from audits.terminal import print_json
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data.files.describe import Seen, look_at
from secure_fedrec.data.files.kinds import ROLES
from secure_fedrec.data.files.settings import RatingsFile
from secure_fedrec.data.ratings import RatingTable
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Settings

_CURVES: Final = (
    ("popularity", "clients who rated an item", "items, most rated first"),
    ("activity", "ratings of a client", "clients, most active first"),
)
_COLUMNS, _ROWS = 60, 6
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_PLOTS: Final = (".svg", ".png")
_MANY_CLIENTS: Final = 1000
"""Number of clients that a configuration samples, because an audit of more takes hours."""

_DENOISED: Final = 100
"""Clients per denoiser of a configuration that is written."""


def describe_file(arguments: argparse.Namespace) -> int:
    """Describe a file, plot it, write a configuration.

    Raises:
        ConfigError: the file for the configuration or the plot already exists.
        DataError: the file is damaged, or its form cannot be guessed.
    """
    path, config, plot = Path(arguments.name), arguments.write, arguments.plot
    _require_free({"--write": config, "--plot": plot}, path, force=arguments.force)
    if plot is not None and plot.suffix not in _PLOTS:
        raise ConfigError("--plot", str(plot), "is named after its format", _PLOTS)
    told, others = _told(path, arguments.overrides)
    seen = look_at(path, told)
    data = _data_of(seen, others)
    text = None if config is None else config_text(seen, data, path, config.parent)
    if config is not None and text is not None:
        write_asked("--write", config, text.encode())
    if plot is not None:
        write_asked("--plot", plot, _plotted(seen, plot.suffix))
    if arguments.json:
        print_json(facts_of(seen))
        return 0
    _print(seen)
    if config is not None:
        print(f"\nwrote {config}; next: secure-fedrec audit {config}")
    if plot is not None:
        print(f"\nwrote {plot}")
    return 0


def _require_free(targets: Mapping[str, Path | None], path: Path, *, force: bool) -> None:
    """Refuse to overwrite files without --force, and the ratings in any case.

    Raises:
        ConfigError: a file exists; names all options.
    """
    there = {option: to for option, to in targets.items() if to is not None and to.exists()}
    for option, target in there.items():
        if path.exists() and target.samefile(path):
            raise ConfigError(option, str(target), "is the file of ratings itself")
    if there and not force:
        problem = "already there: name other files, or write over them with --force"
        raise ConfigError(" and ".join(there), ", ".join(map(str, there.values())), problem)


def _told(
    path: Path, overrides: Sequence[tuple[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the command line: how the file is read, and other keys of ``[data]``.

    Raises:
        ConfigError: a key belongs to another table, or a value is refused.
    """
    table: dict[str, Any] = {}
    for key, value in overrides:
        section, _, name = key.partition(".")
        if section != "data" or name in ("", "name", "path"):
            problem = "a description takes only keys of [data], except name and path"
            raise ConfigError(key, value, problem)
        *steps, last = name.split(".")
        inner: Any = table
        for step in steps:
            inner = require_table(f"data.{step}", inner.setdefault(step, {}))
        inner[last] = value
    # Checked as the configuration of a file with all columns would be.
    some = {"path": path.name or ".", "user": 1, "item": 2}
    if table.get("layout") != "lists":
        some |= {"rating": 3, "time": 4}
    checked = build(RatingFileData, "data", {**some, **_fitting(table), **table})
    known = {each.name for each in fields(RatingsFile)}
    told = {name: getattr(checked, name) for name in table}
    return (
        {name: value for name, value in told.items() if name in known},
        {name: value for name, value in told.items() if name not in known},
    )


def _fitting(table: Mapping[str, Any]) -> dict[str, Any]:
    """The split that fits the ratings, if none is given."""
    without = "rating" in table and table["rating"] is None
    implicit = without or table.get("positive_from") is not None or table.get("layout") == "lists"
    return {"split": "leave-one-out"} if implicit else {}


def _data_of(seen: Seen, others: Mapping[str, Any]) -> RatingFileData:
    """All of ``[data]``: how the file is read, and the other given keys."""
    file = seen.file
    values = {each.name: getattr(file, each.name) for each in fields(RatingsFile)}
    split = {"split": "leave-one-out"} if file.implicit else {}
    return RatingFileData(**{**values, **split, **others})


def facts_of(seen: Seen) -> dict[str, Any]:
    """The description of the file as JSON values, without ids."""
    table, file = seen.table, seen.file
    popularity, activity = (_curve(seen, name) for name, _, _ in _CURVES)
    return {
        "separator": file.separator,
        "header": None if seen.names is None else list(seen.names),
        "columns": {what: getattr(file, what) for what in ROLES if getattr(file, what) is not None},
        "columns_not_used": list(seen.unused),
        "ids": {
            "user": "text" if table.client_labels.dtype.kind == "U" else "number",
            "item": "text" if table.item_labels.dtype.kind == "U" else "number",
        },
        "taken": list(seen.taken),
        "rows": seen.rows,
        "rows_left_out": seen.left_out,
        "clients": table.n_clients,
        "items": table.n_items,
        "density": len(table) / (table.n_clients * table.n_items),
        "repeated_rows": seen.repeated,
        "scale": None if seen.scale is None else str(seen.scale),
        "remark": seen.remark or None,
        "timestamps": table.timestamps is not None,
        "clients_with_ties_at_their_latest_time": seen.tied,
        "ratings_per_client": _quantiles(activity),
        "ratings_per_item": _quantiles(popularity),
        "share_of_the_most_rated_tenth": _head_share(popularity),
        "filters": [
            {**left.keys, "clients": left.clients, "items": left.items, "ratings": left.ratings}
            for left in seen.left
        ],
    }


def _print(seen: Seen) -> None:
    facts = facts_of(seen)
    for key in ("separator", "header", "columns", "ids", "rows", "clients", "items"):
        print(f"{key:14} {_words(facts[key])}")
    if seen.unused:
        lacking = [what for what in ROLES if getattr(seen.file, what) is None]
        keys = " or ".join(f"--set data.{what}=NAME" for what in lacking)
        print(
            f"{'not used':14} {_words(list(seen.unused))}"
            + (f" ({keys}, if it is one)" * bool(keys))
        )
    for said in seen.taken:
        print(f"{'taken':14} {said}")
    if seen.left_out:
        print(f"{'left out':14} {seen.left_out:,} rows in which something is missing")
    print(f"{'density':14} {100 * facts['density']:.3g} % of all pairs")
    kept = f": data.duplicates = {seen.file.duplicates!r}" if seen.repeated else ""
    print(f"{'repeated':14} {seen.repeated:,} rows rate a pair once more{kept}")
    print(f"{'scale':14} {facts['scale'] or seen.remark}")
    if seen.scale is not None and seen.levels is not None:
        _print_levels(seen.levels)
    tied = f"known; {seen.tied or 0:,} clients have several ratings at their latest time"
    print(f"{'times':14} {'none' if seen.tied is None else tied}")
    for name, what, order in _CURVES:
        counts = _curve(seen, name)
        print(f"\n{name}: {what} ({order}; both axes logarithmic)")
        print("\n".join(drawn(counts)))
    print("\nusual filters would leave")
    for left in seen.left:
        keys = ", ".join(f"{key} = {value}" for key, value in left.keys.items())
        print(f"  {keys:34} {left.clients:>9,} clients {left.items:>9,} items ", end="")
        print(f"{left.ratings:>11,} ratings")


def _print_levels(levels: Mapping[float, int]) -> None:
    most = max(levels.values())
    for value, count in levels.items() if len(levels) <= 2 * _ROWS else ():
        print(f"{value:>14g} {'█' * max(1, round(30 * count / most))} {count:,}")


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {each!r}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else repr(value)


def _curve(seen: Seen, name: str) -> IntArray:
    """Counts, descending, without zeros."""
    counts = seen.table.item_popularity() if name == "popularity" else seen.table.counts()
    return np.sort(counts[counts > 0])[::-1]


def _quantiles(counts: IntArray) -> dict[str, int]:
    names = {"least": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "most": 1.0}
    return {name: int(np.quantile(counts, share, method="lower")) for name, share in names.items()}


def _head_share(counts: IntArray) -> float:
    head = counts[: math.ceil(len(counts) / 10)]
    return float(head.sum() / counts.sum())


def drawn(counts: IntArray) -> list[str]:
    """A curve in characters, as lines: counts by rank, both logarithmic.

    Args:
        counts: int64[k], descending, above 0.
    """
    ranks = np.unique(np.geomspace(1, len(counts), _COLUMNS).round().astype(np.int64)) - 1
    shown = counts[ranks]
    top = math.log(int(shown[0]) + 1)
    heights = np.ceil(np.log(shown + 1) / top * _ROWS * 8).astype(np.int64)
    lines = []
    for row in reversed(range(_ROWS)):
        filled = np.clip(heights - 8 * row, 0, 8)
        label = (
            f"{int(shown[0]):,}" if row == _ROWS - 1 else f"{int(shown[-1]):,}" if not row else ""
        )
        lines.append(f"{label:>9} " + "".join(_BLOCKS[each] for each in filled.tolist()))
    width = len(ranks)
    lines.append(f"{'':10}1{f'{len(counts):,}':>{max(1, width - 1)}}")
    return lines


def _plotted(seen: Seen, suffix: str) -> bytes:
    """Both curves as SVG or PNG."""
    out = io.BytesIO()
    with canvas(7.6, 3.2) as figure:
        for place, (name, what, order) in enumerate(_CURVES):
            counts = _curve(seen, name)
            axes = figure.add_subplot(1, 2, place + 1)
            axes.loglog(np.arange(1, len(counts) + 1), counts, color=SERIES[place], linewidth=1.7)
            axes.set(xlabel=order, ylabel=what, title=name)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter("{x:,.0f}")
                axis.set_minor_formatter("")
        figure.tight_layout()
        metadata = {"Date": None} if suffix == ".svg" else {}
        figure.savefig(out, format=suffix[1:], dpi=160, facecolor="white", metadata=metadata)
    return out.getvalue()


def config_text(seen: Seen, data: RatingFileData, path: Path, folder: Path) -> str:
    """A whole configuration for a file, checked as an audit checks it.

    Args:
        seen: what is in the file.
        data: how it is read, parted and sampled.
        path: the file.
        folder: folder of the configuration.

    Raises:
        ConfigError: a name cannot be written in it, or there are too few ratings to audit.
        DataError: the meaning of the ratings is unclear, and no option states it.
    """
    if seen.doubt is not None:
        raise seen.doubt
    data, why = _with_sample(seen, replace(data, path=_relative(path, folder)))
    others = {
        name: replace(part, path=_relative(path.parent / part.path, folder))
        for name in ("catalogue", "attributes")
        if (part := getattr(data, name)) is not None
    }
    if data.test_path is not None:
        others["test_path"] = _relative(path.parent / data.test_path, folder)
    why |= {
        "path": "relative to this file",
        "positive_from": "rows from here on count, as 1",
        "duplicates": f"{seen.repeated} rows rate a pair once more",
        "missing_values": f"leaves {seen.left_out} rows out",
        "missing": f"leaves {seen.left_out} rows out",
    }
    clients = min(seen.table.n_clients, data.sample_clients or _MANY_CLIENTS)
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        title=_quoted(f"FedRec++ on {path.name}"),
        data="\n".join(_data_lines(replace(data, **others), why)),
        count=max(1, clients // _DENOISED),
    )
    text += "" if data.implicit else _RATING_GATE
    try:
        text.encode()
        raw = tomllib.loads(text)
    except ValueError as strange:
        problem = "the name of the file, or of a column, cannot be written as TOML"
        raise ConfigError("--write", str(path), problem) from strange
    _require_auditable(parse_config(raw, folder=folder), seen.table)
    return text


def _require_auditable(config: AuditConfig, table: RatingTable) -> None:
    """Refuse a configuration whose split or layers need more ratings, as its audit would.

    Raises:
        ConfigError: there are too few ratings.
    """
    data: Any = config.data
    source = data.select(Source(table), config.seed)
    ratings = Ratings(data=data, algorithm=config.algorithm, source=source, seed=config.seed)
    build_federation(config, ratings.task(data.fold))


def _relative(path: Path, folder: Path) -> str:
    """The relative path from a folder to a file, with links resolved."""
    return os.path.relpath(path.parent.resolve() / path.name, folder.resolve())


def _with_sample(seen: Seen, data: RatingFileData) -> tuple[RatingFileData, dict[str, str]]:
    """Settings that leave out rare clients and sample many, unless given, with reasons."""
    clients, why = seen.table.n_clients, {}
    kept = next(left for left in seen.left if dict(left.keys) == {"min_ratings": 5})
    if data.min_ratings is None and clients / 2 < kept.clients < clients:
        data = replace(data, min_ratings=5)
        why["min_ratings"] = f"keeps {kept.clients} of {clients} clients"
        clients = kept.clients
    if data.sample_clients is None and clients > _MANY_CLIENTS:
        data = replace(data, sample_clients=_MANY_CLIENTS)
        why["sample_clients"] = "more take longer"
    return data, why


def _data_lines(data: RatingFileData, why: Mapping[str, str]) -> list[str]:
    """Every setting that is not the default, and the split."""
    lines = []
    for each in fields(RatingFileData):
        value = getattr(data, each.name)
        if each.name != "name" and (value != each.default or each.name == "split"):
            said = f"    # {why[each.name]}" if each.name in why else ""
            lines.append(f"{each.name} = {_toml(value)}{said}")
    return lines


def _toml(value: Any) -> str:
    """A setting as TOML has it."""
    if isinstance(value, Settings):
        inner = ((each.name, getattr(value, each.name), each.default) for each in fields(value))
        given = (f"{name} = {_toml(held)}" for name, held, default in inner if held != default)
        return f"{{ {', '.join(given)} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    return json.dumps(text, ensure_ascii=False)


_RATING_GATE = """
[[gates]]
attack = "lattice"
adversary = "server"
metric = "rating_lift"
max = 0.05
"""

_TEMPLATE: Final = Path(__file__).with_name("own_data.toml.in")
"""Template of the configuration that is written."""
