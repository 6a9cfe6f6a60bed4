"""One client's secrets of a round, and the keys that it agrees on with each neighbour."""

from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.envelope import Context, Kind
from secure_fedrec.protection.masking.messages import hybrid
from secure_fedrec.protection.masking.messages.key_messages import (
    Advertisement,
    ShareRecord,
    share_hashes,
)
from secure_fedrec.protection.masking.messages.keys import (
    channel_key,
    exchange,
    fresh_element,
    fresh_key,
    mask_private_key,
    open_box,
    pair_key,
    seal_box,
)
from secure_fedrec.protection.masking.messages.pair_seal import open_pair_seal, pair_hash, seal_info
from secure_fedrec.protection.masking.messages.shamir import (
    ELEMENT_BYTES,
    decode_element,
    encode_element,
    require_elements,
)
from secure_fedrec.protection.masking.messages.topology import ShareKind


class RoundSecrets:
    """What a client draws for one round; ``wipe`` forgets it.

    Wiping is best effort: Python integers and the library's key objects cannot be overwritten, only
    released, and the collector may have copied them.

    Args:
        context: the round.
        owner: the client.
        with_kem: whether keys are agreed with ML-KEM as well.
        roots: roots of a saved state; None draws them.
    """

    def __init__(
        self,
        context: Context,
        owner: int,
        *,
        with_kem: bool,
        roots: tuple[bytes, ...] | None = None,
    ) -> None:
        mask, own, channel, kem = roots or (b"",) * 4
        self.mask_element = decode_element(mask) if mask else fresh_element()
        self.self_element = decode_element(own) if own else fresh_element()
        self.mask_key = mask_private_key(self.mask_element, context, owner)
        self.channel_root = channel or fresh_key()
        self.kem_root = kem or (fresh_key() if with_kem else bytes(32))
        self.channel_key = X25519PrivateKey.from_private_bytes(self.channel_root)
        self.mask_kem: hybrid.KemKey | None = None
        self.channel_kem: hybrid.KemKey | None = None
        if with_kem:
            seed = encode_element(self.mask_element)
            self.mask_kem = hybrid.KemKey(seed, "mask-kem", context, owner)
            self.channel_kem = hybrid.KemKey(self.kem_root, "channel-kem", context, owner)

    def advertisement(self, epoch: int) -> Advertisement:
        """The public halves; the journal's generation is not known yet."""
        return Advertisement(
            epoch=epoch,
            generation=0,
            mask_public=self.mask_key.public_key().public_bytes_raw(),
            channel_public=self.channel_key.public_key().public_bytes_raw(),
            mask_kem=b"" if self.mask_kem is None else self.mask_kem.public,
            channel_kem=b"" if self.channel_kem is None else self.channel_kem.public,
        )

    @property
    def roots(self) -> tuple[bytes, ...]:
        """Root secrets, 32 bytes each, that derive all others; only for a sealed state."""
        elements = encode_element(self.mask_element), encode_element(self.self_element)
        return (*elements, self.channel_root, self.kem_root)

    def wipe(self) -> None:
        """Release everything."""
        self.__dict__.clear()


