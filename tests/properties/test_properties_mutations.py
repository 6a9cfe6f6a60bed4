"""Broken protocols must be caught: each mutation is run beside the sound collector.

A mutant notes what it spoiled (``damage``). Over all small federations, ``assert_lossless`` must
fail exactly where there is damage, and pass where the mutant found nothing to break. A mutant that
does no harm would fail these tests, and so would a check that misses one.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import secure_fedrec.algorithms.pmf as pmf_module
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import CohortConfig
from secure_fedrec.errors import ConfigError, LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import Strike, assert_lossless
from secure_fedrec.properties.strategies import Federation, faults, federations
from secure_fedrec.protection import (
    Denoisers,
    DenoisersConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.denoisers.embedded import DenoisingSession
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Alter, Drop, Step, Wire

PROFILE = settings.get_profile("properties")
CONFIG = PMFConfig.printed(rank=2, learning_rate=0.1, init_scale=0.5)


def algorithm() -> PMF:
    return PMF(CONFIG)


class Mutant(DenoisingSession):
    """A round of denoisers with one mistake; ``damage`` holds what it changed per item."""

    def __init__(
        self, collector: Denoisers, round_: int, participants: IntArray, wire: Wire
    ) -> None:
        super().__init__(collector, round_, participants, wire)
        self.is_denoiser = collector.binding.is_denoiser
        self.group = collector.binding.group
        self.own: set[tuple[int, int]] = set()  # (group, item) rated by a denoiser
        shape = (collector.n_items, collector.width + 1)
        self.damage = np.zeros(shape, dtype=np.uint64)  # sums and, in the last column, counts

    def spoil(self, rows: RowBlock, sign: int, *, values: bool = True) -> None:
        """Note that rows were added to (1) or taken off (-1) the damage."""
        assert rows.values is not None
        amounts = np.ones((len(rows.rows), self.damage.shape[1]), dtype=np.uint64)
        amounts[:, :-1] = rows.values if values else 0
        np.add.at(self.damage, rows.rows, amounts * np.uint64(sign % 2**64))


class LeavesOneRow(Mutant):
    """One virtual row never reaches its denoiser."""

    def _send_noise(self, clients: IntArray, block: RowBlock) -> None:
        keep = np.ones(len(block.rows), dtype=bool)
        keep[-1:] = False
        self.spoil(rows_of(block, ~keep), 1)
        super()._send_noise(clients, rows_of(block, keep))


class ForgetsItsOwnRows(Mutant):
    """Denoisers send the sums of what they collected and not their own rows."""

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        own = np.repeat(self.is_denoiser[clients], block.lengths)
        self.spoil(rows_of(block, own), -1)
        super().submit(clients, rows_of(block, ~own), virtual[~own])


class PrintedDivisor(Mutant):
    """The count of FedRec++ as printed: not reduced by the denoiser's own ratings."""

    def submit(self, clients: IntArray, block: RowBlock, virtual: BoolArray) -> None:
        own = np.repeat(self.is_denoiser[clients], block.lengths)
        groups = np.repeat(self.group[clients], block.lengths)
        self.own |= set(zip(groups[own].tolist(), block.rows[own].tolist(), strict=True))
        self.spoil(rows_of(block, own), -1, values=False)
        super().submit(clients, block, virtual)

    def _send_sums(self, finished: tuple[IntArray, RowBlock] | None) -> None:
        if finished is not None:
            groups, block = finished
            cells = zip(np.repeat(groups, block.lengths).tolist(), block.rows.tolist(), strict=True)
            mine = np.array([cell in self.own for cell in cells], dtype=np.int64)
            assert block.counts is not None
            finished = (groups, replace(block, counts=block.counts + mine))
        super()._send_sums(finished)


class EncodesTwice(Mutant):
    """Noise rows pass through float32 and are encoded again for the denoiser."""

    def _send_noise(self, clients: IntArray, block: RowBlock) -> None:
        codec = self.collector.codec
        assert block.values is not None
        single = codec.decode(block.values).astype(np.float32).astype(np.float64)
        again = replace(block, values=codec.encode(np.clip(single, -codec.clip, codec.clip)))
        self.spoil(block, 1)
        self.spoil(again, -1)
        super()._send_noise(clients, again)

    def close(self) -> Any:
        self.damage &= np.uint64(2**self.collector.codec.bits - 1)
        return super().close()


