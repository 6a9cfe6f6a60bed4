"""Systems: what an audit can train and attack, a module or a folder per algorithm, named like it.

``audits.system`` says what an audit asks of an algorithm; the ``SYSTEM`` of each module here, of a
folder's module ``system``, answers. It is found by its name, imported when a configuration says it
and not before: FURL brings PyTorch along, and commands that need none should not wait for it.
"""

from importlib import import_module
from pkgutil import iter_modules

from audits.system import System
from secure_fedrec.errors import ConfigError, MissingExtraError

_FOUND = {
    each.name: f"{__name__}.{each.name}" + (".system" if each.ispkg else "")
    for each in iter_modules(__path__)
}

SYSTEMS = tuple(_FOUND)
"""Names of the algorithms that can be audited."""


def system_named(name: object) -> System:
    """Looks a system up, and imports it.

    Raises:
        ConfigError: there is none of that name.
        MissingExtraError: a package that it needs is not installed.
    """
    if not isinstance(name, str) or name not in _FOUND:
        raise ConfigError("algorithm.name", name, "unknown algorithm", SYSTEMS)
    try:
        system: System = import_module(_FOUND[name]).SYSTEM
    except MissingExtraError as absent:
        asked = f'algorithm.name = "{name}"'
        raise MissingExtraError(absent.package, absent.extra, asked) from absent
    return system
