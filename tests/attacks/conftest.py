"""Small recorded federations, trained once a session, and doctored copies of their transcripts."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from attacks import GroundTruth
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data import SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    RECORDS,
    Denoisers,
    DenoisersConfig,
    DirectSum,
    RandomizedResponse,
    RandomizedResponseConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.streams import Streams
from secure_fedrec.traits import BARE
from secure_fedrec.wire import Adversary, BlockStore, RecordingPolicy, Transcript
from secure_fedrec.wire.spool import Columns, concatenate_columns

Edit = Callable[[int, str, Columns], Columns | None]

_PLANTED = SyntheticConfig(clients=60, items=150, mean_ratings=15.0, seed=20210202)
_STEPS = ("model", "upload", "noise", "denoise", "aggregate", "result")


def train(
    *,
    data: SyntheticConfig = _PLANTED,
    algorithm: PMFConfig = PMFConfig.printed(rank=6, rounds=6),  # noqa: B008 (frozen)
    cloak: VirtualRatingsConfig | RandomizedResponseConfig | None = None,
    denoisers: int = 0,
    codec: FixedPoint = FixedPoint(),  # noqa: B008 (frozen)
    rounds: int = 1,
    payload_rounds: tuple[int, ...] = (1,),
    payload_senders: tuple[int, ...] | None = None,
    cohort: CohortConfig | None = None,
    seed: int = 7,
    batch_bytes: int | None = None,
) -> tuple[RecordedRun, GroundTruth]:
    """Train and record one federation in memory."""
    ratings, test = k_fold(generate(data), folds=5, fold=0, seed=1)
    streams = Streams.from_seed(seed)
    pmf = PMF(algorithm)
    shape = {"n_clients": ratings.n_clients, "n_items": ratings.n_items, "width": pmf.width}
    bound: tuple[int, ...] = ()
    collector: DirectSum | Denoisers = DirectSum(**shape, codec=codec)
    if denoisers:
        config = DenoisersConfig(count=denoisers)
        collector = Denoisers(config, **shape, codec=codec, streams=streams)
        bound = tuple(collector.binding.denoisers.tolist())
    cover: VirtualRatings | RandomizedResponse | None = None
    if isinstance(cloak, VirtualRatingsConfig):
        cover = VirtualRatings(cloak, n_items=ratings.n_items, streams=streams)
    elif cloak is not None:
        cover = RandomizedResponse(cloak, n_items=ratings.n_items, streams=streams)
    run = RecordedRun(
        algorithm=pmf,
        stack=Stack(codec=codec, cloak=cover, collector=collector, n_clients=ratings.n_clients),
        problem=rating_problem(pmf, ratings, test),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds, payload_senders=payload_senders),
        cohort=cohort,
    )
    if batch_bytes is not None:
        run.engine._batch_bytes = batch_bytes
    for _ in range(rounds):
        run.run_round()
    return run, GroundTruth(train=ratings, recorded=run.truth, denoiser_clients=bound)


def rewrite(transcript: Transcript, edit: Edit) -> Transcript:
    """Copy a transcript block by block; ``edit`` sees (round, step, copied columns)."""
    source, copy = transcript._store, BlockStore(None)
    for round_ in source.rounds():
        for name in _STEPS:
            for columns in source.read(round_, name):
                copied = {key: column.copy() for key, column in columns.items()}
                edited = edit(round_, name, copied)
                if edited is not None:
                    copy.append(round_, name, edited)
    return Transcript(copy, transcript.public)


def clean(run: RecordedRun, truth: GroundTruth) -> Transcript:
    """An ideal removal of virtual rows: the aggregate is the exact sum of the real ones."""

    def real_sums(round_: int, name: str, columns: Columns) -> Columns:
        if name != "aggregate":
            return columns
        uploads, real = rows_of(run, truth, round_)
        columns["counts"], sums = totals_of(uploads, real, run)
        if "values" in columns:
            columns["values"] = sums
        return columns

    return relabel(rewrite(run.transcript, real_sums), virtual_rows="taken-out")


def sum_in_shares(run: RecordedRun, truth: GroundTruth, *, denoisers: int = 3) -> Transcript:
    """Denoisers that release sums of shares, beside rows in the open (a run without denoisers).

    Each holds an additive share of every virtual row, and sends the server the sum of its shares
    and their number, item by item. Added up they are the sums of the virtual rows, which the server
    takes off the sum of all rows.
    """
    cleaned, rng, codec = clean(run, truth), np.random.default_rng(0), run.engine.stack.codec
    for round_ in run.transcript._store.rounds():
        uploads, real = rows_of(run, truth, round_)
        counts, sums = totals_of(uploads, ~real, run)
        items = np.flatnonzero(counts)
        shares = rng.integers(0, 2**64, (denoisers, *sums[items].shape), np.uint64)
        shares = shares.astype(codec.dtype)
        shares[-1] = sums[items] - shares[:-1].sum(axis=0, dtype=codec.dtype)
        columns = {
            "senders": np.arange(denoisers),
            "receivers": np.zeros(denoisers, dtype=np.int64),
            "sizes": np.zeros(denoisers, dtype=np.int64),
            "lengths": np.full(denoisers, len(items)),
            "rows": np.tile(items.astype(uploads["rows"].dtype), denoisers),
            "counts": np.tile(counts[items], denoisers),
            "values": codec.reduce(np.concatenate(shares)),
        }
        cleaned._store.append(round_, "denoise", columns)
    return relabel(cleaned, virtual_rows="taken-out", denoising="shares")


def rows_of(run: RecordedRun, truth: GroundTruth, round_: int) -> tuple[Columns, BoolArray]:
    """All uploads of a round, and which of their rows are of rated items."""
    rated = np.zeros((truth.ratings.n_clients, truth.ratings.n_items), dtype=bool)
    rated[truth.ratings.clients, truth.ratings.items] = True
    uploads = concatenate_columns(list(run.transcript._store.read(round_, "upload")))
    return uploads, rated[np.repeat(uploads["senders"], uploads["lengths"]), uploads["rows"]]


def totals_of(uploads: Columns, which: BoolArray, run: RecordedRun) -> tuple[IntArray, Any]:
    """How many of these rows there are by item, and their sums, if payloads are kept."""
    rows, n_items = uploads["rows"][which], int(run.transcript.public["n_items"])
    counts = np.bincount(rows, minlength=n_items).astype(np.int64)
    if "values" not in uploads:
        return counts, None
    sums = np.zeros((n_items, uploads["values"].shape[1]), dtype=uploads["values"].dtype)
    np.add.at(sums, rows, uploads["values"][which])
    return counts, run.engine.stack.codec.reduce(sums)


def hide(transcript: Transcript, layer: str, *, seed: int = 0) -> Transcript:
    """Uploads as a hiding layer leaves them: random words, in a public layout where it is dense."""
    rng = np.random.default_rng(seed)
    n_items = int(transcript.public["n_items"])

    def randomise(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name != "upload":
            return columns
        if layer != "shared-upload":
            senders = len(columns["senders"])
            columns["lengths"] = np.full(senders, n_items)
            columns["rows"] = np.tile(np.arange(n_items, dtype=columns["rows"].dtype), senders)
        if "values" in columns:
            shape, words = (len(columns["rows"]), columns["values"].shape[1]), np.uint64
            columns["values"] = rng.integers(0, 2**64, size=shape, dtype=words)
            columns["counts"] = rng.integers(-(2**63), 2**63 - 1, size=shape[0], dtype=np.int64)
        return columns

    return relabel(rewrite(transcript, randomise), layer)


def relabel(transcript: Transcript, *layers: str, **stated: Any) -> Transcript:
    """The same recording under the traits of other layers; a cloak stays where it can."""
    old = transcript.public["protection"]
    cloaks = [name for name in old["layers"] if RECORDS[name].role == "cloak"]
    if any("cloak" in RECORDS[name].excludes for name in layers):
        cloaks = []
    traits = replace(BARE, ratio=old["traits"]["ratio"] if cloaks else None)
    for name in (*cloaks, *layers):
        traits = RECORDS[name].traits.over(traits)
    protection = {**old, "traits": {**asdict(traits), **stated}}
    return Transcript(transcript._store, {**transcript.public, "protection": protection})


@pytest.fixture(scope="session")
def cleaned() -> Callable[[RecordedRun, GroundTruth], Transcript]:
    """Takes the virtual rows out of the sums of a recorded run."""
    return clean


@pytest.fixture(scope="session")
def in_shares() -> Callable[..., Transcript]:
    """Gives a recorded run denoisers that release sums of shares."""
    return sum_in_shares


@pytest.fixture(scope="session")
def hidden() -> Callable[..., Transcript]:
    """Hides the uploads of a transcript."""
    return hide


@pytest.fixture(scope="session")
def relabelled() -> Callable[..., Transcript]:
    """Changes the public settings of a transcript."""
    return relabel


@pytest.fixture(scope="session")
def federate() -> Callable[..., tuple[RecordedRun, GroundTruth]]:
    """Trains a federation on first use; equal settings share one."""
    return cache(train)


@pytest.fixture(scope="session")
def rewritten() -> Callable[[Transcript, Edit], Transcript]:
    """Copies a transcript with some blocks changed or left out."""
    return rewrite


@pytest.fixture(scope="session")
def server() -> Adversary:
    return Adversary(name="server", corrupt=frozenset({"server"}))


@pytest.fixture(scope="session")
def coalition() -> Adversary:
    """The server with every denoiser."""
    return Adversary(name="coalition", corrupt=frozenset({"server", "denoisers"}))
