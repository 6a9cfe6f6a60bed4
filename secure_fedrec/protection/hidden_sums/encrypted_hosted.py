"""Encrypted rounds whose parties are elsewhere (``protection.hosting``).

The authority has a host of its own, and the private key is on no other. It opens one sum of a
round: its journal holds what it opened before the sum leaves. One that was lost
on its way is opened again in a later attempt if it is the same to the last word; another would
show, as a difference, who is in one of the two alone. Which ciphertexts it is sent is the server's
word: that they are the sum of all is what an honest-but-curious server keeps to.
"""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.hidden_sums.dense import DenseWords, Gathered
from secure_fedrec.protection.hidden_sums.encrypted_rounds import uploaded_words
from secure_fedrec.protection.hosting import (
    Desk,
    NoHelpers,
    SharedKeys,
    Standing,
    read_each,
)
from secure_fedrec.protection.once import Once
from secure_fedrec.protection.paillier import (
    Authority,
    Encryptor,
    KeyHolding,
    Plan,
    PrivateKey,
    PublicKey,
    UploadingClient,
    UploadingServer,
    generate_key,
)
from secure_fedrec.protection.paillier.authority import AUTHORITY
from secure_fedrec.protection.paillier.envelopes import Kind
from secure_fedrec.protection.plain import aggregate_note
from secure_fedrec.protection.session import Identity, Node, Parcel, Role
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Step, Wire

if TYPE_CHECKING:
    from secure_fedrec.protection.hidden_sums.encrypted import EncryptedSum
    from secure_fedrec.protection.masking import Journal

_DOMAIN = b"secure-fedrec|v1|hosted-encryption|"


class HostedEncryptedSum:
    """The server's side of one attempt.

    Args:
        collector: whose round it is.
        plan: of the attempt.
        identity: the server's key.
        at: the attempt.
    """

    def __init__(
        self, collector: "EncryptedSum", plan: Plan, identity: Identity, at: Standing
    ) -> None:
        self.hub = UploadingServer(plan, identity, at.round)
        self._collector = collector
        self._plan = plan
        self._at = at

    def aggregate(self) -> Aggregate:
        """Sums and counts, as the authority has opened them.

        Raises:
            ProtocolError: it has not.
        """
        (opened,) = self.hub.result()
        return self._collector.layout.split(opened, self._collector.codec)

    def heard(self) -> IntArray:
        """int64[k]: every client of the attempt."""
        return self._at.clients

    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """As many words of every client's ciphertexts as it encrypted (``hosting.HostedSum``)."""
        collector, layout, round_ = self._collector, self._collector.layout, self._at.round

        def read(data: bytes) -> tuple[int, RingArray]:
            sent = self._plan.read(data, round_=round_, awaits=Kind.UPLOAD, sender=Role.CLIENT)
            return sent.sender.number, uploaded_words(data, layout.length, collector.codec)

        for client, size, words in read_each(arrived, read):
            seen = DenseWords(clients=np.array([client]), words=words[None], layout=layout)
            sizes = np.array([size])
            shown = seen.message(
                round_=round_, step=Step.UPLOAD, codec=collector.codec, sizes=sizes
            )
            wire.show(shown, origins=seen.clients)
        wire.show(aggregate_note(round_, aggregate))


class HostedEncryption(NoHelpers):
    """Halves of rounds whose key an authority holds.

    Args:
        collector: whose rounds they are.
    """

    uploads, opens = "UPLOADS", "RESULT"
    whole = True

    def __init__(self, collector: "EncryptedSum") -> None:
        self._collector = collector
        self._encryptor: Encryptor | None = None

    def shared_keys(self) -> SharedKeys:
        """A new key: its public half for everybody, all of it for the authority."""
        private = generate_key(self._collector.config.key_bits)
        return SharedKeys(public=private.public.to_bytes(), private={AUTHORITY: private.to_bytes()})

    def hub(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> HostedEncryptedSum:
        """The server's side (``hosting.Hosting``)."""
        return HostedEncryptedSum(self._collector, self._plan(at), identity, at)

    def half(
        self,
        at: Standing,
        identity: Identity,
        journal: "Journal",
        block: RowBlock,
        virtual: BoolArray,
    ) -> Once:
        """A client's half (``hosting.Hosting``)."""
        plan, collector = self._plan(at), self._collector
        if self._encryptor is None or self._encryptor.key != plan.key:
            self._encryptor = Encryptor(plan.key)  # its table of powers serves every round
        half = UploadingClient(plan, identity, self._encryptor, at.round)
        own = Gathered(collector, at.round, np.array([identity.number]))
        own.accept(own.clients, block)
        (part,) = own.words_of(own.clients, block, collector.layout)
        half.load([part.words[0]])
        return Once(half, journal, at.serial, at.roster)

    def helpers(self) -> dict[Node, Node]:
        """The authority, on a host of its own."""
        return {AUTHORITY: AUTHORITY}

    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Once:
        """The authority's half (``hosting.Hosting``).

        Raises:
            ProtocolError: its host has not the private key of the plan.
        """
        try:
            private = PrivateKey.from_bytes(desk.secret)
        except WireError as damage:
            raise ProtocolError(f"{identity.node} has no private key: {damage}") from None
        plan = self._plan(at)
        half = Authority(plan, identity, private, last_round=at.round - 1)

        def opened(answers: Sequence[Parcel]) -> bytes:
            read = partial(plan.read, round_=at.round, awaits=Kind.RESULT, sender=Role.AUTHORITY)
            words = b"".join(read(parcel.data).body for parcel in answers)
            return sha256(_DOMAIN + b"sum|" + words).digest()[:8]

        return Once(half, desk.journal, at.round, at.roster, same=opened)

    def _plan(self, at: Standing) -> Plan:
        collector = self._collector
        if len(at.clients) < collector.min_survivors:  # by the server's word
            raise ProtocolError(
                f"{len(at.clients)} clients are there, a sum needs at least "
                f"{collector.min_survivors}"
            )
        attempt = at.series + at.serial.to_bytes(8, "little") + at.state
        try:
            key = PublicKey.from_bytes(at.keys)
        except WireError as damage:
            raise ProtocolError(f"there is no public key to encrypt with: {damage}") from None
        return Plan(
            holding=KeyHolding(holder="authority"),
            key=key,
            roster=at.roster,
            clients=tuple(at.clients.tolist()),
            layouts=(collector.slots,),
            minimum=collector.min_survivors,
            federation=sha256(_DOMAIN + attempt).digest()[:16],
        )
