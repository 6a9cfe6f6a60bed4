"""Messages arrive, whole and once; what is public about cells is the same for all of them."""

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.routing import (
    RoutingConfig,
    address_of,
    cells_needed,
    endpoint,
    send,
)

Build = Callable[..., Any]
SMALL = 1e-6


@pytest.mark.parametrize("kem", ["x25519", "mlkem768-x25519"])
@pytest.mark.parametrize(("layers", "width"), [(1, 1), (2, 3), (3, 1), (5, 2)])
def test_messages_arrive_whole_and_once(build: Build, kem: str, layers: int, width: int) -> None:
    network = build(
        layers=layers, width=width, kem=kem, cell_bytes=8192 if kem == "mlkem768-x25519" else 700
    )
    capacity = network.config.capacity
    rng = np.random.default_rng(layers)
    to_first = [rng.bytes(size) for size in (0, 1, capacity - 1, capacity, capacity + 1)]
    to_second = [rng.bytes(5 * capacity + 3)]
    cells = send(to_first, recipient=0, cells=40, directory=network.directory)
    cells += send(to_second, recipient=1, cells=40, directory=network.directory)
    arrived = network.deliver(network.carry(cells))
    assert sorted(arrived) == sorted([(0, part) for part in to_first] + [(1, to_second[0])])
    for end in network.ends:
        end.require_whole()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=900), max_size=4), st.integers(0, 3))
def test_any_messages_fill_the_public_number_of_cells(
    build: Build, messages: list[bytes], spare: int
) -> None:
    network = build(cell_bytes=600)
    needed = cells_needed(messages, network.config.capacity)
    total = max(2, needed + spare)
    cells = send(messages, recipient=0, cells=total, directory=network.directory)
    assert len(cells) == total
    arrived = network.deliver(network.carry(cells))
    assert sorted(message for _, message in arrived) == sorted(messages)


def test_more_than_the_public_number_of_cells_is_refused(build: Build) -> None:
    network = build()
    message = bytes(3 * network.config.capacity + 1)
    with pytest.raises(ConfigError, match="fill 4") as refusal:
        send([message], recipient=0, cells=3, directory=network.directory)
    assert refusal.value.key == "routing.cells"
    assert len(send([message], recipient=0, cells=4, directory=network.directory)) == 4


@pytest.mark.parametrize("kem", ["x25519", "mlkem768-x25519"])
def test_all_cells_at_a_position_have_one_size(build: Build, kem: str) -> None:
    network = build(width=2, kem=kem, cell_bytes=8192, ends=3)
    config, directory = network.config, network.directory
    cells = send([b"short", bytes(9000)], recipient=0, cells=9, directory=directory)
    cells += send([], recipient=1, cells=9, directory=directory)
    cells += [network.ends[2].loop() for _ in range(9)]
    for layer, mixes in enumerate(network.mixes):
        assert {len(cell) for cell in cells} == {config.size_at(layer)}
        assert {address_of(cell).layer for cell in cells} == {layer}
        for cell in cells:
            mixes[address_of(cell).node].receive(cell)
        cells = [cell for mix in mixes for cell in mix.flush()]
    assert {len(cell) for cell in cells} == {config.size_at(config.layers)}
    assert config.size_at(0) == 8192
    network.deliver(cells)
    assert network.ends[2].loops_out == 0


def test_the_default_cell_carries_nearly_its_size() -> None:
    config = RoutingConfig()
    assert config.size_at(0) == 65536
    assert 1 - config.capacity / 65536 < 0.005


def test_data_and_dummy_cells_are_uniform_bytes_alike(build: Build) -> None:
    network = build(cell_bytes=4096)
    for messages in ([bytes(3000)], []):  # a message of zeros, and no message
        cells = send(messages * 20, recipient=0, cells=20, directory=network.directory)
        body = np.frombuffer(b"".join(cell[8 + 32 :] for cell in cells), np.uint8)
        assert chisquare(np.bincount(body, minlength=256)).pvalue > SMALL
        headers = {cell[:8] for cell in cells}
        assert len(headers) == 1


def test_paths_are_drawn_over_all_mixes(build: Build) -> None:
    network = build(width=4, min_batch=2)
    seen: list[Counter[int]] = [Counter(), Counter(), Counter()]
    cells = send([], recipient=0, cells=400, directory=network.directory)
    for layer, mixes in enumerate(network.mixes):
        for cell in cells:
            seen[layer][address_of(cell).node] += 1
            mixes[address_of(cell).node].receive(cell)
        cells = [cell for mix in mixes for cell in mix.flush()]
    for counter in seen:
        assert chisquare([counter[node] for node in range(4)]).pvalue > SMALL


