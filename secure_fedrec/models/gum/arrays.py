"""Array groups that the loops of GUM take: named tuples, which compiled code can unpack."""

from typing import NamedTuple

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray


class Parts(NamedTuple):
    """The named pieces of one organisation's parameters, or of their gradient.

    Attributes:
        user_embeddings: float64[U, K], Emb_u.
        item_embeddings: float64[I, K], Emb_v.
        slip: float64[I], or empty.
        guess: float64[I], or empty.
        knowledge_user: float64[K, N], KM_u.
        knowledge_item: float64[K, N], KM_v.
        relation: float64[K, K], RM.
        hidden: float64[N], HM.
    """

    user_embeddings: FloatArray
    item_embeddings: FloatArray
    slip: FloatArray
    guess: FloatArray
    knowledge_user: FloatArray
    knowledge_item: FloatArray
    relation: FloatArray
    hidden: FloatArray


class ItemAttributes(NamedTuple):
    """Attributes of the items, one list per item.

    Attributes:
        indptr: int64[I + 1].
        attributes: int64[M], ascending within an item.
    """

    indptr: IntArray
    attributes: IntArray


class Link(NamedTuple):
    """How representations become a prediction.

    Attributes:
        sigmoid: whether F passes a sigmoid.
        scale: top of the sigmoid's range.
        bent: whether R_u and R_v pass a sigmoid each.
        slip_and_guess: whether F is mixed with the item's slip and guess.
    """

    sigmoid: bool
    scale: float
    bent: bool
    slip_and_guess: bool


class Model(NamedTuple):
    """One organisation's model.

    Attributes:
        parts: its parameters (views).
        items: attributes of its items.
        link: from F to predictions.
    """

    parts: Parts
    items: ItemAttributes
    link: Link


class Records(NamedTuple):
    """Answers or ratings of one organisation.

    Attributes:
        users: int64[R].
        items: int64[R].
        scores: float64[R].
    """

    users: IntArray
    items: IntArray
    scores: FloatArray


class Moments(NamedTuple):
    """State of an optimiser.

    Attributes:
        first: float64[P], running mean of gradients; not used by SGD.
        second: float64[P], running mean of their squares; not used by SGD.
        moving: bool[U + I], embeddings that may have had a gradient other than 0; the others cannot
            move and are skipped.
    """

    first: FloatArray
    second: FloatArray
    moving: BoolArray


class Pull(NamedTuple):
    """A proximal term ``sum_j strengths_j / 2 (x_j - anchor_j)^2`` (FedProx).

    Attributes:
        strengths: float64[P]; empty without strengths.
        anchor: float64[P].
    """

    strengths: FloatArray
    anchor: FloatArray


class Descent(NamedTuple):
    """The parameters that an optimiser moves, and its settings.

    Attributes:
        parameters: float64[P].
        gradient: float64[P], empty (0) between two steps.
        moments: moments of the optimiser.
        pull: pull of the proximal term.
        adam: whether the optimiser is Adam; else SGD.
    """

    parameters: FloatArray
    gradient: FloatArray
    moments: Moments
    pull: Pull
    adam: bool
