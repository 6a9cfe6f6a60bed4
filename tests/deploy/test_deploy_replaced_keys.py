"""Keys are replaced, revoked and rotated by the commands of docs/how-to/replace-keys.md."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audits import cli
from audits.deploy import site as site_process
from audits.deploy.homes import Layout, load_agreement, open_coordinator, open_host, open_site
from secure_fedrec.core.files import replace_file
from secure_fedrec.engines.distributed import Coordinator
from secure_fedrec.engines.distributed.host_messages import Agreement, Kind, Present
from secure_fedrec.engines.distributed.mean_coordinator import MeanCoordinator
from secure_fedrec.engines.distributed.mean_site import Keys, MeanSite
from secure_fedrec.errors import CheckpointError, ConfigError
from secure_fedrec.protection.means import MaskedMean, NoisedMean
from secure_fedrec.protection.session import SERVER, Identity, Node, Role, Roster
from secure_fedrec.protection.session.beacon import SignedBeacon
from tests.deploy.keys import give_keys
from tests.deploy.memory import Deployment, MemoryTransport, places
from tests.deploy.test_deploy_rounds import MASKS, SHARED, SMALL, settings
from tests.page_blocks import NOT_CODE, ROOT, Reader, blocks_of, environment

PAGE = ROOT / "docs" / "how-to" / "replace-keys.md"
CODE = [block for block in blocks_of(PAGE) if block.language not in NOT_CODE]


class Started:
    """Hosts of a folder, started anew with what lies in it by now.

    Args:
        layout: the folder.
        clients: whose sites are started.
    """

    def __init__(self, layout: Layout, clients: list[int]) -> None:
        self.transport = MemoryTransport({})
        self.coordinator: Coordinator = open_coordinator(layout, self.transport)
        if layout.checkpoint.exists():
            self.coordinator.resume()
        for client in clients:
            self.transport.sites[client] = open_site(layout.agreement, layout.site(client))

    def round(self) -> list[int]:
        """Who is in the sum of one more round."""
        clients: list[int] = self.coordinator.run_round(more=False).clients.tolist()
        self.coordinator.finish()
        return clients

    def close(self) -> None:
        for site in self.transport.sites.values():
            site.close()


def summed(layout: Layout, clients: list[int]) -> list[int]:
    started = Started(layout, clients)
    try:
        return started.round()
    finally:
        started.close()


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The folder of whoever works through the page, by the version of the roster in it.

    Under each of them a round is summed by everybody who is listed.
    """
    root = tmp_path_factory.mktemp("page")
    (root / "reader").mkdir()
    reader = Reader(folder=root / "reader", environment=environment(root))
    layout, everybody = Layout(reader.folder / "deployed"), [0, 1, 2, 3, 4]
    found: dict[int, Path] = {}
    for block in CODE:
        reader.work_through(block)
        if "cp roster deployed/agreement/roster" not in block.code:
            continue
        if "remove parties client:3" in block.code:
            everybody.remove(3)
        assert summed(layout, everybody) == everybody
        version = len(found) + 1
        found[version] = shutil.copytree(reader.folder, root / str(version))
    return found


@pytest.fixture
def stage(stages: dict[int, Path], tmp_path: Path) -> Callable[[int], tuple[Path, Layout]]:
    """A copy of the folder under a version of the roster."""

    def copied(version: int) -> tuple[Path, Layout]:
        folder = shutil.copytree(stages[version], tmp_path / str(version))
        return folder, Layout(folder / "deployed")

    return copied


Stage = Callable[[int], tuple[Path, Layout]]


@pytest.mark.claim("hosts-revocation", "hosts-new-operator")
def test_rounds_go_on_under_every_roster_of_the_page(stages: dict[int, Path], stage: Stage) -> None:
    """From one to the next the model, private tables and journals are the same."""
    assert list(stages) == [1, 2, 3, 4, 5]
    _, layout = stage(5)
    started = Started(layout, [0, 1, 2, 4])
    assert started.coordinator.public.round == 5
    completed = {client: site.completed for client, site in started.transport.sites.items()}
    assert completed == dict.fromkeys([0, 1, 2, 4], 5)
    started.close()
    (layout.agreement / "first-operator.pub").unlink()
    with pytest.raises(CheckpointError, match="this journal is of another federation"):
        summed(layout, [0, 1, 2, 4])


