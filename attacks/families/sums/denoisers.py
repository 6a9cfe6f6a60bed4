"""What the denoisers' sums tell the server by itself: rows behind small sums, and the denoisers.

A denoiser sends, per item, S = (virtual rows it collected) - (its own row) and the count behind it.
With few clients per denoiser most sums have one or two terms, and the server holds every candidate
term under its sender's name. Linkage-hardened denoisers send shares of such sums: added up they are
the virtual rows of all clients, and who sent a cell does not matter any more.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import comb

import numpy as np

from attacks.base import (
    Claims,
    Control,
    SuiteAttack,
    common_rounds,
    need,
    require_seen,
)
from attacks.families.linkage import fingerprints
from attacks.families.sums.subsets import MOST_ROWS, MOST_SUBSETS, find_subset
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows, listed_rows
from attacks.scoring.virtual_rows import UnmaskedClaim
from attacks.view.coalition import rows_of, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import FloatArray, IntArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step, View

_FEWEST_BITS = 40  # a run tries some 2^30 subsets; below, a wrong one can match by chance
_COLLINEAR = 1e-5  # residual share of a row that must lie along the denoiser's own vector


class DenoiserExposure(SuiteAttack):
    """Rated items of the denoisers themselves that no collected virtual row covers.

    Game: Given a denoiser's sums and counts, tell its own rated items from all others.
    Adversary: Honest-but-curious server.
    Needs: Item numbers and counts of the denoisers' messages of one round.
    Statistic: A count of -1 is the denoiser's own rating alone; items it does not send are unrated;
        in between, the lower the count the likelier.
    Reference: FedRec++ claims in section 'Eliminate the Gradient Noise in the Client' that the
        denoiser's privacy does not leak towards the server.
    Limits: One denoiser for everybody covers all its items; the more denoisers, the less cover each
        has.
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
        claim = RatedSetClaim(
            clients=clients,
            scores=Rows(listed=listed, values=scores, rest=-lowest),
            visible=Rows.marked(listed),
            predicted=Rows(listed=listed, values=exposed, rest=False),
        )
        details = {"denoisers": len(clients), "items_exposed": int(exposed.sum())}
        return Claims(rounds=(rounds[0],), made=(claim,), details=details)


