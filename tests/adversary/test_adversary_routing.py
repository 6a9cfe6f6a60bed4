"""Tagging, replaying and flooding a mix network: what succeeds on a weakened one fails on ours.

The weakened network is onion encryption without authentication and without a replay cache: X25519
and HKDF per hop, AES-CTR around, and a batch shuffle. The adversary sees all lines, and is the
recipient; its aim is to find which of the messages it received came from one sender.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.routing import (
    Directory,
    Endpoint,
    MixNode,
    OpeningKey,
    RoutingConfig,
    address_of,
    send,
)

SENDERS = 12
MESSAGE = 100


def keystream(shared: bytes, size: int) -> bytes:
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"weak").derive(shared)
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def weak_wrap(message: bytes, keys: list[X25519PublicKey]) -> bytes:
    for public in reversed(keys):
        mine = X25519PrivateKey.generate()
        stream = keystream(mine.exchange(public), len(message))
        message = mine.public_key().public_bytes_raw() + xor(message, stream)
    return message


@dataclass
class WeakMix:
    """No tag, no cache, right batch shuffle."""

    key: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    pool: list[bytes] = field(default_factory=list)

    def receive(self, cell: bytes) -> None:
        shared = self.key.exchange(X25519PublicKey.from_public_bytes(cell[:32]))
        self.pool.append(xor(cell[32:], keystream(shared, len(cell) - 32)))

    def flush(self) -> list[bytes]:
        out, self.pool = self.pool, []
        secrets.SystemRandom().shuffle(out)
        return out


@dataclass
class WeakNetwork:
    mixes: list[WeakMix] = field(default_factory=lambda: [WeakMix() for _ in range(3)])

    def wrap(self, message: bytes) -> bytes:
        return weak_wrap(message, [mix.key.public_key() for mix in self.mixes])

    def carry(self, cells: list[bytes]) -> list[bytes]:
        """Messages as the recipient finds them."""
        for mix in self.mixes:
            for cell in cells:
                mix.receive(cell)
            cells = mix.flush()
        return cells


class OurNetwork:
    def __init__(self) -> None:
        config = RoutingConfig(layers=3, cell_bytes=512, min_batch=2)
        keys = [[OpeningKey.generate(config.mechanism)] for _ in range(3)]
        ends = [OpeningKey.generate(config.mechanism) for _ in range(2)]
        self.directory = Directory(
            config=config,
            epoch=0,
            mixes=tuple((key.public,) for (key,) in keys),
            recipients=tuple(key.public for key in ends),
        )
        self.mixes = [MixNode(layer=layer, node=0) for layer in range(3)]
        self.ends = [Endpoint(layers=3, index=index) for index in range(2)]
        for mix, (key,) in zip(self.mixes, keys, strict=True):
            mix.rotate(self.directory, key)
        for end, key in zip(self.ends, ends, strict=True):
            end.rotate(self.directory, key)
        self.refused: list[str] = []

    def wrap(self, message: bytes) -> bytes:
        return send([message], recipient=0, cells=1, directory=self.directory)[0]

    def carry(self, cells: list[bytes]) -> list[bytes]:
        for mix in self.mixes:
            for cell in cells:
                try:
                    mix.receive(cell)
                except ProtocolError as refusal:
                    self.refused.append(str(refusal))
            cells = mix.flush()
        found = []
        for cell in cells:
            message = self.ends[address_of(cell).node].receive(cell)
            if message is not None:
                found.append(message)
        return found


Network = WeakNetwork | OurNetwork
NETWORKS: list[Callable[[], Network]] = [WeakNetwork, OurNetwork]


def sent(network: Network) -> tuple[list[bytes], list[bytes]]:
    """A message of each sender, and its cell on the first line."""
    messages = [secrets.token_bytes(16) + bytes(MESSAGE - 16) for _ in range(SENDERS)]
    return messages, [network.wrap(message) for message in messages]


def tag(cell: bytes) -> bytes:
    """One bit of the innermost payload, near the end of the cell."""
    changed = bytearray(cell)
    changed[-40] ^= 0x10
    return bytes(changed)


def found_by_tagging(network: Network) -> bytes | None:
    """Tag the first sender's cell, and look for the one message whose zeros are disturbed."""
    _, cells = sent(network)
    arrived = network.carry([tag(cells[0]), *cells[1:]])
    disturbed = [message for message in arrived if any(message[16:])]
    return disturbed[0][:16] if len(disturbed) == 1 else None


