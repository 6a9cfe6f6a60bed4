"""Converts the tables of a configuration file to settings objects, and back.

The keys of a table are checked here, their values by the settings classes themselves
(``secure_fedrec.settings``). A field that is a settings class of its own is a table inside the
table, ``[algorithm.training]``. A class names its keys under its own section; its errors are passed
on under the key of the file.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_args

from secure_fedrec.errors import MISSING, ConfigError, renamed_keys
from secure_fedrec.settings import Settings

T = TypeVar("T", bound=Settings)


def build(kind: type[T], section: str, table: Mapping[str, Any]) -> T:
    """An instance of a settings class from a table.

    Args:
        kind: a dataclass of settings.
        section: dotted key of the table; empty for the top of a file.
        table: plain values by field.

    Raises:
        ConfigError: a key is unknown or missing, or a value is of a wrong type or refused.
    """
    fields = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
    values = dict(table)
    for name, value in table.items():
        key = f"{section}.{name}" if section else name
        if name not in fields:
            raise ConfigError(key, value, "unknown key", fields)
        inner = _table_class(fields[name].type)
        if inner is fields[name].type or (inner is not None and isinstance(value, dict)):
            values[name] = build(cast(type[Settings], inner), key, require_table(key, value))
    with renamed_keys({kind.section: section}):
        for name, field in fields.items():
            if name not in table and _is_required(field):
                asked = f"{section}.{name}" if section else name
                problem = f"is missing; `secure-fedrec explain {asked}` says what it is"
                raise ConfigError(f"{kind.section}.{name}", MISSING, problem)
        return kind(**values)


def as_table(settings: Any) -> dict[str, Any]:
    """The fields of a settings object as plain values, without those that are None."""
    table: dict[str, Any] = _plain(dataclasses.asdict(settings))
    return table


def as_plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    if isinstance(value, tuple | frozenset):
        return [
            as_plain(each) for each in (sorted(value) if isinstance(value, frozenset) else value)
        ]
    return value


def require_table(key: str, value: object) -> Mapping[str, Any]:
    """A value that must be a table.

    Raises:
        ConfigError: the value has another type.
    """
    if not isinstance(value, dict):
        raise ConfigError(key, value, f"must be a table, written [{key}]")
    return value


def require_tables(key: str, value: object) -> list[dict[str, Any]]:
    """A value that must be a list of tables.

    Raises:
        ConfigError: the value has another type.
    """
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise ConfigError(key, value, f"must be a list of tables, written [[{key}]]")
    return value


def _table_class(annotation: Any) -> Any:
    """The settings class of a field that is or may be a table; None for other fields."""
    kinds = (annotation, *get_args(annotation))
    # A rule in an annotation is a dataclass instance, not a table.
    return next((k for k in kinds if isinstance(k, type) and dataclasses.is_dataclass(k)), None)


def _is_required(entry: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return entry.default is missing and entry.default_factory is missing


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    return sorted(value) if isinstance(value, frozenset) else value
