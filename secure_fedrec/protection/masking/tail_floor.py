"""Rows that few clients have are not summed: masked counts come first, then the other rows.

A sum over one client is that client's row, so a mask over a cohort hides nothing in the tail of the
items. Suppressing rows after unmasking would hide nothing from the server. Hence two rounds:

1. a sum of presence marks (1 for every row that a client has), over the survivors S;
2. a sum over the cohort S of the rows alone that at least ``floor + slack`` of them have. At most
   ``slack`` clients may drop out of it, so at least ``floor`` clients stand behind every row.

Each client derives the second layout itself from the counts that the server signed and refuses any
other. What is left: sums over a few clients are equations in their vectors, so a floor raises what
a search has to find at once, and does not hide any client; the counts show which rows only one
client has, though neither that client nor the values; and the counts are what the server says. An
active server would sign a count of five for a row that one client has, and be sent that row: so a
configuration against one is refused. The floor holds against a curious server and against all who
see the published sums.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.picked_rows import pick
from secure_fedrec.protection.masking.client.half import MaskingClient
from secure_fedrec.protection.masking.config.layouts import SumLayout, TableLayout
from secure_fedrec.protection.masking.config.policy import EncodedVector, Expected
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import encode_ids
from secure_fedrec.protection.session.statement import (
    NO_STATEMENT,
    Purpose,
    Statement,
    labelled_hash,
)
from secure_fedrec.settings import Natural, Settings, Within
from secure_fedrec.uploads import RowBlock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecondRound:
    """The second round, which both sides derive from the counts.

    Args:
        layout: the rows that are summed.
        cohort: int64[n], the survivors of the first round.
        statement: statement of the second round: the first one's, with the counts and their cohort;
            None where nothing is stated.
        min_survivors: fewest survivors of the second round.
    """

    layout: TableLayout
    cohort: IntArray
    statement: Statement | None
    min_survivors: int

    def expected(self, *, corrupt_clients: int) -> Expected:
        """Facts of the second round that a client must insist on.

        Args:
            corrupt_clients: corrupt clients that the first round reckoned with; all of them may be
                among its survivors.
        """
        return Expected(
            layout_hash=self.layout.hash,
            statement=self.statement,
            cohort=self.cohort,
            min_survivors=self.min_survivors,
            corrupt_clients=corrupt_clients,
        )

    def encode(self, block: RowBlock) -> EncodedVector:
        """Encode those of a client's rows that are summed; the others stay at the client."""
        kept = np.isin(block.rows, self.layout.rows)
        if len(block) != 1 or block.values is None:
            raise EncodingError("the second round takes the rows of one client")
        return self.layout.encode(pick(block, np.ones(1, dtype=bool), kept))


