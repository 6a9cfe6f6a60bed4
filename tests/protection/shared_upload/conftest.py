"""All halves of a round, with real keys and real bytes, and losses where a test wants them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import BoolArray, IndexArray, RingArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.shared_upload import (
    RoundContext,
    Shared,
    SharingClient,
    SharingDenoiser,
    SharingServer,
)
from secure_fedrec.protection.shared_upload.real import Identities
from secure_fedrec.uploads import Aggregate

WIDTH = 2


@cache
def identities(clients: int, denoisers: int) -> Identities:
    return Identities.draw(clients=clients, denoisers=denoisers)


@dataclass
class Round:
    """A round with all of its parties."""

    context: RoundContext
    keys: Identities
    clients: list[SharingClient] = field(init=False)
    denoisers: list[SharingDenoiser] = field(init=False)
    server: SharingServer = field(init=False)

    def __post_init__(self) -> None:
        self.clients = [SharingClient(self.context, n, k) for n, k in enumerate(self.keys.clients)]
        self.denoisers = [
            SharingDenoiser(self.context, n, k) for n, k in enumerate(self.keys.denoisers)
        ]
        self.server = SharingServer(self.context, self.keys.server)

    def share(self, client: int, rows: IndexArray, words: RingArray, rated: BoolArray) -> Shared:
        """The client half, with the denoisers' keys."""
        self.clients[client].accept([denoiser.advertise() for denoiser in self.denoisers])
        return self.clients[client].share(rows, words, rated)

    def deliver(self, shared: Shared, *, lost: frozenset[int] = frozenset()) -> None:
        """Hand over a client's messages but those lost: -1 is the server's, k denoiser k's."""
        if -1 not in lost:
            self.server.receive(shared.server)
        for number, message in enumerate(shared.denoisers):
            if number not in lost:
                self.denoisers[number].receive(message)

    def upload(self, client: int, seed: int = 0, **changes: Any) -> Shared:
        """Share and deliver a random upload."""
        shared = self.share(client, *rows_of(self.context, seed=seed * 1000 + client))
        self.deliver(shared, **changes)
        return shared

    def agree(self) -> bytes:
        """From the lists of the denoisers to the agreement."""
        proposal = self.server.propose([denoiser.hold() for denoiser in self.denoisers])
        return self.server.agree([denoiser.consent(proposal) for denoiser in self.denoisers])

    def close(self) -> Aggregate:
        """Agree, release, add up."""
        agreement = self.agree()
        return self.server.finish([denoiser.release(agreement) for denoiser in self.denoisers])


def rows_of(
    context: RoundContext, *, seed: int, fakes: bool = True
) -> tuple[IndexArray, RingArray, BoolArray]:
    """Random rows, their words within the clip, and which are rated."""
    rng = np.random.default_rng(seed)
    chosen = rng.random(context.n_items) < 0.7
    rows = np.flatnonzero(chosen).astype(np.int32)
    limit = context.codec.largest
    integers = rng.integers(-limit, limit, (len(rows), context.width), endpoint=True)
    rated = rng.random(len(rows)) < 0.5 if fakes else np.ones(len(rows), dtype=bool)
    return rows, context.codec.from_integers(integers), rated


def round_of(
    *,
    clients: int = 4,
    denoisers: int = 2,
    bits: int = 32,
    floor: int = 2,
    number: int = 1,
    kem: str = "x25519",
    n_items: int = 7,
    width: int = WIDTH,
    round_id: bytes = bytes(16),
) -> Round:
    keys = identities(clients, denoisers)
    context = RoundContext(
        codec=FixedPoint(bits=bits, fraction_bits=2, clip=1.0),
        n_items=n_items,
        width=width,
        floor=floor,
        roster=keys.roster,
        round=number,
        round_id=round_id,
        kem=kem,
    )
    return Round(context, keys)


@pytest.fixture(scope="session")
def begin() -> Callable[..., Round]:
    """Begins a round."""
    return round_of


@pytest.fixture(scope="session")
def draw_rows() -> Callable[..., Any]:
    """Draws an upload."""
    return rows_of
