"""Messages in pieces: one encoding, put together whole, and no sender keeps others' out."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.routing import Endpoint, address_of, send
from secure_fedrec.protection.routing.endpoint import MAX_PIECES, MAX_UNFINISHED_BYTES
from secure_fedrec.protection.routing.fragments import (
    FRAGMENT_HEADER_BYTES,
    Fragment,
    Kind,
    Reassembler,
    cut,
    decode_fragment,
    encode_fragment,
)
from secure_fedrec.protection.routing.onions import wrap

Build = Callable[..., Any]

fragments = st.builds(
    lambda message, capacity, place: (cut(message, capacity), capacity, place),
    st.binary(max_size=200),
    st.integers(1, 64),
    st.integers(0, 10**6),
)


@settings(deadline=None)
@given(fragments, st.randoms(use_true_random=False))
def test_cut_and_put_together(drawn: tuple[list[Fragment], int, int], order: Any) -> None:
    pieces, capacity, _ = drawn
    whole = b"".join(piece.payload for piece in pieces)
    order.shuffle(pieces)
    reassembler = Reassembler(2**20, max_pieces=200)
    results = []
    for piece in pieces:
        data = encode_fragment(piece, capacity)
        assert decode_fragment(data, capacity) == piece
        results.append(reassembler.add(decode_fragment(data, capacity), capacity))
    assert results == [None] * (len(pieces) - 1) + [whole]
    assert reassembler.unfinished == 0


@settings(deadline=None)
@given(fragments, st.integers(1, 255))
def test_a_fragment_has_one_encoding(drawn: tuple[list[Fragment], int, int], change: int) -> None:
    pieces, capacity, place = drawn
    data = bytearray(encode_fragment(pieces[place % len(pieces)], capacity))
    data[place % len(data)] ^= change
    try:
        read = decode_fragment(bytes(data), capacity)
    except WireError:
        return
    assert encode_fragment(read, capacity) == bytes(data)


def test_reassembly_is_bounded_and_consistent() -> None:
    piece_bytes = FRAGMENT_HEADER_BYTES + 10
    reassembler = Reassembler(4 * piece_bytes, max_pieces=9)
    one, two = cut(bytes(range(45)), 10), cut(bytes(40), 10)
    for piece in one[1:]:  # the last piece is shorter, which leaves no room for a whole one
        assert reassembler.add(piece, 10) is None
    with pytest.raises(ProtocolError, match=f"more than {4 * piece_bytes} bytes"):
        reassembler.add(two[0], 10)
    assert reassembler.unfinished == 1  # what was refused was not begun
    for count in (1, 3):
        other = Fragment(
            kind=Kind.DATA, message=one[0].message, index=0, count=count, payload=bytes(10)
        )
        with pytest.raises(ProtocolError, match="disagree"):
            reassembler.add(other, 10)
    with pytest.raises(ProtocolError, match="came twice"):
        reassembler.add(one[1], 10)
    # Messages of one piece need no room, nor does the piece that makes a message whole.
    (single,) = cut(b"single", 10)
    assert reassembler.add(single, 10) == b"single"
    assert reassembler.add(one[0], 10) == bytes(range(45))
    for piece in two[:-1]:
        assert reassembler.add(piece, 10) is None  # room again
    assert reassembler.add(two[-1], 10) == bytes(40)
    for piece in cut(bytes(50), 10)[:-1]:
        assert reassembler.add(piece, 10) is None  # all of it


def test_room_is_taken_by_pieces_that_came_not_by_those_declared() -> None:
    reassembler = Reassembler(100 * (FRAGMENT_HEADER_BYTES + 10), max_pieces=101)
    for number in range(100):
        begun = Fragment(
            kind=Kind.DATA, message=bytes([number]) * 16, index=0, count=101, payload=bytes(10)
        )
        assert reassembler.add(begun, 10) is None
    assert reassembler.unfinished == 100


@pytest.mark.parametrize(
    ("limit", "max_pieces"), [(2**20, 3), (2 * (FRAGMENT_HEADER_BYTES + 10), 2**32 - 1)]
)
def test_messages_of_too_many_pieces_are_refused_at_once(limit: int, max_pieces: int) -> None:
    reassembler = Reassembler(limit, max_pieces=max_pieces)
    three, four = cut(bytes(30), 10), cut(bytes(31), 10)
    for piece in four:
        with pytest.raises(ProtocolError, match="a message of 4 fragments; at most 3 may be"):
            reassembler.add(piece, 10)
    assert reassembler.unfinished == 0
    assert [reassembler.add(piece, 10) for piece in three] == [None, None, bytes(30)]


@pytest.mark.claim("routing-batches")
def test_one_anonymous_cell_keeps_no_other_message_out(build: Build) -> None:
    network = build(layers=1)
    directory, end = network.directory, network.ends[0]
    capacity = network.config.capacity

    def arriving(piece: Fragment) -> bytes:
        cells = [wrap(piece, path=(0,), recipient=0, directory=directory)]
        cells += send([], recipient=1, cells=1, directory=directory)
        (cell,) = [cell for cell in network.carry(cells) if address_of(cell).node == 0]
        return bytes(cell)

    def first_of(count: int) -> Fragment:
        name = count.to_bytes(16, "big")
        return Fragment(kind=Kind.DATA, message=name, index=0, count=count, payload=bytes(capacity))

    for count in (MAX_UNFINISHED_BYTES // capacity, 2**32 - 1):
        with pytest.raises(ProtocolError, match="at most 65536 may be"):
            end.receive(arriving(first_of(count)))
    for count in range(MAX_PIECES - 9, MAX_PIECES + 1):  # declare many times the limit
        assert end.receive(arriving(first_of(count))) is None
    for message in (b"one cell", bytes(3 * capacity)):
        cells = send([message], recipient=0, cells=4, directory=directory)
        assert network.deliver(network.carry(cells)) == [(0, message)]
    assert end.forget_unfinished() == 10


def test_an_endpoint_takes_as_many_pieces_as_it_was_told(build: Build) -> None:
    network = build(layers=1)
    end = Endpoint(layers=1, index=0, max_pieces=2)
    end.rotate(network.directory, network.keys[1][0])
    message = bytes(2 * network.config.capacity)
    for forgotten in range(2):  # the bound outlives what was given up
        cells = send([message], recipient=0, cells=2, directory=network.directory)
        assert sorted(str(end.receive(cell)) for cell in network.carry(cells)) == sorted(
            [str(message), "None"]
        )
        cells = send([message + b"x"], recipient=0, cells=3, directory=network.directory)
        for cell in network.carry(cells):
            with pytest.raises(ProtocolError, match="a message of 3 fragments; at most 2"):
                end.receive(cell)
        assert end.forget_unfinished() == 0, forgotten
    for wrong in (0, 2**32):
        with pytest.raises(ConfigError) as refusal:
            Endpoint(layers=1, index=0, max_pieces=wrong)
        assert refusal.value.key == "routing.max_pieces"