class TailFloor(Settings, section="tail_floor"):
    """Settings of the two rounds.

    An adversary that knows the rows of c of the clients behind an item subtracts them, and is left
    with a sum over ``floor - c`` clients: with c corrupt clients a floor below c + 2 can leave one
    client's row.

    Args:
        floor: fewest clients behind a row that is summed.
        slack: clients that may drop out of the second round.

    Raises:
        ConfigError: a floor below 2, or a negative slack.
    """

    floor: Annotated[int, Within(least=2)]
    slack: Natural = 0

    @staticmethod
    def require_curious(adversary: str, *, key: str = "tail_floor.adversary") -> None:
        """Refuse a floor against a server that may lie.

        Args:
            adversary: the server that is to be withstood; "both", which a plan may name, is not
                allowed.
            key: name of the setting.

        Raises:
            ConfigError: the adversary is not "curious".
        """
        if adversary != "curious":
            raise ConfigError(
                key,
                adversary,
                "a tail floor withstands a curious server only: an active one signs a false count "
                "and is sent the rows below the floor",
                ("curious",),
            )

    @staticmethod
    def presence_layout(rows: int, *, clients: int, bits: int = 32) -> SumLayout:
        """Layout of the first round: one mark per row of the table."""
        return SumLayout(bits=bits, length=rows, clients=clients, largest=1)

    @staticmethod
    def presence(layout: SumLayout, block: RowBlock) -> EncodedVector:
        """A client's marks.

        Raises:
            EncodingError: a row is beyond the table.
        """
        if len(block.rows) and not 0 <= block.rows.min() <= block.rows.max() < layout.length:
            raise EncodingError(f"rows must be between 0 and {layout.length - 1}")
        marks = np.zeros(layout.length, dtype=np.int64)
        marks[block.rows] = 1
        return layout.encode(marks)

    def rows(self, counts: IntArray) -> IntArray:
        """int64[k], ascending: rows of the table that may be summed, given how many have each."""
        return np.flatnonzero(counts >= self.floor + self.slack)

    def second_round(
        self,
        counts: IntArray,
        cohort: IntArray,
        *,
        first: MaskingConfig,
        statement: Statement | None,
        codec: FixedPoint,
        width: int,
        max_count: int = 1,
    ) -> SecondRound:
        """What the counts of the first round allow.

        Args:
            counts: int64[rows], how many survivors have each row.
            cohort: int64[n], those survivors.
            first: configuration of the first round.
            statement: statement of the first round; None where nothing is stated.
            codec: ring of the second round.
            width: values per row.
            max_count: largest count of one client's row.

        Raises:
            ConfigError: the first round was to withstand an active server.
            ProtocolError: no row reaches the floor, or a count is not between 0 and n.
        """
        self.require_curious(first.adversary)
        if len(counts) and not 0 <= counts.min() <= counts.max() <= len(cohort):
            raise ProtocolError(f"a count of clients is not between 0 and {len(cohort)}")
        kept = self.rows(counts)
        if not len(kept):
            raise ProtocolError(f"no row is held by {self.floor + self.slack} clients")
        layout = TableLayout(
            codec=codec, rows=kept, width=width, clients=len(cohort), max_count=max_count
        )
        return SecondRound(
            layout=layout,
            cohort=cohort,
            statement=statement and _second(statement, counts, cohort),
            min_survivors=max(2, len(cohort) - self.slack),
        )

    def second_round_of(
        self,
        client: MaskingClient,
        packed: bytes,
        *,
        first: SumLayout,
        statement: Statement | None,
        codec: FixedPoint,
        width: int,
        max_count: int = 1,
    ) -> SecondRound:
        """The second round as a client derives it: from the sum it can check and its own survivors.

        Args:
            client: its half of the finished first round.
            packed: the published sum.
            first: layout of the first round.
            statement: statement of the first round; None where nothing is stated.
            codec: ring of the second round.
            width: values per row.
            max_count: largest count of one client's row.

        Raises:
            ConfigError: the first round was to withstand an active server.
            ProtocolError: this is not the sum that the server signed, or ``second_round`` refuses.
        """
        counts = first.decode(client.open_result(packed))
        return self.second_round(
            counts,
            client.survivors,
            first=client.config,
            statement=statement,
            codec=codec,
            width=width,
            max_count=max_count,
        )

    @staticmethod
    def config(
        second: SecondRound, first: MaskingConfig, *, threshold: int | None = None
    ) -> MaskingConfig:
        """Configuration of the second round, on the complete graph.

        Args:
            second: what the counts allow.
            first: configuration of the first round.
            threshold: shares that restore a secret, taken as it is; default: that of the first
                round, or what the complete graph needs against as many corrupt clients
                (``corrupt_clients + 1``, since all of them are neighbours of every client) if that
                is more, or the most that the cohort allows (``min_survivors - 1``) if that is less.

        Raises:
            ConfigError: the first round was to withstand an active server, too few survivors are
                left for the corrupt clients reckoned with, or the given threshold is not one for
                this cohort.
        """
        TailFloor.require_curious(first.adversary)
        clients = len(second.cohort)
        if threshold is None:
            least = max(first.threshold, first.corrupt_clients + 1, 2)
            threshold = min(least, second.min_survivors - 1)
        return MaskingConfig(
            clients=clients,
            bits=second.layout.codec.bits,
            length=second.layout.words,
            layout_hash=second.layout.hash,
            threshold=threshold,
            min_survivors=second.min_survivors,
            quorum=min((clients + first.corrupt_clients) // 2 + 1, second.min_survivors),
            corrupt_clients=first.corrupt_clients,
            adversary=first.adversary,
            key_agreement=first.key_agreement,
            statement=NO_STATEMENT if second.statement is None else second.statement.digest,
        )


def _second(first: Statement, counts: IntArray, cohort: IntArray) -> Statement:
    told = labelled_hash("tail-floor", counts.astype("<i8").tobytes(), encode_ids(cohort))
    return replace(first, purpose=Purpose.UPDATE, instructions=first.instructions + told)
