"""DMF, deep matrix factorization of interactions (FedDMF, section III-A and Fig. 4).

A user and an item have a vector each, p_u and q_i in R^d. Both enter one hidden layer of h units,

    y_ui = sigmoid(w . dropout(relu(W_u p_u + W_i q_i + b)) + c),

which is a layer on the two vectors side by side. (With a layer of its own for each vector, joined
behind the ReLU, the prediction would be the sum of a number per user and one per item, so that all
users would rank items equally.) y is near 1 where the user has interacted with the item.

All parameters of one organisation are in one flat vector: the vectors of users and items, then the
layers, which have the same shape everywhere.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.models.dmf.arrays import Parts
from secure_fedrec.models.dmf.loops import score_pairs
from secure_fedrec.settings import Count, Positive, Settings, Share, Within


class DMFConfig(Settings, section="model"):
    """Form of the model.

    Args:
        width: d, values of a user's or an item's vector; even.
        hidden: h, units of the hidden layer.
        dropout: probability that a hidden unit is left out of a training step.
        spread: standard deviation of the initial vectors.

    Raises:
        ConfigError: a field is out of range.
    """

    width: Annotated[int, Within(least=2)] = 32
    hidden: Count = 64
    dropout: Share = 0.5
    spread: Positive = 0.1

    def _agree(self) -> None:
        if self.width % 2:
            raise self.refusal("width", "must be even")


@dataclass(frozen=True, slots=True, kw_only=True)
class DMF:
    """The model of one organisation.

    Args:
        config: form of the model.
        users: U.
        items: I.
    """

    config: DMFConfig
    users: int
    items: int

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        d, h = self.config.width, self.config.hidden
        return ((self.users + self.items, d), (h, 2 * d), (h,), (h + 1,))

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(map(math.prod, self._shapes))

    @property
    def layers(self) -> slice:
        """Where the layers lie in the flat vector."""
        return slice((self.users + self.items) * self.config.width, self.size)

    def parts(self, parameters: FloatArray) -> Parts:
        """The named pieces of a flat vector (views).

        Raises:
            ValueError: the vector has another length.
        """
        if parameters.shape != (self.size,):
            raise ValueError(f"parameters of shape {parameters.shape}, not ({self.size},)")
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1]
        pieces = np.split(parameters, ends)
        shaped = (part.reshape(shape) for part, shape in zip(pieces, self._shapes, strict=True))
        return Parts(*shaped)

    def items_of(self, parameters: FloatArray) -> FloatArray:
        """The item vectors of a flat vector: float64[I, d] (a view)."""
        return self.parts(parameters).vectors[self.users :]

    def scores(self, parameters: FloatArray, users: IntArray, items: FloatArray) -> FloatArray:
        """Scores of some users for item vectors, which may be another organisation's.

        Args:
            parameters: float64[P].
            users: int64[B], places of users.
            items: float64[k, d].

        Returns:
            float64[B, k], in (0, 1).

        Raises:
            ValueError: the vectors have another width.
        """
        if items.ndim != 2 or items.shape[1] != self.config.width:
            raise ValueError(f"item vectors of shape {items.shape}, not (k, {self.config.width})")
        own = self.parts(parameters)
        found = np.empty((len(users), len(items)))
        score_pairs(own.vectors[users], items, own, found)
        return found


def start_layers(config: DMFConfig, generator: np.random.Generator) -> FloatArray:
    """Layers to start from, uniform in ``1 / sqrt(inputs)`` as torch's: float64[P_layers]."""
    d, h = config.width, config.hidden
    first, last = 1.0 / math.sqrt(2 * d), 1.0 / math.sqrt(h)
    hidden = generator.uniform(-first, first, h * 2 * d + h)
    return np.concatenate([hidden, generator.uniform(-last, last, h + 1)])


def start_vectors(config: DMFConfig, rows: int, generator: np.random.Generator) -> FloatArray:
    """Normal vectors to start from: float64[rows, d]."""
    return config.spread * generator.standard_normal((rows, config.width))
