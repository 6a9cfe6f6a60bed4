"""Vectors for bags on the wire: byte layout, recording, views."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedrec.errors import TranscriptError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock, SetBlock
from secure_fedrec.wire import (
    Adversary,
    Alter,
    BlockStore,
    Messages,
    Meter,
    Parties,
    Recorder,
    RecordingPolicy,
    Step,
    Transcript,
    Wire,
    decode_set,
    encode_set,
    set_sizes,
)

WIDTHS = (3, 1, 4)
CODEC = FixedPoint(bits=24, fraction_bits=2, clip=1.0)


@st.composite
def sets(draw: st.DrawFn) -> tuple[FixedPoint, int, int, SetBlock]:
    codec = FixedPoint(bits=draw(st.integers(8, 64)), fraction_bits=2, clip=1.0)
    bag = draw(st.integers(0, len(WIDTHS) - 1))
    count = draw(st.integers(0, 4))
    size = count * WIDTHS[bag]
    words = draw(st.lists(st.integers(0, 2**codec.bits - 1), min_size=size, max_size=size))
    values = np.array(words, dtype=codec.dtype).reshape(count, WIDTHS[bag])
    block = SetBlock(indptr=np.array([0, count]), values=values)
    return codec, draw(st.integers(0, 2**32 - 1)), bag, block


@given(sets())
def test_a_set_survives_its_bytes(case: tuple[FixedPoint, int, int, SetBlock]) -> None:
    codec, round_, bag, block = case
    data = encode_set(block, round_=round_, bag=bag, codec=codec)
    assert len(data) == set_sizes(block, width=WIDTHS[bag], codec=codec)[0]
    found_round, found_bag, found = decode_set(data, codec=codec, widths=WIDTHS)
    assert (found_round, found_bag) == (round_, bag)
    assert found.indptr.tolist() == block.indptr.tolist()
    assert found.values is not None and block.values is not None
    assert found.values.dtype == codec.dtype
    assert found.values.tolist() == block.values.tolist()


@given(sets(), st.data())
def test_there_is_one_encoding_of_a_set(
    case: tuple[FixedPoint, int, int, SetBlock], data: st.DataObject
) -> None:
    codec, round_, bag, block = case
    whole = bytearray(encode_set(block, round_=round_, bag=bag, codec=codec))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(0, len(whole)))] + b"\0"
    try:
        again = decode_set(bytes(whole), codec=codec, widths=WIDTHS)
    except WireError:
        return
    assert encode_set(again[2], round_=again[0], bag=again[1], codec=codec) == whole


def one(values: Any) -> SetBlock:
    return SetBlock(indptr=np.array([0, len(values)]), values=values)


def test_what_a_header_says_is_checked() -> None:
    block = one(np.ones((2, 3), dtype=np.uint32))
    good = encode_set(block, round_=7, bag=0, codec=CODEC)
    decode_set(good, codec=CODEC, widths=WIDTHS)
    fields = list(struct.unpack_from("<BBBBIIHH", good))
    changes = {
        "version": (0, 2),
        "for no bag": (1, Step.UPLOAD),
        "another ring": (3, 4),
        "does not exist": (2, 3),
        "of width 3": (2, 2),
        "declares 3 vectors": (5, 3),
        "unknown version": (7, 1),
    }
    for problem, (field, value) in changes.items():
        header = struct.pack("<BBBBIIHH", *fields[:field], value, *fields[field + 1 :])
        with pytest.raises(WireError, match=problem):
            decode_set(header + good[16:], codec=CODEC, widths=WIDTHS)
    for data in (b"", good[:15], good[:-1], good + b"\0"):
        with pytest.raises(WireError):
            decode_set(data, codec=CODEC, widths=WIDTHS)
    narrow = FixedPoint(bits=20, fraction_bits=2, clip=1.0)  # words of 3 bytes, too
    beyond = encode_set(one(np.full((1, 3), 2**20, np.uint32)), round_=7, bag=0, codec=CODEC)
    with pytest.raises(WireError, match=r"outside the ring of 2\^20"):
        decode_set(beyond, codec=narrow, widths=WIDTHS)


@pytest.mark.parametrize(
    "block",
    [
        one(np.ones((1, 3))),
        one(np.ones((1, 3), dtype=np.uint64)),
        one(np.full((1, 3), 2**24, dtype=np.uint32)),
        SetBlock(indptr=np.array([0, 1, 1]), values=np.ones((1, 3), dtype=np.uint32)),
        SetBlock(indptr=np.array([0, 2]), values=None),
    ],
)
def test_only_one_party_s_ring_words_are_encoded(block: SetBlock) -> None:
    with pytest.raises(WireError):
        encode_set(block, round_=1, bag=0, codec=CODEC)


@pytest.mark.parametrize(
    ("indptr", "values"),
    [
        ([0, 1], np.ones((2, 1))),
        ([0, 2, 1], np.ones((1, 1))),
        ([1, 1], np.ones((1, 1))),
        ([0, 1], np.ones(1)),
        ([0, 1], np.ones((1, 1), dtype=np.float32)),
        ([0, 1], np.ma.ones((1, 1))),
        ([0, 2, 1], None),
        ([], np.ones((0, 1))),
    ],
)
def test_a_set_whose_columns_do_not_fit_is_refused(indptr: list[int], values: Any) -> None:
    with pytest.raises(WireError):
        SetBlock(indptr=np.array(indptr, dtype=np.int64), values=values)


def messages(
    lengths: list[int], bag: str = "users", *, width: int = 2, named: bool = True
) -> Messages:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = np.arange(indptr[-1] * width, dtype=np.uint64).reshape(-1, width)
    block, count = SetBlock(indptr=indptr, values=values), len(lengths)
    senders = Parties(role="client", ids=np.arange(count))
    return Messages(
        round=1,
        step=Step.BAG,
        senders=senders if named else Parties.anonymous("client", count),
        receivers=Parties.server(count),
        payload=block,
        sizes=np.full(count, 100) + indptr[1:],
        tags=None if named else np.arange(count, dtype=np.uint64)[::-1].copy(),
        bag=bag,
    )


def test_vectors_travel_for_a_bag_and_rows_do_not() -> None:
    fine = messages([1])
    fields = {name: getattr(fine, name) for name in Messages.__dataclass_fields__}
    rows = RowBlock(
        indptr=np.array([0, 0]), rows=np.empty(0, dtype=np.int32), values=np.empty((0, 1))
    )
    for change in ({"bag": None}, {"step": Step.UPLOAD}, {"payload": rows}):
        with pytest.raises(WireError, match="message with a"):
            Messages(**{**fields, **change})
    reals = SetBlock(indptr=np.array([0, 1]), values=np.ones((1, 2)))
    with pytest.raises(WireError, match="ring words"):
        Wire(meter=Meter(1)).send(Messages(**{**fields, "payload": reals}))


def test_sets_are_metered_selected_and_altered_like_rows() -> None:
    meter, sent = Meter(3), messages([2, 0, 1])
    Wire(meter=meter).send(sent, origins=np.arange(3))
    assert meter.clients("vectors_sent").tolist() == [2, 0, 1]
    assert meter.clients("bytes_sent").tolist() == sent.sizes.tolist()
    assert meter.server("vectors_received") == 3
    picked = sent.select(np.array([2, 0]))
    assert isinstance(picked.payload, SetBlock) and picked.payload.values is not None
    assert picked.payload.lengths.tolist() == [1, 2]
    assert picked.payload.values.tolist() == [[4, 5], [0, 1], [2, 3]]
    altered = Alter(step=Step.BAG, chooser=lambda m: np.array([False, True, True])).apply(sent)
    assert isinstance(altered.payload, SetBlock) and altered.payload.values is not None
    assert altered.payload.values.tolist() == [[0, 1], [2, 3], [5, 5]]


def recorded(directory: Path | None, *, keep: tuple[int, ...] = (1,)) -> Transcript:
    store = BlockStore(directory)
    recorder = Recorder(
        policy=RecordingPolicy(payload_rounds=keep),
        seen=store,
        truth=BlockStore(None),
        n_items=4,
        arrival=Streams.from_seed(1).stream("arrival"),
    )
    wire = Wire(meter=Meter(3), recorder=recorder)
    wire.send(messages([2, 0, 1]), origins=np.arange(3))
    wire.send(messages([1, 1, 1], "users-2", width=3), origins=np.arange(3))
    wire.send(messages([1, 0, 1], "others", named=False), origins=np.arange(3))
    wire.end_round(1)
    return Transcript(store, {"ring": {"bits": 64, "fraction_bits": 32, "clip": 4096.0}})


@pytest.mark.parametrize("on_disk", [False, True])
def test_views_hold_each_bag_apart(on_disk: bool, tmp_path: Path) -> None:
    transcript = recorded(tmp_path if on_disk else None)
    view = transcript.view(Adversary(name="server", corrupt=frozenset({"server"})))
    assert view.bags(1) == ("others", "users", "users-2")
    assert view.rounds(Step.BAG) == view.payload_rounds(Step.BAG) == (1,)
    for bag, lengths, width in (("users", [2, 0, 1], 2), ("users-2", [1, 1, 1], 3)):
        found = view.messages(Step.BAG, 1, payload=True, bag=bag)
        block = found.payload
        assert isinstance(block, SetBlock) and block.values is not None
        assert found.bag == bag and block.lengths.tolist() == lengths
        assert block.values.shape == (sum(lengths), width)
        bare = view.messages(Step.BAG, 1, bag=bag).payload
        assert isinstance(bare, SetBlock) and bare.values is None
        assert bare.lengths.tolist() == lengths
    anonymous = view.messages(Step.BAG, 1, payload=True, bag="others")
    assert anonymous.senders.ids.tolist() == [-1, -1, -1]
    assert isinstance(anonymous.payload, SetBlock) and anonymous.tags is not None
    assert sorted(anonymous.payload.lengths.tolist()) == [0, 1, 1]
    assert np.all(anonymous.tags[1:] > anonymous.tags[:-1])
    assert transcript.digest() == recorded(None).digest()


def test_views_ask_for_a_bag_and_get_their_own() -> None:
    transcript = recorded(None)
    client = transcript.view(Adversary(name="one", corrupt=frozenset({"client:2"})))
    mine = client.messages(Step.BAG, 1, bag="users")
    assert mine.senders.ids.tolist() == [2]
    assert len(client.messages(Step.BAG, 1, bag="others")) == 0  # nobody's cells
    with pytest.raises(TranscriptError, match="those of one bag"):
        client.messages(Step.BAG, 1)
    with pytest.raises(TranscriptError, match="those of one bag"):
        client.messages(Step.UPLOAD, 1, bag="users")
    with pytest.raises(TranscriptError, match=r"no message of step BAG\.ABSENT"):
        client.messages(Step.BAG, 1, bag="absent")
    denoiser = transcript.view(Adversary(name="d", corrupt=frozenset({"denoiser:0"})))
    with pytest.raises(TranscriptError, match="saw no message"):
        denoiser.bags(1)
    tap = transcript.view(Adversary(name="tap", taps=frozenset({"network"})))
    senders, _, sizes = tap.traffic(1)[Step.BAG]
    assert len(senders) == 9 and sizes.sum() == 900 + 7 + 6 + 4


def test_payloads_of_other_rounds_are_not_kept() -> None:
    transcript = recorded(None, keep=())
    view = transcript.view(Adversary(name="server", corrupt=frozenset({"server"})))
    assert view.rounds(Step.BAG) == (1,)
    assert view.payload_rounds(Step.BAG) == ()
    with pytest.raises(TranscriptError, match="no payload"):
        view.messages(Step.BAG, 1, payload=True, bag="users")
    assert transcript.digest() != recorded(None).digest()
