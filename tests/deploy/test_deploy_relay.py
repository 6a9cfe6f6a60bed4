"""A relay between server and sites that alters what it carries: refused, and told at home only."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.engines.distributed.host_messages import decode_state
from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.pipeline import PipelinedServer
from secure_fedrec.protection.session import Parcel
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_rounds import MASKS, TEN, settings

pytestmark = pytest.mark.claim("hosts-relay")

Altered = Callable[[dict[int, bytes], bytes], list[bytes]]
"""What a relay makes of a message to client 2, given the last ones to all: earlier and of now."""

ALTERED: dict[str, Altered] = {
    "truncated": lambda seen, data: [data[:-1]],
    "a bit": lambda seen, data: [data[:80] + bytes([data[80] ^ 1]) + data[81:]],
    "swapped": lambda seen, data: [seen[1]],
    "replayed": lambda seen, data: [seen[2]],
    "held back": lambda seen, data: [],
    "rubbish": lambda seen, data: [b"", b"x" * 200],
}


@pytest.mark.parametrize("way", ["out", "back"])
def test_what_is_altered_costs_its_round_and_nothing_else(way: str, tmp_path: Path) -> None:
    """Client 2 is out of every round in which a message to it, or of it, is altered, agrees on keys
    in the next, and is back in the one after; what it refuses it says to its own log."""
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    seen: dict[int, bytes] = {}
    due = [""]

    def relay(label: str, client: int, data: bytes) -> list[bytes]:
        if client == 2 and label == "UPLOAD" and due[0]:
            return ALTERED[due[0]](seen, data)
        seen[client] = data
        return [data]

    ran.rounds(1)
    setattr(ran.transport, way, relay)
    for how in ALTERED:
        due[0] = how
        told = len(ran.transport.log)
        seen[2] = seen.get(2, b"")
        ran.rounds(1)
        assert list(ran.last.left_out) == [2], how
        refused = ran.transport.log[told:]
        assert {client for client, _ in refused} <= {2}, how
        again = (way, how) == ("back", "rubbish")  # an empty answer is asked for again: refused
        assert bool(refused) == (again or (way == "out" and how != "held back")), how
        due[0] = ""
        ran.rounds(1)
        assert list(ran.last.left_out) == [2], how
    ran.rounds(1)
    assert 2 in ran.last.clients
    ran.require_equal()


def test_other_keys_of_the_next_round_cost_it_and_are_told_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Client 2 stays in the sum of the round in progress, and is back two rounds later."""
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    ahead = PipelinedServer._ahead

    def altered(self: PipelinedServer) -> list[Parcel]:
        return [
            parcel._replace(data=parcel.data[:-1])
            if (parcel.stage, parcel.receiver.number) == ("KEYS", 2)
            else parcel
            for parcel in ahead(self)
        ]

    with monkeypatch.context() as patch:
        patch.setattr(PipelinedServer, "_ahead", altered)
        ran.rounds(1)
    assert (2 in ran.last.clients, ran.last.ready) == (True, 9)
    assert "refused: KEYS: truncated" in caplog.text
    ran.rounds(1)
    assert list(ran.last.left_out) == [2]
    ran.rounds(1)
    assert (len(ran.last.clients), ran.transport.log) == (10, [])
    ran.require_equal()


def test_what_comes_twice_is_taken_once(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.transport.out = lambda label, client, data: [data] * (1 if label == "greeting" else 2)
    ran.transport.back = lambda label, client, data: [data] * 2
    ran.rounds(2)
    assert ran.clients[2].tolist() == [0, 1, 2, 3, 4]
    assert len(ran.transport.log) == 5 * (5 + 3)
    ran.require_equal()


@pytest.mark.claim("hosts-malformed-state")
def test_a_public_state_of_other_shapes_is_refused(tmp_path: Path) -> None:
    """The server itself sends it: clients' loops are not given arrays that they would overrun."""
    ran = Deployment.of(settings(), tmp_path)
    ran.rounds(1)
    before = ran.coordinator.public
    table, more = before.table, {"more": np.zeros(3)}
    wrong = [
        replace(before, table=other)
        for other in (table[:-1], table[:, :-1], np.hstack([table, table]), table.reshape(-1))
    ]
    for public in (*wrong, replace(before, extras={**before.extras, **more})):
        ran.coordinator.public, told = public, len(ran.transport.log)
        with pytest.raises(ProtocolError, match="was begun 3 times"):
            ran.coordinator.run_round()
        refused = [why for _, why in ran.transport.log[told:]]
        assert refused
        assert all(
            "a public state of" in why or "does not take part in attempt" in why for why in refused
        )
    ran.coordinator.public = before
    ran.rounds(1)
    ran.require_equal()


def test_a_session_of_before_is_not_taken_up(tmp_path: Path) -> None:
    """Requests of an earlier session, in their order, to a site that was greeted anew."""
    ran = Deployment.of(settings(), tmp_path)
    recorded: list[bytes] = []

    def recording(label: str, client: int, data: bytes) -> list[bytes]:
        if client == 2:
            recorded.append(data)
        return [data]

    ran.transport.out = recording
    ran.rounds(1)
    site = ran.site(2)
    before: dict[str, Any] = dict(site.tables())
    greeting, *requests = recorded
    site.answer(greeting)
    for request in requests:
        with pytest.raises(Exception, match="belongs to another agreement"):
            site.answer(request)
    assert dict(site.tables()) == before


@pytest.mark.claim("hosts-single-deliveries")
def test_a_client_takes_no_part_that_is_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is sent its own table beside the mean, and no request has another's."""
    ran = Deployment.of(settings(algorithm={"name": "gpfedrec", "rounds": 3}), tmp_path, attempts=1)
    ran.rounds(2)
    plan, public = ran.coordinator._plan, ran.coordinator.public
    for client in range(5):
        names = decode_state(plan.sent(public)(client)).keys()
        assert names - {""} - public.extras.keys() == set()
        assert [name for name in names if name.startswith("table-")] == [f"table-{client}"]
    sent = TrainingPlan.sent
    swapped = {0: 1, 1: 0}

    def other(self: TrainingPlan, public: Any) -> Callable[[int], bytes]:
        return lambda client: sent(self, public)(swapped.get(client, client))

    monkeypatch.setattr(TrainingPlan, "sent", other)
    ran.rounds(1)
    assert ran.clients[3].tolist() == [2, 3, 4]
    refused = {(who, why) for who, why in ran.transport.log if "for other clients" in why}
    end = "is for other clients, or of another shape than the table"
    assert refused == {(0, f"table-1 {end}"), (1, f"table-0 {end}")}
