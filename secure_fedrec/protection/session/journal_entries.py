"""All that a client's journal holds, and its bytes (``journal.FileJournal`` adds a hash).

Layout, version 6: "SFMJ" | u8 version | u32 owner | u32 roster version | u64 epoch | u64 generation
| 16 id of the round that is ready | 16 of the one sent | 16 its sum | u32 size of the message
| u32 sums | u32 peers | 2 x 32 ticket of a saved state, of either round | 32 federation
| u32 states computed from | 32 the last | u32 last round sat out | u32 spent | message | sums x 16
| peers x (32 key | u64 generation). Zeros stand for none; numbers are little-endian.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from secure_fedrec.protection.session.nodes import SERVER_NUMBER as SERVER

_MAGIC = b"SFMJ\x06"
_STATE = struct.Struct("<5sIIQQ16s16s16sIII32s32s32sI32sII")
SUM_BYTES: Final = 16
_PEER = struct.Struct("<32sQ")
NO_ROUND: Final = bytes(16)
"""Stands for a missing round in place of its identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """All that a journal holds.

    Args:
        owner: number of the client whose journal it is; ``SERVER`` before the first round.
        roster_version, epoch: of the last round begun.
        generation: rounds begun.
        ready: the round that was begun and not uploaded in; zeros for none.
        sent: the last round that was uploaded in; zeros for none.
        sum_id: first bytes of what is revealed in it for once; empty where nothing is stated.
            Another sum with the same first bytes would be refused needlessly, but never accepted.
        message: its REVEAL message, empty before the reveal.
        revealed: ``sum_id`` of every sum that something was revealed for.
        peers: highest generation by signing key.
        ready_ticket, sent_ticket: of the state of either round that was saved; empty for none.
        federation: whose rounds it holds; empty before one that names it.
        computed: public states that were computed from.
        computed_from: 32 bytes, the last one; empty for none.
        sat_out: the last round in which the client did not take part; 0 for none.
        spent: number of noised vectors handed in over all rounds: the client's privacy cost.
    """

    owner: int = SERVER
    roster_version: int = 0
    epoch: int = 0
    generation: int = 0
    ready: bytes = NO_ROUND
    sent: bytes = NO_ROUND
    sum_id: bytes = b""
    message: bytes = b""
    revealed: frozenset[bytes] = frozenset()
    peers: Mapping[bytes, int] = field(default_factory=dict)
    ready_ticket: bytes = b""
    sent_ticket: bytes = b""
    federation: bytes = b""
    computed: int = 0
    computed_from: bytes = b""
    sat_out: int = 0
    spent: int = 0

    @property
    def last(self) -> int:
        """Number of the last round begun; 0 before the first."""
        return max(number_of(self.ready), number_of(self.sent))

    @property
    def took_part(self) -> bool:
        """Whether anything was computed or begun."""
        return bool(self.generation or self.computed)

    def open(self, round_id: bytes) -> str:
        """Field of the ticket of a round in progress; empty if the round is not in progress."""
        if round_id == NO_ROUND:
            return ""
        if round_id == self.ready:
            return "ready_ticket"
        return "sent_ticket" if round_id == self.sent and not self.message else ""

    def encode(self) -> bytes:
        """The layout of the module's description."""
        state = _STATE.pack(
            _MAGIC,
            self.owner,
            self.roster_version,
            self.epoch,
            self.generation,
            self.ready,
            self.sent,
            self.sum_id,
            len(self.message),
            len(self.revealed),
            len(self.peers),
            self.ready_ticket,
            self.sent_ticket,
            self.federation,
            self.computed,
            self.computed_from,
            self.sat_out,
            self.spent,
        )
        peers = [_PEER.pack(key, generation) for key, generation in self.peers.items()]
        return b"".join((state, self.message, *sorted(self.revealed), *peers))

    @classmethod
    def decode(cls, body: bytes) -> "Entries | None":
        """Inverse of ``encode``; None if this is not a journal of this version."""
        if len(body) < _STATE.size:
            return None
        magic, owner, version, epoch, generation, *rest = _STATE.unpack_from(body)
        ready, sent, sum_id, *counts = rest
        size, sums, peers, *hashes, computed, computed_from, sat_out, spent = counts
        ready_ticket, sent_ticket, federation = (each if any(each) else b"" for each in hashes)
        start = _STATE.size + size
        end = start + sums * SUM_BYTES
        if magic != _MAGIC or len(body) != end + peers * _PEER.size:
            return None
        return cls(
            owner=owner,
            roster_version=version,
            epoch=epoch,
            generation=generation,
            ready=ready,
            sent=sent,
            sum_id=sum_id if any(sum_id) else b"",
            message=body[_STATE.size : start],
            revealed=frozenset(body[at : at + SUM_BYTES] for at in range(start, end, SUM_BYTES)),
            peers=dict(_PEER.iter_unpack(body[end:])),
            ready_ticket=ready_ticket,
            sent_ticket=sent_ticket,
            federation=federation,
            computed=computed,
            computed_from=computed_from if any(computed_from) else b"",
            sat_out=sat_out,
            spent=spent,
        )


def number_of(round_id: bytes) -> int:
    """The number of a round: the first 8 bytes of its identity."""
    return int.from_bytes(round_id[:8], "little")
