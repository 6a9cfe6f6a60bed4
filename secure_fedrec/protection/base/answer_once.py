"""A half that answers only once, by a journal on disk."""

from collections.abc import Callable, Sequence
from hashlib import sha256

from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.session.parties import Parcel, Party


class Once:
    """A half that answers only once, even if its host restarts (a ``Party``).

    A client's half gives an attempt its upload, and an attempt is answered once. A helper's answer
    opens values of a public state: it is given in one round, and for one federation, state and
    purpose (``Statement.once``). There it may be repeated in a later attempt, if it has the same
    content, since the first may have been lost.

    Args:
        half: the half.
        journal: on disk before the first answer is given.
        at: the attempt.
        same: for a helper's half, what an answer says, in 8 bytes; None for a client's half.
        stage: stage of the messages that are answers; empty for all.
    """

    def __init__(
        self,
        half: Party,
        journal: Journal,
        at: Standing,
        *,
        same: Callable[[Sequence[Parcel]], bytes] | None = None,
        stage: str = "",
    ) -> None:
        self.node = half.node
        self._half = half
        self._journal = journal
        self._at = at
        self._same = same
        self._number = at.serial if same is None else at.round
        self._once = b"" if same is None else at.statement.known.once
        self._stage = stage
        self._begun = False

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """As the half (``Party.step``).

        Raises:
            ProtocolError: an answer was given already, in this process or in another one.
            CheckpointError: the journal cannot be written; nothing is sent.
        """
        sent, same, at = self._half.step(inbox), self._same, self._at
        answers = [each for each in sent if not self._stage or each.stage == self._stage]
        if not answers:
            return sent
        said = bytes(8) if same is None else sha256(self._once + same(answers)).digest()[:8]
        round_id = self._number.to_bytes(8, "little") + said
        if not (self._begun if same is None else self._journal.begun_last(round_id)):
            self._journal.begin(
                round_id,
                roster_version=at.roster.version,
                epoch=0,
                round_floor=at.roster.round_floor,
                once=self._once,
                federation=at.statement.federation,
                owner=self._journal.owner,
                opens=True,
            )
            self._begun = True
        return sent
