"""All parties of a small linkage-hardened round, with real keys and a real mix cascade."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.linkage_hardened import (
    LinkageClient,
    LinkageDenoiser,
    LinkageServer,
)
from secure_fedrec.protection.routing import RoutingConfig, address_of
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.protection.shared_upload import RoundContext
from secure_fedrec.protection.shared_upload.real import Identities

CELLS, CLIENTS, ITEMS = 6, 3, 6
BATCH = 2 * CELLS * 2
"""Cells of two clients to two denoisers."""


@cache
def identities() -> Identities:
    return Identities.draw(clients=CLIENTS, denoisers=2)


def context_of(*, number: int = 1, bits: int = 32, floor: int = 2) -> RoundContext:
    return RoundContext(
        codec=FixedPoint(bits=bits, fraction_bits=2, clip=4.0),
        n_items=ITEMS,
        width=2,
        floor=floor,
        roster=identities().roster,
        round=number,
        round_id=number.to_bytes(16, "little"),
    )


def rows_of(context: RoundContext, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(rng.random(ITEMS) < 0.8).astype(np.int32)
    limit = context.codec.largest
    words = context.codec.from_integers(rng.integers(-limit, limit, (len(rows), 2)))
    return rows, words, rng.random(len(rows)) < 0.5


class Round:
    """Every party of a round, with cells that wait to be mixed."""

    context_of = staticmethod(context_of)
    rows_of = staticmethod(rows_of)
    identities = staticmethod(identities)

    def __init__(self, *, bits: int = 32, number: int = 1, floor: int = 2) -> None:
        self.context = context_of(bits=bits, number=number, floor=floor)
        config = RoutingConfig(layers=2, cell_bytes=512, min_batch=BATCH)
        self.network = MixNetwork.start(config, recipients=2, epoch=number, max_pieces=1)
        keys = identities()
        self.server = LinkageServer(self.context, cells=CELLS)
        self.denoisers = [
            LinkageDenoiser(self.context, n, key, endpoint=self.network.ends[n], cells=CELLS)
            for n, key in enumerate(keys.denoisers)
        ]
        self.cells: list[bytes] = []
        self.truth: list[tuple[int, Any]] = []

    def client(self, number: int) -> LinkageClient:
        return LinkageClient(
            self.context,
            number,
            identities().clients[number],
            directory=self.network.directory,
            cells=CELLS,
        )

    def upload(self, number: int, seed: int = 0) -> Any:
        rows, words, virtual = rows_of(self.context, 100 * seed + number)
        sent = self.client(number).send(rows, words, virtual)
        self.server.receive(sent.upload)
        self.cells += sent.cells
        real = zip(rows[~virtual].tolist(), words[~virtual], strict=True)
        self.truth += list(real)
        return sent

    def mix(self) -> list[bytes]:
        return self.network.carry(self.cells)

    def deliver(self, arriving: list[bytes]) -> None:
        for cell in arriving:
            self.denoisers[address_of(cell).node].receive(cell)

    def close(self) -> Any:
        sets = [denoiser.close() for denoiser in self.denoisers]
        return self.server.finish([denoiser.release(sets) for denoiser in self.denoisers])

    def expected(self) -> tuple[list[list[int]], list[int]]:
        sums = np.zeros((ITEMS, 2), dtype=np.int64)
        counts = np.zeros(ITEMS, dtype=np.int64)
        for row, words in self.truth:
            sums[row] += self.context.codec.to_integers(words)
            counts[row] += 1
        return sums.tolist(), counts.tolist()


@pytest.fixture(scope="session")
def new_round() -> type[Round]:
    """Begins a round."""
    return Round
