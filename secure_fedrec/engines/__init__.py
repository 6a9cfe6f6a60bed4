"""Engines run an algorithm on a protection stack; ``local_engine`` is the embedded default.

Reading order: ``federated_problem`` (the data side of a run), ``rating_problems`` (the same for
ratings), ``local_engine`` (the rounds), ``checkpoint``, ``recording_seal`` (the list of files of a
recording), ``recorded_run`` (a run that keeps what every party saw).
"""

from secure_fedrec.engines.checkpoint import read_checkpoint, write_checkpoint
from secure_fedrec.engines.federated_problem import (
    Evaluate,
    Problem,
    blocks_of,
    sizes_of,
    upload_rows,
    upload_vectors,
)
from secure_fedrec.engines.local_engine import CohortConfig, LocalEngine, RoundReport
from secure_fedrec.engines.rating_problems import (
    ranking_evaluation,
    ranking_problem,
    rating_evaluation,
    rating_problem,
    vault_of,
)
from secure_fedrec.engines.recorded_run import (
    RecordedRun,
    projected_own_bytes,
    projected_transcript_bytes,
    public_knowledge,
    table_digest,
)
from secure_fedrec.engines.recording_seal import require_complete

__all__ = [
    "CohortConfig",
    "Evaluate",
    "LocalEngine",
    "Problem",
    "RecordedRun",
    "RoundReport",
    "blocks_of",
    "projected_own_bytes",
    "projected_transcript_bytes",
    "public_knowledge",
    "ranking_evaluation",
    "ranking_problem",
    "rating_evaluation",
    "rating_problem",
    "read_checkpoint",
    "require_complete",
    "sizes_of",
    "table_digest",
    "upload_rows",
    "upload_vectors",
    "vault_of",
    "write_checkpoint",
]
