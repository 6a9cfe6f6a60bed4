"""Origins of plug-ins: entry points, distributions, source files. Nothing here imports a plug-in.

A plug-in is named in a configuration as "package.module:OBJECT", or by the name of an entry point
that an installed distribution has in the group of its kind.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, distributions
from pathlib import Path
from types import MappingProxyType
from typing import Any

from audits.owners import owners_of
from secure_fedrec.errors import ConfigError

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "algorithm": "secure_fedrec.systems",
        "layer": "secure_fedrec.layers",
        "attack": "secure_fedrec.attacks",
        "data set": "secure_fedrec.data",
        "figures": "secure_fedrec.measures",
    }
)
"""Group of entry points by kind of plug-in."""

WRITTEN = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
"""Regular expression of "package.module:OBJECT"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a plug-in comes from.

    Args:
        kind: a key of ``GROUPS``.
        object: "package.module:OBJECT".
        distribution: that installs its module; None if none does.
        version: version of the distribution.
        sha256: SHA-256 of the module's source file, in hex; None without such a file.
    """

    kind: str
    object: str
    distribution: str | None
    version: str | None
    sha256: str | None

    def told(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def origin_of(kind: str, written: str, file: Path | None) -> Origin:
    """Where a plug-in comes from.

    Args:
        kind: a key of ``GROUPS``.
        written: "package.module:OBJECT".
        file: file of its module.
    """
    name = owner_of(written.partition(":")[0])
    digest = None if file is None else sha256(file.read_bytes()).hexdigest()
    version = None if name is None else distribution(name).version
    return Origin(kind=kind, object=written, distribution=name, version=version, sha256=digest)


def owner_of(module: str) -> str | None:
    """Name of the installed distribution that a module belongs to; None without one."""
    top = module.partition(".")[0]
    return min(owners_of((top,))[top], default=None)


def source_of(module: str) -> Path | None:
    """The source file of a module, found without importing it; None without a source file."""
    places: Any = None
    spec, name = None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    file = None if spec is None or not spec.has_location else spec.origin
    return Path(file) if file is not None and Path(file).is_file() else None


def installed(kind: str) -> tuple[EntryPoint, ...]:
    """Entry points of a kind of plug-in, of all distributions on the path."""
    return _installed(tuple(sys.path))[GROUPS[kind]]


@lru_cache(maxsize=4)
def _installed(path: tuple[str, ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Entry points by group; which distributions there are follows from the path."""
    del path
    found: dict[str, tuple[EntryPoint, ...]] = dict.fromkeys(GROUPS.values(), ())
    for each in distributions():
        for point in each.entry_points:
            if point.group in found:
                found[point.group] += (point,)
    return found


def brought_by(point: EntryPoint) -> str:
    """An entry point and its distribution, in words."""
    owner = point.dist
    return f"{point.value} of {'an unknown distribution' if owner is None else owner.name}"


def written_of(kind: str, name: object, *, key: str, shipped: bool) -> str | None:
    """Resolve a name in a configuration to "package.module:OBJECT"; None if it is not a plug-in.

    Args:
        kind: a key of ``GROUPS``.
        name: as written there.
        key: key of the configuration.
        shipped: whether something of that kind and name is shipped.

    Raises:
        ConfigError: it is not written in this form, or the name is ambiguous.
    """
    if not isinstance(name, str):
        return None
    if ":" in name:
        if re.fullmatch(WRITTEN, name) is None:
            raise ConfigError(key, name, "a plug-in is written package.module:OBJECT")
        return name
    points = {each.value: each for each in installed(kind) if each.name == name}
    known = [brought_by(each) for each in points.values()]
    if points and shipped:
        problem = f"is shipped, and {' and '.join(known)} has the same name: uninstall it"
        raise ConfigError(key, name, problem)
    if len(points) > 1:
        problem = (
            f"is the name of {len(points)} plug-ins, {' and '.join(known)}: "
            "name one by module and object"
        )
        raise ConfigError(key, name, problem, points)
    return next(iter(points), None)


def extra_with(package: str) -> str | None:
    """The extra of this distribution that installs a package; None without one."""
    try:
        asked = distribution("secure-fedrec").requires or ()
    except PackageNotFoundError:
        return None
    pattern = re.compile(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]")
    brings: dict[str, set[str]] = {}
    for found in filter(None, map(pattern.match, asked)):
        brings.setdefault(found[2], set()).add(found[1])
    having = (extra for extra, packages in brings.items() if package in packages)
    return min(having, key=lambda extra: len(brings[extra]), default=None)
