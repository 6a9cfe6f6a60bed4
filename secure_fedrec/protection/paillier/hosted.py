"""Encrypted rounds whose parties are elsewhere (``base.hosting``).

Where the clients hold the key, every client's host has it, and the server's has the public state
encrypted (``hosting.StateHidden``). A table reaches clients with what begins an attempt; round 1
begins with the state that all know from the configuration, so there is no round 0. Tables are bound
to their rounds and to the federation, all other messages to one attempt as well. It is assumed
(honest-but-curious server) that all clients get the same table of a round, and updaters the sum of
all uploads.

An authority has its own host, the only one with the private key. It opens one sum of a round, which
it records in its journal before it sends the result. If the result was lost, the sum is opened
again in a later attempt if all words are equal; the difference of two sums would show clients that
are in one of them alone. It cannot check that the ciphertexts are the sum of all uploads: that is
assumed of an honest-but-curious server.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from hashlib import sha256

from typing_extensions import override

from secure_fedrec.core.arrays import IntArray, RingArray, WordArray
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.base.answer_once import Once
from secure_fedrec.protection.base.dense_uploads import show_words, words_of_one
from secure_fedrec.protection.base.folding import ClientRows
from secure_fedrec.protection.base.hosting import (
    Desk,
    EveryRowSum,
    Held,
    NoHelpers,
    SharedKeys,
    Standing,
    StateHidden,
    read_each,
)
from secure_fedrec.protection.base.table import aggregate_note
from secure_fedrec.protection.paillier.client.table import TableClient
from secure_fedrec.protection.paillier.client.uploading import UploadingClient
from secure_fedrec.protection.paillier.embedded import EncryptedSum
from secure_fedrec.protection.paillier.helper import Authority
from secure_fedrec.protection.paillier.key_holders import KeyHolding
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.messages.tables import TableReader
from secure_fedrec.protection.paillier.messages.words_shown import table_layout, uploaded_words
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.scheme.keys import PrivateKey, PublicKey, generate_key
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.paillier.server.table import TableServer
from secure_fedrec.protection.paillier.server.uploading import UploadingServer
from secure_fedrec.protection.session import AUTHORITY, Hub, Identity, Node, Parcel, Role
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.uploads import Aggregate, RowBlock
from secure_fedrec.wire import Step, Wire

_DOMAIN = b"secure-fedrec|v1|hosted-encryption|"


class _HostedCiphertextSum(EveryRowSum):
    """Common parts of the server's sides of one attempt, for any holder of the key.

    Args:
        hub: the server's half.
        collector: collector of the round or rounds.
        plan: plan of the attempt.
        at: the attempt.
    """

    _collector: EncryptedSum

    def __init__(self, hub: Hub, collector: EncryptedSum, plan: Plan, at: Standing) -> None:
        self.hub = hub
        self._collector = collector
        self._plan = plan
        self._at = at

    @override
    def heard(self) -> IntArray:
        """int64[k]: every client of the attempt."""
        return self._at.clients

    @override
    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """As many words of every client's ciphertexts as it encrypted."""
        layout, codec, round_ = self._collector.layout, self._collector.codec, self._at.round

        def read(data: bytes) -> tuple[int, RingArray]:
            sent = self._plan.read(data, round_=round_, awaits=Kind.UPLOAD, sender=Role.CLIENT)
            return sent.sender.number, uploaded_words(data, layout.length, codec)

        found = read_each(arrived, read)
        show_words(wire, found, layout, round_=round_, step=Step.UPLOAD, codec=codec)


class HostedEncryptedSum(_HostedCiphertextSum):
    """The server's side of one attempt whose sum an authority opens."""

    hub: UploadingServer

    @override
    def aggregate(self) -> Aggregate:
        """Sums and counts, as the authority has opened them.

        Raises:
            ProtocolError: the sums are not opened yet.
        """
        (opened,) = self.hub.result()
        return self._collector.layout.split(opened, self._collector.codec)

    @override
    def show(self, wire: Wire, arrived: Sequence[bytes], aggregate: Aggregate) -> None:
        """The sum as well."""
        super().show(wire, arrived, aggregate)
        wire.show(aggregate_note(self._at.round, aggregate))


