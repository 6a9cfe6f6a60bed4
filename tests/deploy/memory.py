"""Deployments whose hosts are all in one process: the same messages, without sockets."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from audits.config.audit import parse_config
from audits.deploy.homes import (
    Layout,
    open_coordinator,
    open_host,
    provision,
)
from audits.run.build import Federation, build_federation, load_dataset
from audits.system import Task
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines import LocalEngine
from secure_fedrec.engines.distributed import Coordinator, DistributedReport, Site
from secure_fedrec.engines.distributed.site_session import SAID
from secure_fedrec.engines.distributed.site_state import kept_public_state
from secure_fedrec.wire import Meter, Wire

Relay = Callable[[str, int, bytes], Sequence[bytes]]
"""What arrives of a message: (label, client, data) -> messages; to the site and back."""


@dataclass
class MemoryTransport:
    """Carries bytes to sites in this process.

    Args:
        sites: by client.

    Attributes:
        out, back: what stands between; by default everything arrives.
        log: why sites gave no answer, as only they know it.
        labels: of all exchanges.
        order: sites answer in an order that it shuffles; None as they are numbered.
    """

    sites: dict[int, Any]
    out: Relay = lambda label, client, data: [data]
    back: Relay = lambda label, client, data: [data]
    log: list[tuple[int, str]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    order: Random | None = field(default_factory=lambda: Random(1))

    def addresses(self) -> list[int]:
        return [1000 + client for client in self.sites]

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        self.labels.append(label)
        addresses = list(messages)
        if self.order is not None:
            self.order.shuffle(addresses)
        for address in addresses:
            sent = messages[address]
            client = address - 1000
            for data in self.out(label, client, sent):
                if client not in self.sites:
                    continue
                try:
                    with self._listening(client):
                        answer = self.sites[client].answer(data)
                except Exception as refusal:
                    self.log.append((client, str(refusal)))
                    yield address, b""
                    continue
                for each in self.back(label, client, answer):
                    yield address, each

    @contextmanager
    def _listening(self, client: int) -> Iterator[None]:
        """Note what a site refuses and says so, as it notes it itself."""
        said = logging.Handler()
        said.emit = lambda record: self.log.append((client, str(record.args[0])))  # type: ignore
        said.addFilter(lambda record: record.msg == SAID)
        heard = logging.getLogger("secure-fedrec")
        heard.addHandler(said)
        try:
            yield
        finally:
            heard.removeHandler(said)


def silences(folder: Path) -> list[Path]:
    """What sites have written down of rounds that they sat out, and of what halted them."""
    return [*folder.rglob("halted"), *folder.rglob("sat-out")]


def places(layout: Layout) -> dict[int, str]:
    """Folder of each host: clients by number, hosts of helpers alone from 100 on."""
    return {n: str(n) for n in layout.sites()} | dict(enumerate(layout.helper_sites(), LONE))


LONE = 100


@dataclass
class Deployment:
    """A deployment in a folder.

    Args:
        federation: what is deployed.
        layout: its folders.
        transport: carries its messages.
        coordinator: the server's host.
        record: whether hosts take down what they see.
    """

    federation: Federation[Task]
    layout: Layout
    transport: MemoryTransport
    coordinator: Coordinator
    clients: dict[int, IntArray] = field(default_factory=dict)
    record: bool = False
    last: DistributedReport = field(init=False)

    @classmethod
    def of(
        cls, raw: Mapping[str, Any], folder: Path, *, record: bool = False, **options: Any
    ) -> "Deployment":
        config = parse_config(raw)
        federation = build_federation(config, load_dataset(config, None).task(0), priced=False)
        layout = Layout(folder)
        provision(federation, layout)
        transport = MemoryTransport(
            {
                n: open_host(layout.agreement, layout.root / "sites" / name, record=record)
                for n, name in places(layout).items()
            }
        )
        coordinator = open_coordinator(layout, transport, record=record, **options)
        return cls(federation, layout, transport, coordinator, record=record)

    def rounds(self, count: int, *, more: bool = True) -> None:
        for _ in range(count):
            self.last = self.coordinator.run_round(more=more)
            self.clients[self.last.round] = self.last.clients

    def site(self, client: int) -> Site:
        """The host of a client."""
        found = self.transport.sites[client]
        assert isinstance(found, Site)
        return found

    def kill(self, client: int) -> None:
        self.transport.sites.pop(client).close()

    def restart(self, client: int) -> None:
        place = self.layout.root / "sites" / places(self.layout)[client]
        site = open_host(self.layout.agreement, place, record=self.record)
        self.transport.sites[client] = site

    def keyed(self) -> Federation[Task]:
        """The federation, handed what its sites draw under."""
        return self.federation.under(self.layout.secrets())

    def twin(self, rounds: int | None = None) -> LocalEngine:
        """The embedded engine after as many rounds with the same clients in the sums.

        It is handed the secrets that sites draw their own tables, orders and rows from.
        """
        keyed = self.keyed()
        algorithm, problem, _ = keyed.task.fresh()
        engine = LocalEngine(
            algorithm=algorithm,
            stack=keyed.stack,
            vault=problem.vault,
            n_rows=problem.n_rows,
            streams=keyed.streams,
            wire=Wire(meter=Meter(problem.vault.n_clients)),
            participants=self.clients.__getitem__,
        )
        for _ in range(self.coordinator.public.round if rounds is None else rounds):
            engine.run_round()
        return engine

    def known(self) -> list[PublicState]:
        """The public state, as the server has it; where it cannot read it, as every site does."""
        if self.coordinator.digest is not None:
            return [self.coordinator.public]
        here = [n for n in self.layout.sites() if n in self.transport.sites]
        found = [kept_public_state(self.layout.site(client) / "state") for client in here]
        assert found
        return [public for public in found if public is not None]

    def require_equal(self) -> None:
        """Public and private state are the embedded engine's, bit for bit."""
        self.coordinator.finish()
        twin = self.twin()
        for public in self.known():
            assert public.round == twin.public.round
            assert public.table.tobytes() == twin.public.table.tobytes()
            assert public.extras.keys() == twin.public.extras.keys()
            for name, values in public.extras.items():
                assert values.tobytes() == twin.public.extras[name].tobytes()
        for client in self.layout.sites():
            site = self.transport.sites.get(client)
            if not isinstance(site, Site):
                continue
            for name, values in site.tables().items():
                if name in twin.vault.ragged_names():
                    expected = twin.vault.read_ragged(name, client)
                else:
                    expected = twin.vault.read(name, np.array([client]))
                assert values.tobytes() == expected.tobytes(), (client, name)
