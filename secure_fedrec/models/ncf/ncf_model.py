"""NCF, neural collaborative filtering, for ratings: a product of factors and a small network.

Central training only; HPFL compares its user model with it. Both parts have embeddings of their
own: the first multiplies them element by element, the second passes their concatenation through
layers of halving width; one linear map joins the two. The map's result passes a sigmoid onto the
range of the ratings.
"""

from itertools import pairwise
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.settings import Count, Filled, Settings, Share

_START = 0.05


class NCFConfig(Settings, section="ncf"):
    """Widths.

    Args:
        factors: length of every embedding. With as many factors as attributes, HPFL's ranking
            measures can be computed, although factors are unrelated to attributes.
        hidden: units of the network's layers.
        dropout: probability of a hidden value to be dropped in training.

    Raises:
        ConfigError: a field is out of range.
    """

    factors: Count = 16
    hidden: Annotated[tuple[Count, ...], Filled("needs layers of at least 1 unit")] = (32, 16)
    dropout: Share = 0.2


class NCF(nn.Module):
    """The model.

    Args:
        config: widths.
        n_users: users.
        n_items: items.
        low: lowest rating.
        high: highest rating.
    """

    def __init__(
        self, config: NCFConfig, *, n_users: int, n_items: int, low: float, high: float
    ) -> None:
        super().__init__()
        self._low, self._range = low, high - low
        self.user_factors = nn.Embedding(n_users, config.factors)
        self.item_factors = nn.Embedding(n_items, config.factors)
        self.user_inputs = nn.Embedding(n_users, config.factors)
        self.item_inputs = nn.Embedding(n_items, config.factors)
        widths = (2 * config.factors, *config.hidden)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(config.dropout)]
        self.layers = nn.Sequential(*layers)
        self.output = nn.Linear(config.factors + widths[-1], 1)
        for table in (self.user_factors, self.item_factors, self.user_inputs, self.item_inputs):
            nn.init.normal_(table.weight, std=_START)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Predicted ratings.

        Args:
            users: int64[B].
            items: int64[B].

        Returns:
            float[B], between the lowest and the highest rating.
        """
        product = self.user_factors(users) * self.item_factors(items)
        joined = torch.cat([self.user_inputs(users), self.item_inputs(items)], dim=1)
        score: Tensor = self.output(torch.cat([product, self.layers(joined)], dim=1))
        return self._low + self._range * torch.sigmoid(score).squeeze(1)

    @torch.no_grad()
    def characteristics(self) -> FloatArray:
        """Factors of every user: float64[U, factors], which are unrelated to attributes."""
        return np.asarray(self.user_factors.weight.numpy(), dtype=np.float64)
