"""The folders of hosts, with what a site and the server are given before they start.

    agreement/  blueprint.json, roster, operator.pub, layer.pub   the same on every host
                first-operator.pub, where another operator has taken over
    server/     identity, state.npz, recording/
    operator/   operator.key, beacons/, where rounds take public randomness
    sites/N/    client.identity, NAME-K.identity of a helper, data.npz, key, layer.key, state/,
                recording/
    sites/NAME  NAME.identity, layer.key, state/   of a helper with a host of its own

If a layer has keys of its own, all hosts hold its ``layer.pub``; one host, or every client, holds
``layer.key``.

``key`` seals the site's private state. Here it is beside the state. A site that wants copies of its
disk to be useless keeps it elsewhere and names the place (``Site.key`` of the command).
``recording/`` exists if a host was told to record what it sees.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audits.deploy.blueprint import Blueprint
from audits.run.build import Federation
from secure_fedrec.core.files import replace_file
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.data.refusals import refused
from secure_fedrec.engines.distributed import (
    Agreement,
    Coordinator,
    HelperSite,
    SealedState,
    Site,
    Transport,
)
from secure_fedrec.engines.distributed.host_recording import HostRecording
from secure_fedrec.engines.distributed.hosts_supported import require_hosts_supported
from secure_fedrec.engines.distributed.public_randomness import signed_beacon
from secure_fedrec.engines.distributed.site_state import KEY_BYTES
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.base.stack import hosting_of
from secure_fedrec.protection.routing.mix import layer_of
from secure_fedrec.protection.session import SERVER, Identity, Node, Role, Roster
from secure_fedrec.protection.session.beacon import Beacon, publish
from secure_fedrec.protection.session.journal import FileJournal
from secure_fedrec.protection.session.operator import load_operator, public_key, save_operator
from secure_fedrec.protection.session.roster import read_private
from secure_fedrec.vault import Vault

_EXAMPLE, _OWN, _WHOSE = "example.", "own.", "client"
_PUBLIC, _SECRET = "layer.pub", "layer.key"
_OPERATOR, _FOUNDER = "operator.pub", "first-operator.pub"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths in a deployment's folder.

    Args:
        root: the folder.
    """

    root: Path

    @property
    def agreement(self) -> Path:
        """The folder that all hosts are given."""
        return self.root / "agreement"

    @property
    def server(self) -> Path:
        """The server's own."""
        return self.root / "server"

    @property
    def checkpoint(self) -> Path:
        """The server's state between rounds."""
        return self.server / "state.npz"

    def site(self, client: int) -> Path:
        """A client's own."""
        return self.root / "sites" / str(client)

    @property
    def operator(self) -> Path:
        """The folder of the operator's key, if it is on this machine."""
        return self.root / "operator" / "operator.key"

    def host(self, node: Node) -> Path:
        """A host's own."""
        if node == SERVER:
            return self.server
        return self.root / "sites" / (str(node.number) if node.role is Role.CLIENT else named(node))

    def helper_sites(self) -> list[str]:
        """Names of the hosts here that belong to a helper only, in order."""
        found = (self.root / "sites").glob("*/*.identity")
        return sorted({path.parent.name for path in found if not path.parent.name.isdecimal()})

    def sites(self) -> list[int]:
        """Clients whose sites are on this machine, ascending."""
        found = (self.root / "sites").glob("*")
        return sorted(int(path.name) for path in found if path.name.isdecimal())

    def secrets(self) -> dict[int, bytes]:
        """The secrets of these sites by client, from which each draws its tables, orders and rows.

        Raises:
            ConfigError: a secret is missing, or others may read it.
        """
        return {n: read_private(self.site(n) / "key", "site.key") for n in self.sites()}


def provision(federation: Federation[Any], layout: Layout) -> Blueprint:
    """Make the folders of all hosts, with new keys, and divide the data among the sites.

    The operator's key signs one roster and is deleted, so no client can join such a federation
    later. If rounds use public randomness, the key is kept for that, in its own folder.

    Raises:
        ConfigError: the algorithm or a layer cannot be deployed.
        OSError: a file cannot be written.
    """
    blueprint = Blueprint.of(federation)
    plan = blueprint.plan()
    require_hosts_supported(plan)
    hosting = hosting_of(plan.stack)
    vault = federation.fresh().problem.vault
    clients = range(vault.n_clients)
    hosts = {node: node for node in (SERVER, *(Node(Role.CLIENT, number) for number in clients))}
    hosts |= hosting.helpers()
    identities = {node: Identity.generate(node) for node in hosts}
    operator = Ed25519PrivateKey.generate()
    roster = Roster.of(operator, {node: each.public for node, each in identities.items()})
    for folder in (layout.agreement, *map(layout.host, hosts.values())):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for node, identity in identities.items():
        identity.save(layout.host(hosts[node]) / identity_name(node))
    for number in clients:
        place = layout.site(number)
        replace_file(place / "key", os.urandom(KEY_BYTES), private=True, durable=True)
        examples, own = vault.examples(number), federation.task.own(number)
        columns = {_WHOSE: np.array([number])}
        columns |= {f"{_OWN}{name}": values for name, values in own.items()}
        columns |= {f"{_EXAMPLE}{name}": values for name, values in examples.items()}
        write_npz(place / "data.npz", columns, private=True)
    keys = hosting.shared_keys()
    for node, secret in keys.private.items():
        place = layout.host(hosts[node]) / _SECRET
        replace_file(place, secret, private=True, durable=True)
    if hosting.takes_beacons:
        layout.operator.parent.mkdir(mode=0o700, exist_ok=True)
        save_operator(operator, layout.operator)
    save_agreement(layout.agreement, blueprint, roster, keys.public)
    return blueprint


