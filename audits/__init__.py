"""Audits: configuration in, verdict and report out.

``audit``, ``simulate``, ``attack`` and ``plan`` are the entry points from Python; the commands of
the same names call them.

Reading order: ``api``, ``given`` and ``results`` (the interface for Python), ``cli``,
``interrupts``, ``command_line``, ``commands`` and ``data_command`` (what a user types), ``config``
and ``tables`` (what it means), ``systems`` (the algorithms that can be audited), ``build``,
``folder`` and ``training`` (the run), ``truth`` (what attacks are scored against), ``run`` (the
audit), ``gates`` (the judgement), ``measures``, ``findings``, ``assemble`` and ``report`` (the
result), ``testing`` and ``pytest_plugin`` (audits in other people's tests).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audits.api import attack, audit, simulate
    from audits.planning import plan
    from audits.results import AttackResult, AuditResult, SimulatedRun

__all__ = [
    "AttackResult",
    "AuditResult",
    "SimulatedRun",
    "attack",
    "audit",
    "plan",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import the names above on use, so that a command line need not wait for attacks."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "plan":  # which attacks nothing
        from audits.planning import plan  # noqa: PLC0415

        return plan
    from audits import api  # noqa: PLC0415

    return getattr(api, name)
