"""The attack suite: what each adversary learns, from its own view and nothing else.

Reading order: ``base`` (what an attack is, and what it may claim), ``view`` (what an adversary can
read), ``families`` (the attacks, by what they read), ``scoring`` (how claims are scored),
``planted`` and its ``controls`` (proof that the attacks work at all), ``suite`` (the list).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attacks.base import Attack, AttackCard, Claims
    from attacks.scoring.games import Finding, evaluate
    from attacks.scoring.truth import GroundTruth, NotApplicable
    from attacks.suite import SUITE, attack_named

__all__ = [
    "SUITE",
    "Attack",
    "AttackCard",
    "Claims",
    "Finding",
    "GroundTruth",
    "NotApplicable",
    "attack_named",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    """Import the names above when they are used: a command line need not wait for all attacks."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from attacks import base, suite  # noqa: PLC0415
    from attacks.scoring import games, truth  # noqa: PLC0415

    return next(getattr(home, name) for home in (base, suite, games, truth) if hasattr(home, name))
