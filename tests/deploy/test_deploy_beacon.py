"""Public randomness on hosts of their own: signed, in time, by a way that no server controls."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audits import cli
from audits.deploy.homes import (
    OwnOperator,
    load_agreement,
    open_coordinator,
    open_site,
    save_agreement,
)
from secure_fedrec.engines.distributed.public_randomness import signed_beacon
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import MaskingServer
from secure_fedrec.protection.masking import layer as layers
from secure_fedrec.protection.session import Identity, Roster
from secure_fedrec.protection.session.beacon import SignedBeacon, publish
from secure_fedrec.protection.session.operator import save_operator
from tests.deploy.memory import Deployment, MemoryTransport
from tests.deploy.test_deploy_rounds import SMALL, settings

CLIENTS = 12
SPARSE: dict[str, Any] = {
    "layer": "masking",
    "adversary": "active",
    "corrupt": 0.0,
    "beacon": "operator",
}
LATER = ["UPLOAD", "CONFIRM", "REVEAL"]


@pytest.mark.claim("beacon-in-configuration")
def test_a_configuration_takes_public_randomness(
    sparse: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More clients than a complete graph has: refused without it; the embedded engine's bits with
    it, those of its real execution too."""
    monkeypatch.setattr(layers, "COMPLETE_UP_TO", 4)
    data, algorithm = {**SMALL, "clients": CLIENTS}, {"rounds": 2, "rank": 2}
    with pytest.raises(ConfigError, match="need a sparse graph"):
        without = {**SPARSE, "beacon": "none"}
        Deployment.of(settings(without, data=data, algorithm=algorithm), tmp_path / "none")
    taken = {**SPARSE, "execution": "real"}
    ran = Deployment.of(settings(taken, data=data, algorithm=algorithm), tmp_path / "taken")
    operator = OwnOperator(ran.layout)
    ran.coordinator = open_coordinator(ran.layout, ran.transport, beacon=operator)
    ran.rounds(1)
    ran.rounds(1, more=False)
    assert sorted(operator.values()) == [1, 2]
    assert ran.transport.log == []
    ran.require_equal()
    assert ran.layout.operator.stat().st_mode & 0o077 == 0
    ran.layout.operator.unlink()
    with pytest.raises(ConfigError):
        OwnOperator(ran.layout)


class Operator:
    """Publishes a value once the keys are in that it is drawn after, or its epoch was in vain.

    Args:
        ran: whose roster and values it signs.

    Attributes:
        key: signs roster and values.
        late: clients whose copies have stopped coming.
        asked: epochs, in order.
    """

    def __init__(self, ran: Deployment) -> None:
        self.ran, layout = ran, ran.layout
        self.key = Ed25519PrivateKey.generate()
        self.late: set[int] = set()
        self.asked: list[int] = []
        blueprint, agreed = load_agreement(layout.agreement)
        keys = {node: agreed.roster.key_of(node) for node in agreed.roster.nodes()}
        roster = Roster.of(self.key, keys, version=2)
        save_agreement(layout.agreement, blueprint, roster)
        self.layout = layout
        _, agreed = load_agreement(layout.agreement)
        self.federation = agreed.federation
        self._own = signed_beacon(agreed, layout.server)

    def values(self) -> Mapping[int, bytes]:
        ahead = self.ran.coordinator._next_keys
        due = [ahead.epoch - 1]
        if ahead._pipeline is not None:
            open_ = ahead._pipeline._current, ahead._pipeline._following
            due = [each.beacon_due for each in open_ if each and each.stage == "ADVERTISE"]
        for epoch in sorted({*due} - {*self.asked, 0}):
            self.publish(epoch)
        return self._own.values()

    def publish(self, epoch: int) -> None:
        folder = self.layout.server / "beacons"
        path = publish(folder, self.key, federation=self.federation, epoch=epoch)
        self.asked.append(epoch)
        for client in {*self.layout.sites()} - self.late:
            copy = self.layout.site(client) / "beacons"
            copy.mkdir(exist_ok=True)
            shutil.copy(path, copy)


def deployed(folder: Path, **options: Any) -> tuple[Deployment, Operator]:
    data = {**SMALL, "clients": CLIENTS}
    ran = Deployment.of(settings(SPARSE, data=data, algorithm={"rounds": 3, "rank": 2}), folder)
    for client in range(CLIENTS):
        ran.kill(client)
    operator = Operator(ran)
    sites = {n: open_site(ran.layout.agreement, ran.layout.site(n)) for n in range(CLIENTS)}
    ran.transport = MemoryTransport(sites)
    ran.coordinator = open_coordinator(ran.layout, ran.transport, beacon=operator, **options)
    return ran, operator


@pytest.mark.claim("hosts-public-randomness")
def test_rounds_on_sparse_graphs_take_a_beacon_each(sparse: None, tmp_path: Path) -> None:
    """Published once the keys of its round are in, which is while the round before is summed; a
    client that it has not reached by then is left out of that round, and says so at home."""
    ran, operator = deployed(tmp_path)
    ran.rounds(1)
    assert operator.asked == [1, 2]
    operator.late = {3}
    ran.transport.labels.clear()
    ran.rounds(1)
    assert (ran.transport.labels, operator.asked) == (LATER, [1, 2, 3])
    assert (len(ran.last.clients), ran.last.ready) == (CLIENTS, CLIENTS - 1)
    ran.rounds(1, more=False)
    assert (list(ran.last.left_out), operator.asked) == ([3], [1, 2, 3])
    assert ran.transport.log == []  # its half of the round in progress has answered
    ran.require_equal()


