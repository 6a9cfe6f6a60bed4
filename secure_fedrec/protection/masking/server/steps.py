"""What the server keeps and computes in one round, step by step.

``accept_*`` take a message that is known to be its sender's and awaited, check all of it, and only
then store it. ``close_*`` check which clients are left and give the messages of the next step. The
server signs a step once; what differs per receiver proves itself (``formats``).
"""

import secrets
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secure_fedrec.core.arrays import BoolArray, IntArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import pack, unpack, word_type
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.envelope import (
    MAC_PURPOSES,
    SERVER,
    Context,
    Envelope,
    Kind,
    cohort_hash,
    seal,
)
from secure_fedrec.protection.masking.messages import hybrid
from secure_fedrec.protection.masking.messages.key_messages import (
    Advertisement,
    Boxes,
    Keys,
    Setup,
    Shares,
)
from secure_fedrec.protection.masking.messages.keys import (
    exchange,
    fresh_key,
    open_box,
    require_usable,
    server_keys,
)
from secure_fedrec.protection.masking.messages.sum_messages import (
    MerkleTree,
    Quorum,
    Result,
    Reveal,
    Survivors,
    Upload,
    confirmed_hash,
    hash_of_sharers,
    leaf_hash,
    signed_sharers,
)
from secure_fedrec.protection.masking.messages.topology import NO_BEACON, PublicRound, Topology
from secure_fedrec.protection.masking.server.recovery import Fault
from secure_fedrec.protection.masking.server.unmasking import RunningSum, Unmasking
from secure_fedrec.protection.session.reader import encode_marks
from secure_fedrec.protection.session.roster import Identity, Roster
from secure_fedrec.protection.session.statement import Later


class Outgoing(NamedTuple):
    """A message of the server and the client that is to get it."""

    receiver: int
    data: bytes


