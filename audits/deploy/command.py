"""``secure-fedrec deploy``: a configuration on Flower, all hosts as processes of this machine."""

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
from audits.run.build import load_federation
from audits.run.folder import CONFIG_NAME, one_writer, read_own_config, write_own_config
from secure_fedrec.engines import table_digest
from secure_fedrec.engines.distributed import Coordinator, DistributedReport
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
    config = load_config(arguments.config, dict(arguments.overrides))
    layout = Layout(arguments.out)
    os.environ.setdefault("FLWR_HOME", str(arguments.out / "flower" / "home"))
    with one_writer(arguments.out, resume=arguments.resume):
        if arguments.resume:
            if read_own_config(arguments.out) != config.as_json():
                where = arguments.out / CONFIG_NAME
                raise CheckpointError(f"{where} belongs to a run with another configuration")
        else:
            federation = load_federation(config, arguments.data_dir)
            write_own_config(arguments.out, config.as_json())
            provision(federation, layout)
        if arguments.prepare:
            return 0
        with brought_by("flower", "secure-fedrec deploy"):
            from secure_fedrec.engines.flower import superlink  # noqa: F401, PLC0415
        try:
            with _up(layout, arguments) as up:
                if arguments.resume and layout.checkpoint.exists():
                    up.coordinator.resume()
                _train(up.coordinator, config.algorithm.rounds, arguments)
        except ProtocolError as given_up:
            lost = HostError(str(given_up))
            lost.add_note("completed rounds and private state are kept")
            raise lost from given_up
        except HostError as lost:
            lost.add_note("completed rounds and private state are kept: continue with --resume")
            raise
    return 0


def silenced() -> None:
    """Switch off what Flower must not do, for this process: before anything of it is imported."""
    os.environ.update(SWITCHES)


def _train(coordinator: Coordinator, rounds: int, arguments: argparse.Namespace) -> None:
    first = coordinator.public.round
    with tqdm(
        total=rounds, initial=first, desc="deployed", unit="round", disable=arguments.quiet
    ) as bar:
        for _ in range(first, rounds):
            report = coordinator.run_round(more=coordinator.public.round + 1 < rounds)
            print(json.dumps(_line(report, coordinator.digest)), flush=True)
            for client, why in report.left_out.items():
                print(f"  note: client {client} {why}", file=sys.stderr)
            bar.update()
        coordinator.finish()
    if coordinator.digest is None and arguments.superlink is None:
        for line in _kept(Layout(arguments.out)):
            print(json.dumps(line), flush=True)


def _kept(layout: Layout) -> Iterator[dict[str, object]]:
    """The last public states that the sites of this machine hold, whose server has none."""
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


def _up(layout: Layout, arguments: argparse.Namespace) -> AbstractContextManager["Hosts"]:
    """The hosts: all of them here, or the server alone.

    Raises:
        ConfigError: an address without the certificate that is to be believed, or the reverse.
    """
    link, ca = arguments.superlink, arguments.certificates
    if (link is None) != (ca is None):
        raise ConfigError("--superlink", link, "goes with --certificates, the PEM file of its CA")
    if link is None:
        return hosts(layout, record=arguments.record)
    return server_alone(layout, link, ca, record=arguments.record)


class Hosts(NamedTuple):
    """A deployment that is up.

    Attributes:
        coordinator: the server's host.
        transport: carries its messages.
        sites: processes of the sites, by client; of helpers alone, by name.
    """

    coordinator: Coordinator
    transport: "GridTransport"
    sites: "Mapping[int | str, Running]"


@contextmanager
def hosts(
    layout: Layout,
    *,
    site: str = "audits.deploy.site",
    record: bool = False,
    **options: int | float,
) -> Iterator[Hosts]:
    """Start SuperLink and sites as processes on the loopback address, and end them.

    Args:
        layout: a deployment's folder, provisioned.
        site: module that is a site's process.
        record: whether hosts take down what they see.
        options: of the coordinator.

    Raises:
        HostError: one of them does not come up.
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
        nodes = set()
        for (name, place), port in zip(folders.items(), ports, strict=True):
            nodes.add(control.register(node_key(place / "node.key")))
            command = [sys.executable, "-m", site]
            command += [str(layout.agreement), str(place), "--superlink", address]
            command += ["--certificates", str(flower / "ca.pem"), "--port", str(port)]
            command += ["--record"] * record
            log = place / "site.log"
            processes[name] = Running(f"site {name}", command, log, {})
        transport = GridTransport(control.run())
        _await(transport, list(processes.values()), nodes)
        options = {"timeout": 120.0, **options}
        beacon = OwnOperator(layout) if layout.operator.exists() else None
        coordinator = open_coordinator(layout, transport, record=record, beacon=beacon, **options)
        yield Hosts(coordinator, transport, processes)


@contextmanager
def server_alone(
    layout: Layout,
    superlink: str,
    certificates: Path,
    *,
    record: bool = False,
    **options: int | float,
) -> Iterator[Hosts]:
    """Be the server of sites elsewhere, at a SuperLink that somebody else started.

    Args:
        layout: a deployment's folder; of sites' folders none is read.
        superlink: host and port.
        certificates: PEM file of its CA.
        record: whether the server takes down what it sees.
        options: of the coordinator.

    Raises:
        HostError: the SuperLink is not reached, or not all sites are there in time.
    """
    from secure_fedrec.engines.flower.grid_transport import GridTransport  # noqa: PLC0415
    from secure_fedrec.engines.flower.superlink import Link  # noqa: PLC0415 - an extra brings it

    control = Link(superlink, certificates)
    try:
        transport = GridTransport(control.run())
        options = {"timeout": 120.0, **options}
        coordinator = open_coordinator(layout, transport, record=record, beacon=None, **options)
        end = time.monotonic() + _PATIENCE
        while len(coordinator.channel.hosts) < coordinator.expected:
            if time.monotonic() > end:
                found = len(coordinator.channel.hosts)
                raise HostError(f"{found} of {coordinator.expected} sites are there")
            coordinator.channel.greet(_PATIENCE)
            time.sleep(1.0)
        yield Hosts(coordinator, transport, {})
    finally:
        control.close()


def _await(transport: "Transport", processes: Sequence["Running"], nodes: set[int]) -> None:
    """Wait for all sites.

    Raises:
        HostError: one ended, or is not there in time.
    """
    end = time.monotonic() + _PATIENCE
    while not nodes <= set(transport.addresses()):
        for process in processes:
            if process.ended:
                raise HostError(f"{process.name} ended at once; {process.log} says why")
        if time.monotonic() > end:
            raise HostError(f"sites are not there after {_PATIENCE:.0f} s; their logs say why")
        time.sleep(0.2)
