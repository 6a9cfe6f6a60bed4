"""A neural rating model for split personalization: user vectors stay home, the rest is shared.

    user -> user embedding --+
                             +-> dense layers (ReLU) -> one number: a rating, or the log-odds of one
    item -> item embedding --+

The multilayer-perceptron branch of neural collaborative filtering (He et al. 2017). The user vector
is private; item vectors and dense layers are federated. On a device the user embedding has a single
row. Examples are the columns of a rating vault: ``items`` and ``ratings``, the latter 0 or 1 where
feedback is implicit.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from secure_fedrec.models.settings import NCFSplitConfig

PRIVATE = ("user_embedding.*",)
"""The private parameters of the model, as a pattern of names."""

ITEM_TABLE = "item_embedding.weight"
"""The federated parameter whose rows are the items."""


class NCFSplit(nn.Module):
    """The model; see the module docstring.

    Args:
        config: widths and choices.
        users: rows of the user embedding: 1 on a device, all users on a central server.
    """

    def __init__(self, config: NCFSplitConfig, *, users: int = 1) -> None:
        super().__init__()
        self.config = config
        self.user_embedding = nn.Embedding(users, config.dim)
        self.item_embedding = nn.Embedding(config.items, config.dim)
        nn.init.normal_(self.user_embedding.weight, std=config.deviation)
        # If all item vectors started at zero, two items could never differ.
        nn.init.normal_(self.item_embedding.weight, std=config.deviation or 0.1)
        widths = (2 * config.dim, *config.hidden)
        self.hidden = nn.ModuleList(
            nn.Linear(width, units) for width, units in zip(widths, config.hidden, strict=False)
        )
        self.output = nn.Linear(widths[-1], 1)

    def forward(self, items: Tensor, users: Tensor | None = None) -> Tensor:
        """Outputs for (user, item) pairs.

        Args:
            items: int64[B].
            users: int64[B], row of the user embedding; None is row 0, the only one on a device.

        Returns:
            float[B], ratings in stars, or log-odds.
        """
        rows = torch.zeros_like(items) if users is None else users
        values = torch.cat([self.user_embedding(rows), self.item_embedding(items)], dim=1)
        for layer in self.hidden:
            values = torch.relu(layer(values))
        outputs: Tensor = self.output(values).squeeze(1) + self.config.centre
        return outputs


def ncf_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean loss of an ``NCFSplit`` on columns ``items``, ``ratings``; at a server ``users`` too."""
    if not isinstance(model, NCFSplit):
        raise TypeError(f"expected an NCFSplit, not {type(model).__name__}")
    outputs = model(batch["items"].long(), batch.get("users"))
    wanted = batch["ratings"].to(outputs.dtype)
    if model.config.loss == "logistic":
        return functional.binary_cross_entropy_with_logits(outputs, wanted)
    return functional.mse_loss(outputs, wanted)