def save_agreement(folder: Path, blueprint: Blueprint, roster: Roster, keys: bytes = b"") -> None:
    """Write the files that all hosts are given."""
    if keys:
        replace_file(folder / _PUBLIC, keys)
    blueprint.save(folder / "blueprint.json")
    roster.save(folder / "roster")
    replace_file(folder / _OPERATOR, roster.operator.hex().encode() + b"\n")


def load_agreement(folder: Path) -> tuple[Blueprint, Agreement]:
    """Read the files that a host was given.

    Raises:
        DataError, ConfigError: a file is missing or damaged, or the roster is not the operator's.
    """
    operator, founder = (_public(folder / name) for name in (_OPERATOR, _FOUNDER))
    blueprint = Blueprint.load(folder / "blueprint.json")
    roster = read_roster(folder / "roster", operator)
    keys = (folder / _PUBLIC).read_bytes() if (folder / _PUBLIC).exists() else b""
    return blueprint, Agreement(digest=blueprint.digest, roster=roster, keys=keys, founder=founder)


def read_roster(path: Path, operator: bytes) -> Roster:
    """A roster that an operator signed.

    Raises:
        ConfigError, DataError: it cannot be read, is damaged, or belongs to another operator.
    """
    with refused(path, "{}", ProtocolError):
        return Roster.load(path, operator=operator)


def _public(path: Path) -> bytes:
    """An operator's public key; b"" for a previous operator if there was none."""
    if path.name == _FOUNDER and not path.exists():
        return b""
    with refused(path, "is not a public key: {}", OSError, ValueError):
        return public_key(path.read_text(encoding="ascii").strip())


def open_site(
    agreement: Path,
    own: Path,
    *,
    key: Path | None = None,
    record: bool = False,
    beacon: Beacon | None = None,
) -> Site:
    """A client's host.

    Args:
        agreement: folder of what all hosts are given.
        own: the site's folder.
        key: the key file that seals its private state; by default the file in its folder.
        record: whether it records what it sees, and its upload, unsealed in its folder.
        beacon: the source of public randomness; by default the roster's operator, whose files the
            owner puts into the folder ``beacons`` beside the data.

    Raises:
        DataError, ConfigError, CheckpointError, ProtocolError: something in them is not in order.
    """
    blueprint, agreed = load_agreement(agreement)
    secret = read_private(own / "key" if key is None else key, "site.key")
    client, identities = identities_at(own)
    vault, given = own_data(own / "data.npz", client)
    return Site(
        agreement=agreed,
        plan=blueprint.plan({client: secret}, given).under(agreed.roster),
        vault=vault,
        identities=identities,
        state=SealedState(own / "state", secret),
        secret=_secret_of(own),
        recording=recording(blueprint, agreed, Node(Role.CLIENT, client), own) if record else None,
        beacon=signed_beacon(agreed, own) if beacon is None else beacon,
    )


def identities_at(own: Path) -> tuple[int, dict[Node, Identity]]:
    """The client at a site, and the keys there: its own, and those of helpers.

    Raises:
        ConfigError: a file is damaged, or the identities are not those of exactly one client.
    """
    found = [Identity.load(path) for path in sorted(own.glob("*.identity"))]
    clients = [each.number for each in found if each.node.role is Role.CLIENT]
    if len(clients) != 1:
        have = f"those of clients {clients}" if clients else "no client's identity"
        raise ConfigError("site", str(own), f"has {have}, but needs exactly one client's")
    return clients[0], {each.node: each for each in found}


def open_helper_site(agreement: Path, own: Path) -> HelperSite:
    """The host of a helper that is not at a client's site.

    Args:
        agreement: folder of what all hosts are given.
        own: the host's folder.

    Raises:
        DataError, ConfigError, CheckpointError, ProtocolError: something in them is not in order.
    """
    blueprint, agreed = load_agreement(agreement)
    paths = sorted(own.glob("*.identity"))
    if len(paths) != 1:
        raise ConfigError(
            "site", str(own), f"has {len(paths)} identities, but needs exactly one helper's"
        )
    state, identity = own / "state", Identity.load(paths[0])
    state.mkdir(mode=0o700, exist_ok=True)
    return HelperSite(
        agreement=agreed,
        plan=blueprint.plan().under(agreed.roster),
        identity=identity,
        journal=FileJournal.bound(
            state / "journal", owner=identity.number, federation=agreed.federation
        ),
        secret=_secret_of(own),
    )


