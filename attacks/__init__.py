"""The attack suite: what each adversary really learns, from its own view and nothing else.

Reading order: ``base`` (what an attack is, and what it may claim), ``knowledge`` and ``presence``
(what every server knows), ``rated_set``, ``ratings``, ``linkage``, ``sums``,
``tail_items`` (with ``tail_rows`` and ``participation``) and ``regression`` (attacks on ratings),
``split`` and ``hierarchical`` (attacks on what personalization keeps at home), ``intervals`` and
``statistics``, ``truth``, ``scoring`` and ``games`` (how claims are scored), ``planted`` and
``controls`` (proof that the attacks work at all), ``suite`` (the list).
"""

from attacks.base import Attack, AttackCard, Claims
from attacks.scoring.games import Finding, evaluate
from attacks.scoring.scored import NotApplicable
from attacks.scoring.truth import GroundTruth
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
