"""Systems: what an audit can train and attack, one module per algorithm.

``base`` says what an audit asks of an algorithm; ``pmf``, ``furl`` and ``hpfl`` answer. A system is
imported when a configuration names it and not before: FURL brings PyTorch along, and commands that
need none of it should not wait for it.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from audits.systems.base import System
from secure_fedrec.errors import ConfigError

__all__ = ["SYSTEMS", "system_named"]


_WHERE: Mapping[str, str] = MappingProxyType(
    {
        "pmf": "audits.systems.pmf:PMF_SYSTEM",
        "furl": "audits.systems.furl.system:FURL_SYSTEM",
        "hpfl": "audits.systems.hpfl.system:HPFL_SYSTEM",
    }
)

SYSTEMS = tuple(_WHERE)
"""Names of the algorithms that can be audited."""


def system_named(name: object) -> System:
    """Looks a system up, and imports it.

    Raises:
        ConfigError: there is none of that name.
    """
    if not isinstance(name, str) or name not in _WHERE:
        raise ConfigError("algorithm.name", name, "unknown algorithm", SYSTEMS)
    module, _, record = _WHERE[name].partition(":")
    system: System = getattr(import_module(module), record)
    return system
