"""A round whose key an authority holds: clients encrypt, the server adds, the authority opens sums.

    client                           server                          authority
    MASK_KEY  (masked) ------------>
              <------------ MASK_KEYS
    UPLOAD    --------------------->  adds
                                      SUMS  ----------------------->  decrypts
                                            <----------------------- RESULT

The halves take and give bytes and own no socket, thread or clock. Every client of the cohort takes
part: a missing, repeated or malformed message refuses the step, and no sum is opened without all.
The promises of the arrangement, and their adversaries, are in ``key_holders``: without masks the
authority cannot tell a sum from one upload, since any party can encrypt a count.
"""

from collections.abc import Sequence

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.plan_parties import Half
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor
from secure_fedrec.protection.paillier.scheme.keys import PrivateKey
from secure_fedrec.protection.paillier.scheme.vectors import decrypt_vector, split_vectors
from secure_fedrec.protection.paillier.scheme.words import write_words
from secure_fedrec.protection.session import Identity, Parcel, Role, replies_to


class Authority(Half):
    """The key holder: opens one set of sums per round.

    Args:
        plan: the agreement; its ``minimum`` is the authority's own.
        identity: the authority's.
        private: the private key.
        last_round: the last round that it has recorded as answered; rounds ascend.
    """

    def __init__(
        self, plan: Plan, identity: Identity, private: PrivateKey, last_round: int = 0
    ) -> None:
        super().__init__(plan, identity, Role.AUTHORITY, holder="authority", round_=last_round + 1)
        if private.public != plan.key:
            raise ConfigError("paillier.private_key", private, "is not the key of the plan")
        self._decryptor = Decryptor(private)
        self.last_round = last_round
        """The last round answered. Record it before the answer is sent."""

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
            WireError: the message is malformed.
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
