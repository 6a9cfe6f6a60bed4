"""A whole mix network in memory, with real keys."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from secure_fedrec.protection.routing import (
    Directory,
    Endpoint,
    MixNode,
    OpeningKey,
    RoutingConfig,
    address_of,
)


@dataclass
class Network:
    """All nodes of a network and the keys of its newest epoch."""

    config: RoutingConfig
    width: int
    mixes: list[list[MixNode]]
    ends: list[Endpoint]
    directory: Directory
    keys: list[list[OpeningKey]]

    def rotate(self) -> None:
        """Everybody takes fresh keys for the next epoch."""
        self.directory, self.keys = directory_of(
            self.config, self.width, len(self.ends), self.directory.epoch + 1
        )
        self.install()

    def install(self) -> None:
        nodes: list[list[Any]] = [*self.mixes, self.ends]
        for group, keys in zip(nodes, self.keys, strict=True):
            for node, key in zip(group, keys, strict=True):
                node.rotate(self.directory, key)

    def carry(self, cells: Iterable[bytes]) -> list[bytes]:
        """Pass cells through all layers of mixes; what reaches the recipients."""
        travelling = list(cells)
        for layer in self.mixes:
            for cell in travelling:
                layer[address_of(cell).node].receive(cell)
            travelling = [cell for node in layer if node.waiting for cell in node.flush()]
        return travelling

    def deliver(self, cells: Iterable[bytes]) -> list[tuple[int, bytes]]:
        """Hand cells to the recipients: (recipient, message) of all that became whole."""
        whole = []
        for cell in cells:
            node = address_of(cell).node
            message = self.ends[node].receive(cell)
            if message is not None:
                whole.append((node, message))
        return whole


def directory_of(
    config: RoutingConfig, width: int, ends: int, epoch: int
) -> tuple[Directory, list[list[OpeningKey]]]:
    groups = [width] * config.layers + [ends]
    keys = [[OpeningKey.generate(config.mechanism) for _ in range(size)] for size in groups]
    *mixes, recipients = [tuple(key.public for key in group) for group in keys]
    directory = Directory(config=config, epoch=epoch, mixes=tuple(mixes), recipients=recipients)
    return directory, keys


def network_of(
    *,
    layers: int = 3,
    cell_bytes: int = 1024,
    kem: str = "x25519",
    min_batch: int = 2,
    width: int = 1,
    ends: int = 2,
) -> Network:
    config = RoutingConfig(layers=layers, cell_bytes=cell_bytes, kem=kem, min_batch=min_batch)
    directory, keys = directory_of(config, width, ends, 0)
    network = Network(
        config=config,
        width=width,
        mixes=[[MixNode(layer=at, node=n) for n in range(width)] for at in range(layers)],
        ends=[Endpoint(layers=layers, index=index) for index in range(ends)],
        directory=directory,
        keys=keys,
    )
    network.install()
    return network


@pytest.fixture(scope="session")
def build() -> Callable[..., Network]:
    """Builds a network."""
    return network_of
