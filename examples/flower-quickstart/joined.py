"""What clients of the app have recorded as one recording: joined.py PIECES CLIENTS RECORDING.

Run it beside ``quickstart``. The app's clients have the mod, first in their list:

    app = ClientApp(mods=[RecordedMod("pieces")])
"""

import sys
from pathlib import Path

from quickstart.task import initial_model

from secure_fedrec.engines.flower.recorded_mod import join_pieces
from secure_fedrec.recording import OTHER_ROWS, SENT_AS_THEY_ARE, Recorder


# --- joins
def join(pieces: Path, clients: int, out: Path) -> None:
    """Write what clients have recorded down as a server that read it would have."""
    recorder = Recorder(
        n_clients=clients,
        arrays={**initial_model().state_dict(), "metrics.train_loss": ()},
        algorithm={
            "name": "digits",
            "local": {
                "optimizer": "momentum",
                "momentum": 0.9,
                "batch_size": 32,
                "learning_rate": 0.2,
                "epochs": 1,
            },
        },
        rows=OTHER_ROWS,
        sums=SENT_AS_THEY_ARE,
        weighted=True,
        send_models=True,
        leave_out=["metrics of evaluation"],
    )
    join_pieces(pieces, recorder)
    recorder.close().save(out)


# --- end
if __name__ == "__main__":
    join(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
