"""Engines run an algorithm on a protection stack; ``local`` is the embedded default."""

from secure_fedrec.engines.checkpoint import read_checkpoint, write_checkpoint
from secure_fedrec.engines.local import CohortConfig, LocalEngine, RoundReport, vault_of
from secure_fedrec.engines.recorded import (
    RecordedRun,
    projected_transcript_bytes,
    public_knowledge,
    table_digest,
)

__all__ = [
    "CohortConfig",
    "LocalEngine",
    "RecordedRun",
    "RoundReport",
    "projected_transcript_bytes",
    "public_knowledge",
    "read_checkpoint",
    "table_digest",
    "vault_of",
    "write_checkpoint",
]