def test_an_epoch_that_was_begun_in_vain_is_published_before_the_next(
    sparse: None, tmp_path: Path
) -> None:
    """A server that is killed with keys of the next round on their way, and twice with them."""
    ran, operator = deployed(tmp_path)

    def killing(label: str, client: int, data: bytes) -> list[bytes]:
        if (label, client) == ("UPLOAD", 5):
            raise KeyboardInterrupt
        return [data]

    ran.transport.out = killing
    with pytest.raises(KeyboardInterrupt):
        ran.rounds(1)
    assert operator.asked == [1]
    ran.transport.out = lambda label, client, data: [data]
    for attempts in (2, 1):  # the one in vain counts, too
        ran.coordinator = open_coordinator(ran.layout, ran.transport, beacon=operator)
        ran.coordinator.resume()
        ran.rounds(1)
        assert ran.last.attempts == attempts
    assert operator.asked == [1, 2, 3, 4, 5, 6]
    ran.require_equal()


@pytest.mark.claim("hosts-public-randomness")
def test_a_beacon_that_was_known_before_is_refused_by_everybody(
    sparse: None, tmp_path: Path
) -> None:
    ran, operator = deployed(tmp_path, attempts=1)
    operator.publish(1)
    with pytest.raises(ProtocolError, match="was begun 1 times"):
        ran.rounds(1)
    assert {reason for _, reason in ran.transport.log} == {
        "SETUP: the beacon of epoch 1 is known already"
    }


@pytest.mark.claim("hosts-public-randomness")
def test_a_server_that_makes_its_own_beacon_is_refused_by_everybody(
    sparse: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it tells them; and what it slips into a host's folder is not the operator's."""
    ran, _ = deployed(tmp_path, attempts=1)
    step = MaskingServer.step

    def chosen(self: MaskingServer, inbox: Any) -> Any:
        self.beacon = None if self.beacon is None else bytes(range(32))
        return step(self, inbox)

    monkeypatch.setattr(MaskingServer, "step", chosen)
    with pytest.raises(ProtocolError, match="was begun 1 times"):
        ran.rounds(1)
    assert {reason for _, reason in ran.transport.log} == {"KEYS: not the beacon that was observed"}
    server = Identity.load(ran.layout.server / "server.identity")
    _, agreed = load_agreement(ran.layout.agreement)
    source = signed_beacon(agreed, ran.layout.site(0))
    publish(ran.layout.site(0) / "beacons", server.key, federation=agreed.federation, epoch=2)
    with pytest.raises(ConfigError, match="is not signed by the roster's operator"):
        source.values()


def test_without_a_beacon_no_sparse_round_is_formed(sparse: None, tmp_path: Path) -> None:
    ran, _ = deployed(tmp_path, attempts=1, timeout=0.3)
    ran.coordinator = open_coordinator(ran.layout, ran.transport, attempts=1, timeout=0.3)
    with pytest.raises(ProtocolError, match="the beacon of epoch 1 is not published"):
        ran.rounds(1)


@pytest.mark.claim("hosts-public-randomness")
def test_values_are_of_one_federation_and_one_epoch(tmp_path: Path) -> None:
    key, federation = Ed25519PrivateKey.generate(), bytes(range(32))
    source = SignedBeacon(
        tmp_path, operator=key.public_key().public_bytes_raw(), federation=federation
    )
    assert source.values() == {}
    for epoch in (1, 2):
        path = publish(tmp_path, key, federation=federation, epoch=epoch)
    known = dict(source.values())
    assert len({*known.values()}) == len(known) == 2
    with pytest.raises(ConfigError, match="have no value yet"):
        publish(tmp_path, key, federation=federation, epoch=2)
    broken = bytearray(path.read_bytes())
    broken[50] ^= 1
    wrong = {
        "3.beacon": path.read_bytes(),  # of another epoch
        "03.beacon": path.read_bytes(),
        "x.beacon": path.read_bytes(),
        "4.beacon": bytes(broken),
        "5.beacon": b"",
    }
    for name, data in wrong.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match="beacon = "):
            source.values()
        (tmp_path / name).unlink()
    publish(tmp_path, key, federation=bytes(32), epoch=3)
    with pytest.raises(ConfigError, match="is of another federation or epoch"):
        source.values()
    (tmp_path / "3.beacon").unlink()
    path.write_bytes(bytes(broken))
    assert source.values() == known  # what was read is not read again


def test_the_operator_publishes_the_next_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Deployment.of(settings(SPARSE), tmp_path / "ran")
    operator = Operator(ran)
    out, words = tmp_path / "out", ["roster", "beacon", str(ran.layout.agreement)]
    save_operator(operator.key, tmp_path / "operator.key")
    save_operator(Ed25519PrivateKey.generate(), tmp_path / "other.key")
    for epoch in (1, 2):
        told = [*words, "--operator", str(tmp_path / "operator.key"), "--out", str(out)]
        assert cli.main(told) == 0
        assert capsys.readouterr().out.strip() == str(out / f"{epoch}.beacon")
    assert cli.main([*words, "--operator", str(tmp_path / "other.key"), "--out", str(out)]) == 2
    assert "is not that of the roster" in capsys.readouterr().err
    _, agreed = load_agreement(ran.layout.agreement)
    assert {
        *SignedBeacon(out, operator=agreed.roster.operator, federation=agreed.federation).values()
    } == {
        1,
        2,
    }
