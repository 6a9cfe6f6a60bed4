"""Denoisers: who works for whom, and that the exact sum of the real rows remains."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    Binding,
    Denoisers,
    DenoisersConfig,
    DirectSum,
    Stack,
)
from secure_fedrec.protection.base import Collector
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import (
    Messages,
    Meter,
    Step,
    Wire,
    decode_rows,
    encode_rows,
    message_sizes,
)

WIDTH = 3


@pytest.mark.parametrize(
    ("n_clients", "count"), [(2, 1), (7, 3), (10, 5), (23, 1), (23, 4), (24, 12)]
)
def test_groups_are_balanced(n_clients: int, count: int) -> None:
    binding = Binding.draw(n_clients, count, Streams.from_seed(1).stream("denoisers"))
    assert len(set(binding.denoisers.tolist())) == count
    assert np.flatnonzero(binding.is_denoiser).tolist() == sorted(binding.denoisers.tolist())
    assert binding.group[binding.denoisers].tolist() == list(range(count))
    sizes = np.bincount(binding.group, minlength=count)
    assert len(sizes) == count
    assert sizes.max() - sizes.min() <= 1
    assert sizes.min() >= 2  # nobody denoises for nobody


def test_bindings_depend_on_the_seed_alone() -> None:
    drawn = [Binding.draw(50, 5, Streams.from_seed(seed).stream("denoisers")) for seed in (1, 1, 2)]
    assert drawn[0].group.tolist() == drawn[1].group.tolist()
    assert drawn[0].denoisers.tolist() == drawn[1].denoisers.tolist()
    assert drawn[0].group.tolist() != drawn[2].group.tolist()


def collector_of(
    n_clients: int, count: int, *, n_items: int = 12, codec: FixedPoint | None = None
) -> Denoisers:
    return Denoisers(
        DenoisersConfig(count=count),
        n_clients=n_clients,
        n_items=n_items,
        width=WIDTH,
        codec=FixedPoint() if codec is None else codec,
        streams=Streams.from_seed(2),
    )


@pytest.mark.parametrize("count", [-1, 0, 6, 11])
def test_too_few_or_spare_denoisers_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="between 1 and half of the 11 clients") as refusal:
        collector_of(11, count)
    assert (refusal.value.key, refusal.value.value) == ("protection.count", count)
    collector_of(11, 5)


def test_clients_of_an_absent_denoiser_sit_out() -> None:
    collector = collector_of(12, 3)
    binding = collector.binding
    everybody = np.arange(12)
    assert collector.participants(everybody[::-1]).tolist() == everybody.tolist()
    absent = everybody[everybody != binding.denoisers[1]]
    expected = np.flatnonzero(binding.group != 1)
    assert collector.participants(absent).tolist() == expected.tolist()


def test_a_denoiser_without_a_client_sits_out() -> None:
    collector = collector_of(12, 3)
    binding = collector.binding
    present = (binding.group != 2) | binding.is_denoiser
    assert collector.participants(np.flatnonzero(present)).tolist() == (
        np.flatnonzero(binding.group != 2).tolist()
    )
    assert collector.participants(np.sort(binding.denoisers)).tolist() == []
    assert collector.participants(np.empty(0, dtype=np.int64)).tolist() == []


@settings(deadline=None)
@given(st.sets(st.integers(0, 19)), st.integers(1, 10))
def test_participants_form_whole_working_groups(cohort: set[int], count: int) -> None:
    collector = collector_of(20, count)
    binding = collector.binding
    taking_part = set(collector.participants(np.array(sorted(cohort), dtype=np.int64)).tolist())
    for group in range(count):
        members = {c for c in cohort if binding.group[c] == group}
        denoiser = int(binding.denoisers[group])
        works = denoiser in members and len(members) > 1
        assert taking_part & members == (members if works else set())
    assert taking_part <= cohort


@dataclass(frozen=True)
class Case:
    """Encoded rows of every client, real and virtual, at random."""

    codec: FixedPoint
    n_items: int
    rows: list[list[int]]
    virtual: list[list[bool]]
    words: list[list[list[int]]]

    @property
    def n_clients(self) -> int:
        return len(self.rows)

    def block(self, clients: list[int]) -> tuple[RowBlock, BoolArray]:
        """The rows of some clients, and which are virtual."""
        flat = [row for client in clients for row in self.rows[client]]
        words = [word for client in clients for word in self.words[client]]
        lengths = [len(self.rows[client]) for client in clients]
        block = RowBlock(
            indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            rows=np.array(flat, dtype=np.int32),
            values=np.array(words, dtype=self.codec.dtype).reshape(len(flat), WIDTH),
        )
        return block, np.array([v for c in clients for v in self.virtual[c]], dtype=bool)

    def expected(self, participants: list[int]) -> tuple[list[list[int]], list[int]]:
        """Sum and number of the real rows of each item, in Python's integers."""
        sums = [[0] * WIDTH for _ in range(self.n_items)]
        counts = [0] * self.n_items
        for client in participants:
            for row, virtual, words in zip(
                self.rows[client], self.virtual[client], self.words[client], strict=True
            ):
                if virtual:
                    continue
                counts[row] += 1
                sums[row] = [
                    (total + word) % 2**self.codec.bits
                    for total, word in zip(sums[row], words, strict=True)
                ]
        return sums, counts


