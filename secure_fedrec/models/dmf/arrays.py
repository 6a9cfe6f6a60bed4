"""Array groups that the loops of DMF take: named tuples, which compiled code can unpack."""

from typing import NamedTuple

from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray


class Parts(NamedTuple):
    """The named pieces of one organisation's parameters, or of their moments (views).

    Attributes:
        vectors: float64[U + I, d], of the users, then of the items.
        weights: float64[h, 2 d], of the hidden layer, user's half first.
        biases: float64[h], of the hidden layer.
        output: float64[h + 1], weights of the output and, last, its bias.
    """

    vectors: FloatArray
    weights: FloatArray
    biases: FloatArray
    output: FloatArray


class Moving(NamedTuple):
    """What Adam moves.

    Attributes:
        parts: the parameters.
        first: means of their slopes.
        second: and of the squares of these.
    """

    parts: Parts
    first: Parts
    second: Parts


class Pace(NamedTuple):
    """Length of a step of Adam, with its corrections for the start.

    Attributes:
        rate: learning rate, over that of the means.
        settled: root of that of the means of squares.
    """

    rate: float
    settled: float


class Examples(NamedTuple):
    """Pairs to learn from, in the order in which they are visited.

    Attributes:
        users: int32[N].
        items: int32[N].
        labels: float64[N], 1 where the user has interacted with the item, 0 elsewhere.
    """

    users: IndexArray
    items: IndexArray
    labels: FloatArray


class Targets(NamedTuple):
    """What item vectors are pulled towards, some vectors or none per item; constants of training.

    Attributes:
        indptr: int64[I + 1].
        vectors: float64[T, d], of length 1; one of length 0 pulls nothing.
        strength: beta.
        margin: m.
    """

    indptr: IntArray
    vectors: FloatArray
    strength: float
    margin: float


class Descent(NamedTuple):
    """How an epoch descends.

    Attributes:
        learning_rate: of Adam.
        batch_size: examples per step.
        dropout: probability that a hidden unit is left out.
        key: of the epoch's dropout.
    """

    learning_rate: float
    batch_size: int
    dropout: float
    key: int
