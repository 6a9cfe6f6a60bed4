"""Paillier's halves under an authority's key keep the contract that an implementer inherits."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import PrivateKey, SlotLayout
from secure_fedrec.protection.paillier.rounds import AuthorityFederation
from secure_fedrec.protection.session import Carrier
from secure_fedrec.testing import NextRound, PartyContract

RING = FixedPoint(bits=32, fraction_bits=8, clip=1000.0)
LAYOUT = SlotLayout(codec=RING, length=6, budget=8)
WORDS = {number: RING.encode(np.arange(6.0) - 7.5 * number) for number in range(4)}


class TestAuthority(PartyContract):
    masked = False

    @pytest.fixture(autouse=True)
    def short(self, short_key: PrivateKey) -> None:
        self.key = short_key

    def federation(self) -> NextRound:
        layout = replace(LAYOUT, whole_ring=self.masked)
        federation = AuthorityFederation(WORDS, private=self.key, layouts=(layout,))

        def next_round(*, carrier: Carrier) -> tuple[Collection[int], Any]:
            vectors = {number: (words,) for number, words in WORDS.items()}
            (found,) = federation.sum(vectors, masked=self.masked, carrier=carrier)
            return WORDS, found

        return next_round

    def exact(self, clients: Collection[int]) -> Any:
        return np.sum([WORDS[number] for number in clients], axis=0, dtype=np.uint32)

    def everybody(self) -> Collection[int]:
        return WORDS


class TestMasked(TestAuthority):
    masked = True
