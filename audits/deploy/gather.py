"""``secure-fedrec gather``: make a run folder from what the hosts of a deployment recorded.

What a party saw comes only from that party's host: messages come from the hosts that received them.
The truth comes from the sites (uploads, private tables) and from the data that the deployment was
prepared from (ratings). The result is a finished run like one of ``audit``, so ``audit --resume``
and ``attack`` accept it. It needs the folders of all hosts in one place, and every site's key: it
is for trial deployments, on data that the auditor has anyway.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from audits.config.audit import parse_config
from audits.deploy.homes import (
    Layout,
    load_agreement,
    open_coordinator,
    own_data,
    recording,
)
from audits.run.build import Federation, load_federation
from audits.run.folder import one_writer, read_own_config, write_client_secrets
from audits.run.privacy import draws_noise
from audits.run.releases import ReleaseJournal
from audits.run.training import open_run, run_identity
from audits.system import Task
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines import RecordedRun, RoundReport
from secure_fedrec.engines.distributed import Coordinator, SealedState
from secure_fedrec.engines.distributed.host_messages import encode_state
from secure_fedrec.engines.distributed.host_recording import LINE, SUMMED, HostRecording
from secure_fedrec.engines.distributed.training_plan import TABLE
from secure_fedrec.engines.recorded_run import private_columns, table_digest
from secure_fedrec.errors import ProtocolError, TranscriptError
from secure_fedrec.protection.session import SERVER, Node, Role
from secure_fedrec.protection.session.roster import read_private
from secure_fedrec.vault import Vault
from secure_fedrec.wire import BlockStore, Step
from secure_fedrec.wire.recording import OWN
from secure_fedrec.wire.spool import concatenate_columns

Columns = Mapping[str, npt.NDArray[Any]]
_MODEL = Step.MODEL.name.lower()
_PRIVATE = "private-"
_ROWS = tuple(
    step.name.lower()
    for step in (Step.COUNTS, Step.UPLOAD, Step.SHARE, Step.DENOISE, Step.NOISE, Step.BAG)
)
"""Prefixes of the kinds of blocks that hold messages with rows."""


def gather(arguments: argparse.Namespace) -> int:
    """``gather DEPLOYED --out RUN``."""
    layout = Layout(arguments.deployed)
    config = parse_config(read_own_config(layout.root))
    federation = load_federation(config, arguments.data_dir)
    with one_writer(arguments.out, resume=False):
        gathered(federation, layout, arguments.out)
    print(f"{config.algorithm.rounds} rounds: {arguments.out}")
    return 0


def gathered(federation: Federation[Task], layout: Layout, out: Path) -> RecordedRun:
    """Make the run folder.

    Args:
        federation: what was deployed.
        layout: layout of the folders of all hosts.
        out: run folder, held with ``one_writer``.

    Raises:
        TranscriptError: a host has not recorded all rounds, or differs from the others.
        CheckpointError: private state cannot be read, or is older than the last round.
    """
    secrets = layout.secrets()
    write_client_secrets(out, secrets)
    federation = federation.under(secrets)
    hosts = _Hosts(federation, layout)
    run = open_run(federation, out, resume=False)
    seen, truth = BlockStore(out / "transcript"), BlockStore(out / "truth")
    for round_ in range(1, hosts.rounds + 1):
        for kind, columns in hosts.messages(round_):
            seen.append(round_, kind, dict(columns))
        for kind, columns in hosts.secrets(round_, federation.config.recording.payload_rounds):
            truth.append(round_, kind, dict(columns))
        seen.seal(round_)
        truth.seal(round_)
    _conclude(run, hosts)
    if draws_noise(federation.stack):
        journal = ReleaseJournal(out)
        for round_ in range(1, hosts.rounds + 1):
            for _ in range(int(hosts.summed(round_)["attempts"][0])):
                journal.begin(round_)
    run.save(out, run_id=run_identity(federation))
    return run


class _Nobody:
    """A transport that reaches no site (``distributed.Transport``)."""

    def addresses(self) -> list[int]:
        return []

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        return iter(())


class _Hosts:
    """What all hosts recorded."""

    def __init__(self, federation: Federation[Task], layout: Layout) -> None:
        self.rounds = federation.config.algorithm.rounds
        self._federation = federation
        self._layout = layout
        self._blueprint, self._agreed = load_agreement(layout.agreement)
        self.authority = Node(Role.AUTHORITY) in self._agreed.roster
        self.coordinator: Coordinator = open_coordinator(layout, _Nobody())
        self.coordinator.resume()
        fresh = federation.fresh()
        self.scratch = fresh.problem.vault
        fresh.algorithm.initialise(self.scratch, federation.streams)
        self.clients = range(self.scratch.n_clients)
        self._require_data()
        self.server = self._record(SERVER, layout.server)
        self.sites = {
            client: self._record(Node(Role.CLIENT, client), layout.site(client))
            for client in self.clients
        }
        due, found = tuple(range(1, self.rounds + 1)), self.server.truth.rounds()
        if found != due or self.coordinator.public.round != self.rounds:
            problem = "deploy --record it from the first to the last"
            raise TranscriptError(
                f"{layout.server} has recorded {len(found)} of {len(due)} rounds: {problem}"
            )
        for client, site in self.sites.items():
            there = [round_ for round_ in due if client in self.summed(round_)["clients"]]
            if lost := sorted({*there} - ({*site.seen.rounds()} & {*site.truth.rounds()})):
                raise TranscriptError(
                    f"{layout.site(client)} does not have a recording of round {lost[0]}, "
                    "in which it took part"
                )

    def summed(self, round_: int) -> Columns:
        """The clients and sums of a round."""
        return self._only(self.server, round_, SUMMED)

    def line(self, round_: int) -> Columns:
        """The traffic of a round."""
        return self._only(self.server, round_, LINE)

    def messages(self, round_: int) -> Iterator[tuple[str, Columns]]:
        """What parties saw, host by host.

        Raises:
            TranscriptError: a site was told another public state than the server says.
        """
        store = self.server.seen
        for kind in store.kinds(round_):
            for columns in store.read(round_, kind):
                yield kind, columns
        said = list(store.read(round_, _MODEL))
        for client, site in self.sites.items():
            for kind in site.seen.kinds(round_):
                for columns in site.seen.read(round_, kind):
                    if kind != _MODEL:
                        yield kind, columns
                    elif not _equal(said, columns):
                        raise TranscriptError(
                            f"round {round_}: client {client} was told another public state"
                        )

    def secrets(
        self, round_: int, payload_rounds: tuple[int, ...]
    ) -> Iterator[tuple[str, Columns]]:
        """What clients put into a round's sum, and their private tables before the round."""
        own = [
            columns
            for client in self.summed(round_)["clients"].tolist()
            for columns in self.sites[client].truth.read(round_, OWN)
        ]
        if own:
            yield OWN, concatenate_columns(own)
        if round_ not in payload_rounds:
            return
        for client in self.clients:
            _fill(self.scratch, client, self._tables(client, round_))
        yield from private_columns(self.scratch)

    def measured(self) -> dict[int, Mapping[str, float] | None]:
        """What clients measure on their trained models, by round, in the embedded engine.

        Hosts do not record it. Empty if that engine gives another state, as with noise.
        """
        engine = self._federation.engine(
            self._federation.fresh(),
            evaluate=None,
            participants=lambda round_: self.summed(round_)["clients"],
        )
        found: dict[int, Mapping[str, float] | None] = {}
        for round_ in tqdm(range(1, self.rounds + 1), desc="measuring", unit="round", disable=None):
            found[round_] = engine.run_round().metrics
            if table_digest(engine.public) != str(self.summed(round_)["digest"][0]):
                return {}
        return found

    def final(self, client: int) -> Columns:
        """A client's private tables after the last round.

        Raises:
            TranscriptError: its site has kept no tables, or older ones.
        """
        place = self._layout.site(client)
        kept = SealedState(place / "state", read_private(place / "key", "site.key")).load()
        try:
            if kept is None:
                raise ProtocolError("nothing was kept")
            return kept.told(self.coordinator.settled.get(client, 0)).tables
        except ProtocolError as other:
            raise TranscriptError(f"{place}: {other}") from None

    def _tables(self, client: int, round_: int) -> Columns:
        """Private tables at the start of a round: they do not change while a site is absent."""
        truth = self.sites[client].truth
        later = [each for each in truth.rounds() if round_ <= each <= self.rounds]
        if not later:
            return self.final(client)
        kinds = [kind for kind in truth.kinds(later[0]) if kind.startswith(_PRIVATE)]
        record = self.sites[client]
        return {
            kind.removeprefix(_PRIVATE): self._only(record, later[0], kind)["values"]
            for kind in kinds
        }

    def _record(self, node: Node, place: Path) -> HostRecording:
        """A host's recording, checked to be complete and of this run."""
        if not (place / "recording").is_dir():
            raise TranscriptError(f"{place} does not have a recording: deploy with --record")
        found = recording(self._blueprint, self._agreed, node, place)
        found.seen.require_whole()
        found.truth.require_whole()
        return found

    def _only(self, record: HostRecording, round_: int, kind: str) -> Columns:
        for columns in record.truth.read(round_, kind):
            return columns
        raise TranscriptError(f"{record.truth.directory} lacks {kind} of round {round_}")

    def _require_data(self) -> None:
        """Check that sites hold the examples that claims are scored against."""
        for client in self.clients:
            path = self._layout.site(client) / "data.npz"
            vault, _ = own_data(path, client)
            if not _equal([self.scratch.examples(client)], vault.examples(client)):
                raise TranscriptError(f"{path} holds other examples than the data set")


