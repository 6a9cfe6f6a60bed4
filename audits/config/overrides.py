"""Overrides of a file's settings from the command line: ``--set protection.rho=2``."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from audits.config.tables import require_tables
from secure_fedrec.errors import ConfigError

FieldsOf: TypeAlias = Callable[[str, Mapping[str, Any]], Collection[str]]
"""Function that returns the keys a table may have, from the name of its list and the table."""


def override(raw: dict[str, Any], key: str, value: Any, fields_of: FieldsOf) -> None:
    """Set the value of a key.

    Args:
        raw: plain values of a configuration; changed.
        key: dotted; in a list of tables it applies to the tables that have it, or else to the one
            that may.
        value: the value.
        fields_of: the keys that a table may have.

    Raises:
        ConfigError: the key is unknown, or several tables may have it.
    """
    *path, last = key.split(".")
    if not path:
        raw[last] = value
        return
    target = raw.setdefault(path[0], {})
    if isinstance(target, list):
        for table in _tables_with(key, value, require_tables(path[0], target), fields_of):
            table[last] = value
        return
    for step in path[1:]:
        if not isinstance(target, dict):
            break
        target = target.setdefault(step, {})
    if not isinstance(target, dict):
        raise ConfigError(key, value, "no such setting")
    target[last] = value


def _tables_with(
    key: str, value: Any, tables: list[dict[str, Any]], fields_of: FieldsOf
) -> list[dict[str, Any]]:
    """The tables that an override applies to: those with the key, else the one that may have it.

    Raises:
        ConfigError: no table may have it, or several may.
    """
    name, _, last = key.partition(".")
    if having := [table for table in tables if last in table]:
        return having
    may = [table for table in tables if last in fields_of(name, table)]
    if len(may) == 1:
        return may
    problem = f"no table of [[{name}]] has a key {last!r}"
    if may:
        problem = f"{len(may)} tables of [[{name}]] may have a key {last!r}, but none has"
        named = [str(table["layer"]) for table in may if "layer" in table]
        which = f", that of {' or of '.join(named)}" if named else ""
        problem += f": write it in the file, in the table that it is meant for{which}"
    raise ConfigError(key, value, problem)
