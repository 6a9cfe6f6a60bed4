"""What nodes and formats refuse, by name, and that a refusal changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.routing import (
    KEMS,
    Directory,
    Endpoint,
    MixNode,
    OpeningKey,
    RoutingConfig,
    SealingKey,
    send,
)
from secure_fedrec.protection.routing import onions as onions_module
from secure_fedrec.protection.routing.fragments import (
    Kind,
    cover,
    cut,
    encode_fragment,
)
from secure_fedrec.protection.routing.onions import CellOpener, wrap
from secure_fedrec.protection.routing.sealing import labelled

Build = Callable[..., Any]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"layers": 0}, "routing.layers"),
        ({"layers": 17}, "routing.layers"),
        ({"kem": "p256"}, "routing.kem"),
        ({"min_batch": 1}, "routing.min_batch"),
        ({"cell_bytes": 200}, "routing.cell_bytes"),
        ({"cell_bytes": 2**24 + 1}, "routing.cell_bytes"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        RoutingConfig(**changes)
    assert refusal.value.key == key


@pytest.mark.parametrize("kem", sorted(KEMS))
@pytest.mark.parametrize("layers", [1, 3, 16])
def test_the_least_cell_named_by_the_refusal_carries_one_byte(kem: str, layers: int) -> None:
    with pytest.raises(ConfigError) as refusal:
        RoutingConfig(cell_bytes=1, kem=kem, layers=layers)
    least = int(refusal.value.problem.split()[3])
    assert RoutingConfig(cell_bytes=least, kem=kem, layers=layers).capacity == 1
    with pytest.raises(ConfigError):
        RoutingConfig(cell_bytes=least - 1, kem=kem, layers=layers)


def test_every_bit_of_a_cell_counts(build: Build) -> None:
    network = build(cell_bytes=320, layers=2)
    mix = network.mixes[0][0]
    cells = send([b"payload"], recipient=0, cells=2, directory=network.directory)
    for bit in range(8 * len(cells[0])):
        tagged = bytearray(cells[0])
        tagged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(ProtocolError, match="cell refused"):
            mix.receive(bytes(tagged))
    assert mix.waiting == 0
    for cell in cells:  # the originals are still accepted
        mix.receive(cell)
    assert mix.waiting == 2


@pytest.mark.parametrize("kem", sorted(KEMS))
def test_a_replay_is_refused_at_every_hop(build: Build, kem: str) -> None:
    network = build(kem=kem, cell_bytes=8192)
    travelling = send([b"once"], recipient=0, cells=2, directory=network.directory)
    for layer in [*network.mixes, network.ends]:
        for cell in travelling:
            layer[0].receive(cell)
            with pytest.raises(ProtocolError, match="replayed"):
                layer[0].receive(cell)
        if layer is not network.ends:
            assert layer[0].waiting == 2
            travelling = layer[0].flush()
            with pytest.raises(ProtocolError, match="fewer"):
                layer[0].flush()


def test_a_replay_with_another_ending_fails_authentication(build: Build) -> None:
    mix = (network := build()).mixes[0][0]
    cells = send([], recipient=0, cells=2, directory=network.directory)
    with pytest.raises(ProtocolError, match="fails authentication"):
        mix.receive(cells[0][:-1] + bytes([cells[0][-1] ^ 1]))
    mix.receive(cells[0])  # a forgery does not use up the original's place
    with pytest.raises(ProtocolError, match="replayed"):
        mix.receive(cells[0][:-1] + bytes([cells[0][-1] ^ 1]))
    # The key of one cell in front of the rest of another.
    head = 8 + network.config.mechanism.encapsulated_bytes
    with pytest.raises(ProtocolError, match="replayed"):
        mix.receive(cells[0][:head] + cells[1][head:])
    mix.receive(cells[1])


def test_cells_out_of_place_are_refused(build: Build) -> None:
    network = build(width=2, min_batch=2)
    cells = send([], recipient=0, cells=16, directory=network.directory)
    to_first = [cell for cell in cells if cell[2] == 0]
    with pytest.raises(ProtocolError, match="addressed to node 0 of layer 0"):
        network.mixes[0][1].receive(to_first[0])
    with pytest.raises(ProtocolError, match="addressed to node 0 of layer 0"):
        network.mixes[1][0].receive(to_first[0])
    with pytest.raises(ProtocolError, match="addressed to node 0 of layer 0"):
        network.ends[0].receive(to_first[0])
    # Rewriting the header does not help: it is bound into the seal.
    onward = bytearray(to_first[0])
    onward[2] = 1
    with pytest.raises(ProtocolError, match="fails authentication"):
        network.mixes[0][1].receive(bytes(onward))


def test_cells_of_another_epoch_are_refused(build: Build) -> None:
    network = build()
    mix = network.mixes[0][0]
    old = send([], recipient=0, cells=3, directory=network.directory)
    network.rotate()
    ahead = bytearray(old[0])
    ahead[4] = 1
    with pytest.raises(ProtocolError, match="fails authentication"):
        mix.receive(bytes(ahead))
    ahead[4] = 2
    with pytest.raises(ProtocolError, match="no key of epoch 2"):
        mix.receive(bytes(ahead))
    mix.receive(old[0])
    mix.receive(old[1])
    mix.flush()
    mix.retire(0)
    with pytest.raises(ProtocolError, match="no key of epoch 0"):
        mix.receive(old[2])


def test_a_sender_with_another_directory_is_cut_off(build: Build) -> None:
    network = build(ends=2)
    true = network.directory
    other = OpeningKey.generate(true.config.mechanism).public
    forged = Directory(
        config=true.config,
        epoch=true.epoch,
        mixes=true.mixes,
        recipients=(true.recipients[0], other),
    )
    (cell,) = send([b"x"], recipient=0, cells=1, directory=forged)
    with pytest.raises(ProtocolError, match="fails authentication"):
        network.mixes[0][0].receive(cell)


def test_keys_rotate_forward_only(build: Build) -> None:
    network = build()
    mix = network.mixes[0][0]
    directory, keys = network.directory, network.keys
    with pytest.raises(ProtocolError, match="epoch 0 does not follow epoch 0"):
        mix.rotate(directory, keys[0][0])
    network.rotate()
    mix.retire(1)
    with pytest.raises(ProtocolError, match="epoch 1 does not follow epoch 1"):
        mix.rotate(network.directory, network.keys[0][0])
    with pytest.raises(ProtocolError, match="another key"):
        MixNode(layer=0, node=0).rotate(directory, keys[1][0])
    with pytest.raises(ProtocolError, match="is not a layer of mixes"):
        MixNode(layer=3, node=0).rotate(directory, keys[3][0])
    with pytest.raises(ProtocolError, match="no node 1 in layer 0"):
        MixNode(layer=0, node=1).rotate(directory, keys[0][0])
    with pytest.raises(ProtocolError, match="no key of epoch 7"):
        mix.retire(7)
    with pytest.raises(ProtocolError, match="holds no key"):
        Endpoint(layers=3, index=0).loop()


def test_a_key_opens_a_bounded_number_of_cells(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onions_module, "CELLS_PER_KEY", 3)
    network = build()
    cells = send([], recipient=0, cells=4, directory=network.directory)
    for cell in cells[:3]:
        network.mixes[0][0].receive(cell)
    with pytest.raises(ProtocolError, match="full, rotate the key"):
        network.mixes[0][0].receive(cells[3])


@pytest.mark.parametrize("change", [-1, 1, 100])
def test_a_well_sealed_cell_of_another_size_is_refused(build: Build, change: int) -> None:
    network = build(layers=1)
    directory, mix = network.directory, network.mixes[0][0]
    key = directory.key_of(0, 0)
    size = network.config.size_at(0) - 8 - key.kem.overhead
    header = bytes([1, 0, 0, 0, 0, 0, 0, 0])
    odd = header + key.seal(bytes(size + change), directory.info(0, 0))
    with pytest.raises(ProtocolError, match="bytes instead of 1024"):
        mix.receive(odd)
    mix.receive(header + key.seal(bytes(size), directory.info(0, 0)))
    assert mix.waiting == 1


def test_a_cell_to_a_node_that_does_not_exist_is_dropped(build: Build) -> None:
    network = build(layers=1)
    directory = network.directory
    wider = build(layers=1, ends=9).directory
    with pytest.raises(ProtocolError, match="no node 8 in layer 1"):
        wrap(cover(Kind.DUMMY), path=(0,), recipient=8, directory=directory)
    with pytest.raises(ProtocolError, match="visits 1 mixes, got 2"):
        wrap(cover(Kind.DUMMY), path=(0, 0), recipient=0, directory=directory)
    inner = wrap(cover(Kind.DUMMY), path=(0,), recipient=8, directory=wider)
    assert len(inner) == network.config.size_at(0)
    key = directory.key_of(0, 0)
    bad = (200).to_bytes(2, "little") + bytes(network.config.size_at(0) - 8 - key.kem.overhead - 2)
    cell = inner[:8] + key.seal(bad, directory.info(0, 0))
    with pytest.raises(ProtocolError, match="node 200 of layer 1, which does not exist"):
        network.mixes[0][0].receive(cell)
    assert network.mixes[0][0].waiting == 0


def test_endpoints_refuse_what_is_no_fragment_and_loops_of_others(build: Build) -> None:
    network = build(layers=1)
    directory, end = network.directory, network.ends[0]
    key = directory.key_of(1, 0)
    header = bytes([1, 1, 0, 0, 0, 0, 0, 0])

    def sealed(inside: bytes) -> bytes:
        box: bytes = key.seal(inside, directory.info(1, 0))
        return header + box

    with pytest.raises(ProtocolError, match="unknown version or kind"):
        end.receive(sealed(bytes(network.config.fragment_bytes)))
    stray = encode_fragment(cover(Kind.LOOP), network.config.capacity)
    with pytest.raises(ProtocolError, match="a loop that was not sent from here"):
        end.receive(sealed(stray))
    piece = encode_fragment(cut(bytes(2000), network.config.capacity)[0], network.config.capacity)
    end.receive(sealed(piece))
    with pytest.raises(ProtocolError, match="came twice"):
        end.receive(sealed(piece))  # the same fragment under a fresh seal


@pytest.mark.parametrize("kem", sorted(KEMS))
def test_directories_have_one_encoding(build: Build, kem: str) -> None:
    directory = build(kem=kem, cell_bytes=9000, width=2, layers=2).directory
    data = directory.encode()
    again = Directory.decode(data)
    assert (again.encode(), again.digest) == (data, directory.digest)
    for cut_at in (0, 5, 20, 21, len(data) // 2, len(data) - 1):
        with pytest.raises(WireError):
            Directory.decode(data[:cut_at])
    with pytest.raises(WireError):
        Directory.decode(data + b"\0")
    for place in (0, 1, 2, 3, 8, 12):
        damaged = bytearray(data)
        damaged[place] ^= 0xFF
        try:
            read = Directory.decode(bytes(damaged))
        except WireError:
            continue
        assert read.encode() == bytes(damaged)
        assert read.digest != directory.digest


def test_directories_with_unusable_keys_are_refused(build: Build) -> None:
    directory = build().directory
    config, mixes, ends = directory.config, directory.mixes, directory.recipients

    def refused(match: str, **changes: Any) -> None:
        arguments = {"config": config, "epoch": 0, "mixes": mixes, "recipients": ends}
        with pytest.raises(WireError, match=match):
            Directory(**(arguments | changes))

    refused("2 layers of mixes, declared 3", mixes=mixes[:2])
    refused("every layer needs", recipients=())
    refused("every layer needs", mixes=(*mixes[:2], ()))
    refused("stands for two nodes", recipients=(*ends, mixes[0][0]))
    refused("32 bits", epoch=2**32)
    hybrid = OpeningKey.generate(KEMS["mlkem768-x25519"]).public
    refused("every key must be of x25519", recipients=(hybrid,))
    with pytest.raises(WireError, match="not a x25519 public key"):
        SealingKey(KEMS["x25519"], bytes(32))  # a point of small order
    with pytest.raises(WireError, match="has 1216 bytes"):
        SealingKey(KEMS["mlkem768-x25519"], bytes(32))


@given(st.lists(st.binary(max_size=5), max_size=4), st.lists(st.binary(max_size=5), max_size=4))
def test_labels_of_different_parts_differ(one: list[bytes], other: list[bytes]) -> None:
    assert (labelled(*one) == labelled(*other)) == (one == other)


@pytest.fixture(scope="module")
def network(build: Build) -> Any:
    return build()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000), st.booleans())
def test_noise_is_refused_and_nothing_else_is_raised(
    network: Any, noise: bytes, addressed: bool
) -> None:
    size = network.config.size_at(0)
    data = bytes([1, 0, 0, 0, 0, 0, 0, 0]) + noise if addressed else noise
    data = data.ljust(size, b"\7")[:size] if addressed else data
    with pytest.raises(ProtocolError, match="cell refused"):
        network.mixes[0][0].receive(data)


def test_an_opener_alone_names_the_missing_key() -> None:
    opener = CellOpener(0, 0)
    with pytest.raises(ProtocolError, match="holds no key"):
        _ = opener.directory
    with pytest.raises(ProtocolError, match="shorter than its header"):
        opener.open(b"")
    with pytest.raises(ProtocolError, match="version 9"):
        opener.open(bytes([9]) + bytes(7))
