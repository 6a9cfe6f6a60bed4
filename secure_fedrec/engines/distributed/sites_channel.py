"""The channel between the server's hub and parties at sites, over any carrier of bytes."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import numpy as np

from secure_fedrec.core.arrays import IntArray, nobody
from secure_fedrec.engines.distributed.host_messages import (
    NONCE_BYTES,
    REFUSED,
    SITS_OUT,
    Agreement,
    Kind,
    Present,
    Request,
    decode_parcels,
    told,
)
from secure_fedrec.engines.distributed.round_log import log, refusal_fields, with_fields
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.session import SERVER, Identity, Node, Parcel, Role

GREETING: Final = "greeting"
"""Label of the exchange in which sites identify themselves."""
_NOBODY: Final = nobody()


class Transport(Protocol):
    """Carries bytes to sites and back. Signatures reveal any change to them."""

    def addresses(self) -> Sequence[int]:
        """Sites that are connected, by numbers that do not identify them.

        Raises:
            HostError: no way leads to them.
        """

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        """Send messages, and give answers as they come.

        Args:
            label: what the exchange is called in logs.
            messages: by address.
            timeout: seconds to wait for the slowest; None as long as it takes.

        Returns:
            Answers by address: empty from connected sites without an answer; other sites are left
            out.

        Raises:
            HostError: no way leads to them.
        """


class Greeted(NamedTuple):
    """A host that has answered a greeting.

    Args:
        address: where it is.
        node: role and number of this party.
        context: the facts that a session with it is bound to.
        messages: greeting and answer.
        instructions: hash of the instructions it follows beside requests.
    """

    address: int
    node: Node
    context: bytes
    messages: tuple[bytes, bytes]
    instructions: bytes


def greeted(
    transport: Transport,
    agreement: Agreement,
    identity: Identity,
    addresses: Sequence[int],
    timeout: float | None,
    said: set[tuple[int, str]] | None = None,
) -> Iterator[Greeted]:
    """Ask the sites at some addresses to identify themselves.

    Args:
        transport: reaches them.
        agreement: with all sites.
        identity: the server's key.
        addresses: where to ask.
        timeout: seconds to wait for the slowest.
        said: refusals that were logged already; None logs all.

    Returns:
        Sites that are not on the roster, or disagree on the shared facts, are left out; the log
        says why.
    """
    told = set() if said is None else said
    nonce = os.urandom(NONCE_BYTES)
    greeting = agreement.seal(Kind.GREETING, nonce, by=identity)
    for address, data in transport.exchange(GREETING, dict.fromkeys(addresses, greeting), timeout):
        try:
            if not data:
                raise ProtocolError(
                    "it did not answer the greeting: it is not part of this federation, or holds "
                    f"another roster than version {agreement.roster.version}"
                )
            node, body = agreement.open(data, Kind.PRESENT)
            present = Present.decode(body)
        except (ProtocolError, WireError) as refusal:
            if (address, str(refusal)) not in told:
                fields = refusal_fields(refusal)
                log.warning("the host at node %d is refused: %s", address, refusal, extra=fields)
            told.add((address, str(refusal)))
            continue
        if present.server == nonce:
            context = agreement.session(nonce, present.site, node)
            yield Greeted(address, node, context, (greeting, data), present.instructions)


class Tally:
    """Messages and bytes between the server and each client's host, and all others as last.

    Args:
        clients: clients of the federation; the largest number of one, and 1.
    """

    FIELDS = ("messages_received", "bytes_received", "messages_sent", "bytes_sent")
    """Fields named like a meter's, from the clients' point of view."""

    def __init__(self, clients: int) -> None:
        self._totals = {name: np.zeros(clients + 1, dtype=np.int64) for name in self.FIELDS}

    def count(self, node: Node, *, out: bytes | None = None, back: bytes | None = None) -> None:
        """Count a message to a host, and one from it."""
        place = node.number if node.role is Role.CLIENT else -1
        for data, where in ((out, "received"), (back, "sent")):
            if data is not None:
                self._totals[f"messages_{where}"][place] += 1
                self._totals[f"bytes_{where}"][place] += len(data)

    def taken(self) -> dict[str, IntArray]:
        """int64[n + 1] by name, since the last call."""
        found = self._totals
        self._totals = {name: np.zeros_like(values) for name, values in found.items()}
        return found


@dataclass(slots=True)
class _Line:
    """A session with one site."""

    address: int
    context: bytes
    last: int = 0


class SitesChannel:
    """Reaches parties at their sites (a ``protection.session.Channel``).

    Messages between parties go through here and arrive at the receiver's next step.

    Args:
        transport: carries the bytes.
        agreement: with all sites.
        identity: the server's key.
        helpers: the party whose host runs each helper: a client or the helper itself.
    """

    def __init__(
        self,
        transport: Transport,
        agreement: Agreement,
        identity: Identity,
        helpers: Mapping[Node, Node],
    ) -> None:
        self._transport = transport
        self._agreement = agreement
        self._identity = identity
        self._hosts = dict(helpers)
        self._lines: dict[Node, _Line] = {}
        self._refused: dict[Node, str] = {}
        self._waiting: dict[Node, list[Parcel]] = {}
        self._late: dict[Node, list[Parcel]] = {}
        self._told: set[Node] = set()
        self._anew: set[Node] = set()
        self._attempt: tuple[int, int, Callable[[int], bytes]] = (0, 0, lambda _: b"")
        self._ahead = (0, 0)
        self._chosen = _NOBODY
        self.sitting_out: set[Node] = set()
        """Hosts whose client has said that it does not take part in the round; reading clears it.
        """
        self.stage = ""
        """Stage of the last exchange of the attempt."""
        self._settled: Mapping[int, int] = {}
        self._strangers: set[tuple[int, str]] = set()
        self.exchanges = 0
        """Number of exchanges of messages and answers."""
        self.tally = Tally(int(agreement.roster.numbers[-1]) + 1)
        """Messages and bytes carried."""

    @property
    def refused(self) -> Mapping[Node, str]:
        """Why a site's last answer was refused, or that no answer came."""
        return MappingProxyType(self._refused)

    def sessions(self) -> Mapping[int, bytes]:
        """Identifiers of the sessions with each client's site."""
        lines = self._lines.items()
        return {node.number: line.context for node, line in lines if node.role is Role.CLIENT}

    @property
    def hosts(self) -> frozenset[Node]:
        """Parties whose hosts have a session: clients, and helpers with a host of their own."""
        return frozenset(self._lines)

    def greet(self, timeout: float | None = None) -> None:
        """Begin sessions with connected sites that do not have one."""
        known = {line.address for line in self._lines.values()}
        strangers = [each for each in self._transport.addresses() if each not in known]
        if not strangers:
            return
        self.exchanges += 1
        about = self._agreement, self._identity
        said = greeted(self._transport, *about, strangers, timeout, self._strangers)
        for address, node, context, (out, back), _ in said:
            known_host = node.role is Role.CLIENT or node in self._hosts.values()
            if node not in self._lines and known_host:
                self._lines[node] = _Line(address, context)
                self.tally.count(node, out=out, back=back)

    def begin(
        self,
        round_: int,
        serial: int,
        state: Callable[[int], bytes],
        settled: Mapping[int, int],
        ahead: tuple[int, int] = (0, 0),
        clients: IntArray | None = None,
        stated: bytes = b"",
    ) -> None:
        """Begin an attempt.

        Args:
            round_: its round.
            serial: its number.
            state: returns the encoded public state for a client; -1 for a host without a client.
                Each site is sent it once.
            settled: by client, the last attempt that its upload was summed in; 0 where missing.
            ahead: round and serial of the attempt whose keys are agreed on meanwhile; zeros for
                none.
            clients: int64[k], clients that take part; None for all that are invited.
            stated: what it agrees on (``Statement.encoded``).
        """
        self._stated = stated
        self._attempt, self._settled, self._ahead = (round_, serial, state), settled, ahead
        self._chosen = _NOBODY if clients is None else clients
        self._waiting, self._told, self._anew = {}, set(), set()
        self._refused = {}
        self.stage = ""

    def exchange(
        self, stage: str, messages: Sequence[Parcel], timeout: float | None = None
    ) -> Iterator[bytes]:
        """Send messages, and give what comes back to the hub (``Channel.exchange``).

        Messages of a hub after its sum is formed go out with the next attempt.
        """
        self.stage = stage
        if stage == "DONE":
            for parcel in messages:
                self._late.setdefault(self._host(parcel.receiver), []).append(parcel)
            return
        for parcel in messages:
            self._waiting.setdefault(self._host(parcel.receiver), []).append(parcel)
        waiting, self._waiting = self._waiting, {}
        yield from self._asked(stage, waiting, timeout)

    def finish(
        self,
        round_: int,
        serial: int,
        timeout: float | None = None,
        state: bytes = b"",
    ) -> None:
        """Tell every site the outcome of the last attempt.

        Args:
            round_: the round after it.
            serial: beyond it.
            timeout: seconds to wait for the slowest site.
            state: where clients keep the public state from the server, what it holds of it.
        """
        self.begin(round_, serial, lambda _: state, self._settled)
        for _ in self._asked("finish", {node: [] for node in self._lines}, timeout):
            pass

    def settle(self, settled: Mapping[int, int]) -> None:
        """Set what ``finish`` tells each client: the last attempt its upload was summed in."""
        self._settled = settled

    def _asked(
        self, stage: str, parcels: Mapping[Node, Sequence[Parcel]], timeout: float | None
    ) -> Iterator[bytes]:
        """One exchange; messages for the hub are returned, those for other parties wait.

        A connected site without an answer to the first request of an attempt was restarted: it is
        greeted and asked again, once.
        """
        reached = {node: own for node, own in parcels.items() if node in self._lines}
        new = reached.keys() - self._told - self._anew
        anew: dict[Node, Sequence[Parcel]] = {}
        sent = {
            self._lines[node].address: self._request(node, own) for node, own in reached.items()
        }
        if not sent:
            return
        self.exchanges += 1
        due = {self._lines[node].address: node for node in reached}
        for address, asked in due.items():
            self.tally.count(asked, out=sent[address])
        for address, data in self._transport.exchange(stage, sent, timeout):
            node = due.get(address)
            if node is None:
                continue
            if not data:
                anew |= {node: parcels[node]} if node in new else {}
                continue
            try:
                answers = self._answers(node, data)
            except (ProtocolError, WireError) as refusal:
                self._refused[node] = str(refusal)
                fields = refusal_fields(refusal)
                log.warning("the answer of %s is refused: %s", node, refusal, extra=fields)
                continue
            del due[address]
            self.tally.count(node, back=data)
            for parcel in answers:
                if parcel.stage in (REFUSED, SITS_OUT):
                    self._refused[node] = told(parcel.data)
                    self.sitting_out |= {node} if parcel.stage == SITS_OUT else set()
                elif parcel.receiver == SERVER:
                    yield parcel.data
                else:
                    self._waiting.setdefault(self._host(parcel.receiver), []).append(parcel)
        for node in due.values():  # a restarted host is greeted at the next attempt
            self._refused.setdefault(node, "gave no answer")
            fields = with_fields(event="refused", refused="no-answer")
            log.info("%s gave no answer in exchange %s", node, stage, extra=fields)
            self._lines.pop(node, None)
        if anew:
            self._told -= anew.keys()
            self._anew |= anew.keys()
            self.greet(timeout)
            yield from self._asked(stage, anew, timeout)

    def _request(self, node: Node, parcels: Sequence[Parcel]) -> bytes:
        line, (round_, serial, state) = self._lines[node], self._attempt
        line.last += 1
        request = Request(
            round=round_,
            serial=serial,
            settled=self._settled.get(node.number, 0) if node.role is Role.CLIENT else 0,
            ahead=self._ahead,
            state=b"" if node in self._told else state(_client(node)),
            stated=b"" if node in self._told else self._stated,
            clients=self._chosen,
            parcels=parcels,
            late=() if node in self._told else self._late.pop(node, []),
        )
        self._told.add(node)
        return self._agreement.seal(
            Kind.REQUEST,
            request.encode(),
            by=self._identity,
            number=line.last,
            context=line.context,
        )

    def _answers(self, node: Node, data: bytes) -> list[Parcel]:
        """Parcels of a site's reply, all of them of its own parties.

        Raises:
            ProtocolError, WireError: it is refused.
        """
        line = self._lines[node]
        sender, body = self._agreement.open(
            data, Kind.REPLY, number=line.last, context=line.context
        )
        parcels = decode_parcels(body)
        if sender != node or any(self._host(parcel.sender) != node for parcel in parcels):
            raise ProtocolError(f"{node} answers in the name of another party")
        return parcels

    def _host(self, node: Node) -> Node:
        return self._hosts.get(node, node)


def _client(node: Node) -> int:
    return node.number if node.role is Role.CLIENT else -1
