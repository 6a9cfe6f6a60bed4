"""Attacks on what a round agrees on, against a real ``deploy``: processes that nobody altered.

The server deviates, in this process; SuperLink, SuperNodes and sites are those of every deployment,
and are started once for all attacks. Between the attacks a round is summed, so that a sum could
have been opened.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from audits.config.audit import parse_config
from audits.deploy.blueprint import Blueprint
from audits.deploy.command import Hosts, hosts
from audits.deploy.homes import Layout, load_agreement, open_site, provision, save_agreement
from audits.run.build import build_federation, load_dataset
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.engines.distributed.sites_channel import SitesChannel, _Line, greeted
from secure_fedrec.engines.flower.quiet_environment import SWITCHES
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Node, Parcel
from secure_fedrec.protection.session.journal_entries import Entries
from tests.adversary.test_adversary_statements import TwoRounds
from tests.deploy.memory import MemoryTransport
from tests.deploy.test_deploy_rounds import MASKS, settings

CLIENTS = range(5)
RAW = settings(MASKS, algorithm={"name": "fedmf", "rounds": 4})
"""Its step sizes decay with the rounds."""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path / "deployed")
    provision(federation(RAW), found)
    return found


def federation(raw: Mapping[str, Any]) -> Any:
    config = parse_config(raw)
    return build_federation(config, load_dataset(config, None).task(0), priced=False)


@pytest.fixture
def twin(layout: Layout, tmp_path: Path) -> Layout:
    """Another federation of the same roster and data: it has one round more."""
    longer = {**RAW, "algorithm": {**RAW["algorithm"], "rounds": 5}}
    blueprint = Blueprint.of(federation(longer))
    _, agreed = load_agreement(layout.agreement)
    found = Layout(tmp_path / "twin")
    shutil.copytree(layout.root, found.root)
    save_agreement(found.agreement, blueprint, agreed.roster)
    return found


@pytest.fixture
def up(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    for name, value in {**SWITCHES, "FLWR_HOME": str(layout.root / "flower" / "home")}.items():
        monkeypatch.setenv(name, value)
    with hosts(layout, timeout=60.0, attempts=1) as found:
        yield found


class Spliced(SitesChannel):
    """A server that lets clients of another federation of the roster take part in a round."""

    coordinator: Any
    elsewhere: MemoryTransport
    others: Any
    of: frozenset[int] = frozenset()

    def greet(self, timeout: float | None = None) -> None:
        super().greet(timeout)
        agreement, transport = self.others[0], self.elsewhere
        met = greeted(transport, agreement, self._identity, transport.addresses(), timeout)
        for address, node, context, *_ in met:
            self._lines[node] = _Line(address, context)

    def _request(self, node: Node, parcels: Sequence[Parcel]) -> bytes:
        with self._as_there(node):
            return super()._request(node, parcels)

    def _answers(self, node: Node, data: bytes) -> list[Parcel]:
        with self._as_there(node):
            return super()._answers(node, data)

    @contextmanager
    def _as_there(self, node: Node) -> Iterator[None]:
        before = self._agreement, self._stated
        if node.number in self.of:
            self._agreement, plan = self.others
            at = plan.standing(self._agreement, *self._attempt[:2], self.coordinator.public)
            self._stated = at.statement.known.encoded
        yield
        self._agreement, self._stated = before


class Both:
    """Reaches the sites of two federations."""

    def __init__(self, first: Any, second: MemoryTransport) -> None:
        self._first, self._second = first, second

    def addresses(self) -> Sequence[int]:
        found: Sequence[int] = self._first.addresses()
        return found

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        there = {n: data for n, data in messages.items() if n in self._second.addresses()}
        if there:
            yield from self._second.exchange(label, there, timeout)
        here = {n: data for n, data in messages.items() if n not in there}
        if here:
            yield from self._first.exchange(label, here, timeout)


def refused(up: Hosts) -> None:
    """No sum, of whatever attempt."""
    before = up.coordinator.public
    with pytest.raises(ProtocolError):
        up.coordinator.run_round()
    assert up.coordinator.public is before


def told(layout: Layout, clients: Iterable[int], why: str) -> bool:
    """Whether these sites' logs say so."""
    return all(why in (layout.site(client) / "site.log").read_text() for client in clients)


def revealed(layout: Layout) -> set[int]:
    """Who has revealed for any state, by the journals on disk."""
    found = set()
    for client in CLIENTS:
        entries = Entries.decode((layout.site(client) / "state" / "journal").read_bytes()[:-32])
        assert entries is not None
        found |= {client} if entries.revealed else set()
    return found


@pytest.mark.claim("hosts-one-statement")
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_a_server_that_deviates_opens_nothing_at_processes(
    up: Hosts, layout: Layout, twin: Layout
) -> None:
    coordinator, first = up.coordinator, up.coordinator.public
    channel: Any = coordinator.channel

    # All but one client are told of another round than that one: one that there is.
    channel.__class__, channel.coordinator = TwoRounds, coordinator
    channel.of = lambda node: node.number != 4
    refused(up)
    assert channel.stage == "UPLOAD"

    # Two clients are those of another federation of the same roster.
    blueprint, agreed = load_agreement(twin.agreement)
    there = MemoryTransport({n: open_site(twin.agreement, twin.site(n)) for n in (3, 4)})
    carrier = channel._transport
    channel.__class__, channel._transport = Spliced, Both(carrier, there)
    channel.elsewhere, channel.others, channel.of = there, (agreed, blueprint.plan()), {3, 4}
    refused(up)
    assert set(there.log) == {(n, "SETUP: another statement than expected") for n in (3, 4)}

    # Nothing of all that was revealed for, so the round is summed as ever.
    assert revealed(layout) == set()
    channel.__class__, channel._transport = SitesChannel, carrier
    channel._lines.clear()
    assert coordinator.run_round().clients.tolist() == [*CLIENTS]
    assert revealed(layout) == {*CLIENTS}

    # The same state once more, under another number.
    coordinator.public = PublicState(round=1, table=first.table, extras=first.extras)
    refused(up)
    assert told(layout, CLIENTS, "has answered for this public state already")
