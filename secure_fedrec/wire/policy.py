"""The parts of a run that are recorded, and the size of the recording.

Payloads are kept only of chosen rounds and senders: a full run can be tens of gigabytes. The size
is projected before the run and refused above a limit: a recording never exceeds its limit silently.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Natural, Positive, Round, Settings, Unit
from secure_fedrec.wire.message_batches import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Expected messages of one step in one round, for the projection of a recording's size.

    Args:
        step: step of the round.
        messages: with every client invited.
        rows: of all of them together.
        width: values per row.
        counts: whether rows have counts.
        invited: clients who must be invited for a message to be sent.
    """

    step: Step
    messages: int
    rows: int
    width: int
    counts: bool = False
    invited: int = 1

    def among(self, share: float) -> "Traffic":
        """The projection if this share of the clients is invited."""
        sent = share**self.invited
        return replace(self, messages=round(sent * self.messages), rows=round(sent * self.rows))


class RecordingPolicy(Settings, section="recording"):
    """What to keep.

    Args:
        payload_rounds: rounds (from 1) whose payloads are kept, and the public tables before and
            after each.
        payload_senders: client numbers whose payloads are kept in those rounds; without it, all.
            Anonymous messages keep their payloads whichever client sent them.
        max_transcript_gb: a run whose recording would be larger is refused.

    Raises:
        ConfigError: a round below 1, a negative sender, or a limit that is not positive.
    """

    payload_rounds: tuple[Round, ...] = (1, 20)
    payload_senders: tuple[Natural, ...] | None = None
    max_transcript_gb: Annotated[Positive, Unit("GB, 10^9 bytes")] = 4.0

    def kept(self, rounds: Collection[int]) -> int:
        """How many of some rounds keep payloads."""
        return len(set(self.payload_rounds).intersection(rounds))

    def projected_bytes(
        self,
        traffic: Sequence[Traffic],
        *,
        rounds: Collection[int],
        n_clients: int,
        n_items: int,
        word: int,
        extras: int = 0,
    ) -> int:
        """Size of the recording of some rounds.

        Args:
            traffic: messages of each of these rounds.
            rounds: their numbers.
            n_clients: clients of the federation.
            n_items: rows of the shared table.
            word: bytes of a ring word in memory.
            extras: values broadcast beside the table.
        """
        share = 1.0
        if self.payload_senders is not None:
            share = min(1.0, len(self.payload_senders) / max(1, n_clients))
        kept = self.kept(rounds)
        id_bytes = row_dtype(n_items).itemsize
        beside = (Step.BAG, Step.PEER)
        width = max((part.width for part in traffic if part.step not in beside), default=0)
        total = float(kept * 2 * (n_items * width + extras) * 8)  # tables before and after
        held = Traffic(step=Step.AGGREGATE, messages=1, rows=n_items, width=width, counts=True)
        for part in (*traffic, held):
            columns = part.messages * 40 + part.rows * (id_bytes + (8 if part.counts else 0))
            chosen = share if part.step is Step.UPLOAD else 1.0
            total += len(rounds) * columns + kept * chosen * part.rows * part.width * word
        return int(total)

    def require_fits(self, projected: int) -> None:
        """Refuse a recording above the limit.

        Raises:
            ConfigError: it is larger; the message says what to change.
        """
        if projected > self.max_transcript_gb * 1e9:
            raise ConfigError(
                "recording.max_transcript_gb",
                self.max_transcript_gb,
                f"the recording would take {projected / 1e9:.1f} GB; name fewer payload_rounds or "
                "payload_senders, or raise the limit",
            )


def row_dtype(n_items: int) -> np.dtype[Any]:
    """Type of row numbers on disk, for tables of ``n_items`` rows."""
    return np.dtype(np.uint16 if n_items <= 2**16 else np.uint32)
