"""Small recorded federations, trained once a session, and doctored copies of their transcripts."""

from collections.abc import Callable
from functools import cache

import pytest

from attacks import GroundTruth
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun
from secure_fedrec.engines.local import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
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
from secure_fedrec.wire import Adversary, BlockStore, RecordingPolicy, Transcript
from secure_fedrec.wire.recording import Columns

Edit = Callable[[int, str, Columns], Columns | None]

_PLANTED = SyntheticConfig(clients=60, items=150, mean_ratings=15.0, seed=20210202)
_STEPS = ("model", "upload", "noise", "denoise", "aggregate")


def train(
    *,
    data: SyntheticConfig = _PLANTED,
    algorithm: PMFConfig = PMFConfig(rank=6, rounds=6),  # noqa: B008 (frozen)
    cloak: VirtualRatingsConfig | RandomizedResponseConfig | None = None,
    denoisers: int = 0,
    codec: FixedPoint = FixedPoint(),  # noqa: B008 (frozen)
    rounds: int = 1,
    payload_rounds: tuple[int, ...] = (1,),
    payload_senders: tuple[int, ...] | None = None,
    cohort: CohortConfig | None = None,
    seed: int = 7,
    batch_rows: int | None = None,
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
        train=ratings,
        test=test,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds, payload_senders=payload_senders),
        cohort=cohort,
    )
    if batch_rows is not None:
        run.engine._batch_rows = batch_rows
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
