"""Checks that a client's real step, run unchanged, keeps private values at home.

``check`` is the property; ``lightning`` makes such a function of a Lightning module. The parts in
the order of their use: ``contents`` and ``states`` read and write arrays inside any object,
``running`` runs trainings, ``standing`` and ``leaving`` examine what is sent, and ``interference``
what one client's training does to another's.
"""

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings
from secure_fedrec.properties.client_step.check import assert_client_step, check_client_step
from secure_fedrec.properties.client_step.contents import Sent
from secure_fedrec.properties.client_step.lightning import lightning_step
from secure_fedrec.properties.client_step.report import ClientReport, ClientViolation

__all__ = [
    "ClientReport",
    "ClientViolation",
    "Sent",
    "assert_client_step",
    "check_client_step",
    "lightning_step",
]
