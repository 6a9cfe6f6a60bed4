"""Paillier's halves under an authority's key keep the contract that an implementer inherits."""

import copy
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import PrivateKey, SlotLayout
from secure_fedrec.protection.session import Carrier, Parcel
from secure_fedrec.testing import NextRound, PartyContract
from tests.paillier_federation import AuthorityFederation

RING = FixedPoint(bits=32, fraction_bits=8, clip=1000.0)
LAYOUT = SlotLayout(codec=RING, length=6, budget=8)


def words(number: int, round_: int) -> Any:
    return RING.encode(np.arange(6.0) - 0.5 * (1 + round_ % 7) * 3**number)


class TestAuthority(PartyContract):
    masked = False

    @pytest.fixture(autouse=True)
    def short(self, short_key: PrivateKey) -> None:
        self.key = short_key

    def federation(self) -> NextRound:
        layout = replace(LAYOUT, whole_ring=self.masked)
        federation = AuthorityFederation(range(4), private=self.key, layouts=(layout,))
        numbers = count(1)

        def next_round(*, carrier: Carrier) -> tuple[Collection[int], Any]:
            round_ = next(numbers)
            vectors = {number: (words(number, round_),) for number in range(4)}
            (found,) = federation.sum(vectors, masked=self.masked, carrier=carrier)
            return range(4), found

        return next_round

    def exact(self, clients: Collection[int], round_: int) -> Any:
        return np.sum([words(number, round_) for number in clients], axis=0, dtype=np.uint32)

    def everybody(self) -> Collection[int]:
        return range(4)


class TestMasked(TestAuthority):
    masked = True


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("stage", ["UPLOAD", "SUMS", "RESULT"])
def test_rounds_of_another_series_under_the_same_keys_are_refused(
    short_key: PrivateKey, stage: str, masked: bool
) -> None:
    layout = replace(LAYOUT, whole_ring=masked)
    one = AuthorityFederation(range(4), private=short_key, layouts=(layout,))
    other = copy.copy(one)  # the same identities, roster and key, and round 1 again
    other.series = os.urandom(16)
    vectors = {number: (words(number, 1),) for number in range(4)}
    before: list[Parcel] = []

    def keeping(sent: Sequence[Parcel]) -> Sequence[Parcel]:
        before.extend(parcel for parcel in sent if parcel.stage == stage and parcel.data)
        return sent

    def replaying(sent: Sequence[Parcel]) -> Sequence[Parcel]:
        known = {parcel[:2]: parcel for parcel in before}
        return [known.get(each[:2], each) if each.stage == stage else each for each in sent]

    one.sum(vectors, masked=masked, carrier=keeping)
    assert before
    with pytest.raises(ProtocolError, match="another agreement"):
        other.sum(vectors, masked=masked, carrier=replaying)
