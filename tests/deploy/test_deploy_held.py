"""Paillier whose key the clients hold: the server carries a public state that it cannot read."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits import cli
from audits.deploy.command import _kept
from audits.deploy.homes import open_coordinator
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.engines import table_digest
from secure_fedrec.errors import CheckpointError, ConfigError, ProtocolError
from secure_fedrec.protection.paillier import hosted as encrypted_hosted
from secure_fedrec.protection.paillier import updaters
from secure_fedrec.protection.paillier.scheme import keys
from tests.deploy.memory import Deployment, silences
from tests.deploy.test_deploy_rounds import EXCHANGED, settings
from tests.deploy.test_deploy_whole import FEW

pytestmark = pytest.mark.usefixtures("one_paillier_key")

HELD: dict[str, Any] = {"layer": "paillier", "key_bits": 2048, "holder": "clients"}


def deployed(folder: Path, **options: Any) -> Deployment:
    return Deployment.of(settings(HELD, **FEW), folder, **options)


def refused_by(ran: Deployment, why: str) -> None:
    """A round is refused by all clients for this reason, and nobody is halted."""
    ran.transport.log.clear()
    before = ran.coordinator._held
    with pytest.raises(ProtocolError, match="was begun 1 times"):
        ran.rounds(1)
    assert ran.coordinator._held == before
    assert {client for client, _ in ran.transport.log} == {0, 1, 2, 3}
    assert all(why in said for _, said in ran.transport.log), ran.transport.log
    assert not silences(ran.layout.root)


def test_clients_take_the_servers_step(tmp_path: Path) -> None:
    """Two exchanges a round. Who is gone before it has uploaded costs an attempt, and so does who
    is to make the next state; anybody else is in the sum, and learns so when it is back."""
    ran = deployed(tmp_path)
    ran.rounds(1)
    assert ran.transport.labels == ["greeting", "UPLOADS", "UPDATES"]
    assert (ran.coordinator.digest, ran.coordinator.public.table.size) == (None, 0)
    due: dict[str, int] = {}

    def killing(label: str, client: int, data: bytes) -> list[bytes]:
        if label in due:
            ran.kill(due.pop(label))
        return [data]

    ran.transport.out = killing
    assert (updaters(range(4), 3), updaters(range(4), 4)) == ((2, 3), (0, 1))
    for label, gone, attempts in (("UPLOADS", 2, 2), ("UPDATES", 3, 2), ("UPDATES", 2, 1)):
        due[label] = gone
        ran.rounds(1)
        assert ran.last.attempts == attempts
        assert (gone in ran.last.clients) == (attempts == 1)
        ran.restart(gone)
    ran.rounds(1)
    assert (ran.last.attempts, ran.last.exchanges) == (1, 4)  # one is greeted, and asked again
    assert len(ran.last.clients) == 4
    assert ran.transport.log == [(2, "no session with the server has begun")]
    ran.require_equal()


@pytest.mark.parametrize(
    "others", [{"cohort": {"clients_per_round": 3}}, EXCHANGED], ids=["cohort", "exchanged"]
)
def test_other_rounds_are_the_embedded_engines(others: Mapping[str, Any], tmp_path: Path) -> None:
    """A state goes from one cohort to the next; those who give each other vectors keep it too."""
    ran = Deployment.of(settings(HELD, **{**FEW, **others}), tmp_path)
    ran.rounds(2)
    assert ran.transport.log == []
    ran.require_equal()


@pytest.mark.claim("hosts-paillier-clients-key")
def test_clients_alone_hold_the_key_and_read_the_state(tmp_path: Path) -> None:
    """Of the server neither disk nor lines show the key, or a row of a state after round 1."""
    ran = deployed(tmp_path)
    seen: list[bytes] = []

    def kept(label: str, client: int, data: bytes) -> list[bytes]:
        seen.append(data)
        return [data]

    ran.transport.out = ran.transport.back = kept
    states = [ran.twin(0).public]
    for _ in range(2):
        ran.rounds(1)
        states.append(ran.twin().public)
    ran.require_equal()
    clients = [ran.layout.site(client) for client in range(4)]
    (secret,) = {(place / "layer.key").read_bytes() for place in clients}
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    elsewhere = [path.read_bytes() for path in paths if not {*clients} & {*path.parents}]
    for data in (*elsewhere, *seen):
        assert secret[16:80] not in data
        for public in states[1:]:
            assert not any(row.tobytes() in data for row in public.table)
    assert all((place / "layer.key").stat().st_mode & 0o077 == 0 for place in clients)
    (line,) = _kept(ran.layout)  # what the command ends with
    assert line == {"round": 2, "held_by": [0, 1, 2, 3], "table": table_digest(states[2])}


@pytest.mark.claim("hosts-paillier-clients-key")
def test_a_state_of_another_round_is_refused(tmp_path: Path) -> None:
    """Swapped, replayed with its number or moved: whoever opens it sees that it is not the one."""
    ran = deployed(tmp_path, attempts=1)
    held, public = [], []
    for _ in range(2):
        ran.rounds(1)
        held.append(ran.coordinator._held)
        public.append(ran.coordinator.public)
    ran.coordinator._held, ran.coordinator.public = held[0], public[0]
    refused_by(ran, "round 2 is over: 2 rounds are done")
    ran.coordinator._held, ran.coordinator.public = held[1], replace(public[1], round=4)
    refused_by(ran, "the table differs from its digest")
    ran.coordinator.public = replace(public[1], round=2**32 - 2)
    refused_by(ran, "round 4294967295 does not exist: rounds are 1 to 6")
    ran.coordinator._held, ran.coordinator.public = held[0], public[1]
    refused_by(ran, "round 3: the table differs from its digest")
    ran.coordinator._held = held[1][:32] + held[0][32:]
    refused_by(ran, "round 3: the table differs from its digest")
    ran.coordinator._held = b""
    refused_by(ran, "round 3 cannot begin with this encrypted state")
    ran.coordinator._held = held[1]
    ran.rounds(1)
    ran.require_equal()


@pytest.mark.claim("hosts-paillier-clients-key")
def test_those_who_make_the_next_state_have_to_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = deployed(tmp_path, attempts=1)
    ran.rounds(1)
    algorithm = ran.site(updaters(range(4), 2)[1])._plan.algorithm
    step = algorithm.server_step

    def moved(public: PublicState, aggregate: Any) -> PublicState:
        found = step(public, aggregate)
        return replace(found, table=np.nextafter(found.table, np.inf))

    with monkeypatch.context() as lying:
        lying.setattr(algorithm, "server_step", moved)
        with pytest.raises(ProtocolError, match="clients 0 and 1 computed different tables"):
            ran.rounds(1)
    ran.rounds(1)
    ran.require_equal()


def test_a_server_goes_on_from_what_it_holds(tmp_path: Path) -> None:
    """A site that was away at the end is given the last state when the server is back."""
    ran = deployed(tmp_path)
    ran.rounds(2)
    ran.kill(1)
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    ran.coordinator.resume()
    ran.rounds(1)
    assert ran.last.clients.tolist() == [0, 2, 3]
    ran.coordinator.finish()
    ran.restart(1)
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    ran.coordinator.resume()
    ran.require_equal()


def test_clients_make_their_key_and_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One makes it; who has another one, or none, does not begin. States are bound to it."""
    ran = deployed(tmp_path)
    ran.rounds(1)
    ran.coordinator.save()
    monkeypatch.setattr(encrypted_hosted, "generate_key", keys.generate_key)
    made, public = tmp_path / "layer.key", ran.layout.agreement / "layer.pub"
    assert cli.main(["roster", "layer-key", str(ran.layout.agreement), str(made)]) == 0
    handed = made.with_name("layer.key.pub").read_bytes()
    said = capsys.readouterr().out
    assert said == f"client 0, client 1, client 2, client 3: {sha256(handed).hexdigest()}\n"
    public.write_bytes(handed)
    ran.coordinator = open_coordinator(ran.layout, ran.transport, attempts=1)
    with pytest.raises(CheckpointError, match="under the keys of another roster"):
        ran.coordinator.resume()
    for client in range(4):
        ran.kill(client)
        own = ran.layout.site(client) / "layer.key"
        before = own.read_bytes()
        for wrong in (b"", before, before[:-1]):
            own.write_bytes(wrong)
            with pytest.raises(ConfigError, match=r"layer\.key"):
                ran.restart(client)
        if client:
            own.write_bytes(made.read_bytes())
            ran.restart(client)
    assert ran.transport.addresses() == [1001, 1002, 1003]
