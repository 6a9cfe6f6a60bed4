"""A planted federation under masks, some of whose clients leave theirs away."""

from dataclasses import asdict

import numpy as np

from attacks.base import Planted
from attacks.planted.recording import planted_secrets, protected, recorded
from attacks.scoring.truth import GroundTruth
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import RECORDS
from secure_fedrec.streams import Streams
from secure_fedrec.traits import Traits
from secure_fedrec.wire import BlockStore, Transcript
from secure_fedrec.wire.recording import OWN
from secure_fedrec.wire.spool import Columns, concatenate_columns

_CLIENTS, _CLEAR = 60, 12
_OWN = ("senders", "lengths", "rows", "values")


def plant_careless() -> tuple[RecordedRun, GroundTruth]:
    """Train and record it in the clear, and hide the uploads of most clients afterwards."""
    data = SyntheticConfig(clients=_CLIENTS, items=150, mean_ratings=15.0, seed=20210202)
    train, test = k_fold(generate(data), folds=5, fold=0, seed=1)
    streams, algorithm = Streams.from_seed(7), PMF(PMFConfig(rank=6, rounds=1))
    problem = rating_problem(algorithm, train, test)
    run = recorded(algorithm, problem, protected(algorithm, problem, streams, {}), streams, (1,))
    clear = frozenset(range(0, _CLIENTS, _CLIENTS // _CLEAR))
    note_own(run)
    run.transcript = hidden_but(run.transcript, clear)
    columns: Planted = {"indptr": train.indptr(), "items": train.items, "ratings": train.ratings}
    secrets = planted_secrets(columns, "careless")
    return run, GroundTruth(train=train, recorded=run.truth, secrets=secrets)


def note_own(run: RecordedRun) -> None:
    """Note what every client put into the sums: its upload, as nothing hides or covers it."""
    for round_ in run.transcript._store.rounds():
        for sent in run.transcript._store.read(round_, "upload"):
            own = {name: sent[name] for name in _OWN if name in sent}
            run.truth._store.append(round_, OWN, own)


def hidden_but(transcript: Transcript, clear: frozenset[int], *, seed: int = 0) -> Transcript:
    """The same recording under masks, which some clients leave away.

    Args:
        transcript: of uploads in the clear, in memory.
        clear: who does.
        seed: of the masks.
    """
    rng, codec = np.random.default_rng(seed), FixedPoint(**transcript.public["ring"])
    source, copy = transcript._store, BlockStore(None)
    for round_ in source.rounds():
        for kind in source.kinds(round_):
            if kind != "upload":
                for columns in source.read(round_, kind):
                    copy.append(round_, kind, columns)
                continue
            sent = concatenate_columns(list(source.read(round_, kind)))
            copy.append(
                round_, kind, _hidden(sent, clear, codec, int(transcript.public["n_items"]), rng)
            )
    protection = transcript.public["protection"]
    stated = protection["traits"]
    before = Traits(**{**stated, "denoisers": tuple(stated["denoisers"])})
    traits = asdict(RECORDS["masking"].traits.over(before))
    known = {**transcript.public, "protection": {**protection, "traits": traits}}
    return Transcript(copy, known)


def _hidden(
    sent: Columns,
    clear: frozenset[int],
    codec: FixedPoint,
    n_rows: int,
    rng: np.random.Generator,
) -> Columns:
    """Uploads in the layout of hidden ones: words of some clients, and of the others noise."""
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
