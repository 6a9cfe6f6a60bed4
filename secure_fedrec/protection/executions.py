"""How the cryptography of a layer is carried out in a run of the engine."""

from secure_fedrec.errors import ConfigError

__all__ = ["EXECUTIONS", "require_execution"]

EXECUTIONS = ("simulated", "real")
"""Words that look like it to whoever holds no key, or the protocol itself; the same sums."""


def require_execution(execution: str) -> None:
    """Check the setting ``protection.execution``.

    Raises:
        ConfigError: it is neither.
    """
    if execution not in EXECUTIONS:
        raise ConfigError("protection.execution", execution, "unknown execution", EXECUTIONS)
