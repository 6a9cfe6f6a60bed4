"""Attacks of the server on denoisers' sums: rows in small sums, and the denoisers' own rows.

A denoiser sends, per item, S = (virtual rows it collected) - (its own row) and the count behind it.
With few clients per denoiser most sums have one or two terms, and the server has every candidate
term with its sender's name. If each virtual row is shared among the denoisers, they send sums of
shares: these add up to the virtual rows of all clients, whoever sent a share.
"""

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, common_rounds, need, require_seen
from attacks.families.linkage import fingerprints
from attacks.families.sums.puzzle import FEWEST_BITS, REAL, UNKNOWN, VIRTUAL, Puzzle
from attacks.families.sums.readable import verdicts_on
from attacks.scoring.item_sets import listed_rows
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.view.coalition import rows_of, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step, View


class DenoiserExposure(SuiteAttack):
    """Finds rated items of denoisers that are not covered by a collected virtual row.

    Game: Given a denoiser's sums and counts, tell its own rated items from all others.
    Adversary: Honest-but-curious server.
    Needs: Item numbers and counts of the denoisers' messages of one round.
    Statistic: A count of -1 is the denoiser's own rating alone; items it does not send are unrated;
        in between, the lower the count the likelier.
    Reference: FedRec++ claims in section 'Eliminate the Gradient Noise in the Client' that the
        denoiser's privacy does not leak towards the server.
    Limits: A single denoiser for all clients has all of its items covered; with more denoisers,
        each has fewer rows to cover its items.
    """

    name = "denoiser-exposure"
    control = Control(measure="precision", on="ratings", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim that items with count -1 are the denoiser's own."""
        require_seen(view, {Step.DENOISE: "denoisers' sums"})
        rounds = common_rounds(view, Step.DENOISE, otherwise="no denoisers' sums were recorded")
        knowledge = Knowledge.of(view)
        own = not knowledge.hidden and not knowledge.summed_in_shares
        need(own, "the denoisers' sums are shares, with no row of their own")
        need(knowledge.rated_only, "clients send rows of items that they have not rated")
        messages = view.messages(Step.DENOISE, rounds[0])
        _, block = rows_of(messages)
        if block.counts is None:
            raise TypeError("denoisers send rows with counts")
        identities = np.asarray(knowledge.denoisers, dtype=np.int64)
        senders = identities[messages.senders.ids]
        clients = np.unique(senders[block.lengths > 0])
        listed, place = listed_rows(clients, senders, block, int(view.public["n_items"]))
        lowest = float(block.counts.max(initial=0)) + 1.0
        scores = np.empty(len(listed.items))
        scores[place] = -block.counts.astype(np.float64)
        exposed = scores == 1.0
        claim = RatedSetClaim.of_listed(clients, listed, scores, exposed, rest=-lowest)
        details = {"denoisers": len(clients), "items_exposed": int(exposed.sum())}
        return Claims(rounds=(rounds[0],), made=(claim,), details=details)


class DenoiserSums(SuiteAttack):
    """Finds virtual rows from the server's own view.

    Game: Given the identified uploads and the denoisers' sums of one round, tell virtual from real
        rows.
    Adversary: Honest-but-curious server, alone.
    Needs: Payloads of uploads and of the denoisers' sums of one round, and the public table.
    Statistic: A sum with one term equals an uploaded row: that row is virtual and its sender
        belongs to that denoiser's group. With the group known, every other sum is a small
        subset-sum over the group's rows; the denoiser's own row is recognised by its direction.
        Shares of denoisers that send shares of one sum are added up first: it is over all clients.
    Reference: Small-group aggregates; more denoisers are cheaper and leak more. Subset sums by
        halves, Horowitz and Sahni 1974.
    Limits: With one denoiser for all clients, sums have many terms and nothing is found (in shares:
        of items that more than 24 clients upload); with rows of few bits (low rank, coarse ring)
        nothing would be proven.
    """

    name = "denoiser-sums"
    reads_one_round = True
    control = Control(measure="unmasked_share", on="ratings", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Explain as many sums as possible."""
        require_seen(view, {Step.UPLOAD: "uploads", Step.DENOISE: "denoisers' sums"})
        none = "no round has payloads of uploads and sums"
        rounds = common_rounds(view, Step.UPLOAD, Step.DENOISE, payload=True, otherwise=none)
        need(Knowledge.of(view).rated_only, "clients send rows of items that they have not rated")
        puzzle = _read(view, rounds[0])
        bits = puzzle.bits_per_row(view.codec)
        need(bits >= FEWEST_BITS, "rows hold too few bits to be told apart in sums")
        whole = Knowledge.of(view).summed_in_shares
        if whole:
            puzzle.group_of = dict.fromkeys(range(len(puzzle.senders)), _EVERYBODY)
        else:
            puzzle.find_groups()
        puzzle.explain_sums(view.codec, whole=whole)
        block, senders = puzzle.sent, puzzle.senders
        listed, place = listed_rows(senders, senders, block, int(view.public["n_items"]))
        verdict = np.empty(len(listed.items), dtype=np.int64)
        verdict[place] = puzzle.verdict
        made = verdicts_on(senders, listed, verdict == REAL, verdict == VIRTUAL)
        details = {
            "rows_unmasked": int(np.sum(puzzle.verdict == VIRTUAL)),
            "rows_proven_real": int(np.sum(puzzle.verdict == REAL)),
            "clients_bound": len(puzzle.group_of),
            "sums_explained": puzzle.explained,
            "sums": len(puzzle.sums.rows),
        }
        return Claims(rounds=rounds[:1], made=made, details=details)


_EVERYBODY = 0
"""Number of the only group if denoisers hold shares of the sum over all clients."""


def _read(view: View, round_: int) -> Puzzle:
    uploads, sent = rows_of(view.messages(Step.UPLOAD, round_, payload=True))
    sums, told = rows_of(view.messages(Step.DENOISE, round_, payload=True))
    denoisers = sums.senders.ids
    if Knowledge.of(view).summed_in_shares:
        told, denoisers = _added_up(told, view.codec), np.array([_EVERYBODY])
    words, totals = words_of(sent), words_of(told)
    pulled = Knowledge.of(view).factorized
    regularization = float(view.public["algorithm"]["regularization"]) if pulled else 0.0
    return Puzzle(
        senders=uploads.senders.ids,
        sent=sent,
        sent_prints=fingerprints(words, view.codec),
        denoisers=denoisers,
        sums=told,
        sum_prints=fingerprints(totals, view.codec),
        codec=view.codec,
        pull=regularization * view.table(round_),
        verdict=np.full(len(sent.rows), UNKNOWN, dtype=np.int64),
    )


def _added_up(shares: RowBlock, codec: FixedPoint) -> RowBlock:
    """The sum that the denoisers' sums are shares of; all of them name the same rows and counts."""
    if shares.values is None or shares.counts is None:
        raise ValueError("denoisers send rows with words and counts")
    rows, first, place = np.unique(shares.rows, return_index=True, return_inverse=True)
    totals = np.zeros((len(rows), shares.values.shape[1]), dtype=codec.dtype)
    np.add.at(totals, place, shares.values)
    ends, values = np.array([0, len(rows)]), codec.from_integers(codec.to_integers(totals))
    return RowBlock(indptr=ends, rows=rows, values=values, counts=shares.counts[first])
