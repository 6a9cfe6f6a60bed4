"""Rounds on an encrypted item table, whose key all clients share (FedMF).

Chai, Wang, Chen and Yang, "Secure federated matrix factorization", IEEE Intelligent Systems 2021:
the server keeps the item table V under the clients' key and adds encrypted gradients to it. It can
only add: packed ciphertexts can neither be divided by the number of raters nor brought to another
scale. So here the server adds uploads, at one fixed scale, and clients do the rest:

    clients                          server
              <-------------- TABLE  E(V_t), digest of V_t
    UPLOAD    --------------------->  adds E(gradients), E(counts)
    two of them:
              <--------------- SUMS  E(sum of gradients), E(sum of counts)
    UPDATE    --------------------->  E(V_{t+1}) twice, digest of V_{t+1} twice

Both updaters decrypt the sums, compute V_{t+1} in integers, encrypt it anew and give a digest, an
HMAC-SHA256 under a key derived from the private key. The server compares the digests without
reading them; two that differ abort. Every client compares the table it decrypts in the next round
with the digest, so an updater whose ciphertexts do not hold what its digest says is found as well.
One faulty updater can stop the federation, but not change the table.

Uploads hold every row of the table, zeros where nothing was rated: which items a client rated is
not visible. The claim and its assumptions are in ``key_holders``.

A cohort's table may be used by another one under the same key and roster: the digest is bound to
those and to the round, not to the cohort. The server's half is in ``server.table``.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.plan_parties import ClientHalf
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.messages.tables import TableReader, updaters
from secure_fedrec.protection.paillier.messages.uploads import encrypt_upload, require_words
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.scheme.keys import PrivateKey
from secure_fedrec.protection.paillier.scheme.vectors import (
    decrypt_vector,
    encrypt_vector,
    split_vectors,
)
from secure_fedrec.protection.session import Identity, Parcel, Role, replies_to

TableUpdate = Callable[[RingArray, tuple[RingArray, ...]], RingArray]
"""V_{t+1} from V_t and the sums, the same bits on every client."""


class _Client(Enum):
    TABLE = "receive_table"
    UPLOAD = "upload"
    SUMS = "receive_sums"
    OVER = "nothing: its round is over"
    ABORTED = "nothing: it aborted"


class TableClient(ClientHalf):
    """A client's half, over all rounds.

    Args:
        plan: the agreement; its ``minimum`` is this client's own.
        identity: the identity of this party.
        private: the clients' key.
        encryptor: under the same key.
        update: the step of the item table.
        round_: the first round it takes part in.
        decryptor: with the same key; reuse it over rounds; made here if absent.
        alone: whether this half is for its first round only.
    """

    def __init__(
        self,
        plan: Plan,
        identity: Identity,
        private: PrivateKey,
        encryptor: Encryptor,
        update: TableUpdate,
        round_: int = 1,
        decryptor: Decryptor | None = None,
        *,
        alone: bool = False,
    ) -> None:
        super().__init__(plan, identity, encryptor, holder="clients", round_=round_)
        self._after = _Client.OVER if alone else _Client.TABLE
        self._table_layout = plan.table_layout
        self._decryptor = Decryptor(private) if decryptor is None else decryptor
        self._reader = TableReader(plan, private, self._decryptor)
        self._update = update
        self._table: RingArray | None = None
        self._first: RingArray | None = None
        self._make: Callable[[RingArray], Sequence[RingArray]] | None = None
        self._started = round_ > 1
        self._state = _Client.TABLE

    def load(
        self,
        make: Callable[[RingArray], Sequence[RingArray]] | None = None,
        *,
        first: RingArray | None = None,
    ) -> None:
        """Give the vectors that ``step`` sends.

        Args:
            make: from ring words of the table, what to upload (``upload``).
            first: ring words of the first table (``initialise``).
        """
        self._make, self._first = make, first

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """At a prompt the first table, or an upload if the table is known (``take_table``).

        Upon TABLE an upload, upon SUMS the next table (``Party.step``).

        Raises:
            WireError: the message is malformed.
            ProtocolError: the step is not due, or refused (``receive_table``, ``receive_sums``).
            EncodingError: words that do not fit.
        """
        if not inbox and self._table is not None:
            return [self._parcel(Kind.UPLOAD, self._made(self._table))]
        if not inbox:
            sent = None if self._first is None else self.initialise(self._first)
            return [] if sent is None else [self._parcel(Kind.UPDATE, sent)]
        kind = Kind.UPDATE if self._state is _Client.SUMS else Kind.UPLOAD
        replies = replies_to(inbox, self._answer, gone=lambda: self._state is _Client.ABORTED)
        return [self._parcel(kind, reply) for reply in replies]

    def _answer(self, data: bytes) -> list[bytes]:
        if self._state is _Client.SUMS:
            return [self.receive_sums(data)]
        return [self._made(self.receive_table(data))]

    def _made(self, table: RingArray) -> bytes:
        if self._make is None:
            raise ProtocolError(f"round {self.round}: nothing was loaded to upload")
        return self.upload(self._make(table))

    def initialise(self, words: RingArray) -> bytes | None:
        """Encrypt the first table, which every client computes alike.

        Args:
            words: ring words of V_1.

        Returns:
            The message to the server of the two clients that make the first table; None for other
            clients.

        Raises:
            ProtocolError: the federation began already.
            EncodingError: the words do not fit the table's layout.
        """
        if self._started or self.round != 1 or self._state is not _Client.TABLE:
            raise ProtocolError(f"round {self.round}: the table was begun already")
        if self.node.number not in updaters(self._plan.clients, 0):
            return None
        sent = self._encrypt_table(words, round_=0)
        self._started = True
        return sent

    def receive_table(self, data: bytes) -> RingArray:
        """Decrypt the table of the round.

        Returns:
            Ring words of V_t.

        Raises:
            WireError: the message is malformed.
            ProtocolError: not now, or the table is not the one both updaters vouched for; in that
                case the client aborts for good.
        """
        self._require(_Client.TABLE)
        body = self._read(data, Kind.TABLE, Role.SERVER).body
        try:
            table = self._reader.open(body, self.round)
        except ProtocolError:
            self._state = _Client.ABORTED
            raise
        self.take_table(table)
        return table.copy()

    def take_table(self, words: RingArray) -> None:
        """Go on from a table that this client has read already (``tables.TableReader``).

        Args:
            words: ring words of V_t; in round 1 also the first table, as every client knows it.

        Raises:
            ProtocolError: the step is not due.
        """
        self._require(_Client.TABLE)
        self._table = words
        self._started = True
        self._state = _Client.UPLOAD

    def upload(self, vectors: Sequence[RingArray]) -> bytes:
        """Encrypt this client's ring words.

        Args:
            vectors: one per layout of the plan.

        Raises:
            ProtocolError: the step is not due.
            EncodingError: the words do not fit; nothing leaves then.
        """
        self._require(_Client.UPLOAD)
        plan = self._plan
        require_words(vectors, plan.layouts)
        body = encrypt_upload(vectors, plan.layouts, self._encryptor)
        sent = self._seal(Kind.UPLOAD, body)
        if self.node.number in updaters(plan.clients, self.round):
            self._state = _Client.SUMS
        else:
            self._next_round()
        return sent

    def receive_sums(self, data: bytes) -> bytes:
        """An updater's step: compute and encrypt the next table.

        Raises:
            WireError: the message is malformed.
            ProtocolError: not now, or the sums are not over the whole cohort; in that case the
                client aborts for good, since what is refused says something of what is inside.
            EncodingError: the new table leaves the ring's clip.
        """
        self._require(_Client.SUMS)
        plan = self._plan
        body = self._read(data, Kind.SUMS, Role.SERVER).body
        self._state = _Client.ABORTED  # until the sums are opened
        vectors = split_vectors(body, key=plan.key, layouts=plan.layouts)
        if any(vector.terms != len(plan.clients) for vector in vectors):
            raise ProtocolError(f"round {self.round}: the sums are not over the whole cohort")
        sums = tuple(decrypt_vector(vector, self._decryptor) for vector in vectors)
        if self._table is None:
            raise ProtocolError(f"round {self.round}: there is no table to update")
        sent = self._encrypt_table(self._update(self._table.copy(), sums), round_=self.round)
        self._next_round()
        return sent

    def _encrypt_table(self, words: RingArray, round_: int) -> bytes:
        vector = encrypt_vector(words, self._table_layout, self._encryptor)
        body = self._reader.digest(words, round_ + 1) + vector.to_bytes()
        # The first table is of round 0.
        return self._plan.messages(round_).seal(Kind.UPDATE, body, self._identity)

    def _next_round(self) -> None:
        self._table = None
        self.round += 1
        self._state = self._after