class DenoiserSums(SuiteAttack):
    """Virtual rows unmasked by the server alone.

    Game: Given the identified uploads and the denoisers' sums of one round, tell virtual from real
        rows.
    Adversary: Honest-but-curious server, alone.
    Needs: Payloads of uploads and of the denoisers' sums of one round, and the public table.
    Statistic: A sum with one term equals an uploaded row: that row is virtual and its sender is
        bound to that denoiser. With the group known, every other sum is a small subset-sum over the
        group's rows; the denoiser's own row is recognised by its direction. Shares of denoisers
        that send shares of one sum are added up first: it is over all clients.
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
        need(bits >= _FEWEST_BITS, "rows hold too few bits to be told apart in sums")
        whole = Knowledge.of(view).summed_in_shares
        if whole:
            puzzle.group_of = dict.fromkeys(range(len(puzzle.senders)), _EVERYBODY)
        else:
            puzzle.find_groups()
        puzzle.explain_sums(view.codec, whole=whole)
        return self._claims(view, rounds[0], puzzle)

    @staticmethod
    def _claims(view: View, round_: int, puzzle: "_Puzzle") -> Claims:
        block, senders = puzzle.sent, puzzle.senders
        listed, place = listed_rows(senders, senders, block, int(view.public["n_items"]))
        scores, seen = np.ones(len(listed.items)), Rows.marked(listed)
        scores[place[puzzle.verdict == _REAL]] = 2.0
        scores[place[puzzle.verdict == _VIRTUAL]] = 0.5
        claim = RatedSetClaim(
            clients=senders,
            scores=Rows(listed=listed, values=scores),
            visible=seen,
            predicted=Rows(listed=listed, values=scores == 2.0, rest=False),
        )
        details = {
            "rows_unmasked": int(np.sum(puzzle.verdict == _VIRTUAL)),
            "rows_proven_real": int(np.sum(puzzle.verdict == _REAL)),
            "clients_bound": len(puzzle.group_of),
            "sums_explained": puzzle.explained,
            "sums": len(puzzle.sums.rows),
        }
        virtual = Rows(listed=listed, values=scores == 0.5, rest=False)
        proven = UnmaskedClaim(clients=senders, visible=seen, proven=virtual)
        return Claims(rounds=(round_,), made=(claim, proven), details=details)


_UNKNOWN, _REAL, _VIRTUAL = 0, 1, 2
_EVERYBODY = 0
"""The one group where denoisers hold shares of the sum over all clients."""


@dataclass(slots=True, eq=False)
class _Puzzle:
    """The server's data of one round, as a set of subset-sum puzzles."""

    senders: IntArray
    sent: RowBlock
    sent_prints: WordArray
    denoisers: IntArray
    sums: RowBlock
    sum_prints: WordArray
    codec: FixedPoint
    pull: FloatArray
    verdict: IntArray
    group_of: dict[int, int] = field(default_factory=dict)
    explained: int = 0

    def bits_per_row(self, codec: FixedPoint) -> float:
        """About how many bits the words of an uploaded row hold."""
        if not len(self.sent.rows):
            return 0.0
        # Column by column: the integers of a round are several times as large as its words.
        spread = np.array([codec.to_integers(each).std() for each in words_of(self.sent).T])
        return float(np.log2(1.0 + spread).sum())

    def find_groups(self) -> None:
        """Match sums of a single row; each match binds a sender to a denoiser."""
        sent = len(self.sent_prints)
        items = np.concatenate([self.sent.rows, self.sums.rows])
        marks = np.concatenate([self.sent_prints, self.sum_prints])
        order = np.lexsort((marks, items))
        new = (np.diff(items[order]) != 0) | (np.diff(marks[order]) != 0)
        kind = np.empty(len(order), dtype=np.int64)  # rows and sums of one item and fingerprint
        kind[order] = np.concatenate([np.zeros(min(1, len(order)), dtype=np.int64), np.cumsum(new)])
        rows_of_kind = np.bincount(kind[:sent], minlength=len(order))
        row = np.zeros(len(order), dtype=np.int64)
        row[kind[:sent]] = np.arange(sent)
        owner = np.repeat(np.arange(len(self.senders)), self.sent.lengths)
        denoiser = np.repeat(self.denoisers, self.sums.lengths)
        single = np.flatnonzero(rows_of_kind[kind[sent:]] == 1)
        matched = row[kind[sent:][single]]
        self.verdict[matched] = _VIRTUAL
        owners, groups = owner[matched].tolist(), denoiser[single].tolist()
        self.group_of.update(zip(owners, groups, strict=True))

    def explain_sums(self, codec: FixedPoint, *, whole: bool = False) -> None:
        """For every sum, find the one subset of the group's rows of that item behind it.

        A search by halves is for groups of which all members are known (``whole``).
        """
        halves = whole and self.bits_per_row(codec) >= MOST_ROWS + _FEWEST_BITS
        counts = np.zeros(len(self.sums.rows), dtype=np.int64)
        if self.sums.counts is not None:
            counts = self.sums.counts
        # One byte a row, and lists of one group at a time: numbers of Python take 36 bytes each.
        verdict = bytearray(self.verdict.astype(np.uint8).tobytes())
        words, totals = words_of(self.sent), words_of(self.sums)
        members_of = self._members()
        for denoiser, (start, stop) in zip(
            self.denoisers.tolist(), pairwise(self.sums.indptr.tolist()), strict=True
        ):
            direction = self._own_direction(range(start, stop))
            of_group, prints = self._candidates(members_of.get(denoiser, []))
            items = self.sums.rows[start:stop].tolist()
            told = zip(
                range(start, stop),
                items,
                counts[start:stop].tolist(),
                self.sum_prints[start:stop].tolist(),
                strict=True,
            )
            summed = set(items)
            for item, members in of_group.items():
                if item not in summed:
                    for member in members:
                        verdict[member] = _REAL  # a virtual row would be in the sums
            for cell, item, count, target in told:
                members = of_group.get(item, [])
                subset = find_subset(
                    members,
                    count,
                    prints=prints,
                    words=words,
                    total=totals[cell],
                    target=target,
                    codec=codec,
                    halves=halves,
                )
                if subset is None:
                    subset = self._with_own_row(cell, members, count, direction)
                if subset is not None:
                    self.explained += 1
                    for member in members:
                        verdict[member] = _REAL
                    for member in subset:
                        verdict[member] = _VIRTUAL
        self.verdict[:] = np.frombuffer(verdict, dtype=np.uint8)

    def _members(self) -> dict[int, list[int]]:
        """Places of the senders that are known to be a denoiser's, ascending."""
        found: dict[int, list[int]] = defaultdict(list)
        for sender in sorted(self.group_of):
            found[self.group_of[sender]].append(sender)
        return found

    def _candidates(self, senders: Sequence[int]) -> tuple[dict[int, list[int]], dict[int, int]]:
        """Rows of some senders by their items, ascending, and the fingerprint of each."""
        of_item: dict[int, list[int]] = {}
        prints: dict[int, int] = {}
        for sender in senders:
            start, stop = self.sent.indptr[sender : sender + 2].tolist()
            for position, item in enumerate(self.sent.rows[start:stop].tolist(), start):
                of_item.setdefault(item, []).append(position)
            own = self.sent_prints[start:stop].tolist()
            prints.update(zip(range(start, stop), own, strict=True))
        return of_item, prints

    def _own_direction(self, cells: range) -> FloatArray | None:
        """Direction of the denoiser's own vector, from the sums that are its row alone."""
        if self.sums.counts is None or words_of(self.sums).shape[1] < 2:
            return None  # with a single dimension every row lies along every vector
        alone = cells.start + np.flatnonzero(self.sums.counts[cells.start : cells.stop] == -1)
        if not len(alone):
            return None
        own = -self.codec.decode(words_of(self.sums)[alone]) - self.pull[self.sums.rows[alone]]
        return np.asarray(np.linalg.svd(own, full_matrices=False)[2][0])

    def _with_own_row(
        self, cell: int, members: list[int], count: int, direction: FloatArray | None
    ) -> tuple[int, ...] | None:
        """Rows behind a sum that the denoiser's own row was taken off."""
        terms = count + 1
        if direction is None or not 0 <= terms <= len(members):
            return None
        if comb(len(members), terms) > MOST_SUBSETS:
            return None
        fits = [
            subset
            for subset in combinations(members, terms)
            if self._is_own_row(cell, subset, direction)
        ]
        return fits[0] if len(fits) == 1 else None

    def _is_own_row(self, cell: int, subset: tuple[int, ...], direction: FloatArray) -> bool:
        rows = self.codec.decode(words_of(self.sent)[list(subset)])
        own = rows.sum(axis=0) - self.codec.decode(words_of(self.sums)[cell])
        own = own - self.pull[self.sums.rows[cell]]
        off = own - (own @ direction) * direction
        size = float(np.linalg.norm(own))
        return size > 0.0 and float(np.linalg.norm(off)) <= _COLLINEAR * size


