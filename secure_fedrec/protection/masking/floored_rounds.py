"""The two rounds of a tail floor, run by the halves of ``masking.tail_floor``.

A client marks its rows, opens the published counts, derives the second round from what it has
checked, and encodes the rows that round asks for. Nothing of that is done a second time here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.protection.base.dense import DenseWords
from secure_fedrec.protection.masking.config.layouts import SumLayout
from secure_fedrec.protection.masking.config.policy import Expected
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.rounds_old import MaskedRounds
from secure_fedrec.protection.masking.tail_floor import SecondRound, TailFloor
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloorRounds:
    """Both rounds of one cohort.

    Args:
        floor: the floor.
        protocol: the parties.
        rows: float64 rows of each client, by number.
        marks: layout of the first round.
        first: its configuration.
    """

    floor: TailFloor
    protocol: MaskedRounds
    rows: Mapping[int, RowBlock]
    marks: SumLayout
    first: MaskingConfig

    def count(self, parts: Sequence[DenseWords]) -> RingArray:
        """The first round: in how many clients each row is, as ring words [k].

        Args:
            parts: the clients' words, to compare the sum with.

        Raises:
            ProtocolError: the round aborted.
            LosslessnessError: the protocol's sum differs from the plain one.
        """
        first = self.first
        vectors = {n: self.floor.presence(self.marks, rows) for n, rows in self.rows.items()}
        expected = Expected(layout_hash=first.layout_hash, public_state=first.public_state)
        return self.protocol.sum(Step.COUNTS, parts, vectors, config=first, expected=expected)

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
            number: self.floor.second_round_of(
                half, self.protocol.packed, first=self.marks, codec=layout.codec,
                width=layout.width,
            )
            for number, half in self.protocol.halves.items()
        }  # fmt: skip
        corrupt = self.first.corrupt_clients
        return self.protocol.sum(
            Step.UPLOAD,
            parts,
            {number: own[number].encode(rows) for number, rows in self.rows.items()},
            config=self.floor.config(second, self.first),
            expected={n: each.expected(corrupt_clients=corrupt) for n, each in own.items()},
            shift=len(layout.rows),
        )
