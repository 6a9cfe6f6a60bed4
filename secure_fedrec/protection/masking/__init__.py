"""Secure aggregation: a server learns the sum of its clients' vectors, and nothing else.

Clients add masks that cancel in the sum over one agreed set of survivors; what does not cancel
because clients dropped out is restored from secret shares. The claim holds against a server that
deviates in any way together with a bounded number of clients, given a roster that the server did
not sign; or the round aborts. Not claimed: that the server publishes the right sum, that inputs are
honest, or that participation is hidden; the difference of two sums is not protected.

Reading order: ``envelope``; ``config`` (what is agreed beforehand, and what is summed);
``messages`` (bytes, keys, shares, and who masks with whom); ``client``, ``server`` (the halves);
``pipeline``, ``tail_floor`` (rounds that belong together); ``hosted``.
"""

from secure_fedrec.protection.masking.client.half import ClientState, MaskingClient
from secure_fedrec.protection.masking.config.layouts import (
    MeanLayout,
    SumLayout,
    TableLayout,
    WeightedMean,
)
from secure_fedrec.protection.masking.config.parameters import (
    COMPLETE_UP_TO,
    MaskingParameters,
    find_parameters,
)
from secure_fedrec.protection.masking.config.policy import (
    EncodedVector,
    Expected,
    SitePolicy,
    draw_cohort,
)
from secure_fedrec.protection.masking.config.round_settings import KeyAgreement, MaskingConfig
from secure_fedrec.protection.masking.envelope import SERVER, Kind
from secure_fedrec.protection.masking.federation import Federation, RoundOutcome, run_round
from secure_fedrec.protection.masking.server.half import MaskingServer, ServerState
from secure_fedrec.protection.masking.server.recovery import Fault
from secure_fedrec.protection.masking.server.steps import Outgoing
from secure_fedrec.protection.masking.tail_floor import SecondRound, TailFloor
from secure_fedrec.protection.session.journal import FileJournal, Journal, MemoryJournal
from secure_fedrec.protection.session.roster import Identity, Roster
from secure_fedrec.protection.session.statement import Later, Purpose, Statement, state_hash

__all__ = [
    "COMPLETE_UP_TO",
    "SERVER",
    "ClientState",
    "EncodedVector",
    "Expected",
    "Fault",
    "Federation",
    "FileJournal",
    "Identity",
    "Journal",
    "KeyAgreement",
    "Kind",
    "Later",
    "MaskingClient",
    "MaskingConfig",
    "MaskingParameters",
    "MaskingServer",
    "MeanLayout",
    "MemoryJournal",
    "Outgoing",
    "Purpose",
    "Roster",
    "RoundOutcome",
    "SecondRound",
    "ServerState",
    "SitePolicy",
    "Statement",
    "SumLayout",
    "TableLayout",
    "TailFloor",
    "WeightedMean",
    "draw_cohort",
    "find_parameters",
    "run_round",
    "state_hash",
]
