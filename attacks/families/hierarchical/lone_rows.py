"""Rows of hidden sums with one organisation behind them: its own, word for word."""

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, common_rounds, need, require_seen
from attacks.scoring.clear_uploads import LoneRowsClaim
from attacks.view.coalition import rows_of, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.wire import Step, View


class LoneRows(SuiteAttack):
    """Reads the rows of a sum that one organisation alone sent.

    Game: Given sums and counts per attribute of items, tell rows that organisations sent.
    Adversary: Honest-but-curious server.
    Needs: Payloads of the aggregate of at least one round, with exact counts and without noise, of
        uploads that cannot be read.
    Statistic: A row with a count of 1 is that organisation's row: its vector of the attribute times
        its weight, and the weight.
    Reference: Singletons in published aggregates.
    Limits: Does not tell whose the row is. Sums of two are not taken apart.
    """

    name = "lone-rows"
    reads_item_rows = False
    control = Control(measure="lone_clients", on="lone organisations", breaks="lone rows")

    def claim(self, view: View) -> Claims:
        """Claim them, of all recorded rounds."""
        require_seen(view, {Step.AGGREGATE: "aggregate"})
        known = Knowledge.of(view)
        need(known.hidden, "uploads can be read: nothing is hidden in a sum")
        need(not known.factorized, "such rows are read by sum-decoding")
        need(known.exact and known.sums_are_real, "noise or virtual rows are in the sums")
        none = "no payload of the aggregate was recorded"
        rounds = common_rounds(view, Step.AGGREGATE, payload=True, otherwise=none)
        rows = {}
        for round_ in rounds:
            _, block = rows_of(view.messages(Step.AGGREGATE, round_, payload=True))
            counts = np.zeros(0) if block.counts is None else block.counts
            alone = np.flatnonzero(counts == 1)
            rows[round_] = block.rows[alone].astype(np.int64), words_of(block)[alone]
        count = sum(len(numbers) for numbers, _ in rows.values())
        return Claims(rounds=rounds, made=(LoneRowsClaim(rows=rows),), details={"rows": count})
