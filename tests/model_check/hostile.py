"""A round of real clients whose server says to each what it wants, and knows what it can know.

The clients are stock ``MaskingClient`` halves with real keys. The server keeps every message; with
it work the corrupt clients, whose secrets and shares it reads and who sign what it likes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import unpack
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking import Expected, Federation, Kind, SumLayout
from secure_fedrec.protection.masking.envelope import SERVER, Envelope, seal
from secure_fedrec.protection.masking.messages.key_messages import (
    Boxes,
    ShareRecord,
    Shares,
    commitment_to,
)
from secure_fedrec.protection.masking.messages.keys import (
    fresh_key,
    mask_private_key,
    open_box,
    self_key,
)
from secure_fedrec.protection.masking.messages.shamir import combine, decode_element
from secure_fedrec.protection.masking.messages.sum_messages import (
    MerkleTree,
    Quorum,
    Reveal,
    Survivors,
    Upload,
    confirmed_hash,
    hash_of_sharers,
    leaf_hash,
)
from secure_fedrec.protection.masking.server.recovery import pair_keys_of
from tests.model_check.settings import Setting, mask_of
from tests.statements import about

__all__ = ["HostileRound", "federation_of"]

_LENGTH = 3
_LARGEST = 100


def federation_of(n: int) -> Federation:
    """Clients 0 to n - 1, for many rounds."""
    return Federation(range(n))


@dataclass(slots=True)
class Knowledge:
    """Secrets of honest clients: own self-mask seeds, and shares by owner and holder."""

    seeds: dict[int, int] = field(default_factory=dict)
    self_shares: dict[int, dict[int, bytes]] = field(default_factory=dict)
    mask_shares: dict[int, dict[int, bytes]] = field(default_factory=dict)


class HostileRound:
    """A round that has got as far as BOXES, with everybody's shares at the server.

    Args:
        federation: of the clients 0 to n - 1.
        setting: the parameters.
        seed: of the vectors.
        committee: the ring places that a beacon must draw to sign; none for any.
    """

    def __init__(
        self, federation: Federation, setting: Setting, seed: int = 0, committee: int = 0
    ) -> None:
        n = setting.n
        self.federation, self.setting = federation, setting
        self.layout = SumLayout(bits=20, length=_LENGTH, clients=n, largest=_LARGEST)
        state = fresh_key()  # no two rounds are about the same
        self.config = setting.config(
            length=_LENGTH, layout_hash=self.layout.hash, statement=about(state).digest
        )
        rng = np.random.default_rng(seed)
        self.values = {u: rng.integers(-_LARGEST, _LARGEST + 1, _LENGTH) for u in range(n)}
        epoch = max(federation.beacons, default=0) + 1 if self.config.needs_beacon else 0
        expected = Expected(layout_hash=self.layout.hash, statement=about(state))
        self.clients = {u: federation.open_client(u, expected) for u in range(n)}
        for number, client in self.clients.items():
            client.load(self.layout.encode(self.values[number]))
        self.server = federation.open_server(self.config, np.arange(n), epoch=epoch)
        self.core = self.server._round
        self.views: dict[int, frozenset[int]] = {}
        self.uploads: dict[int, Any] = {}
        self.leaves: dict[int, bytes] = {}
        self.signatures: dict[int, bytes] = {}
        self.known = Knowledge()
        self.early: dict[int, bytes] = {}
        self.corrupt: frozenset[int] = frozenset()
        self.unmasked: dict[int, tuple[bytes, frozenset[int]]] = {}
        self._open(epoch, committee)

    def _open(self, epoch: int, committee: int) -> None:
        beacon = self._beacon(committee) if self.config.needs_beacon else None
        for number, data in self.server.start():
            reply = self.deliver_setup(number, data)
            if reply is not None:
                self.server.receive(reply)
        if beacon is not None:
            self.federation.beacons[epoch] = beacon
            for client in self.clients.values():
                client.observe_beacon(epoch, beacon)
        outgoing = self.server.close_step(beacon=beacon)
        topology = self.core._topology
        self.near = {u: frozenset(topology.neighbours(u).tolist()) for u in self.clients}
        for number, data in outgoing:
            reply = self.deliver_keys(number, data)
            if reply is not None:
                head = Envelope.decode(reply).head
                self.core._shares[number] = Shares.decode(head, number, self.config)

    def _beacon(self, committee: int) -> bytes:
        """A beacon that draws a committee; who is under test has no part in its choice."""
        while True:
            beacon = fresh_key()
            drawn = self.core.public.topology(beacon)
            if not committee or self.setting.committee is None or drawn._committee is None:
                return beacon
            if mask_of(np.flatnonzero(drawn._committee[drawn._order])) == committee:
                return beacon

    def deliver_setup(self, number: int, data: bytes) -> bytes | None:
        """SETUP to a client; its ADVERTISE, or None if it is out of the round."""
        return self.ask(number, data)

    def deliver_keys(self, number: int, data: bytes) -> bytes | None:
        """KEYS to a client; its SHARES, or None if it is out of the round."""
        return self.ask(number, data)

    @property
    def order(self) -> IntArray:
        """int64[n], the client at each ring place."""
        order = self.core._topology._order
        return np.arange(self.setting.n) if order is None else order

    def says(self, kind: Kind, head: bytes, payload: bytes = b"") -> bytes:
        """A message of the server."""
        key = self.federation.server.key
        return seal(key, self.core.public.context, kind, SERVER, head, payload)

    def marks(self, clients: Iterable[int]) -> BoolArray:
        """bool[n]."""
        return np.isin(np.arange(self.setting.n), sorted(clients))

    def ask(self, number: int, message: bytes) -> bytes | None:
        """The one answer of a client, b"" if it owes none, or None if it refuses."""
        try:
            return b"".join(self.clients[number].receive(message))
        except ProtocolError:
            return None

    def corrupt_clients(self, numbers: Iterable[int]) -> None:
        """Take over clients: their seeds, and both shares of every neighbour."""
        self.corrupt = frozenset(numbers)
        for number in sorted(self.corrupt):
            half = self.clients[number]._round
            if half is None or not self.upload(number, self.core._shares):
                continue
            for owner, neighbour in half._neighbours.items():
                if neighbour.shares is not None:
                    self.known.mask_shares.setdefault(owner, {})[number] = neighbour.shares[0]
                    self.known.self_shares.setdefault(owner, {})[number] = neighbour.shares[1]

    def upload(self, number: int, view: Iterable[int]) -> bool:
        """BOXES to a client that is told of these sharers; whether it uploads."""
        told = frozenset(view)
        records = self.records_for(number, told)
        boxes = Boxes(shared=self.marks(told), records=records, seals={})
        reply = self.ask(number, self.says(Kind.BOXES, boxes.head(), boxes.payload()))
        if reply is None:
            return False
        envelope = Envelope.decode(reply)
        self.views[number] = told
        words = unpack(envelope.payload, self.config.length, self.config.bits)
        self.uploads[number] = words.copy()
        self.leaves[number] = leaf_hash(envelope.proven)
        self.signatures[number] = Upload.decode(envelope.head).shared_signature
        return True

    def records_for(self, number: int, told: frozenset[int]) -> dict[int, bytes]:
        """What a client is handed as the shares of its neighbours; noise where there are none."""
        noise = bytes(ShareRecord.size(self.config))
        return {
            other: self.core._shares[other].records.get(number, noise)
            for other in sorted(told & self.near[number] & set(self.core._shares))
        }

    def survivors(
        self, number: int, story: Iterable[int], signatures: Mapping[int, bytes] | None = None
    ) -> bytes:
        """SURVIVORS to a client; the forwarded signatures are the true ones unless given."""
        told = sorted(set(story))
        tree = MerkleTree([self.leaves.get(each, bytes(32)) for each in told])
        if signatures is None:
            near = self.near[number] & set(told) & set(self.signatures)
            signatures = {other: self.signatures[other] for other in sorted(near)}
        message = Survivors(
            survivors=self.marks(told),
            root=tree.root,
            shared_signatures=signatures,
            path=tree.path(told.index(number)) if number in told else [],
        )
        return self.says(Kind.SURVIVORS, message.head(), message.payload())

    def signers(self, told: Iterable[int]) -> set[int]:
        """Whose signatures a client counts that is told of these survivors."""
        return set(np.flatnonzero(self.core._topology.signers(self.marks(told))).tolist())

    def confirmed(self, story: Iterable[int], view: Iterable[int]) -> bytes:
        """What a client signs that was told of these survivors and sharers."""
        told = sorted(set(story))
        tree = MerkleTree([self.leaves.get(each, bytes(32)) for each in told])
        return confirmed_hash(
            survivors=self.marks(told),
            shared_hash=hash_of_sharers(self.marks(view), self.core.stated),
            root=tree.root,
            seed=self.core._topology.seed,
        )

    def forged(self, confirmed: bytes) -> dict[int, bytes]:
        """The corrupt clients' signatures on what a client confirms."""
        context = self.core.public.context
        found = {}
        for number in sorted(self.corrupt):
            key = self.federation.identities[number].key
            found[number] = Envelope.decode(
                seal(key, context, Kind.CONFIRM, number, confirmed)
            ).proof
        return found

    def confirm(
        self, number: int, story: Iterable[int], signatures: Mapping[int, bytes] | None = None
    ) -> tuple[bytes, bytes] | None:
        """What a client agrees to, and its signature, which it may not owe.

        None if it refuses. Of a curious server it takes any set, and reveals at once.
        """
        reply = self.ask(number, self.survivors(number, story, signatures))
        current = self.clients[number]._round
        if reply is None or current is None:
            return None
        if not self.config.agrees:
            self.early[number] = reply
            return current._confirmed, b""
        return current._confirmed, bytes(Envelope.decode(reply).proof) if reply else b""

    def reveal(self, number: int, signatures: Mapping[int, bytes], story: Iterable[int]) -> bool:
        """QUORUM to a client that was told a story; whether it reveals, which is then known."""
        head = Quorum(signatures=dict(sorted(signatures.items()))).head()
        reply = self.early.pop(number, None) or self.ask(number, self.says(Kind.QUORUM, head))
        if reply is None:
            return False
        key = self.core._client_keys[number]["reveal-box"]
        box = Envelope.decode(reply).head
        reveal = Reveal.decode(open_box(key, box, self.core.public.context.round_id))
        self.known.seeds[number] = decode_element(reveal.self_seed)
        told = set(story)
        for owner, share in reveal.shares.items():
            table = self.known.self_shares if owner in told else self.known.mask_shares
            table.setdefault(owner, {})[number] = share
        return True

    def tell(
        self,
        listeners: Iterable[int],
        story: Iterable[int],
        signatures: Mapping[int, Mapping[int, bytes]] | None = None,
    ) -> set[int]:
        """One story to some clients, to its end; who revealed."""
        told = frozenset(story)
        by_statement: dict[bytes, dict[int, bytes]] = {}
        signed: dict[int, bytes] = {}
        for number in sorted(listeners):
            own = None if signatures is None else signatures.get(number)
            answer = self.confirm(number, told, own)
            if answer is not None:
                signed[number] = answer[0]
                found = by_statement.setdefault(answer[0], {})
                found |= {number: answer[1]} if answer[1] else {}
        revealed = set()
        for number, statement in signed.items():
            found = by_statement[statement] | self.forged(statement)
            found = {signer: found[signer] for signer in sorted(set(found) & self.signers(told))}
            chosen = dict(list(found.items())[: self.setting.quorum])
            if self.reveal(number, chosen, told):
                self.unmasked[number] = statement, told
                revealed.add(number)
        return revealed

    def open_sums(self) -> dict[frozenset[int], IntArray]:
        """Every sum of honest clients' vectors that the server can compute, in clear.

        The open components of ``sharers``: members' self masks are all known, and the pair masks
        that are not known cancel. Secrets are restored from shares and checked against what their
        owners are bound to.
        """
        honest = sorted(set(self.uploads) - self.corrupt)
        clear = {owner: seed for owner in honest if (seed := self._self_seed(owner)) is not None}
        masks = {
            owner: seed for owner in self.clients if (seed := self._mask_seed(owner)) is not None
        }
        found, left = {}, set(honest)
        while left:
            group, edge, sound = set[int](), {left.pop()}, True
            while edge:
                member = edge.pop()
                group.add(member)
                sound &= member in clear
                for other in self._masked_with(member):
                    if member in masks or other in masks:
                        continue
                    if other in self.uploads and member in self._masked_with(other):
                        edge |= {other} - group
                    else:
                        sound = False
            left -= group
            if sound:
                found[frozenset(group)] = self._sum(group, clear, masks)
        return found

    def true_sum(self, group: Iterable[int]) -> IntArray:
        """The sum of the clear vectors."""
        total: IntArray = sum(
            (self.values[number] for number in group), np.zeros(_LENGTH, dtype=np.int64)
        )
        return total

    def _masked_with(self, number: int) -> frozenset[int]:
        return self.near[number] & self.views[number]

    def _sum(
        self, group: Iterable[int], clear: Mapping[int, int], masks: Mapping[int, int]
    ) -> IntArray:
        context, members = self.core.public.context, set(group)
        total = np.zeros_like(self.uploads[min(members)])
        add: list[bytes] = []
        subtract: list[bytes] = []
        for member in sorted(members):
            total += self.uploads[member]
            subtract.append(self_key(clear[member], context, member, self.core.stated))
            for other in self._masked_with(member):
                if other in members and member in self._masked_with(other):
                    continue
                owner, partner = (member, other) if member in masks else (other, member)
                partners = {partner: self.core._keys[partner]}
                keys = pair_keys_of(
                    masks[owner],
                    context,
                    owner,
                    stated=self.core.stated,
                    partners=partners,
                    seals={},
                )
                (subtract if member < other else add).append(keys[partner])
        MaskExpander().apply(total, add=add, subtract=subtract)
        words = total & np.uint32(2**self.config.bits - 1)
        return np.asarray(self.layout.decode(words))

    def _self_seed(self, owner: int) -> int | None:
        if owner in self.known.seeds:
            return self.known.seeds[owner]
        element = self._restored(self.known.self_shares.get(owner, {}))
        if element is None:
            return None
        context = self.core.public.context
        bound = self.core._shares[owner].commitment
        return element if commitment_to(context, owner, element) == bound else None

    def _mask_seed(self, owner: int) -> int | None:
        if owner in self.corrupt:
            half = self.clients[owner]._round
            return None if half is None else getattr(half._secrets, "mask_element", None)
        element = self._restored(self.known.mask_shares.get(owner, {}))
        if element is None:
            return None
        public = mask_private_key(element, self.core.public.context, owner).public_key()
        bound = self.core._keys[owner].mask_public
        return element if public.public_bytes_raw() == bound else None

    def _restored(self, shares: Mapping[int, bytes]) -> int | None:
        if len(shares) < self.config.threshold:
            return None
        indices = {
            self.core.public.places[holder] + 1: decode_element(share)
            for holder, share in shares.items()
        }
        return combine(dict(list(indices.items())[: self.config.threshold]))
