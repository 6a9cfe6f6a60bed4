"""A job of NVFlare's simulator, plain or protected: ``python job.py plain|protected FOLDER``.

Three clients train a linear model in NumPy. ``FOLDER`` has folders of keys, ``server`` and
``site-1`` to ``site-3``; results go to ``FOLDER/plain`` or ``FOLDER/protected``.
"""

import sys
from pathlib import Path

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.api import FedJob
from nvflare.job_config.defs import FilterType
from protected_filters import ClientMean, ServerMean

CLIENTS, ROUNDS, FEATURES = 3, 2, 5


class Averaging(FedAvg):
    """FedAvg that begins with zeros, and keeps its model as an array file."""

    def load_model(self) -> FLModel:
        """Where training begins."""
        return FLModel(params={"weights": np.zeros(FEATURES)})

    def save_model_file(self, model: FLModel, filepath: str) -> None:
        """Write the weights."""
        np.save(filepath, model.params["weights"])


class Trainer(Executor):
    """Some steps of gradient descent on points of this client's own."""

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """What the weights have moved by."""
        client = int(fl_ctx.get_identity_name().partition("-")[2])
        rng = np.random.default_rng(client)
        points = rng.normal(size=(20 * client, FEATURES))
        before = from_shareable(shareable).data["weights"]
        weights = before.copy()
        for _ in range(5):
            weights -= 0.2 * points.T @ (points @ (weights - np.arange(FEATURES))) / len(points)
        moved = DXO(DataKind.WEIGHT_DIFF, data={"weights": weights - before})
        moved.set_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, len(points))
        return moved.to_shareable()


def job_of(which: str, folder: Path) -> FedJob:
    """The job."""
    job = FedJob(name=which, min_clients=CLIENTS)
    job.to_server(
        Averaging(
            num_clients=CLIENTS,
            num_rounds=ROUNDS,
            persistor_id="",
            save_filename=str(folder / f"{which}.npy"),
        )
    )
    job.to_clients(Trainer(), tasks=["train"])
    # --- protection: two filters on each side ---
    if which == "protected":
        for kind in (FilterType.TASK_DATA, FilterType.TASK_RESULT):
            job.to_server(ServerMean(str(folder)), filter_type=kind, tasks=["train"])
            job.to_clients(ClientMean(str(folder)), filter_type=kind, tasks=["train"])
    # --- end of the protection ---
    return job


if __name__ == "__main__":
    which, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    job_of(which, folder).simulator_run(
        str(folder / which), clients=[f"site-{n + 1}" for n in range(CLIENTS)], threads=CLIENTS
    )