class _HostedCiphertexts(NoHelpers):
    """Common parts of hosts of encrypted rounds, for any holder of the key.

    Args:
        collector: collector of the round or rounds.
    """

    whole = True

    def __init__(self, collector: EncryptedSum) -> None:
        self._collector = collector
        self._under = lru_cache(maxsize=1)(Encryptor)  # its table of powers serves every round

    def _keys_for(self, holders: Iterable[Node]) -> SharedKeys:
        """A new key: its public half for all parties, the whole key for its holders."""
        private = generate_key(self._collector.config.key_bits)
        secret = dict.fromkeys(holders, private.to_bytes())
        return SharedKeys(public=private.public.to_bytes(), private=secret)

    def _words(self, at: Standing, client: int, block: RowBlock) -> RingArray:
        """What a client uploads."""
        collector = self._collector
        words: RingArray = words_of_one(collector, client, block, collector.layout).words[0]
        return words

    def _agreed(
        self,
        at: Standing,
        clients: IntArray,
        series: bytes,
        table: SlotLayout | None = None,
        attempt: bytes = b"",
    ) -> Plan:
        """Facts that hosts agree on for one series of rounds."""
        collector = self._collector
        return Plan(
            holding=KeyHolding(holder=collector.config.holder),
            key=_public_key(at),
            roster=at.roster,
            clients=tuple(clients.tolist()),
            layouts=(collector.slots,),
            table=table,
            minimum=collector.min_survivors,
            federation=sha256(_DOMAIN + series).digest()[:16],
            attempt=attempt,
        )

    def _require_enough(self, at: Standing) -> None:
        """Refuse sums of too few clients, by the number that the server states."""
        least = self._collector.min_survivors
        if len(at.clients) < least:
            raise ProtocolError(
                f"{len(at.clients)} clients are there, a sum needs at least {least}"
            )


class HostedEncryption(_HostedCiphertexts):
    """Halves of rounds whose key an authority holds."""

    uploads, opens = "UPLOADS", "RESULT"

    @override
    def shared_keys(self) -> SharedKeys:
        """The authority holds the private key."""
        return self._keys_for([AUTHORITY])

    @override
    def hub(
        self, at: Standing, identity: Identity, generations: dict[bytes, int]
    ) -> HostedEncryptedSum:
        plan = self._plan(at)
        hub = UploadingServer(plan, identity, at.round)
        return HostedEncryptedSum(hub, self._collector, plan, at)

    @override
    def half(self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows) -> Once:
        plan = self._plan(at)
        half = UploadingClient(plan, identity, self._under(plan.key), at.round)
        half.load([self._words(at, identity.number, rows.block)])
        return Once(half, journal, at)

    @override
    def helpers(self) -> dict[Node, Node]:
        """The authority, on a host of its own."""
        return {AUTHORITY: AUTHORITY}

    @override
    def helper(self, at: Standing, identity: Identity, desk: Desk) -> Once:
        """The authority's half.

        Raises:
            ProtocolError: its host has not the private key of the plan.
        """
        plan, private = self._plan(at), _private_key(identity, desk.secret)
        half = Authority(plan, identity, private, last_round=at.round - 1)

        def opened(answers: Sequence[Parcel]) -> bytes:
            read = partial(plan.read, round_=at.round, awaits=Kind.RESULT, sender=Role.AUTHORITY)
            words = b"".join(read(parcel.data).body for parcel in answers)
            return sha256(_DOMAIN + b"sum|" + words).digest()[:8]

        return Once(half, desk.journal, at, same=opened)

    def _plan(self, at: Standing) -> Plan:
        self._require_enough(at)
        return self._agreed(at, at.clients, at.series + _attempt(at))


class HostedTable(_HostedCiphertextSum):
    """The server's side of one attempt whose sums it cannot read (``hosting.Left``)."""

    hub: TableServer

    @property
    def left(self) -> bytes:
        """The table of the next round, as two clients encrypted it."""
        return self.hub.held

    @override
    def aggregate(self) -> Aggregate:
        """Refused: the server does not hold an aggregate.

        Raises:
            ProtocolError: always.
        """
        raise ProtocolError("clients keep the sums from the server")