def found_by_replay(network: Network) -> bytes | None:
    """Send the first sender's cell again later, and look for the message that comes again."""
    _, cells = sent(network)
    first = set(network.carry(cells))
    _, later = sent(network)
    again = [message for message in network.carry([cells[0], *later]) if message in first]
    return again[0][:16] if len(again) == 1 else None


def test_tagging_finds_the_message_on_the_weakened_network() -> None:
    network = WeakNetwork()
    messages, cells = sent(network)
    arrived = network.carry([tag(cells[0]), *cells[1:]])
    disturbed = [message for message in arrived if any(message[16:])]
    assert [message[:16] for message in disturbed] == [messages[0][:16]]
    assert found_by_tagging(WeakNetwork()) is not None


@pytest.mark.claim("routing-refuses-tagged")
def test_tagging_is_refused_at_the_first_honest_mix() -> None:
    network = OurNetwork()
    assert found_by_tagging(network) is None
    assert network.refused == ["cell refused: fails authentication"]


def test_replay_finds_the_message_on_the_weakened_network() -> None:
    assert found_by_replay(WeakNetwork()) is not None


@pytest.mark.claim("routing-refuses-tagged")
def test_replay_is_refused() -> None:
    network = OurNetwork()
    assert found_by_replay(network) is None
    assert network.refused == ["cell refused: replayed"]


@pytest.mark.parametrize("layer", [1, 2])
def test_tagging_behind_a_corrupt_mix_is_refused_at_the_next(layer: int) -> None:
    network = OurNetwork()
    _, cells = sent(network)
    for mix in network.mixes[:layer]:
        for cell in cells:
            mix.receive(cell)
        cells = mix.flush()
    with pytest.raises(ProtocolError, match="fails authentication"):
        network.mixes[layer].receive(tag(cells[0]))


def test_tagging_by_the_last_mix_is_refused_by_the_recipient() -> None:
    network = OurNetwork()
    _, cells = sent(network)
    for mix in network.mixes:
        for cell in cells:
            mix.receive(cell)
        cells = mix.flush()
    with pytest.raises(ProtocolError, match="fails authentication"):
        network.ends[0].receive(tag(cells[0]))


def test_the_position_in_a_batch_says_nothing_and_did_without_shuffling() -> None:
    def places(shuffle: bool) -> list[int]:
        found = []
        for _ in range(40):
            network = OurNetwork()
            messages, cells = sent(network)
            if shuffle:
                found.append(network.carry(cells).index(messages[0]))
                continue
            for mix in network.mixes:  # a copy that forwards in the order of arrival
                for cell in cells:
                    mix.receive(cell)
                cells = mix._pools[0]
                mix._pools[0] = []
            received = [network.ends[0].receive(cell) for cell in cells]
            found.append(received.index(messages[0]))
        return found

    assert set(places(shuffle=False)) == {0}
    # All 40 in one place: probability 12^-39; more than 20 in one place: below 1e-12.
    seen = places(shuffle=True)
    assert max(seen.count(place) for place in set(seen)) <= 20


@pytest.mark.claim("routing-refuses-tagged")
def test_a_flood_that_keeps_others_out_is_shown_by_loops() -> None:
    # The adversary holds back all cells but the victim's and fills the batch itself (n - 1 attack).
    # It cannot tell the victim's loops from its messages, so it holds back loops, too.
    network = OurNetwork()
    victim = network.wrap(b"victim")
    loops = [network.ends[1].loop() for _ in range(5)]
    held_back = loops
    own = [network.wrap(b"own") for _ in range(11)]
    arrived = network.carry([victim, *own])
    assert sorted(set(arrived)) == [b"own", b"victim"]  # the flood isolates the victim
    with pytest.raises(ProtocolError, match="5 loops did not return"):
        network.ends[1].require_loops()
    network.carry(held_back)
    network.ends[1].require_loops()
