"""Means of more clients than a complete graph has: randomness that the operator signs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Message

from audits import cli
from secure_fedrec.engines.distributed import BEGIN, Agreement, Keys, MeanCoordinator, MeanReport
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.means import MaskedMean, NoisedMean, ProtectedMean
from secure_fedrec.protection.session import SERVER, Identity, Node, Role, Roster
from secure_fedrec.protection.session.beacon import publish
from secure_fedrec.protection.session.operator import save_operator
from tests.deploy import test_deploy_foreign as foreign
from tests.deploy.grid import as_flower_starts
from tests.deploy.keys import give_keys
from tests.deploy.mean_sites import MODEL, Sites, task_of

CLIENTS = 8
"""With the fixture ``sparse`` on a sparse graph, of whom two may go away."""
TERMS = MaskedMean(clip=8.0, max_weight=100, corrupt=0.0, dropout=0.25, beacon="operator")
KEYS_IN = BEGIN
EVERYBODY = range(CLIENTS)


@dataclass
class Loop:
    """A loop's parties, and the operator of their roster.

    Attributes:
        due: epochs that are published as soon as the keys of their round are in.
        late: clients that what is published does not reach.
    """

    keys: Path
    operator: Ed25519PrivateKey
    terms: ProtectedMean = TERMS
    due: list[int] = field(default_factory=list)
    late: Collection[int] = ()

    def __post_init__(self) -> None:
        self.sites = Sites(self.keys, self.terms, {}, after=self._published)
        self.server = self.started()
        self.rounds = 0

    def started(self) -> MeanCoordinator:
        return MeanCoordinator(self.terms, Keys(self.keys / "server"))

    def round(self) -> MeanReport:
        """One more, of a model of its own; nobody waits for a beacon."""
        self.rounds += 1
        model = {**MODEL, "w": MODEL["w"] + self.rounds}
        self.sites.models = dict.fromkeys(EVERYBODY, model)
        self.sites.refused.clear()
        return self.server.run_round(self.sites, task_of(model), timeout=0.0)

    def publish(
        self,
        epoch: int,
        hosts: Sequence[object],
        *,
        by: Ed25519PrivateKey | None = None,
        terms: ProtectedMean | None = None,
    ) -> None:
        """A value of its own to each of these hosts' folders, signed by the operator."""
        roster = Keys(self.keys / "server").roster()
        agreed = Agreement(digest=(terms or self.terms).digest, roster=roster)
        first, *others = [self.keys / str(host) / "beacons" for host in hosts]
        path = publish(first, by or self.operator, federation=agreed.federation, epoch=epoch)
        for other in others:
            other.mkdir(exist_ok=True)
            (other / path.name).write_bytes(path.read_bytes())

    def _published(self, label: str) -> None:
        if label == KEYS_IN and self.due:
            reached = [client for client in EVERYBODY if client not in self.late]
            self.publish(self.due.pop(0), [*reached, "server"])


def require_mean(report: MeanReport, clients: Sequence[int]) -> None:
    assert report.clients.tolist() == list(clients)
    np.testing.assert_array_equal(report.mean.arrays["w"], np.full(3, np.mean(clients)))


@pytest.fixture
def loop(sparse: None, tmp_path: Path) -> Loop:
    return Loop(tmp_path, give_keys(tmp_path, CLIENTS))


@pytest.mark.claim("means-public-randomness")
def test_every_round_takes_a_value_of_its_own(loop: Loop) -> None:
    """A client that it has not reached in time is left out, and says why; a server that is started
    anew goes on with the next epoch."""
    loop.due = [1, 2, 3]
    require_mean(loop.round(), EVERYBODY)
    loop.late, loop.server = {3}, loop.started()
    report = loop.round()
    others = [client for client in EVERYBODY if client != 3]
    require_mean(report, others)
    assert report.dropped == {3: "KEYS: the beacon of epoch 2 was not observed"}
    found = loop.keys / "4" / "beacons" / "2.beacon"
    (loop.keys / "3" / "beacons" / "2.beacon").write_bytes(found.read_bytes())
    loop.late = ()
    require_mean(loop.round(), EVERYBODY)


@pytest.mark.claim("means-public-randomness")
def test_without_a_value_there_is_no_sum_and_no_epoch_is_begun_twice(loop: Loop) -> None:
    """Nor is anything asked of clients before the value that was begun in vain is there."""
    with pytest.raises(ProtocolError, match="given up: the beacon of epoch 1 is not published"):
        loop.round()
    assert loop.sites.labels == ["greeting", BEGIN]
    loop.server = loop.started()
    with pytest.raises(ProtocolError, match=r"^the beacon of epoch 1 is not published"):
        loop.round()
    assert loop.sites.labels == ["greeting", BEGIN, "greeting"]
    loop.publish(1, [*EVERYBODY, "server"])
    loop.due = [2]
    require_mean(loop.round(), EVERYBODY)


