"""Federated matrix factorization in plain NumPy: 60 clients, 90 items, ratings from 1 to 5."""

from pathlib import Path

import numpy as np

from secure_fedrec.recording import SENT_AS_THEY_ARE, Recorder, RowTraits

rng = np.random.default_rng(1)
N, M, RANK, ROUNDS, RATE, PULL = 60, 90, 5, 3, 0.5, 0.01
taste = rng.normal(size=(N, 3)) @ rng.normal(size=(3, M))
STARS = np.where(rng.random((N, M)) < 0.25, np.clip(np.rint(3 + taste), 1, 5), 0)
users, items = rng.uniform(-0.1, 0.1, (N, RANK)), rng.uniform(-0.1, 0.1, (M, RANK))
recorder = Recorder(
    n_clients=N,
    arrays={"items": items},
    items="items",
    data={"rating_levels": [1, 2, 3, 4, 5]},
    algorithm={"name": "my-mf", "regularization": PULL, "biases": False},
    rows=RowTraits(rows="items", row_sets="rated", form="factorized"),
    sums=SENT_AS_THEY_ARE,
)

for round_ in range(1, ROUNDS + 1):
    total, count = np.zeros_like(items), np.zeros((M, 1))
    recorder.message(round_, "model", "server", None, {"items": items})
    recorder.private(round_, users)
    for client in range(N):
        rated = np.flatnonzero(STARS[client])
        error = (STARS[client, rated] - items[rated] @ users[client])[:, None]
        rows = -error * users[client] + PULL * items[rated]
        users[client] -= RATE * (-error * items[rated] + PULL * users[client]).mean(axis=0)
        recorder.message(round_, "upload", client, "server", {"items": (rated, rows)})
        total[rated] += rows
        count[rated] += 1
    items -= RATE * total / np.maximum(count, 1)
    error = (STARS - users @ items.T)[STARS > 0]
    print(f"round {round_}: RMSE {np.sqrt(np.mean(error**2)):.4f}")

recorder.truth(ratings=(*np.nonzero(STARS), STARS[STARS > 0]))
recorder.close().save(Path("recording"), truth=Path("truth.npz"))
