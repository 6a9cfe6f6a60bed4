"""Attacks by which an organisation learns about another from item vectors, exchanged or summed."""

import numpy as np

from attacks.base import Claims, Control, OneRound, Secrets, SuiteAttack, need
from attacks.scoring.organisations import MembersClaim, SalesClaim
from attacks.view.coalition import others_change, own_clients, own_uploads, rows_of, words_of
from attacks.view.knowledge import Knowledge, item_view
from attacks.view.named import named_payload_rounds, named_rows, sees_named_rows
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.wire import Messages, Step, View

_Vectors = dict[int, tuple[IntArray, FloatArray]]
"""Items and their vectors by client."""

_SALES: Secrets = {"sales.items": lambda planted: planted["sales"]}
_USERS: Secrets = {"members.users": lambda planted: planted["users"]}


class ItemSales(OneRound, SuiteAttack):
    """Fits a probe from a partner's item vectors to sales, and applies it to the other items.

    Game: Given an organisation's item vectors of one round, tell how often its users chose each of
        the items that the adversary does not sell.
    Adversary: Another organisation, or an honest-but-curious server.
    Needs: Payload of what organisations give each other, or of their uploads, or of the sum, less
        the adversary's own part; its own sales of items that both have.
    Statistic: Ridge regression of the logarithm of the adversary's sales on the vectors of items
        that both have and on how long they are; the latest recorded round tells most.
    Reference: Popularity is what item embeddings learn first; probes of representations (Alain and
        Bengio 2017).
    Limits: Assumes that sales of both organisations are similar. For items that both sell, the
        adversary's own sales already tell most. Vectors normalised to length 1 tell less; from a
        sum, the same is claimed about each of the other organisations.
    """

    name = "item-sales"
    control = Control(
        measure="item_sales_correlation", on="partners", who="one client", secrets=_SALES
    )

    def claim(self, view: View) -> Claims:
        """Claim the sales of every organisation whose vectors are in view."""
        round_, clients, items, vectors = _seen(view)
        lengths = (np.linalg.norm(each, axis=1, keepdims=True) for each in vectors)
        features = tuple(map(np.hstack, zip(vectors, lengths, strict=True)))
        claim = SalesClaim(name="items", clients=clients, items=items, vectors=features)
        return Claims(rounds=(round_,), made=(claim,))


class PartnerMembers(OneRound, SuiteAttack):
    """Tests whether a partner's item vectors were trained on a person's record.

    Game: Given an organisation's item vectors of one round and what some persons chose, tell its
        users from the others.
    Adversary: Another organisation, or an honest-but-curious server, with records of persons.
    Needs: Payload of what organisations give each other, or of their uploads, or of the sum, less
        the adversary's own part; records of persons on the organisation's items.
    Statistic: Share of a record that is a linear function of the vectors, beside what popularity
        explains; the latest recorded round tells most.
    Reference: Membership inference by how well a model explains a record (Shokri et al. 2017), on
        representations in place of predictions.
    Limits: With many users and few dimensions, each leaves little trace. Users of other
        organisations stand for strangers; if their tastes differ, the attack measures that
        difference too.
        A shadow model, which is not trained here, may find more.
    """

    name = "partner-members"
    control = Control(measure="member_auc", on="partner users", who="one client", secrets=_USERS)

    def claim(self, view: View) -> Claims:
        """Claim the users of every organisation whose vectors are in view."""
        round_, clients, items, vectors = _seen(view)
        claim = MembersClaim(name="users", clients=clients, items=items, vectors=vectors)
        return Claims(rounds=(round_,), made=(claim,))


def _seen(view: View) -> tuple[int, IntArray, tuple[IntArray, ...], tuple[FloatArray, ...]]:
    """Round, organisations in view that are others, and items and vectors of each of them."""
    round_, found = _given(view) or _summed(view) or (0, {})
    need(bool(found), "no vectors of organisations are in view, nor their sum")
    others = sorted(set(found) - own_clients(view))
    items = tuple(found[client][0] for client in others)
    vectors = tuple(found[client][1] for client in others)
    return round_, np.array(others, dtype=np.int64), items, vectors


def _given(view: View) -> tuple[int, _Vectors] | None:
    """Vectors that organisations gave each other, as the corrupted receiver with most has them."""
    if not view.sees(Step.PEER) or not view.payload_rounds(Step.PEER):
        return None
    round_ = view.payload_rounds(Step.PEER)[0]
    return round_, _decoded(view, view.messages(Step.PEER, round_, payload=True))


def _decoded(view: View, messages: Messages) -> _Vectors:
    """Decoded vectors by sender; of several messages, those of the longest."""
    vectors: _Vectors = {}
    _, block = rows_of(messages)
    for sender, rows in zip(messages.senders.ids.tolist(), block.split(), strict=True):
        if sender not in vectors or len(rows.rows) > len(vectors[sender][0]):
            vectors[sender] = rows.rows.astype(np.int64), view.codec.decode(words_of(rows))
    return vectors


def _summed(view: View) -> tuple[int, _Vectors] | None:
    """Uploads, or a sum of two organisations minus the adversary's own part."""
    items = item_view(view) if Knowledge.of(view).vectors else None
    if items is None:
        return None
    rounds = named_payload_rounds(items) if sees_named_rows(items) else ()
    if rounds and items.adversary.has("server"):
        return rounds[0], _decoded(items, named_rows(items, rounds[0], payload=True))
    return _rest_of_sum(items)


def _rest_of_sum(items: View) -> tuple[int, _Vectors] | None:
    """A round's sum minus the own part, used as the vectors of each other organisation."""
    own = items.own
    rounds = items.payload_rounds(Step.MODEL) if items.sees(Step.MODEL) else ()
    if own is None or len(own.clients) != 1 or not rounds:
        return None
    mine, rest = own_uploads(items, rounds[0]), others_change(items, rounds[0])
    if mine is None or rest is None:
        return None
    rows = rows_of(mine)[1].rows.astype(np.int64)
    others = set(range(int(items.public["n_clients"]))) - own.clients
    return rounds[0], dict.fromkeys(others, (rows, rest[rows]))
