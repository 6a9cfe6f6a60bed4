"""Federated matrix factorization in plain NumPy: 60 clients, 90 items, ratings from 1 to 5."""

import numpy as np

rng = np.random.default_rng(1)
N, M, RANK, ROUNDS, RATE, PULL = 60, 90, 5, 3, 0.5, 0.01
taste = rng.normal(size=(N, 3)) @ rng.normal(size=(3, M))
STARS = np.where(rng.random((N, M)) < 0.25, np.clip(np.rint(3 + taste), 1, 5), 0)
users, items = rng.uniform(-0.1, 0.1, (N, RANK)), rng.uniform(-0.1, 0.1, (M, RANK))

for round_ in range(1, ROUNDS + 1):
    total, count = np.zeros_like(items), np.zeros((M, 1))
    for client in range(N):
        rated = np.flatnonzero(STARS[client])
        error = (STARS[client, rated] - items[rated] @ users[client])[:, None]
        rows = -error * users[client] + PULL * items[rated]
        users[client] -= RATE * (-error * items[rated] + PULL * users[client]).mean(axis=0)
        total[rated] += rows
        count[rated] += 1
    items -= RATE * total / np.maximum(count, 1)
    error = (STARS - users @ items.T)[STARS > 0]
    print(f"round {round_}: RMSE {np.sqrt(np.mean(error**2)):.4f}")
