"""``secure-fedrec deploy``: run a configuration on Flower, with all hosts on this machine."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tqdm import tqdm

from audits.config.audit import load_config
from audits.deploy.homes import Layout, OwnOperator, open_coordinator, provision
from audits.deploy.logs import logged, take_over
from audits.deploy.metrics import counted
from audits.deploy.watch import Watch
from audits.run.build import load_federation
from audits.run.folder import CONFIG_NAME, one_writer, read_own_config, write_own_config
from secure_fedrec.engines import table_digest
from secure_fedrec.engines.distributed import Coordinator, DistributedReport
from secure_fedrec.engines.distributed.server_log import Traffic, log_summed
from secure_fedrec.engines.distributed.site_state import kept_public_state
from secure_fedrec.engines.flower.quiet_environment import SWITCHES
from secure_fedrec.errors import (
    CheckpointError,
    ConfigError,
    HostError,
    ProtocolError,
    brought_by,
)

if TYPE_CHECKING:
    from secure_fedrec.engines.distributed import Transport
    from secure_fedrec.engines.flower.grid_transport import GridTransport
    from secure_fedrec.engines.flower.processes import Running

_PATIENCE = 300.0


def deploy(arguments: argparse.Namespace) -> int:
    """``deploy CONFIG``: one JSON line per round."""
    silenced()
    with logged(arguments.log_format), counted(arguments.metrics) as metrics:
        bars = not arguments.quiet and arguments.log_format == "text"
        watch = Watch(arguments.log_format, metrics, bars=bars)
        try:
            return _deploy(arguments, watch)
        finally:
            watch.done()


def _deploy(arguments: argparse.Namespace, watch: Watch) -> int:
    config = load_config(arguments.config, dict(arguments.overrides))
    layout = Layout(arguments.out)
    os.environ.setdefault("FLWR_HOME", str(arguments.out / "flower" / "home"))
    with one_writer(arguments.out, resume=arguments.resume):
        if arguments.resume:
            if read_own_config(arguments.out) != config.as_json():
                where = arguments.out / CONFIG_NAME
                raise CheckpointError(f"{where} belongs to a run with another configuration")
        else:
            watch.waits("prepares the folders of all hosts")
            federation = load_federation(config, arguments.data_dir)
            write_own_config(arguments.out, config.as_json())
            provision(federation, layout)
        if arguments.prepare:
            return 0
        with brought_by("flower", "secure-fedrec deploy"):
            from secure_fedrec.engines.flower import superlink  # noqa: F401, PLC0415
        take_over(arguments.log_format)
        try:
            with _up(layout, arguments, watch) as up:
                watch.done()
                if arguments.resume and layout.checkpoint.exists():
                    up.coordinator.resume()
                _train(up, config.algorithm.rounds, arguments)
        except ProtocolError as given_up:
            lost = HostError(str(given_up))
            lost.add_note("completed rounds and private state are kept")
            raise lost from given_up
        except HostError as lost:
            lost.add_note("completed rounds and private state are kept: continue with --resume")
            raise
    return 0


def silenced() -> None:
    """Switch off Flower's contacts to other hosts, for this process, before Flower is imported."""
    os.environ.update(SWITCHES)


class Hosts(NamedTuple):
    """A running deployment.

    Attributes:
        coordinator: the server's host.
        transport: carries its messages.
        traffic: counts what it carries.
        sites: processes of the sites by client, and of helpers with a host of their own by name.
    """

    coordinator: Coordinator
    transport: "GridTransport"
    traffic: Traffic
    sites: "Mapping[int | str, Running]"