def case_of(
    n_clients: int, collector: Denoisers | None, *, bits: int = 64, seed: int = 0, n_items: int = 12
) -> Case:
    rng = np.random.default_rng(seed)
    codec = FixedPoint(bits=bits, fraction_bits=2, clip=1.0)
    rows = [
        sorted(rng.choice(n_items, rng.integers(0, n_items + 1), replace=False).tolist())
        for _ in range(n_clients)
    ]
    plain = np.zeros(n_clients, bool) if collector is None else collector.binding.is_denoiser
    virtual = [
        [bool(rng.random() < 0.5) and not plain[client] for _ in mine]
        for client, mine in enumerate(rows)
    ]
    words = [
        [[int.from_bytes(rng.bytes(8), "little") % 2**bits for _ in range(WIDTH)] for _ in mine]
        for mine in rows
    ]
    return Case(codec=codec, n_items=n_items, rows=rows, virtual=virtual, words=words)


class Spy:
    """Collects what goes over the wire."""

    def __init__(self) -> None:
        self.seen: list[Messages] = []

    def apply(self, messages: Messages) -> Messages:
        self.seen.append(messages)
        return messages

    def of(self, step: Step) -> list[tuple[int, int, RowBlock]]:
        """(sender, receiver, rows) of each message of a step."""
        found: list[tuple[int, int, RowBlock]] = []
        for messages in self.seen:
            if messages.step is step:
                assert isinstance(messages.payload, RowBlock)
                ends = zip(messages.senders.ids, messages.receivers.ids, strict=True)
                found += [
                    (int(sender), int(receiver), rows)
                    for (sender, receiver), rows in zip(ends, messages.payload.split(), strict=True)
                ]
        return found


def collect(
    collector: Collector, case: Case, participants: IntArray, *, batch: int, spy: Spy | None = None
) -> Aggregate:
    wire = Wire(meter=Meter(case.n_clients), faults=() if spy is None else (spy,))
    session = collector.open(round_=1, participants=participants, wire=wire)
    order = session.order
    assert sorted(order.tolist()) == participants.tolist()
    for start in range(0, len(order), batch):
        clients = order[start : start + batch]
        block, virtual = case.block(clients.tolist())
        session.submit(clients, block, virtual)
    return session.close()


