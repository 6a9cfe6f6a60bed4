"""Secret sharing against exhaustive small fields and an independent Lagrange oracle."""

from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking.messages import shamir
from secure_fedrec.protection.masking.messages.shamir import (
    PRIME,
    combine,
    correct,
    decode_element,
    encode_element,
    split,
)

ELEMENTS = st.one_of(st.integers(0, PRIME - 1), st.sampled_from([0, 1, PRIME - 1, 2**128]))


def lagrange_at_zero(points: dict[int, int]) -> int:
    """Textbook interpolation over the rationals, reduced at the very end."""
    total = Fraction(0)
    for x, y in points.items():
        term = Fraction(y)
        for other in points:
            if other != x:
                term *= Fraction(-other, x - other)
        total += term
    return total.numerator * pow(total.denominator, -1, PRIME) % PRIME


@settings(deadline=None)
@given(st.data(), ELEMENTS)
def test_any_threshold_shares_restore_the_secret(data: st.DataObject, secret: int) -> None:
    indices = data.draw(st.lists(st.integers(1, 2000), min_size=1, max_size=12, unique=True))
    threshold = data.draw(st.integers(1, len(indices)))
    shares = dict(zip(indices, split(secret, threshold=threshold, indices=indices), strict=True))
    chosen = data.draw(st.permutations(indices))[:threshold]
    points = {index: shares[index] for index in chosen}
    assert combine(points) == secret == lagrange_at_zero(points)


@settings(deadline=None)
@given(ELEMENTS)
def test_a_share_is_foretold_by_the_others(secret: int) -> None:
    shares = dict(enumerate(split(secret, threshold=3, indices=range(1, 7)), start=1))
    three = {index: shares[index] for index in (2, 3, 6)}
    assert [combine(three, at=index) for index in range(1, 7)] == list(shares.values())


@pytest.mark.parametrize(("prime", "threshold"), [(5, 2), (5, 3), (7, 2), (7, 3)])
def test_fewer_shares_than_the_threshold_say_nothing_and_enough_say_all(
    prime: int, threshold: int
) -> None:
    """Exhaustive: over all polynomials, t - 1 shares are uniform whatever the secret."""
    indices = range(1, prime)
    for few in combinations(indices, threshold - 1):
        seen = {}
        for secret in range(prime):
            seen[secret] = sorted(
                tuple(shamir._evaluate((secret, *rest), index, prime) for index in few)
                for rest in product(range(prime), repeat=threshold - 1)
            )
        assert all(views == seen[0] for views in seen.values())
        assert seen[0] == sorted(product(range(prime), repeat=threshold - 1))
    for enough in combinations(indices, threshold):
        weights = shamir._weights(enough, 0, prime)
        for coefficients in product(range(prime), repeat=threshold):
            shares = [shamir._evaluate(coefficients, index, prime) for index in enough]
            restored = sum(w * s for w, s in zip(weights, shares, strict=True)) % prime
            assert restored == coefficients[0]


def test_coefficients_are_fresh() -> None:
    first, second = (split(9, threshold=2, indices=[1, 2]) for _ in range(2))
    assert first != second
    assert 9 not in first


@pytest.mark.parametrize(
    ("secret", "threshold", "indices"),
    [
        (PRIME, 1, [1]),
        (-1, 1, [1]),
        (1, 0, [1]),
        (1, 2, [1]),
        (1, 1, [0]),
        (1, 1, [PRIME]),
        (1, 1, [-1]),
        (1, 2, [4, 4]),
    ],
)
def test_what_is_no_sharing_is_refused(secret: int, threshold: int, indices: list[int]) -> None:
    with pytest.raises(ConfigError):
        split(secret, threshold=threshold, indices=indices)


def test_a_share_at_index_zero_is_refused_when_combining() -> None:
    with pytest.raises(ConfigError, match="other than 0"):
        combine({0: 5, 1: 6})


@given(ELEMENTS)
def test_an_element_has_one_encoding(element: int) -> None:
    assert decode_element(encode_element(element)) == element


@pytest.mark.parametrize(
    "data", [b"", bytes(31), bytes(33), PRIME.to_bytes(32, "little"), b"\xff" * 32]
)
def test_bytes_that_are_no_element_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_element(data)


@pytest.mark.claim("masking-bad-shares")
@settings(deadline=None, max_examples=200)
@given(st.data(), ELEMENTS)
def test_a_secret_is_restored_from_shares_of_which_some_are_wrong(
    data: st.DataObject, secret: int
) -> None:
    """Up to half of the shares beyond the threshold may be anything, wherever they stand."""
    indices = data.draw(st.lists(st.integers(1, 2000), min_size=1, max_size=12, unique=True))
    threshold = data.draw(st.integers(1, len(indices)))
    shares = dict(zip(indices, split(secret, threshold=threshold, indices=indices), strict=True))
    most = (len(indices) - threshold) // 2
    wrong = data.draw(st.permutations(indices))[: data.draw(st.integers(0, most))]
    same = data.draw(st.booleans())  # wrong ones that lie on another polynomial together
    other = split((secret + 1) % PRIME, threshold=threshold, indices=indices)
    for place, index in enumerate(indices):
        if index in wrong:
            shares[index] = other[place] if same else data.draw(ELEMENTS)
    assert correct(shares, threshold=threshold) == secret


def test_more_wrong_shares_than_can_be_corrected_give_nothing_or_something_else() -> None:
    indices = list(range(1, 11))
    found = []
    for place in range(50):
        shares = dict(zip(indices, split(5, threshold=4, indices=indices), strict=True))
        for index in indices[:4]:
            shares[index] = (shares[index] + place + index) % PRIME
        found.append(correct(shares, threshold=4))
    assert 5 not in found
    with pytest.raises(ConfigError, match="other than 0"):
        correct({0: 1, 1: 1}, threshold=1)