class Broken(Denoisers):
    """A copy of sound denoisers that makes the mistake of ``session_type``."""

    def __init__(self, sound: Denoisers, session_type: type[Mutant]) -> None:
        vars(self).update(vars(sound))  # the very same binding and streams
        self.session_type = session_type
        self.sessions: dict[int, Mutant] = {}

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> Mutant:
        assert round_ not in self.sessions, "the property opens a round once"
        self.sessions[round_] = self.session_type(self, round_, participants, wire)
        return self.sessions[round_]

    @property
    def damaged(self) -> bool:
        return any(session.damage.any() for session in self.sessions.values())


MUTANTS: dict[str, type[Mutant]] = {
    session.__name__: session
    for session in (LeavesOneRow, ForgetsItsOwnRows, PrintedDivisor, EncodesTwice)
}


def rows_of(block: RowBlock, keep: BoolArray) -> RowBlock:
    """Some rows of a block; the parties stay."""
    assert block.values is not None
    before = np.concatenate([[0], np.cumsum(keep)])
    return RowBlock(indptr=before[block.indptr], rows=block.rows[keep], values=block.values[keep])


def with_mutant(stack: Stack, name: str) -> tuple[Stack, Broken]:
    assert isinstance(stack.collector, Denoisers)
    broken = Broken(stack.collector, MUTANTS[name])
    return replace(stack, collector=broken), broken


def fixed_federation() -> Federation:
    """Eight clients who all rate five items or more, two denoisers, rho = 1."""
    ratings = generate(SyntheticConfig(clients=8, items=12, mean_ratings=6, seed=1))
    streams, codec = Streams.from_seed(3), FixedPoint()
    size = {"n_clients": 8, "n_items": 12}
    collector = Denoisers(DenoisersConfig(count=2), width=2, codec=codec, streams=streams, **size)
    cloak = VirtualRatings(VirtualRatingsConfig(rho=1.0), n_items=12, streams=streams)
    return Federation(
        ratings=ratings,
        streams=streams,
        stack=Stack(codec=codec, cloak=cloak, collector=collector, n_clients=8),
        rounds=3,
        cohort=CohortConfig(),
    )


def test_the_fixed_federation_is_lossless_without_a_mutation() -> None:
    assert_lossless(algorithm=algorithm, **fixed_federation().arguments())


@pytest.mark.claim("virtual-rows-cancel")
@pytest.mark.parametrize(
    ("name", "symptom"),
    [
        ("LeavesOneRow", "round 1, sum of item"),
        ("ForgetsItsOwnRows", "round 1, sum of item"),
        ("PrintedDivisor", "round 1, count of item"),
        ("EncodesTwice", "round 1, sum of item"),
    ],
)
def test_mutant_is_caught_in_the_first_round(name: str, symptom: str) -> None:
    federation = fixed_federation()
    stack, broken = with_mutant(federation.stack, name)
    with pytest.raises(LosslessnessError, match=symptom):
        assert_lossless(algorithm=algorithm, **federation.arguments(stack=stack))
    assert broken.damaged


@pytest.mark.parametrize("name", list(MUTANTS))
def test_mutant_is_caught_wherever_it_does_damage(name: str) -> None:
    seen = set()

    @given(federation=federations(width=2, max_rounds=3))
    @settings(PROFILE, max_examples=60)
    def check(federation: Federation) -> None:
        stack, broken = with_mutant(federation.stack, name)
        caught = False
        try:
            assert_lossless(algorithm=algorithm, **federation.arguments(stack=stack))
        except LosslessnessError:
            caught = True
        assert caught == broken.damaged
        seen.add(caught)

    check()
    assert True in seen, "no example had anything to break"


def test_hypothesis_shrinks_a_mutant_to_two_clients() -> None:
    def caught(federation: Federation) -> bool:
        stack, _ = with_mutant(federation.stack, "LeavesOneRow")
        try:
            assert_lossless(algorithm=algorithm, **federation.arguments(stack=stack))
        except LosslessnessError:
            return True
        return False

    # Without the phase that explains: it traces every line of every example that fails.
    shrinking = settings(
        PROFILE, max_examples=200, database=None, phases=(Phase.generate, Phase.shrink)
    )
    found = find(federations(width=2), caught, settings=shrinking)
    assert found.ratings.n_clients == 2
    assert found.ratings.n_items == 2
    assert found.rounds == 1


@given(federation=federations(width=2, max_rounds=3), fault=faults(max_round=3, kinds=("alter",)))
@settings(PROFILE, max_examples=100)
def test_one_altered_bit_is_caught(federation: Federation, fault: Alter) -> None:
    run = federation.arguments(faults=(fault,))
    assert isinstance(fault.chooser, Strike)
    caught = False
    try:
        assert_lossless(algorithm=algorithm, **run)
    except LosslessnessError:
        caught = True
    assert caught == bool(fault.chooser.hits)


