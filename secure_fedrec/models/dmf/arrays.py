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
    """A model in training, with Adam's moments.

    Attributes:
        parts: parameters.
        first: means of their slopes.
        second: and of the squares.
    """

    parts: Parts
    first: Parts
    second: Parts


class Pace(NamedTuple):
    """Adam's bias corrections at a step.

    Attributes:
        rate: factor on the mean of slopes.
        settled: divisor of the root of the mean of squares.
    """

    rate: float
    settled: float


class Course(NamedTuple):
    """Values that all rows share in Adam's steps of an epoch, by number of the step; 0 is before.

    Attributes:
        rates: float64[T + 1], ``Pace.rate``.
        settled: float64[T + 1], ``Pace.settled``.
        decays: float64[T + 1, 3], after so many steps without a slope; see ``adam.course_of``.
        ahead: float64[T + 1], sum of all later steps without a slope.
    """

    rates: FloatArray
    settled: FloatArray
    decays: FloatArray
    ahead: FloatArray


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
    """Vectors that item vectors are pulled towards, any number per item; constants of training.

    Attributes:
        indptr: int64[I + 1].
        vectors: float64[T, d], of length 1; one of length 0 is ignored.
        strength: beta.
        margin: m.
        everywhere: whether all pairs count in every step (eq. 4), or only those of a batch's items.
    """

    indptr: IntArray
    vectors: FloatArray
    strength: float
    margin: float
    everywhere: bool = True


class Descent(NamedTuple):
    """How an epoch descends.

    Attributes:
        learning_rate: of Adam.
        batch_size: examples per step.
        dropout: probability that a hidden unit is left out.
        key: key of the epoch's dropout.
    """

    learning_rate: float
    batch_size: int
    dropout: float
    key: int
