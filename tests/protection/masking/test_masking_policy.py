"""A site's policy, condition by condition: a configuration that breaks one of them and no other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    MaskingConfig,
    Roster,
    SitePolicy,
    find_parameters,
)

CLIENTS = 200
SITE = SitePolicy(corrupt=0.05, dropout=0.05)
SAFE = find_parameters(CLIENTS, corrupt=0.05, dropout=0.05, adversary="active")


@pytest.fixture(scope="module")
def roster() -> Roster:
    return Federation(range(CLIENTS)).roster


def sparse() -> MaskingConfig:
    """The parameters that the site itself would take."""
    config = MaskingConfig.for_cohort(
        CLIENTS, bits=32, length=1, layout_hash=bytes(32), corrupt=0.05, dropout=0.05
    )
    assert config.degree is not None
    assert config.window_least is not None
    return config


def varied(**changes: Any) -> MaskingConfig:
    return replace(sparse(), **changes)


def complete(**changes: Any) -> MaskingConfig:
    settings: dict[str, Any] = {
        "clients": 20, "bits": 32, "length": 1, "layout_hash": bytes(32), "threshold": 8,
        "min_survivors": 12, "quorum": 12, "corrupt_clients": 2,
    }  # fmt: skip
    return MaskingConfig(**settings | changes)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("degree", SAFE.degree - 2),
        ("degree", SAFE.degree + 2),  # more neighbours, more corrupt ones among them
        ("threshold", SAFE.threshold_least - 1),
        ("threshold", SAFE.threshold_most + 1),
        ("window_least", (SAFE.window_least or 0) - 1),
        ("min_survivors", SAFE.min_survivors - 1),
    ],
)
def test_a_sparse_graph_that_is_off_in_one_setting_is_refused(
    roster: Roster, setting: str, value: int
) -> None:
    SITE.require(sparse(), roster)
    with pytest.raises(ProtocolError, match="is not the safe one of this site"):
        SITE.require(varied(**{setting: value}), roster)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("threshold", SAFE.threshold_least),
        ("threshold", SAFE.threshold_most),
        ("window_least", (SAFE.window_least or 0) + 1),
        ("min_survivors", SAFE.min_survivors + 1),
    ],
)
def test_a_sparse_graph_may_promise_more(roster: Roster, setting: str, value: int) -> None:
    SITE.require(varied(**{setting: value}), roster)


def test_dropouts_beyond_those_that_a_site_allows_for_are_refused_on_sparse_graphs_alone(
    roster: Roster,
) -> None:
    careful = replace(SITE, dropout=0.0)
    with pytest.raises(ProtocolError, match="is not the safe one of this site"):
        careful.require(sparse(), roster)
    reckless = SitePolicy(corrupt=0.1, dropout=0.6)  # no quorum would be left
    reckless.require(complete(), roster)


@pytest.mark.parametrize(
    ("policy", "changes", "match"),
    [
        ({}, {"adversary": "curious"}, "only against an active server"),
        ({"key_agreement": "x25519+mlkem768"}, {}, "asks for the hybrid"),
        ({"min_survivors": 13}, {}, "sums over 12 clients; this site asks for 13"),
        ({"corrupt": 0.15}, {}, "withstands 2 corrupt clients; this site reckons with 3"),
        ({"corrupt": 0.95}, {}, "no parameters are safe at this site"),
    ],
)
def test_a_complete_graph_that_promises_too_little_is_refused(
    roster: Roster, policy: dict[str, Any], changes: dict[str, Any], match: str
) -> None:
    site: dict[str, Any] = {"corrupt": 0.1, "dropout": 0.1, "min_survivors": 12}
    SitePolicy(**site).require(complete(), roster)
    with pytest.raises(ProtocolError, match=match):
        SitePolicy(**site | policy).require(complete(**changes), roster)


def test_an_operator_that_is_the_server_proves_nothing_against_an_active_one() -> None:
    server = Ed25519PrivateKey.generate()
    roster = Roster.sign(
        server,
        version=1,
        server=server.public_key().public_bytes_raw(),
        clients={number: bytes([number]) * 32 for number in range(20)},
    )
    with pytest.raises(ProtocolError, match="operator of the roster must not be the server"):
        SitePolicy().require(complete(), roster)
    SitePolicy(adversary="curious").require(complete(), roster)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("adversary", "lazy"),
        ("cohort", "everybody"),
        ("key_agreement", "rsa"),
        ("corrupt", -0.1),
        ("corrupt", 1.0),
        ("corrupt", float("nan")),
        ("dropout", -0.1),
        ("dropout", 1.0),
        ("dropout", float("nan")),
        ("min_survivors", 1),
    ],
)
def test_settings_out_of_range_are_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        SitePolicy(**{key: value})
    assert refused.value.key == f"policy.{key}"
    SitePolicy(corrupt=0.0, dropout=0.0, min_survivors=2)


def test_a_free_choice_of_the_server_is_among_the_clients_of_the_roster() -> None:
    roster = Federation(range(6)).roster
    site = SitePolicy(adversary="curious", cohort="server")
    site.require_cohort(np.array([1, 3, 4]), roster, beacon=None)
    with pytest.raises(ProtocolError, match="rule 'server'"):
        site.require_cohort(np.array([1, 3, 9]), roster, beacon=None)


def test_without_its_beacon_no_cohort_is_one_that_it_drew() -> None:
    site = SitePolicy(cohort="beacon", cohort_clients=3)
    with pytest.raises(ProtocolError, match="beacon that draws the cohort has not been observed"):
        site.require_cohort(np.arange(3), Federation(range(6)).roster, beacon=None)


def test_a_draw_of_more_clients_than_there_are_is_refused() -> None:
    site = SitePolicy(cohort="beacon", cohort_clients=7)
    with pytest.raises(ProtocolError, match="has the beacon draw 7 of 6"):
        site.require_cohort(np.arange(7), Federation(range(6)).roster, beacon=bytes(32))


def test_a_host_that_knows_of_more_corrupt_clients_than_its_policy_is_heard() -> None:
    """Where the site's own rule chose the cohort: nothing else is changed by it."""
    roster = Federation(range(20)).roster
    site = SitePolicy(corrupt=0.1, dropout=0.1)
    expected = Expected(layout_hash=bytes(32), corrupt_clients=5)
    reckoned = site.for_round(expected, complete(), roster)
    with pytest.raises(ProtocolError, match="reckons with 5"):
        reckoned.require(complete(), roster)
    reckoned.require(complete(corrupt_clients=5, quorum=13, min_survivors=13), roster)
    known = Expected(layout_hash=bytes(32), corrupt_clients=1)
    assert site.for_round(known, complete(), roster) is site


def test_a_drawn_cohort_may_hold_more_corrupt_clients_than_their_share(roster: Roster) -> None:
    """Of 200 clients 20 are corrupt; of 20 that are drawn, more than 2 may be."""
    SitePolicy(corrupt=0.1).require(complete(), roster)
    drawn = SitePolicy(corrupt=0.1, cohort="beacon", cohort_clients=20)
    with pytest.raises(ProtocolError, match=r"this site reckons with \d\d"):
        drawn.require(complete(), roster)
