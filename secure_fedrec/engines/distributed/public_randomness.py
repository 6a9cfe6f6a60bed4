"""Public randomness of a host: the signed files that it accepts, and the wait for a value."""

import logging
import time
from pathlib import Path

from secure_fedrec.engines.distributed.host_messages import Agreement
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session.beacon import Asked, Beacon, SignedBeacon

log = logging.getLogger("secure-fedrec")

_EVERY = 0.1
"""Seconds between two looks."""


def signed_beacon(agreed: Agreement, own: Path) -> SignedBeacon:
    """The beacons that the operator has published, from the folder ``beacons`` of this host."""
    return SignedBeacon(
        own / "beacons", operator=agreed.roster.operator, federation=agreed.federation
    )


def awaited(beacon: Beacon | None, epoch: int, patience: float | None) -> bytes:
    """The value of an epoch, once it is published.

    Args:
        beacon: source of values at this host; None without one.
        epoch: the epoch whose value is due.
        patience: seconds to wait; None as long as it takes.

    Raises:
        ProtocolError: it is not published in time.
        ConfigError: the source holds a value without a valid signature.
    """
    source: object = beacon
    if isinstance(source, Asked):
        source.ask(epoch)
    end, told = None if patience is None else time.monotonic() + patience, False
    while beacon is not None:
        found = beacon.values().get(epoch)
        if found is not None:
            return found
        if not told:  # the operator has to publish it
            log.warning("waits for the beacon of epoch %d, which is to be published now", epoch)
            told = True
        if end is not None and time.monotonic() > end:
            break
        time.sleep(_EVERY)
    raise ProtocolError(f"the beacon of epoch {epoch} is not published")
