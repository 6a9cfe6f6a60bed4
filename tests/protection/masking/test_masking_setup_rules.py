"""What a client asks of a SETUP: its own policy and expectations, never the server's word."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import (
    ClientState,
    Expected,
    Federation,
    Kind,
    MaskingConfig,
    SitePolicy,
    draw_cohort,
)
from secure_fedrec.protection.masking.envelope import Context, Envelope, cohort_hash, seal
from secure_fedrec.protection.masking.messages.key_messages import Setup
from tests.statements import about

ME = 7


def refused(s: Any, message: bytes, match: str) -> None:
    """The message is refused by name, and the client waits for another as if it had not come."""
    client = s.clients[ME]
    with pytest.raises(ProtocolError, match=match):
        client.receive(message)
    assert client.state is ClientState.SETUP
    assert client._round is None
    assert s.federation.journals[ME]._held.generation == 0  # nothing was begun


def setup_saying(s: Any, **changes: Any) -> bytes:
    """A SETUP with other contents, hashed and signed as if it were meant so."""
    envelope = Envelope.decode(s.message_for(ME))
    setup = Setup.decode(envelope.head)
    fields = {name: getattr(setup, name) for name in Setup.__slots__} | changes
    other = Setup(**fields)
    context = Context(
        round_id=envelope.context.round_id,
        config_hash=other.config.hash,
        roster_hash=envelope.context.roster_hash,
        cohort_hash=cohort_hash(other.cohort),
    )
    return seal(s.federation.server.key, context, Kind.SETUP, envelope.sender, other.head())


def config_with(s: Any, **changes: Any) -> Any:
    return replace(s.config, **changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"min_survivors": 4, "quorum": 4}, None),
        ({"layout_hash": bytes(32)}, "another layout"),
        ({"statement": b"x" * 32}, "another statement"),
        ({"adversary": "curious"}, "only against an active server"),
        ({"min_survivors": 3, "quorum": 3}, "asks for 4"),
        ({"bits": 21}, "configured layout, ring"),
        ({"length": 5}, "configured layout, ring"),
    ],
)
def test_a_proposed_configuration_is_held_against_policy_and_expectation(
    scene: Any, changes: dict[str, Any], match: str | None
) -> None:
    s = scene(
        policy=SitePolicy(corrupt=0.0, dropout=0.1, min_survivors=4), min_survivors=5, quorum=3
    )
    s.until_clients_get(Kind.SETUP)
    message = setup_saying(s, config=config_with(s, **changes))
    if match is None:
        assert s.clients[ME].receive(message)
    else:
        refused(s, message, match)


@pytest.mark.claim("masking-least-cohort")
@pytest.mark.parametrize(("least", "quorum"), [(4, 5), (3, 4), (2, 5)])
def test_a_setup_whose_sums_need_fewer_clients_than_a_quorum_is_refused(
    scene: Any, monkeypatch: pytest.MonkeyPatch, least: int, quorum: int
) -> None:
    s = scene()
    s.until_clients_get(Kind.SETUP)
    with monkeypatch.context() as weakened:  # a server whose configuration is not checked
        weakened.setattr(MaskingConfig, "_check_counts", lambda _: None)
        message = setup_saying(s, config=config_with(s, min_survivors=least, quorum=quorum))
    refused(s, message, r"masking\.(quorum|min_survivors) = \d")


def test_a_site_that_reckons_with_corrupt_clients_refuses_parameters_for_fewer(scene: Any) -> None:
    s = scene(policy=SitePolicy(corrupt=0.25, dropout=0.0))
    s.until_clients_get(Kind.SETUP)
    refused(s, s.message_for(ME), "withstands 0 corrupt clients; this site reckons with 1")


def test_a_site_that_wants_the_hybrid_agreement_refuses_the_classical_one(scene: Any) -> None:
    s = scene(
        policy=SitePolicy(corrupt=0.0, dropout=0.0, key_agreement="x25519+mlkem768"),
    )
    s.until_clients_get(Kind.SETUP)
    refused(s, s.message_for(ME), "hybrid")


def test_an_unsafe_sparse_graph_is_refused(scene: Any) -> None:
    s = scene(
        numbers=range(130),
        policy=SitePolicy(corrupt=0.02, dropout=0.05),
        degree=8,
        threshold=4,
        min_survivors=124,
        quorum=67,
        corrupt_clients=2,
        window_least=1,
        epoch=1,
    )
    s.until_clients_get(Kind.SETUP)
    refused(s, s.message_for(ME), "is not the safe one")


def test_the_cohort_must_be_the_roster_where_the_policy_says_so(scene: Any) -> None:
    federation = Federation((3, 7, 20, 21, 40, 50), policy=SitePolicy(corrupt=0.0, dropout=0.4))
    s = scene(federation=federation)
    s.until_clients_get(Kind.SETUP)
    refused(s, s.message_for(ME), "not the cohort of the rule 'roster'")


def test_a_cohort_can_be_one_that_a_beacon_draws_and_no_other(scene: Any) -> None:
    policy = SitePolicy(corrupt=0.0, dropout=0.4, cohort="beacon", cohort_clients=5)
    federation = Federation(range(12), policy=policy)
    federation.beacons = {1: b"b" * 32}
    drawn = draw_cohort(b"b" * 32, federation.roster, 5).tolist()
    assert drawn == sorted(drawn)
    others = [draw_cohort(bytes([byte]) * 32, federation.roster, 5).tolist() for byte in b"cdef"]
    assert any(drawn != other for other in others)  # keys are fresh: two of 792 cohorts can agree
    s = scene(numbers=drawn, federation=federation, epoch=2)
    s.until_clients_get(Kind.SETUP)
    for number, data in s.outgoing:
        assert s.clients[number].receive(data)
    chosen = [number for number in range(12) if number not in drawn][:4] + drawn[:1]
    s = scene(numbers=chosen, federation=federation, epoch=2)
    s.until_clients_get(Kind.SETUP)
    number, data = s.outgoing[0]
    with pytest.raises(ProtocolError, match="rule 'beacon'"):
        s.clients[number].receive(data)


@pytest.mark.claim("masking-cohort-of-the-beacon")
def test_a_server_does_not_choose_the_size_of_a_cohort_that_a_beacon_draws(scene: Any) -> None:
    """Of the sizes 3 to 12 it could take the one whose draw it likes best."""
    for size in (4, 6, 12):
        federation = Federation(
            range(12),
            policy=SitePolicy(corrupt=0.0, dropout=0.4, cohort="beacon", cohort_clients=5),
        )
        federation.beacons = {1: b"b" * 32}
        drawn = draw_cohort(b"b" * 32, federation.roster, size).tolist()
        s = scene(numbers=drawn, federation=federation, epoch=2, min_survivors=size)
        s.until_clients_get(Kind.SETUP)
        number, data = s.outgoing[0]
        with pytest.raises(ProtocolError, match=f"cohort of {size} clients; .* draw 5 of 12"):
            s.clients[number].receive(data)


def test_a_site_settles_the_size_exactly_where_a_beacon_draws() -> None:
    with pytest.raises(ConfigError, match="cohort_clients"):
        SitePolicy(cohort="beacon")
    with pytest.raises(ConfigError, match="cohort_clients"):
        SitePolicy(cohort="roster", cohort_clients=5)
    with pytest.raises(ConfigError, match="at least 3"):
        SitePolicy(cohort="beacon", cohort_clients=2)
    roster = Federation(range(4)).roster
    for size in (0, 5):
        with pytest.raises(ConfigError, match="between 1 and 4"):
            draw_cohort(b"b" * 32, roster, size)


@pytest.mark.parametrize(
    ("policy", "expected", "config", "match"),
    [
        # 20 clients in the roster, 4 of them corrupt, and a cohort of 8 that the host names: all of
        # the 4 may be in it, where 8 drawn ones would hold 1.
        ({}, {}, 1, "withstands 1 corrupt clients; this site reckons with 4"),
        ({}, {}, 3, "withstands 3 corrupt clients; this site reckons with 4"),
        ({}, {}, 4, None),
        ({"cohort": "beacon", "cohort_clients": 5}, {}, 3, "reckons with 4"),
        # The host knows how many there are; the site's own rate still holds for the cohort.
        ({}, {"corrupt_clients": 2}, 1, "reckons with 2"),
        ({}, {"corrupt_clients": 2}, 2, None),
        ({"cohort": "beacon", "cohort_clients": 5}, {"corrupt_clients": 2}, 2, None),
        ({}, {"corrupt_clients": 0}, 0, "reckons with 1"),
        ({}, {"corrupt_clients": 0}, 1, None),
        ({}, {"corrupt_clients": 7}, 4, "7 corrupt clients may be among the 8"),
        # A curious server names no cohort to please corrupt clients.
        ({"adversary": "curious"}, {}, 1, None),
    ],
)
def test_a_named_cohort_may_hold_all_corrupt_clients_of_the_roster(
    scene: Any, policy: dict[str, Any], expected: dict[str, Any], config: int, match: str | None
) -> None:
    site = SitePolicy(**{"corrupt": 0.2, "dropout": 0.0} | policy)
    federation = Federation(range(20), policy=site)
    s = scene(
        numbers=range(8), federation=federation, threshold=6, min_survivors=8, quorum=8,
        corrupt_clients=config,
    )  # fmt: skip
    named = Expected(
        layout_hash=s.layout.hash, statement=about(s.state), cohort=np.arange(8), **expected
    )
    s.clients[ME] = federation.open_client(ME, named)
    s.until_clients_get(Kind.SETUP)
    if match is None:
        assert s.clients[ME].receive(s.message_for(ME))
    else:
        refused(s, s.message_for(ME), match)


def test_a_sparse_graph_of_a_named_cohort_is_made_for_all_corrupt_clients_of_the_roster() -> None:
    roster = Federation(range(300)).roster
    site = SitePolicy(corrupt=0.05, dropout=0.05)
    named = Expected(layout_hash=bytes(32), cohort=np.arange(200))
    for share, fits in ((0.05, False), (0.075, True)):  # 10 of the 200; the 15 of the roster
        config = MaskingConfig.for_cohort(
            200, bits=32, length=1, layout_hash=bytes(32), corrupt=share, dropout=0.05
        )
        assert config.degree is not None
        reckoned = site.for_round(named, config, roster)
        if fits:
            reckoned.require(config, roster)
        else:
            site.require(config, roster)  # enough for clients drawn by the rule
            with pytest.raises(ProtocolError, match="reckons with 15"):
                reckoned.require(config, roster)


@pytest.mark.claim("masking-cohort-of-the-beacon")
def test_an_old_setup_is_refused_and_the_next_one_taken(scene: Any) -> None:
    first = scene()
    first.until_clients_get(Kind.SETUP)
    old = first.message_for(ME)
    first.clients[ME].receive(old)
    s = scene(federation=first.federation, state=first.state)
    s.until_clients_get(Kind.SETUP)
    with pytest.raises(ProtocolError, match="not beyond round 1"):
        s.clients[ME].receive(old)
    assert s.clients[ME].state is ClientState.SETUP
    assert s.clients[ME].abort_reason is None
    assert s.clients[ME].receive(s.message_for(ME))


def test_an_active_server_may_not_choose_the_cohort() -> None:
    with pytest.raises(ConfigError, match="choose its victims"):
        SitePolicy(cohort="server")
    assert SitePolicy(adversary="curious", cohort="server")


@pytest.mark.parametrize("field", ["config_hash", "roster_hash", "cohort_hash"])
def test_a_setup_must_be_what_its_header_is_bound_to(scene: Any, field: str) -> None:
    s = scene()
    s.until_clients_get(Kind.SETUP)
    envelope = Envelope.decode(s.message_for(ME))
    fields = {name: getattr(envelope.context, name) for name in Context.__slots__}
    context = Context(**(fields | {field: b"z" * 32}))
    key = s.federation.server.key
    refused(s, seal(key, context, Kind.SETUP, envelope.sender, envelope.head), "SETUP: ")


def test_a_client_is_bound_to_its_own_key(scene: Any) -> None:
    s = scene()
    stranger = Federation((7,)).identities[7]
    with pytest.raises(ConfigError, match="another key"):
        type(s.clients[7])(
            identity=stranger,
            roster=s.federation.roster,
            policy=SitePolicy(),
            journal=s.federation.journals[7],
            expected=Expected(layout_hash=bytes(32), statement=about(b"s" * 32)),
        )


def test_a_vector_with_room_for_fewer_clients_is_refused(scene: Any) -> None:
    s = scene()
    vector = s.layout.encode(s.values[ME])
    small = type(vector)(
        words=vector.words, bits=vector.bits, layout_hash=vector.layout_hash, clients=4
    )
    s.clients[ME].load(small)
    s.until_clients_get(Kind.SETUP)
    refused(s, s.message_for(ME), "room for 4 clients, the cohort has 5")
