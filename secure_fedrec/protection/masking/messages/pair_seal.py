"""The sealed secret of a pair of clients, of the hybrid key agreement."""

from collections.abc import Callable
from hmac import compare_digest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.envelope import Context, Kind
from secure_fedrec.protection.masking.messages import hybrid
from secure_fedrec.protection.masking.messages.key_messages import (
    share_hash,
)


def pair_hash(context: Context, lower: int, higher: int, secret: bytes) -> bytes:
    """Hash by which the lower of two clients is bound to the pair secret that it seals."""
    return share_hash(context, "pair", lower, higher, secret)


def open_pair_seal(
    opens: Callable[[bytes, bytes], bytes], context: Context, lower: int, higher: int, seal: bytes
) -> bytes:
    """The pair secret that the lower of two clients sealed to the higher.

    Args:
        opens: the higher one's ``KemKey.open``.
        context: the round.
        lower: the neighbour that sealed.
        higher: to whom.
        seal: what ``Neighbour.seal_pair`` gave.

    Raises:
        ProtocolError: it does not open, or is another secret than that of its hash.
    """
    sealed, bound = seal[: hybrid.SEALED_BYTES], seal[hybrid.SEALED_BYTES :]
    secret = opens(sealed, seal_info(context, "pair-seal", lower, higher))
    if not compare_digest(pair_hash(context, lower, higher, secret), bound):
        raise ProtocolError(f"client {lower} sealed another pair secret than that of its hash")
    return secret


def seal_info(context: Context, purpose: str, sender: int, receiver: int) -> bytes:
    """What a sealed secret is bound to: the round, its sender and its receiver."""
    ends = sender.to_bytes(4, "little") + receiver.to_bytes(4, "little")
    return (
        b"secure-fedrec|v1|masking|" + purpose.encode() + context.prefix(Kind.SHARES, sender, ends)
    )