@pytest.mark.parametrize("bits", [20, 32, 36, 64])
@pytest.mark.parametrize("count", [1, 2, 5, 10])
@pytest.mark.parametrize("batch", [1, 3, 7, 21])
def test_the_sum_of_the_real_rows_remains(bits: int, count: int, batch: int) -> None:
    codec = FixedPoint(bits=bits, fraction_bits=2, clip=1.0)
    collector = collector_of(21, count, codec=codec)
    case = case_of(21, collector, bits=bits, seed=count)
    participants = collector.participants(np.arange(21))
    aggregate = collect(collector, case, participants, batch=batch)
    sums, counts = case.expected(participants.tolist())
    assert aggregate.ring.tolist() == sums
    assert aggregate.counts.tolist() == counts
    assert aggregate.ring.dtype == codec.dtype


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 14),
    st.integers(1, 7),
    st.integers(1, 15),
    st.sampled_from([9, 32, 40, 64]),
    st.data(),
)
def test_any_cohort_and_layout_leaves_the_exact_sum(
    n_clients: int, count: int, batch: int, bits: int, data: st.DataObject
) -> None:
    count = min(count, n_clients // 2)
    codec = FixedPoint(bits=bits, fraction_bits=2, clip=1.0)
    collector = collector_of(n_clients, count, codec=codec)
    case = case_of(n_clients, collector, bits=bits, seed=data.draw(st.integers(0, 2**32)))
    cohort = sorted(data.draw(st.sets(st.integers(0, n_clients - 1))))
    participants = collector.participants(np.array(cohort, dtype=np.int64))
    aggregate = collect(collector, case, participants, batch=batch)
    sums, counts = case.expected(participants.tolist())
    assert aggregate.ring.tolist() == sums
    assert aggregate.counts.tolist() == counts


@pytest.mark.parametrize("batch", [1, 4, 15])
def test_direct_sums_count_every_row(batch: int) -> None:
    case = case_of(15, None, seed=3)
    direct = DirectSum(n_clients=15, n_items=case.n_items, width=WIDTH, codec=case.codec)
    aggregate = collect(direct, case, np.arange(15), batch=batch)
    everything = Case(
        codec=case.codec,
        n_items=case.n_items,
        rows=case.rows,
        virtual=[[False] * len(rows) for rows in case.rows],
        words=case.words,
    )
    assert (aggregate.ring.tolist(), aggregate.counts.tolist()) == everything.expected(
        list(range(15))
    )


def test_each_message_holds_what_its_receiver_may_see() -> None:
    collector = collector_of(12, 2)
    case, spy = case_of(12, collector, seed=5), Spy()
    collect(collector, case, np.arange(12), batch=5, spy=spy)
    binding = collector.binding
    uploads = spy.of(Step.UPLOAD)
    assert (
        sorted(sender for sender, _, _ in uploads) == np.flatnonzero(~binding.is_denoiser).tolist()
    )
    for sender, _, rows in uploads:
        assert rows.rows.tolist() == case.rows[sender]
        assert rows.values is not None
        assert rows.values.tolist() == case.words[sender]
    for group in range(2):
        clients = np.flatnonzero((binding.group == group) & ~binding.is_denoiser).tolist()
        expected = sorted(
            [row for row, fake in zip(case.rows[c], case.virtual[c], strict=True) if fake]
            for c in clients
        )
        noise = [
            rows.rows.tolist() for _, receiver, rows in spy.of(Step.NOISE) if receiver == group
        ]
        assert sorted(noise) == expected
        own = case.rows[int(binding.denoisers[group])]
        (sums,) = [rows for sender, _, rows in spy.of(Step.DENOISE) if sender == group]
        assert sums.rows.tolist() == sorted({*own, *(row for fake in expected for row in fake)})
        assert sums.counts is not None
        fakes = [row for fake in expected for row in fake]
        assert sums.counts.tolist() == [
            fakes.count(row) - (row in own) for row in sums.rows.tolist()
        ]


@pytest.mark.parametrize("bits", [12, 31, 36, 64])
def test_every_message_fits_the_wire_format(bits: int) -> None:
    codec = FixedPoint(bits=bits, fraction_bits=2, clip=1.0)
    collector = collector_of(10, 3, codec=codec)
    case, spy = case_of(10, collector, bits=bits, seed=bits), Spy()
    collect(collector, case, collector.participants(np.arange(10)), batch=4, spy=spy)
    for step in (Step.UPLOAD, Step.NOISE, Step.DENOISE):
        messages = spy.of(step)
        assert messages
        for _, _, rows in messages:
            data = encode_rows(rows, round_=1, step=step, codec=codec)
            assert message_sizes(rows, width=WIDTH, codec=codec).tolist() == [len(data)]
            _, _, decoded = decode_rows(data, codec=codec, n_rows=case.n_items)
            assert rows.values is not None and decoded.values is not None
            assert decoded.values.tolist() == rows.values.tolist()


def test_a_round_of_nobody_sums_to_nothing() -> None:
    collector = collector_of(6, 2)
    case = case_of(6, collector)
    aggregate = collect(collector, case, np.empty(0, dtype=np.int64), batch=3)
    assert not aggregate.ring.any()
    assert not aggregate.counts.any()


def test_denoisers_are_exempt_from_the_cloak() -> None:
    collector = collector_of(9, 3)
    session = collector.open(round_=1, participants=np.arange(9), wire=Wire(meter=Meter(9)))
    assert session.exempt(np.arange(9)).tolist() == collector.binding.is_denoiser.tolist()


def test_a_stack_refuses_a_ring_too_small_for_its_clients() -> None:
    codec = FixedPoint(bits=16, fraction_bits=8, clip=10.0)
    for n_clients in (codec.max_terms, codec.max_terms + 1):
        direct = DirectSum(n_clients=n_clients, n_items=3, width=1, codec=codec)
        if n_clients <= codec.max_terms:
            Stack(codec=codec, cloak=None, collector=direct, n_clients=n_clients)
        else:
            with pytest.raises(SumBudgetError, match="13 clients"):
                Stack(codec=codec, cloak=None, collector=direct, n_clients=n_clients)
