"""From the tables of a configuration file to settings objects, and back.

Shape (unknown keys, types) is checked by pydantic in strict mode; meaning (ranges, combinations) by
the settings classes themselves. A field that is a settings class of its own is a table inside the
table, ``[algorithm.training]``. A class that serves other places too may name its keys otherwise;
its refusals are passed on under the key of the file.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from secure_fedrec.errors import ConfigError

__all__ = ["as_table", "build", "require_table", "require_tables", "under"]

T = TypeVar("T")


def build(kind: type[T], section: str, table: Mapping[str, Any]) -> T:
    """An instance of a settings class from a table.

    Args:
        kind: a dataclass.
        section: dotted key of the table; empty for the top of a file.
        table: plain values by field.

    Raises:
        ConfigError: a key is unknown or missing, or a value is of a wrong type or refused.
    """
    fields = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
    inner = {
        name: field.type for name, field in fields.items() if dataclasses.is_dataclass(field.type)
    }
    plain = {name: value for name, value in table.items() if name not in inner}
    values = _checked(kind, section, plain, known=tuple(fields))
    for name, settings in inner.items():
        if name in table:
            key = _key(section, name)
            values[name] = build(cast(type, settings), key, require_table(key, table[name]))
    try:
        return kind(**values)
    except ConfigError as refused:
        raise under(section, refused) from None


def under(section: str, refused: ConfigError) -> ConfigError:
    """A refusal under the key of the file: ``training.epochs`` is ``algorithm.training.epochs``.

    One that names a key of the same top table already stays as it is.
    """
    if not section or refused.key.partition(".")[0] == section.partition(".")[0]:
        return refused
    key = _key(section, refused.key.rpartition(".")[2])
    return type(refused)(key, refused.value, refused.problem, refused.choices)


def as_table(settings: Any) -> dict[str, Any]:
    """The fields of a settings object as plain values, without those that are None."""
    return _without_none(dataclasses.asdict(settings))


def require_table(key: str, value: object) -> Mapping[str, Any]:
    """A value that must be a table.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, dict):
        raise ConfigError(key, value, f"must be a table, written [{key}]")
    return value


def require_tables(key: str, value: object) -> list[dict[str, Any]]:
    """A value that must be a list of tables.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise ConfigError(key, value, f"must be a list of tables, written [[{key}]]")
    return value


def _checked(
    kind: type, section: str, table: Mapping[str, Any], *, known: tuple[str, ...]
) -> dict[str, Any]:
    """The values of a table, keys and types checked; fields that are tables are not among them."""
    for name, value in table.items():
        # TOML has nan and inf, JSON does not: they go to the settings class, which names them.
        if isinstance(value, float) and not np.isfinite(value):
            raise ConfigError(_key(section, name), value, "must be finite")
        if _has_date(value):
            raise ConfigError(_key(section, name), str(value), "must not be a date or a time")
    try:
        checked = _shape(kind).model_validate_json(json.dumps(dict(table), default=str))
    except ValidationError as refused:
        first = refused.errors()[0]
        where = _key(
            section, ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        )
        if first["type"] == "extra_forbidden":
            raise ConfigError(where, first["input"], "unknown key", known) from None
        if first["type"] == "missing":
            raise ConfigError(where, None, "is required") from None
        problem = first["msg"].replace("Input should be", "should be")
        raise ConfigError(where, first["input"], problem) from None
    return {name: getattr(checked, name) for name in table}


@cache
def _shape(kind: type) -> type[BaseModel]:
    fields = {
        field.name: (field.type, ... if _is_required(field) else None)
        for field in dataclasses.fields(kind)
        if not dataclasses.is_dataclass(field.type)
    }
    config = ConfigDict(extra="forbid", strict=True)
    made: type[BaseModel] = create_model(kind.__name__, __config__=config, **fields)  # type: ignore[call-overload]
    return made


def _key(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _has_date(value: object) -> bool:
    """Whether a TOML value is, or holds, a date or a time: no setting is one."""
    if isinstance(value, dict):
        return any(map(_has_date, value.values()))
    if isinstance(value, list):
        return any(map(_has_date, value))
    return isinstance(value, datetime.date | datetime.time)


def _is_required(entry: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return entry.default is missing and entry.default_factory is missing


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }
