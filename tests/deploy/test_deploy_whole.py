"""Stacks whose sums are of every client of an attempt, and of helpers with hosts of their own."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits import cli
from audits.deploy.homes import Layout, open_coordinator, open_helper_site
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.paillier import Encryptor
from secure_fedrec.protection.paillier import hosted as encrypted_hosted
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.scheme import keys
from secure_fedrec.protection.paillier.scheme.vectors import RunningSum, encrypt_vector
from secure_fedrec.protection.paillier.server.uploading import UploadingServer
from secure_fedrec.protection.session import AUTHORITY, Identity
from tests.deploy.memory import LONE, Deployment, silences
from tests.deploy.test_deploy_rounds import settings

pytestmark = pytest.mark.usefixtures("one_paillier_key")

PAILLIER: dict[str, Any] = {"layer": "paillier", "key_bits": 2048}
FEW: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 4, "items": 12, "mean_ratings": 5.0},
    "algorithm": {"rounds": 6, "rank": 1},
}


@pytest.mark.claim("hosts-whole-cohort")
def test_an_authority_opens_the_sums_of_all_who_are_there(tmp_path: Path) -> None:
    """It is on a host of its own; who is gone costs an attempt, and the next is of the others."""
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    ran.rounds(1)
    assert ran.transport.labels == ["greeting", "UPLOADS", "RESULT"]
    exchange = ran.transport.exchange

    def turned(
        label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        return reversed(list(exchange(label, messages, timeout)))

    ran.transport.exchange = turned  # type: ignore[method-assign]
    ran.kill(2)
    ran.rounds(1)
    assert (ran.last.attempts, ran.last.clients.tolist()) == (2, [0, 1, 3])
    assert (ran.last.invited, list(ran.last.left_out)) == (4, [2])
    ran.restart(2)
    ran.rounds(1)
    assert (ran.last.attempts, len(ran.last.clients)) == (1, 4)
    assert ran.transport.log == []
    ran.require_equal()


@pytest.mark.claim("hosts-paillier-authority")
def test_the_private_key_is_on_one_host_alone(tmp_path: Path) -> None:
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    secret = (ran.layout.host(AUTHORITY) / "layer.key").read_bytes()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.parent != ran.layout.host(AUTHORITY):
            assert secret[16:80] not in path.read_bytes(), path
    (ran.layout.host(AUTHORITY) / "layer.key").write_bytes(b"")
    ran.kill(LONE)
    ran.restart(LONE)
    with pytest.raises(ProtocolError, match="was begun 3 times"):
        ran.rounds(1)
    assert "has no private key" in ran.transport.log[0][1]


def test_an_authority_makes_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where folders were prepared elsewhere; who was not given its public half is refused."""
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    monkeypatch.setattr(encrypted_hosted, "generate_key", keys.generate_key)
    own, public = ran.layout.host(AUTHORITY) / "layer.key", ran.layout.agreement / "layer.pub"
    words = ["roster", "layer-key", str(ran.layout.agreement), str(own)]
    assert cli.main(words) == 2  # it is there already
    own.unlink()
    assert cli.main(words) == 0
    made = own.with_name("layer.key.pub").read_bytes()
    assert sha256(made).hexdigest() in capsys.readouterr().out
    assert made != public.read_bytes()
    assert own.stat().st_mode & 0o077 == 0
    public.write_bytes(made)
    for host in (0, 1, 2, LONE):  # the last client is not started anew
        ran.kill(host)
        ran.restart(host)
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    ran.rounds(1)
    assert ran.last.clients.tolist() == [0, 1, 2]
    ran.kill(3)
    ran.restart(3)
    ran.rounds(1)
    assert len(ran.last.clients) == 4
    ran.require_equal()


@pytest.mark.claim("hosts-paillier-authority")
def test_an_authority_opens_one_sum_a_round(tmp_path: Path) -> None:
    """Its answer is lost, and it is started anew: the same sum is opened again, and no other."""
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    before, gone = ran.coordinator.public, [2]

    def lost(label: str, client: int, data: bytes) -> list[bytes]:
        if label != "RESULT":
            return [data]
        ran.kill(LONE)
        ran.restart(LONE)
        if gone:
            ran.kill(gone.pop())
        return []

    ran.transport.back = lost
    with pytest.raises(ProtocolError, match="round 1 was begun 3 times"):
        ran.rounds(1)
    assert ran.coordinator.public is before
    ran.restart(2)
    assert {why for who, why in ran.transport.log if who == LONE} == {
        "round 1 is not beyond round 1, the last one begun"
    }
    ran.transport.back = lambda label, client, data: [data]
    ran.rounds(2)
    assert len(ran.clients[1]) == 4
    ran.require_equal()


def test_without_its_helper_no_round_is_begun(tmp_path: Path) -> None:
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    ran.kill(LONE)
    with pytest.raises(ProtocolError, match="the authority is not connected"):
        ran.rounds(1)
    assert ran.transport.labels == ["greeting"]
    ran.restart(LONE)
    ran.rounds(1)
    ran.require_equal()


