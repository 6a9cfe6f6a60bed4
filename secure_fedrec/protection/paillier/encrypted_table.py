"""Rounds on an encrypted item table, whose key all clients share (FedMF).

Chai, Wang, Chen and Yang, "Secure federated matrix factorization", IEEE Intelligent Systems 2021:
the server keeps the item table V under the clients' key and adds encrypted gradients to it. Adding
is all that it can do: a division by the number of raters, or a change of scale, is no operation on
packed ciphertexts. So here the server adds uploads, at one fixed scale, and clients do the rest:

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
One faulty updater can stop the federation, but not move the table.

Uploads hold every row of the table, zeros where nothing was rated: which items a client rated is
not visible. The claim and its assumptions are in ``key_holders``.

A cohort may hand its table on to another one under the same key and roster: the digest is bound to
those and to the round, not to the cohort.
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.paillier.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.envelopes import Kind, seal
from secure_fedrec.protection.paillier.halves import ClientHalf, ServerHalf
from secure_fedrec.protection.paillier.keys import PrivateKey
from secure_fedrec.protection.paillier.plans import Plan
from secure_fedrec.protection.paillier.slots import SlotLayout
from secure_fedrec.protection.paillier.uploads import UploadSum, encrypt_upload, require_words
from secure_fedrec.protection.paillier.vectors import (
    EncryptedVector,
    decrypt_vector,
    encrypt_vector,
    split_vectors,
)
from secure_fedrec.protection.paillier.words import write_words
from secure_fedrec.protection.session import Identity, Parcel, Role, refusals_of, replies_to
from secure_fedrec.protection.session.envelope import Envelope

TableUpdate = Callable[[RingArray, tuple[RingArray, ...]], RingArray]
"""V_{t+1} from V_t and the sums, the same bits on every client."""

DIGEST_BYTES = 32
"""Bytes of a table's digest."""

_DIGEST_INFO = b"secure-fedrec|v1|paillier|table-digest"


def updaters(clients: Sequence[int], round_: int) -> tuple[int, int]:
    """The two clients of a cohort that make the table after a round; the work goes round."""
    count = len(clients)
    return clients[2 * round_ % count], clients[(2 * round_ + 1) % count]


class _Client(Enum):
    TABLE = "receive_table"
    UPLOAD = "upload"
    SUMS = "receive_sums"
    ABORTED = "none: it aborted"


