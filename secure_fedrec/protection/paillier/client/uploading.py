"""A client whose sums an authority opens."""

from collections.abc import Sequence
from enum import Enum

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.plan_parties import ClientHalf
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.messages.uploads import encrypt_upload, require_words
from secure_fedrec.protection.paillier.scheme.encryption import Encryptor
from secure_fedrec.protection.paillier.scheme.pairwise import MASK_KEY_BYTES, PairwiseMask
from secure_fedrec.protection.session import Identity, Parcel, Role, refusals_of
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES


class _Client(Enum):
    ADVERTISE = "advertise"
    KEYS = "receive_keys"
    UPLOAD = "upload"
    DONE = "nothing: it has uploaded"


class UploadingClient(ClientHalf):
    """The client's half of one round.

    Args:
        plan: the agreement; its ``minimum`` is this client's own.
        identity: the identity of this party.
        encryptor: under the plan's key; reuse it over rounds.
        round_: the round, above every earlier one.
    """

    def __init__(self, plan: Plan, identity: Identity, encryptor: Encryptor, round_: int) -> None:
        super().__init__(plan, identity, encryptor, holder="authority", round_=round_)
        self._secrets: dict[int, bytes] = {}
        self._mask: PairwiseMask | None = None
        self._vectors: Sequence[RingArray] = ()
        self._state = _Client.ADVERTISE if plan.holding.masked else _Client.UPLOAD

    def load(self, vectors: Sequence[RingArray]) -> None:
        """Give the vectors that ``step`` uploads (arguments: ``upload``)."""
        self._vectors = vectors

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """The next message, at the server's prompt or upon all mask keys (``Party.step``).

        Raises:
            WireError: the message is malformed.
            ProtocolError: the step is not due, or the mask keys are refused.
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
            ProtocolError: the step is not due.
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
            WireError: the message is malformed.
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
            ProtocolError: the step is not due.
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
