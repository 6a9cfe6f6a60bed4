"""Settings of the models that need PyTorch; reading the settings does not need it."""

from typing import Annotated

from secure_fedrec.settings import (
    Count,
    Filled,
    Natural,
    NonNegative,
    OneOf,
    Settings,
    Share,
    Within,
)

LOSSES = ("squared", "logistic")
_POOLINGS = ("max", "mean", "last")
_USER_INITS = ("zero", "normal")


class DocumentShape(Settings, section="model"):
    """Widths and choices that do not depend on the data.

    Args:
        user_dim: length of the user embedding; 0 is the global form. The paper's best are 4
            (Sticker) and 32 (Subreddit).
        character_dim: length of a character's embedding.
        hidden: units of the LSTM in each direction.
        mlp: units of the hidden layer.
        pooling: how the LSTM's outputs become one vector: "max" or "mean" over time, or the "last"
            output of each direction.
        dropout: probability of a pooled value to be dropped in training.
        user_init: the default user vector: "zero", or "normal" draws of deviation 0.1.

    Raises:
        ConfigError: a field is out of range.
    """

    user_dim: Natural = 32
    character_dim: Count = 32
    hidden: Count = 64
    mlp: Count = 128
    pooling: Annotated[str, OneOf(_POOLINGS, "unknown pooling")] = "max"
    dropout: Share = 0.2
    user_init: Annotated[str, OneOf(_USER_INITS)] = "zero"


class DocumentConfig(DocumentShape):
    """Settings of the model.

    Args:
        characters: codes of the alphabet, padding (code 0) included.
        classes: number of classes.
        text: whether the model reads the text.
        users: rows of the user embedding: 1 on a device, all users on a central server.

    Raises:
        ConfigError: a field is out of range.
    """

    characters: Annotated[int, Within(least=2)]
    classes: Annotated[int, Within(least=2)]
    text: bool = True
    users: Count = 1

    def _agree(self) -> None:
        if not self.text and not self.user_dim:
            raise self.refusal("text", "a model without user needs the text")


class NCFShape(Settings, section="model"):
    """Widths that do not depend on the data.

    Args:
        dim: length of a user's and of an item's vector.
        hidden: units of the dense layers, from the vectors to the output.
        deviation: standard deviation of the initial vectors; 0 starts all user vectors at zero.

    Raises:
        ConfigError: a field is out of range.
    """

    dim: Count = 16
    hidden: Annotated[tuple[Count, ...], Filled("needs layers of at least 1 unit")] = (32, 16)
    deviation: NonNegative = 0.1


class NCFSplitConfig(NCFShape):
    """Settings of the model.

    Args:
        items: m.
        loss: "squared" on ratings, "logistic" on implicit feedback (1 positive, 0 negative).
        centre: what an output of 0 predicts, in stars: the middle of the rating scale. For
            "logistic" it must be 0.

    Raises:
        ConfigError: a field is out of range.
    """

    items: Count
    loss: Annotated[str, OneOf(LOSSES)] = "squared"
    centre: float = 0.0

    def _agree(self) -> None:
        if self.loss == "logistic" and self.centre:
            raise self.refusal("centre", "must be 0 for log-odds")
