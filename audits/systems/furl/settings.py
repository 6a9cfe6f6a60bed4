"""Settings of FURL audits: ``[data]`` and ``[algorithm]``, on texts and on implicit feedback."""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated

from audits.systems.ratings import require_shapes_synthetic
from secure_fedrec.algorithms.furl.configurations import CONFIGURATIONS, configuration
from secure_fedrec.algorithms.furl.system import FURLConfig
from secure_fedrec.algorithms.local_training import LocalTrainingConfig
from secure_fedrec.data import DATASETS
from secure_fedrec.data.newsgroups import NewsgroupsConfig
from secure_fedrec.data.stickers import StickersConfig
from secure_fedrec.data.user_texts import CODES
from secure_fedrec.errors import renamed_keys
from secure_fedrec.models.document import DocumentConfig
from secure_fedrec.models.ncf.split import NCFSplitConfig
from secure_fedrec.settings import Count, OneOf, Settings

__all__ = [
    "DocumentSettings",
    "InteractionData",
    "NCFSettings",
    "NewsgroupsData",
    "StickersData",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsgroupsData(Settings, section="data"):
    """Posts of frequent posters; see ``NewsgroupsConfig``.

    Args:
        name: data set.
        length: characters kept of a post.
        min_posts: posters with fewer posts are left out.
    """

    name: str = "20newsgroups"
    length: int = 256
    min_posts: int = 5

    def _agree(self) -> None:
        _ = self.config(0)

    def config(self, seed: int) -> NewsgroupsConfig:
        """The same as settings of the reader."""
        return NewsgroupsConfig(length=self.length, min_posts=self.min_posts, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class StickersData(Settings, section="data"):
    """Synthetic messages and clicks; see ``StickersConfig``.

    Args:
        name: data set.
        users, messages, topics, rank, tendency, strength, base_rate, length: its shape.
    """

    name: str = "stickers"
    users: int | None = None
    messages: int | None = None
    topics: int | None = None
    rank: int | None = None
    tendency: float | None = None
    strength: float | None = None
    base_rate: float | None = None
    length: int | None = None

    def _agree(self) -> None:
        _ = self.config(0)

    def config(self, seed: int) -> StickersConfig:
        """The same as settings of the generator."""
        given = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "name" and getattr(self, field.name) is not None
        }
        return StickersConfig(seed=seed, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionData(Settings, section="data"):
    """Ratings as implicit feedback, one item per client held out.

    Args:
        name: rating table.
        negatives: sampled per interaction.
        clients, items, rank, mean_ratings, popularity_exponent, activity_sigma, noise: shape of
            the synthetic table; see ``SyntheticConfig``.

    Raises:
        ConfigError: a field is out of range, or shapes a table that is not synthetic.
    """

    name: Annotated[str, OneOf(DATASETS)] = "ml-100k"
    negatives: Count = 4
    clients: int | None = None
    items: int | None = None
    rank: int | None = None
    mean_ratings: float | None = None
    popularity_exponent: float | None = None
    activity_sigma: float | None = None
    noise: float | None = None

    def _agree(self) -> None:
        require_shapes_synthetic(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSettings(Settings, section="algorithm"):
    """FURL on the document model.

    Args:
        rounds: T.
        configuration: one of FURL's that train on the devices.
        user_dim, character_dim, hidden, mlp, pooling, dropout, user_init: of the model, see
            ``DocumentConfig``.
        local: training of a client in a round.
        decay: factor on the learning rates after every round.
        row_width: values per row of the table that the parameter vector is cut into.

    Raises:
        ConfigError: a field is out of range, or the configuration trains on a server.
    """

    rounds: int = 150
    configuration: str = "personalized-fl"
    user_dim: int = 32
    character_dim: int = 32
    hidden: int = 64
    mlp: int = 128
    pooling: str = "max"
    dropout: float = 0.2
    user_init: str = "zero"
    local: LocalTrainingConfig = field(default_factory=LocalTrainingConfig)
    decay: float = 1.0
    row_width: int = 64

    def _agree(self) -> None:
        federated = [each.name for each in CONFIGURATIONS.values() if each.federated]
        if self.configuration not in federated:
            known = self.configuration in CONFIGURATIONS
            problem = "trains on a server: nothing is sent" if known else "unknown configuration"
            raise self.refusal("configuration", problem, federated)
        with renamed_keys({"model": self.section}):
            _ = self.furl, self.model(2, users=1)

    @property
    def furl(self) -> FURLConfig:
        """The same as settings of the algorithm."""
        return FURLConfig(
            rounds=self.rounds, local=self.local, decay=self.decay, row_width=self.row_width
        )

    @property
    def personal(self) -> bool:
        """Whether there is a user embedding, which stays home."""
        return configuration(self.configuration).personal

    @property
    def reads_text(self) -> bool:
        """Whether the model reads the text, or sees the user alone."""
        return configuration(self.configuration).text

    def model(self, classes: int, *, users: int) -> DocumentConfig:
        """The model with so many user vectors.

        Args:
            classes: of the data.
            users: 1 on a device, all of them to judge a federation.
        """
        base = DocumentConfig(
            characters=CODES,
            classes=classes,
            user_dim=self.user_dim,
            character_dim=self.character_dim,
            hidden=self.hidden,
            mlp=self.mlp,
            pooling=self.pooling,
            dropout=self.dropout,
            user_init=self.user_init,
        )
        return configuration(self.configuration).model(base, users=users)


@dataclass(frozen=True, slots=True, kw_only=True)
class NCFSettings(Settings, section="algorithm"):
    """FURL on neural collaborative filtering.

    Args:
        rounds: T.
        dim, hidden, deviation: of the model, see ``NCFSplitConfig``.
        local: training of a client in a round.
        decay: factor on the learning rates after every round.
        row_width: values per row of the table that the parameter vector is cut into.

    Raises:
        ConfigError: a field is out of range.
    """

    rounds: int = 20
    dim: int = 16
    hidden: tuple[int, ...] = (32, 16)
    deviation: float = 0.1
    local: LocalTrainingConfig = field(default_factory=LocalTrainingConfig)
    decay: float = 1.0
    row_width: int = 64

    def _agree(self) -> None:
        with renamed_keys({"model": self.section}):
            _ = self.furl, self.model(1)

    @property
    def furl(self) -> FURLConfig:
        """The same as settings of the algorithm."""
        return FURLConfig(
            rounds=self.rounds, local=self.local, decay=self.decay, row_width=self.row_width
        )

    @property
    def personal(self) -> bool:
        """There is a user embedding, which stays home."""
        return True

    def model(self, items: int) -> NCFSplitConfig:
        """The model over so many items."""
        return NCFSplitConfig(
            items=items,
            dim=self.dim,
            hidden=self.hidden,
            loss="logistic",
            deviation=self.deviation,
        )
