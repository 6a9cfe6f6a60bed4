"""Mixes and the ends of paths as parties of a round, each on some host, with keys of that round.

Every mix and every recipient makes an opening key per attempt and signs its public half; all of
them together are the attempt's directory, which each party puts together itself, under the signing
keys on the roster. A sender hands all its cells to the first mix in one signed message, and that
mix forwards nothing before it has the cells of every sender: the carrier of the messages sees how
many cells each sender hands in, as on any connection to a mix, and cannot compose a batch. Between
mixes, a batch is signed by its sending mix.

Bodies of the messages, little-endian, in envelopes of the family ``ROUTING``:

    KEY      the public key
    CELLS    u32 number of the node that they go to | cells of the size of its layer
    RECEIPT  a list (``receipts``)
    SEEN     32 bytes: hash of all lists, of a sender that found its cells in them
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from hashlib import sha256

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.routing.directory import Directory, RoutingConfig
from secure_fedrec.protection.routing.endpoint import send
from secure_fedrec.protection.routing.mix import MixNode, node_of
from secure_fedrec.protection.routing.onions import address_of
from secure_fedrec.protection.routing.receipts import SentCells, receipt_digest
from secure_fedrec.protection.routing.sealing import OpeningKey, SealingKey, labelled
from secure_fedrec.protection.session import (
    SERVER,
    Identity,
    Node,
    Parcel,
    Role,
    Roster,
    one_of_each,
    refusals_of,
)
from secure_fedrec.protection.session.envelope import Family, SignedMessages

_DOMAIN = b"secure-fedrec|v1|hosted-routing|"
_NUMBER_BYTES = 4

UNSIGNED = "hosts do not know the senders of messages that came through mixes"
"""Why rounds behind mixes are not recorded (``hosting.Hosting.unrecorded``)."""


class Kind(IntEnum):
    """Kinds of messages."""

    KEY = 1
    CELLS = 2
    RECEIPT = 3
    SEEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The settings that all parties of an attempt's paths agree on beforehand.

    Args:
        config: sizes.
        serial: number of the attempt, below 2^32; it is the epoch and the batch.
        context: 32 bytes, of all that the attempt is bound to.
        roster: keys of all parties.
        senders: clients that send, ascending.
        recipients: where paths end, in the order of the directory.
    """

    config: RoutingConfig
    serial: int
    context: bytes
    roster: Roster
    senders: tuple[int, ...]
    recipients: tuple[Node, ...]

    @property
    def mixes(self) -> tuple[Node, ...]:
        """One of each layer."""
        return mixes_of(self.config)

    @property
    def messages(self) -> SignedMessages:
        """All messages of the attempt."""
        return SignedMessages(Family.ROUTING, Kind, self.roster, self.serial, self.context)

    def open_each(
        self, inbox: Sequence[bytes], kind: Kind, due: Sequence[Node]
    ) -> dict[Node, bytes]:
        """Bodies of one message of each of some parties, in their order.

        Raises:
            ProtocolError: a message is missing; the error says what was refused.
        """
        return one_of_each(inbox, partial(self.messages.open, kind=kind), due, kind.name)

    def directory(self, keys: Sequence[bytes]) -> Directory:
        """The attempt's directory, of every signed KEY.

        Raises:
            ProtocolError: a key is missing, or not signed by its owner.
        """
        kem, mixes = self.config.mechanism, self.mixes
        found = self.open_each(keys, Kind.KEY, (*mixes, *self.recipients))
        try:
            public = {node: SealingKey(kem, body) for node, body in found.items()}
            return Directory(
                config=self.config,
                epoch=self.serial,
                mixes=tuple((public[node],) for node in mixes),
                recipients=tuple(public[node] for node in self.recipients),
            )
        except WireError as damage:
            raise ProtocolError(f"the keys make no directory: {damage}") from None


def mixes_of(config: RoutingConfig) -> tuple[Node, ...]:
    """One mix per layer."""
    return tuple(node_of(layer, 0) for layer in range(config.layers))


def course_context(at: Standing, domain: bytes, members: IntArray) -> bytes:
    """32 bytes that an attempt's messages are bound to.

    Args:
        at: the attempt.
        domain: domain of the protocol whose messages they are.
        members: int64[k], clients that the attempt is bound to.
    """
    serial, bound = at.serial.to_bytes(8, "little"), members.astype("<u4").tobytes()
    parts = labelled(domain, serial, at.statement.digest, bound)
    return sha256(_DOMAIN + at.series + at.roster.hash + parts).digest()


def digest_of_lists(lists: Sequence[bytes]) -> bytes:
    """32 bytes that stand for all lists of an attempt, in the order of recipients."""
    return sha256(b"".join(sha256(each).digest() for each in lists)).digest()


class _OnPath:
    """Base of a party that signs what it sends along the paths of an attempt.

    Args:
        course: the attempt.
        identity: its signing key.
    """

    def __init__(self, course: Course, identity: Identity) -> None:
        self.node = identity.node
        self._course = course
        self._identity = identity

    def _parcel(self, receiver: Node, kind: Kind, body: bytes) -> Parcel:
        data = self._course.messages.seal(kind, body, self._identity)
        return Parcel(self.node, receiver, kind.name, data)


