"""A denoiser's half: it holds seeds, agrees on a set of clients, and releases one sum over it."""

from collections.abc import Sequence
from enum import Enum
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import IndexArray, RingArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.routing.sealing import OpeningKey
from secure_fedrec.protection.session import Node, Parcel, Role, refusals_of, replies_to
from secure_fedrec.protection.shared_upload.client import expand, seed_info
from secure_fedrec.protection.shared_upload.messages import (
    Kind,
    Members,
    decode_members,
    decode_seed,
    encode_members,
    encode_rows,
    open_envelope,
    set_digest,
    split_consents,
    support_digest,
)
from secure_fedrec.protection.shared_upload.round_context import RoundContext
from secure_fedrec.protection.shared_upload.round_parties import Half


class _State(Enum):
    COLLECTING = "collecting seeds"
    HELD = "waiting for the proposal"
    CONSENTED = "waiting for the agreement"
    DONE = "done"
    ABORTED = "aborted"


class SharingDenoiser(Half):
    """One denoiser in one round.

    Its HPKE key exists only in this object: a denoiser that restarts has another key, cannot open
    the round's seeds, and so cannot release two sums.

    Args:
        context: the round.
        denoiser: its number.
        identity: its signing key.

    Raises:
        ProtocolError: the roster has another key for this denoiser.
    """

    def __init__(self, context: RoundContext, denoiser: int, identity: Ed25519PrivateKey) -> None:
        super().__init__(context, Node(Role.DENOISER, denoiser), identity, _State.COLLECTING)
        self._denoiser = denoiser
        self._key = OpeningKey.generate(context.mechanism)
        self._held: dict[int, tuple[bytes, IndexArray]] = {}
        self._set: tuple[Members, bytes] = ({}, b"")
        self._shown = False

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Show the key; take seeds and list their clients; consent; release (``Party.step``).

        A seed that is refused is left out.

        Raises:
            ProtocolError, WireError: what the server says is refused, or this denoiser aborts.
        """
        if not self._shown:
            self._shown = True
            return [self._parcel(Kind.ADVERT, self.advertise())]
        if self._state is _State.COLLECTING:
            refusals_of(inbox, self.receive)
            return [self._parcel(Kind.HELD, self.hold())]
        consents = self._state is _State.HELD
        answer, kind = (self.consent, Kind.CONSENT) if consents else (self.release, Kind.SUMS)
        replies = replies_to(
            inbox, lambda data: [answer(data)], gone=lambda: self._state is _State.ABORTED
        )
        return [self._parcel(kind, reply) for reply in replies]

    def advertise(self) -> bytes:
        """The key of this round, for the clients.

        Raises:
            ProtocolError: seeds are no longer collected.
        """
        self._require(_State.COLLECTING)
        return self._sign(Kind.ADVERT, self._key.public.data)

    def receive(self, message: bytes) -> None:
        """Take a client's seed.

        Raises:
            ProtocolError: it is unsigned, of another round, sealed to or meant for another
                denoiser, or the client's second; it is dropped.
            WireError: a malformed message; it is dropped.
        """
        self._require(_State.COLLECTING)
        signed = open_envelope(message, Kind.SEED, context=self._context)
        if len(signed.body) < 4 or int.from_bytes(signed.body[:4], "little") != self._denoiser:
            raise ProtocolError(f"a seed that is not for denoiser {self._denoiser}")
        if signed.sender.number in self._held:
            raise ProtocolError(f"client {signed.sender.number} sent two seeds")
        info = seed_info(signed.sender.number, self._denoiser, self._context)
        self._held[signed.sender.number] = decode_seed(
            self._key.open(signed.body[4:], info), self._context
        )

    def share_of(self, client: int) -> tuple[IndexArray, RingArray]:
        """This denoiser's share of a client's rows: row numbers, and uniform words [n, d + 1].

        Raises:
            ProtocolError: it does not hold a share of that client.
        """
        if client not in self._held:
            raise ProtocolError(f"denoiser {self._denoiser} holds nothing of client {client}")
        seed, rows = self._held[client]
        return rows, expand(seed, len(rows), client, self._denoiser, self._context)

    def hold(self) -> bytes:
        """End the collection; the clients whose seeds were received, and their rows.

        Raises:
            ProtocolError: it has ended already.
        """
        self._require(_State.COLLECTING)
        self._state = _State.HELD
        return self._sign(Kind.HELD, encode_members(self._members()))

    def consent(self, proposal: bytes) -> bytes:
        """Sign the proposed set, if it is one that this denoiser can and may sum over.

        Raises:
            ProtocolError: the set is below the floor, or names a client whose seed is missing here
                or is for other rows: the denoiser aborts. Or the message is unsigned or of another
                round: it is dropped.
            WireError: a malformed message; it is dropped.
        """
        self._require(_State.HELD)
        signed = open_envelope(proposal, Kind.PROPOSAL, context=self._context)
        chosen, held = decode_members(signed.body, self._context), self._members()
        if len(chosen) < self._context.floor:
            self._abort(f"{len(chosen)} clients are fewer than the floor of {self._context.floor}")
        for client, support in chosen.items():
            if held.get(client) != support:
                self._abort(f"the shares of client {client} are missing or for other rows")
        self._set = (chosen, set_digest(signed.body, self._context))
        self._state = _State.CONSENTED
        return self._sign(Kind.CONSENT, self._set[1])

    @property
    def summed(self) -> bytes:
        """8 bytes, which clients it has consented to sum over."""
        clients = np.array(sorted(self._set[0]), dtype="<u4")
        return sha256(b"secure-fedrec|v1|shared|summed|" + clients.tobytes()).digest()[:8]

    def release(self, agreement: bytes) -> bytes:
        """Sums of the shares over the set on which all denoisers agree.

        Raises:
            ProtocolError: a denoiser consented to another set: this one aborts. Or a message is
                missing, unsigned or of another round: it is dropped.
            WireError: a malformed message; it is dropped.
        """
        self._require(_State.CONSENTED)
        signed = open_envelope(agreement, Kind.AGREEMENT, context=self._context)
        consents = split_consents(signed.body, self._context.denoisers)
        for number, body in enumerate(self._open_all(consents, Kind.CONSENT)):
            if body != self._set[1]:
                self._abort(f"denoiser {number} consented to another set")
        sums = self._sums()
        self._state = _State.DONE
        self._forget()
        return self._sign(Kind.SUMS, sums)

    def _sums(self) -> bytes:
        context = self._context
        totals = np.zeros((context.n_items, context.width + 1), dtype=context.codec.dtype)
        named = np.zeros(context.n_items, dtype=bool)
        for client in self._set[0]:
            rows, words = self.share_of(client)
            scatter_add(totals, rows, words)
            named[rows] = True
        support = np.flatnonzero(named).astype(np.int32)
        return encode_rows(support, context.codec.reduce(totals[support]), context)

    def _members(self) -> Members:
        return {
            client: support_digest(client, rows, self._context)
            for client, (_, rows) in sorted(self._held.items())
        }

    def _forget(self) -> None:
        """Drop the key and the seeds (``Half._forget``)."""
        self._held = {}
        self._key = OpeningKey.generate(self._context.mechanism)