def _train(up: Hosts, rounds: int, arguments: argparse.Namespace) -> None:
    coordinator, first = up.coordinator, up.coordinator.public.round
    hidden = arguments.quiet or arguments.log_format != "text"
    with tqdm(total=rounds, initial=first, desc="deployed", unit="round", disable=hidden) as bar:
        for _ in range(first, rounds):
            up.traffic.sent = up.traffic.received = 0
            report = coordinator.run_round(more=coordinator.public.round + 1 < rounds)
            log_summed(report, coordinator.plan, up.traffic)
            print(json.dumps(_line(report, coordinator.digest)), flush=True)
            bar.update()
        coordinator.finish()
    if coordinator.digest is None and arguments.superlink is None:
        for line in _kept(Layout(arguments.out)):
            print(json.dumps(line), flush=True)


def _kept(layout: Layout) -> Iterator[dict[str, object]]:
    """The last public states at the sites of this machine, for a server that does not have one."""
    found: dict[tuple[int, str], list[int]] = {}
    for client in layout.sites():
        public = kept_public_state(layout.site(client) / "state")
        if public is not None:
            found.setdefault((public.round, table_digest(public)), []).append(client)
    for (round_, digest), holders in sorted(found.items()):
        yield {"round": round_, "held_by": holders, "table": digest}


def _line(report: DistributedReport, digest: str | None) -> dict[str, object]:
    return {
        "round": report.round,
        "clients": len(report.clients),
        "invited": report.invited,
        "attempts": report.attempts,
        "exchanges": report.exchanges,
        "ready": report.ready,
        "table": digest,
        "statement": report.statement,
        "seconds": round(report.seconds, 3),
    }


def _up(
    layout: Layout, arguments: argparse.Namespace, watch: Watch
) -> AbstractContextManager[Hosts]:
    """Start all hosts here, or only the server.

    Raises:
        ConfigError: an address is given without the certificate to trust, or the reverse.
    """
    link, ca = arguments.superlink, arguments.certificates
    if (link is None) != (ca is None):
        raise ConfigError("--superlink", link, "goes with --certificates, the PEM file of its CA")
    if link is None:
        return hosts(layout, record=arguments.record, watch=watch)
    return server_alone(layout, link, ca, record=arguments.record, watch=watch)


@contextmanager
def hosts(
    layout: Layout,
    *,
    site: str = "audits.deploy.site",
    record: bool = False,
    watch: Watch | None = None,
    **options: int | float,
) -> Iterator[Hosts]:
    """Start SuperLink and sites as processes on the loopback address, and end them.

    Args:
        layout: a deployment's folder, provisioned.
        site: module that runs as a site's process.
        record: whether hosts record what they see.
        watch: how the hosts are watched; by default they are not.
        options: options of the coordinator.

    Raises:
        HostError: a host does not start.
    """
    from secure_fedrec.engines.flower.certificates import (  # noqa: PLC0415 - an extra brings it
        make_certificates,
        node_key,
    )
    from secure_fedrec.engines.flower.grid_transport import GridTransport  # noqa: PLC0415
    from secure_fedrec.engines.flower.processes import (  # noqa: PLC0415
        LOOPBACK,
        Running,
        free_ports,
        stop_all,
    )
    from secure_fedrec.engines.flower.superlink import Link, start_superlink  # noqa: PLC0415

    watch = Watch() if watch is None else watch
    watch.waits("starts the SuperLink")
    flower = layout.root / "flower"
    flower.mkdir(mode=0o700, exist_ok=True)
    make_certificates(flower)
    folders: dict[int | str, Path] = {client: layout.site(client) for client in layout.sites()}
    folders |= {name: layout.root / "sites" / name for name in layout.helper_sites()}
    own, *ports = free_ports(1 + len(folders))
    address = f"{LOOPBACK}:{own}"
    with ExitStack() as ending:
        link = start_superlink(flower, own, flower / "home")
        ending.callback(link.stop)
        control = Link(address, flower / "ca.pem")
        ending.callback(control.close)
        processes: dict[int | str, Running] = {}
        ending.callback(lambda: stop_all(list(processes.values())))
        nodes: dict[int, str] = {}
        for (name, place), port in zip(folders.items(), ports, strict=True):
            nodes[control.register(node_key(place / "node.key"))] = f"site {name}"
            command = [sys.executable, "-m", site]
            command += [str(layout.agreement), str(place), "--superlink", address]
            command += ["--certificates", str(flower / "ca.pem"), "--port", str(port)]
            command += ["--record"] * record
            command += watch.site_words(place)
            log = place / "site.log"
            processes[name] = Running(f"site {name}", command, log, {})
        transport = GridTransport(control.run())
        _await(transport, list(processes.values()), nodes, watch)
        options = {"timeout": 120.0, **options}
        beacon = OwnOperator(layout) if layout.operator.exists() else None
        traffic = Traffic(transport, watch.carried)
        coordinator = open_coordinator(layout, traffic, record=record, beacon=beacon, **options)
        yield Hosts(coordinator, transport, traffic, processes)


