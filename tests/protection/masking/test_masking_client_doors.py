"""What a client refuses from its host, and from rounds that are not its own."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking import ClientState, Expected, Federation, Kind, SitePolicy
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import Context, Envelope, cohort_hash, seal
from secure_fedrec.protection.masking.messages.key_messages import Keys, Setup
from secure_fedrec.protection.masking.messages.sum_messages import hash_of_sharers
from secure_fedrec.protection.masking.messages.topology import PublicRound
from tests.statements import about

ME = 7


@pytest.mark.parametrize(
    ("epoch", "value"), [(0, b"b" * 32), (1, b"b" * 31), (1, b"b" * 33), (2, b"c" * 32)]
)
def test_a_beacon_is_32_bytes_of_one_epoch_and_stays_what_it_is(
    scene: Any, epoch: int, value: bytes
) -> None:
    client = scene().clients[ME]
    client.observe_beacon(2, b"b" * 32)
    with pytest.raises(ProtocolError, match=f"beacon of epoch {epoch} is malformed or contradicts"):
        client.observe_beacon(epoch, value)
    client.observe_beacon(2, b"b" * 32)


def test_a_vector_of_another_layout_is_not_loaded(scene: Any) -> None:
    s = scene()
    vector = replace(s.layout.encode(s.values[ME]), layout_hash=bytes(32))
    with pytest.raises(ProtocolError, match="not of the expected layout"):
        s.clients[ME].load(vector)


@pytest.mark.parametrize("changes", [{"clients": 4}, {"bits": 21}, {"words": np.zeros(5, "u4")}])
def test_a_vector_that_does_not_fit_the_round_is_not_loaded(
    scene: Any, changes: dict[str, Any]
) -> None:
    s = scene()
    s.until_clients_get(Kind.KEYS)
    vector = replace(s.layout.encode(s.values[ME]), **changes)
    with pytest.raises(ProtocolError, match=r"room for 4 clients|configured layout, ring"):
        s.clients[ME].load(vector)


@pytest.mark.parametrize("kind", [Kind.KEYS, Kind.BOXES, Kind.SURVIVORS, Kind.QUORUM, Kind.RESULT])
def test_a_message_of_another_round_is_refused_and_ends_nothing(scene: Any, kind: Kind) -> None:
    s = scene()
    s.until_clients_get(kind)
    envelope = Envelope.decode(s.message_for(ME))
    other = replace(envelope.context, round_id=b"z" * 16)
    key, payload = s.federation.server.key, bytes(envelope.payload)
    with pytest.raises(ProtocolError, match="belongs to another round"):
        s.clients[ME].receive(seal(key, other, kind, envelope.sender, envelope.head, payload))
    assert s.clients[ME].state is ClientState(kind)
    s.clients[ME].receive(s.message_for(ME))


def test_a_setup_under_another_version_of_the_roster_is_refused(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.SETUP)
    envelope = Envelope.decode(s.message_for(ME))
    setup = Setup.decode(envelope.head)
    fields = {name: getattr(setup, name) for name in Setup.__slots__} | {"roster_version": 2}
    with pytest.raises(ProtocolError, match="SETUP: another roster"):
        s.clients[ME].receive(s.server_says(s.message_for(ME), head=Setup(**fields).head()))


def test_a_client_whose_keys_are_not_passed_on_leaves(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.KEYS)
    envelope = Envelope.decode(s.message_for(ME))
    keys = Keys.decode(envelope.head, envelope.payload, s.config)
    without = Keys(
        advertised=np.array([True, False, True, True, True]), beacon=keys.beacon,
        records=keys.records,
    )  # fmt: skip
    with pytest.raises(ProtocolError, match="KEYS: client 7 is missing"):
        s.clients[ME].receive(s.server_says(s.message_for(ME), head=without.head()))
    assert s.clients[ME].state is ClientState.ABORTED


def test_a_cohort_that_the_host_names_is_taken_and_no_other(scene: Any) -> None:
    site = SitePolicy(adversary="curious", corrupt=0.0, dropout=0.4, cohort="server")
    for named, taken in ((range(5), True), (range(1, 6), False)):
        federation = Federation(range(8), policy=site)
        s = scene(numbers=range(5), federation=federation, adversary="curious")
        expected = Expected(
            layout_hash=s.layout.hash, statement=about(s.state), cohort=np.array(named)
        )
        client = federation.open_client(3, expected)
        s.until_clients_get(Kind.SETUP)
        if taken:
            assert client.receive(s.message_for(3))
        else:
            with pytest.raises(ProtocolError, match="SETUP: another cohort than expected"):
                client.receive(s.message_for(3))


def test_the_hash_of_sharers_is_of_who_they_are_and_of_the_state() -> None:
    """As many others are others: a server would only have to keep the number."""
    sets = [np.arange(5) != left_out for left_out in range(5)]
    states = bytes(32), bytes(31) + b"\1"
    assert len({hash_of_sharers(each, state) for each in sets for state in states}) == 10


def test_a_sparse_graph_against_an_active_server_needs_a_beacon() -> None:
    config = MaskingConfig.for_cohort(
        200, bits=32, length=1, layout_hash=bytes(32), corrupt=0.05, dropout=0.05,
        statement=about(b"s" * 32).digest,
    )  # fmt: skip
    assert config.degree is not None
    cohort = np.arange(200)
    context = Context(
        round_id=bytes(16), config_hash=config.hash, roster_hash=bytes(32),
        cohort_hash=cohort_hash(cohort),
    )  # fmt: skip

    def setup(epoch: int) -> Setup:
        return Setup(
            config=config, epoch=epoch, roster_version=1, channel_public=bytes(32), cohort=cohort
        )

    with pytest.raises(ProtocolError, match="a sparse graph needs a beacon"):
        PublicRound.of(setup(0), context)
    assert PublicRound.of(setup(1), context).beacon_due
