"""Losslessness as a property: a protected run equals its plain twin, bit for bit.

A stack is lossless if the public table after every round is the one that the same participants
would have produced without any virtual row and without any routing. On the exact ring that is an
equality of integers; there is no tolerance. ``compare_runs`` measures it, ``assert_lossless`` turns
it into a test for any algorithm and stack that follow the protocols of this package.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.arrays import FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.engines.local import CohortConfig, LocalEngine, vault_of
from secure_fedrec.errors import ConfigError, LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base import Stack
from secure_fedrec.protection.plain import DirectSum
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Fault, Meter, Wire

__all__ = ["Comparison", "assert_lossless", "compare_runs", "plain_twin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Outcome of running a stack beside its plain twin.

    Args:
        rounds: rounds compared.
        holds: whether every public table was equal in every bit.
        first_difference: the first differing place, in words; None if there is none.
        largest_difference: largest absolute difference of the last compared tables.
    """

    rounds: int
    holds: bool
    first_difference: str | None
    largest_difference: float


def plain_twin(stack: Stack, *, n_items: int, width: int) -> Stack:
    """The stack without routing and without virtual rows: what the server should end up with."""
    cloak = None if stack.cloak is None else stack.cloak.without_virtual()
    direct = DirectSum(
        n_clients=stack.n_clients, n_items=n_items, width=width, codec=stack.codec
    )
    return Stack(codec=stack.codec, cloak=cloak, collector=direct, n_clients=stack.n_clients)


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
        rounds: how many rounds to compare.
        cohort: who is invited; participants are decided by ``stack`` and imposed on the twin.
        faults: put on the wire of the protected run.

    Raises:
        ConfigError: the algorithm trains user vectors on virtual ratings, which no protection can
            make lossless.
        ProtocolError: a fault made the protected run refuse a round.
    """
    _refuse_training_on_virtual(algorithm())
    protected = _engine(algorithm(), stack, ratings, streams, cohort=cohort, faults=faults)
    twin_stack = plain_twin(stack, n_items=ratings.n_items, width=protected.algorithm.width)
    twin = _engine(
        algorithm(), twin_stack, ratings, streams, participants=protected.participants
    )
    for round_ in range(1, rounds + 1):
        protected.run_round()
        twin.run_round()
        where = _first_difference(protected.public.table, twin.public.table, stack.codec)
        if where is not None:
            gap = float(np.max(np.abs(protected.public.table - twin.public.table)))
            return Comparison(
                rounds=round_,
                holds=False,
                first_difference=f"round {round_}, {where}",
                largest_difference=gap,
            )
    return Comparison(rounds=rounds, holds=True, first_difference=None, largest_difference=0.0)


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

    Takes the arguments of ``compare_runs``.

    Raises:
        LosslessnessError: the runs differ; names the first differing place.
        ConfigError: see ``compare_runs``.
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


def _engine(
    algorithm: Algorithm,
    stack: Stack,
    ratings: RatingTable,
    streams: Streams,
    *,
    cohort: CohortConfig | None = None,
    participants: Callable[[int], IntArray] | None = None,
    faults: tuple[Fault, ...] = (),
) -> LocalEngine:
    nothing = ratings.subset(np.zeros(len(ratings.ratings), dtype=bool))
    return LocalEngine(
        algorithm=algorithm,
        stack=stack,
        vault=vault_of(ratings),
        test=nothing,
        streams=streams,
        wire=Wire(meter=Meter(ratings.n_clients), faults=faults),
        cohort=cohort,
        participants=participants,
    )


def _first_difference(left: FloatArray, right: FloatArray, codec: FixedPoint) -> str | None:
    # Compared as bit patterns: NaN equals itself and -0.0 differs from 0.0.
    different = np.argwhere(left.view(np.uint64) != right.view(np.uint64))
    if not len(different):
        return None
    item, factor = different[0].tolist()
    steps = (left[item, factor] - right[item, factor]) / codec.resolution
    return f"item {item}, factor {factor}: differs by {steps:.6g} ring units"
