"""Restoring the secrets that take the masks off a sum, and naming clients that prevented it.

For every survivor the server needs the self-mask seed b: sent by the client itself, or restored
from t shares if it has gone since. For every client that shared and did not upload it needs the
mask seed s, to take off the masks that its surviving neighbours share with it. Nothing else may be
restored, and what was restored is checked before use: b against the commitment, s against the
public key that its owner signed.

Each share has a hash, under the sharer's MAC to the server and in the box of the receiver, who
checks it on arrival. A share that differs from it was altered by the responder and is left out;
shares that fit their hashes and do not fit each other were dealt wrong by the sharer, and are
corrected as a Reed-Solomon code is, as long as at most half of those beyond the threshold are
wrong. So every secret is combined once, and corrected at most once, whichever clients lie. That
convinces only the server, which has the MAC keys as well.

With the hybrid agreement a restored mask seed also gives, or opens, pair secrets. Each is held
against the hash behind its seal: another one means that a client lied when it dealt, and that the
sum cannot be unmasked, so the round ends instead of giving a wrong sum.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from itertools import islice
from typing import Literal

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.envelope import Context
from secure_fedrec.protection.masking.messages import hybrid
from secure_fedrec.protection.masking.messages.key_messages import (
    Advertisement,
    commitment_to,
    share_hash,
)
from secure_fedrec.protection.masking.messages.keys import exchange, mask_private_key, pair_key
from secure_fedrec.protection.masking.messages.pair_seal import open_pair_seal, pair_hash
from secure_fedrec.protection.masking.messages.shamir import (
    combine,
    correct,
    decode_element,
    encode_element,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A client that did not fulfil its part.

    Args:
        kind: "bad message" proved its sender and broke a rule, so the sender was dropped; "bad
            sharer" dealt shares that do not fit; "bad responder" returned another share than
            it was dealt; "disputed" says that a neighbour's shares did not open (one of the two is
            to blame); "bad seed" sent another self-mask seed than it is bound to.
        client: the client at fault (for "disputed": the client that complained).
        about: the client whose secret it is about.
    """

    kind: Literal["bad message", "bad sharer", "bad responder", "disputed", "bad seed"]
    client: int
    about: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """A secret that was shared, and what is known to check it.

    Args:
        context: the round.
        owner: the client whose secret it is.
        purpose: "mask" or "self".
        public: mask public key of the owner and, with the hybrid agreement, its mask KEM key; or
            its commitment to the self-mask seed.
        hashes: hash of the share of each neighbour, by number, as the owner gave it.
        indices: Shamir index of each neighbour, by number.
    """

    context: Context
    owner: int
    purpose: Literal["mask", "self"]
    public: bytes
    hashes: Mapping[int, bytes]
    indices: Mapping[int, int]

    def fits(self, element: int) -> bool:
        """Whether a restored secret is the one that its owner is bound to."""
        if self.purpose == "self":
            found = commitment_to(self.context, self.owner, element)
        else:
            key = mask_private_key(element, self.context, self.owner)
            found = key.public_key().public_bytes_raw()
            if len(self.public) > len(found):
                seed = encode_element(element)
                found += hybrid.KemKey(seed, "mask-kem", self.context, self.owner).public
        return compare_digest(found, self.public)

    def accepts(self, responder: int, share: bytes) -> bool:
        """Whether a returned share is the one that was dealt."""
        found = share_hash(self.context, self.purpose, self.owner, responder, share)
        return compare_digest(found, self.hashes[responder])


def restore(
    dealt: Dealt, shares: Mapping[int, bytes], *, threshold: int, blame: Callable[[Fault], None]
) -> int:
    """Restore a secret from returned shares.

    Args:
        dealt: the secret.
        shares: returned shares by responder.
        threshold: shares that determine it.
        blame: told of every client found at fault.

    Raises:
        ProtocolError: too few good shares, or too many that were dealt wrong.
    """
    name = f"the {dealt.purpose} seed of client {dealt.owner}"
    good: dict[int, int] = {}
    for responder, share in shares.items():
        if not dealt.accepts(responder, share):
            blame(Fault(kind="bad responder", client=responder, about=dealt.owner))
            continue
        try:
            good[dealt.indices[responder]] = decode_element(share)
        except ProtocolError:  # the share is as it was dealt and not a field element
            blame(Fault(kind="bad sharer", client=dealt.owner, about=dealt.owner))
    if len(good) < threshold:
        raise ProtocolError(f"{name} needs {threshold} shares, {len(good)} are good")
    element: int | None = combine(dict(islice(good.items(), threshold)))
    if element is not None and dealt.fits(element):
        return element
    blame(Fault(kind="bad sharer", client=dealt.owner, about=dealt.owner))
    element = correct(good, threshold=threshold)
    if element is not None and dealt.fits(element):
        return element
    raise ProtocolError(f"{name} was dealt in shares that do not fit each other")


def pair_keys_of(
    element: int,
    context: Context,
    owner: int,
    *,
    stated: bytes,
    partners: Mapping[int, Advertisement],
    seals: Mapping[int, bytes],
    blame: Callable[[Fault], None] = lambda _: None,
) -> dict[int, bytes]:
    """The pair keys of a client whose mask seed was restored.

    Args:
        element: its mask seed.
        context: the round.
        owner: the client.
        stated: digest of the round's statement.
        partners: advertisements of the neighbours whose masks are wanted, by number.
        seals: the sealed pair secret of each partner and the owner, by partner, whichever of the
            two sealed it (hybrid agreement only).
        blame: told of the client found at fault.

    Returns:
        Key by partner.

    Raises:
        ProtocolError: a pair secret does not open, or is not the one that was sealed.
    """
    private = mask_private_key(element, context, owner)
    kem: hybrid.KemKey | None = None
    keys = {}
    for number, keys_of in partners.items():
        shared = exchange(private, keys_of.mask_public)
        if keys_of.mask_kem:
            if owner > number and kem is None:
                kem = hybrid.KemKey(encode_element(element), "mask-kem", context, owner)
            try:
                shared += _pair_secret(element, kem, context, owner, number, seals[number])
            except ProtocolError:
                lower, higher = min(owner, number), max(owner, number)
                blame(Fault(kind="bad sharer", client=lower, about=higher))
                raise
        keys[number] = pair_key(shared, context, owner, number, stated)
    return keys


def _pair_secret(
    element: int, kem: hybrid.KemKey | None, context: Context, owner: int, number: int, seal: bytes
) -> bytes:
    """The secret that the lower of two clients sealed, by a restored seed; only it can lie."""
    if kem is not None and owner > number:
        return open_pair_seal(kem.open, context, number, owner, seal)
    secret = hybrid.pair_secret(element, context, number)
    if not compare_digest(pair_hash(context, owner, number, secret), seal[hybrid.SEALED_BYTES :]):
        raise ProtocolError(f"client {owner} sealed a pair secret that is not that of its seed")
    return secret