@contextmanager
def server_alone(
    layout: Layout,
    superlink: str,
    certificates: Path,
    *,
    record: bool = False,
    watch: Watch | None = None,
    **options: int | float,
) -> Iterator[Hosts]:
    """Run only the server, for sites elsewhere, at a SuperLink that is already running.

    Args:
        layout: a deployment's folder; sites' folders are not read.
        superlink: host and port.
        certificates: PEM file of its CA.
        record: whether the server records what it sees.
        watch: how it is watched; by default it is not.
        options: options of the coordinator.

    Raises:
        HostError: the SuperLink is not reached, or not all sites are present in time.
    """
    from secure_fedrec.engines.flower.grid_transport import GridTransport  # noqa: PLC0415
    from secure_fedrec.engines.flower.superlink import Link  # noqa: PLC0415 - an extra brings it

    watch = Watch() if watch is None else watch
    watch.waits(f"connects to the SuperLink at {superlink}")
    control = Link(superlink, certificates)
    try:
        transport = GridTransport(control.run())
        options = {"timeout": 120.0, **options}
        traffic = Traffic(transport, watch.carried)
        coordinator = open_coordinator(layout, traffic, record=record, beacon=None, **options)
        greet_all(coordinator, watch)
        yield Hosts(coordinator, transport, traffic, {})
    finally:
        control.close()


def greet_all(
    coordinator: Coordinator, watch: Watch, *, patience: float = _PATIENCE, every: float = 1.0
) -> None:
    """Greet hosts until all of them have answered.

    Args:
        coordinator: coordinator of the server.
        watch: receives the names of missing hosts.
        patience: seconds to wait.
        every: seconds between two checks.

    Raises:
        HostError: not all hosts answer in time.
    """
    end, channel = time.monotonic() + patience, coordinator.channel
    awaited = [str(node) for node in sorted(coordinator.awaited)]
    while True:
        words = watch.waits_for({str(node) for node in channel.hosts}, awaited, patience)
        if coordinator.awaited <= channel.hosts:
            return
        if time.monotonic() > end:
            raise HostError(f"{words}, after {patience:.0f} s")
        channel.greet(patience)
        if not coordinator.awaited <= channel.hosts:
            time.sleep(every)


def _await(
    transport: "Transport",
    processes: Sequence["Running"],
    nodes: Mapping[int, str],
    watch: Watch,
) -> None:
    """Wait for all sites that were started here.

    Args:
        transport: to them.
        processes: theirs.
        nodes: their names, by number at the SuperLink.
        watch: receives the names of missing hosts.

    Raises:
        HostError: a process ended, or a host does not answer in time.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        there = {nodes[each] for each in transport.addresses() if each in nodes}
        words = watch.waits_for(there, list(nodes.values()), _PATIENCE)
        if len(there) == len(nodes):
            return
        for process in processes:
            if process.ended:
                raise HostError(f"{process.name} ended at once; {process.log} says why")
        if time.monotonic() > end:
            raise HostError(f"{words}, after {_PATIENCE:.0f} s; their logs say why")
        time.sleep(0.2)
