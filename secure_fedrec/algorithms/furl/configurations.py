"""The four configurations of FURL's experiments (Table 2), and a user-only ablation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from secure_fedrec.errors import ConfigError
from secure_fedrec.models.document import DocumentConfig

__all__ = ["CONFIGURATIONS", "Configuration", "configuration"]


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

    def model(self, base: DocumentConfig, *, users: int) -> DocumentConfig:
        """The model's settings in this configuration.

        Args:
            base: widths; ``user_dim`` holds for personal configurations.
            users: rows of the user embedding, if there is one.
        """
        return replace(
            base,
            text=self.text,
            user_dim=base.user_dim if self.personal else 0,
            users=users if self.personal else 1,
        )


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


def configuration(name: str) -> Configuration:
    """Looks a configuration up.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in CONFIGURATIONS:
        raise ConfigError("furl.configuration", name, "unknown configuration", CONFIGURATIONS)
    return CONFIGURATIONS[name]
