"""Row messages on the byte level, and batches of them."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import DenseBlock, RowBlock
from secure_fedrec.wire import (
    NOBODY,
    Messages,
    Meter,
    Parties,
    Step,
    Wire,
    decode_rows,
    encode_rows,
    message_sizes,
)

HEADER = 16
N_ROWS = 40


def codec_of(bits: int) -> FixedPoint:
    return FixedPoint(bits=bits, fraction_bits=2, clip=1.0)


@st.composite
def row_messages(draw: st.DrawFn) -> tuple[FixedPoint, RowBlock, int, Step]:
    codec = codec_of(draw(st.integers(8, 64)))
    rows = sorted(draw(st.sets(st.integers(0, N_ROWS - 1), max_size=6)))
    width = draw(st.integers(1, 4))
    word = st.integers(0, 2**codec.bits - 1)
    size = len(rows) * width
    values = draw(st.lists(word, min_size=size, max_size=size))
    count = st.integers(-(2**31), 2**31 - 1)
    counts = draw(st.none() | st.lists(count, min_size=len(rows), max_size=len(rows)))
    block = RowBlock(
        indptr=np.array([0, len(rows)]),
        rows=np.array(rows, dtype=np.int32),
        values=np.array(values, dtype=codec.dtype).reshape(len(rows), width),
        counts=None if counts is None else np.array(counts, dtype=np.int64),
    )
    round_ = draw(st.integers(0, 2**32 - 1))
    return codec, block, round_, draw(st.sampled_from(Step))


def encoded(case: tuple[FixedPoint, RowBlock, int, Step]) -> bytes:
    codec, block, round_, step = case
    return encode_rows(block, round_=round_, step=step, codec=codec)


def is_canonical(data: bytes, codec: FixedPoint) -> bool:
    """Decodes, and to something that encodes to the very same bytes."""
    try:
        round_, step, block = decode_rows(data, codec=codec, n_rows=N_ROWS)
    except WireError:
        return False
    assert encode_rows(block, round_=round_, step=step, codec=codec) == data
    return True


@settings(deadline=None)
@given(row_messages())
def test_round_trip(case: tuple[FixedPoint, RowBlock, int, Step]) -> None:
    codec, block, round_, step = case
    data = encoded(case)
    assert block.values is not None
    assert [len(data)] == message_sizes(block, width=block.values.shape[1], codec=codec).tolist()
    got_round, got_step, got = decode_rows(data, codec=codec, n_rows=N_ROWS)
    assert (got_round, got_step) == (round_, step)
    assert type(got_step) is Step
    assert got.rows.tolist() == block.rows.tolist()
    assert got.values is not None
    assert got.values.dtype == codec.dtype
    assert got.values.tolist() == block.values.tolist()
    assert (got.counts is None) == (block.counts is None)
    if block.counts is not None and got.counts is not None:
        assert got.counts.tolist() == block.counts.tolist()


def test_layout_is_the_documented_one() -> None:
    codec = codec_of(24)
    block = RowBlock(
        indptr=np.array([0, 2]),
        rows=np.array([3, 7], dtype=np.int32),
        values=np.array([[1, 2**24 - 1], [0x030201, 4]], dtype=np.uint32),
        counts=np.array([5, -1]),
    )
    data = encode_rows(block, round_=9, step=Step.DENOISE, codec=codec)
    header = struct.pack("<BBBBIIHH", 1, 3, 1, 3, 9, 2, 2, 0)
    columns = struct.pack("<II", 3, 7) + struct.pack("<ii", 5, -1)
    assert data == header + columns + bytes.fromhex("010000 ffffff 010203 040000")


@settings(deadline=None)
@given(row_messages(), st.data())
def test_truncated_messages_are_refused(
    case: tuple[FixedPoint, RowBlock, int, Step], data: st.DataObject
) -> None:
    whole = encoded(case)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        decode_rows(whole[:cut], codec=case[0], n_rows=N_ROWS)


@settings(deadline=None)
@given(row_messages(), st.binary(min_size=1, max_size=40))
def test_extended_messages_are_refused(
    case: tuple[FixedPoint, RowBlock, int, Step], tail: bytes
) -> None:
    with pytest.raises(WireError, match="declares"):  # before a word of it is read
        decode_rows(encoded(case) + tail, codec=case[0], n_rows=N_ROWS)


@pytest.mark.claim("strict-decoding")
@settings(deadline=None)
@given(row_messages(), st.data())
def test_a_changed_byte_is_refused_or_another_canonical_message(
    case: tuple[FixedPoint, RowBlock, int, Step], data: st.DataObject
) -> None:
    damaged = bytearray(encoded(case))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    is_canonical(bytes(damaged), case[0])


@pytest.mark.parametrize(
    "place", [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15], ids=lambda place: f"byte{place}"
)
@settings(deadline=None)
@given(case=row_messages(), change=st.integers(1, 255))
def test_a_changed_header_byte_is_refused(
    place: int, case: tuple[FixedPoint, RowBlock, int, Step], change: int
) -> None:
    damaged = bytearray(encoded(case))
    damaged[place] ^= change
    # The step may turn into another step; flags and width of an empty message change no byte of it.
    assume(place != 1 or damaged[1] not in set(Step))
    assume(place not in (2, 12, 13) or len(case[1].rows) > 0)
    assert not is_canonical(bytes(damaged), case[0])


@pytest.mark.claim("strict-decoding")
@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(8, 64))
def test_noise_raises_nothing_but_wire_errors(noise: bytes, bits: int) -> None:
    is_canonical(noise, codec_of(bits))


@settings(deadline=None)
@given(st.integers(8, 64), st.integers(0, 3), st.integers(0, 2), st.binary(max_size=60))
def test_plausible_headers_raise_nothing_but_wire_errors(
    bits: int, rows: int, width: int, body: bytes
) -> None:
    codec = codec_of(bits)
    for flags in (0, 1):
        header = struct.pack("<BBBBIIHH", 1, 1, flags, codec.bytes_per_value, 1, rows, width, 0)
        size = rows * (4 + 4 * flags + width * codec.bytes_per_value)
        is_canonical(header + (body * 60)[:size].ljust(size, b"\0"), codec)


@pytest.mark.parametrize("rows", [[3, 3], [4, 3], [0, N_ROWS], [N_ROWS], [2**32 - 1], [2**31]])
def test_rows_must_ascend_below_the_table(rows: list[int]) -> None:
    codec = codec_of(16)
    header = struct.pack("<BBBBIIHH", 1, 1, 0, 2, 1, len(rows), 1, 0)
    body = struct.pack(f"<{len(rows)}I", *rows) + bytes(2 * len(rows))
    with pytest.raises(WireError, match="row numbers"):
        decode_rows(header + body, codec=codec, n_rows=N_ROWS)


@pytest.mark.parametrize("bits", [9, 12, 20, 31, 33, 36, 63])
def test_words_outside_the_ring_are_refused(bits: int) -> None:
    codec = codec_of(bits)
    size = codec.bytes_per_value
    header = struct.pack("<BBBBIIHH", 1, 1, 0, size, 1, 1, 1, 0) + struct.pack("<I", 0)
    inside = (2**bits - 1).to_bytes(size, "little")
    _, _, block = decode_rows(header + inside, codec=codec, n_rows=1)
    assert block.values is not None
    assert block.values.tolist() == [[2**bits - 1]]
    with pytest.raises(WireError, match="outside the ring"):
        decode_rows(header + (2**bits).to_bytes(size, "little"), codec=codec, n_rows=1)


def block_of(lengths: list[int], *, counts: bool = False, width: int = 2) -> RowBlock:
    size = sum(lengths)
    rows = [row for length in lengths for row in range(length)]
    return RowBlock(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        rows=np.array(rows, dtype=np.int32),
        values=np.arange(size * width, dtype=np.uint64).reshape(size, width),
        counts=np.arange(size, dtype=np.int64) if counts else None,
    )


def test_one_message_has_one_sender_and_ring_words() -> None:
    codec = FixedPoint()
    for block in (block_of([1, 2]), block_of([])):
        with pytest.raises(WireError, match="one sender"):
            encode_rows(block, round_=1, step=Step.UPLOAD, codec=codec)
    real = RowBlock(
        indptr=np.array([0, 1]), rows=np.zeros(1, dtype=np.int32), values=np.zeros((1, 2))
    )
    bare = RowBlock(indptr=np.array([0, 1]), rows=np.zeros(1, dtype=np.int32), values=None)
    for block in (real, bare):
        with pytest.raises(WireError, match="ring words"):
            encode_rows(block, round_=1, step=Step.UPLOAD, codec=codec)
    with pytest.raises(WireError, match="ring words"):
        encode_rows(block_of([1]), round_=1, step=Step.UPLOAD, codec=codec_of(16))


def batch(block: RowBlock, **changes: Any) -> Messages:
    count = len(block)
    fields: dict[str, Any] = {
        "round": 3,
        "step": Step.NOISE,
        "senders": Parties.anonymous("client", count),
        "receivers": Parties(role="denoiser", ids=np.arange(count) + 10),
        "payload": block,
        "sizes": np.arange(count) + 100,
        "tags": np.arange(count, dtype=np.uint64) + np.uint64(1000),
    }
    return Messages(**{**fields, **changes})


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.booleans(), st.data())
def test_select_takes_messages_in_the_order_asked(
    lengths: list[int], counts: bool, data: st.DataObject
) -> None:
    block = block_of(lengths, counts=counts)
    messages = batch(block)
    which = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=8))
    chosen = messages.select(np.array(which, dtype=np.int64))
    assert (len(chosen), chosen.round, chosen.step) == (len(which), 3, Step.NOISE)
    assert chosen.receivers.ids.tolist() == [10 + place for place in which]
    assert chosen.senders.ids.tolist() == [NOBODY] * len(which)
    assert chosen.sizes.tolist() == [100 + place for place in which]
    assert chosen.tags is not None
    assert chosen.tags.tolist() == [1000 + place for place in which]
    assert isinstance(chosen.payload, RowBlock)
    parts, originals = list(chosen.payload.split()), list(block.split())
    for part, place in zip(parts, which, strict=True):
        original = originals[place]
        assert part.rows.tolist() == original.rows.tolist()
        assert part.values is not None and original.values is not None
        assert part.values.tolist() == original.values.tolist()
        assert (part.counts is None) is not counts
        if part.counts is not None and original.counts is not None:
            assert part.counts.tolist() == original.counts.tolist()


def test_select_keeps_what_is_not_there() -> None:
    bare = RowBlock(indptr=np.array([0, 1]), rows=np.zeros(1, dtype=np.int32), values=None)
    chosen = batch(bare, tags=None).select(np.array([0, 0]))
    assert isinstance(chosen.payload, RowBlock)
    assert (chosen.tags, chosen.payload.values, chosen.payload.counts) == (None, None, None)
    table = DenseBlock(values=np.ones((2, 2)), shape=(2, 2))
    assert batch(block_of([1, 1]), payload=table).select(np.array([1])).payload is table


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"payload": np.zeros(2)}, "carries a block"),
        ({"payload": None}, "carries a block"),
        ({"sizes": np.zeros(3, dtype=np.int64)}, "one entry per message"),
        ({"senders": Parties.server(1)}, "one entry per message"),
        ({"receivers": Parties.server(3)}, "one entry per message"),
        ({"payload": block_of([1])}, "1 segments for 2"),
        ({"tags": np.zeros(1, dtype=np.uint64)}, "1 tags for 2"),
    ],
)
def test_batches_whose_columns_do_not_fit_are_refused(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(WireError, match=problem):
        batch(block_of([1, 2]), **changes)


@pytest.mark.claim("no-reals-on-the-wire")
def test_reals_do_not_travel() -> None:
    wire = Wire(meter=Meter(20))
    real = RowBlock(
        indptr=np.array([0, 1]), rows=np.zeros(1, dtype=np.int32), values=np.zeros((1, 2))
    )
    bare = RowBlock(indptr=np.array([0, 1]), rows=np.zeros(1, dtype=np.int32), values=None)
    for block in (real, bare):
        with pytest.raises(WireError, match="encode them first"):
            wire.send(batch(block))
    assert wire.meter.server("messages_sent") == 0  # what is refused costs nothing
    fine = batch(block_of([1, 1]))
    assert wire.send(fine, origins=np.array([0, 1]), targets=np.array([2, 2])) is fine


class Disguised(Messages):
    """A subclass could carry private state along."""


def test_only_messages_travel() -> None:
    fine = batch(block_of([1]))
    disguised = Disguised(
        round=1,
        step=Step.UPLOAD,
        senders=fine.senders,
        receivers=fine.receivers,
        payload=fine.payload,
        sizes=fine.sizes,
    )
    with pytest.raises(WireError, match="Disguised"):
        Wire(meter=Meter(1)).send(disguised)


def totals(meter: Meter, quantity: str) -> list[list[int]]:
    return [meter.clients(f"{quantity}_{way}").tolist() for way in ("sent", "received")]


def test_the_meter_counts_both_ends() -> None:
    meter = Meter(4)
    wire = Wire(meter=meter)
    senders: IntArray = np.array([3, 1, 3])
    noise = batch(block_of([2, 0, 1]))
    wire.send(noise, origins=senders, targets=np.array([0, 0, 2]))
    assert totals(meter, "messages") == [[0, 1, 0, 2], [2, 0, 1, 0]]
    assert totals(meter, "vectors") == [[0, 0, 0, 3], [2, 0, 1, 0]]
    assert totals(meter, "bytes") == [[0, 101, 0, 202], [201, 0, 102, 0]]
    assert meter.server("bytes_sent") == meter.server("bytes_received") == 0
    upload = batch(block_of([4]), step=Step.UPLOAD, tags=None)
    wire.send(upload, origins=np.array([0]))
    model = batch(
        block_of([0, 0]),
        step=Step.MODEL,
        senders=Parties.server(2),
        payload=DenseBlock(values=None, shape=(2, 2)),
        tags=None,
    )
    wire.send(model, targets=np.array([1, 2]))
    server = ["messages_sent", "messages_received", "vectors_sent", "vectors_received"]
    assert [meter.server(name) for name in server] == [2, 1, 0, 4]
    assert [meter.server("bytes_sent"), meter.server("bytes_received")] == [201, 100]
    assert meter.clients("messages_received").tolist() == [2, 1, 2, 0]


def test_a_meter_goes_on_from_a_checkpoint() -> None:
    first, second = Meter(3), Meter(3)
    for meter in (first, second):
        Wire(meter=meter).send(batch(block_of([1, 2])), origins=np.array([0, 2]))
    resumed = Meter(3)
    resumed.restore(first.state())
    for meter in (resumed, second):
        Wire(meter=meter).send(batch(block_of([3])), targets=np.array([1]))
    for name, column in second.state().items():
        assert resumed.state()[name].tolist() == column.tolist()
    # The checkpoint is a copy: going on does not change it.
    assert first.clients("messages_received").tolist() == [0, 0, 0]


def test_flags_of_a_message_without_rows_are_checked() -> None:
    """Its length says nothing of them."""
    codec = FixedPoint()
    empty = RowBlock(
        indptr=np.zeros(2, dtype=np.int64),
        rows=np.zeros(0, dtype=np.int32),
        values=np.zeros((0, 2), dtype=codec.dtype),
    )
    good = encode_rows(empty, round_=1, step=Step.UPLOAD, codec=codec)
    decode_rows(good, codec=codec, n_rows=3)
    for flags in (2, 3, 128):
        with pytest.raises(WireError, match="unknown version or flags"):
            decode_rows(good[:2] + bytes([flags]) + good[3:], codec=codec, n_rows=3)
