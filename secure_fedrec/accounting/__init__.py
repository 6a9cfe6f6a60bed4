"""The price of releases: accountants, and claims that state what they cover.

``secure_fedrec.protection.base.events`` says what was released; ``curves`` bounds its Renyi
divergence, ``accountants`` turns bounds into (epsilon, delta), ``statement`` says what that means,
and ``calibrate`` finds the noise for a budget. Sampled continuous Gaussians and ``"prv"`` are
Opacus', which the extra ``torch`` brings; nothing else here needs it.
"""

from secure_fedrec.accounting.accountants import Accountant, Spent, spend
from secure_fedrec.accounting.calibrate import find_noise_multiplier, gaussian_events
from secure_fedrec.accounting.curves import renyi_curve
from secure_fedrec.accounting.statement import PrivacyStatement, claim
from secure_fedrec.protection.dp import skellam_events

__all__ = [
    "Accountant",
    "PrivacyStatement",
    "Spent",
    "claim",
    "find_noise_multiplier",
    "gaussian_events",
    "renyi_curve",
    "skellam_events",
    "spend",
]