class TableClient(ClientHalf):
    """A client's half, over all rounds.

    Args:
        plan: the agreement; its ``minimum`` is this client's own.
        identity: who it is.
        private: the clients' key.
        encryptor: under the same key.
        update: the step of the item table.
        round_: the first round it takes part in.
        decryptor: with the same key; worth keeping over rounds, made here if absent.
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
    ) -> None:
        super().__init__(plan, identity, Role.CLIENT, holder="clients", round_=round_)
        self._table_layout = plan.table_layout
        self._decryptor = Decryptor(private) if decryptor is None else decryptor
        if {private.public, encryptor.key, self._decryptor.key} != {plan.key}:
            raise ConfigError("paillier.private_key", private, "is not the key of the plan")
        self._encryptor = encryptor
        self._update = update
        primes = _primes(private)
        derive = HKDF(algorithm=SHA256(), length=32, salt=plan.table_context, info=_DIGEST_INFO)
        self._digest_key = derive.derive(primes)
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
        """Hand over what ``step`` sends.

        Args:
            make: from ring words of the table, what to upload (``upload``).
            first: ring words of the first table (``initialise``).
        """
        self._make, self._first = make, first

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """At a prompt the first table, upon TABLE an upload, upon SUMS the next (``Party.step``).

        Raises:
            WireError: not such a message.
            ProtocolError: not now, or refused (``receive_table``, ``receive_sums``).
            EncodingError: words that do not fit.
        """
        if not inbox:
            sent = None if self._first is None else self.initialise(self._first)
            return [] if sent is None else [self._parcel(Kind.UPDATE, sent)]
        kind = Kind.UPDATE if self._state is _Client.SUMS else Kind.UPLOAD
        replies = replies_to(inbox, self._answer, gone=lambda: self._state is _Client.ABORTED)
        return [self._parcel(kind, reply) for reply in replies]

    def _answer(self, data: bytes) -> list[bytes]:
        if self._state is _Client.SUMS:
            return [self.receive_sums(data)]
        table = self.receive_table(data)
        if self._make is None:
            raise ProtocolError(f"round {self.round}: nothing was loaded to upload")
        return [self.upload(self._make(table))]

    def initialise(self, words: RingArray) -> bytes | None:
        """Encrypt the first table, which every client computes alike.

        Args:
            words: ring words of V_1.

        Returns:
            The message to the server of the two clients that make the first table; None of others.

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
            WireError: not such a message.
            ProtocolError: not now, or the table is not the one both updaters vouched for; in that
                case the client aborts for good.
        """
        self._require(_Client.TABLE)
        body = self._read(data, Kind.TABLE, Role.SERVER).body
        digest, vector = _split_table(body, self._plan, self._table_layout)
        table = decrypt_vector(vector, self._decryptor)
        if not hmac.compare_digest(digest, self._digest(table, self.round)):
            self._state = _Client.ABORTED
            raise ProtocolError(f"round {self.round}: the table differs from its digest")
        self._table = table
        self._started = True
        self._state = _Client.UPLOAD
        return table.copy()

    def upload(self, vectors: Sequence[RingArray]) -> bytes:
        """Encrypt this client's ring words.

        Args:
            vectors: one per layout of the plan.

        Raises:
            ProtocolError: not now.
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
            WireError: not such a message.
            ProtocolError: not now, or the sums are not over the whole cohort.
            EncodingError: the new table leaves the ring's clip.
        """
        self._require(_Client.SUMS)
        plan = self._plan
        body = self._read(data, Kind.SUMS, Role.SERVER).body
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
        body = self._digest(words, round_ + 1) + vector.to_bytes()
        context = self._plan.context  # the first table is of round 0
        return seal(self._identity, Kind.UPDATE, round_=round_, context=context, body=body)

    def _digest(self, words: RingArray, round_: int) -> bytes:
        """What the table of a round must match; unreadable without the private key."""
        message = round_.to_bytes(8, "little") + write_words([words], [self._table_layout])
        return hmac.digest(self._digest_key, message, "sha256")

    def _next_round(self) -> None:
        self._table = None
        self.round += 1
        self._state = _Client.TABLE


class _Server(Enum):
    UPDATES = "two updates of the table"
    UPLOADS = "uploads"
    ABORTED = "nothing more: the updaters disagreed"
    HANDED_ON = "nothing more: another cohort has the table"


class TableServer(ServerHalf):
    """The server's half, over all rounds. It starts with round 0, in which the table is made.

    Args:
        plan: the agreement.
        identity: the server's.
        earlier: the half of another cohort whose table and rounds this one goes on with; it must
            await uploads, and takes no further part.

    Raises:
        ConfigError: another arrangement, or an earlier table of another key, roster or layout.
        ProtocolError: the earlier cohort's round is not over.
    """

    def __init__(
        self, plan: Plan, identity: Identity, earlier: "TableServer | None" = None
    ) -> None:
        super().__init__(plan, identity, Role.SERVER, holder="clients", round_=0)
        self._table_layout = plan.table_layout
        self._sum = UploadSum(plan)
        self._updates: dict[int, tuple[bytes, EncryptedVector]] = {}
        self._table: tuple[bytes, EncryptedVector] | None = None
        self._state = _Server.UPDATES
        self._driven = 0
        self.finished = False
        """Whether the last round that ``step`` began has left a table."""
        if earlier is not None:
            self._take_over(earlier)

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Begin a round; or take what is awaited, all of it, and go on (``Party.step``).

        In round 0 the two clients that make the first table are prompted.

        What is refused changes nothing.

        Raises:
            ProtocolError: something is missing, and it says what was refused (``receive``); or the
                two updaters disagree.
        """
        clients, pair = self._plan.clients, updaters(self._plan.clients, self.round)
        if self.finished or not self._driven:
            self.finished, self._driven = False, self._driven + 1
            if not self.round:
                return self._ask(pair, Kind.UPDATE, b"")
            return self._ask(clients, Kind.TABLE, self.table())
        before, refused = self._state, refusals_of(inbox, self.receive)
        if self._state in (before, _Server.ABORTED):
            updates = f"{len(self._updates)} of 2 updates of the table came"
            missing = self._sum.describe_missing() if before is _Server.UPLOADS else updates
            raise ProtocolError(f"round {self.round}: {missing}{refused}")
        if self._state is _Server.UPDATES:
            return self._ask(pair, Kind.SUMS, self.sums())
        self.finished = True
        return []

    def receive(self, data: bytes) -> None:
        """Take the next message.

        Raises:
            WireError: the bytes are no such message.
            ProtocolError: not the kind awaited now, repeated, or by whom it may not come; or the
                two updaters disagree, and then the server aborts for good.
        """
        if self._state is _Server.UPLOADS:
            self._sum.add(self._read(data, Kind.UPLOAD, Role.CLIENT))
            if not self._sum.missing:
                self._updates = {}
                self._state = _Server.UPDATES
        elif self._state is _Server.UPDATES:
            self._take_update(self._read(data, Kind.UPDATE, Role.CLIENT))
        else:
            raise ProtocolError(f"round {self.round}: the server awaits {self._state.value}")

    def table(self) -> bytes:
        """The encrypted table of the round, for every client.

        Raises:
            ProtocolError: there is none yet, or the round is past it.
        """
        if self._state is not _Server.UPLOADS or self._table is None:
            raise ProtocolError(f"round {self.round}: the server awaits {self._state.value}")
        digest, vector = self._table
        return self._seal(Kind.TABLE, digest + vector.to_bytes())

    def sums(self) -> bytes:
        """The encrypted sums of the round, for its two updaters.

        Raises:
            ProtocolError: uploads are missing; the message counts them.
        """
        if self._state is not _Server.UPDATES or not self.round:
            raise ProtocolError(f"round {self.round}: {self._sum.describe_missing()}")
        return self._seal(Kind.SUMS, self._sum.to_bytes())

    def _take_over(self, earlier: "TableServer") -> None:
        if earlier._plan.table_context != self._plan.table_context:
            raise ConfigError("paillier.table", "(earlier)", "is of another key, roster or layout")
        if earlier._state is not _Server.UPLOADS:
            raise ProtocolError(
                f"round {earlier.round}: the table is not handed on; the server awaits "
                f"{earlier._state.value}"
            )
        if earlier._driven and not earlier.finished:  # its uploads would fit the same round again
            raise ProtocolError(f"round {earlier.round}: the table is not handed on in mid-round")
        self._table, self.round = earlier._table, earlier.round
        self._state, earlier._state = _Server.UPLOADS, _Server.HANDED_ON

    def _take_update(self, sent: Envelope) -> None:
        first, second = updaters(self._plan.clients, self.round)
        number = sent.sender.number
        if number not in (first, second) or number in self._updates:
            raise ProtocolError(f"round {self.round}: no update of {sent.sender} is awaited")
        self._updates[number] = _split_table(sent.body, self._plan, self._table_layout)
        if len(self._updates) < 2:
            return
        if not hmac.compare_digest(self._updates[first][0], self._updates[second][0]):
            self._state = _Server.ABORTED
            raise ProtocolError(
                f"round {self.round}: clients {first} and {second} computed different tables"
            )
        self._table = self._updates[first]
        self._sum = UploadSum(self._plan)
        self.round += 1
        self._state = _Server.UPLOADS


def _split_table(body: bytes, plan: Plan, layout: SlotLayout) -> tuple[bytes, EncryptedVector]:
    if len(body) < DIGEST_BYTES:
        raise WireError(f"a table of {len(body)} bytes is shorter than its digest")
    digest, data = body[:DIGEST_BYTES], body[DIGEST_BYTES:]
    return digest, EncryptedVector.from_bytes(data, key=plan.key, layout=layout)


def _primes(private: PrivateKey) -> bytes:
    """The secret that only the clients share, in a fixed length."""
    size = private.public.bits // 16
    return private.p.to_bytes(size, "little") + private.q.to_bytes(size, "little")
