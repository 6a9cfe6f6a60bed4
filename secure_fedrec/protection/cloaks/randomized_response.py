"""Two-stage randomized response on the rated set (SDCF; Jiang, Li and Lin 2019).

Stage one is permanent: each bit "rated" of a client is replaced, once and for all, by a fair coin
with probability f. Stage two is instantaneous: in every round, a client reports an item with
probability q if its permanent bit is 1 and p if it is 0. Unrated items that are reported get
virtual rows whose residual is that of one of the client's own ratings, drawn at random (FedRec++
paper, section "Secure Distributed Collaborative Filtering"); rated items that are not reported are
left out of the round's upload. The client trains its own vector on all its ratings.

Neither paper states f, p and q for this use; they are settings here, with defaults that report
about as many virtual items as FedRec at rho = 2 on ml-100k.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray, WordArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.local import LocalModel
from secure_fedrec.protection.base.layer_interfaces import Cloaked, Released
from secure_fedrec.protection.base.picked_rows import pick
from secure_fedrec.protection.cloaks.virtual_ratings import merge_virtual
from secure_fedrec.protection.dp.rated_set import RandomizedResponseConfig, rated_set_events
from secure_fedrec.streams import Stream, Streams, uniform_reals
from secure_fedrec.traits import Traits
from secure_fedrec.uploads import RowBlock

ANSWERED = Traits(virtual_rows="summed", reports="some", uploads=None, noise=None, denoising=None)
"""Traits of uploads whose rows are those reported."""

_DELTA = 1e-5
"""Default delta of a claim."""


@dataclass(eq=False)
class RandomizedResponse:
    """The cloak of SDCF.

    Args:
        config: settings.
        n_items: rows of the shared table.
        streams: the run's random streams; uses "permanent", "reports" and "residuals".
    """

    config: RandomizedResponseConfig
    _: KW_ONLY
    n_items: int
    streams: Streams

    @cached_property
    def _stream(self) -> Callable[[str], Stream]:
        return cache(self.streams.private)

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        """Report a randomised item set for the clients that are not exempt."""
        block, batch = local.rated, len(local.rated)
        bounds = np.arange(batch + 1) * self.n_items
        places = np.repeat(bounds[:-1], block.lengths) + block.rows
        rated = np.zeros(batch * self.n_items, dtype=bool)
        rated[places] = True
        reported = self._report(rated, local.clients, round_)
        reported = np.where(np.repeat(exempt, self.n_items), rated, reported)
        kept = pick(block, np.ones(batch, dtype=bool), reported[places])
        fakes = np.flatnonzero(reported & ~rated)
        virtual = RowBlock(
            indptr=np.searchsorted(fakes, bounds),
            rows=(fakes % self.n_items).astype(np.int32),
            values=None,
        )
        draws = self._draws(fakes, local.clients, round_)

        def fill(indptr: IntArray, items: IndexArray) -> FloatArray:
            return local.resample_residuals(indptr, items, draws=draws)

        return merge_virtual(local, kept, virtual, fill)

    def expected_rows(self, rated: IntArray) -> tuple[IntArray, IntArray]:
        """Expected reports of rated and of unrated items."""
        virtual = np.ceil((self.n_items - rated) * self.config.report_unrated).astype(np.int64)
        return np.ceil(rated * self.config.report_rated).astype(np.int64) + virtual, virtual

    def capped(self, rated: IntArray) -> IntArray:
        """No client: the number of virtual items is random."""
        return np.empty(0, dtype=np.int64)

    @property
    def traits(self) -> Traits:
        """Reports of some rows, and virtual rows whose number follows no rule."""
        return ANSWERED

    def released(self, *, rounds: int, repeated: int = 0) -> Released:
        """Reports; a repeated round uses the same coins, so it does not reveal more."""
        del repeated
        try:
            events = rated_set_events(self.config, rounds=rounds)
        except ConfigError:  # no report is ever in doubt
            events = ()
        return Released(part="reports", events=events, delta=_DELTA, keys={}, fresh=False)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """All settings are public."""
        return "randomized-response", asdict(self.config)

    def _report(self, rated: BoolArray, clients: IntArray, round_: int) -> BoolArray:
        lanes = np.repeat(clients, self.n_items)
        items = np.tile(np.arange(self.n_items), len(clients))
        coin = uniform_reals(self._words("permanent", 0, lanes, items))
        half = self.config.permanent / 2
        bit = np.where(coin < half, True, np.where(coin < self.config.permanent, False, rated))
        answer = uniform_reals(self._words("reports", round_, lanes, items))
        return answer < np.where(bit, self.config.report_one, self.config.report_zero)

    def _draws(self, fakes: IntArray, clients: IntArray, round_: int) -> IntArray:
        owners, items = fakes // self.n_items, fakes % self.n_items
        words = self._words("residuals", round_, clients[owners], items)
        return (words >> np.uint64(22)).view(np.int64)

    def _words(self, name: str, round_: int, lanes: IntArray, items: IntArray) -> WordArray:
        """A word of a stream for each of some clients and items."""
        words: WordArray = self._stream(name).words_at(round_, lanes, items, width=1)[:, 0]
        return words
