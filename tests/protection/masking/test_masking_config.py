"""Settings, layouts and shares at the edge of one condition, the others being met."""

import itertools
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.protection.masking import MaskingConfig, SumLayout
from secure_fedrec.protection.masking.envelope import SERVER, encode_ids
from secure_fedrec.protection.masking.messages.shamir import combine, split
from secure_fedrec.protection.session.reader import Reader

BASE: dict[str, Any] = {
    "clients": 40, "bits": 32, "length": 1, "layout_hash": bytes(32), "adversary": "curious",
    "threshold": 3, "min_survivors": 30, "quorum": 1, "corrupt_clients": 0,
}  # fmt: skip
SPARSE: dict[str, Any] = {
    "adversary": "active", "degree": 8, "window_least": 2, "corrupt_clients": 8, "quorum": 25,
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "good", "bad", "others"),
    [
        # On a sparse graph the threshold says nothing of how many are corrupt.
        ("min_survivors", 12, 11, {"degree": 8, "corrupt_clients": 10}),
        ("min_survivors", 4, 3, {}),
        ("threshold", 5, 4, {"corrupt_clients": 4}),  # all of them are neighbours
        ("threshold", 3, 1, {"degree": 8}),
        ("degree", 8, 7, {}),
        ("degree", 38, 40, {}),
        ("quorum", 25, 24, {"adversary": "active", "corrupt_clients": 8, "threshold": 9}),
        ("quorum", 30, 31, {}),
        ("committee", 39, 40, SPARSE),
        ("committee", 1, 0, SPARSE | {"quorum": 1}),
        ("quorum", 7, 6, SPARSE | {"committee": 12}),
        ("quorum", 12, 13, SPARSE | {"committee": 12}),
        # Whoever signs, two sums share an honest client.
        ("min_survivors", 25, 24, SPARSE | {"committee": 12, "quorum": 7}),
        ("min_survivors", 25, 24, SPARSE),
        ("corrupt_clients", 2, -1, {}),
    ],
)
def test_a_setting_at_its_bound_is_taken_and_none_beyond(
    key: str, good: int, bad: int, others: dict[str, Any]
) -> None:
    MaskingConfig(**BASE | others | {key: good})
    with pytest.raises(ConfigError) as refused:
        MaskingConfig(**BASE | others | {key: bad})
    assert refused.value.key == f"masking.{key}"


@pytest.mark.parametrize("value", [101, -101, 2**40])
def test_an_integer_beyond_its_bound_is_not_summed(value: int) -> None:
    layout = SumLayout(bits=20, length=2, clients=3, largest=100)
    layout.encode(np.array([100, -100]))
    with pytest.raises(EncodingError):
        layout.encode(np.array([0, value]))


@pytest.mark.parametrize("numbers", [[2, 1], [1, 1], [1, SERVER]])
def test_client_numbers_ascend_and_none_is_the_servers(numbers: list[int]) -> None:
    with pytest.raises(ProtocolError, match="client numbers must ascend"):
        Reader(encode_ids(np.array(numbers)), "here").ids(2)
    assert Reader(encode_ids(np.array([1, 2])), "here").ids(2).tolist() == [1, 2]


def test_one_share_fewer_than_the_threshold_gives_something_else() -> None:
    secret, indices = 12345, [1, 2, 3, 4]
    for threshold in (2, 3, 4):
        shares = dict(
            zip(indices, split(secret, threshold=threshold, indices=indices), strict=True)
        )
        for chosen in itertools.combinations(indices, threshold):
            assert combine({index: shares[index] for index in chosen}) == secret
        for chosen in itertools.combinations(indices, threshold - 1):
            assert combine({index: shares[index] for index in chosen}) != secret
