"""Losslessness as a property: a protected run ends in the bits of plain sums.

A stack is lossless if every round ends as if the invited clients had sent the algorithm's own
uploads, nothing more and nothing less, to be added up: the same integer sums and counts at the
server, the same bags, the same public state, the same private tables. On the exact ring that is an
equality; there is no tolerance.

The reference is computed without the stack (``plain_run``): every client separately, encoded by the
package's own ring. ``compare_runs`` measures, ``assert_lossless`` turns it into a test for any
algorithm and stack that follow the protocols of this package.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.blocks import BlockLayout
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.engines import CohortConfig, LocalEngine, Problem, blocks_of, vault_of
from secure_fedrec.errors import ConfigError, LosslessnessError
from secure_fedrec.properties.asserting import asserting
from secure_fedrec.properties.lossless.comparison import Comparison, Scope
from secure_fedrec.properties.lossless.control import Settled, fault_of_algorithm
from secure_fedrec.properties.lossless.differences import (
    different_bits,
    different_integers,
    different_parts,
)
from secure_fedrec.properties.lossless.explaining import explain_bags, explain_sums
from secure_fedrec.properties.lossless.explaining_rows import explain_rows
from secure_fedrec.properties.lossless.explanation import Explanation
from secure_fedrec.properties.lossless.plain_run import Plain, PlainRun, Rows, Vectors, own_ring
from secure_fedrec.properties.lossless.row_differences import (
    all_exempt,
    foreign_row,
    other_clients,
    silent_row,
    unlike_record,
    values_differ,
    virtual_rows_wrong,
)
from secure_fedrec.properties.lossless.watched import watched
from secure_fedrec.protection.base.stack import Stack
from secure_fedrec.streams import Streams
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import Aggregate
from secure_fedrec.wire import Fault, Meter, Wire


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
    scope: Scope | None = None,
    on_round: Callable[[], object] = lambda: None,
) -> Comparison:
    """Run ``stack`` beside plain sums over all invited clients, and compare every round.

    The stack runs once, in one process, and no round is requested twice. If the runs differ, the
    plain run is repeated: as it was, and in the batches of the protected run. If it does not repeat
    itself, the difference is attributed to the algorithm.

    Args:
        algorithm: makes a fresh algorithm; called once per run.
        stack: the protected stack.
        ratings: training ratings, for an algorithm that learns from ratings.
        problem: for any other algorithm, instead of ratings, what it learns from; called once per
            run.
        streams: random streams shared by all runs.
        rounds: how many rounds to compare, at least 1.
        cohort: the invited clients; the sum must include all of them.
        faults: applied to messages on the wire of the protected run.
        scope: what the protocol leaves out by its own rules; None for nothing.
        on_round: called after every round that was compared.

    Raises:
        ConfigError: there is no round to compare, both or neither of ratings and problem are given,
            the scope names clients that were not invited, or the algorithm trains user vectors on
            virtual ratings, which no protection can make lossless.
        EncodingError: a row does not fit the ring, so there is no sum to compare.
        ProtocolError: the stack refused a round.
    """
    if rounds < 1:
        raise ConfigError(
            "rounds", rounds, "must be at least 1, otherwise no round would be compared"
        )
    fresh, ring = _problems(ratings, problem), own_ring(stack.codec)

    def start() -> PlainRun:
        model = algorithm()
        _refuse_training_on_virtual(model)
        return PlainRun(model, fresh(), streams, ring)

    # The plain run comes first: if an algorithm's first call differs from later ones, the control
    # shows it.
    plain = start()
    protected = _Protected(algorithm(), stack, fresh(), streams, cohort=cohort, faults=faults)
    scope = Scope() if scope is None else scope
    # Claims of a watched system are not known.
    beside = _Beside(plain, protected, scope, stack.traits)
    given = None if ratings is None else ratings.fingerprint()
    for _ in range(rounds):
        where = beside.round()
        on_round()
        if ratings is not None and ratings.fingerprint() != given:
            where = f"round {len(beside.settled)}, the ratings themselves were overwritten"
            return beside.outcome(where, "the stack")
        if where is not None:
            reason = None
            if not beside.somebody_else:
                reason = fault_of_algorithm(start, beside.settled, covered=stack.cloak is not None)
            if reason is not None:
                return beside.outcome(f"{where}; {reason}", "the algorithm")
            return beside.outcome(where, "the stack", beside.explanation)
    return beside.outcome(None, None)


@asserting(compare_runs)
def assert_lossless(outcome: Comparison) -> Comparison:
    """Fail unless the protected run equals plain sums in every bit of every round.

    Takes the arguments of ``compare_runs``. With the strategies of
    ``secure_fedrec.properties.strategies`` it is a property of all small federations at once:

        @given(federation=federations(width=2))
        def test_my_recommender_is_lossless(federation: Federation) -> None:
            assert_lossless(algorithm=lambda: MyRecommender(rank=2), **federation.arguments())

    Returns:
        The comparison; ``verdict`` says what the claim is relative to.

    Raises:
        LosslessnessError: the runs differ (the message names the first differing place), or nothing
            was compared, because no client took part or every upload was empty or zero.
        ConfigError, EncodingError, ProtocolError: see ``compare_runs``.
    """
    if not outcome.holds:
        raise LosslessnessError(str(outcome))
    return outcome


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


class _Protected(LocalEngine):
    """An engine that stores what its clients sent and what its server received.

    Attributes:
        watched: the collector, with what it was given in the last round.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        stack: Stack,
        problem: Problem,
        streams: Streams,
        *,
        cohort: CohortConfig | None,
        faults: tuple[Fault, ...],
    ) -> None:
        self.watched = watched(stack.collector)
        self._table = BlockLayout(blocks_of(algorithm, problem))
        self._aggregate: Aggregate | None = None
        super().__init__(
            algorithm=algorithm,
            stack=replace(stack, collector=self.watched),
            vault=problem.vault,
            n_rows=problem.n_rows,
            streams=streams,
            wire=Wire(meter=Meter(problem.vault.n_clients), faults=faults),
            cohort=cohort,
        )
        # Several clients per batch, however large, since the plain run has one client per batch.
        self._batch_bytes = max(self._batch_bytes, 3 * int(self._costs.max(initial=0)))

    def _batches(self, order: IntArray) -> Iterator[IntArray]:
        """At least two batches per round, cut at a different place in every round.

        With three clients or more, one batch holds several; two clients form one batch in every
        other round.
        """
        round_, places = self.public.round, max(1, len(order) - 1)
        cut = 0 if len(order) == 2 and round_ % 2 else 1 + (len(order) // 2 + round_) % places
        for part in (order[:cut], order[cut:]):
            yield from super()._batches(part)

    def invited(self) -> IntArray:
        """Clients invited to the next round."""
        round_, n_clients = self.public.round + 1, self.vault.n_clients
        return self._cohort.draw(round_, n_clients, self._streams)

    @property
    def aggregate(self) -> Aggregate:
        """What the server got in the last round."""
        if self._aggregate is None:
            raise RuntimeError("no round has been completed")
        return self._aggregate

    def _collect(
        self, round_: int, participants: IntArray
    ) -> tuple[Aggregate, dict[str, FloatArray]]:
        aggregate, own = super()._collect(round_, participants)
        due = (self._table.rows, self._table.width)
        if aggregate.ring.shape != due:
            raise ConfigError("collector", aggregate.ring.shape, f"a sum here has {due}")
        # The server may work in the arrays that it is handed.
        self._aggregate = replace(
            aggregate,
            ring=aggregate.ring.copy(),
            counts=aggregate.counts.copy(),
            bags={name: bag.copy() for name, bag in aggregate.bags.items()},
        )
        return aggregate, own


class _Beside:
    """A plain and a protected run, round by round."""

    def __init__(
        self, plain: PlainRun, protected: _Protected, scope: Scope, traits: Traits | None
    ) -> None:
        self._plain = plain
        self._protected = protected
        self._scope = scope
        self._traits = traits
        self._covered = protected.stack.cloak is not None
        self.settled: list[Settled] = []
        self.somebody_else = False
        self.explanation: Explanation | None = None
        self._numbers: Counter[str] = Counter()
        self._summed, self._ring = plain.rows, own_ring(protected.stack.codec)

    def round(self) -> str | None:
        """Run both and say where they differ."""
        plain, protected = self._plain, self._protected
        before, vectors = self._summed, plain.vectors
        invited = protected.invited()
        due = self._scope.due(invited)
        one_by_one = np.split(due, np.arange(1, len(due)))[: len(due)]
        plain.compute(one_by_one)
        protected.run_round()
        given, width = protected.watched.given, plain.layout.width
        real, fakes = (given.rows(width, virtual=virtual) for virtual in (False, True))
        reported = np.isin(plain.rows.keys(plain.n_rows), real.keys(plain.n_rows))
        rows = plain.rows
        self._summed = rows.pick(reported)
        empty = {name: bag[:0] for name, bag in protected.aggregate.bags.items()}
        sums = plain.finish(reported, empty)
        self.settled.append(
            Settled(
                due=one_by_one,
                batches=given.batches,
                reported=reported,
                empty=empty,
                digest=plain.digest(),
            )
        )
        self._numbers.update(
            invited=len(invited),
            taken=len(given.clients),
            exempt=len(given.exempt),
            rows=len(reported),
            unreported=int(np.count_nonzero(~reported)),
            virtual_rows=len(fakes),
            compared=sums.nonzero,
        )
        where = other_clients(given.clients, due)
        if where is None and self._covered:
            where = all_exempt(given.clients, given.exempt)
        self.somebody_else = where is not None
        where = where or self._rows_differ(real, fakes, rows, reported, before)
        where = where or self._sums_differ(sums, before, vectors, fakes)
        where = where or self._bags_differ(sums, vectors)
        where = where or self._ends_differ()
        return None if where is None else f"round {len(self.settled)}, {where}"

    def outcome(
        self, where: str | None, blames: str | None, explanation: Explanation | None = None
    ) -> Comparison:
        """The result so far."""
        holds = where is None and self._numbers["compared"] > 0
        return Comparison(
            rounds=len(self.settled),
            holds=holds,
            first_difference=where if explanation is None else f"{where}; {explanation}",
            blames=blames,
            largest_difference=0.0 if where is None else self._gap(),
            explanation=explanation,
            **self._numbers,
        )

    def _rows_differ(
        self, real: Rows, fakes: Rows, plain: Rows, reported: BoolArray, before: Rows
    ) -> str | None:
        """For every client, the real rows that it sends must equal its plain upload."""
        n_rows, given = self._plain.n_rows, self._protected.watched.given
        silent = plain.pick(~reported)
        differs = (
            foreign_row(real, plain, n_rows)
            or virtual_rows_wrong(fakes, silent, given.exempt, n_rows)
            or silent_row(silent, given.exempt, self._scope)
        )
        if differs is None and (differs := values_differ(real, self._summed)) is not None:
            ring = self._ring
            # If the sum is not that of the rows sent, more than the rows differs.
            if self._added_up(real):
                self.explanation = explain_rows(real, self._summed, before=before, ring=ring)
        return differs or unlike_record(
            self._traits,
            covered=given.clients[: None if self._covered else 0],
            exempt=given.exempt,
            virtual=len(fakes),
            silent=len(silent),
        )

    def _added_up(self, rows: Rows) -> bool:
        """Whether the server got the right sums and counts of rows."""
        aggregate = self._protected.aggregate
        sums, counts = np.zeros_like(aggregate.ring), np.zeros_like(aggregate.counts)
        np.add.at(sums, rows.rows, self._ring.from_integers(rows.values))
        np.add.at(counts, rows.rows, rows.counts)
        off = self._ring.reduce(aggregate.ring - sums)
        return not off.any() and np.array_equal(aggregate.counts, counts)

    def _sums_differ(self, plain: Plain, before: Rows, vectors: Vectors, fakes: Rows) -> str | None:
        """Compare sums before tables: only sums show by how many ring units they differ."""
        aggregate, ring = self._protected.aggregate, self._ring
        sums = ring.to_integers(aggregate.ring)
        differs = different_integers("sum of item", sums, plain.sums, "ring units")
        differs = differs or different_integers("count of item", aggregate.counts, plain.counts)
        if differs is not None:
            found = explain_sums(
                aggregate, plain, now=self._summed, before=before, virtual=fakes, ring=ring
            )
            if found is not None and self._bags_differ(plain, vectors) is not None:
                found = found.agreeing(self.explanation)
            self.explanation = found
        return differs

    def _bags_differ(self, plain: Plain, before: Vectors) -> str | None:
        bags, now = self._protected.aggregate.bags, self._plain.vectors
        differs = different_parts("bag {}, vector", bags, plain.bags)
        if differs is not None:
            self.explanation = explain_bags(bags, plain.bags, now=now, before=before)
        return differs

    def _ends_differ(self) -> str | None:
        left, right = self._protected.public, self._plain.public
        differs = different_bits("public table, row", left.table, right.table)
        differs = differs or different_parts("public {}, row", left.extras, right.extras)
        # Private tables: segments of any length, one after the other.
        private = [run.vault.snapshot() for run in (self._protected, self._plain)]
        return differs or different_parts("{}, row", *private)

    def _gap(self) -> float:
        left, right = self._protected.public.table, self._plain.public.table
        if left.shape != right.shape or not left.size:
            return float("nan")
        with np.errstate(invalid="ignore"):  # the difference of two infinities is NaN
            return float(np.max(np.abs(left - right)))
