"""Planted federations on ratings: FedRec++ with denoisers, where every attack on it applies; masks.

In one federation some clients omit their masks (``plant_careless``).
"""

import tomllib
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from attacks.base import Planted
from attacks.planted.recording import planted_secrets, protected, recorded
from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, RECORDS
from secure_fedrec.streams import Streams
from secure_fedrec.traits import Traits
from secure_fedrec.wire import BlockStore, Transcript
from secure_fedrec.wire.recording import OWN
from secure_fedrec.wire.spool import Columns

CLIENTS = 60
"""Clients of a run."""


def plant_ratings(name: str) -> tuple[RecordedRun, GroundTruth]:
    """Train and record a planted federation.

    Secrets of its clients are told from the columns of the training ratings: ``indptr``, ``items``
    and ``ratings``.

    Args:
        name: name of its table in ``ratings.toml``, which names rounds, layers and recorded rounds.
    """
    planted = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[name]
    data = SyntheticConfig(clients=CLIENTS, items=150, mean_ratings=15.0, seed=20210202)
    train, test = k_fold(generate(data), folds=5, fold=0, seed=1)
    streams = Streams.from_seed(7)
    algorithm = PMF(PMFConfig.printed(rank=6, rounds=planted["rounds"]))
    problem = rating_problem(algorithm, train, test)
    layers = {layer: LAYERS[layer](**each) for layer, each in planted["layers"].items()}
    stack = protected(algorithm, problem, streams, layers)
    cohort = CohortConfig(clients_per_round=planted.get("clients_per_round"))
    rounds = tuple(planted["payload_rounds"])
    run = recorded(algorithm, problem, stack, streams, rounds, cohort=cohort)
    columns: Planted = {"indptr": train.indptr(), "items": train.items, "ratings": train.ratings}
    secrets, them = planted_secrets(columns, name), stack.denoisers
    return run, GroundTruth(recorded=run.truth, train=train, denoiser_clients=them, secrets=secrets)


_CLEAR = 12
_OWN = ("senders", "lengths", "rows", "values")


def plant_careless() -> tuple[RecordedRun, GroundTruth]:
    """Train and record it in the clear, and hide the uploads of most clients afterwards."""
    run, truth = plant_ratings("careless")
    note_own(run)
    run.transcript = hidden_but(run.transcript, frozenset(range(0, CLIENTS, CLIENTS // _CLEAR)))
    return run, truth


def note_own(run: RecordedRun) -> None:
    """Record every client's part of the sums, which is its upload, since no layer changes it."""
    for round_ in run.transcript._store.rounds():
        for sent in run.transcript._store.read(round_, "upload"):
            own = {name: sent[name] for name in _OWN if name in sent}
            run.truth._store.append(round_, OWN, own)


def hidden_but(transcript: Transcript, clear: frozenset[int], *, seed: int = 0) -> Transcript:
    """The same recording under masks, which some clients omit.

    Args:
        transcript: transcript of uploads in the clear, in memory.
        clear: the clients that upload in clear.
        seed: seed of the masks.
    """
    source, copy, public = transcript._store, BlockStore(None), transcript.public
    codec, rng = FixedPoint(**public["ring"]), np.random.default_rng(seed)
    masked = partial(_hidden, clear=clear, codec=codec, n_rows=int(public["n_items"]), rng=rng)
    for round_ in source.rounds():
        for kind in source.kinds(round_):
            for sent in source.read(round_, kind):
                copy.append(round_, kind, masked(sent) if kind == "upload" else sent)
    stated = public["protection"]["traits"]
    before = Traits(**{**stated, "denoisers": tuple(stated["denoisers"])})
    traits = asdict(RECORDS["masking"].traits.over(before))
    return Transcript(copy, {**public, "protection": {**public["protection"], "traits": traits}})


def _hidden(
    sent: Columns, clear: frozenset[int], codec: FixedPoint, n_rows: int, rng: np.random.Generator
) -> Columns:
    """Uploads in the layout of hidden ones: true words of some clients, noise for the others."""
    size = len(sent["senders"])
    dense: Columns = {
        **{name: sent[name] for name in ("senders", "receivers", "sizes")},
        "lengths": np.full(size, n_rows),
        "rows": np.tile(np.arange(n_rows, dtype=np.int32), size),
    }
    if "values" not in sent:
        return dense
    width = sent["values"].shape[1]
    words = np.zeros((size, n_rows, width), dtype=codec.dtype)
    counts = np.zeros((size, n_rows), dtype=np.int64)
    owners = np.repeat(np.arange(size), sent["lengths"])
    words[owners, sent["rows"]], counts[owners, sent["rows"]] = sent["values"], 1
    masked = np.flatnonzero(~np.isin(sent["senders"], sorted(clear)))
    noise = rng.integers(0, 2**64, (len(masked), n_rows, width + 1), dtype=np.uint64)
    noise = codec.reduce(noise.astype(codec.dtype))
    words[masked], counts[masked] = noise[:, :, :width], codec.to_integers(noise[:, :, width])
    return dense | {"values": words.reshape(-1, width), "counts": counts.reshape(-1)}
