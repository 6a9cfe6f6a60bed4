"""The server's side of ``mean_site``: rounds that end in a mean, over any carrier of bytes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from time import monotonic

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines.checkpoint import (
    generation_columns,
    generations_of,
    read_checkpoint,
    unless_damaged,
    write_checkpoint,
)
from secure_fedrec.engines.distributed.host_messages import (
    Agreement,
    Kind,
    told,
)
from secure_fedrec.engines.distributed.mean_site import BEGIN, Keys, Task, request, standing
from secure_fedrec.engines.distributed.public_randomness import awaited, signed_beacon
from secure_fedrec.engines.distributed.sites_channel import Transport, greeted
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.masking import MaskingServer
from secure_fedrec.protection.masking.envelope import VERSION
from secure_fedrec.protection.masking.envelope import Kind as Stage
from secure_fedrec.protection.means import Mean, ProtectedMean
from secure_fedrec.protection.session import Parcel, Role, drive
from secure_fedrec.protection.session.beacon import Beacon


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanReport:
    """Facts about a finished round.

    Args:
        round: its number, which goes up over runs too.
        statement: digest of what it agreed on, in hexadecimal digits.
        seconds: that it took.
        mean: the mean that the server learned.
        clients: int64[k], the clients in it.
        invited: how many there could have been.
        exchanges: requests with their answers, including greetings.
        dropped: why clients that had answered are not in it, by number: what the server says of
            them, or they of themselves.
    """

    round: int
    statement: str
    seconds: float
    mean: Mean
    clients: IntArray
    invited: int
    exchanges: int
    dropped: Mapping[int, str]


class MeanCoordinator:
    """The server's host.

    Args:
        terms: the agreed terms.
        keys: the server's own.
        beacon: source of public randomness at this host, if the terms need any; by default the
            operator's files in the folder ``beacons`` beside its keys.

    Raises:
        ConfigError: keys or roster are not valid, or a round with all clients on the roster is
            impossible.
        CheckpointError: the state of earlier rounds is damaged, or another server's.
    """

    def __init__(self, terms: ProtectedMean, keys: Keys, *, beacon: Beacon | None = None) -> None:
        self.roster = keys.roster()
        self._identity = keys.identity(Role.SERVER, self.roster)
        terms.require(self.roster)
        self._terms = terms
        self._agreement = keys.agreement(terms.digest, self.roster)
        own = signed_beacon(self._agreement, keys.folder)
        self._beacon = own if beacon is None else beacon
        self._sites: dict[int, int] = {}
        self._instructions: dict[int, bytes] = {}
        folder = keys.folder / "state"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._path, self._run = folder / "rounds.npz", self._agreement.federation.hex()
        self._serial, self._epoch, self._generations = self._restored()

    def run_round(
        self,
        transport: Transport,
        task: Task,
        *,
        timeout: float | None = None,
    ) -> MeanReport:
        """One round among the sites that a transport reaches.

        Args:
            transport: carries the messages, and with those labelled ``BEGIN`` what is to be
                computed.
            task: the task; its ``compute`` is not called.
            timeout: seconds that an exchange waits for the slowest site, and a round for a beacon;
                None for no limit.

        Raises:
            ConfigError, EncodingError: the terms do not fit the model (``MaskedMean.select``).
            ConfigError: a beacon in the host's folder is not signed as it has to be.
            ProtocolError: too few sites are there, or were left, or a beacon that is due is not
                published; nothing of the round is told.
            OSError: the number of the round cannot be kept.
        """
        began = monotonic()
        addresses, shared = list(transport.addresses()), self._terms.select(task.model)
        greeted = self._greet(transport, addresses, timeout)
        sites = {self._sites[each]: each for each in addresses if each in self._sites}
        active = self._terms.policy.adversary == "active"
        cohort = self.roster.numbers if active else np.array(sorted(sites), dtype=np.int64)
        least = self._terms.policy.min_survivors
        if len(sites) < least:
            raise ProtocolError(
                f"{len(sites)} clients of the roster are reached, by {len(addresses)} addresses; "
                f"no sum is formed of fewer than {least}"
            )
        told = {self._instructions[client] for client in sites}
        if len(told) > 1:
            raise ProtocolError(
                "clients compute by different settings, such as a run's configuration, which must "
                "be the same at all of them; nothing was asked of them"
            )
        at = standing(
            self._agreement,
            serial=self._serial + 1,
            clients=cohort,
            task=task,
            shared=shared,
            instructions=told.pop(),
        )
        config = self._terms.config(at, shared)
        epoch = self._next_epoch(timeout) if config.needs_beacon else 0
        self._serial, self._epoch = at.serial, max(self._epoch, epoch)
        self._save()  # an attempt's number is never reused, even after a crash
        hub = MaskingServer(
            identity=self._identity,
            roster=self.roster,
            config=config,
            cohort=cohort,
            round_number=at.serial,
            epoch=epoch,
            generations=self._generations,
        )

        def between(_: str) -> None:
            if hub.beacon_due:  # the beacon must not be published before the keys
                hub.require_advertised()
                hub.beacon = awaited(self._beacon, hub.beacon_due, timeout)

        seal = partial(self._request, at.statement.known.encoded)
        channel = _MeanChannel(transport, self._agreement, sites, seal)
        try:
            drive(hub, channel, timeout=timeout, between=between)
        except ProtocolError as aborted:
            why = _why({**channel.refused, **hub.dropped})
            raise ProtocolError(f"round {at.serial} was given up: {aborted}{why}") from None
        finally:
            self._save()
        mean = self._terms.decode(hub.result, at, shared, survivors=len(hub.survivors))
        return MeanReport(
            round=at.serial,
            statement=at.statement.digest.hex(),
            seconds=monotonic() - began,
            mean=mean,
            clients=hub.survivors,
            invited=len(cohort),
            exchanges=channel.exchanges + greeted,
            dropped={
                client: why
                for client, why in {**channel.refused, **hub.dropped}.items()
                if client not in hub.survivors
            },
        )

    def _greet(self, transport: Transport, addresses: Sequence[int], timeout: float | None) -> int:
        """Identify the sites at unknown addresses; returns the number of exchanges."""
        strangers = [each for each in addresses if each not in self._sites]
        if not strangers:
            return 0
        said = greeted(transport, self._agreement, self._identity, strangers, timeout)
        for address, node, _, _, instructions in said:
            self._instructions[node.number] = instructions
            self._sites = {a: n for a, n in self._sites.items() if n != node.number}
            self._sites[address] = node.number
        return 1

    def _next_epoch(self, patience: float | None) -> int:
        """The first epoch whose value no round has used.

        Raises:
            ProtocolError: the one before has none in time: clients go from one to the next.
            ConfigError: as ``run_round``.
        """
        last = max(self._epoch, *self._beacon.values(), 0)
        if last:
            awaited(self._beacon, last, patience)
        return last + 1

    def _request(self, stated: bytes, setup: bytes) -> bytes:
        body = request(stated, setup)
        return self._agreement.seal(Kind.REQUEST, body, by=self._identity)

    def _save(self) -> None:
        numbers = {"serial": np.array(self._serial), "epoch": np.array(self._epoch)}
        state = {**numbers, **generation_columns(self._generations)}
        write_checkpoint(self._path, state, run_id=self._run)

    def _restored(self) -> tuple[int, int, dict[bytes, int]]:
        """The server's records: last round, its epoch, and the generations of clients' journals."""
        if not self._path.exists():
            return 0, 0, {}
        found = read_checkpoint(self._path, run_id=self._run)
        with unless_damaged(self._path):
            return int(found["serial"]), int(found["epoch"]), generations_of(found)


def _why(reasons: Mapping[int, str]) -> str:
    """Clauses that say why clients are not in a sum, grouped by reason."""
    same: dict[str, list[int]] = {}
    for client, why in sorted(reasons.items()):
        same.setdefault(why, []).append(client)
    return "".join(f"; clients {', '.join(map(str, who))}: {why}" for why, who in same.items())


class _MeanChannel:
    """Reaches clients' halves at their sites (``protection.session.Channel``).

    Attributes:
        exchanges: so far.
        refused: reasons that sites gave for not answering, by client.
    """

    def __init__(
        self,
        transport: Transport,
        agreement: Agreement,
        sites: Mapping[int, int],
        request: Callable[[bytes], bytes],
    ) -> None:
        self._transport = transport
        self._agreement = agreement
        self._sites = sites
        self._request = request
        self.exchanges = 0
        self.refused: dict[int, str] = {}

    def exchange(
        self, stage: str, messages: Sequence[Parcel], timeout: float | None = None
    ) -> Iterator[bytes]:
        """Send messages, and give what comes back (``Channel.exchange``).

        Messages of the hub after the sum are not sent: halves end with their reveal, and sites do
        not wait for a digest.
        """
        if stage == "DONE":
            return
        first = stage == Stage.ADVERTISE.name
        sent = {
            self._sites[parcel.receiver.number]: self._request(parcel.data)
            if first
            else parcel.data
            for parcel in messages
            if parcel.receiver.number in self._sites
        }
        self.exchanges += 1
        label = BEGIN if first else stage
        for address, data in self._transport.exchange(label, sent, timeout):
            if not data:
                continue
            if data[0] == VERSION:
                yield data
            else:
                self._note(data, sent[address])

    def _note(self, data: bytes, asked: bytes) -> None:
        """Record a site's refusal, if it is signed by the site and about the request."""
        try:
            node, body = self._agreement.open(data, Kind.REFUSED)
        except (ProtocolError, WireError):
            return
        about = sha256(asked).digest()
        if body.startswith(about):
            self.refused[node.number] = told(body.removeprefix(about))
