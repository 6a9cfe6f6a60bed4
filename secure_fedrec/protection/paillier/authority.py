"""A round whose key an authority holds: clients encrypt, the server adds, the authority opens sums.

    client                           server                          authority
    MASK_KEY  (masked) ------------>
              <------------ MASK_KEYS
    UPLOAD    --------------------->  adds
                                      SUMS  ----------------------->  decrypts
                                            <----------------------- RESULT

The halves take and give bytes and own no socket, thread or clock. Every client of the cohort takes
part: a missing, repeated or malformed message refuses the step, and no sum is opened without all.
What the arrangement promises, and against whom, is in ``key_holders``: without masks the authority
cannot tell a sum from one upload, since anybody can encrypt a count.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.paillier.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.envelopes import Kind
from secure_fedrec.protection.paillier.halves import ClientHalf, Half, ServerHalf
from secure_fedrec.protection.paillier.keys import PrivateKey
from secure_fedrec.protection.paillier.pairwise import MASK_KEY_BYTES, PairwiseMask
from secure_fedrec.protection.paillier.plans import Plan
from secure_fedrec.protection.paillier.uploads import UploadSum, encrypt_upload, require_words
from secure_fedrec.protection.paillier.vectors import decrypt_vector, split_vectors
from secure_fedrec.protection.paillier.words import read_words, write_words
from secure_fedrec.protection.session import (
    SERVER,
    Identity,
    Node,
    Parcel,
    Role,
    refusals_of,
    replies_to,
)
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES

AUTHORITY = Node(Role.AUTHORITY)


class _Client(Enum):
    ADVERTISE = "advertise"
    KEYS = "receive_keys"
    UPLOAD = "upload"
    DONE = "none: it has uploaded"


class _Server(Enum):
    KEYS = "mask keys"
    UPLOADS = "uploads"
    RESULT = "the authority's result"
    DONE = "nothing more"


class UploadingClient(ClientHalf):
    """The client's half of one round.

    Args:
        plan: the agreement; its ``minimum`` is this client's own.
        identity: who it is.
        encryptor: under the plan's key; worth keeping over rounds.
        round_: the round, above every earlier one.
    """

    def __init__(self, plan: Plan, identity: Identity, encryptor: Encryptor, round_: int) -> None:
        super().__init__(plan, identity, Role.CLIENT, holder="authority", round_=round_)
        if encryptor.key != plan.key:
            raise ConfigError("paillier.encryptor", encryptor.key, "is of another key")
        self._encryptor = encryptor
        self._secrets: dict[int, bytes] = {}
        self._mask: PairwiseMask | None = None
        self._vectors: Sequence[RingArray] = ()
        self._state = _Client.ADVERTISE if plan.holding.masked else _Client.UPLOAD

    def load(self, vectors: Sequence[RingArray]) -> None:
        """Hand over what ``step`` uploads (arguments: ``upload``)."""
        self._vectors = vectors

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """The next message, at the server's prompt or upon all mask keys (``Party.step``).

        Raises:
            WireError: not such a message.
            ProtocolError: not now, or the mask keys are refused.
            EncodingError: the words do not fit; nothing leaves then.
        """
        if self._state is _Client.ADVERTISE:
            return [self._parcel(Kind.MASK_KEY, self.advertise())]
        if self._state is _Client.KEYS:
            refused = refusals_of(inbox, self.receive_keys)
            if not self._secrets:
                raise ProtocolError(f"round {self.round}: there are no mask keys{refused}")
        return [self._parcel(Kind.UPLOAD, self.upload(self._vectors))]

    def advertise(self) -> bytes:
        """The first message of a masked round.

        Raises:
            ProtocolError: not now.
        """
        self._require(_Client.ADVERTISE)
        self._mask = PairwiseMask(
            client=self.node.number, round_=self.round, context=self._plan.context
        )
        self._state = _Client.KEYS
        return self._seal(Kind.MASK_KEY, self._mask.public)

    def receive_keys(self, data: bytes) -> None:
        """Take the mask keys of the cohort, each signed by its client.

        Raises:
            WireError: not such a message.
            ProtocolError: not now, or a key that is missing, repeated, replaced, unsigned or weak.
        """
        mask = self._require_mask(_Client.KEYS)
        plan, round_ = self._plan, self.round
        bundle = self._read(data, Kind.MASK_KEYS, Role.SERVER)
        size = ENVELOPE_BYTES + MASK_KEY_BYTES
        if len(bundle.body) != size * len(plan.clients):
            raise ProtocolError(f"round {round_}: not one mask key per client of the cohort")
        keys: dict[int, bytes] = {}
        for start in range(0, len(bundle.body), size):
            part = bundle.body[start : start + size]
            found = self._read(part, Kind.MASK_KEY, Role.CLIENT)
            keys[found.sender.number] = found.body
        if tuple(keys) != plan.clients:
            raise ProtocolError(f"round {round_}: not one mask key per client, in order")
        self._secrets = dict(mask.agree(keys))
        self._state = _Client.UPLOAD

    def upload(self, vectors: Sequence[RingArray]) -> bytes:
        """Encrypt this client's ring words, masked where the plan says so.

        Args:
            vectors: one per layout of the plan, signed values within the clip of its codec.

        Raises:
            ProtocolError: not now.
            EncodingError: the words do not fit; nothing leaves then.
        """
        self._require(_Client.UPLOAD)
        plan = self._plan
        require_words(vectors, plan.layouts)
        if plan.holding.masked:
            mask = self._require_mask(_Client.UPLOAD)
            vectors = [
                mask.apply(words, number, self._secrets, layout.codec)
                for number, (words, layout) in enumerate(zip(vectors, plan.layouts, strict=True))
            ]
        body = encrypt_upload(vectors, plan.layouts, self._encryptor)
        self._secrets, self._mask = {}, None
        self._state = _Client.DONE
        return self._seal(Kind.UPLOAD, body)

    def _require_mask(self, state: _Client) -> PairwiseMask:
        self._require(state)
        if self._mask is None:
            raise ProtocolError(f"round {self.round}: there is no mask key")
        return self._mask


class UploadingServer(ServerHalf):
    """The server's half of one round: it adds ciphertexts and holds no key.

    Args:
        plan: the agreement.
        identity: the server's.
        round_: the round.
    """

    def __init__(self, plan: Plan, identity: Identity, round_: int) -> None:
        super().__init__(plan, identity, Role.SERVER, holder="authority", round_=round_)
        self._keys: dict[int, bytes] = {}
        self._sum = UploadSum(plan)
        self._result: tuple[RingArray, ...] = ()
        self._state = _Server.KEYS if plan.holding.masked else _Server.UPLOADS
        self._begun = False

    @property
    def finished(self) -> bool:
        """Whether the authority has answered."""
        return self._state is _Server.DONE

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Prompt the clients; or take what is awaited, all of it, and go on (``Party.step``).

        What is refused changes nothing.

        Raises:
            ProtocolError: something is missing; it says what was refused (``receive``).
        """
        if not self._begun:
            self._begun = True
            kind = Kind.MASK_KEY if self._state is _Server.KEYS else Kind.UPLOAD
            return self._ask(self._plan.clients, kind, b"")
        before, refused = self._state, refusals_of(inbox, self.receive)
        if self._state is before:
            raise ProtocolError(f"round {self.round}: {self._missing()}{refused}")
        if self._state is _Server.UPLOADS:
            return self._ask(self._plan.clients, Kind.MASK_KEYS, self.mask_keys())
        if self._state is _Server.RESULT:
            return [Parcel(SERVER, AUTHORITY, Kind.SUMS.name, self.sums())]
        return []

    def receive(self, data: bytes) -> None:
        """Take the next message.

        Raises:
            WireError: the bytes are no such message.
            ProtocolError: not the kind awaited now, repeated, or by whom it may not come.
        """
        if self._state is _Server.KEYS:
            self._take_key(data)
        elif self._state is _Server.UPLOADS:
            sent = self._read(data, Kind.UPLOAD, Role.CLIENT)
            self._sum.add(sent)
            if not self._sum.missing:
                self._state = _Server.RESULT
        elif self._state is _Server.RESULT:
            self._take_result(data)
        else:
            raise ProtocolError(f"round {self.round} is over")

    def mask_keys(self) -> bytes:
        """All mask keys, for every client.

        Raises:
            ProtocolError: some are missing, or the round has no masks.
        """
        if len(self._keys) < len(self._plan.clients):
            raise ProtocolError(f"round {self.round}: there are not all mask keys")
        return self._seal(Kind.MASK_KEYS, b"".join(self._keys[c] for c in self._plan.clients))

    def sums(self) -> bytes:
        """The encrypted sums, for the authority.

        Raises:
            ProtocolError: uploads are missing; the message counts them.
        """
        if self._state in (_Server.KEYS, _Server.UPLOADS):
            raise ProtocolError(f"round {self.round}: {self._sum.describe_missing()}")
        return self._seal(Kind.SUMS, self._sum.to_bytes())

    def result(self) -> tuple[RingArray, ...]:
        """Ring words of each vector's sum.

        Raises:
            ProtocolError: the authority did not answer yet.
        """
        if self._state is not _Server.DONE:
            raise ProtocolError(f"round {self.round} awaits {self._state.value}")
        return self._result

    def _missing(self) -> str:
        uploading = self._state is _Server.UPLOADS
        return self._sum.describe_missing() if uploading else f"{self._state.value} are missing"

    def _take_key(self, data: bytes) -> None:
        found = self._read(data, Kind.MASK_KEY, Role.CLIENT)
        if len(found.body) != MASK_KEY_BYTES:
            raise ProtocolError(f"{found.sender} sent a mask key of {len(found.body)} bytes")
        if found.sender.number in self._keys:
            raise ProtocolError(f"round {self.round}: {found.sender} sent a second mask key")
        self._keys[found.sender.number] = data
        if len(self._keys) == len(self._plan.clients):
            self._state = _Server.UPLOADS

    def _take_result(self, data: bytes) -> None:
        body = self._read(data, Kind.RESULT, Role.AUTHORITY).body
        self._result = read_words(body, self._plan.layouts)
        self._state = _Server.DONE


