"""Merkle trees over the messages of a round (the tree hash of RFC 9162, section 2.1).

The server commits to the uploads before anything is unmasked, and to the whole round with the
result. A client checks that its own upload is under the root; two clients that compare roots
outside the protocol know whether they were told the same.
"""

from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest

from secure_fedrec.errors import ProtocolError


def leaf_hash(proven: bytes) -> bytes:
    """Leaf of a message (header, head and signature or MAC)."""
    return sha256(b"\x00" + proven).digest()


class MerkleTree:
    """The tree over some leaf hashes, at least one."""

    __slots__ = ("_levels",)

    def __init__(self, leaves: Sequence[bytes]) -> None:
        # A node without a sibling moves up unchanged: the tree of RFC 9162, level by level.
        self._levels = [list(leaves)]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            above = [_node(below[at], below[at + 1]) for at in range(0, len(below) - 1, 2)]
            if len(below) % 2:
                above.append(below[-1])
            self._levels.append(above)

    @property
    def root(self) -> bytes:
        """Root hash."""
        return self._levels[-1][0]

    def path(self, index: int) -> list[bytes]:
        """Sibling hashes from a leaf up to the root."""
        path = []
        for level in self._levels[:-1]:
            sibling = index ^ 1
            if sibling < len(level):
                path.append(level[sibling])
            index >>= 1
        return path


def require_included(
    root: bytes, leaf: bytes, *, index: int, leaves: int, path: Sequence[bytes]
) -> None:
    """Check an inclusion path.

    Args:
        root: the root.
        leaf: hash of the leaf.
        index: its place.
        leaves: leaves of the tree.
        path: what ``MerkleTree.path`` gave.

    Raises:
        ProtocolError: the path does not lead from the leaf to the root.
    """
    node, rest = leaf, list(path)
    valid = 0 <= index < leaves
    while valid and leaves > 1:
        if index ^ 1 < leaves:
            valid = bool(rest)
            if valid:
                sibling = rest.pop(0)
                node = _node(sibling, node) if index & 1 else _node(node, sibling)
        index, leaves = index >> 1, (leaves + 1) >> 1
    if not valid or rest or not compare_digest(node, root):
        raise ProtocolError("an inclusion path does not lead to the root")


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()
