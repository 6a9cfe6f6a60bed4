"""Rounds whose clients are on hosts of their own: what is no matter of how bytes travel.

A ``Site`` is a client's host: its data, vault, journal and halves; a ``LoneSite`` that of a helper
alone. A ``Coordinator`` is the server's: it drives the stack's hub over a ``SitesChannel``, which
reaches sites through a ``Transport``, a carrier of bytes that nobody has to trust. Reading order:
``messages``, ``learner``, ``home`` (private state at rest), ``talks``, ``site``, ``lone``,
``channel``, ``coordinator``. For a training loop that is not of this package: ``mean_site``,
``mean_coordinator``, whose rounds end in a mean.
"""

from secure_fedrec.engines.distributed.channel import SitesChannel, Transport
from secure_fedrec.engines.distributed.coordinator import Coordinator, DistributedReport
from secure_fedrec.engines.distributed.home import Home
from secure_fedrec.engines.distributed.lone import LoneSite
from secure_fedrec.engines.distributed.mean_coordinator import MeanCoordinator, MeanReport
from secure_fedrec.engines.distributed.mean_site import BEGIN, Keys, MeanSite, Task
from secure_fedrec.engines.distributed.messages import Agreement
from secure_fedrec.engines.distributed.site import Site

__all__ = [
    "BEGIN",
    "Agreement",
    "Coordinator",
    "DistributedReport",
    "Home",
    "Keys",
    "LoneSite",
    "MeanCoordinator",
    "MeanReport",
    "MeanSite",
    "Site",
    "SitesChannel",
    "Task",
    "Transport",
]
