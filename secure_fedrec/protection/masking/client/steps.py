"""The steps of one client in one round, and the rules that it holds the server to.

Each step takes an envelope that is known to be the server's, checks all of it, and only then
computes the answer. A broken rule raises ``ProtocolError``; the caller (``client``) then aborts,
or, at SETUP, refuses.
"""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ProtocolError, RefusalError
from secure_fedrec.fixedpoint import pack
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking.client.secrets import Neighbour, RoundSecrets
from secure_fedrec.protection.masking.config.policy import (
    EncodedVector,
    Expected,
    SitePolicy,
    require_fitting,
)
from secure_fedrec.protection.masking.envelope import (
    MAC_PURPOSES,
    SIGNATURE_BYTES,
    Envelope,
    Kind,
    seal,
    seal_for_server,
    verify,
)
from secure_fedrec.protection.masking.messages.key_messages import (
    Advertisement,
    Boxes,
    Keys,
    Setup,
    ShareRecord,
    Shares,
    commitment_to,
)
from secure_fedrec.protection.masking.messages.keys import exchange, seal_box, self_key, server_keys
from secure_fedrec.protection.masking.messages.shamir import encode_element, split
from secure_fedrec.protection.masking.messages.sum_messages import (
    Quorum,
    Result,
    Reveal,
    Survivors,
    Upload,
    confirmed_hash,
    hash_of_sharers,
    leaf_hash,
    require_included,
    sign_sharers,
    signed_sharers,
)
from secure_fedrec.protection.masking.messages.topology import (
    PublicRound,
    Topology,
    enough_clients,
    is_quorum,
    share_due,
)
from secure_fedrec.protection.session.roster import Identity, Roster


