"""Rounds whose clients are on separate hosts, except the transport of bytes.

A ``Site`` is a client's host: its data, vault, journal and halves; a ``HelperSite`` is the host of
a helper only. A ``Coordinator`` is the server's: it drives the stack's hub over a ``SitesChannel``,
which reaches sites through a ``Transport``, an untrusted carrier of bytes. Reading order:
``host_messages``, ``public_randomness``, ``training_plan``, ``site_state`` (private state at rest),
``site_session``, ``site``, ``helper_site``, ``sites_channel``, ``coordinator``. For a training loop
that is not of this package: ``mean_site``, ``mean_coordinator``, whose rounds end in a mean.
"""

from secure_fedrec.engines.distributed.coordinator import Coordinator, DistributedReport
from secure_fedrec.engines.distributed.helper_site import HelperSite
from secure_fedrec.engines.distributed.host_messages import Agreement
from secure_fedrec.engines.distributed.mean_coordinator import MeanCoordinator, MeanReport
from secure_fedrec.engines.distributed.mean_site import BEGIN, Keys, MeanSite, Task
from secure_fedrec.engines.distributed.site import Site
from secure_fedrec.engines.distributed.site_state import SealedState
from secure_fedrec.engines.distributed.sites_channel import SitesChannel, Transport

__all__ = [
    "BEGIN",
    "Agreement",
    "Coordinator",
    "DistributedReport",
    "HelperSite",
    "Keys",
    "MeanCoordinator",
    "MeanReport",
    "MeanSite",
    "SealedState",
    "Site",
    "SitesChannel",
    "Task",
    "Transport",
]
