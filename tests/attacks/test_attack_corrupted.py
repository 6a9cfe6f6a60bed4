"""Which clients an adversary has, himself or behind his denoisers."""

import pytest

from attacks import GroundTruth
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.wire import Adversary, BlockStore, Truth


@pytest.mark.parametrize(
    ("corrupt", "expected"),
    [
        ({"server"}, set()),
        ({"server", "client:1"}, {1}),
        ({"client:0", "client:2"}, {0, 2}),
        ({"server", "denoisers"}, {2, 0}),
        ({"server", "denoiser:0"}, {2}),
        ({"server", "denoiser:1", "client:1"}, {0, 1}),
        ({"server", "denoiser:7"}, set()),
    ],
    ids=lambda value: "+".join(sorted(map(str, value))),
)
def test_corrupted_clients(corrupt: set[str], expected: set[int]) -> None:
    train = generate(SyntheticConfig(clients=3, items=20, mean_ratings=5.0, seed=1))
    truth = GroundTruth(train=train, recorded=Truth(BlockStore(None)), denoiser_clients=(2, 0))
    adversary = Adversary(name="x", corrupt=frozenset(corrupt))
    assert truth.corrupted_clients(adversary) == expected
