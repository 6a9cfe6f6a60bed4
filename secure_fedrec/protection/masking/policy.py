"""What a site insists on before it takes part: settled at the site, never by the server.

The server proposes a configuration; each client holds it against its own policy. A client that
assumes a fraction of corrupt clients finds the safe parameters itself (``find_parameters``) instead
of trusting the proposed ones.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np

from secure_fedrec.arrays import IntArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking.config import KeyAgreement, MaskingConfig
from secure_fedrec.protection.masking.formats import labelled_hash
from secure_fedrec.protection.masking.graph import permutation
from secure_fedrec.protection.masking.parameters import (
    Adversary,
    MaskingParameters,
    find_parameters,
)
from secure_fedrec.protection.masking.roster import Roster

__all__ = ["CohortRule", "Expected", "SitePolicy", "draw_cohort"]

CohortRule: TypeAlias = Literal["roster", "beacon", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolicy:
    """Conditions of a client.

    Args:
        adversary: "active" refuses rounds that only withstand a curious server.
        corrupt: largest fraction of corrupt clients the site reckons with.
        dropout: largest fraction of dropouts that the parameters may be made for.
        min_survivors: fewest vectors among which the site's own may be hidden.
        cohort: where the clients of a round come from: "roster" (all of it), "beacon" (drawn by
            public randomness), or "server" (its free choice: for a curious server only, because an
            active one would surround a client with corrupt ones).
        key_agreement: "x25519+mlkem768" refuses rounds without ML-KEM.

    Raises:
        ConfigError: a setting is out of range, or an active server may choose the cohort.
    """

    adversary: Adversary = "active"
    corrupt: float = 0.1
    dropout: float = 0.1
    min_survivors: int = 3
    cohort: CohortRule = "roster"
    key_agreement: KeyAgreement = "x25519"

    def __post_init__(self) -> None:
        for key, choices in (
            ("adversary", get_args(Adversary)),
            ("cohort", get_args(CohortRule)),
            ("key_agreement", get_args(KeyAgreement)),
        ):
            if getattr(self, key) not in choices:
                raise ConfigError(f"policy.{key}", getattr(self, key), "is unknown", choices)
        for key in ("corrupt", "dropout"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"policy.{key}", getattr(self, key), "must be in [0, 1)")
        if self.min_survivors < 2:
            raise ConfigError("policy.min_survivors", self.min_survivors, "must be at least 2")
        if self.adversary == "active" and self.cohort == "server":
            raise ConfigError(
                "policy.cohort",
                self.cohort,
                "lets an active server choose its victims",
                choices=("roster", "beacon"),
            )

    def require(self, config: MaskingConfig, roster: Roster) -> None:
        """Check a proposed configuration.

        Raises:
            ProtocolError: it promises less than this site asks for.
        """
        if self.adversary == "active":
            if config.adversary != "active":
                raise ProtocolError("SETUP: this site takes part only against an active server")
            if roster.server == roster.operator:
                raise ProtocolError("SETUP: the operator of the roster must not be the server")
        if self.key_agreement != "x25519" and not config.hybrid:
            raise ProtocolError("SETUP: this site asks for the hybrid key agreement")
        if config.min_survivors < self.min_survivors:
            raise ProtocolError(
                f"SETUP: sums over {config.min_survivors} clients; this site asks for "
                f"{self.min_survivors}"
            )
        safe = self._parameters(config, roster)
        if config.corrupt_clients < safe.corrupt_clients:
            raise ProtocolError(
                f"SETUP: withstands {config.corrupt_clients} corrupt clients; this site reckons "
                f"with {safe.corrupt_clients}"
            )
        if config.degree is not None:
            _require_sparse(config, safe)

    def require_cohort(self, cohort: IntArray, roster: Roster, *, beacon: bytes | None) -> None:
        """Check who was chosen.

        Args:
            cohort: int64[n], ascending.
            roster: the roster.
            beacon: public randomness of the epoch before the round's, if known.

        Raises:
            ProtocolError: the cohort is not the one that the site's rule gives.
        """
        if self.cohort == "server":
            expected = cohort[np.isin(cohort, roster.numbers)]
        elif self.cohort == "roster":
            expected = roster.numbers
        elif beacon is None:
            raise ProtocolError("SETUP: the beacon that draws the cohort has not been observed")
        else:
            expected = draw_cohort(beacon, roster, min(len(cohort), len(roster.numbers)))
        if not np.array_equal(cohort, expected):
            raise ProtocolError(f"SETUP: not the cohort of the rule {self.cohort!r}")

    def _parameters(self, config: MaskingConfig, roster: Roster) -> MaskingParameters:
        drawn = self.cohort == "beacon"
        try:
            return _safe_parameters(
                config.clients,
                self.corrupt,
                # Dropouts matter to the privacy of a sparse graph alone.
                0.0 if config.degree is None else self.dropout,
                config.adversary,
                max(len(roster.numbers), config.clients) if drawn else None,
                config.degree is None,
            )
        except ConfigError as error:
            raise ProtocolError(f"SETUP: no parameters are safe at this site: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """What a client knows of the round from elsewhere; a SETUP that differs aborts it.

    Args:
        layout_hash: layout of the vector it is going to upload.
        public_state: hash of the state (the model) it computes the vector from.
        cohort: int64[n], the clients that must take part; None leaves it to the policy's rule.
        min_survivors: fewest vectors that may be summed, if more than the policy asks for.
        corrupt_clients: corrupt clients to withstand, if more than the policy reckons with.
    """

    layout_hash: bytes
    public_state: bytes = bytes(32)
    cohort: IntArray | None = None
    min_survivors: int = 0
    corrupt_clients: int = 0


def draw_cohort(beacon: bytes, roster: Roster, clients: int) -> IntArray:
    """The cohort that public randomness draws from the roster.

    Neither the round's identity nor anything else that the server chooses goes into the draw.

    Args:
        beacon: public randomness of the epoch before the round's.
        roster: the roster.
        clients: clients to draw.

    Returns:
        int64[clients], ascending.
    """
    order = permutation(labelled_hash("cohort-draw", beacon, roster.hash), len(roster.numbers))
    return np.sort(roster.numbers[order[:clients]])


def _require_sparse(config: MaskingConfig, safe: MaskingParameters) -> None:
    """A larger degree alone is not safer: it meets more corrupt neighbours. So it must be equal."""
    window = safe.window_least or 0
    if (
        config.degree != safe.degree
        or not safe.threshold_least <= config.threshold <= safe.threshold_most
        or (config.window_least or 0) < window
        or config.min_survivors < safe.min_survivors
    ):
        raise ProtocolError(
            f"SETUP: the graph (degree {config.degree}, threshold {config.threshold}, window "
            f"{config.window_least}, survivors {config.min_survivors}) is not the safe one of this "
            f"site (degree {safe.degree}, threshold {safe.threshold_least} to "
            f"{safe.threshold_most}, window {window}, survivors {safe.min_survivors})"
        )


@lru_cache(maxsize=32)
def _safe_parameters(
    clients: int,
    corrupt: float,
    dropout: float,
    adversary: Adversary,
    roster: int | None,
    complete: bool,
) -> MaskingParameters:
    return find_parameters(
        clients,
        corrupt=corrupt,
        dropout=dropout,
        adversary=adversary,
        roster=roster,
        complete_up_to=clients if complete else 128,
    )