def test_too_few_that_are_there_halt_nobody(tmp_path: Path) -> None:
    """Nor does a server that names too few: that is its word, and no matter of a client's data."""
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    for client in (0, 1):
        ran.kill(client)
    with pytest.raises(ProtocolError, match="2 clients are there, a sum needs at least 3"):
        ran.rounds(1)
    assert not silences(tmp_path)
    for client in (0, 1):
        ran.restart(client)
    ran.rounds(1)
    assert len(ran.last.clients) == 4
    ran.require_equal()


@pytest.mark.claim("hosts-whole-cohort")
def test_a_client_answers_an_attempt_once(tmp_path: Path) -> None:
    """A server that has forgotten all, and begins the same number again."""
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    ran.rounds(1)
    again = open_coordinator(ran.layout, ran.transport, attempts=1)
    for client in range(4):
        ran.kill(client)
        ran.restart(client)
    with pytest.raises(ProtocolError, match="round 1 was begun 1 times"):
        again.run_round()
    assert {reason for _, reason in ran.transport.log} == {
        "round 1 is not beyond round 1, the last one begun"
    }


@pytest.mark.parametrize("way", ["out", "back"])
def test_what_a_relay_alters_costs_an_attempt(way: str, tmp_path: Path) -> None:
    """On its way to a client or of it, to the authority or of it: the sum is another attempt's."""
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    due = {"UPLOADS": 3, "RESULT": LONE}

    def altered(label: str, who: int, data: bytes) -> list[bytes]:
        if due.get(label) != who:
            return [data]
        del due[label]
        return [data[:100] + bytes([data[100] ^ 1]) + data[101:]]

    setattr(ran.transport, way, altered)
    ran.rounds(1)
    assert not due
    assert (len(ran.last.clients), ran.last.attempts) == (4, 1 if way == "out" else 3)
    assert bool(ran.transport.log) == (way == "out")
    ran.require_equal()


@pytest.mark.claim("hosts-whole-cohort")
def test_a_server_that_names_other_clients_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cohort that was drawn some may be missing; nobody is put in."""
    drawn = {"cohort": {"clients_per_round": 3}}
    ran = Deployment.of(settings(PAILLIER, **drawn, **FEW), tmp_path, attempts=1)
    plan = ran.coordinator._plan
    invited = plan.invited(1)
    (other,) = {*range(4)} - {*invited.tolist()}
    swapped = np.sort(np.append(invited[1:], other))
    for chosen in (swapped, np.arange(4)):
        monkeypatch.setattr(ran.coordinator, "_there", lambda _, who=chosen: who)
        told = len(ran.transport.log)
        with pytest.raises(ProtocolError, match="was begun 1 times"):
            ran.rounds(1)
        refused = {why for _, why in ran.transport.log[told:]}
        assert any(why.startswith("round 1 is not over these") for why in refused), refused
    monkeypatch.undo()
    ran.rounds(1)
    ran.require_equal()


def test_hosts_of_helpers_are_not_taken_for_clients(tmp_path: Path) -> None:
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path)
    assert Layout(tmp_path).sites() == [0, 1, 2, 3]
    assert Layout(tmp_path).helper_sites() == ["authority-0"]
    assert len(ran.coordinator.awaited) == 5
    lone = ran.layout.host(AUTHORITY)
    assert Identity.load(lone / "authority-0.identity").node == AUTHORITY
    ran.kill(0)
    with pytest.raises(ConfigError, match="'client 0': does not have a host of its own here"):
        open_helper_site(ran.layout.agreement, ran.layout.site(0))


@pytest.mark.claim("hosts-paillier-authority")
def test_ciphertexts_of_the_servers_choice_are_not_opened_beside_the_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is opened first in a round is all that is opened, however often."""
    ran = Deployment.of(settings(PAILLIER, **FEW), tmp_path, attempts=1)
    sums, told = UploadingServer.sums, ran.transport.log
    kept: list[bytes] = []

    def lost(label: str, client: int, data: bytes) -> list[bytes]:
        return [] if label == "RESULT" else [data]

    def zeros(self: UploadingServer) -> bytes:
        """What an honest authority would open as well, were it asked first."""
        kept.append(sums(self))
        plan = self._plan
        nothing = np.zeros(plan.layouts[0].length, plan.layouts[0].codec.dtype)
        total = RunningSum(key=plan.key, layout=plan.layouts[0])
        for _ in plan.clients:
            total.add(encrypt_vector(nothing, plan.layouts[0], Encryptor(plan.key)))
        return self._seal(Kind.SUMS, total.vector().to_bytes())

    ran.transport.back = lost
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    told.clear()
    ran.transport.back = lambda label, client, data: [data]
    monkeypatch.setattr(UploadingServer, "sums", zeros)
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    assert kept
    assert {why for who, why in told if who == LONE} == {
        "round 1 is not beyond round 1, the last one begun"
    }
    monkeypatch.setattr(UploadingServer, "sums", sums)
    ran.rounds(1)
    ran.require_equal()
