"""Linkage-hardened denoisers: fakes in anonymous cells of one row, additively shared.

Reading order: ``config``, ``rows`` (what a cell and a denoiser's sums hold), ``client``,
``denoiser``, ``server`` (the halves), ``real`` (all of them and a mix cascade in one process) and
``collector`` (a round for the engine).

    client:   all rows ----------------------------------> server        (under its name)
              fake row = s_1 + ... + s_D, one cell each -> denoisers     (through the mixes)
    denoiser: agree on the set of 128-bit row ids; sums by row ------> server, which takes them off

Who sees what. The server reads all rows under their senders' names, and per item the sum of the
virtual rows and how many there are: that is a subset sum, and it names them. So nothing is hidden
from the server, neither the rated set nor which uploads the virtual rows came from. A denoiser sees
row ids, item numbers and uniform words; all but one of them together see no more. All of them see
the virtual rows, without names; those of one client lie along its vector. Mixes but one of each
path, and whoever watches the lines, see cells of one size, as many from every client.

Claim, and no more: which client sent a virtual row to the denoisers, and what is in it, is hidden
from all but one of the denoisers, and who sent a cell from the network, beyond what item numbers,
their counts and timing say. Even with the server's help all but one of the denoisers cannot tell
which of an item's cells is of which of the clients that the sums name; nothing depends on it then.
How many virtual rows a client routes is hidden behind the public number of cells. A cell that is
lost, altered or replaced is missing in its receiver's list (``routing.receipts``), and its sender
ends the round; a cell too many is found by counting.
"""

from secure_fedrec.protection.linkage_hardened.client import LinkageClient, Sent
from secure_fedrec.protection.linkage_hardened.collector import LINKAGE_HARDENED, LinkageHardened
from secure_fedrec.protection.linkage_hardened.config import LinkageHardenedConfig
from secure_fedrec.protection.linkage_hardened.denoiser import LinkageDenoiser
from secure_fedrec.protection.linkage_hardened.server import LinkageServer

__all__ = [
    "LINKAGE_HARDENED",
    "LinkageClient",
    "LinkageDenoiser",
    "LinkageHardened",
    "LinkageHardenedConfig",
    "LinkageServer",
    "Sent",
]
