"""Federations that know nothing of this package, written down as they run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attacks import SUITE, Finding, GroundTruth, evaluate
from audits.run.recording_audit import truth_of_recording
from secure_fedrec.recording import SENT_AS_THEY_ARE, Recorder, Recording, RowTraits
from secure_fedrec.wire import Adversary, Transcript

LEVELS = [1.0, 2.0, 3.0, 4.0, 5.0]
ITEM_ROWS = RowTraits(rows="items", row_sets="rated", form="factorized")


def ratings_of(n_clients: int, n_items: int, *, seed: int, share: float = 0.25) -> Any:
    """int[n, m] stars, 0 where there is none; every client has some."""
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(n_clients, 3)) @ rng.normal(size=(3, n_items))
    stars = np.clip(np.rint(3 + taste), 1, 5).astype(int)
    rated = rng.random((n_clients, n_items)) < share
    rated[:, 0] = False
    rated[np.arange(n_clients), rng.integers(1, n_items, n_clients)] = True
    return np.where(rated, stars, 0)


def matrix_factorization(
    stars: Any,
    users: Any,
    vectors: Any,
    *,
    rounds: int,
    rate: float,
    decay: float,
    pull: float,
    directory: Path | None = None,
    facts: Mapping[str, Any] | None = None,
    sums: Any = SENT_AS_THEY_ARE,
) -> Recording:
    """Plain gradient descent in NumPy: a row per rated item of each client, averaged at a server.

    A client's own vector moves by the mean over its ratings. Uploads are rounded to multiples of
    2^-32, so that float64 adds them without a rounding, as a ring does.
    """
    n_clients, n_items = stars.shape
    recorder = Recorder(
        n_clients=n_clients,
        arrays={"item_vectors": vectors},
        items="item_vectors",
        data={"rating_levels": LEVELS},
        algorithm={"name": "my-mf", "regularization": pull, "biases": False} | dict(facts or {}),
        rows=ITEM_ROWS,
        sums=sums,
        directory=directory,
    )
    users, vectors = users.copy(), vectors.copy()
    for round_ in range(1, rounds + 1):
        step = rate * decay ** (round_ - 1)
        recorder.private(round_, users)
        total, counts, after = np.zeros_like(vectors), np.zeros(n_items), users.copy()
        with recorder.round(round_, {"item_vectors": vectors}) as taken:
            for client in range(n_clients):
                items = np.flatnonzero(stars[client])
                errors = stars[client, items] - vectors[items] @ users[client]
                rows = -errors[:, None] * users[client] + pull * vectors[items]
                rows = np.rint(rows * 2.0**32) / 2.0**32
                taken.upload(client, {"item_vectors": (items, rows)})
                total[items] += rows
                counts[items] += 1
                own = -errors[:, None] * vectors[items] + pull * users[client]
                after[client] -= step * own.mean(axis=0)
            held = np.flatnonzero(counts)
            taken.aggregate({"item_vectors": (held, total[held])}, counts=counts[held])
            vectors = vectors.copy()
            vectors[held] -= step * total[held] / counts[held, None]
            taken.result({"item_vectors": vectors})
        users = after
    clients, items = np.nonzero(stars)
    recorder.truth(ratings=(clients, items, stars[clients, items]))
    return recorder.close()


def start(n_clients: int, n_items: int, *, rank: int, seed: int) -> tuple[Any, Any]:
    """User and item vectors to begin with."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.1, 0.1, (n_clients, rank)), rng.uniform(-0.1, 0.1, (n_items, rank))


SERVER = Adversary(name="server", corrupt=frozenset({"server"}))


def findings_of(
    transcript: Transcript, truth: GroundTruth, who: Adversary = SERVER
) -> dict[str, Finding]:
    """What every attack of the suite finds."""
    return {
        name: evaluate(attack, who, transcript, truth, seed=1) for name, attack in SUITE.items()
    }


def findings_of_recording(recording: Recording, who: Adversary = SERVER) -> dict[str, Finding]:
    """What every attack of the suite finds in a recording."""
    return findings_of(recording.transcript, truth_of_recording(recording), who)
