"""The attacks on uploads and sums of co-occurrences."""

from dataclasses import replace
from typing import Any

import numpy as np

from attacks.base import Claims, Control, Secrets, SuiteAttack, need
from attacks.families.co_occurrences.persons import Persons, persons_in
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.pair_games import ChoiceClaim, MembershipClaim
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.view.coalition import rows_of, words_of
from attacks.view.knowledge import Knowledge
from attacks.view.named import named_payload_rounds, named_rows, readable, sees_named_rows
from attacks.view.pairs import PairSums, noise_of, pair_sums, pair_view, row_starts
from secure_fedrec.core.arrays import BoolArray, nobody
from secure_fedrec.wire import View

_ON = "co-occurrences"
_HELD_OUT: Secrets = {"held_out.items": lambda planted: planted["held_out"]}


class CoOccurrenceRows(SuiteAttack):
    """Reads a client's items off its upload.

    Game: Given a client's x x^T, or its product with public signs, tell the items of its row x.
    Adversary: Honest-but-curious server, or a coalition that knows all of a sum but one client's
        part.
    Needs: Payload of an upload that can be read.
    Statistic: The diagonal of x x^T is x; rows of a sketch that are not 0 belong to its items. Both
        are certain if there is no noise.
    Reference: Steck 2019: x x^T is one user's part of the Gram matrix.
    Limits: Of a sketch of few columns a row of the client's own may be 0 by chance. Later uploads
        hold zeros and tell nothing.
    """

    name = "co-occurrence-rows"
    reads_item_rows = False
    control = Control(measure="clients_exposed", on=_ON, breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim the items of every client whose upload can be read in any recorded round."""
        seen = pair_view(view)
        need(sees_named_rows(seen), "the view holds no uploads")
        rounds = need(named_payload_rounds(seen), "no payload of an upload was recorded")
        known, n_items = Knowledge.of(view), int(view.public["n_items"])
        columns, exact = int(view.public["algorithm"]["sketch"]), known.exact
        found: dict[int, BoolArray] = {}
        for round_ in rounds:
            messages, block = rows_of(named_rows(seen, round_, payload=True))
            plain = readable(seen, block)
            for place in np.flatnonzero(plain).tolist():
                words = words_of(block)[block.indptr[place] : block.indptr[place + 1]].reshape(-1)
                own = words[row_starts(n_items)] if not columns else words[: n_items * columns]
                own = (own.reshape(n_items, -1) != 0).any(axis=1)
                if own.any():
                    found[int(messages.senders.ids[place])] = own
        need(found, "no upload can be read")
        need(exact, "noise is in the uploads")
        clients = np.array(sorted(found), dtype=np.int64)
        rated = np.stack([found[client] for client in clients.tolist()])
        who, items = np.nonzero(rated)
        claim = RatedSetClaim(
            clients=clients, scores=rated.astype(np.float64), visible=rated, predicted=rated
        )
        part = Disclosures.named(rounds[0], clients[who], items)
        return Claims(rounds=rounds, made=(claim, DisclosureClaim(parts=(part,))))


class CoOccurrencePersons(SuiteAttack):
    """Takes sums of co-occurrences apart, person by person.

    Game: Given how many people have each pair of items, tell which items one person has.
    Adversary: Honest-but-curious server, or clients that are sent the sums or results of them.
    Needs: Payloads of exact sums of counts, or the public regression on them and its shrinkage.
    Statistic: The row of an item that one person has is that person's row; once that person's pairs
        are subtracted, other items may have one person left. Items that two persons have are
        assigned to them where pairs say who has both. Of other persons, the items of one whom two
        items single out. Every claim is proven, but about a person without a name, unless only one
        client takes part for the first time. From a regression I - B is inverted, and scaled to
        whole numbers of people. Uploads of the adversary's own clients are subtracted first.
    Reference: Singletons in published aggregates; Gram matrices of 0 and 1 rows, taken apart by
        differences.
    Limits: Who a person is has to be known from elsewhere; one rare item suffices. Items of three
        or more people are solved by differences alone. A floor on published pairs hides pairs below
        it, but not what larger sums prove about one person; it does not hide anything from the
        server. Does not take apart sketches, scaled rows, sums with noise, or weights that several
        sums would give.
    """

    name = "co-occurrence-persons"
    reads_item_rows = False
    control = Control(measure="clients_exposed", on=_ON)

    def claim(self, view: View) -> Claims:
        """Claim what the sums of all recorded rounds prove."""
        need(Knowledge.of(view).exact, "noise is in the sums: they are not exact counts")
        scaled = view.public["algorithm"]["largest_norm"]
        need(scaled is None, "rows are scaled: the sums are not counts")
        sums = pair_sums(view)
        found = [(each, persons_in(each.counts, each.floor)) for each in sums]
        fits = all(persons.consistent for _, persons in found)
        need(fits, "the sums are not those of rows of 0 and 1")
        details = {
            "persons_whole": sum(len(persons.whole) for _, persons in found),
            "persons_in_part": sum(len(persons.parts) for _, persons in found),
            "pairs_of_one": sum(int((np.triu(each.counts, 1) == 1).sum()) for each, _ in found),
        }
        parts = tuple(disclosed(*each) for each in found)
        rounds = tuple(each.round for each in sums)
        return Claims(rounds=rounds, made=(DisclosureClaim(parts=parts),), details=details)


def disclosed(sums: PairSums, persons: Persons) -> Disclosures:
    """Items that sums prove of persons, without names unless only one client added its row."""
    told = [*persons.whole, *persons.parts]
    names = np.full(len(told), sums.name, dtype=np.int64)
    sizes = np.array([len(each) for each in told], dtype=np.int64)
    items = np.concatenate([nobody(), *told])
    certain = Disclosures.named(sums.round, np.repeat(np.arange(len(told)), sizes), items)
    return replace(certain, names=names)


class CoOccurrenceMembership(SuiteAttack):
    """Tells whether a client whose row is known is in the sums.

    Game: Given a row of items and sums of co-occurrences, tell whether the row's client took part,
        or whether the sums are those without it.
    Adversary: Honest-but-curious server, or clients, who know the row from elsewhere.
    Needs: Payloads of sums that contain the whole row of every client, exact or with noise of
        stated size, or the public regression on exact ones.
    Statistic: A pair of the row that no client has excludes the row. All other rows are scored by
        how far their pairs lie above what the leading eigenvectors of the sums explain, each
        divided by its variance, which includes noise.
    Reference: Homer et al. 2008, membership in published frequencies.
    Limits: An adversary that knows all other rows learns more, and everything from exact sums.
        Assumes that the whole row is known; with a part of it the attack finds less.
    """

    name = "co-occurrence-membership"
    reads_item_rows = False
    control = Control(measure="membership_auc", on=_ON, breaks="presence")

    def claim(self, view: View) -> Claims:
        """Claim that clients whose pairs are in the sums took part."""
        whole = not view.public["algorithm"]["candidates"]
        need(whole, "each client kept an item of its row out of the sums")
        everybody = view.public["cohort"]["clients_per_round"] is None
        need(
            everybody,
            "not all clients are invited to every round: it is not known which rows are added",
        )
        rounds, told = _added_up(view)
        alone = view.public["algorithm"]["solved_at"] == "server"
        told["unknown"] = alone & ~told["matrix"].any(axis=1)
        return Claims(rounds=rounds, made=(MembershipClaim(**told),))


class CoOccurrenceChoice(SuiteAttack):
    """Ranks what a client will choose by the regression on the sums.

    Game: Given the items that a client has, and sums of co-occurrences, tell which others it will
        choose.
    Adversary: Honest-but-curious server, or clients, who know the items from elsewhere.
    Needs: Payloads of sums, exact or with noise of stated size, or the public regression on exact
        ones; the shrinkage.
    Statistic: The row times EASE's B, for items outside the row.
    Reference: Steck 2019, whose recommender it is.
    Limits: This is what the model is for, and it works for people who are not in the sums as well;
        the gain is what the client's own part adds, and held-out items are not in the sums.
    """

    name = "co-occurrence-choice"
    reads_item_rows = False
    control = Control(measure="choice_auc", on=_ON, secrets=_HELD_OUT)

    def claim(self, view: View) -> Claims:
        """Claim the regression."""
        rounds, told = _added_up(view)
        shrinkage = view.public["algorithm"]["shrinkage"] * int(view.public["n_clients"])
        return Claims(rounds=rounds, made=(ChoiceClaim(**told, shrinkage=shrinkage),))


def _added_up(view: View) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Rounds, with the data for a claim about all of them."""
    sums = pair_sums(view)
    noise = noise_of(view)
    matrix = np.sum([each.matrix for each in sums], axis=0)
    norm = view.public["algorithm"]["largest_norm"]
    told = {"matrix": matrix, "noise": noise, "floor": sums[0].floor, "largest_norm": norm}
    return tuple(each.round for each in sums), told
