"""The server: averages what clients have trained, and keeps the last model."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart.task import initial_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    clients = int(context.run_config["clients"])
    strategy = FedAvg(min_train_nodes=clients, min_available_nodes=clients)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(initial_model().state_dict()),
        num_rounds=int(context.run_config["rounds"]),
        timeout=120,
    )
    torch.save(result.arrays.to_torch_state_dict(), context.run_config["model"])
