"""A setting in words and as JSON Schema: type, unit, default, allowed values, meaning."""

import dataclasses
import inspect
import re
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from audits.config.tables import as_plain
from audits.plugin_origins import WRITTEN, installed
from secure_fedrec.settings import Filled, Matching, OneOf, Settings, Unit, Within

_REFERS = re.compile(r"as of ``\w+``\.")
"""Text for an argument that a parent class describes."""

REQUIRED, UNSET = "required", "not set"

_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_SECTION = re.compile(r"^Args:\n((?: .*\n|\n)*)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w[\w, ]*):((?:.*\n)(?:     .*\n|\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A setting.

    Args:
        type: its name in files of settings, such as "integer" or "list of strings".
        unit: what a number counts or is measured in; "" for none.
        default: as JSON, ``REQUIRED`` or ``UNSET``.
        allowed: allowed values, in words; "" if any value of the type is allowed.
        meaning: meaning of the setting.
        schema: the JSON Schema of a value, without the facts above.
    """

    type: str
    unit: str
    default: Any
    allowed: str
    meaning: str
    schema: Mapping[str, Any]

    @classmethod
    def naming(
        cls, names: Iterable[str], *, default: str, meaning: str, plugin: str | None = None
    ) -> "Facts":
        """A key that holds one of some names.

        Args:
            names: all that are known.
            default: as of the class.
            meaning: likewise.
            plugin: kind of plug-in that may be named as well (``plugin_origins.GROUPS``).
        """
        known = list(names)
        schema = {"type": "string", "enum": known} if plugin is None else plugged(plugin, known)
        return cls(
            type="string",
            unit="",
            default=default,
            allowed=", ".join(map(shown, known)) + ("" if plugin is None else PLUGGED),
            meaning=meaning,
            schema=schema,
        )

    def words(self) -> dict[str, str]:
        """All facts in words, by name."""
        default = self.default
        told = {
            "type": self.type,
            "unit": self.unit,
            "default": default if default in (REQUIRED, UNSET) else shown(default),
            "allowed": self.allowed,
            "meaning": self.meaning,
        }
        return {name: text for name, text in told.items() if text}

    def property(self) -> dict[str, Any]:
        """The schema of the key, with the text that an editor shows."""
        unit = f" Unit: {self.unit}." if self.unit else ""
        described = {**self.schema, "description": self.meaning.replace("``", "`") + unit}
        if self.default not in (REQUIRED, UNSET):
            described["default"] = self.default
        return described


def shown(value: Any) -> str:
    """A value as a file of settings writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


PLUGGED = ', or a plug-in as "package.module:OBJECT"'
"""What may replace a known name, in words."""


def plugged(kind: str, known: Iterable[str]) -> dict[str, Any]:
    """The schema of a name that may be a plug-in's.

    Args:
        kind: kind of plug-in, see ``plugin_origins.GROUPS``.
        known: the other names.
    """
    names = dict.fromkeys((*known, *(point.name for point in installed(kind))))
    return {"type": "string", "anyOf": [{"enum": list(names)}, {"pattern": f"^{WRITTEN}$"}]}


def facts_of(kind: type[Settings]) -> Mapping[str, Facts]:
    """Facts about the fields of a class of settings, by name, without fields that are tables."""
    shape = getattr(kind, "shape_of", None)
    shaped = facts_of(shape) if shape is not None else {}
    own = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
    return {
        name: shaped[name] if name in shaped and field.default is None else _facts(kind, field)
        for name, field in own.items()
        if not is_table(field.type)
    }


def tables_of(kind: type[Settings]) -> Mapping[str, type[Settings]]:
    """The fields of a class of settings that are or may be tables, with their classes."""
    return {
        field.name: each
        for field in dataclasses.fields(cast(Any, kind))
        for each in (field.type, *get_args(field.type))
        if is_table(each)
    }


def table_schema(
    kind: type[Settings],
    *,
    extra: Mapping[str, Facts] | None = None,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """The schema of a table.

    Args:
        kind: the class of its settings.
        extra: keys of the table that are not fields, or replaced facts of fields.
        without: fields that are not keys here.
    """
    facts = {**facts_of(kind), **(extra or {})}
    kept = {name: each for name, each in facts.items() if name not in without}
    tables = {name: table_schema(each) for name, each in tables_of(kind).items()}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {**tables, **{name: each.property() for name, each in kept.items()}},
        "additionalProperties": False,
    }
    if required := [name for name, each in kept.items() if each.default == REQUIRED]:
        schema["required"] = required
    return schema


def is_table(kind: Any) -> bool:
    """Whether an annotation is a class of settings."""
    return isinstance(kind, type) and issubclass(kind, Settings)


def _facts(kind: type[Settings], field: "dataclasses.Field[Any]") -> Facts:
    told = _Annotation.read(field.type)
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if default is dataclasses.MISSING:
        default = REQUIRED
    elif default is None:
        default = UNSET
    else:
        default = as_plain(default)
    return Facts(
        type=told.name,
        unit=told.unit,
        default=default,
        allowed=told.allowed,
        meaning=meaning_of(kind, field.name),
        schema=told.schema,
    )


def meaning_of(kind: type, name: str) -> str:
    """What the docstring of a class, or of a parent class, says about an argument."""
    told = (arguments(each).get(name, "") for each in kind.__mro__)
    return next((text for text in told if text and not _REFERS.fullmatch(text)), "")


@cache
def arguments(kind: type) -> Mapping[str, str]:
    """The arguments that a class describes in its docstring, each in one line."""
    words = inspect.cleandoc(kind.__doc__ or "") + "\n"
    found = _SECTION.search(words)
    if found is None:
        return {}
    return {
        name: " ".join(text.split())
        for names, text in _ENTRY.findall(found[1])
        for name in names.split(", ")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Annotation:
    """What an annotation says: see ``Facts``."""

    name: str
    allowed: str = ""
    unit: str = ""
    schema: Mapping[str, Any]

    @classmethod
    def read(cls, kind: Any) -> "_Annotation":
        origin, parts = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return cls.read(parts[0])._ruled(parts[1:])
        if origin is Literal:
            return cls.read(str)._ruled([OneOf(parts)])
        if origin in (Union, types.UnionType):
            return cls._either([part for part in parts if part is not types.NoneType])
        if origin in (tuple, frozenset):
            return cls._several(origin, parts)
        if is_table(kind):
            schema = table_schema(kind)
        else:  # the fields depend on another key
            schema = {"type": _NAMES[kind]} if kind in _NAMES else {}
        return cls(name=_NAMES.get(kind, "table"), schema=schema)

    @classmethod
    def _either(cls, parts: Sequence[Any]) -> "_Annotation":
        """A value of one of several types."""
        each = [cls.read(part) for part in parts]
        if len(each) == 1:
            return each[0]
        return cls(
            name=" or ".join(part.name for part in each),
            allowed="; ".join(part.allowed for part in each if part.allowed),
            unit=next((part.unit for part in each if part.unit), ""),
            schema={"anyOf": [dict(part.schema) for part in each]},
        )

    @classmethod
    def _several(cls, origin: Any, parts: tuple[Any, ...]) -> "_Annotation":
        each = cls.read(parts[0])
        schema: dict[str, Any] = {"type": "array", "items": dict(each.schema)}
        count = "list of"
        if origin is tuple and Ellipsis not in parts:
            schema |= {"minItems": len(parts), "maxItems": len(parts)}
            count = f"list of {len(parts)}"
        return cls(
            name=f"{count} {each.name}s",
            allowed=f"each {each.allowed}" if each.allowed else "",
            unit=each.unit,
            schema=schema,
        )

    def _ruled(self, rules: Any) -> "_Annotation":
        schema, allowed, unit = dict(self.schema), [self.allowed] * bool(self.allowed), self.unit
        for rule in rules:
            if isinstance(rule, Unit):
                unit = rule.name
                continue
            schema |= dict(_limits(rule, of_list=schema.get("type") == "array"))
            allowed.append(_words(rule))
        return _Annotation(
            name=self.name, allowed=", ".join(filter(None, allowed)), unit=unit, schema=schema
        )


def _limits(rule: Any, *, of_list: bool) -> Iterator[tuple[str, Any]]:
    """A rule as keywords of JSON Schema, draft 7."""
    if isinstance(rule, Within):
        ends = (rule.least, rule.most, rule.above, rule.below)
        keys = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        yield from ((key, end) for key, end in zip(keys, ends, strict=True) if end is not None)
    elif isinstance(rule, OneOf):
        yield "enum", list(rule.choices)
    elif isinstance(rule, Matching):
        yield "pattern", f"^(?:{rule.pattern})$"
    elif isinstance(rule, Filled):
        yield ("minItems", 1) if of_list else ("pattern", r"\S")
    else:  # rules of plug-ins may state their own keywords
        yield from getattr(rule, "keywords", ())


def _words(rule: Any) -> str:
    if isinstance(rule, OneOf | Matching):
        return ", ".join(shown(each) for each in rule.choices)
    if isinstance(rule, Filled):
        return "not empty"
    if isinstance(rule, Within):
        return str(rule)
    first = inspect.cleandoc(type(rule).__doc__ or "").partition("\n")[
        0
    ]  # of a rule made elsewhere
    return first[:1].lower() + first[1:].removesuffix(".")