def _conclude(run: RecordedRun, hosts: _Hosts) -> None:
    """Set an engine to the final state of the deployment."""
    rounds = range(1, hosts.rounds + 1)
    vault = run.engine.vault
    for client in hosts.clients:
        _fill(vault, client, hosts.final(client))
    run.engine.public = hosts.coordinator.public
    run.engine.wire.meter.restore(_meter(hosts, run.engine.stack.denoisers))
    last = run.engine.evaluate()
    measured = {hosts.rounds: last} if last is not None else hosts.measured()
    for round_ in rounds:
        summed = hosts.summed(round_)
        run.table_digests.append(str(summed["digest"][0]))
        if len(summed["absent"]):
            run.absent[round_] = summed["absent"]
        report = RoundReport(
            round=round_,
            participants=len(summed["clients"]),
            metrics=measured.get(round_),
        )
        run.history.append(report)


def _meter(hosts: _Hosts, denoisers: tuple[int, ...]) -> dict[str, IntArray]:
    """Totals in the form of a meter: all traffic, with rows counted as vectors."""
    n = len(hosts.clients)
    vectors = {end: np.zeros(n + 1, dtype=np.int64) for end in ("sent", "received")}
    line: dict[str, IntArray] = {}
    carried = 0
    for round_ in range(1, hosts.rounds + 1):
        for name, values in hosts.line(round_).items():
            line[name] = line.get(name, np.zeros(n + 1, dtype=np.int64)) + values
        public = hosts.coordinator.public
        state = len(encode_state({TABLE: public.table, **public.extras}))
        carried += state * len(hosts.summed(round_)["clients"])
        for kind, columns in hosts.messages(round_):
            if not kind.startswith(_ROWS):
                continue
            carried += int(columns["sizes"].sum())
            for end, side, role in (("sent", "senders", 0), ("received", "receivers", 1)):
                at = _places(kind, role, columns[side], n, denoisers)
                np.add.at(vectors[end], at, columns["lengths"])
    found = {f"vectors_{end}": values[:n] for end, values in vectors.items()}
    found |= {name: values[:n] for name, values in line.items()}
    turned = {"sent": "received", "received": "sent"}
    counted = list(product(("messages", "vectors", "bytes"), turned))
    of_server = [
        int(vectors[where][n]) if what == "vectors" else int(line[f"{what}_{turned[where]}"].sum())
        for what, where in counted
    ]
    of_authority = [
        int(line[f"{what}_{where}"][n]) if hosts.authority and what != "vectors" else 0
        for what, where in counted
    ]
    everything = {
        what: int(line[f"{what}_sent"].sum() + line[f"{what}_received"].sum())
        for what in ("messages", "bytes")
    }
    beside = [everything["messages"], max(0, everything["bytes"] - carried)]
    return {
        **found,
        "server": np.array(of_server),
        "authority": np.array(of_authority),
        "beside": np.array(beside),
    }


def _places(kind: str, end: int, ids: IntArray, n: int, denoisers: tuple[int, ...]) -> IntArray:
    """Client numbers at one end of messages; the number n means the server."""
    server = (Step.DENOISE if end == 0 else Step.SHARE).name.lower()
    if kind == server:  # a denoiser sends DENOISE and receives SHARE
        return np.array(denoisers, dtype=np.int64)[ids]
    return np.full_like(ids, n) if end else ids


def _fill(vault: Vault, client: int, tables: Columns) -> None:
    for name, values in tables.items():
        if name in vault.ragged_names():
            vault.write_ragged(name, client, values)
        else:
            vault.write(name, np.array([client]), values)


def _equal(said: Sequence[Columns], columns: Columns) -> bool:
    """Whether there is exactly one block, equal to this one."""
    return (
        len(said) == 1
        and said[0].keys() == columns.keys()
        and all(np.array_equal(said[0][name], values) for name, values in columns.items())
    )
