"""The base class of settings."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, cast, dataclass_transform

from secure_fedrec.errors import ConfigError
from secure_fedrec.settings.readers import Reader, reader
from secure_fedrec.settings.rules import Refused


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings:
    """Base class that makes its subclasses frozen dataclasses of settings; see the package.

    Args:
        section: of every subclass, path of the table that its keys belong to; "" for none. A
            subclass without one has its parent's.
        kw_only: False: fields may be given by position.
        eq: False: instances are equal only to themselves, as those with arrays must be.

    Raises:
        TypeError: by a subclass, a field whose annotation is a string or says nothing that can be
            checked.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    section: ClassVar[str] = ""

    def __init_subclass__(
        cls, *, section: str | None = None, kw_only: bool = True, eq: bool = True
    ) -> None:
        super().__init_subclass__()
        if section is not None:
            cls.section = section
        for base in cls.__mro__:  # fields come from classes that are not settings as well
            for name, kind in vars(base).get("__annotations__", {}).items():
                try:
                    reader(kind)
                except TypeError as unknown:
                    raise TypeError(f"{cls.__name__}.{name}: {unknown}") from None
        dataclass(frozen=True, kw_only=kw_only, eq=eq)(cls)

    def __post_init__(self) -> None:
        """Check every field, then their combination.

        Raises:
            ConfigError: a field breaks its rules, or they do not agree.
        """
        for name, read in _readers(cast(Any, type(self))).items():
            value = getattr(self, name)
            try:
                kept = read(value)
            except Refused as refused:
                key = self.key(name)
                raise ConfigError(key, refused.value, refused.problem, refused.choices) from None
            if kept is not value:
                object.__setattr__(self, name, kept)
        self._agree()

    def _agree(self) -> None:
        """Refuse fields that contradict each other; defined by subclasses.

        Raises:
            ConfigError: fields contradict each other.
        """

    def key(self, name: str) -> str:
        """Dotted path of a field."""
        return f"{self.section}.{name}" if self.section else name

    def require_between(self, name: str, low: float, high: float) -> None:
        """Check a field, if it is set, against bounds that other fields decide.

        Raises:
            ConfigError: the value is not from ``low`` to ``high``.
        """
        value = getattr(self, name)
        if value is not None and not low <= value <= high:
            raise self.refusal(name, f"must be between {low} and {high}")

    def refusal(
        self, name: str, problem: str, choices: Iterable[object] | None = None
    ) -> ConfigError:
        """The refusal of a field's value, to be raised."""
        return ConfigError(self.key(name), getattr(self, name), problem, choices)


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    return {each.name: reader(each.type) for each in dataclasses.fields(kind) if each.init}
