"""FURL's document model (figure 1): a bidirectional LSTM on the text, and a user embedding.

    characters -> embedding -> bidirectional LSTM -> pooled over time --+
                                                                        +-> MLP (ReLU) -> classes
    user -> user embedding ---------------------------------------------+

The personal form has both branches, the global form only the text, and the user-only form, an
ablation, only the user. The paper does not state widths, pooling or the default user vector; chosen
here are the maximum over time (which finds a relevant word at any place), dropout between encoder
and MLP, and a user vector that starts at zero, so that an unknown user is not a special case.

Each direction is an LSTM of its own, and the backward one reads the characters of every text in
reverse. Padding does not affect a text: its result depends on its own characters, not on other
texts of the batch (a single bidirectional module would need packed sequences for that, which are
ten times as slow on a processor).
"""

from collections.abc import Mapping

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings

# isort: split
import torch
from torch import Tensor, nn

from secure_fedrec.models.lstm.model import CharacterLSTM
from secure_fedrec.models.settings import DocumentConfig

PRIVATE = ("user_embedding.*",)
"""The private parameters of the model, as a pattern of names."""

_PADDING = 0


class DocumentModel(nn.Module):
    """The model; see the module docstring.

    Args:
        config: widths and choices.
    """

    def __init__(self, config: DocumentConfig) -> None:
        super().__init__()
        self.config = config
        width = 0
        if config.text:
            self.character_embedding = nn.Embedding(
                config.characters, config.character_dim, padding_idx=_PADDING
            )
            self.forward_lstm = CharacterLSTM(config.character_dim, config.hidden)
            self.backward_lstm = CharacterLSTM(config.character_dim, config.hidden)
            self.dropout = nn.Dropout(config.dropout)
            width += 2 * config.hidden
        if config.user_dim:
            self.user_embedding = nn.Embedding(config.users, config.user_dim)
            deviation = 0.1 if config.user_init == "normal" else 0.0
            nn.init.normal_(self.user_embedding.weight, std=deviation)
            width += config.user_dim
        self.hidden = nn.Linear(width, config.mlp)
        self.output = nn.Linear(config.mlp, config.classes)

    def forward(self, text: Tensor, length: Tensor, user: Tensor | None = None) -> Tensor:
        """Scores of the classes.

        Args:
            text: uint8 or int64 [B, L], character codes, padded with 0 at the end.
            length: int64[B], characters of each text, at least 1.
            user: int64[B], row of the user embedding; None is row 0, the only one on a device.

        Returns:
            float[B, classes], before the softmax.
        """
        parts = []
        if self.config.text:
            parts.append(self.dropout(self.encode(text, length)))
        if self.config.user_dim:
            rows = torch.zeros_like(length) if user is None else user
            parts.append(self.user_embedding(rows))
        hidden = torch.relu(self.hidden(torch.cat(parts, dim=1)))
        scores: Tensor = self.output(hidden)
        return scores

    def encode(self, text: Tensor, length: Tensor) -> Tensor:
        """Representation of each text: float[B, 2 hidden]."""
        steps = int(length.max())  # nothing is computed beyond the longest text of the batch
        position = torch.arange(steps)[:, None]
        inside = position < length
        codes = text[:, :steps].T.long()
        mirror = torch.where(inside, length - 1 - position, position)
        characters = self.character_embedding.weight
        ahead = self.forward_lstm.read(characters, codes)
        back = self.backward_lstm.read(characters, codes.gather(0, mirror))
        outputs = torch.cat([ahead, back], dim=2)
        if self.config.pooling == "last":
            return outputs[length - 1, torch.arange(len(length))]
        if self.config.pooling == "mean":
            return (outputs * inside[:, :, None]).sum(0) / length[:, None]
        # Outputs of an LSTM lie between -1 and 1: padding is never the maximum.
        return outputs.masked_fill(~inside[:, :, None], -1.0).amax(0)


def document_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean cross-entropy on columns ``text``, ``length``, ``label`` and, at a server, ``user``."""
    scores = model(batch["text"], batch["length"], batch.get("user"))
    return nn.functional.cross_entropy(scores, batch["label"])