class ClientRound:
    """One client's side of a round, from SETUP to RESULT.

    Args:
        identity: the client's signing key.
        roster: the roster.
        policy: conditions of the site.
        expected: facts that the SETUP of the round must match.
        beacons: public randomness observed so far, by epoch.
        setup: the SETUP message.
        roots: of the secrets, where a saved state is gone on with: the round's beacon may be known
            by then, and all else is asked of the setup again.

    Raises:
        ProtocolError: the setup breaks a rule.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        roster: Roster,
        policy: SitePolicy,
        expected: Expected,
        beacons: Mapping[int, bytes],
        setup: Envelope,
        roots: tuple[bytes, ...] | None = None,
    ) -> None:
        setup.require_no_payload()
        proposed = Setup.decode(setup.head, expected.config)
        self.public = PublicRound.of(proposed, setup.context)
        self.config = proposed.config
        self._identity = identity
        self._roster = roster
        if setup.context.roster_hash != roster.hash or proposed.roster_version != roster.version:
            raise ProtocolError("SETUP: another roster")
        policy.for_round(expected, self.config, roster).require(self.config, roster)
        self._require_expected(policy, expected, beacons)
        if roots is None:
            self.public.require_fresh_epoch(beacons)
        self._number = identity.number
        if self._number not in self.public.places:
            raise ProtocolError(f"SETUP: client {self._number} is not in the cohort")
        self._place = self.public.places[self._number]
        context = self.public.context
        self._secrets = RoundSecrets(
            context, self._number, with_kem=self.config.hybrid, roots=roots
        )
        self._own = self._secrets.advertisement(self.public.epoch)
        self._server_keys: dict[str, bytes] = {}
        self._neighbours: dict[int, Neighbour] = {}
        self._topology: Topology
        self._advertised: BoolArray
        self._shared: BoolArray
        self._shared_hash: bytes
        self._shared_signatures: Mapping[int, bytes]
        self._upload_leaf: bytes
        self._confirmed: bytes
        self.survivors: BoolArray
        self.result: Result

    def advertise(self, generation: int) -> bytes:
        """R1: this client's public keys, and how many rounds its journal has begun."""
        return self._sign(Kind.ADVERTISE, replace(self._own, generation=generation).head())

    def share(self, envelope: Envelope, beacon: bytes | None) -> bytes:
        """R2: shares of both secrets for each neighbour that advertised.

        Args:
            envelope: KEYS.
            beacon: the observed beacon of the round's epoch; None where a beacon is not due.
        """
        self._take_keys(envelope, beacon)
        head = self._share_secrets(self._neighbours).head()
        return self._for_server(Kind.SHARES, head)

    def _take_keys(self, envelope: Envelope, beacon: bytes | None) -> None:
        keys = Keys.decode(envelope.head, envelope.payload, self.config)
        if self.public.beacon_due and keys.beacon != beacon:
            raise RefusalError("KEYS: not the beacon that was observed")
        topology = self.public.topology(keys.beacon)
        if not keys.advertised[self._place]:
            raise ProtocolError(f"KEYS: client {self._number} is missing")
        live = topology.require_live(self._place, self._number, keys.advertised)
        self.public.require_neighbours("KEYS", live, keys.records)
        neighbours = self._agree(keys.records, self._roster.keys_of(self.public.cohort[live]))
        self._topology = topology
        self._advertised = keys.advertised
        self._neighbours = neighbours

    def peers(self) -> dict[int, tuple[bytes, int]]:
        """Signing key and journal generation of each neighbour that advertised, by number."""
        return {
            number: (neighbour.signer, neighbour.keys.generation)
            for number, neighbour in self._neighbours.items()
        }

    def upload(self, envelope: Envelope, vector: EncodedVector | None, stated: bytes) -> bytes:
        """R3: the vector under the self mask and one mask per neighbour that shared.

        Args:
            envelope: BOXES.
            vector: the vector to be sent.
            stated: digest of the statement that it was computed from.
        """
        boxes = Boxes.decode(envelope.head, envelope.payload, self._number, self.config)
        shared = boxes.shared
        if np.any(shared & ~self._advertised):
            raise ProtocolError("BOXES: a client shared that did not advertise")
        if not shared[self._place]:
            raise ProtocolError(f"BOXES: client {self._number} is missing")
        if not enough_clients(shared, self.config.min_survivors):
            raise ProtocolError(
                f"BOXES: {int(shared.sum())} clients; a sum needs {self.config.min_survivors}"
            )
        live = self._topology.require_live(self._place, self._number, shared)
        self.public.require_neighbours("BOXES", live, boxes.records)
        if vector is None:
            raise ProtocolError("BOXES: no vector was loaded")
        require_fitting(vector, self.config)
        disputed = self._open_shares(boxes)
        packed = self._masked(vector, boxes, stated)
        self._shared_hash = hash_of_sharers(shared, stated)
        head = Upload(
            shared_hash=self._shared_hash,
            shared_signature=sign_sharers(self._identity, self.public.context, self._shared_hash),
            digest=sha256(packed).digest(),
            disputed=disputed,
        ).head()
        message = self._for_server(Kind.UPLOAD, head, packed)
        self._shared = shared
        self._upload_leaf = leaf_hash(Envelope.decode(message).proven)
        return message

    def confirm(self) -> list[bytes]:
        """R4: a signature on the survivors; None for a client that is not on the committee."""
        if not self._topology.signers(self.survivors)[self._place]:
            return []
        return [self._sign(Kind.CONFIRM, self._confirmed)]

    def take_survivors(self, envelope: Envelope) -> None:
        """Check the survivors: the only set that this client will ever help to unmask."""
        told = Survivors.decode(envelope.head, envelope.payload, self.config)
        survivors = told.survivors
        if np.any(survivors & ~self._shared):
            raise ProtocolError("SURVIVORS: a survivor that did not share")
        if not survivors[self._place]:
            raise ProtocolError(f"SURVIVORS: client {self._number} uploaded and is missing")
        self._topology.require_survivors(survivors)
        live = self._topology.require_live(self._place, self._number, survivors)
        if not told.shared_signatures.keys() <= set(self.public.cohort[live].tolist()):
            raise ProtocolError("SURVIVORS: a signature of no surviving neighbour")
        require_included(
            told.root,
            self._upload_leaf,
            index=int(survivors[: self._place].sum()),
            leaves=int(survivors.sum()),
            path=told.path,
        )
        self.survivors = survivors
        self._shared_signatures = told.shared_signatures
        self._confirmed = confirmed_hash(
            survivors, self._shared_hash, told.root, self._topology.seed
        )

    def take_quorum(self, envelope: Envelope) -> None:
        """Check that a quorum has signed the same survivors."""
        envelope.require_no_payload()
        quorum = Quorum.decode(envelope.head)
        needed, signers = self.config.quorum, self._topology.signers(self.survivors)
        if not is_quorum(len(quorum.signatures), needed):
            raise ProtocolError(
                f"QUORUM: {len(quorum.signatures)} signatures; agreement takes {needed}"
            )
        places = self.public.places
        for number, signature in quorum.signatures.items():
            if number not in places or not signers[places[number]]:
                raise ProtocolError(f"QUORUM: client {number} is not a survivor that may sign")
            key, context = self._roster.key_of(number), self.public.context
            verify(key, context, Kind.CONFIRM, number, self._confirmed, signature)

    def reveal(self) -> bytes:
        """R5: the own self-mask seed, and at most one share per neighbour: never both."""
        shares = {}
        for number, neighbour in self._neighbours.items():
            survives = bool(self.survivors[self.public.places[number]])
            same = survives and self._masked_alike(neighbour)
            share = neighbour.give_share(share_due(survives=survives, same_sharers=same))
            if share is not None:
                shares[number] = share
        seed = encode_element(self._secrets.self_element)
        message = Reveal(self_seed=seed, shares=shares).encode()
        head = seal_box(self._server_key("reveal-box"), message, self.public.context.round_id)
        return self._for_server(Kind.REVEAL, head)

    def finish(self, envelope: Envelope) -> None:
        """R6: the receipt must show this client's upload in the transcript."""
        result = Result.decode(envelope.head, envelope.payload)
        require_included(
            result.root,
            self._upload_leaf,
            index=result.index,
            leaves=result.leaves,
            path=result.path,
        )
        self.result = result

    def wipe(self) -> None:
        """Release what could open this client's mask or a neighbour's."""
        self._secrets.wipe()
        self._server_keys.clear()
        self._neighbours.clear()

    def _require_expected(
        self, policy: SitePolicy, expected: Expected, beacons: Mapping[int, bytes]
    ) -> None:
        config, public = self.config, self.public
        if config.layout_hash != expected.layout_hash:
            raise ProtocolError("SETUP: another layout than expected")
        if config.statement != expected.stated:
            raise ProtocolError("SETUP: another statement than expected")
        known = expected.config
        if known is not None and config.length != known.length:
            raise ProtocolError(f"SETUP: vectors of {config.length} words, not {known.length}")
        if config.min_survivors < expected.min_survivors:
            raise ProtocolError(f"SETUP: fewer than {expected.min_survivors} survivors would do")
        if expected.cohort is None:
            before = beacons.get(public.epoch - 1) if public.epoch else None
            policy.require_cohort(public.cohort, self._roster, beacon=before)
        elif not np.array_equal(public.cohort, expected.cohort):
            raise ProtocolError("SETUP: another cohort than expected")

    def _agree(
        self, records: Mapping[int, bytes], signers: Mapping[int, bytes]
    ) -> dict[int, Neighbour]:
        """Verify the neighbours' advertisements and agree on channels."""
        context, neighbours = self.public.context, {}
        seen = {self._own.mask_public, self._own.channel_public}
        for number, record in records.items():
            head, signature = record[:-SIGNATURE_BYTES], record[-SIGNATURE_BYTES:]
            signer = signers[number]
            verify(signer, context, Kind.ADVERTISE, number, head, signature)
            keys = Advertisement.decode(head, self.config)
            if keys.epoch != self.public.epoch:
                raise ProtocolError(f"KEYS: client {number} advertised for another epoch")
            publics = {keys.mask_public, keys.channel_public}
            if len(publics) < 2 or publics & seen:
                raise ProtocolError(f"KEYS: client {number} advertised a key twice")
            seen |= publics
            neighbours[number] = Neighbour(
                context=context,
                owner=self._number,
                number=number,
                signer=signer,
                keys=keys,
                shared=exchange(self._secrets.channel_key, keys.channel_public),
                own_public=self._own.channel_public,
            )
        return neighbours

    def _share_secrets(self, neighbours: Mapping[int, Neighbour]) -> Shares:
        secrets, threshold = self._secrets, self.config.threshold
        indices = [self.public.places[number] + 1 for number in neighbours]
        mask_shares = split(secrets.mask_element, threshold=threshold, indices=indices)
        self_shares = split(secrets.self_element, threshold=threshold, indices=indices)
        higher = [number for number in neighbours if number > self._number]
        seals = {
            number: neighbours[number].seal_pair(secrets)
            for number in (higher if self.config.hybrid else [])
        }
        records = {
            number: neighbour.seal_shares(mask_share, self_share, seals.get(number, b""))
            for (number, neighbour), mask_share, self_share in zip(
                neighbours.items(), mask_shares, self_shares, strict=True
            )
        }
        return Shares(
            commitment=commitment_to(self.public.context, self._number, secrets.self_element),
            records=records,
            seals=seals,
        )

    def _open_shares(self, boxes: Boxes) -> IntArray:
        """Open the shares of the neighbours; int64[...], those whose shares are unusable.

        A neighbour that sends bad shares harms recovery, not privacy: it is named, and the round
        goes on with the others. But if a sealed pair secret came with them, nothing else shows that
        it is the neighbour's: the server may know the mask that is made with it.

        Raises:
            ProtocolError: shares that came with a sealed pair secret are unusable.
        """
        disputed = []
        for number, record in boxes.records.items():
            neighbour, pair_seal = self._neighbours[number], boxes.seals.get(number, b"")
            try:
                neighbour.shares = neighbour.open_shares(
                    self._secrets, ShareRecord.decode(record), pair_seal
                )
            except ProtocolError as error:
                if pair_seal:
                    raise ProtocolError(
                        f"BOXES: nothing shows that the pair secret is client {number}'s: {error}"
                    ) from None
                disputed.append(number)
        return np.array(disputed, dtype=np.int64)

    def _masked(self, vector: EncodedVector, boxes: Boxes, stated: bytes) -> memoryview:
        words = vector.words.copy()
        context = self.public.context
        add = [self_key(self._secrets.self_element, context, self._number, stated)]
        subtract: list[bytes] = []
        for number in boxes.records:
            seal = boxes.seals.get(number, b"")
            key = self._neighbours[number].mask_key(self._secrets, seal, stated)
            (add if self._number < number else subtract).append(key)
        expander = MaskExpander()
        expander.apply(words, add=add, subtract=subtract)
        expander.wipe()
        return pack(words, self.config.bits)

    def _masked_alike(self, neighbour: Neighbour) -> bool:
        """Whether a neighbour is known to have masked by the same sharers as this client."""
        number, context = neighbour.number, self.public.context
        signature = self._shared_signatures.get(number, b"")
        return signed_sharers(neighbour.signer, context, number, self._shared_hash, signature)

    def _server_key(self, purpose: str) -> bytes:
        server = self.public.server_channel
        if not self._server_keys:
            self._server_keys = server_keys(
                exchange(self._secrets.channel_key, server),
                self.public.context,
                self._number,
                (self._own.channel_public, server),
            )
        return self._server_keys[purpose]

    def _for_server(self, kind: Kind, head: bytes, payload: memoryview | bytes = b"") -> bytes:
        key = self._server_key(MAC_PURPOSES[kind])
        return seal_for_server(key, self.public.context, kind, self._number, head, payload)

    def _sign(self, kind: Kind, head: bytes) -> bytes:
        return seal(self._identity.key, self.public.context, kind, self._number, head)