class ServerRound:
    """The server's side of a round (arguments: ``MaskingServer``)."""

    def __init__(
        self,
        *,
        identity: Identity,
        roster: Roster,
        config: MaskingConfig,
        cohort: IntArray,
        round_number: int,
        epoch: int,
        generations: dict[bytes, int],
        later: Later | None,
    ) -> None:
        self._faults: dict[Fault, None] = {}
        self.survivors: BoolArray
        self.signers: set[int]
        self.result: RingArray
        self.transcript_root: bytes
        self._identity = identity
        self._signers = roster.keys_of(cohort)
        self._generations = generations
        self._config = config
        self._channel = X25519PrivateKey.from_private_bytes(fresh_key())
        self._setup = Setup(
            config=config,
            epoch=epoch,
            roster_version=roster.version,
            channel_public=self._channel.public_key().public_bytes_raw(),
            cohort=cohort,
        )
        context = Context(
            round_id=round_number.to_bytes(8, "little") + secrets.token_bytes(8),
            config_hash=config.hash,
            roster_hash=roster.hash,
            cohort_hash=cohort_hash(cohort),
        )
        self.public = PublicRound.of(self._setup, context)
        self._beacon: bytes | None
        self._topology: Topology
        self._live: dict[int, list[int]] = {}
        self._advertised: BoolArray = np.zeros(config.clients, dtype=np.bool_)
        self.shared: BoolArray = np.zeros(config.clients, dtype=np.bool_)
        self._uploaded: BoolArray = np.zeros(config.clients, dtype=np.bool_)
        self._keys: dict[int, Advertisement] = {}
        self._publics: set[bytes] = set()
        self._client_keys: dict[int, dict[str, bytes]] = {}
        self._key_records: dict[int, bytes] = {}
        self._shares: dict[int, Shares] = {}
        self._disputed: dict[int, frozenset[int]] = {}
        self.later, self.stated = later, config.statement
        self._shared_hash: bytes
        self._shared_signatures: dict[int, bytes] = {}
        self._sum = RunningSum(config.length, word_type(config.bits))
        self._upload_leaves: dict[int, bytes] = {}
        self._confirmed: bytes
        self._confirmations: dict[int, bytes] = {}
        self._reveals: dict[int, Reveal] = {}
        self._transcript: list[bytes] = []

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Clients found at fault so far, each fault once."""
        return tuple(self._faults)

    def blame(self, fault: Fault) -> None:
        """Take note of a fault."""
        self._faults[fault] = None

    def require_authentic(self, envelope: Envelope) -> None:
        """Check the sender of a message that is awaited."""
        client, purpose = envelope.sender, MAC_PURPOSES.get(envelope.kind)
        if purpose is None:
            envelope.verify(self._signers[client])
        else:
            envelope.authenticate(self._client_keys[client][purpose])

    def setup(self) -> list[Outgoing]:
        """R0."""
        data = self._sign(Kind.SETUP, self._setup.head())
        return [Outgoing(client, data) for client in self.public.cohort.tolist()]

    def accept_keys(self, envelope: Envelope) -> None:
        """R1 of a client."""
        keys = Advertisement.decode(envelope.head, self._config)
        if keys.epoch != self.public.epoch:
            raise ProtocolError("ADVERTISE: another epoch")
        signer = self._signers[envelope.sender]
        if keys.generation <= self._generations.get(signer, 0):
            raise ProtocolError(
                f"ADVERTISE: an old journal: client {envelope.sender} has shown a later generation"
            )
        require_usable(keys.mask_public)
        shared = exchange(self._channel, keys.channel_public)
        if self._config.hybrid:
            for public in (keys.mask_kem, keys.channel_kem):
                hybrid.require_usable(public)
        publics = {keys.mask_public, keys.channel_public}
        if len(publics) < 2 or publics & self._publics:
            raise ProtocolError(f"ADVERTISE: client {envelope.sender} advertised a key twice")
        self._generations[signer] = keys.generation
        self._publics |= publics
        self._keys[envelope.sender] = keys
        self._client_keys[envelope.sender] = server_keys(
            shared,
            self.public.context,
            envelope.sender,
            (keys.channel_public, self._setup.channel_public),
        )
        self._key_records[envelope.sender] = envelope.head + envelope.proof
        self._advertised[self.public.places[envelope.sender]] = True
        self._transcript.append(leaf_hash(envelope.proven))

    def take_beacon(self, beacon: bytes | None) -> None:
        """Hold the beacon for R1 to the clients; it must be there exactly when it is due."""
        due = self.public.beacon_due
        if due != (beacon is not None) or (beacon is not None and len(beacon) != 32):
            raise ProtocolError(f"a beacon of 32 bytes {'is' if due else 'is not'} due")
        self._beacon = beacon

    def require_advertised(self) -> None:
        """Check that enough clients have advertised keys for a sum."""
        self._require_enough(self._advertised, "advertised keys")

    def close_keys(self) -> list[Outgoing]:
        """R1 to the clients; the graph is settled."""
        self.require_advertised()
        beacon = self._beacon
        if self._config.degree is None:
            beacon = NO_BEACON
        elif beacon is None:  # a server that follows the protocol draws it itself
            beacon = fresh_key()
        self._topology = self.public.topology(beacon)
        self._find_live(self._advertised)
        keys = Keys(advertised=self._advertised, beacon=beacon, records={})
        signed = self._sign(Kind.KEYS, keys.head())
        outgoing = []
        for place, client in self._marked(self._advertised):
            records = {other: self._key_records[other] for other in self._live[place]}
            payload = Keys(advertised=self._advertised, beacon=beacon, records=records).payload()
            outgoing.append(Outgoing(client, signed + payload))
        return outgoing

    def accept_shares(self, envelope: Envelope) -> None:
        """R2 of a client."""
        shares = Shares.decode(envelope.head, envelope.sender, self._config)
        place = self.public.places[envelope.sender]
        if list(shares.records) != self._live[place]:
            raise ProtocolError(f"SHARES: client {envelope.sender} did not serve its neighbours")
        self._shares[envelope.sender] = shares
        self.shared[place] = True
        self._transcript.append(leaf_hash(envelope.proven))

    def close_shares(self) -> list[Outgoing]:
        """R2 to the clients."""
        self._require_enough(self.shared, "shared their secrets")
        self._find_live(self.shared)
        self._shared_hash = hash_of_sharers(self.shared, self.stated)
        signed = self._sign(Kind.BOXES, encode_marks(self.shared))
        outgoing = []
        for place, client in self._marked(self.shared):
            senders = self._live[place]
            boxes = Boxes(
                shared=self.shared,
                records={other: self._shares[other].records[client] for other in senders},
                seals={
                    other: self._shares[other].seals[client]
                    for other in senders
                    if other < client and self._config.hybrid
                },
            )
            outgoing.append(Outgoing(client, signed + boxes.payload()))
        return outgoing

    def accept_upload(self, envelope: Envelope) -> None:
        """R3 of a client: its vector goes into the sum and is not kept."""
        upload = Upload.decode(envelope.head)
        client = envelope.sender
        place = self.public.places[client]
        if upload.shared_hash != self._shared_hash:
            raise ProtocolError(f"UPLOAD: client {client} was told of other sharers or states")
        key, context = self._signers[client], self.public.context
        if not signed_sharers(key, context, client, self._shared_hash, upload.shared_signature):
            # Its neighbours would withhold its shares: if it then fell silent, the round would be
            # lost.
            raise ProtocolError(f"UPLOAD: client {client} did not sign the sharers")
        disputed = frozenset(upload.disputed.tolist())
        if not disputed <= set(self._live[place]):
            raise ProtocolError(f"UPLOAD: client {client} disputes the shares of a stranger")
        self._sum.add(unpack(envelope.payload, self._config.length, self._config.bits))
        self._uploaded[place] = True
        self._shared_signatures[client] = upload.shared_signature
        self._disputed[client] = disputed
        for other in sorted(disputed):
            self.blame(Fault(kind="disputed", client=client, about=other))
        self._upload_leaves[client] = leaf_hash(envelope.proven)
        self._transcript.append(self._upload_leaves[client])

    def close_uploads(self) -> list[Outgoing]:
        """R4 to the clients: the survivors, and a commitment to their uploads.

        It goes to all of them, and is signed by those on the committee.
        """
        survivors = self._uploaded.copy()
        self.signers = self.require_summable(survivors)
        self.survivors = survivors
        clients = [client for _, client in self._marked(survivors)]
        tree = MerkleTree([self._upload_leaves[client] for client in clients])
        self._confirmed = confirmed_hash(
            survivors, self._shared_hash, tree.root, self._topology.seed
        )
        signed = self._sign(Kind.SURVIVORS, encode_marks(survivors) + tree.root)
        outgoing = []
        for index, (place, client) in enumerate(self._marked(survivors)):
            near = self.public.cohort[self._topology.live(place, survivors)].tolist()
            told = Survivors(
                survivors=survivors,
                root=tree.root,
                shared_signatures={other: self._shared_signatures[other] for other in near},
                path=tree.path(index),
            )
            outgoing.append(Outgoing(client, signed + told.payload()))
        return outgoing

    def accept_confirmation(self, envelope: Envelope) -> None:
        """R4 of a client."""
        if envelope.head != self._confirmed:
            raise ProtocolError(f"CONFIRM: client {envelope.sender} agreed to something else")
        self._confirmations[envelope.sender] = envelope.proof
        self._transcript.append(leaf_hash(envelope.proven))

    def close_confirmations(self) -> list[Outgoing]:
        """R4 to the clients: exactly as many signatures as make a quorum."""
        self._require_quorum(len(self._confirmations), "agreed")
        signatures = dict(sorted(self._confirmations.items())[: self._config.quorum])
        data = self._sign(Kind.QUORUM, Quorum(signatures=signatures).head())
        return [Outgoing(client, data) for _, client in self._marked(self.survivors)]

    def accept_reveal(self, envelope: Envelope) -> None:
        """R5 of a client."""
        client = envelope.sender
        key = self._client_keys[client]["reveal-box"]
        reveal = Reveal.decode(open_box(key, envelope.head, self.public.context.round_id))
        place = self.public.places[client]
        due = set(self._live[place]) - self._disputed[client]
        if set(reveal.shares) != due:
            raise ProtocolError(f"REVEAL: client {client} sent shares of the wrong neighbours")
        self._reveals[client] = reveal
        self._transcript.append(leaf_hash(envelope.proven))

    def close_reveals(self) -> list[Outgoing]:
        """R6: the masks are removed."""
        total = self._sum.total()
        Unmasking(
            public=self.public,
            stated=self.stated,
            topology=self._topology,
            shared=self.shared,
            survivors=self.survivors,
            keys=self._keys,
            shares=self._shares,
            reveals=self._reveals,
            blame=self.blame,
        ).apply(total)
        bits = self._config.bits
        packed = pack(total, bits)
        self.result = unpack(packed, self._config.length, bits)
        tree = MerkleTree(self._transcript)
        self.transcript_root = tree.root
        places = {leaf: place for place, leaf in enumerate(self._transcript)}
        digest = sha256(packed).digest()
        signed = b""
        outgoing = []
        for _, client in self._marked(self.survivors):
            index = places[self._upload_leaves[client]]
            receipt = Result(
                digest=digest,
                root=tree.root,
                leaves=len(self._transcript),
                index=index,
                path=tree.path(index),
            )
            # The head is the same for all: signed once.
            signed = signed or self._sign(Kind.RESULT, receipt.head(), record=False)
            outgoing.append(Outgoing(client, signed + receipt.payload()))
        self.wipe()
        return outgoing

    def wipe(self) -> None:
        """Drop the sum under construction and what could unmask it."""
        self._sum.wipe()
        self._reveals.clear()
        self._shares.clear()
        self._client_keys.clear()

    def require_summable(self, survivors: BoolArray) -> set[int]:
        """Check that these clients (bool[n]) can be summed, and give the clients that sign them."""
        self._topology.require_survivors(survivors)
        for place, client in self._marked(self.shared):
            # The secrets of all survivors may be needed, and those of the others that one of them
            # has masked with.
            if survivors[place] or len(self._topology.live(place, survivors)):
                self._topology.require_live(place, client, survivors)
        if not self._config.agrees:
            return set()
        signers = {client for _, client in self._marked(self._topology.signers(survivors))}
        self._require_quorum(len(signers), "survived to agree")
        return signers

    def _require_enough(self, marks: BoolArray, what: str) -> None:
        count, needed = int(marks.sum()), self._config.min_survivors
        if count < needed:
            raise ProtocolError(f"{count} clients {what}; a sum needs {needed}")

    def _require_quorum(self, count: int, what: str) -> None:
        needed, members = self._config.quorum, self._config.committee
        if count >= needed:
            return
        who = "clients" if members is None else f"of the {members} members of the committee"
        raise ProtocolError(f"{count} {who} {what} on the survivors; it takes {needed}")

    def _marked(self, marks: BoolArray) -> list[tuple[int, int]]:
        """Place and number of the marked clients."""
        places = np.flatnonzero(marks)
        return list(zip(places.tolist(), self.public.cohort[places].tolist(), strict=True))

    def _find_live(self, marks: BoolArray) -> None:
        """Numbers of the marked neighbours, ascending, of each marked client, by place."""
        for place in np.flatnonzero(marks).tolist():
            self._live[place] = self.public.cohort[self._topology.live(place, marks)].tolist()

    def _sign(self, kind: Kind, head: bytes, *, record: bool = True) -> bytes:
        data = seal(self._identity.key, self.public.context, kind, SERVER, head)
        if record:
            self._transcript.append(leaf_hash(data))
        return data
