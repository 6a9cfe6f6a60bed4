"""Shared uploads, the hardened denoisers: every row is shared between server and denoisers.

Reading order: ``config`` and ``round_context`` (settings of a round), ``uniform_words`` (ring
words), ``messages`` (bytes), ``round_parties`` (what all parties have in common), ``client``,
``helper`` (a denoiser), ``server`` (the halves), ``share_sums`` and ``embedded`` (a round for the
engine), ``hosted``, ``layer``; ``identities`` (keys for examples).

    client:    x || c  ->  one uniform share per party      (fakes share zero)
    denoisers: HELD -> server: PROPOSAL -> denoisers: CONSENT -> server: AGREEMENT
    denoisers: sums of shares over the agreed set S -> server: sums and counts over S

Claim: any proper subset of {server, denoisers} that follows the protocol learns who took part,
which rows each client named (rated or fake), and the sums and counts per row over the agreed set S
of at least ``floor`` clients; nothing else. Integrity against a denoiser that sends wrong sums is
not claimed: most such sums are detected, but detection is not proven. Sums over changing cohorts
are equations in the same bits; full participation, the floor or noise limit what they reveal.
"""

from secure_fedrec.protection.session import Roster
from secure_fedrec.protection.shared_upload.client import Shared, SharingClient
from secure_fedrec.protection.shared_upload.config import SharedUploadConfig
from secure_fedrec.protection.shared_upload.embedded import SharedUpload
from secure_fedrec.protection.shared_upload.helper import SharingDenoiser
from secure_fedrec.protection.shared_upload.identities import Identities
from secure_fedrec.protection.shared_upload.layer import SHARED_UPLOAD
from secure_fedrec.protection.shared_upload.round_context import RoundContext
from secure_fedrec.protection.shared_upload.server import SharingServer

__all__ = [
    "SHARED_UPLOAD",
    "Identities",
    "Roster",
    "RoundContext",
    "Shared",
    "SharedUpload",
    "SharedUploadConfig",
    "SharingClient",
    "SharingDenoiser",
    "SharingServer",
]
