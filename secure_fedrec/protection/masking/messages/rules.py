"""What a client accepts, and what it gives: its decisions as predicates of what it was told.

``ClientRound`` decides by these, so that whoever explores the protocol state by state asks the same
questions as the clients do. The check of the windows is ``graph.windows_hold``, whose signatures
count is ``Topology.signers``.
"""

from typing import Literal, TypeAlias

from secure_fedrec.core.arrays import BoolArray

ShareKind: TypeAlias = Literal["mask", "self"]
"""Of which of a neighbour's two secrets a share is."""


def enough_clients(marks: BoolArray, least: int) -> bool:
    """Whether so many clients (bool[n]) are marked as may hide in a sum (``min_survivors``)."""
    return int(marks.sum()) >= least


def enough_neighbours(live: int, threshold: int) -> bool:
    """Whether the neighbours that are left can restore a client's secrets."""
    return live >= threshold


def is_quorum(signatures: int, quorum: int) -> bool:
    """Whether signatures on one statement are as many as agreement takes, and no more."""
    return signatures == quorum


def share_due(*, survives: bool, same_sharers: bool) -> ShareKind | None:
    """Which of a neighbour's two shares a client gives away in a round: never both.

    The share of its mask seed if the neighbour is not in the sum. The share of its self-mask seed
    if it is in the sum *and* signed the very set of sharers that this client was told of: a
    neighbour that was told of another set put on other pair masks, and its self mask may be all
    that hides it.

    Args:
        survives: whether the neighbour is among the survivors that the quorum signed.
        same_sharers: whether the neighbour's signature over its sharers is one over this client's.

    Returns:
        "mask", "self", or None if neither is due.
    """
    if not survives:
        return "mask"
    return "self" if same_sharers else None
