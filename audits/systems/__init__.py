"""Systems: what an audit can train and attack, one module per algorithm.

``base`` says what an audit asks of an algorithm; ``pmf``, ``furl`` and ``hpfl`` answer. A system is
imported when a configuration names it and not before: FURL brings PyTorch along, and commands that
need none of it should not wait for it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from audits.systems.base import System
from secure_fedrec.errors import ConfigError

__all__ = ["SYSTEMS", "system_named"]


def _pmf() -> System:
    from audits.systems.pmf import PMF_SYSTEM  # noqa: PLC0415

    return PMF_SYSTEM


def _furl() -> System:
    from audits.systems.furl.system import FURL_SYSTEM  # noqa: PLC0415

    return FURL_SYSTEM


def _hpfl() -> System:
    from audits.systems.hpfl.system import HPFL_SYSTEM  # noqa: PLC0415

    return HPFL_SYSTEM


_IMPORTS: Mapping[str, Callable[[], System]] = MappingProxyType(
    {"pmf": _pmf, "furl": _furl, "hpfl": _hpfl}
)

SYSTEMS = tuple(_IMPORTS)
"""Names of the algorithms that can be audited."""


def system_named(name: object) -> System:
    """Looks a system up, and imports it.

    Raises:
        ConfigError: there is none of that name.
    """
    if not isinstance(name, str) or name not in _IMPORTS:
        raise ConfigError("algorithm.name", name, "unknown algorithm", SYSTEMS)
    return _IMPORTS[name]()
