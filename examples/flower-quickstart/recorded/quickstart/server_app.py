"""The server: averages what clients have trained, and keeps the last model."""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart.task import initial_model
from secure_fedrec.engines.flower.recorded_strategy import RecordedStrategy
from secure_fedrec.recording import OTHER_ROWS, SENT_AS_THEY_ARE, Recorder

app = ServerApp()

LOCAL = {
    "optimizer": "momentum",
    "momentum": 0.9,
    "batch_size": 32,
    "learning_rate": 0.2,
    "epochs": 1,
}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    clients = int(context.run_config["clients"])
    recorder = Recorder(
        n_clients=clients,
        arrays={**initial_model().state_dict(), "metrics.train_loss": ()},
        algorithm={"name": "digits", "local": LOCAL},
        rows=OTHER_ROWS,
        sums=SENT_AS_THEY_ARE,
        weighted=True,
        send_models=True,
        leave_out=["metrics of evaluation"],
    )
    strategy = FedAvg(min_train_nodes=clients, min_available_nodes=clients)
    result = RecordedStrategy(strategy, recorder).start(
        grid=grid,
        initial_arrays=ArrayRecord(initial_model().state_dict()),
        num_rounds=int(context.run_config["rounds"]),
        timeout=120,
    )
    recorder.close().save(Path(context.run_config["recording"]))
    torch.save(result.arrays.to_torch_state_dict(), context.run_config["model"])
