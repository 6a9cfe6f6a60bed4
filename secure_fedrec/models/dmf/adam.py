"""Adam, for layers that move in every step and for rows of large tables that few batches touch.

A row that a batch does not touch has gradient 0, but Adam still moves it by its decaying mean of
slopes. A row is updated when it is next used, for all missed steps at once: with slopes of 0 the
mean, the mean of squares and so the step are geometric sequences. This only neglects that the bias
corrections and epsilon differ between these steps. (Leaving such rows where they are, as torch's
``SparseAdam`` does, makes rare items learn an order of magnitude more slowly, and one large slope
of the embedding loss then blocks a row for thousands of batches, because its mean of squares does
not decay.)
"""

import math

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.compiled import compiled_loop
from secure_fedrec.models.dmf.arrays import Course, Moving, Pace

FIRST_DECAY = 0.9  # beta_1, beta_2 and epsilon of Adam, as its paper and torch have them
SECOND_DECAY = 0.999
EPSILON = 1e-8
_FORGOTTEN = 1e-30  # smaller slopes are dropped: denormals are slow


@compiled_loop
def step_of(
    values: FloatArray, slopes: FloatArray, first: FloatArray, second: FloatArray, pace: Pace
) -> None:
    """Adam's step of some numbers."""
    rate, settled = pace
    for place in range(len(values)):
        slope = slopes[place]
        first[place] = FIRST_DECAY * first[place] + (1.0 - FIRST_DECAY) * slope
        second[place] = SECOND_DECAY * second[place] + (1.0 - SECOND_DECAY) * slope * slope
        values[place] -= rate * first[place] / (math.sqrt(second[place]) / settled + EPSILON)


@compiled_loop
def _decays_of(steps: int) -> FloatArray:
    found = np.zeros((steps + 1, 3))
    found[0, 0] = found[0, 1] = 1.0
    ratio, power = FIRST_DECAY / math.sqrt(SECOND_DECAY), 1.0
    for step in range(1, steps + 1):
        power *= ratio
        first = found[step - 1, 0] * FIRST_DECAY
        found[step, 0] = first if first > _FORGOTTEN else 0.0
        found[step, 1] = found[step - 1, 1] * SECOND_DECAY
        found[step, 2] = found[step - 1, 2] + (power if power > _FORGOTTEN else 0.0)
    return found


@compiled_loop
def course_of(powers: FloatArray, learning_rate: float, steps: int) -> Course:
    """Values that all of Adam's steps of an epoch share.

    Row k of ``decays`` holds ``b1^k``, ``b2^k`` and ``sum_{j <= k} (b1 / sqrt(b2))^j``. Entry t of
    ``ahead`` is ``sum_{j > t} rate_j settled_j (b1 / sqrt(b2))^(j - t)``.

    Args:
        powers: float64[2], of the decays, one factor per step before.
        learning_rate: of Adam.
        steps: T.
    """
    rates, settled = np.zeros(steps + 1), np.ones(steps + 1)
    one, two = powers
    for step in range(1, steps + 1):
        one *= FIRST_DECAY
        two *= SECOND_DECAY
        rates[step], settled[step] = learning_rate / (1.0 - one), math.sqrt(1.0 - two)
    ahead = np.zeros(steps + 1)
    for step in range(steps - 1, -1, -1):
        later = rates[step + 1] * settled[step + 1] + ahead[step + 1]
        ahead[step] = FIRST_DECAY / math.sqrt(SECOND_DECAY) * later
    return Course(rates, settled, _decays_of(steps), ahead)


@compiled_loop
def catch_up(model: Moving, row: int, missed: FloatArray, pace: Pace) -> None:
    """The steps of a vector since it was last seen; ``missed`` is a row of ``Course.decays``."""
    values, first, second = model.parts.vectors, model.first.vectors, model.second.vectors
    one, two, total = missed[0], missed[1], pace.rate * missed[2]
    for place in range(values.shape[1]):
        spread = math.sqrt(second[row, place]) / pace.settled + EPSILON
        values[row, place] -= total * first[row, place] / spread
        first[row, place] *= one
        second[row, place] *= two
