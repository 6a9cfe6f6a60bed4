"""Settings of FURL audits: ``[data]`` and ``[algorithm]``, on texts and on implicit feedback."""

from dataclasses import fields
from typing import Annotated, ClassVar

from audits.rating_data import FileData, Selection, TableData, given
from secure_fedrec.algorithms.furl.configurations import CONFIGURATIONS, ConfiguredDocument
from secure_fedrec.algorithms.furl.settings import FURLConfig, FURLRounds
from secure_fedrec.data import DATASETS
from secure_fedrec.data.newsgroups import NewsgroupsConfig
from secure_fedrec.data.stickers import StickersConfig
from secure_fedrec.errors import renamed_keys
from secure_fedrec.models.settings import NCFShape, NCFSplitConfig
from secure_fedrec.settings import Count, OneOf, Rounds, Settings, Unit, Within


class NewsgroupsData(Settings, section="data"):
    """Posts of frequent posters; see ``NewsgroupsConfig``.

    Args:
        name: data set.
        length: characters kept of a post: its subject, a line feed, its body.
        min_posts: posters with fewer posts are left out: one is to train on, one to test on.
    """

    name: str = "20newsgroups"
    length: Annotated[Count, Unit("characters")] = 256
    min_posts: Annotated[int, Within(least=2), Unit("posts")] = 5

    def _agree(self) -> None:
        _ = self.config(0)

    def config(self, seed: int) -> NewsgroupsConfig:
        """The same as settings of the reader."""
        return NewsgroupsConfig(length=self.length, min_posts=self.min_posts, seed=seed)


class StickersData(Settings, section="data"):
    """Synthetic messages and clicks; the shape is that of ``StickersConfig``.

    Args:
        name: data set.
    """

    shape_of: ClassVar[type[Settings]] = StickersConfig

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
        return StickersConfig(seed=seed, **given(self, StickersConfig))


class InteractionData(Selection, TableData):
    """Ratings as implicit feedback, one item per client held out.

    The other keys are those of ``TableData`` and ``Selection``.

    Args:
        negatives: items without an interaction that are sampled per interaction, to train on.

    Raises:
        ConfigError: a field is out of range, or shapes a table that is not synthetic.
    """

    name: Annotated[str, OneOf(DATASETS, "unknown data set")] = "ml-100k"
    negatives: Count = 4


class InteractionFileData(Selection, FileData):
    """Ratings of one's own files as implicit feedback, one item per client held out.

    The other keys are those of ``RatingsFile`` and ``Selection``.

    Args:
        negatives: items without an interaction that are sampled per interaction, to train on.

    Raises:
        ConfigError: a field is out of range, or two do not agree.
    """

    negatives: Count = 4


class _FURLSettings(FURLRounds):
    """Settings of both models."""

    @property
    def furl(self) -> FURLConfig:
        """The same as settings of the algorithm."""
        return FURLConfig(**{each.name: getattr(self, each.name) for each in fields(FURLRounds)})


class DocumentSettings(ConfiguredDocument, _FURLSettings, section="algorithm"):
    """FURL on the document model; see ``ConfiguredDocument`` and ``FURLRounds``.

    Raises:
        ConfigError: a field is out of range, or the configuration trains on a server.
    """

    rounds: Rounds = 150
    configuration: Annotated[str, OneOf(CONFIGURATIONS, "unknown configuration")] = (
        "personalized-fl"
    )

    def _agree(self) -> None:
        if not self.configured.federated:
            federated = [each.name for each in CONFIGURATIONS.values() if each.federated]
            problem = "trains on a server: nothing is sent"
            raise self.refusal("configuration", problem, federated)
        with renamed_keys({"model": self.section}):
            _ = self.model(2, users=1)

    @property
    def personal(self) -> bool:
        """Whether there is a user embedding, which stays home."""
        return self.configured.personal

    @property
    def reads_text(self) -> bool:
        """Whether the model reads the text, or only the user."""
        return self.configured.text


class NCFSettings(NCFShape, _FURLSettings, section="algorithm"):
    """FURL on neural collaborative filtering; see ``NCFShape`` and ``FURLRounds``.

    Raises:
        ConfigError: a field is out of range.
    """

    rounds: Rounds = 20

    @property
    def personal(self) -> bool:
        """There is a user embedding, which stays home."""
        return True

    def model(self, items: int) -> NCFSplitConfig:
        """The model over so many items."""
        shape = {each.name: getattr(self, each.name) for each in fields(NCFShape)}
        return NCFSplitConfig(items=items, loss="logistic", **shape)
