"""Adversaries outside a stack's claim are refused, not audited as if they saw nothing."""

from typing import Any

import pytest

from audits.config.audit import parse_config
from audits.run.build import build_federation, load_dataset
from secure_fedrec.errors import ConfigError

NOISED: list[dict[str, Any]] = [
    {"layer": "clip"},
    {"layer": "skellam", "epsilon": 8.0},
    {"layer": "masking", "min_survivors": 30, "corrupt": 0.05},
]


def build(protection: list[dict[str, Any]], corrupt: list[str]) -> None:
    config = parse_config(
        {
            "data": {"name": "synthetic", "clients": 40, "items": 60},
            "algorithm": {"name": "pmf", "rank": 4, "rounds": 5},
            "protection": protection,
            "adversaries": [{"name": "them", "corrupt": corrupt}],
        }
    )
    build_federation(config, load_dataset(config, None).task(0))


@pytest.mark.claim("outside-a-claim-refused")
def test_a_client_that_holds_the_key_does_not_work_with_the_server() -> None:
    shared: list[dict[str, Any]] = [{"layer": "paillier", "holder": "clients"}]
    build(shared, ["server"])
    build(shared, ["client:0"])
    build([{"layer": "paillier", "holder": "authority"}], ["server", "client:0"])
    with pytest.raises(ConfigError, match="every client holds the key") as refused:
        build(shared, ["server", "client:0"])
    assert refused.value.key == "adversaries.corrupt"


@pytest.mark.claim("outside-a-claim-refused")
def test_an_adversary_knows_no_more_noise_than_the_claim_counts() -> None:
    build(NOISED, ["server", "client:0", "client:1"])
    with pytest.raises(ConfigError, match="'them' has 3: it knows the noise") as refused:
        build(NOISED, ["server", "client:0", "client:1", "client:2"])
    assert refused.value.key == "protection.corrupt"


@pytest.mark.claim("outside-a-claim-refused")
@pytest.mark.parametrize("adversary", ["curious", "active"])
def test_masks_withstand_the_configured_share_of_clients_with_the_server(adversary: str) -> None:
    masks = {"layer": "masking", "min_survivors": 20, "corrupt": 0.05, "adversary": adversary}
    three = ["client:0", "client:1", "client:2"]
    build([masks], ["server", *three[:2]])  # 2 of 40
    build([masks], three)  # without the server no sum is sent to them
    with pytest.raises(ConfigError, match="'them' has 3") as refused:
        build([masks], ["server", *three])
    assert refused.value.key == "protection.corrupt"
    assert refused.value.value == 0.05


def test_a_budget_that_the_claim_would_exceed_is_refused() -> None:
    build(NOISED, ["server"])
    huge = [NOISED[0], {"layer": "skellam", "epsilon": 60.0}, NOISED[2]]
    with pytest.raises(ConfigError, match="so large a budget leaves no room") as refused:
        build(huge, ["server"])
    assert refused.value.key == "protection.epsilon"
