"""Losslessness as a property: a protected run equals its plain twin, bit for bit.

A stack is lossless if every round ends as the same participants would have ended it without any
virtual row and without any routing: the same integer sums and counts at the server, the same public
table, the same private tables. On the exact ring that is an equality; there is no tolerance.
``compare_runs`` measures it, ``assert_lossless`` turns it into a test for any algorithm and stack
that follow the protocols of this package.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.engines.local import CohortConfig, LocalEngine, vault_of
from secure_fedrec.errors import ConfigError, LosslessnessError
from secure_fedrec.properties.twin import plain_twin
from secure_fedrec.protection.base import Collector, RoundSession, Stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Fault, Meter, Traffic, Wire

__all__ = ["Comparison", "assert_lossless", "compare_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Outcome of running a stack beside its plain twin.

    Args:
        rounds: rounds compared.
        uploads: client uploads behind them, over all rounds; 0 means that nobody took part and
            nothing was tested.
        holds: whether every sum, count and table was equal in every bit.
        first_difference: the first differing place, in words; None if there is none.
        largest_difference: largest absolute difference of the last compared public tables.
    """

    rounds: int
    uploads: int
    holds: bool
    first_difference: str | None
    largest_difference: float


def compare_runs(
    *,
    algorithm: Callable[[], Algorithm],
    stack: Stack,
    ratings: RatingTable,
    streams: Streams,
    rounds: int,
    cohort: CohortConfig | None = None,
    faults: tuple[Fault, ...] = (),
) -> Comparison:
    """Run ``stack`` and its plain twin with the same participants and compare every round.

    Args:
        algorithm: makes a fresh algorithm; called once per run.
        stack: the protected stack.
        ratings: training ratings.
        streams: random streams shared by both runs.
        rounds: how many rounds to compare, at least 1.
        cohort: who is invited; participants are decided by ``stack`` and imposed on the twin.
        faults: put on the wire of the protected run.

    Raises:
        ConfigError: there is no round to compare, or the algorithm trains user vectors on virtual
            ratings, which no protection can make lossless.
        EncodingError: a row does not fit the ring, so there is no sum to compare.
        ProtocolError: a fault made the protected run refuse a round.
    """
    if rounds < 1:
        raise ConfigError("rounds", rounds, "must be at least 1; no round would be compared")
    model = algorithm()
    _refuse_training_on_virtual(model)
    protected = _Run(model, stack, ratings, streams, cohort=cohort, faults=faults)
    twin_stack = plain_twin(stack, n_items=ratings.n_items, width=model.width)
    twin = _Run(
        algorithm(), twin_stack, ratings, streams, participants=protected.engine.participants
    )
    uploads = 0
    for round_ in range(1, rounds + 1):
        uploads += protected.engine.run_round().participants
        twin.engine.run_round()
        where = _first_difference(protected, twin)
        if where is not None:
            return Comparison(
                rounds=round_,
                uploads=uploads,
                holds=False,
                first_difference=f"round {round_}, {where}",
                largest_difference=_gap(protected, twin),
            )
    return Comparison(
        rounds=rounds, uploads=uploads, holds=True, first_difference=None, largest_difference=0.0
    )


def assert_lossless(
    *,
    algorithm: Callable[[], Algorithm],
    stack: Stack,
    ratings: RatingTable,
    streams: Streams,
    rounds: int,
    cohort: CohortConfig | None = None,
    faults: tuple[Fault, ...] = (),
) -> None:
    """Fail unless the protected run equals its plain twin in every bit of every round.

    Takes the arguments of ``compare_runs``. With the strategies of
    ``secure_fedrec.properties.strategies`` it is a property of all small federations at once:

        @given(federation=federations(width=2))
        def test_my_recommender_is_lossless(federation: Federation) -> None:
            assert_lossless(algorithm=lambda: MyRecommender(rank=2), **federation.arguments())

    Raises:
        LosslessnessError: the runs differ; names the first differing place.
        ConfigError, EncodingError, ProtocolError: see ``compare_runs``, which also tells whether
            anybody took part.
    """
    outcome = compare_runs(
        algorithm=algorithm,
        stack=stack,
        ratings=ratings,
        streams=streams,
        rounds=rounds,
        cohort=cohort,
        faults=faults,
    )
    if not outcome.holds:
        raise LosslessnessError(f"the protected run is not lossless: {outcome.first_difference}")


def _refuse_training_on_virtual(algorithm: Algorithm) -> None:
    update = algorithm.public_knowledge().get("user_update")
    if update == "rated+virtual":
        raise ConfigError(
            "algorithm.user_update",
            update,
            "user vectors trained on virtual ratings cannot be lossless under any protection",
            ("rated",),
        )


