"""NCD, neural cognitive diagnosis: predicts answers of students to questions with concepts.

Central training only; HPFL compares its user model with it. With h_s the student's proficiency and
h_d the question's difficulty on each of K concepts, a_v the multi-hot concepts of the question and
e its discrimination,

    x = a_v * (sigmoid(h_s) - sigmoid(h_d)) * e        y = MLP(x)

The layers of the MLP have no negative weight, so a right answer never becomes less likely with a
larger h_s, which can therefore be read as proficiency.
"""

from itertools import pairwise
from typing import Annotated

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings

# isort: split
import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.settings import Count, Filled, Settings, Share

# A discrimination of 1 would not separate users: NCD's authors scale it so.
_DISCRIMINATION = 10.0


class NCDConfig(Settings, section="ncd"):
    """Widths.

    Args:
        hidden: units of the hidden layers.
        dropout: probability of a hidden value to be dropped in training.

    Raises:
        ConfigError: a field is out of range.
    """

    hidden: Annotated[tuple[Count, ...], Filled("needs layers of at least 1 unit")] = (256, 128)
    dropout: Share = 0.5


class NonNegativeLinear(nn.Linear):
    """A linear layer that uses the magnitudes of its weights."""

    def forward(self, values: Tensor) -> Tensor:
        """float[B, out] of float[B, in]."""
        return nn.functional.linear(values, self.weight.abs(), self.bias)


class NCD(nn.Module):
    """The model.

    Args:
        config: widths.
        n_users: students.
        attributes: bool[questions, K], their concepts.
    """

    def __init__(self, config: NCDConfig, *, n_users: int, attributes: BoolArray) -> None:
        super().__init__()
        n_items, concepts = attributes.shape
        self.register_buffer("_attributes", torch.from_numpy(attributes).float(), persistent=False)
        self.proficiency = nn.Embedding(n_users, concepts)
        self.difficulty = nn.Embedding(n_items, concepts)
        self.discrimination = nn.Embedding(n_items, 1)
        widths = (concepts, *config.hidden)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [NonNegativeLinear(inputs, outputs), nn.Sigmoid(), nn.Dropout(config.dropout)]
        self.layers = nn.Sequential(*layers, NonNegativeLinear(widths[-1], 1))
        for name, weight in self.named_parameters():
            if name.endswith("weight"):
                nn.init.xavier_normal_(weight)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Probability of a right answer.

        Args:
            users: int64[B].
            items: int64[B].

        Returns:
            float[B], in (0, 1).
        """
        ahead = torch.sigmoid(self.proficiency(users)) - torch.sigmoid(self.difficulty(items))
        scale = _DISCRIMINATION * torch.sigmoid(self.discrimination(items))
        attributes = self.get_buffer("_attributes")
        scores: Tensor = self.layers(attributes[items] * ahead * scale)
        return torch.sigmoid(scores).squeeze(1)

    @torch.no_grad()
    def characteristics(self) -> FloatArray:
        """Proficiency of every student on every concept: float64[U, K], in (0, 1)."""
        return np.asarray(torch.sigmoid(self.proficiency.weight).numpy(), dtype=np.float64)
