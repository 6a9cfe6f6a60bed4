"""Who looks: the parties an adversary has corrupted, and the lines it taps."""

import re
from typing import Annotated

from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import OneOf, Settings

_PARTY = re.compile(r"server|denoisers|(?:denoiser|client):\d+")


class Adversary(Settings, section="adversaries"):
    """Who looks.

    Args:
        name: short name for reports.
        corrupt: parties whose view the adversary has: "server", "denoisers" (all of them),
            "denoiser:K", "client:U".
        taps: "network" sees sizes and visible end points of every message, no payload.

    Raises:
        ConfigError: an unknown party or tap, or neither.
    """

    name: str
    corrupt: frozenset[str] = frozenset()
    taps: frozenset[Annotated[str, OneOf(("network",), "unknown tap")]] = frozenset()

    def _agree(self) -> None:
        for party in self.corrupt:
            if not _PARTY.fullmatch(party):
                choices = ("server", "denoisers", "denoiser:K", "client:U")
                raise ConfigError(self.key("corrupt"), party, "unknown party", choices)
        if not self.corrupt and not self.taps:
            raise ConfigError(self.key("corrupt"), [], "an adversary corrupts or taps something")

    def members(self, role: str) -> frozenset[int] | None:
        """Numbers of the corrupted parties of a role; None means all of them."""
        if role in self.corrupt or f"{role}s" in self.corrupt:
            return None
        prefix = f"{role}:"
        found = (party.removeprefix(prefix) for party in self.corrupt if party.startswith(prefix))
        return frozenset(int(number) for number in found)

    def has(self, role: str) -> bool:
        """Whether any party of that role is corrupted."""
        members = self.members(role)
        return members is None or bool(members)