class Authority(Half):
    """The key holder: opens one set of sums per round.

    Args:
        plan: the agreement; its ``minimum`` is the authority's own.
        identity: the authority's.
        private: the private key.
        last_round: the last round it answered, as it noted it; rounds only grow.
    """

    def __init__(
        self, plan: Plan, identity: Identity, private: PrivateKey, last_round: int = 0
    ) -> None:
        super().__init__(plan, identity, Role.AUTHORITY, holder="authority", round_=last_round + 1)
        if private.public != plan.key:
            raise ConfigError("paillier.private_key", private, "is not the key of the plan")
        self._decryptor = Decryptor(private)
        self.last_round = last_round
        """The last round answered. Note it down before the answer is sent."""

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Answer the round after the last one that was answered (``Party.step``)."""
        answers = replies_to(inbox, lambda data: [self.answer(data, self.last_round + 1)])
        return [self._parcel(Kind.RESULT, answer) for answer in answers]

    def answer(self, data: bytes, round_: int) -> bytes:
        """Decrypt the sums of a round.

        Args:
            data: the server's message.
            round_: the round that the authority expects.

        Raises:
            WireError: not such a message.
            ProtocolError: the round was answered, or sums that are not over the whole cohort.
        """
        plan = self._plan
        if round_ <= self.last_round:
            raise ProtocolError(f"round {round_}: round {self.last_round} was answered already")
        self.round = round_
        body = self._read(data, Kind.SUMS, Role.SERVER).body
        vectors = split_vectors(body, key=plan.key, layouts=plan.layouts)
        for vector in vectors:
            if vector.terms != len(plan.clients):
                raise ProtocolError(
                    f"round {round_}: a sum over {vector.terms} of {len(plan.clients)} clients is "
                    "not opened"
                )
        words = write_words(
            [decrypt_vector(vector, self._decryptor) for vector in vectors], plan.layouts
        )
        self.last_round = round_
        return self._seal(Kind.RESULT, words)
