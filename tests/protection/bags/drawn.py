"""Hypothesis strategies for what clients give to bags, with the corners in which channels break.

Import this module by name; it needs Hypothesis.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from secure_fedrec.blocks import TABLE
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.uploads import RowBlock, SetBlock, Upload

_CLIP = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What a federation gives to its bags in one round.

    Args:
        n_clients: clients of the federation.
        codec: the ring.
        bags: sizes by name.
        uploads: one per batch of clients; every participant is in one of them.
    """

    n_clients: int
    codec: FixedPoint
    bags: dict[str, BagShape]
    uploads: tuple[Upload, ...]


@st.composite
def collections(draw: st.DrawFn, *, least: int = 0, max_clients: int = 5) -> Collection:
    """One or two bags; clients that give nothing, all they may, or the same vector twice.

    Args:
        draw: given by Hypothesis.
        least: fewest participants.
        max_clients: most clients.

    Example: see ``assert_collected``.
    """
    bits = draw(st.sampled_from((32, 64)) | st.integers(8, 64))
    digits = draw(st.integers(0, min(bits - 4, 40)))
    codec = FixedPoint(bits=bits, fraction_bits=digits, clip=_CLIP)
    names = draw(st.sampled_from((("drafts",), ("users", "users-2"), ("b", "a"))))
    sizes = st.builds(BagShape, width=st.integers(1, 3), most=st.integers(1, 4))
    bags = {name: draw(sizes) for name in names}
    n_clients = draw(st.integers(max(1, least), max_clients))
    order = draw(st.permutations(range(n_clients)))
    present = order[: draw(st.integers(least, n_clients))]
    cuts = draw(st.sets(st.integers(1, max(1, len(present) - 1)), max_size=2))
    batches = np.split(np.array(present, dtype=np.int64), sorted(cuts))
    uploads = tuple(draw(_uploads(batch, bags)) for batch in batches if len(batch))
    return Collection(n_clients=n_clients, codec=codec, bags=bags, uploads=uploads)


@st.composite
def _uploads(draw: st.DrawFn, clients: np.ndarray, bags: dict[str, BagShape]) -> Upload:
    blocks = {}
    for name, shape in bags.items():
        lengths = [draw(st.integers(0, shape.most)) for _ in clients]
        values = [draw(_vectors(shape.width)) for _ in range(sum(lengths))]
        blocks[name] = SetBlock(
            indptr=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            values=np.array(values, dtype=np.float64).reshape(-1, shape.width),
        )
    nothing = RowBlock(
        indptr=np.zeros(len(clients) + 1, dtype=np.int64),
        rows=np.empty(0, dtype=np.int32),
        values=np.empty((0, 1)),
    )
    return Upload(clients=clients, blocks={TABLE: nothing}, bags=blocks)


def _vectors(width: int) -> st.SearchStrategy[FloatArray]:
    """Vectors that are often equal in their first values: the order is decided by the later ones.

    Halves of a ring unit, both zeros, and values below the ring's resolution are among them.
    """
    corners = st.sampled_from((0.0, -0.0, 0.5, -0.5, 1.5, 2.0**-41, _CLIP, -_CLIP))
    value = corners | st.floats(-_CLIP, _CLIP)
    return st.lists(value, min_size=width, max_size=width).map(np.array)
