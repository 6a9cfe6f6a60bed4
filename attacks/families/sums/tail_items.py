"""Items with one rater, or none, in the aggregate: no way of hiding uploads hides these."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, common_rounds, need, require_seen
from attacks.families.sums.participation import Verdicts, deduce
from attacks.families.sums.tail_rows import RowGroups, group_steps
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.item_sets import ItemSets, keys_of, listed_rows
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from attacks.scoring.single_rows import AnonymousRowClaim, SingleRowsClaim
from attacks.scoring.virtual_rows import UnmaskedClaim
from attacks.view.coalition import others_sum, others_uploads, rows_of, words_of
from attacks.view.knowledge import Knowledge
from attacks.view.presence import Presence
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step, View


class TailItems(SuiteAttack):
    """Reads singletons: under names where uploads can be read, without names where they cannot.

    Game: Given the sums and counts the server ends up with, tell which identified rows are real;
        where uploads are hidden, read single clients' rows off the sums and tell what each client
        can have rated.
    Adversary: Honest-but-curious server.
    Needs: The aggregate of at least one round, free of virtual rows, and who uploaded; payloads of
        both in the same round where uploads can be read.
    Statistic: An item with count 1: the aggregate is that rater's row. The readable upload that
        equals it is real and every other one of the item virtual; of hidden uploads the row stays
        without a name, but rows of one client are collinear and decode to its ratings and vector.
        Count 0 clears everybody who took part, and counts of changing cohorts are equations in the
        bits of each client. An adversary's own clients are taken out first.
    Reference: Singletons in published aggregates; secure aggregation does not remove them.
        Statistical disclosure from changing cohorts, Danezis 2003.
    Limits: Reaches only the tail of the catalogue; a popular item hides its raters. Noised counts
        prove nothing, noised rows fit no rating, and rows of items below a tail floor are not in
        the sum: none is then reported as recovered.
    """

    name = "tail-items"
    control = Control(measure="precision", on="ratings", breaks="lone rows")

    def claim(self, view: View) -> Claims:
        """Claim what the counts prove."""
        require_seen(view, {Step.AGGREGATE: "aggregate", Step.UPLOAD: "uploads"})
        knowledge = Knowledge.of(view)
        rows = "the virtual rows" if knowledge.rated_only else "rows of items nobody rated"
        need(
            knowledge.sums_are_real and knowledge.rated_only,
            f"the aggregate still contains {rows}, its counts prove nothing",
        )
        if knowledge.hidden:
            counted = tuple(sorted(set(view.rounds(Step.UPLOAD)) & set(_counted(view))))
            need(counted, "no round has both uploads and an aggregate")
            return _Hidden(view, knowledge, Presence.read(view, knowledge, counted)).claims()
        none = "no round has payloads of both uploads and aggregate"
        rounds = common_rounds(view, Step.AGGREGATE, Step.UPLOAD, payload=True, otherwise=none)
        return _identified(view, knowledge, rounds)


# --- readable uploads -----------------------------------------------------------------------------


def _identified(view: View, knowledge: Knowledge, rounds: Sequence[int]) -> Claims:
    """Compare the uploads of every round with its sums; a proof in one round stands for all."""
    n_items = int(view.public["n_items"])
    senders = [others_uploads(view, r, payload=True)[0].senders.ids for r in rounds]
    clients = np.unique(np.concatenate(senders))
    listed, real_keys, fake_keys = ItemSets.empty(len(clients), n_items), [], []
    tail = np.zeros(n_items, dtype=bool)
    recovered = 0
    for round_ in rounds:
        uploads, block = others_uploads(view, round_, payload=True)
        total = others_sum(view, round_, payload=True)
        counts = np.zeros(n_items, dtype=np.int64) if total.counts is None else total.counts
        seen, place = listed_rows(clients, uploads.senders.ids, block, n_items)
        proven, disproven = _compare(block, total, counts)
        keys = keys_of(seen)
        real_keys.append(keys[place[proven]])
        if knowledge.exact:
            fake_keys.append(keys[place[disproven]])
        listed = listed.united(seen)
        tail |= counts == 1
        recovered += int(proven.sum())
    real, fake = (
        np.isin(keys_of(listed), np.concatenate([np.zeros(0, dtype=np.int64), *keys]))
        for keys in (real_keys, fake_keys)
    )
    scores = np.ones(len(listed.items))  # 0 unseen, 1 undecided
    scores[fake], scores[real] = 0.5, 2.0
    details = {
        "tail_items": int(tail.sum()),
        "rows_recovered": recovered,
        "rows_proven_real": int(real.sum()),
        "rows_proven_virtual": int(fake.sum()),
    }
    claim = RatedSetClaim.of_listed(clients, listed, scores, real)
    sure = real & knowledge.exact
    told = Disclosures.named(
        rounds[0], clients[listed.owners[sure]], listed.items[sure].astype(np.int64)
    )
    fakes = Rows.marked(listed, fake)
    virtual = UnmaskedClaim(clients=clients, visible=claim.visible, proven=fakes)
    made = (claim, virtual, DisclosureClaim(parts=(told,)))
    return Claims(rounds=tuple(rounds), made=made, details=details)


def _compare(block: RowBlock, total: RowBlock, counts: IntArray) -> tuple[BoolArray, BoolArray]:
    """Rows proven real and rows proven virtual: bool[N] each."""
    of_item = counts[block.rows]
    equal = (of_item == 1) & np.all(words_of(block) == words_of(total)[block.rows], axis=1)
    # In a coarse ring two uploads can hold the same words: then neither is proven real.
    alike = np.bincount(block.rows[equal], minlength=len(counts))
    return equal & (alike[block.rows] == 1), ~equal & (of_item <= 1)


# --- hidden uploads -------------------------------------------------------------------------------


def _counted(view: View) -> tuple[int, ...]:
    """Rounds whose aggregate has counts."""
    return tuple(
        round_
        for round_ in view.rounds(Step.AGGREGATE)
        if rows_of(view.messages(Step.AGGREGATE, round_))[1].counts is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tail:
    """Rows of one round's items with count 1, the groups found among them, and who is left out."""

    round: int
    items: IntArray
    groups: RowGroups
    left_out: int