def test_a_batch_leaves_in_a_uniformly_random_order(build: Build) -> None:
    network = build(layers=1, cell_bytes=200, min_batch=4)
    (mix,), end = network.mixes[0], network.ends[0]
    orders: Counter[tuple[int, ...]] = Counter()
    for _ in range(1200):
        for number in range(4):
            (cell,) = send([bytes([number])], recipient=0, cells=1, directory=network.directory)
            mix.receive(cell)
        orders[tuple(end.receive(cell)[0] for cell in mix.flush())] += 1
    counts = [orders[order] for order in permutations(range(4))]
    assert sum(counts) == 1200
    assert chisquare(counts).pvalue > SMALL


def test_the_order_in_which_a_sender_hands_in_cells_hides_its_dummies(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "wrap", lambda piece, **_: bytes([piece.kind]))
    directory = build().directory
    places: Counter[int] = Counter()
    for _ in range(2000):
        cells = send([b"x"], recipient=0, cells=8, directory=directory)
        assert sorted(cells) == [b"\1"] + 7 * [b"\2"]
        places[cells.index(b"\1")] += 1
    assert chisquare([places[place] for place in range(8)]).pvalue > SMALL


@pytest.mark.claim("routing-batches")
def test_small_batches_wait(build: Build) -> None:
    network = build(min_batch=5)
    mix = network.mixes[0][0]
    cells = send([b"x"], recipient=0, cells=5, directory=network.directory)
    for cell in cells[:4]:
        mix.receive(cell)
        assert not mix.ready
        with pytest.raises(ProtocolError, match="fewer than the smallest batch"):
            mix.flush()
    mix.receive(cells[4])
    assert mix.ready
    assert len(mix.flush()) == 5
    assert mix.waiting == 0


def test_loops_return_to_their_sender_and_show_dropped_cells(build: Build) -> None:
    network = build(ends=3)
    end = network.ends[2]
    loops = [end.loop() for _ in range(6)]
    others = send([b"hello"], recipient=0, cells=6, directory=network.directory)
    assert network.deliver(network.carry(loops[:4] + others)) == [(0, b"hello")]
    assert end.loops_out == 2
    with pytest.raises(ProtocolError, match="2 loops did not return"):
        end.require_loops()
    network.deliver(network.carry(loops[4:]))
    end.require_loops()


def test_a_message_that_misses_a_cell_is_never_delivered(build: Build) -> None:
    network = build()
    message = bytes(4 * network.config.capacity)
    cells = send([message], recipient=0, cells=4, directory=network.directory)
    assert network.deliver(network.carry(cells[1:])) == []
    with pytest.raises(ProtocolError, match="1 messages miss a fragment"):
        network.ends[0].require_whole()
    with pytest.raises(ProtocolError, match="fewer than the smallest batch"):
        network.carry(cells[:1])
    filler = send([], recipient=1, cells=1, directory=network.directory)
    arrived = network.deliver(network.carry(filler))
    assert arrived == [(0, message)]


def test_unfinished_messages_can_be_given_up(build: Build) -> None:
    network = build()
    message = bytes(3 * network.config.capacity)
    cells = send([message], recipient=0, cells=3, directory=network.directory)
    network.deliver(network.carry(cells[:2]))
    assert network.ends[0].forget_unfinished() == 1
    network.ends[0].require_whole()
    late = [cells[2], *send([b"x"], recipient=0, cells=1, directory=network.directory)]
    assert network.deliver(network.carry(late)) == [(0, b"x")]
    assert network.ends[0].forget_unfinished() == 1  # the last piece, alone


def test_cells_of_two_epochs_are_not_mixed_together(build: Build) -> None:
    network = build(min_batch=3)
    mix = network.mixes[0][0]
    old = send([b"old"], recipient=0, cells=3, directory=network.directory)
    network.rotate()
    new = send([b"new"], recipient=0, cells=2, directory=network.directory)
    for cell in (*old, *new):  # the old keys are still in force
        mix.receive(cell)
    assert {address_of(cell).epoch for cell in mix.flush()} == {0}
    assert mix.waiting == 2
    with pytest.raises(ProtocolError, match="wait; flush them first"):
        mix.retire(1)
    mix.retire(0)
    with pytest.raises(ProtocolError, match="no key of epoch 0"):
        mix.receive(send([], recipient=0, cells=1, directory=network.directory)[0][:4] + bytes(4))
