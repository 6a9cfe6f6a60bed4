"""A half that answers once, by a journal that outlives its process."""

from collections.abc import Callable, Sequence
from hashlib import sha256

from secure_fedrec.protection.session.journal import Journal
from secure_fedrec.protection.session.parties import Parcel, Party
from secure_fedrec.protection.session.roster import Roster


class Once:
    """A half that answers in a round once, whatever becomes of its host (a ``Party``).

    Args:
        half: the half.
        journal: on disk before the first answer is given.
        number: of what is answered once, greater than that of what was before.
        roster: keys of all parties.
        federation: whose round it is.
        once: what an answer opens (``Statement.once``), no second time and under no other number;
            empty where it opens nothing.
        same: what an answer says, in 8 bytes: what says the same, of the same ``once``, may be
            given again under that number; None where nothing may.
        stage: of the messages that are answers; empty for all.
    """

    def __init__(
        self,
        half: Party,
        journal: Journal,
        number: int,
        roster: Roster,
        *,
        federation: bytes,
        once: bytes = b"",
        same: Callable[[Sequence[Parcel]], bytes] | None = None,
        stage: str = "",
    ) -> None:
        self.node = half.node
        self._half = half
        self._journal = journal
        self._number = number
        self._same = same
        self._roster = roster
        self._federation = federation
        self._once = once
        self._stage = stage
        self._begun = False

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """As the half (``Party.step``).

        Raises:
            ProtocolError: an answer was given already, in this process or in another one.
            CheckpointError: the journal cannot be written; nothing is sent.
        """
        sent, same = self._half.step(inbox), self._same
        answers = [each for each in sent if not self._stage or each.stage == self._stage]
        if not answers:
            return sent
        said = bytes(8) if same is None else sha256(self._once + same(answers)).digest()[:8]
        round_id = self._number.to_bytes(8, "little") + said
        if not (self._begun if same is None else self._journal.begun_last(round_id)):
            self._journal.begin(
                round_id,
                roster_version=self._roster.version,
                epoch=0,
                round_floor=self._roster.round_floor,
                once=self._once,
                federation=self._federation,
                owner=self.node.number,
                opens=True,
            )
            self._begun = True
        return sent
