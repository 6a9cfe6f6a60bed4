"""Ranks items by a view and public knowledge together.

An adversary also has public knowledge, so an attack that ranks the items it saw at random
understates what its view tells. The harness, which knows the truth, stands in for the adversary's
calibration (it knows the protocol and can simulate it): on one half of the clients it fits how
likely an item is rated given popularity and what the attack says of it, and picks the rule that
ranks best there; the rule is applied to the other half, and vice versa. A client's truth does not
affect the ranking of its own items, and a view that adds nothing gets no weight.

Clients of whom a view shows something, and clients of whom it shows noise, are distinguished by
their scores alone (``kinds_of``) and have separate rules: otherwise a minority would be ranked by
the rule that suits the majority.
"""

from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np

from attacks.scoring.loops import Rest
from attacks.scoring.ranking import CatalogueGame, Part, PublicRanking, standing
from attacks.scoring.rows import Rows
from attacks.scoring.statistics import precision_at_size
from attacks.scoring.tables import BlockedTable, ScoreTable, Table, count_per_client, pooled_classes
from secure_fedrec.core.arrays import FloatArray, IntArray

_FEW_VALUES = 16
_OCTAVES = 12
_RIDGE = 1.0
_STEPS = 25
_SETTLED = 1e-6
_CLEARLY = 2.0
"""Standard errors by which a rule must beat popularity on the clients from which it is learned."""

_POPULARITY, _SCORE_FIRST, _FITTED = range(3)

_SILENT, _MARKED, _GRADED = range(3)
"""Kinds of a client's scores: all equal; most at the lowest value; many values."""

_KINDS = 3


def combined_scores(game: CatalogueGame, public: PublicRanking) -> Table:
    """Scores from the view and from popularity, each half of the clients by the other half's rule.

    Args:
        game: the attack's scores of items, against the truth about these clients.
        public: what is known about items without the view, and the halves of clients.

    Returns:
        The game that ranks by both.
    """
    rules = _Rules(game, public)
    if len(game.labels) < 2:  # no other clients to learn from: use the attack's order
        return rules.tables(np.full((2, _KINDS), _SCORE_FIRST), own=True)
    best = [[_best_rule(rules, half, kind) for kind in range(_KINDS)] for half in (0, 1)]
    return rules.tables(np.array(best[::-1]), own=False)


def _best_rule(rules: "_Rules", learn: int, kind: int) -> int:
    """The rule that names most on these clients; popularity unless another is clearly better.

    Without clients to learn from, an attack that marks items and gives most others the same score
    is ranked by its own scores.
    """
    best, rule = rules.precision(_POPULARITY, learn, kind), _POPULARITY
    if not len(best) and kind == _MARKED:
        return _SCORE_FIRST
    for other in (_SCORE_FIRST, _FITTED):
        found = rules.precision(other, learn, kind)
        better = found - best
        better = better[np.isfinite(better)]
        error = better.std() / np.sqrt(max(1, len(better))) if len(better) else 0.0
        if len(better) and better.mean() > _CLEARLY * error:
            best, rule = found, other
    return rule


def kinds_of(scores: Rows, part: Part) -> IntArray:
    """The kind of scores of each client of a block: int64[b].

    Nothing (all items have one score), marks (more than half of them have the lowest one), or
    grades. In a hidden upload no two items have equal scores; in a readable one all untouched items
    do.
    """
    indptr, size = part.pairs.indptr, scores.listed.n_items
    if isinstance(scores.rest, np.ndarray):  # the same claim about all clients
        return np.full(len(indptr) - 1, _GRADED)
    listed, values = np.diff(indptr), part.table.scores
    others, rest = size - listed, float(scores.rest)
    lowest, highest = (np.full(len(listed), end) for end in (np.inf, -np.inf))
    there = np.flatnonzero(listed)
    if len(there):
        lowest[there] = np.minimum.reduceat(values, indptr[:-1][there])
        highest[there] = np.maximum.reduceat(values, indptr[:-1][there])
    lowest[others > 0] = np.minimum(lowest, rest)[others > 0]
    highest[others > 0] = np.maximum(highest, rest)[others > 0]
    alike = count_per_client(values == np.repeat(lowest, listed), indptr)
    alike += np.where(lowest == rest, others, 0)
    kinds = np.where(2 * alike > size, _MARKED, _GRADED)
    return np.asarray(np.where(lowest == highest, _SILENT, kinds), dtype=np.int64)


class _Level(NamedTuple):
    """Levels of evidence of a block of clients.

    Attributes:
        listed: int64[T], of each listed pair.
        rest: int64[H, m] or int64[H, 1], rows for all other pairs.
        row: int64[b], which row a client has.
    """

    listed: IntArray
    rest: IntArray
    row: IntArray


