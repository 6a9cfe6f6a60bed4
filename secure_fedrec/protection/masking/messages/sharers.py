"""Who shared their secrets, as each client was told, and the client's signature over it.

A client puts on a mask for each neighbour that it was told had shared. A server that tells clients
of different sharers decides with whom each of them masks, so a client signs the set that it masked
by (UPLOAD), its neighbours get that signature (SURVIVORS), and they help to take off its self mask
only if it is over their own set (``rules.share_due``). With the set it signs the public state that
its vector was computed from, so that no sum holds vectors of two states.

Signed: a label of its own | header of the client's UPLOAD with a head of 32 bytes | the hash.
"""

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.protection.masking.envelope import Context, Kind
from secure_fedrec.protection.session.identity import Identity, signed_by
from secure_fedrec.protection.session.public_state import labelled_hash
from secure_fedrec.protection.session.reader import encode_marks

_LABEL = b"secure-fedrec|v1|masking|sharers|"


def hash_of_sharers(shared: BoolArray, public_state: bytes) -> bytes:
    """What a client signs with its upload.

    Args:
        shared: bool[n], the clients of the cohort that shared: all of them, not neighbours alone.
        public_state: hash of the state that the vector was computed from.
    """
    return labelled_hash("shared", encode_marks(shared), public_state)


def sign_sharers(identity: Identity, context: Context, shared_hash: bytes) -> bytes:
    """A client's signature (64 bytes) over the sharers that it masked by in this round."""
    return identity.key.sign(_signed(context, identity.number, shared_hash))


def signed_sharers(
    public_key: bytes, context: Context, client: int, shared_hash: bytes, signature: bytes
) -> bool:
    """Whether a client signed in this round that it masked by these sharers.

    Args:
        public_key: the client's key on the roster.
        context: the round.
        client: its number.
        shared_hash: the sharers asked about.
        signature: what is said to be its signature.
    """
    return signed_by(public_key, _signed(context, client, shared_hash), signature)


def _signed(context: Context, client: int, shared_hash: bytes) -> bytes:
    return _LABEL + context.prefix(Kind.UPLOAD, client, shared_hash)