class _Hidden:
    """The server's data where uploads cannot be read: who was there, sums and counts."""

    def __init__(self, view: View, knowledge: Knowledge, presence: Presence) -> None:
        self._view = view
        self._knowledge = knowledge
        self._presence = presence

    def claims(self) -> Claims:
        """Rows without names, then verdicts on each client, then names where one is left."""
        presence, knowledge = self._presence, self._knowledge
        values = set(self._view.payload_rounds(Step.AGGREGATE))
        tails = [self._tail(r) for r in presence.rounds if r in values]
        verdicts = deduce(presence, knowledge)
        owners = [self._owners(tail, verdicts) for tail in tails]
        # A name settles the items of its group, which may settle other counts, and so on.
        while knowledge.exact and verdicts.consistent:
            rated = self._with_owners(tails, owners, verdicts.rated)
            further = deduce(presence, knowledge, rated)
            if not further.consistent or further.settles_as(verdicts):
                break
            verdicts = further
            owners = [self._owners(tail, verdicts) for tail in tails]
        excluded = presence.visible & ~verdicts.possible
        nothing = ItemSets.empty(len(presence.clients), presence.visible.shape[1])
        claim = RatedSetClaim(
            clients=presence.clients,
            scores=presence.rows(verdicts.scores(presence, knowledge), nothing),
            visible=presence.rows(presence.visible, nothing),
            predicted=presence.rows(verdicts.rated, nothing),
        )
        both = zip(tails, owners, strict=True)
        rows = tuple(tail.groups.claim(tail.round, tail.items, whose) for tail, whose in both)
        proven = UnmaskedClaim(clients=presence.clients, visible=presence.visible, proven=excluded)
        made = (claim, SingleRowsClaim(parts=rows))
        return Claims(
            rounds=presence.rounds,
            made=(*made, proven) if knowledge.virtual_rows else made,
            details=self._details(rows, sum(tail.left_out for tail in tails), verdicts, excluded),
        )

    def _tail(self, round_: int) -> _Tail:
        """Rows of the items with count 1 that are in the sum; and how many are not."""
        view = self._view
        total = others_sum(view, round_, payload=True)
        if total.values is None or total.counts is None:
            raise ValueError("payloads were asked for")
        single = total.counts == 1
        # A rater's row is never all zeros: its sum was left out, by a tail floor.
        kept = np.flatnonzero(single & (total.values != 0).any(axis=1))
        items = total.rows[kept].astype(np.int64)
        groups = self._grouped(round_, items, view.codec.decode(total.values[kept]))
        if not self._knowledge.exact:  # a count of 1 is an estimate: keep what the rows confirm
            items, groups = items[groups.named], groups.keep(groups.named)
        left_out = int(single.sum()) - len(kept)
        return _Tail(round=round_, items=items, groups=groups, left_out=left_out)

    def _grouped(self, round_: int, items: IntArray, rows: FloatArray) -> RowGroups:
        view = self._view
        known = view.sees(Step.MODEL) and round_ in view.payload_rounds(Step.MODEL)
        if not self._knowledge.factorized or not known:
            return RowGroups.alone(*rows.shape)
        return group_steps(view, round_, items, rows)

    def _owners(self, tail: _Tail, verdicts: Verdicts) -> IntArray:
        """The one client that can have rated every item of a group; -1 where several can."""
        presence = self._presence
        there = presence.present[presence.rounds.index(tail.round)]
        owners = np.full(len(tail.groups.solved), -1, dtype=np.int64)
        if not self._knowledge.exact or not verdicts.consistent or presence.copies > 1:
            return owners
        for group in range(len(owners)):
            items = tail.items[tail.groups.groups == group]
            left = np.flatnonzero(there & verdicts.possible[:, items].all(axis=1))
            if len(left) == 1:
                owners[group] = presence.clients[left[0]]
        return owners

    def _with_owners(
        self, tails: Sequence[_Tail], owners: Sequence[IntArray], rated: BoolArray
    ) -> BoolArray:
        known = rated.copy()
        for tail, names in zip(tails, owners, strict=True):
            of_row = names[tail.groups.groups]
            place = np.searchsorted(self._presence.clients, of_row[of_row >= 0])
            known[place, tail.items[of_row >= 0]] = True
        return known

    def _details(
        self,
        rows: Sequence[AnonymousRowClaim],
        left_out: int,
        verdicts: Verdicts,
        excluded: BoolArray,
    ) -> dict[str, Any]:
        tail = (self._presence.counts == 1).any(axis=0)
        sizes = [np.bincount(claim.groups, minlength=1) for claim in rows]
        return {
            "tail_items": int(tail.sum()),
            "rows_recovered": sum(len(claim.items) for claim in rows),
            "rows_left_out": left_out,
            "groups": sum(int((size > 1).sum()) for size in sizes),
            "ratings_named": sum(int(claim.named.sum()) for claim in rows),
            "groups_attributed": sum(int((claim.owners >= 0).sum()) for claim in rows),
            "pairs_proven_real": int(verdicts.rated.sum()) * self._presence.copies,
            "pairs_excluded": int(excluded.sum()) * self._presence.copies,
            "cohorts": len(np.unique(self._presence.present, axis=0)),
            "counts_exact": self._knowledge.exact,
            "counts_consistent": verdicts.consistent,
        }