@pytest.mark.claim("hosts-revocation")
def test_who_has_the_old_key_takes_no_part(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    _, layout = stage(2)
    own = layout.site(2)
    show = ["site", "show", "--json", str(layout.agreement), str(own)]
    assert cli.main(show) == 0
    assert json.loads(capsys.readouterr().out)["refused"] is None
    (own / "client.identity.old").replace(own / "client.identity")
    with pytest.raises(ConfigError, match="'client 2': has another key than the one on roster 2"):
        open_site(layout.agreement, own)
    assert cli.main(show) == 0
    assert "has another key" in json.loads(capsys.readouterr().out)["refused"]


@pytest.fixture
def no_supernode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site's process whose SuperNode and signal handlers are left out."""
    pytest.importorskip("flwr")
    from secure_fedrec.engines.flower import processes

    stub = SimpleNamespace(ended=True, kill=lambda: None)  # nothing is served
    monkeypatch.setattr(processes, "Running", lambda *_: stub)
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def started_as_a_process(layout: Layout, client: int) -> int:
    words = [str(layout.agreement), str(layout.site(client)), "--superlink", "127.0.0.1:1"]
    return site_process.main([*words, "--certificates", "none", "--port", "1"])


@pytest.mark.usefixtures("no_supernode")
def test_a_revoked_client_that_comes_back_is_refused_by_its_own_host(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    _, layout = stage(3)
    assert started_as_a_process(layout, 3) == 2
    said = capsys.readouterr().err
    assert "ERROR site.identities = 'client 3': is not on roster 3" in said
    assert len(said.splitlines()) == 1


@pytest.mark.claim("hosts-revocation")
def test_a_revoked_client_with_the_old_roster_is_refused_at_both_ends(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    (_, before), (_, layout) = stage(2), stage(3)
    old = before.agreement
    started = Started(layout, [0, 1, 2, 4])
    started.transport.sites[3] = open_site(old, layout.site(3))
    caplog.clear()
    try:
        assert started.round() == [0, 1, 2, 4]
        assert started.round() == [0, 1, 2, 4]
    finally:
        started.close()
    refused = {why for client, why in started.transport.log if client == 3}
    assert len(refused) == 1
    assert "this host holds roster 2, and the server may hold a later one" in refused.pop()
    lines = [each for each in caplog.messages if "is refused" in each]
    assert len(lines) == 1
    assert lines[0].startswith("the host at node 1003 is refused: it did not answer the greeting")
    assert "another roster than version 3" in lines[0]


class Answering:
    """A revoked client's own code: it answers the greeting under the new roster."""

    def __init__(self, agreement: Agreement, identity: Identity) -> None:
        self._agreement, self._identity = agreement, identity

    def answer(self, data: bytes) -> bytes:
        present = Present(
            server=self._agreement.open_greeting(data), site=bytes(16), completed=0, settled=0
        )
        return self._agreement.seal(Kind.PRESENT, present.encode(), by=self._identity)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.claim("hosts-revocation")
def test_a_revoked_client_that_answers_all_the_same_is_refused(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    _, layout = stage(3)
    started = Started(layout, [0, 1, 2, 4])
    identity = Identity.load(layout.site(3) / "client.identity")
    sites: dict[int, Any] = started.transport.sites
    sites[3] = Answering(load_agreement(layout.agreement)[1], identity)
    caplog.clear()
    try:
        assert started.round() == [0, 1, 2, 4]
    finally:
        started.close()
    lines = [each for each in caplog.messages if "is refused" in each]
    assert lines == ["the host at node 1003 is refused: client 3 is not on the roster"]


@pytest.mark.claim("hosts-revocation")
@pytest.mark.usefixtures("no_supernode")
def test_an_older_roster_is_refused_by_the_commands(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    (_, before), (_, layout) = stage(1), stage(2)
    shutil.copy(before.agreement / "roster", layout.agreement / "roster")
    assert started_as_a_process(layout, 0) == 2
    said = capsys.readouterr().err
    assert "roster.version = 1: is older than roster 2" in said
    assert len(said.splitlines()) == 1
    assert cli.main(["site", "show", str(layout.agreement), str(layout.site(0))]) == 0
    assert "takes no part: roster.version = 1: is older" in capsys.readouterr().out


@pytest.mark.claim("hosts-new-operator")
def test_a_roster_of_another_operator_is_refused_in_a_line(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, layout = stage(5)
    names = ("roster", "operator.key", "operator-2.key", "parties", "theirs")
    roster, old, new, parties, theirs = (str(folder / name) for name in names)
    sign = ["roster", "sign", parties, "--operator", old]
    assert cli.main([*sign, "--out", roster, "--version", "9"]) == 2
    assert "not signed by the pinned operator key" in capsys.readouterr().err
    before = ["--previous-operator", f"{new}.pub"]
    assert cli.main([*sign, "--out", roster, "--version", "5", *before]) == 2
    assert "must be above 5" in capsys.readouterr().err
    assert cli.main([*sign, "--out", theirs, "--version", "6"]) == 0
    shutil.copy(theirs, layout.agreement / "roster")
    assert cli.main(["site", "show", str(layout.agreement), str(layout.site(0))]) == 2
    assert "not signed by the pinned operator key" in capsys.readouterr().err


def test_the_operator_that_took_over_counts_epochs_on(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, layout = stage(5)
    out = folder / "published"
    words = ["roster", "beacon", str(layout.agreement), "--operator"]
    before = [*words, str(folder / "operator.key"), "--out", str(out)]
    assert cli.main(before) == 2
    assert "is not that of the roster" in capsys.readouterr().err
    for _ in range(2):
        new = [*words, str(folder / "operator-2.key"), "--out", str(out), "--after", "7"]
        assert cli.main(new) == 0
    _, agreed = load_agreement(layout.agreement)
    found = SignedBeacon(out, operator=agreed.roster.operator, federation=agreed.federation)
    assert sorted(found.values()) == [8, 9]


def test_a_party_that_is_not_listed_cannot_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parties = tmp_path / "parties"
    parties.write_text(f"server {'ab' * 32}\n")
    assert cli.main(["roster", "remove", str(parties), "client:3"]) == 2
    assert "is not listed (choices: server)" in capsys.readouterr().err
    assert parties.read_text() == f"server {'ab' * 32}\n"


def test_a_roster_without_whom_rounds_need_is_refused(tmp_path: Path) -> None:
    """A client at whose site a denoiser is; and a client that nobody prepared."""
    ran = Deployment.of(settings(*SHARED), tmp_path)
    _, agreed = load_agreement(ran.layout.agreement)
    plan, operator = ran.coordinator.plan, Identity.generate(Node(Role.SERVER)).key
    keys = {node: agreed.roster.key_of(node) for node in agreed.roster.nodes()}
    helper, host = next(iter(ran.coordinator._hosting.helpers().items()))
    for gone in (helper, host):
        left = {node: key for node, key in keys.items() if node != gone}
        with pytest.raises(ConfigError, match=f"lacks {gone}"):
            plan.under(Roster.of(operator, left))
    stranger = {**keys, Node(Role.CLIENT, 5): b"x" * 32}
    with pytest.raises(ConfigError, match="lists client 5, but clients are 0 to 4"):
        plan.under(Roster.of(operator, stranger))
    everybody = plan.under(agreed.roster)
    assert np.array_equal(everybody.invited(1), plan.invited(1))


def leave_out(ran: Deployment, client: int) -> None:
    """Start every host anew under a roster of the operator's without a client."""
    for number in list(ran.transport.sites):
        ran.kill(number)
    layout, (_, agreed) = ran.layout, load_agreement(ran.layout.agreement)
    operator = Ed25519PrivateKey.generate()  # the one that signed the first was forgotten
    keys = {node: agreed.roster.key_of(node) for node in agreed.roster.nodes()}
    del keys[Node(Role.CLIENT, client)]
    founder = agreed.roster.operator.hex().encode()
    replace_file(layout.agreement / "first-operator.pub", founder)
    replace_file(
        layout.agreement / "operator.pub", operator.public_key().public_bytes_raw().hex().encode()
    )
    Roster.of(operator, keys, version=2).save(layout.agreement / "roster")
    for number, name in places(layout).items():
        if number != client:
            own = layout.root / "sites" / name
            ran.transport.sites[number] = open_host(layout.agreement, own)
    ran.coordinator = open_coordinator(layout, ran.transport)
    ran.coordinator.resume()


@pytest.mark.parametrize(
    ("layers", "others"),
    [
        ((), {}),
        ((MASKS,), {}),
        ((MASKS,), {"data": {**SMALL, "clients": 8}, "cohort": {"clients_per_round": 6}}),
        (({"layer": "paillier", "key_bits": 2048},), {}),
    ],
    ids=["plain", "masked", "cohorts", "paillier"],
)
def test_rounds_without_a_client_are_the_embedded_engines(
    layers: tuple[dict[str, Any], ...], others: dict[str, Any], tmp_path: Path
) -> None:
    ran = Deployment.of(settings(*layers, algorithm={"rounds": 3}, **others), tmp_path)
    ran.rounds(1)
    ran.coordinator.finish()
    leave_out(ran, 1)
    ran.rounds(2)
    assert not any(1 in ran.clients[round_] for round_ in (2, 3))
    assert all(len(ran.clients[round_]) >= 4 for round_ in (2, 3))
    ran.require_equal()


def test_a_mean_is_of_the_same_federation_under_an_operator_that_took_over(tmp_path: Path) -> None:
    give_keys(tmp_path, 3)
    terms, own = MaskedMean(clip=1.0, max_weight=9, min_survivors=3), Keys(tmp_path / "0")
    before = own.agreement(terms.digest, own.roster())
    parties = {node: before.roster.key_of(node) for node in before.roster.nodes()}
    another = Roster.of(Ed25519PrivateKey.generate(), parties, version=2)
    assert own.agreement(terms.digest, another).federation != before.federation
    (own.folder / "operator.pub").rename(own.folder / "first-operator.pub")
    assert own.agreement(terms.digest, another).federation == before.federation
    (own.folder / "first-operator.pub").write_text("none")
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        own.agreement(terms.digest, another)


def test_a_means_hosts_go_on_under_keys_that_were_replaced(tmp_path: Path) -> None:
    """The server's number of rounds, and what a client has answered and paid."""
    operator = give_keys(tmp_path, 3)
    terms = NoisedMean(clip=1.0, noise_multiplier=1.0, rounds=5, min_survivors=3, corrupt=0.0)
    server, own = Keys(tmp_path / "server"), Keys(tmp_path / "0")
    coordinator = MeanCoordinator(terms, server)
    coordinator._serial = 7
    coordinator._save()
    with MeanSite(terms, own) as site:
        for _ in range(4):
            site._journal.spend()
    roster = own.roster()
    parties = {node: roster.key_of(node) for node in roster.nodes()}
    for keys, node in ((server, SERVER), (own, Node(Role.CLIENT, 0))):
        replaced = Identity.generate(node)
        parties[node] = replaced.public
        path = keys.folder / f"{node.role.name.lower()}.identity"
        path.unlink()
        replaced.save(path)
    for keys in (server, own):
        Roster.of(operator, parties, version=2).save(keys.folder / "roster")
    assert MeanCoordinator(terms, server)._serial == 7
    with MeanSite(terms, own) as site:
        assert site._journal.spent == 4