class _Rules:
    """Three rules for every pair's evidence and popularity."""

    def __init__(self, game: CatalogueGame, public: PublicRanking) -> None:
        self.game, self.public = game, public
        self.values = np.unique(np.concatenate([c.values for c in pooled_classes(game.table)]))
        self.few = len(self.values) <= _FEW_VALUES
        # Levels per kind of client.
        self.levels = 2 * max(len(self.values) if self.few else 0, _OCTAVES)
        self.counts, place = np.unique(public.learned[np.unique(public.half)], return_inverse=True)
        self.place = np.zeros(public.learned.shape, dtype=np.int64)
        self.place[np.unique(public.half)] = place.reshape(-1, game.labels.n_items)
        raters = float(self.counts.max()) + 1.0
        self.log_odds: FloatArray = np.log((self.counts + 0.5) / (raters - self.counts))
        ranks = pooled_classes(public.table)
        self.most = max(float(each.values[-1]) for each in ranks if each.size)
        self._precision: dict[int, FloatArray] = {}
        kinds = [kinds_of(game.scores, game.part(span)) for span in game.spans]
        self.kinds: IntArray = np.concatenate(kinds)

    def precision(self, rule: int, half: int, kind: int) -> FloatArray:
        """Precision of a rule on the clients of one kind and half from which it is learned."""
        if rule not in self._precision:
            table: Table = self.public.table
            if rule != _POPULARITY:
                table = self.tables(np.full((2, _KINDS), rule), own=True)
            self._precision[rule] = precision_at_size(table)
        these = (self.public.half == half) & (self.kinds == kind)
        return np.asarray(self._precision[rule][these])

    def tables(self, rules: IntArray, *, own: bool) -> Table:
        """The game that ranks by a rule.

        Args:
            rules: int64[2, kinds], of each half and kind of client.
            own: whether each half uses the rule learned from itself, not from the other.
        """
        make = [partial(self._ranked, span, rules, own) for span in self.game.spans]
        return BlockedTable(make)

    def _ranked(self, span: slice, rules: IntArray, own: bool) -> ScoreTable:
        part = self.game.part(span)
        half, owners = self.public.half[span], part.pairs.owners
        rule_of = rules[half, self.kinds[span]]
        scores, row = np.empty(len(part.pairs.items)), np.zeros(len(half), dtype=np.int64)
        rows: list[FloatArray] = []
        for each, rule in product((0, 1), (_POPULARITY, _SCORE_FIRST, _FITTED)):
            clients = (half == each) & (rule_of == rule)
            if clients.any():
                pairs = clients[owners]
                learned = each if own else 1 - each
                found, rest, own_row = self._rule(rule, part, each, learned)
                scores[pairs], row[clients] = found[pairs], len(rows) + own_row[clients]
                rows += list(rest)
        others = Rest.of_rows(np.stack(rows), row, owners, part.pairs.items)
        return replace(part.table, scores=scores, rest=others)

    def _rule(
        self, rule: int, part: Part, half: int, learned: int
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """Scores of all listed pairs by the rules of a half, rows of the others, and whose row."""
        row = np.zeros(len(part.pairs.indptr) - 1, dtype=np.int64)
        rest = self.public.rows[half][None]
        if rule == _POPULARITY:
            return self.public.of(part), rest, row
        if rule == _SCORE_FIRST:
            # Distinct scores are at least 1 apart, popularity moves by less: it breaks ties only.
            first = np.searchsorted(self.values, part.table.scores)
            value = np.searchsorted(self.values, np.asarray(self.game.scores.rest, np.float64))
            ties = self.public.of(part) / (self.most + 1.0)
            return first + ties, value + rest / (self.most + 1.0), row
        log_odds, level = self._fitted[learned], self._level(part)
        listed = log_odds[level.listed, self.place[half, part.pairs.items]]
        return listed, log_odds[level.rest, self.place[half][None]], level.row

    def _level(self, part: Part) -> _Level:
        """Levels of evidence: the score, or its octave of many; whether it is seen; the kind."""
        level, kinds = self._said(part), self.kinds[part.pairs.span]
        found, row = np.unique(kinds * len(level.rest) + level.row, return_inverse=True)
        kind, rest = np.divmod(found, len(level.rest))
        return _Level(
            level.listed + self.levels * kinds[part.pairs.owners],
            level.rest[rest] + self.levels * kind[:, None],
            row.reshape(-1),
        )

    def _said(self, part: Part) -> _Level:
        scores, seen = self.game.scores, part.visible.astype(np.int64)
        shared = isinstance(scores.rest, np.ndarray)
        visible = self.game.visible
        unseen = np.atleast_1d(True if visible is None else visible.rest).astype(np.int64)
        row = np.zeros(len(part.pairs.indptr) - 1, dtype=np.int64)
        if self.few:
            values = len(self.values)
            listed = np.searchsorted(self.values, part.table.scores) + values * seen
            rest = np.searchsorted(self.values, np.asarray(scores.rest, dtype=np.float64))
            return _Level(listed, np.minimum(rest, values - 1)[None] + values * unseen[None], row)
        stand = standing(scores, part)
        size = self.game.labels.n_items
        listed = _octave(stand.left, stand.right, size) + _OCTAVES * seen
        octaves = _octave(stand.rest_left, stand.rest_right, size)
        if shared:
            return _Level(listed, octaves[None] + _OCTAVES * unseen[None], row)
        found, row = np.unique(octaves, return_inverse=True)
        return _Level(listed, found[:, None] + _OCTAVES * unseen[None], row.reshape(-1))

    @cached_property
    def _fitted(self) -> FloatArray:
        """Log odds of being rated by evidence and popularity, learned from each half.

        One logistic regression on log popularity per level of evidence, shrunk by a ridge towards
        the regression without evidence. float64[2, levels, counts]; levels that do not occur are 0.
        """
        pairs, hits = self._counted()
        there = np.flatnonzero(pairs.sum(axis=(0, 2)))
        fitted = np.zeros(pairs.shape)
        start = np.array([[0.0, 1.0]])
        for half in (0, 1):
            all_pairs, all_hits = pairs[half, there], hits[half, there]
            sums = (all_pairs.sum(0)[None], all_hits.sum(0)[None])
            pooled = _logistic(*sums, self.log_odds, start, 1e-3)
            begin = np.repeat(pooled, len(there), 0)
            each = _logistic(all_pairs, all_hits, self.log_odds, begin, _RIDGE)
            fitted[half, there] = each[:, :1] + each[:, 1:] * self.log_odds
        return fitted

    def _counted(self) -> tuple[FloatArray, FloatArray]:
        """Pairs, and those of them that are hits: float64[2, levels, counts] each."""
        levels = _KINDS * self.levels
        shape = (2, levels, len(self.counts))
        size = 2 * levels * len(self.counts)
        pairs, hits = np.zeros(size), np.zeros(size)
        for span in self.game.spans:
            part, half = self.game.part(span), self.public.half[span]
            level, owners = self._level(part), part.pairs.owners
            place = self.place[half[owners], part.pairs.items]
            base = half[owners] * levels * len(self.counts) + place
            flat = base + level.listed * len(self.counts)
            pairs += np.bincount(flat, minlength=size)
            hits += np.bincount(flat[part.pairs.labels], minlength=size)
            wide = np.broadcast_to(level.rest, (len(level.rest), self.game.labels.n_items))
            for each in (0, 1):
                for row, clients in enumerate(np.bincount(level.row[half == each])):
                    rest = (each * levels + wide[row]) * len(self.counts) + self.place[each]
                    pairs += clients * np.bincount(rest, minlength=size)
            taken = base + wide[level.row[owners], part.pairs.items] * len(self.counts)
            pairs -= np.bincount(taken, minlength=size)
        return pairs.reshape(shape), hits.reshape(shape)


def _octave(left: IntArray, right: IntArray, size: int) -> IntArray:
    """How often the part of a client's items above a score can be doubled: 0 for the upper half."""
    # Midranks: ties share a place. Unlisted items may be absent, and none is above.
    above = np.maximum(size - (left + right) / 2, 0.5)
    found = np.floor(-np.log2(above / size)).astype(np.int64)
    return np.asarray(np.minimum(found, _OCTAVES - 1))


def _logistic(
    pairs: FloatArray, hits: FloatArray, x: FloatArray, start: FloatArray, ridge: float
) -> FloatArray:
    """Intercept and slope of several logistic regressions, by damped Newton steps: float64[K, 2].

    Args:
        pairs: float64[K, G], examples of regression k at x[g].
        hits: float64[K, G], positives among them.
        x: float64[G].
        start: float64[K, 2], the initial values, towards which the ridge shrinks.
        ridge: its weight.
    """
    found = start.copy()
    for _ in range(_STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(found[:, :1] + found[:, 1:] * x, -30.0, 30.0)))
        miss, weight = hits - pairs * chance, pairs * chance * (1.0 - chance)
        pull = ridge * (start - found)
        slope = np.stack([miss.sum(1), (miss * x).sum(1)], axis=1) + pull
        a, b = weight.sum(1) + ridge, (weight * x).sum(1)
        c = (weight * x**2).sum(1) + ridge
        determinant = a * c - b**2
        one, other = slope.T
        step = np.stack([c * one - b * other, a * other - b * one], axis=1)
        step = np.clip(step / determinant[:, None], -2.0, 2.0)
        found = found + step
        if np.abs(step).max() < _SETTLED:
            break
    return found
