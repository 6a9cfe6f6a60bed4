"""Plain sums as a record, used if no layer forms the sum."""

from typing import Any

from secure_fedrec.protection.base.record import Claim, Layer, Place
from secure_fedrec.protection.plain.embedded import DirectSum
from secure_fedrec.protection.plain.hosted import HostedPlain
from secure_fedrec.settings import Settings
from secure_fedrec.traits import AS_BEFORE


class PlainConfig(Settings, section="protection"):
    """Plain sums do not have settings."""


def _direct(own: Any, place: Place) -> DirectSum:
    table = {name: value for name, value in place.table.items() if name != "streams"}
    return DirectSum(**table)


PLAIN_CLAIM = Claim(
    system="federated PMF",
    hides="nothing",
    assumes="nothing",
    lossless=True,
    found="the server reads rated set, ratings and user vector from one upload",
)

PLAIN = Layer(
    name="plain",
    role="collector",
    settings=PlainConfig,
    build=_direct,
    hosted=HostedPlain,
    traits=AS_BEFORE,
    claim=PLAIN_CLAIM,
)
"""Configurations do not name it."""
