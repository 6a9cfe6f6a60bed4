"""The halves of masking keep the contract that an implementer inherits."""

from collections.abc import Collection
from itertools import count
from typing import Any

import numpy as np

from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    MaskingConfig,
    SitePolicy,
    SumLayout,
    run_round,
)
from secure_fedrec.protection.session import Carrier
from secure_fedrec.testing import NextRound, PartyContract

LAYOUT = SumLayout(bits=20, length=4, clients=5, largest=128)


def values(number: int, round_: int) -> Any:
    return np.arange(4) + (1 + round_ % 7) * 2**number


class TestMasking(PartyContract):
    def federation(self) -> NextRound:
        federation = Federation(range(5), policy=SitePolicy(adversary="curious", corrupt=0.0))
        config = MaskingConfig(
            clients=5,
            bits=20,
            length=4,
            layout_hash=LAYOUT.hash,
            threshold=2,
            min_survivors=3,
            quorum=3,
            corrupt_clients=0,
            adversary="curious",
        )

        numbers = count(1)

        def next_round(*, carrier: Carrier) -> tuple[Collection[int], Any]:
            round_ = next(numbers)
            expected = Expected(layout_hash=LAYOUT.hash)
            outcome = run_round(
                federation.open_server(config, np.arange(5)),
                {number: federation.open_client(number, expected) for number in range(5)},
                {number: LAYOUT.encode(values(number, round_)) for number in range(5)},
                carrier=carrier,
            )
            return outcome.survivors.tolist(), LAYOUT.decode(outcome.words)

        return next_round

    def exact(self, clients: Collection[int], round_: int) -> Any:
        return np.sum([values(number, round_) for number in clients], axis=0)

    def everybody(self) -> Collection[int]:
        return range(5)
