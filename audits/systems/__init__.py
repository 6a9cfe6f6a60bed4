"""Systems that an audit can train and attack: a module or a folder per algorithm, named like it.

``audits.system`` defines the interface of an algorithm; each module here, or a folder's module
``system``, implements it as ``SYSTEM``. It is found by its name, and imported only when a
configuration names it: FURL imports PyTorch, for which other commands should not wait. ``SYSTEMS``
and ``DATA`` also have what plug-ins add (``audits.plugins``).
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

from audits.system import DataKind, System
from secure_fedrec.core.registry import Registry
from secure_fedrec.errors import ConfigError, MissingExtraError

_FOUND = {
    each.name: f"{__name__}.{each.name}" + (".system" if each.ispkg else "")
    for each in iter_modules(__path__)
}


class _Shipped(Mapping[str, System]):
    """Systems by name; looking one up imports it."""

    def __getitem__(self, name: str) -> System:
        found: System = import_module(_FOUND[name]).SYSTEM
        return found

    def __contains__(self, name: object) -> bool:
        return name in _FOUND

    def __iter__(self) -> Iterator[str]:
        return iter(_FOUND)

    def __len__(self) -> int:
        return len(_FOUND)


SYSTEMS: Registry[System] = Registry("algorithm", _Shipped())
"""The algorithms that can be audited, by name."""

DATA: Registry[DataKind] = Registry("data set", {})
"""Data sets that do not belong to a single system, by name; shipped ones are in
``System.kinds``."""


def system_named(name: object) -> System:
    """Looks a system up, and imports it.

    Raises:
        ConfigError: the name is unknown.
        MissingExtraError: a package that it needs is not installed.
    """
    if not isinstance(name, str) or name not in SYSTEMS:
        raise ConfigError("algorithm.name", name, "unknown algorithm", SYSTEMS)
    try:
        return SYSTEMS[name]
    except MissingExtraError as absent:
        asked = f'algorithm.name = "{name}"'
        raise MissingExtraError(absent.package, absent.extra, asked) from absent


def kinds_of(system: System) -> Mapping[str, DataKind]:
    """Data sets that a system learns from: its own, and added ones for its settings."""
    settings = {kind.algorithm for kind in system.kinds.values()}
    added = {name: kind for name, kind in DATA.items() if kind.algorithm in settings}
    return {**system.kinds, **added}
