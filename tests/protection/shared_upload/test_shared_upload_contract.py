"""The halves of shared uploads keep the contract that an implementer inherits."""

import os
from collections.abc import Collection
from itertools import count
from typing import Any

import numpy as np

from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.session import Carrier
from secure_fedrec.protection.shared_upload import Identities, RoundContext
from secure_fedrec.testing import NextRound, PartyContract
from secure_fedrec.uploads import RowBlock
from tests.shared_round import SharedRound

N, ITEMS, WIDTH = 4, 6, 2
RING = FixedPoint()


def tables(round_: int) -> Any:
    return np.arange(N * ITEMS * WIDTH, dtype=float).reshape(N, ITEMS, WIDTH) * (1 + round_ % 5) / 8


class TestSharedUpload(PartyContract):
    def federation(self) -> NextRound:
        identities, numbers = Identities.draw(clients=N, denoisers=2), count(1)

        def next_round(*, carrier: Carrier) -> tuple[Collection[int], Any]:
            round_ = next(numbers)
            context = RoundContext(
                codec=RING,
                n_items=ITEMS,
                width=WIDTH,
                floor=2,
                roster=identities.roster,
                round=round_,
                round_id=os.urandom(16),
            )
            line = SharedRound(context, identities, carrier)
            block = RowBlock(
                indptr=np.arange(N + 1) * ITEMS,
                rows=np.tile(np.arange(ITEMS, dtype=np.int32), N),
                values=RING.encode(tables(round_).reshape(-1, WIDTH)),
            )
            line.submit(np.arange(N), block, np.ones(N * ITEMS, dtype=bool))
            return range(N), line.close().values

        return next_round

    def exact(self, clients: Collection[int], round_: int) -> Any:
        return tables(round_)[list(clients)].sum(axis=0)

    def everybody(self) -> Collection[int]:
        return range(N)