class PathEnd(_OnPath):
    """Base of a party that has an opening key in the attempt: a mix, or a recipient.

    Args:
        course: the attempt.
        identity: its signing key.
    """

    _key: OpeningKey | None = None
    _directory: Directory | None = None

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Answer a prompt with a key, and the list of keys with no message; then handle cells.

        Raises:
            ProtocolError, WireError: it is refused.
        """
        if self._key is None:
            if inbox:
                raise ProtocolError(f"{self.node} has no key yet")
            self._key = OpeningKey.generate(self._course.config.mechanism)
            return [self._parcel(SERVER, Kind.KEY, self._key.public.data)]
        if self._directory is None:
            self._directory = self._course.directory(inbox)
            self._begin(self._directory, self._key)
            return []
        return self._answer(inbox)

    def _begin(self, directory: Directory, key: OpeningKey) -> None:
        """Take up the attempt's keys."""
        raise NotImplementedError

    def _answer(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Handle the cells that come after the keys."""
        raise NotImplementedError

    def _cells(self, inbox: Sequence[bytes], layer: int, due: Sequence[Node]) -> list[bytes]:
        """The cells for this party from some parties, all of which must have signed theirs.

        Raises:
            ProtocolError: a party is missing, or its cells are for another party.
        """
        size = self._course.config.size_at(layer)
        found: list[bytes] = []
        for sender, body in self._course.open_each(inbox, Kind.CELLS, due).items():
            to, cells = body[:_NUMBER_BYTES], body[_NUMBER_BYTES:]
            if to != _number(self.node) or not cells or len(cells) % size:
                raise ProtocolError(f"{sender} has signed no cells for {self.node}")
            found += [cells[at : at + size] for at in range(0, len(cells), size)]
        return found


class PathStart(_OnPath):
    """Base of a client that hands cells in, and looks for them in the lists of their recipients.

    Args:
        course: the attempt.
        identity: its signing key.
    """

    _sent: SentCells | None = None

    def _cells(
        self, directory: Directory, messages: Sequence[bytes], *, recipient: int, cells: int
    ) -> Parcel:
        """So many cells for the first mix, with messages to one recipient (``endpoint.send``)."""
        first = self._course.mixes[0]
        self._sent = SentCells(directory, batch=self._course.serial)
        found = send(
            messages, recipient=recipient, cells=cells, directory=directory, sent=self._sent
        )
        return self._parcel(first, Kind.CELLS, cells_for(first, found))

    def _seen(self, sent: SentCells, inbox: Sequence[bytes]) -> Parcel:
        """What a sender signs once it has found its cells in the lists of all recipients.

        Raises:
            ProtocolError: a list is missing or refused, or a cell of this sender is in none.
        """
        course = self._course
        lists = list(course.open_each(inbox, Kind.RECEIPT, course.recipients).values())
        signers = [course.roster.key_of(node) for node in course.recipients]
        # Senders sign the lists they hold, so recipients can tell whether these are the same.
        published = [receipt_digest(each) for each in lists]
        try:
            sent.require_received(lists, signers=signers, published=published)
        except WireError as damage:
            raise ProtocolError(f"a list of receipts is refused: {damage}") from None
        return self._parcel(SERVER, Kind.SEEN, digest_of_lists(lists))


def require_seen(course: Course, inbox: Sequence[bytes], own: Node, signed: bytes) -> None:
    """Check that every sender has found its cells in one and the same lists.

    Args:
        course: the attempt.
        inbox: every recipient's RECEIPT and every sender's SEEN.
        own: the recipient that checks.
        signed: its own list.

    Raises:
        ProtocolError: a sender has not, or the recipient's own list differs.
    """

    def is_list(data: bytes) -> bool:
        try:
            course.messages.open(data, Kind.RECEIPT)
        except (ProtocolError, WireError):
            return False
        return True

    lists = [data for data in inbox if is_list(data)]
    words = [data for data in inbox if data not in lists]
    found = course.open_each(lists, Kind.RECEIPT, course.recipients)
    if found[own] != signed:
        raise ProtocolError(f"{own} signed another list")
    senders = [Node(Role.CLIENT, number) for number in course.senders]
    told = course.open_each(words, Kind.SEEN, senders)
    if set(told.values()) != {digest_of_lists(list(found.values()))}:
        raise ProtocolError("clients have seen other lists than these")


def cells_for(receiver: Node, cells: Sequence[bytes]) -> bytes:
    """The body of CELLS."""
    return _number(receiver) + b"".join(cells)


class HostedMix(PathEnd):
    """A mix of one attempt: it forwards once it has the cells of all expected senders.

    Args:
        course: the attempt.
        identity: its signing key.
    """

    _done = False

    def _begin(self, directory: Directory, key: OpeningKey) -> None:
        self._layer = self._course.mixes.index(self.node)
        self._mix = MixNode(layer=self._layer, node=0)
        self._mix.rotate(directory, key)

    def _answer(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """All cells, randomly ordered, to their next nodes; once per attempt.

        With small batches, the party that hands cells in would recognise them in the output.

        Raises:
            ProtocolError: they have gone already, or there are fewer cells than senders.
        """
        course, layer = self._course, self._layer
        if self._done:
            raise ProtocolError(f"{self.node} has mixed in attempt {course.serial}")
        due = [Node(Role.CLIENT, number) for number in course.senders]
        if layer:
            due = [course.mixes[layer - 1]]
        groups: dict[Node, list[bytes]] = {}
        cells = self._cells(inbox, layer, due)
        if len(cells) < len(course.senders):
            raise ProtocolError(f"{len(cells)} cells of {len(course.senders)} senders")
        self._done = True
        why = refusals_of(cells, self._mix.receive)
        if why:  # its sender would notice only after the other cells were mixed
            raise ProtocolError(f"not every cell can be mixed{why}")
        last = layer + 1 == course.config.layers
        for cell in self._mix.flush():
            place = address_of(cell).node
            to = course.recipients[place] if last else course.mixes[layer + 1]
            groups.setdefault(to, []).append(cell)
        return [self._parcel(to, Kind.CELLS, cells_for(to, groups[to])) for to in sorted(groups)]


def _number(node: Node) -> bytes:
    return node.number.to_bytes(_NUMBER_BYTES, "little")
