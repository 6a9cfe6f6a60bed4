"""``secure-fedrec plugins``: installed plug-ins, and those that a configuration names.

No plug-in is imported: names come from the metadata of distributions and from the text of the
configuration; files are located but not run.
"""

import argparse
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from audits.plugin_origins import GROUPS, installed, origin_of, source_of, written_of
from audits.terminal import print_json
from secure_fedrec.core.files import read_json
from secure_fedrec.data.refusals import readable, refused
from secure_fedrec.errors import DataError


def plugins(arguments: argparse.Namespace) -> int:
    """``plugins [CONFIG]``: all that are installed, and those of a configuration.

    Raises:
        ConfigError: a plug-in is not written package.module:OBJECT.
        DataError: the configuration cannot be read.
    """
    raw = {} if arguments.config is None else _read(arguments.config)
    named = list(_named(raw))
    points = [(kind, point.value, point.name) for kind in GROUPS for point in installed(kind)]
    known = {(kind, written) for kind, written, _ in points}
    found = points + [(*each, None) for each in dict.fromkeys(named) if each not in known]
    told = [
        {"name": name, **_told(kind, written), "configured": (kind, written) in named}
        for kind, written, name in found
    ]
    if arguments.json:
        print_json(told)
    else:
        print(*(_line(each) for each in told) if told else ["no plug-ins"], sep="\n")
    return 0


def _read(path: Path) -> Mapping[str, Any]:
    """The plain values of a configuration."""
    problem = "is not valid TOML or JSON: {}"
    with readable(path), refused(path, problem, ValueError, RecursionError):
        is_json = path.suffix == ".json"
        raw = read_json(path) if is_json else tomllib.loads(path.read_text(encoding="utf-8"))
    if not isinstance(raw, dict):
        raise DataError(path, "does not hold a table of settings")
    return raw


def _named(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and "package.module:OBJECT" of the plug-ins that a configuration names."""
    for kind, key, name in names_in(raw):
        written = written_of(kind, name, key=key, shipped=False)
        if written is not None:
            yield kind, written


def names_in(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, object]]:
    """Kind, key and name of what a configuration may name as a plug-in, shipped or not."""
    for key, kind in (("measures", "figures"), ("attacks", "attack")):
        names = raw.get(key)
        yield from ((kind, key, name) for name in (names if isinstance(names, list) else ()))
    for key, kind in (("algorithm", "algorithm"), ("data", "data set")):
        table = raw.get(key)
        if isinstance(table, dict):
            yield kind, f"{key}.name", table.get("name")
    layers = raw.get("protection")
    for table in layers if isinstance(layers, list) else ():
        if isinstance(table, dict):
            yield "layer", "protection.layer", table.get("layer")


def _told(kind: str, written: str) -> dict[str, Any]:
    """Where a plug-in comes from, as JSON values."""
    file = source_of(written.partition(":")[0])
    told = origin_of(kind, written, file).told()
    return {**told, "file": None if file is None else str(file)}


def _line(told: Mapping[str, Any]) -> str:
    """A plug-in in one line."""
    owner = (
        f"{told['distribution']} {told['version']}" if told["distribution"] else "no distribution"
    )
    name = f"{told['name']} = " if told["name"] else ""
    named = ", named by the configuration" if told["configured"] else ""
    where = f"{owner}, {told['file'] or 'no such file'}{named}"
    return f"{told['kind']:10} {name}{told['object']}  {where}"
