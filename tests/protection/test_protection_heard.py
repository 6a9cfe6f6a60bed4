"""Who is heard in a round: everybody who is due, once, and a refused batch leaves no trace."""

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.base.expected_senders import Heard
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Messages, Parties, Step


def messages(
    senders: list[int], *, round_: int = 4, step: Step = Step.UPLOAD, role: str = "client"
) -> Messages:
    count = len(senders)
    return Messages(
        round=round_,
        step=step,
        senders=Parties(role=role, ids=np.array(senders, dtype=np.int64)),
        receivers=Parties.server(count),
        payload=RowBlock(
            indptr=np.zeros(count + 1, dtype=np.int64),
            rows=np.empty(0, dtype=np.int32),
            values=np.empty((0, 1), dtype=np.uint64),
        ),
        sizes=np.zeros(count, dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("refused", "problem"),
    [
        (messages([5, 3, 5]), "two UPLOAD messages of a client"),
        (messages([3, 2]), "does not await client 2"),
        (messages([0]), "does not await client 0, or has heard it already"),
        (messages([7]), "does not await client 7"),
        (messages([3, -2]), "does not await client -2"),
        (messages([3], role="denoiser"), "does not await denoiser 3"),
        (messages([3], round_=5), "awaits UPLOAD, got UPLOAD of round 5"),
        (messages([3], step=Step.NOISE), "awaits UPLOAD, got NOISE of round 4"),
    ],
)
def test_what_is_refused_counts_for_nobody(refused: Messages, problem: str) -> None:
    heard = Heard(4, Step.UPLOAD, expected=np.array([0, 3, 5]), senders=7)
    heard.take(messages([0]))
    with pytest.raises(ProtocolError, match=problem):
        heard.take(refused)
    with pytest.raises(ProtocolError, match="from 2 clients, the first is client 3"):
        heard.require_complete()
    heard.take(messages([5, 3]))
    heard.require_complete()