def _read(view: View, round_: int) -> _Puzzle:
    uploads, sent = rows_of(view.messages(Step.UPLOAD, round_, payload=True))
    sums, told = rows_of(view.messages(Step.DENOISE, round_, payload=True))
    denoisers = sums.senders.ids
    if Knowledge.of(view).summed_in_shares:
        told, denoisers = _added_up(told, view.codec), np.array([_EVERYBODY])
    words, totals = words_of(sent), words_of(told)
    regularization = float(view.public["algorithm"].get("regularization", 0.0))
    return _Puzzle(
        senders=uploads.senders.ids,
        sent=sent,
        sent_prints=fingerprints(words, view.codec),
        denoisers=denoisers,
        sums=told,
        sum_prints=fingerprints(totals, view.codec),
        codec=view.codec,
        pull=regularization * view.table(round_),
        verdict=np.full(len(sent.rows), _UNKNOWN, dtype=np.int64),
    )


def _added_up(shares: RowBlock, codec: FixedPoint) -> RowBlock:
    """The sum that the denoisers' sums are shares of; all of them name the same rows and counts."""
    if shares.values is None or shares.counts is None:
        raise ValueError("denoisers send rows with words and counts")
    rows, first, place = np.unique(shares.rows, return_index=True, return_inverse=True)
    totals = np.zeros((len(rows), shares.values.shape[1]), dtype=codec.dtype)
    np.add.at(totals, place, shares.values)
    return RowBlock(
        indptr=np.array([0, len(rows)]),
        rows=rows,
        values=codec.from_integers(codec.to_integers(totals)),
        counts=shares.counts[first],
    )
