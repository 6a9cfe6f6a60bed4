"""Stops Flower from reporting use, looking for updates and installing packages.

Flower does all three by default. The first two are switched off by variables of the environment
that it reads when it is imported, the third by an option of the SuperLink as well, so this module
does not import it.
"""

import os
from collections.abc import Mapping
from typing import Final

from secure_fedrec.errors import ConfigError

SWITCHES: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Variables of the environment, and the value that keeps Flower silent."""


def require_quiet(environment: Mapping[str, str] | None = None) -> None:
    """Refuse to go on unless everything is switched off.

    Args:
        environment: variables; by default those of this process.

    Raises:
        ConfigError: a variable is not set so; names it.
    """
    found = os.environ if environment is None else environment
    for name, value in SWITCHES.items():
        if found.get(name) != value:
            problem = "Flower would contact hosts of its maker, or install packages: it must be"
            raise ConfigError(name, found.get(name, "(not set)"), problem, (value,))
