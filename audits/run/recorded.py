"""A recorded run, read back from its folder."""

from pathlib import Path

from attacks import GroundTruth
from attacks.view.knowledge import Knowledge
from audits.config.audit import AuditConfig, parse_config
from audits.run.folder import CONFIG_NAME, read_client_secrets, read_own_config
from audits.run.truth import ground_truth, read_secrets
from secure_fedrec.engines import require_complete
from secure_fedrec.errors import TranscriptError
from secure_fedrec.wire import BlockStore, Transcript, Truth


def recorded_truth(folder: Path, transcript: Transcript) -> tuple[AuditConfig, GroundTruth]:
    """Configuration and truth that were written beside a transcript.

    Args:
        folder: run folder.
        transcript: transcript of the run.

    Raises:
        CheckpointError: the configuration was edited.
        TranscriptError: the configuration or the truth is missing, or the run is incomplete.
    """
    if not (folder / CONFIG_NAME).exists():
        raise TranscriptError(
            f"{folder} lacks config.json: claims cannot be scored without it; "
            "of a recording made elsewhere name the truth, --truth FILE"
        )
    config = parse_config(read_own_config(folder))
    require_complete(folder, config.algorithm.rounds)
    secrets = read_secrets(folder)
    truth = ground_truth(
        secrets,
        Truth(BlockStore(folder / "truth")),
        name=config.data.name,
        seeded=read_client_secrets(folder) is None,
        denoisers=Knowledge.of(transcript).denoisers,
    )
    return config, truth
