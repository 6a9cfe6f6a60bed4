"""Losslessness as a property: a protected run equals its plain twin, bit for bit.

A stack is lossless if every round ends as the same participants would have ended it without any
virtual row and without any routing: the same integer sums and counts at the server, the same bags,
the same public state, the same private tables. On the exact ring that is an equality; there is no
tolerance.
``compare_runs`` measures it, ``assert_lossless`` turns it into a test for any algorithm and stack
that follow the protocols of this package.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.arrays import FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.engines import CohortConfig, LocalEngine, Problem, vault_of
from secure_fedrec.errors import ConfigError, LosslessnessError
from secure_fedrec.properties.twin import plain_twin
from secure_fedrec.properties.watched import WatchedBags, watched
from secure_fedrec.protection.stack import Stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Fault, Meter, Wire

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
    ratings: RatingTable | None = None,
    problem: Callable[[], Problem] | None = None,
    streams: Streams,
    rounds: int,
    cohort: CohortConfig | None = None,
    faults: tuple[Fault, ...] = (),
) -> Comparison:
    """Run ``stack`` and its plain twin with the same participants and compare every round.

    Args:
        algorithm: makes a fresh algorithm; called once per run.
        stack: the protected stack.
        ratings: training ratings, for an algorithm that learns from such.
        problem: what any other algorithm learns from, in place of ratings; called once per run.
        streams: random streams shared by both runs.
        rounds: how many rounds to compare, at least 1.
        cohort: who is invited; participants are decided by ``stack`` and imposed on the twin.
        faults: put on the wire of the protected run.

    Raises:
        ConfigError: there is no round to compare, there are both ratings and a problem or neither,
            or the algorithm trains user vectors on virtual ratings, which no protection can make
            lossless.
        EncodingError: a row does not fit the ring, so there is no sum to compare.
        ProtocolError: a fault made the protected run refuse a round.
    """
    if rounds < 1:
        raise ConfigError("rounds", rounds, "must be at least 1; no round would be compared")
    model, fresh = algorithm(), _problems(ratings, problem)
    _refuse_training_on_virtual(model)
    learnt = fresh()
    protected = _Run(model, stack, learnt, streams, cohort=cohort, faults=faults)
    twin_stack = plain_twin(stack, n_items=learnt.n_rows, width=model.width)
    twin = _Run(
        algorithm(), twin_stack, fresh(), streams, participants=protected.engine.participants
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
    ratings: RatingTable | None = None,
    problem: Callable[[], Problem] | None = None,
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
        problem=problem,
        streams=streams,
        rounds=rounds,
        cohort=cohort,
        faults=faults,
    )
    if not outcome.holds:
        raise LosslessnessError(f"the protected run is not lossless: {outcome.first_difference}")


def _problems(
    ratings: RatingTable | None, problem: Callable[[], Problem] | None
) -> Callable[[], Problem]:
    if ratings is None and problem is not None:
        return problem
    if ratings is None or problem is not None:
        raise ConfigError("problem", None, "give ratings, or a problem in their place")
    return lambda: Problem(vault=vault_of(ratings), n_rows=ratings.n_items)


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
    """An engine whose collector and bags are watched."""

    def __init__(
        self,
        algorithm: Algorithm,
        stack: Stack,
        problem: Problem,
        streams: Streams,
        *,
        cohort: CohortConfig | None = None,
        participants: Callable[[int], IntArray] | None = None,
        faults: tuple[Fault, ...] = (),
    ) -> None:
        self._watched = watched(stack.collector)
        self._bags = None if stack.bags is None else WatchedBags(stack.bags)
        self.codec = stack.codec
        self.engine = LocalEngine(
            algorithm=algorithm,
            stack=replace(stack, collector=self._watched, bags=self._bags),
            vault=problem.vault,
            n_rows=problem.n_rows,
            streams=streams,
            wire=Wire(meter=Meter(problem.vault.n_clients), faults=faults),
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

    @property
    def bags(self) -> dict[str, FloatArray]:
        """The server's bags of the last round."""
        return {} if self._bags is None else self._bags.collected

    @property
    def _aggregate(self) -> Aggregate:
        if self._watched.aggregate is None:
            raise RuntimeError("no round has been completed")
        return self._watched.aggregate


def _first_difference(protected: _Run, twin: _Run) -> str | None:
    """Sums first: they say by how many ring units, the tables only that something differs."""
    differs = _different_integers("sum of item", protected.sums, twin.sums, "ring units")
    differs = differs or _different_integers("count of item", protected.counts, twin.counts)
    left, right = protected.engine.public, twin.engine.public
    differs = differs or _different_parts("bag {}, vector", protected.bags, twin.bags)
    differs = differs or _different_bits("public table, row", left.table, right.table)
    differs = differs or _different_parts("public {}, row", left.extras, right.extras)
    # Private tables, segments of any length end to end.
    private = [run.engine.vault.snapshot() for run in (protected, twin)]
    return differs or _different_parts("{}, row", *private)


def _different_parts(
    what: str, left: Mapping[str, FloatArray], right: Mapping[str, FloatArray]
) -> str | None:
    if left.keys() != right.keys():
        return f"{what.format('')}: {sorted(left)} instead of {sorted(right)}"
    found = (_different_bits(what.format(name), left[name], right[name]) for name in left)
    return next((difference for difference in found if difference is not None), None)


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
