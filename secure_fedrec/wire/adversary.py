"""Adversaries: the parties that they corrupt, and the traffic that they tap."""

from typing import Annotated

from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Filled, Matching, OneOf, Settings

_PARTY = Matching(
    r"server|denoisers|(?:denoiser|client):(?:0|[1-9][0-9]{0,9})",
    "unknown party",
    ("server", "denoisers", "denoiser:K", "client:U"),
)


class Adversary(Settings, section="adversaries"):
    """Who looks.

    Args:
        name: short name for reports and gates.
        corrupt: parties whose view the adversary has: "server", "denoisers" (all of them),
            "denoiser:K", "client:U".
        taps: "network" sees sizes and visible end points of every message, no payload.
        knows: what it knows beforehand: "seed", the private tables that simulated clients begin
            with, and nothing that is drawn later (virtual items, pads, noise). A deployed client
            draws all of that under a secret of its own.

    Raises:
        ConfigError: an unknown party, tap or knowledge, or neither party nor tap.
    """

    name: Annotated[str, Filled()]
    corrupt: frozenset[Annotated[str, _PARTY]] = frozenset()
    taps: frozenset[Annotated[str, OneOf(("network",), "unknown tap")]] = frozenset()
    knows: frozenset[Annotated[str, OneOf(("seed",), "unknown knowledge")]] = frozenset()

    def _agree(self) -> None:
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