@dataclass(slots=True, kw_only=True)
class Neighbour:
    """One client's side of an edge of the graph.

    Args:
        context: the round.
        owner: this client.
        number: the neighbour.
        signer: its key on the roster.
        keys: what the neighbour advertised and signed.
        shared: X25519 secret of the two channel keys.
        own_public: this client's channel key.
        shares: shares of the neighbour's mask seed and self-mask seed; None until they are here,
            or if they did not open.
    """

    context: Context
    owner: int
    number: int
    signer: bytes
    keys: Advertisement
    shared: bytes = field(repr=False)
    own_public: bytes
    shares: tuple[bytes, bytes] | None = field(default=None, repr=False)

    @property
    def _here(self) -> tuple[int, bytes]:
        """This client's end of the channel: its number and public key."""
        return self.owner, self.own_public

    @property
    def _there(self) -> tuple[int, bytes]:
        """The neighbour's end."""
        return self.number, self.keys.channel_public

    def seal_shares(self, mask_share: int, self_share: int, pair_seal: bytes) -> bytes:
        """Encode the record that carries two shares to the neighbour.

        Args:
            mask_share: share of this client's mask seed.
            self_share: share of its self-mask seed.
            pair_seal: what ``seal_pair`` gave for the neighbour; empty where nothing is sealed.
        """
        shares = encode_element(mask_share), encode_element(self_share)
        hashes = share_hashes(self.context, self.owner, self.number, *shares)
        seal, shared = b"", self.shared
        if self.keys.channel_kem:
            secret = fresh_key()
            info = seal_info(self.context, "channel-seal", self.owner, self.number)
            seal = hybrid.seal_to(self.keys.channel_kem, secret, info)
            shared = shared + secret
        key = channel_key(shared, self.context, sender=self._here, receiver=self._there)
        header = self._header(self.owner, self.number, *hashes, pair_seal)
        box = seal_box(key, b"".join(shares), header)
        return ShareRecord(
            channel_seal=seal, box=box, mask_hash=hashes[0], self_hash=hashes[1]
        ).encode()

    def open_shares(
        self, secrets: RoundSecrets, record: ShareRecord, pair_seal: bytes
    ) -> tuple[bytes, bytes]:
        """Open the record that the neighbour sent; this checks that it made its pair seal.

        Args:
            secrets: this client's secrets.
            record: what arrived as the neighbour's record.
            pair_seal: what arrived as the neighbour's pair seal; empty where nothing is sealed.

        Returns:
            Its shares of the neighbour's mask seed and self-mask seed.

        Raises:
            ProtocolError: the neighbour did not make record and pair seal as they are, or the
                shares are not those of the hashes beside them.
        """
        shared = self.shared
        if secrets.channel_kem is not None:
            info = seal_info(self.context, "channel-seal", self.number, self.owner)
            shared = shared + secrets.channel_kem.open(record.channel_seal, info)
        key = channel_key(shared, self.context, sender=self._there, receiver=self._here)
        hashes = record.mask_hash, record.self_hash
        header = self._header(self.number, self.owner, *hashes, pair_seal)
        message = open_box(key, record.box, header)
        shares = message[:ELEMENT_BYTES], message[ELEMENT_BYTES:]
        require_elements(*shares)
        if share_hashes(self.context, self.number, self.owner, *shares) != hashes:
            raise ProtocolError(f"client {self.number} sent shares that differ from its hashes")
        return shares

    def give_share(self, due: ShareKind | None) -> bytes | None:
        """Give at most one of the two shares, once; the other is deleted.

        Args:
            due: which one (``topology.share_due``).

        Returns:
            The share, or None if none is due, none was received, or it has been given.
        """
        shares, self.shares = self.shares, None
        if shares is None or due is None:
            return None
        return shares[1 if due == "self" else 0]

    def seal_pair(self, secrets: RoundSecrets) -> bytes:
        """The lower number's contribution to a hybrid pair key, sealed to the higher; its hash."""
        secret = hybrid.pair_secret(secrets.mask_element, self.context, self.number)
        info = seal_info(self.context, "pair-seal", self.owner, self.number)
        seal = hybrid.seal_to(self.keys.mask_kem, secret, info)
        return seal + pair_hash(self.context, self.owner, self.number, secret)

    def mask_key(self, secrets: RoundSecrets, pair_seal: bytes, stated: bytes) -> bytes:
        """Key of the mask shared with the neighbour.

        Args:
            secrets: this client's secrets.
            pair_seal: what the neighbour sealed, if the agreement is hybrid and its number is the
                lower one; ``open_shares`` has taken it.
            stated: digest of the round's statement.

        Raises:
            ProtocolError: the seal does not open or hides another secret than that of its hash, or
                the neighbour's key has low order.
        """
        shared = exchange(secrets.mask_key, self.keys.mask_public)
        if secrets.mask_kem is not None:
            if self.owner < self.number:
                shared += hybrid.pair_secret(secrets.mask_element, self.context, self.number)
            else:
                kem = secrets.mask_kem
                shared += open_pair_seal(kem.open, self.context, self.number, self.owner, pair_seal)
        return pair_key(shared, self.context, self.owner, self.number, stated)

    def _header(
        self, sender: int, receiver: int, mask_hash: bytes, self_hash: bytes, pair_seal: bytes
    ) -> bytes:
        head = receiver.to_bytes(4, "little") + mask_hash + self_hash
        if pair_seal:
            # Anybody can seal to a public KEM key. The channel key, which no third party has, is
            # what tells the neighbour's seal from the server's.
            head += sha256(pair_seal).digest()
        return self.context.prefix(Kind.SHARES, sender, head)