def _secret_of(own: Path) -> bytes:
    """A host's secret key of a layer; b"" without one."""
    path = own / _SECRET
    return path.read_bytes() if path.exists() else b""


def open_host(agreement: Path, own: Path, **options: Any) -> Site | HelperSite:
    """A client's host, or that of a helper only, depending on its folder's contents.

    Args:
        agreement: folder of what all hosts are given.
        own: the host's folder.
        options: options of ``open_site``; a helper does not keep data, so it records nothing.
    """
    if (own / identity_name(Node(Role.CLIENT))).exists():
        return open_site(agreement, own, **options)
    return open_helper_site(agreement, own)


def open_coordinator(
    layout: Layout,
    transport: Transport,
    *,
    record: bool = False,
    beacon: Beacon | None = None,
    **options: int | float,
) -> Coordinator:
    """The server's host.

    Args:
        layout: the deployment's folder.
        transport: reaches sites.
        record: whether it records what it sees.
        beacon: see ``open_site``.
        options: options of the ``Coordinator``.
    """
    blueprint, agreed = load_agreement(layout.agreement)
    return Coordinator(
        agreement=agreed,
        plan=blueprint.plan().under(agreed.roster),
        identity=Identity.load(layout.server / identity_name(SERVER)),
        transport=transport,
        checkpoint=layout.checkpoint,
        recording=recording(blueprint, agreed, SERVER, layout.server) if record else None,
        beacon=signed_beacon(agreed, layout.server) if beacon is None else beacon,
        **options,  # type: ignore[arg-type]
    )


class OwnOperator:
    """The operator of a trial deployment on one machine: it publishes the values that are due.

    Over many hosts a person runs the command (``roster beacon``), and owners of hosts fetch the
    files.

    Args:
        layout: folders of all hosts, and the operator's.

    Raises:
        ConfigError: the operator's key is not on this machine.
    """

    def __init__(self, layout: Layout) -> None:
        _, self._agreed = load_agreement(layout.agreement)
        self._key = load_operator(layout.operator)
        self._hosts = [layout.server, *map(layout.site, layout.sites())]
        self._published = layout.operator.parent / "beacons"
        self._own = signed_beacon(self._agreed, layout.operator.parent)

    def values(self) -> Mapping[int, bytes]:
        """All that was published (``Beacon``)."""
        return self._own.values()

    def ask(self, epoch: int) -> None:
        """Publish all values up to an epoch, and copy them to every host (``Asked``)."""
        for each in range(max(self.values(), default=0) + 1, epoch + 1):
            path = publish(
                self._published, self._key, federation=self._agreed.federation, epoch=each
            )
            for host in self._hosts:
                (host / "beacons").mkdir(exist_ok=True)
                replace_file(host / "beacons" / path.name, path.read_bytes())


def recording(blueprint: Blueprint, agreed: Agreement, node: Node, own: Path) -> HostRecording:
    """A host's recording in its folder."""
    sizes = blueprint.sizes
    return HostRecording(
        own / "recording",
        host=str(node),
        run=agreed.context,
        policy=blueprint.settings.recording,
        n_clients=sizes.n_clients,
        n_items=sizes.n_items,
    )


def identity_name(node: Node) -> str:
    """The name of the file with a party's key."""
    one = node.role in (Role.CLIENT, Role.SERVER)
    return f"{node.role.name.lower() if one else named(node)}.identity"


def named(node: Node) -> str:
    """A helper's name in names of files and folders."""
    number = layer_of(node) if node.role is Role.MIX else node.number
    return f"{node.role.name.lower()}-{number}"


def own_data(path: Path, client: int) -> tuple[Vault, dict[str, npt.NDArray[Any]]]:
    """A client's examples in a vault, and what else it was given.

    Raises:
        DataError: the file is missing or damaged.
        ConfigError: the files belong to another client.
    """
    with refused(path, "does not hold examples of a client: {}", OSError, ValueError, KeyError):
        columns = read_npz(path)
        (whose,) = columns[_WHOSE].tolist()
        examples, own = (
            {
                name.removeprefix(part): values
                for name, values in columns.items()
                if name.startswith(part)
            }
            for part in (_EXAMPLE, _OWN)
        )
        indptr = np.array([0, len(next(iter(examples.values()), ()))])
        vault = Vault.of_examples(indptr, examples, clients=np.array([client]))
    if whose != client:
        problem = f"is of client {whose}, but client.identity beside it is of client {client}"
        raise ConfigError("site.data", str(path), problem)
    return vault, own
