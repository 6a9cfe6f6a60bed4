"""The four configurations of FURL's experiments (Table 2), and a user-only ablation."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Annotated, Final

from secure_fedrec.data.user_texts import CODES
from secure_fedrec.models.settings import DocumentConfig, DocumentShape
from secure_fedrec.settings import OneOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One way to train the document model.

    Args:
        name: how commands call it.
        personal: with a user embedding.
        federated: on the devices, by FURL; else on a server that holds all texts.
        text: whether the model reads the text.
    """

    name: str
    personal: bool
    federated: bool
    text: bool = True


_ALL: Final = (
    Configuration(name="global-server", personal=False, federated=False),
    Configuration(name="personalized-server", personal=True, federated=False),
    Configuration(name="global-fl", personal=False, federated=True),
    Configuration(name="personalized-fl", personal=True, federated=True),
    Configuration(name="user-only-server", personal=True, federated=False, text=False),
    Configuration(name="user-only-fl", personal=True, federated=True, text=False),
)

CONFIGURATIONS: Final[Mapping[str, Configuration]] = MappingProxyType(
    {each.name: each for each in _ALL}
)
"""All configurations by name."""


class ConfiguredDocument(DocumentShape):
    """Settings of the document model in one of the configurations.

    Args:
        configuration: with or without a user embedding ("personalized", "global") that reads the
            text or not ("user-only"), by federated learning ("fl") or on a server ("server");
            audits take what is federated.

    Raises:
        ConfigError: a field is out of range, or there is no configuration of that name.
    """

    configuration: Annotated[str, OneOf(CONFIGURATIONS, "unknown configuration")]

    @property
    def configured(self) -> Configuration:
        """The configuration of that name."""
        return CONFIGURATIONS[self.configuration]

    def model(self, classes: int, *, users: int) -> DocumentConfig:
        """The model with so many user vectors.

        Args:
            classes: classes of the data.
            users: 1 on a device, all of them on a server or to judge a federation.
        """
        shape = {each.name: getattr(self, each.name) for each in fields(DocumentShape)}
        base = DocumentConfig(
            characters=CODES, classes=classes, text=self.configured.text, users=users, **shape
        )
        return base if self.configured.personal else replace(base, user_dim=0, users=1)
