"""A server that tells clients different things of which attempts were summed.

What a client uploads follows from its private tables as well. Were it the server's word which
attempts moved them, it could set the tables of a few apart by an attempt that nobody agreed on, and
the next sum, which all agree on, would show what is theirs alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from secure_fedrec.engines.distributed.sites_channel import SitesChannel
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Parcel
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_floor import FLOOR
from tests.deploy.test_deploy_rounds import MASKS, TEN, settings

Tables = Mapping[int, Mapping[str, bytes]]
STACKS = {"masks": MASKS, "curious": {**MASKS, "adversary": "curious"}, "floor": FLOOR}


def tables(ran: Deployment) -> Tables:
    """Private tables of all sites, as they are kept."""
    return {
        client: {name: values.tobytes() for name, values in ran.site(client).tables().items()}
        for client in ran.layout.sites()
    }


def lost(ran: Deployment, stage: str) -> int:
    """One attempt whose answers to a stage never come; its number, of which all sites know."""
    ran.transport.back = lambda label, client, data: [] if label == stage else [data]
    ran.coordinator._attempts = 1
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    ran.transport.back = lambda label, client, data: [data]
    ran.coordinator._attempts = 3
    (serial,) = {ran.site(client)._kept.pending for client in ran.layout.sites()}
    return serial


@pytest.mark.parametrize("stack", STACKS)
@hypothesis_settings(max_examples=6, deadline=None)
@given(late=st.booleans(), believed=st.sets(st.integers(0, 4), min_size=1))
def test_an_attempt_that_nobody_opened_moves_no_private_table(
    stack: str, tmp_path_factory: Any, late: bool, believed: set[int]
) -> None:
    stage = "CONFIRM" if stack == "masks" and late else "UPLOAD"
    ran = Deployment.of(settings(STACKS[stack]), tmp_path_factory.mktemp("ran"))
    ran.rounds(1)
    before = tables(ran)
    serial = lost(ran, stage)
    assert serial
    ran.coordinator._settled |= dict.fromkeys(believed, serial)
    ran.coordinator.channel.greet()
    ran.coordinator.finish()
    assert tables(ran) == before
    assert not any(ran.site(client)._kept.pending for client in ran.layout.sites())
    ran.rounds(1)  # and goes on, whatever was said
    assert len(ran.last.clients) == 5
    assert tables(ran) != before
    ran.require_equal()


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("denied", [{2}, {0, 1, 3, 4}, {0, 1, 2, 3, 4}], ids=str)
def test_what_a_client_helped_to_open_is_not_taken_back(
    stack: str, denied: set[int], tmp_path: Path
) -> None:
    ran = Deployment.of(settings(STACKS[stack]), tmp_path)
    first = tables(ran)
    ran.rounds(1)
    after = tables(ran)  # moved as the answer left, before any word of the server's
    assert all(after[client] != first[client] for client in after)
    for client in denied:
        del ran.coordinator._settled[client]
    ran.coordinator.finish()
    assert tables(ran) == after
    ran.rounds(1)
    ran.require_equal()


def test_a_reveal_that_is_given_again_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored one of an attempt before, which whoever asks is given, opens nothing new."""
    ran = Deployment.of(settings(MASKS), tmp_path)
    asked: list[Parcel] = []
    exchange = SitesChannel.exchange

    def again(
        self: SitesChannel, stage: str, messages: Sequence[Parcel], timeout: float | None = None
    ) -> Any:
        if stage == "REVEAL" and not asked:
            asked.extend(messages)
        elif stage == "SHARES" and asked:
            messages = asked
        return exchange(self, stage, messages, timeout)

    monkeypatch.setattr(SitesChannel, "exchange", again)
    ran.rounds(1, more=False)
    before = tables(ran)
    ran.coordinator._attempts = 1
    with pytest.raises(ProtocolError):
        ran.rounds(1, more=False)
    given = {stage for stage, _ in ran.coordinator.channel.answered}
    assert "REVEAL" in given
    assert tables(ran) == before


def test_a_client_that_was_gone_goes_on_from_the_tables_before(tmp_path: Path) -> None:
    """Its upload is in the sum; that it was, only the server's word says."""
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    before = tables(ran)[2]

    def gone(label: str, client: int, data: bytes) -> list[bytes]:
        return [] if (label, client) == ("REVEAL", 2) else [data]

    ran.transport.out = gone
    ran.rounds(1)
    assert 2 in ran.last.clients
    assert np.array_equal(ran.last.unmoved, [2])
    ran.transport.out = lambda label, client, data: [data]
    ran.coordinator.finish()
    assert tables(ran)[2] == before
    ran.rounds(2)
    assert ran.last.unmoved.size == 0
    assert tables(ran)[2] != before
    ran.require_equal()
