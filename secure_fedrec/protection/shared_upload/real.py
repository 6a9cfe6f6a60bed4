"""All parties of a round in one process, with real keys, real bytes and real signatures.

For small cohorts: it shows that the halves compute what the simulation computes, to the bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import BoolArray, IndexArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.shared_upload.client import Shared, SharingClient
from secure_fedrec.protection.shared_upload.context import Roster, RoundContext
from secure_fedrec.protection.shared_upload.denoiser import SharingDenoiser
from secure_fedrec.protection.shared_upload.messages import Kind
from secure_fedrec.protection.shared_upload.server import SharingServer
from secure_fedrec.uploads import Aggregate, RowBlock

__all__ = ["Identities", "RealOutcome", "RealRound", "SharedBatch", "size_of"]


@dataclass(frozen=True, slots=True, repr=False)
class Identities:
    """Signing keys of all parties, from the operating system's generator; see ``draw``."""

    server: Ed25519PrivateKey
    denoisers: tuple[Ed25519PrivateKey, ...]
    clients: tuple[Ed25519PrivateKey, ...]

    @classmethod
    def draw(cls, *, clients: int, denoisers: int) -> "Identities":
        """Fresh keys."""
        make = Ed25519PrivateKey.generate
        return cls(
            make(), tuple(make() for _ in range(denoisers)), tuple(make() for _ in range(clients))
        )

    @property
    def roster(self) -> Roster:
        """The public keys."""

        def public(key: Ed25519PrivateKey) -> bytes:
            return key.public_key().public_bytes_raw()

        return Roster(
            server=public(self.server),
            denoisers=tuple(public(key) for key in self.denoisers),
            clients=tuple(public(key) for key in self.clients),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedBatch:
    """The shares of some clients, as their holders know them.

    Args:
        server: words [N, d + 1] at the server.
        denoisers: words [N, d + 1] at each denoiser.
        server_bytes: int64[B], sizes of the messages to the server.
        denoiser_bytes: int64[B], sizes of the messages to each denoiser.
    """

    server: RingArray
    denoisers: list[RingArray]
    server_bytes: IntArray
    denoiser_bytes: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RealOutcome:
    """What a round of the halves came to.

    Args:
        aggregate: sums and counts.
        sizes: bytes of each message between denoisers and server.
    """

    aggregate: Aggregate
    sizes: Mapping[Kind, int]


def size_of(messages: Sequence[bytes]) -> int:
    """The size that all denoisers' messages of a kind have.

    Raises:
        ProtocolError: their sizes differ.
    """
    sizes = {len(message) for message in messages}
    if len(sizes) != 1:
        raise ProtocolError(f"messages of one kind have {sorted(sizes)} bytes")
    return sizes.pop()


class RealRound:
    """One round.

    Args:
        context: the round.
        identities: everybody's keys.
    """

    __slots__ = ("_adverts", "_context", "_denoisers", "_identities", "_server")

    def __init__(self, context: RoundContext, identities: Identities) -> None:
        self._context = context
        self._identities = identities
        self._server = SharingServer(context, identities.server)
        self._denoisers = [
            SharingDenoiser(context, number, key) for number, key in enumerate(identities.denoisers)
        ]
        self._adverts = [denoiser.advertise() for denoiser in self._denoisers]

    def submit(self, clients: IntArray, block: RowBlock, rated: BoolArray) -> SharedBatch:
        """Run the client half of some clients and hand their messages to the other halves."""
        if block.values is None:
            raise ValueError("an upload has values")
        holders: list[SharingServer | SharingDenoiser] = [self._server, *self._denoisers]
        held: list[list[RingArray]] = [[] for _ in holders]
        sizes: list[tuple[int, int]] = []
        for client, start, stop in zip(
            clients.tolist(), block.indptr[:-1], block.indptr[1:], strict=True
        ):
            mine = slice(int(start), int(stop))
            shared = self._share(client, block.rows[mine], block.values[mine], rated[mine])
            for words, holder in zip(held, holders, strict=True):
                words.append(holder.share_of(client)[1])
            sizes.append((len(shared.server), len(shared.denoisers[0])))
        columns = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        server, *denoisers = [np.concatenate(words) for words in held]
        return SharedBatch(
            server=server,
            denoisers=denoisers,
            server_bytes=columns[:, 0].copy(),
            denoiser_bytes=columns[:, 1].copy(),
        )

    def close(self) -> RealOutcome:
        """Agree on the set, release the sums, add them up."""
        server, denoisers = self._server, self._denoisers
        held = [denoiser.hold() for denoiser in denoisers]
        proposal = server.propose(held)
        consents = [denoiser.consent(proposal) for denoiser in denoisers]
        agreement = server.agree(consents)
        sums = [denoiser.release(agreement) for denoiser in denoisers]
        return RealOutcome(
            aggregate=server.finish(sums),
            sizes={
                Kind.ADVERT: size_of(self._adverts),
                Kind.HELD: size_of(held),
                Kind.PROPOSAL: len(proposal),
                Kind.CONSENT: size_of(consents),
                Kind.AGREEMENT: len(agreement),
                Kind.SUMS: size_of(sums),
            },
        )

    def _share(self, client: int, rows: IndexArray, words: RingArray, rated: BoolArray) -> Shared:
        half = SharingClient(self._context, client, self._identities.clients[client])
        half.accept(self._adverts)
        shared = half.share(rows, words, rated)
        self._server.receive(shared.server)
        for denoiser, message in zip(self._denoisers, shared.denoisers, strict=True):
            denoiser.receive(message)
        return shared
