"""The two rounds of a tail floor, run by the halves of ``masking.tail_floor``.

A client marks its rows, opens the published counts, derives the second round from what it has
checked, and encodes the rows that round asks for. Nothing of that is done a second time here.
"""

from collections.abc import Mapping, Sequence

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.protection.hidden_sums.dense import DenseWords
from secure_fedrec.protection.hidden_sums.protocol import MaskedRounds
from secure_fedrec.protection.masking import (
    Expected,
    MaskingConfig,
    SecondRound,
    SumLayout,
    TailFloor,
)
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step

__all__ = ["FloorRounds"]


class FloorRounds:
    """Both rounds of one cohort.

    Args:
        floor: the floor.
        protocol: the parties.
        rows: float64 rows of each client, by number.
        marks: layout of the first round.
        first: its configuration.
    """

    def __init__(
        self,
        floor: TailFloor,
        protocol: MaskedRounds,
        rows: Mapping[int, RowBlock],
        *,
        marks: SumLayout,
        first: MaskingConfig,
    ) -> None:
        self._floor = floor
        self._protocol = protocol
        self._rows = rows
        self._marks = marks
        self._first = first

    def count(self, parts: Sequence[DenseWords]) -> RingArray:
        """The first round: in how many clients each row is, as ring words [k].

        Args:
            parts: the clients' words, to compare the sum with.

        Raises:
            ProtocolError: the round aborted.
            LosslessnessError: the protocol's sum differs from the plain one.
        """
        first = self._first
        vectors = {n: self._floor.presence(self._marks, rows) for n, rows in self._rows.items()}
        expected = Expected(layout_hash=first.layout_hash, public_state=first.public_state)
        return self._protocol.sum(Step.COUNTS, parts, vectors, config=first, expected=expected)

    def sum(self, parts: Sequence[DenseWords], second: SecondRound) -> RingArray:
        """The second round: the rows at the floor.

        Args:
            parts: the clients' words, to compare the sum with: values first, then counts.
            second: what the server derived from the counts; each client derives its own.

        Raises:
            ProtocolError: the round aborted, as it does where a client derived another one.
            LosslessnessError: the protocol's sum differs from the plain one.
        """
        layout = second.layout
        own = {
            number: self._floor.second_round_of(
                half, self._protocol.packed, first=self._marks, codec=layout.codec,
                width=layout.width,
            )
            for number, half in self._protocol.halves.items()
        }  # fmt: skip
        corrupt = self._first.corrupt_clients
        return self._protocol.sum(
            Step.UPLOAD,
            parts,
            {number: own[number].encode(rows) for number, rows in self._rows.items()},
            config=self._floor.config(second, self._first),
            expected={n: each.expected(corrupt_clients=corrupt) for n, each in own.items()},
            shift=len(layout.rows),
        )