def test_an_altered_noise_message_leaves_one_ring_unit() -> None:
    strike = Strike(round=2, place=0, with_rows=True)
    run = fixed_federation().arguments(faults=(Alter(step=Step.NOISE, chooser=strike),))
    with pytest.raises(LosslessnessError, match=r"round 2, sum .*, factor 0: off by [+-]1 ring"):
        assert_lossless(algorithm=algorithm, **run)
    assert strike.hits == 1


@given(
    federation=federations(width=2, max_rounds=3),
    fault=faults(max_round=3, kinds=("drop", "repeat", "delay")),
)
@settings(PROFILE, max_examples=100)
def test_lost_repeated_and_late_messages_are_refused(federation: Federation, fault: Drop) -> None:
    run = federation.arguments(faults=(fault,))
    assert isinstance(fault.chooser, Strike)
    refused = False
    try:
        assert_lossless(algorithm=algorithm, **run)
    except ProtocolError:
        refused = True
    assert refused == bool(fault.chooser.hits)


class Deaf(Mutant):
    """Denoisers that do not notice a missing message."""

    def close(self) -> Aggregate:
        self._noise_due[:] = 0
        return super().close()


def test_a_collector_that_sums_without_a_message_is_caught() -> None:
    federation = fixed_federation()
    sound = federation.stack.collector
    assert isinstance(sound, Denoisers)
    stack = replace(federation.stack, collector=Broken(sound, Deaf))
    assert_lossless(algorithm=algorithm, **federation.arguments(stack=stack))
    stack = replace(federation.stack, collector=Broken(sound, Deaf))
    loss = Drop(step=Step.NOISE, chooser=Strike(round=1, place=0, with_rows=True))
    with pytest.raises(ProtocolError, match="misses 1 noise"):
        assert_lossless(algorithm=algorithm, **federation.arguments(faults=(loss,)))
    loss = Drop(step=Step.NOISE, chooser=Strike(round=1, place=0, with_rows=True))
    with pytest.raises(LosslessnessError, match="round 1, sum of item"):
        assert_lossless(algorithm=algorithm, **federation.arguments(stack=stack, faults=(loss,)))


def test_user_vectors_trained_on_virtual_ratings_are_refused() -> None:
    config = replace(CONFIG, user_update="rated+virtual")
    with pytest.raises(ConfigError, match=r"user_update = 'rated\+virtual'"):
        assert_lossless(algorithm=lambda: PMF(config), **fixed_federation().arguments())


class Secretive(PMF):
    """Does not say how it trains its user vectors."""

    def public_knowledge(self) -> dict[str, Any]:
        return {"name": "pmf"}


def test_undeclared_training_on_virtual_ratings_is_caught_in_its_first_round() -> None:
    run = fixed_federation().arguments(rounds=1)
    assert_lossless(algorithm=lambda: Secretive(CONFIG), **run)
    config = replace(CONFIG, user_update="rated+virtual")
    with pytest.raises(LosslessnessError, match="round 1, user_vectors, row"):
        assert_lossless(algorithm=lambda: Secretive(config), **run)


def test_a_kernel_that_depends_on_the_place_in_a_batch_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Segment sums as differences of a running total: the usual shortcut, and not exact.
    def by_running_total(
        table: FloatArray, rows: IntArray, weights: FloatArray, indptr: IntArray
    ) -> FloatArray:
        totals = np.zeros((len(rows) + 1, table.shape[1]))
        np.cumsum(table[rows] * weights[:, None], axis=0, out=totals[1:])
        return totals[indptr[1:]] - totals[indptr[:-1]]

    run = fixed_federation().arguments()
    assert_lossless(algorithm=algorithm, **run)
    monkeypatch.setattr(pmf_module, "segment_sum", by_running_total)
    with pytest.raises(LosslessnessError, match="round 1, user_vectors, row"):
        assert_lossless(algorithm=algorithm, **run)


@given(data=st.data())
@settings(PROFILE, max_examples=20)
def test_the_damage_of_a_mutant_is_exactly_what_the_message_says(data: st.DataObject) -> None:
    federation = data.draw(federations(width=2, max_rounds=1, cloaks=("virtual-ratings",)))
    stack, broken = with_mutant(federation.stack, "ForgetsItsOwnRows")
    try:
        assert_lossless(algorithm=algorithm, **federation.arguments(stack=stack))
    except LosslessnessError as error:
        damage = broken.sessions[1].damage
        sums = stack.codec.to_integers(stack.codec.from_integers(damage[:, :-1].view(np.int64)))
        if sums.any():
            item, factor = np.argwhere(sums)[0].tolist()
            where = f"sum of item {item}, factor {factor}: off by {sums[item, factor]:+d} ring"
            assert where in str(error)
