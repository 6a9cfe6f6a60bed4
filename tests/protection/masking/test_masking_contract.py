"""The halves of masking keep the contract that an implementer inherits."""

from collections.abc import Collection
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

LAYOUT = SumLayout(bits=20, length=4, clients=5, largest=100)
VALUES = {number: np.arange(4) + 10 * number for number in range(5)}


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

        def next_round(*, carrier: Carrier) -> tuple[Collection[int], Any]:
            expected = Expected(layout_hash=LAYOUT.hash)
            outcome = run_round(
                federation.open_server(config, np.arange(5)),
                {number: federation.open_client(number, expected) for number in VALUES},
                {number: LAYOUT.encode(values) for number, values in VALUES.items()},
                carrier=carrier,
            )
            return outcome.survivors.tolist(), LAYOUT.decode(outcome.words)

        return next_round

    def exact(self, clients: Collection[int]) -> Any:
        return np.sum([VALUES[number] for number in clients], axis=0)

    def everybody(self) -> Collection[int]:
        return VALUES
