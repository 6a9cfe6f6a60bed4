"""Unmasking takes work in proportion to the shares, whoever lies: counted, not timed."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.protection.masking import Fault, Kind
from secure_fedrec.protection.masking.client.secrets import Neighbour
from secure_fedrec.protection.masking.messages.shamir import PRIME
from secure_fedrec.protection.masking.server import recovery as module
from secure_fedrec.protection.masking.server.recovery import Dealt

N, THRESHOLD = 30, 6


class Counted:
    """Counts calls of what restoring a secret is made of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = {"combine": 0, "correct": 0, "accepts": 0, "fits": 0}
        for place, name in ((module, "combine"), (module, "correct"), (Dealt, "accepts"),
                            (Dealt, "fits")):  # fmt: skip
            monkeypatch.setattr(place, name, self._counting(name, getattr(place, name)))

    def _counting(self, name: str, real: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return real(*arguments, **named)

        return counted


def deal_badly(monkeypatch: pytest.MonkeyPatch, sharers: set[int], wrong: range) -> None:
    """Sharers that give some of their neighbours shares that fit nothing."""
    honest = Neighbour.seal_shares

    def seal_shares(self: Neighbour, mask_share: int, self_share: int, pair_seal: bytes) -> bytes:
        if self.owner in sharers and self.number in wrong:
            mask_share = (mask_share + (self.number + 1) ** 7) % PRIME
        return honest(self, mask_share, self_share, pair_seal)

    monkeypatch.setattr(Neighbour, "seal_shares", seal_shares)


@pytest.mark.claim("masking-bad-shares")
@pytest.mark.parametrize(
    ("bad", "wrong"),
    [(0, range(8)), (1, range(8)), (7, range(8)), (7, range(0, 22, 6))],
    ids=["none", "one", "seven", "seven, spread"],  # where no run of good shares is long enough
)
def test_each_secret_is_combined_once_and_corrected_at_most_once(
    scene: Any, monkeypatch: pytest.MonkeyPatch, bad: int, wrong: range
) -> None:
    sharers = set(range(N - bad, N))
    deal_badly(monkeypatch, sharers, wrong)  # of the 22 or more that come back
    s = scene(numbers=range(N), threshold=THRESHOLD, min_survivors=20)
    gone = sharers | {N - 8}
    s.until_server_gets(Kind.REVEAL, silent=dict.fromkeys(gone, Kind.UPLOAD))
    counted = Counted(monkeypatch)
    s.finish()
    stayed = [number for number in range(N) if number not in gone]
    assert np.array_equal(s.layout.decode(s.server.result), s.total(stayed))
    shares = len(gone) * len(stayed)
    assert counted.calls == {
        "combine": len(gone),
        "correct": bad,
        "accepts": shares,  # one hash for each share that came back
        "fits": len(gone) + bad,
    }
    named = {Fault(kind="bad sharer", client=number, about=number) for number in sharers}
    assert set(s.server.faults) == named


def test_bad_responders_are_left_out_without_a_second_try(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene(numbers=range(N), threshold=THRESHOLD, min_survivors=20)
    s.until_server_gets(Kind.REVEAL, silent=dict.fromkeys((27, 28, 29), Kind.UPLOAD))
    s._deliver()
    for responder in range(15):  # more than half of those that answer
        reveal = s.server._round._reveals[responder]
        for owner in (27, 28, 29):
            reveal.shares[owner] = bytes(32)
    counted = Counted(monkeypatch)
    s.server.close_step()
    stayed = list(range(27))
    assert np.array_equal(s.layout.decode(s.server.result), s.total(stayed))
    assert (counted.calls["combine"], counted.calls["correct"]) == (3, 0)
    assert {fault.kind for fault in s.server.faults} == {"bad responder"}
    assert {fault.client for fault in s.server.faults} == set(range(15))
    assert len(s.server.faults) == 15 * 3


def test_the_receipts_are_found_without_a_search(scene: Any) -> None:
    class NoSearch(list[bytes]):
        def index(self, *_: Any) -> int:
            raise AssertionError("searched the transcript")

    s = scene()
    s.until_server_gets(Kind.REVEAL)
    s._deliver()
    s.server._round._transcript = NoSearch(s.server._round._transcript)
    for number, data in s.server.close_step():
        s.clients[number].receive(data)
        assert s.clients[number].transcript_root == s.server.transcript_root