@pytest.mark.claim("means-public-randomness")
@pytest.mark.parametrize("known", [True, False])
def test_a_server_that_takes_an_epoch_again_is_refused(
    loop: Loop, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever knows its value, and by whoever has begun a round under it."""
    if known:
        loop.due = [1]
        require_mean(loop.round(), EVERYBODY)
    else:
        with pytest.raises(ProtocolError, match="is not published"):
            loop.round()
    monkeypatch.setattr(loop.server, "_next_epoch", lambda patience: 1)
    why = "the beacon of epoch 1 is known already" if known else "epoch 1 allows no second attempt"
    with pytest.raises(ProtocolError, match=f"0 clients advertised .*; clients 0, .*, 7: .*{why}"):
        loop.round()


@pytest.mark.claim("means-public-randomness")
def test_a_value_that_was_there_before_the_keys_draws_no_graph(loop: Loop) -> None:
    """Clients refuse it; a server that sees it goes on to the next."""
    loop.publish(1, [*EVERYBODY])
    with pytest.raises(ProtocolError, match="SETUP: the beacon of epoch 1 is known already"):
        loop.round()
    other = loop.keys / "0" / "beacons" / "1.beacon"
    (loop.keys / "server" / "beacons").mkdir()
    (loop.keys / "server" / "beacons" / "1.beacon").write_bytes(other.read_bytes())
    loop.publish(2, [*EVERYBODY, "server"])
    loop.due = [3]
    require_mean(loop.round(), EVERYBODY)


@pytest.mark.claim("means-public-randomness")
def test_clients_that_hold_another_value_than_the_server_give_no_sum(loop: Loop) -> None:
    def twice(label: str) -> None:
        if label == KEYS_IN:
            loop.publish(1, ["server"])
            loop.publish(1, EVERYBODY)

    loop.sites.after = twice
    with pytest.raises(ProtocolError, match=r"clients 0, .*, 7: KEYS: not the beacon that was"):
        loop.round()


@pytest.mark.claim("means-public-randomness")
def test_a_value_that_is_replaced_in_mid_round_gives_no_sum(loop: Loop) -> None:
    """It is kept with the half, between two messages."""
    loop.due = [1]
    published = loop.sites.after

    def replaced(label: str) -> None:
        published(label)
        if label == "SHARES":
            for client in EVERYBODY:
                (loop.keys / str(client) / "beacons" / "1.beacon").unlink()
            loop.publish(1, EVERYBODY)

    loop.sites.after = replaced
    why = "the beacon of epoch 1 is not that of the saved state"
    with pytest.raises(ProtocolError, match=f"clients 0, .*, 7: {why}"):
        loop.round()


@pytest.mark.claim("means-public-randomness")
@pytest.mark.parametrize("wrong", ["federation", "server"])
def test_a_value_that_is_not_of_this_federations_operator_gives_no_sum(
    loop: Loop, wrong: str
) -> None:
    """Wherever it lies: a client's host names it in its log, and tells the server nothing."""
    others: dict[str, Any] = {"terms": replace(loop.terms, clip=9.0)}
    if wrong == "server":
        others = {"by": Identity.load(loop.keys / "server" / "server.identity").key}

    def published(label: str) -> None:
        if label == KEYS_IN:
            loop.publish(1, ["server"])
            loop.publish(1, EVERYBODY, **others)

    loop.sites.after = published
    with pytest.raises(ProtocolError, match="given up: 0 clients"):
        loop.round()
    assert list(loop.sites.refused) == [*EVERYBODY]
    assert all(isinstance(each, ConfigError) for each in loop.sites.refused.values())
    loop.publish(2, ["server"], **others)
    with pytest.raises(ConfigError, match=r"^beacon .*2\.beacon.* (another fed|not signed)"):
        loop.started().run_round(loop.sites, task_of(MODEL), timeout=0.0)


def test_rounds_on_a_complete_graph_take_no_value(tmp_path: Path) -> None:
    """So terms can be settled before a roster has grown."""
    require_mean(Loop(tmp_path, give_keys(tmp_path, CLIENTS)).round(), EVERYBODY)


MANY = 129
NOISED = NoisedMean(rounds=9, clip=1.0, noise_multiplier=1.0, min_survivors=100)


@pytest.mark.claim("means-public-randomness")
@pytest.mark.parametrize("terms", [MaskedMean(clip=8.0, max_weight=100), NOISED])
def test_rounds_of_many_clients_need_the_operators_values(terms: ProtectedMean) -> None:
    """Those of up to 128 do not; and they are a part of what is settled."""
    nodes = [SERVER, *(Node(Role.CLIENT, number) for number in range(MANY))]
    public = {node: Identity.generate(node).public for node in nodes}
    roster = Roster.of(Ed25519PrivateKey.generate(), public)
    with pytest.raises(ConfigError, match=r"^protection\.beacon .*129 clients.*operator"):
        terms.require(roster)
    taken = replace(terms, beacon="operator")
    taken.require(roster)
    assert taken.digest != terms.digest
    fewer = dict(list(public.items())[:MANY])
    terms.require(Roster.of(Ed25519PrivateKey.generate(), fewer))
    with pytest.raises(ConfigError, match=r"^protection\.beacon .*no effect against a curious"):
        replace(taken, adversary="curious")


def told(keys: Path, *others: str) -> int:
    place, key = str(keys / "server"), str(keys / "operator.key")
    out = str(keys / "published")
    return cli.main(["roster", "beacon", place, "--operator", key, "--out", out, *others])


@pytest.mark.claim("means-public-randomness")
def test_the_operator_publishes_for_terms_by_their_digest(
    loop: Loop, capsys: pytest.CaptureFixture[str]
) -> None:
    """One value an epoch; and hosts take it."""
    save_operator(loop.operator, loop.keys / "operator.key")

    def published(label: str) -> None:
        if label == KEYS_IN:
            assert told(loop.keys, "--terms", TERMS.digest.hex()) == 0
            written = Path(capsys.readouterr().out.strip())
            for host in (*EVERYBODY, "server"):
                place = loop.keys / str(host) / "beacons"
                place.mkdir(exist_ok=True)
                (place / written.name).write_bytes(written.read_bytes())

    loop.sites.after = published
    for _ in range(2):
        require_mean(loop.round(), EVERYBODY)
    assert {path.name for path in (loop.keys / "published").iterdir()} == {"1.beacon", "2.beacon"}
    for wrong in ("ab", "x" * 64, TERMS.digest.hex() + "00"):
        assert told(loop.keys, "--terms", wrong) == 2
        assert "--terms" in capsys.readouterr().err
    other = replace(TERMS, clip=9.0).digest.hex()
    assert told(loop.keys, "--terms", other) == 2  # what is there is of other terms
    save_operator(Ed25519PrivateKey.generate(), loop.keys / "operator.key")
    assert told(loop.keys, "--terms", TERMS.digest.hex()) == 2
    assert "is not that of the roster" in capsys.readouterr().err
    assert {path.name for path in (loop.keys / "published").iterdir()} == {"1.beacon", "2.beacon"}


@pytest.mark.claim("means-public-randomness")
def test_a_flower_app_takes_the_operators_values(
    sparse: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean through the mod and the strategy; what is due is in the folders of keys."""
    as_flower_starts(monkeypatch)
    terms = replace(foreign.TERMS, corrupt=0.0, dropout=0.1, beacon="operator")
    clients = range(foreign.CLIENTS)
    operator = give_keys(tmp_path, foreign.CLIENTS)
    loop, app = Loop(tmp_path, operator, terms), foreign.App(terms)
    grid = foreign.grid_of(app, tmp_path)
    asked: list[int] = []

    def keys_in(reply: Message) -> Sequence[Message]:
        """Publish once the last client has trained, which is when its keys are on their way."""
        if len(app.trained) == foreign.CLIENTS * (len(asked) + 1):
            asked.append(len(asked) + 1)
            loop.publish(asked[-1], [*clients, "server"])
        return [reply]

    grid.back = keys_in
    strategy = foreign.protected(app, tmp_path, foreign.fedavg(fraction_evaluate=0.0))
    result = strategy.start(grid, foreign.start_arrays(), num_rounds=1, timeout=0.05)
    foreign.require_mean(result.arrays, clients)
    strategy.start(grid, result.arrays, num_rounds=1, timeout=0.05)
    assert [each.clients.tolist() for each in strategy.reports] == [[*clients]] * 2
    assert asked == [1, 2]
    grid.back = lambda reply: [reply]
    with pytest.raises(ProtocolError, match="the beacon of epoch 3 is not published"):
        strategy.start(grid, foreign.start_arrays(7), num_rounds=1, timeout=0.05)
