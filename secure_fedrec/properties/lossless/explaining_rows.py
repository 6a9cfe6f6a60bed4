"""Explains rows that differ when they enter the collector, where their clients are known.

Either all differing rows are explained, or none.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import log2

import numpy as np

from secure_fedrec.core.arrays import BoolArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties.lossless import chance
from secure_fedrec.properties.lossless.explanation import Cause, Explanation
from secure_fedrec.properties.lossless.plain_run import Rows
from secure_fedrec.properties.lossless.ring_words import reduced, words_of


def explain_rows(sent: Rows, due: Rows, *, before: Rows, ring: FixedPoint) -> Explanation | None:
    """Explain rows that differ when they enter the collector.

    Args:
        sent: rows as the clients submitted them.
        due: the same rows of the plain uploads.
        before: rows of the round before.
        ring: ring of the rows.
    """
    if sent.values.shape != due.values.shape:
        return None
    rows = _Differing(sent, due, before, ring)
    return Explanation.of(rows.of_one_kind() or rows.exchanged(rows.differs) or rows.by_client())


class _Differing:
    """Actual and expected rows.

    Attributes:
        differs: bool[N].
    """

    def __init__(self, sent: Rows, due: Rows, before: Rows, ring: FixedPoint) -> None:
        self._due, self._ring = due, ring
        self._words, self._sent = (
            reduced(words_of(each.values, each.counts), ring) for each in (due, sent)
        )
        self.differs: BoolArray = (self._sent != self._words).any(axis=1)
        self._apart = chance.alike(self._words)
        self._like = {
            "doubled": self._doubled(),
            "zeroed": (self._sent == self._zeroed()).all(axis=1),
            "late": (self._sent == self._late(before)).all(axis=1),
        }

    def of_one_kind(self) -> list[tuple[Cause, ...]]:
        """All differing rows, if one kind explains all of them."""
        return [self._causes(kind) for kind in self._kinds(self.differs)]

    def by_client(self) -> list[tuple[Cause, ...]]:
        """The rows of each client separately, if one kind explains each client's rows."""
        found = []
        for client in np.unique(self._due.clients[self.differs]).tolist():
            scope = self.differs & (self._due.clients == client)
            own = [self._meant(kind, scope) for kind in self._kinds(scope)]
            own = own or [cause for (cause,) in self.exchanged(scope)]
            if len(own) != 1:
                return []
            found += own
        return [tuple(found)]

    def exchanged(self, scope: BoolArray) -> list[tuple[Cause, ...]]:
        """Clients that sent another client's rows, or each other's."""
        due, sent, words = self._due, self._sent, self._words
        clients = np.unique(due.clients[scope])
        if len(clients) == 2:
            left, right = (scope & (due.clients == client) for client in clients)
            if not np.array_equal(due.rows[left], due.rows[right]):
                return []
            swapped = (sent[left] == words[right]).all() and (sent[right] == words[left]).all()
            return [(self._meant("swapped", scope),)] if swapped and self._sure(scope) else []
        everybody = len(np.unique(due.clients))
        if len(clients) != 1 or not self._sure(scope, among=everybody):
            return []
        items, mine = due.rows[scope], due.clients == clients[0]
        at = np.minimum(np.searchsorted(items, due.rows), len(items) - 1)
        theirs = ~mine & (items[at] == due.rows)
        theirs &= (words == sent[scope][at]).all(axis=1)
        others = np.flatnonzero(np.bincount(due.clients[theirs]) == len(items)).tolist()
        found = self._meant("another's", scope)
        return [(replace(found, other=other),) for other in others]

    def _kinds(self, scope: BoolArray) -> Iterator[str]:
        for kind, like in self._like.items():
            if like[scope].all() and (kind != "late" or self._sure(scope)):
                yield kind

    def _causes(self, kind: str) -> tuple[Cause, ...]:
        """The causes of all differing rows; joined if the words then name no other row."""
        due, like = self._due, self._like[kind]
        scope = self.differs
        named = np.isin(due.clients, due.clients[scope]) & np.isin(due.rows, due.rows[scope])
        if like[named].all():
            return (self._meant(kind, scope),)
        own = (scope & (due.clients == client) for client in np.unique(due.clients[scope]))
        return tuple(self._meant(kind, each) for each in own)

    def _meant(self, kind: str, scope: BoolArray) -> Cause:
        """Rows of some clients; all of a client's rows if all are affected."""
        due = self._due
        clients, items = (np.unique(each[scope]) for each in (due.clients, due.rows))
        like = self._like.get(kind, scope)
        whole = len(items) > 1 and like[np.isin(due.clients, clients)].all()
        return Cause(
            kind=kind,
            clients=tuple(clients.tolist()),
            items=None if whole else tuple(items.tolist()),
        )

    def _sure(self, scope: BoolArray, among: int = 1) -> bool:
        """Whether rows hold enough bits that they do not equal another client's by chance."""
        sent = self._sent[scope]
        sent[:, -1] -= self._words[scope, -1]
        return chance.sums(sent, self._ring.bits, self._apart) >= log2(among) + chance.SURE

    def _doubled(self) -> BoolArray:
        """Rows twice as large; rows that were doubled before rounding may be one unit off."""
        off = self._sent - 2 * self._words
        off[:, -1] = self._sent[:, -1] - self._words[:, -1]
        off = reduced(off, self._ring)
        off[:, :-1] = reduced(off + np.uint64(1), self._ring)[:, :-1]
        exact = (off[:, :-1] == 1).all(axis=1)
        sizes = np.log2(np.maximum(np.abs(self._due.values.astype(np.float64)), 1.0)).sum(axis=1)
        near = (off[:, :-1] <= 2).all(axis=1) & (sizes >= chance.SURE)
        doubled: BoolArray = (exact | near) & (off[:, -1] == 0)
        return doubled

    def _zeroed(self) -> WordArray:
        words = self._words.copy()
        words[:, :-1] = 0
        return words

    def _late(self, before: Rows) -> WordArray:
        """Rows of the previous round; zeros where the client did not have a rating in it."""
        n_rows = 1 + int(max(self._due.rows.max(initial=0), before.rows.max(initial=0)))
        keys, earlier = self._due.keys(n_rows), before.keys(n_rows)
        known = np.isin(keys, earlier)
        late = np.zeros_like(self._words)
        places = np.searchsorted(earlier, keys[known])
        late[known] = words_of(before.values, before.counts)[places]
        return reduced(late, self._ring)