class _Run:
    """An engine whose collector is watched."""

    def __init__(
        self,
        algorithm: Algorithm,
        stack: Stack,
        ratings: RatingTable,
        streams: Streams,
        *,
        cohort: CohortConfig | None = None,
        participants: Callable[[int], IntArray] | None = None,
        faults: tuple[Fault, ...] = (),
    ) -> None:
        nothing = ratings.subset(np.zeros(len(ratings), dtype=bool))
        self._watched = _Watched(stack.collector)
        self.codec = stack.codec
        self.engine = LocalEngine(
            algorithm=algorithm,
            stack=replace(stack, collector=self._watched),
            vault=vault_of(ratings),
            test=nothing,
            streams=streams,
            wire=Wire(meter=Meter(ratings.n_clients), faults=faults),
            cohort=cohort,
            participants=participants,
        )

    @property
    def sums(self) -> IntArray:
        """The server's sums of the last round, in ring units around 0."""
        return self.codec.to_integers(self._aggregate.ring)

    @property
    def counts(self) -> IntArray:
        """The server's counts of the last round."""
        return self._aggregate.counts

    def private(self) -> dict[str, FloatArray]:
        """All private tables."""
        vault = self.engine.vault
        return {name: vault.read(name, np.arange(vault.n_clients)) for name in vault.names()}

    @property
    def _aggregate(self) -> Aggregate:
        if self._watched.aggregate is None:
            raise RuntimeError("no round has been completed")
        return self._watched.aggregate


class _Watched:
    """A collector that remembers the aggregate it handed to the server."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.codec = collector.codec
        self.n_clients = collector.n_clients
        self.model_hidden_from = collector.model_hidden_from
        self.aggregate: Aggregate | None = None

    def participants(self, cohort: IntArray) -> IntArray:
        return self._collector.participants(cohort)

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "_WatchedSession":
        session = self._collector.open(round_=round_, participants=participants, wire=wire)
        return _WatchedSession(self, session)

    def traffic(self, rows: IntArray, virtual: IntArray) -> tuple[Traffic, ...]:
        return self._collector.traffic(rows, virtual)

    def describe(self) -> tuple[str, dict[str, Any]] | None:
        return self._collector.describe()


class _WatchedSession:
    def __init__(self, watched: _Watched, session: RoundSession) -> None:
        self._watched = watched
        self._session = session

    @property
    def order(self) -> IntArray:
        return self._session.order

    def exempt(self, clients: IntArray) -> BoolArray:
        return self._session.exempt(clients)

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        self._session.submit(clients, block, virtual)

    def close(self) -> Aggregate:
        self._watched.aggregate = self._session.close()
        return self._watched.aggregate


def _first_difference(protected: _Run, twin: _Run) -> str | None:
    """Sums first: they say by how many ring units, the tables only that something differs."""
    differs = _different_integers("sum of item", protected.sums, twin.sums, "ring units")
    differs = differs or _different_integers("count of item", protected.counts, twin.counts)
    left, right = protected.engine.public.table, twin.engine.public.table
    differs = differs or _different_bits("public table, row", left, right)
    theirs = twin.private()
    for name, values in protected.private().items():
        differs = differs or _different_bits(f"{name}, row", values, theirs[name])
    return differs


def _different_integers(what: str, left: IntArray, right: IntArray, unit: str = "") -> str | None:
    place = _first_place(left, right)
    if place is None or isinstance(place, str):
        return place if place is None else f"{what}: {place}"
    # Python integers: the difference of two 64-bit words may need 65 bits.
    steps = f"{int(left[place]) - int(right[place]):+d} {unit}".rstrip()
    return f"{what} {_in_words(place)}: off by {steps} (plain: {int(right[place])})"


def _different_bits(what: str, left: FloatArray, right: FloatArray) -> str | None:
    # Compared as bit patterns: NaN equals itself and -0.0 differs from 0.0.
    place = _first_place(left.view(np.uint64), right.view(np.uint64))
    if place is None or isinstance(place, str):
        return place if place is None else f"{what}: {place}"
    return f"{what} {_in_words(place)}: {left[place]!r} instead of {right[place]!r}"


def _first_place(left: Any, right: Any) -> tuple[int, ...] | str | None:
    """Index of the first difference, None without one, words if the shapes differ."""
    if left.shape != right.shape:
        return f"shape {left.shape} instead of {right.shape}"
    different = np.argwhere(left != right)
    return tuple(different[0].tolist()) if len(different) else None


def _in_words(place: tuple[int, ...]) -> str:
    row, *rest = place
    return f"{row}" + "".join(f", factor {number}" for number in rest)


def _gap(protected: _Run, twin: _Run) -> float:
    left, right = protected.engine.public.table, twin.engine.public.table
    if left.shape != right.shape or not left.size:
        return float("nan")
    with np.errstate(invalid="ignore"):  # the difference of two infinities is NaN
        return float(np.max(np.abs(left - right)))