class HostedTables(_HostedCiphertexts, StateHidden):
    """Halves of rounds whose key the clients hold (``hosting.StateHidden``)."""

    uploads, opens = "UPLOADS", "UPDATES"
    unrecorded = (
        "the server's host cannot state the public state: clients keep it secret from the server"
    )

    def __init__(self, collector: EncryptedSum) -> None:
        super().__init__(collector)
        self._holder: tuple[PrivateKey, Decryptor] | None = None

    @override
    def shared_keys(self) -> SharedKeys:
        """Every client holds the private key."""
        return self._keys_for(Node(Role.CLIENT, n) for n in range(self._collector.n_clients))

    @override
    def hub(self, at: Standing, identity: Identity, generations: dict[bytes, int]) -> HostedTable:
        """The server's side.

        Raises:
            WireError: what it holds is not a table of this key.
        """
        self._require_enough(at)
        plan, table = self._plan(at, at.clients), _held(at).table
        hub = TableServer.going_on(plan, identity, at.round, table)
        return HostedTable(hub, self._collector, plan, at)

    @override
    def require_key(self, keys: bytes, secret: bytes) -> None:
        """Check a client's private key.

        Raises:
            ConfigError: it is not the private half of the key that all hosts hold.
        """
        try:
            fits = PrivateKey.from_bytes(secret).public == PublicKey.from_bytes(keys)
        except WireError as damage:
            raise ConfigError("layer.key", f"({len(secret)} bytes)", str(damage)) from None
        if not fits:
            raise ConfigError("layer.key", "(a key)", "is of another public key than layer.pub")

    @override
    def read(self, at: Standing, identity: Identity, secret: bytes) -> WordArray | None:
        plan = self._plan(at, at.roster.numbers)  # a table is not bound to a cohort
        if self._holder is None or self._holder[1].key != plan.key:
            private = _private_key(identity, secret)
            self._holder = private, Decryptor(private)
        private, decryptor = self._holder
        if private.public != plan.key:
            raise ProtocolError(f"the private key of {identity.node} is of another public key")
        table = _held(at).table
        return TableReader(plan, private, decryptor).open(table, at.round) if table else None

    @override
    def half(self, at: Standing, identity: Identity, journal: Journal, rows: ClientRows) -> Once:
        """A client's half, after it has read the state."""
        if self._holder is None:
            raise ProtocolError(f"{identity.node} has not read the public state")
        self._require_enough(at)
        plan, collector = self._plan(at, at.clients), self._collector
        step = collector.require_step(at.round)

        def after(table: RingArray, sums: tuple[RingArray, ...]) -> RingArray:
            (opened,) = sums
            return step.after(table, collector.layout.split(opened, collector.codec))

        private, decryptor = self._holder
        encryptor = self._under(plan.key)
        half = TableClient(
            plan, identity, private, encryptor, after, at.round, decryptor, alone=True
        )
        words = self._words(at, identity.number, rows.block)
        half.take_table(step.words)
        half.load(lambda _: [words])
        return Once(half, journal, at)

    def _plan(self, at: Standing, clients: IntArray) -> Plan:
        """The agreement of hosts: tables are bound to the federation, all else to one attempt."""
        table, series = table_layout(_held(at).words), b"tables|" + at.series
        return self._agreed(at, clients, series, table=table, attempt=_attempt(at))


def _attempt(at: Standing) -> bytes:
    return at.serial.to_bytes(8, "little") + at.statement.digest


def _held(at: Standing) -> Held:
    """The encrypted state that the server holds.

    Raises:
        ProtocolError: the state is missing; it may be sent in clear.
    """
    if at.held is None:
        raise ProtocolError(f"round {at.round}: there is no encrypted state")
    return at.held


def _public_key(at: Standing) -> PublicKey:
    try:
        return PublicKey.from_bytes(at.keys)
    except WireError as damage:
        raise ProtocolError(f"there is no public key to encrypt with: {damage}") from None


def _private_key(identity: Identity, secret: bytes) -> PrivateKey:
    try:
        return PrivateKey.from_bytes(secret)
    except WireError as damage:
        raise ProtocolError(f"{identity.node} has no private key: {damage}") from None
