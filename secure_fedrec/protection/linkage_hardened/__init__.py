"""Linkage-hardened denoisers: fakes in anonymous cells of one row, additively shared.

Reading order: ``config``, ``rows`` (what a cell and a denoiser's sums hold), ``client``,
``denoiser``, ``server`` (the halves), ``real`` (all of them and a mix cascade in one process) and
``collector`` (a round for the engine).

    client:   all rows ----------------------------------> server        (under its name)
              fake row = s_1 + ... + s_D, one cell each -> denoisers     (through the mixes)
    denoiser: agree on the set of 128-bit row ids; sums by row ------> server, which takes them off

Claim, and no more: the server together with all but one of the denoisers does not learn *which
upload* a fake row came from, beyond what item numbers, their counts and timing say. The rated set
is not hidden from the server: it reads identified rows, and the exact sums of the real ones. How
many fakes a client routes is hidden behind the public number of cells. Changed, lost or repeated
cells abort the round.
"""

from secure_fedrec.protection.linkage_hardened.client import LinkageClient, Sent
from secure_fedrec.protection.linkage_hardened.collector import LinkageHardened
from secure_fedrec.protection.linkage_hardened.config import LinkageHardenedConfig
from secure_fedrec.protection.linkage_hardened.denoiser import LinkageDenoiser
from secure_fedrec.protection.linkage_hardened.server import LinkageServer

__all__ = [
    "LinkageClient",
    "LinkageDenoiser",
    "LinkageHardened",
    "LinkageHardenedConfig",
    "LinkageServer",
    "Sent",
]
