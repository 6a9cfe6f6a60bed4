"""The holders of the decryption key, and what each choice promises against which parties.

Paillier alone does not restrict which ciphertexts are decrypted: a party that may ask for
decryption can ask for any ciphertext, and any party can make a ciphertext that claims to be a sum
of many. So each way of holding the key has adversaries that it withstands, and the others are
refused when the configuration is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from secure_fedrec.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyClaim:
    """The promise of one way of holding the key.

    Args:
        hides: what is hidden, and from whom.
        assumes: under which assumptions.
    """

    hides: str
    assumes: str


_MASK_ASSUMPTIONS = (
    "a roster of signing keys that the server did not choose, and at least two honest clients; "
    "every client of the round takes part; sums of different rounds may be subtracted"
)

KEY_HOLDINGS: Mapping[tuple[str, bool, str], KeyClaim] = MappingProxyType(
    {
        ("clients", False, "curious-server"): KeyClaim(
            hides="uploads, sums and the item table from the server",
            assumes="the server follows the protocol, no client colludes with it, and no client is "
            "its own (one that is, opens everything); clients that re-encrypt see the sums",
        ),
        ("authority", False, "curious-server"): KeyClaim(
            hides="uploads from the server, which learns sums of at least the minimum of clients",
            assumes="the server follows the protocol and does not collude with the authority, "
            "which cannot tell a sum from one upload",
        ),
        ("authority", True, "curious-server"): KeyClaim(
            hides="uploads from the server and from the authority; both learn the sum",
            assumes=_MASK_ASSUMPTIONS,
        ),
        ("authority", True, "curious-server+authority"): KeyClaim(
            hides="uploads from server and authority together; they learn the sum",
            assumes=_MASK_ASSUMPTIONS,
        ),
        ("authority", True, "active-server"): KeyClaim(
            hides="uploads from a server that deviates, which learns at most the sum; it can make "
            "the sum wrong",
            assumes=_MASK_ASSUMPTIONS,
        ),
    }
)
"""Claim by (holder, masked, adversary)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHolding:
    """Settings of the key.

    Args:
        holder: "clients" (all share one private key, as in FedMF: Chai, Wang, Chen and Yang,
            "Secure federated matrix factorization", IEEE Intelligent Systems 2021) or "authority"
            (a party of its own, which decrypts sums and nothing else).
        masked: clients add pairwise masks inside the slots, so that only the sum of the whole
            cohort can be read.
        adversary: whom the round must withstand.

    Raises:
        ConfigError: the combination promises nothing; the message lists those that do.
    """

    holder: str = "clients"
    masked: bool = False
    adversary: str = "curious-server"

    def __post_init__(self) -> None:
        wanted = (self.holder, self.masked, self.adversary)
        if wanted not in KEY_HOLDINGS:
            raise ConfigError(
                "protection.paillier.holder",
                _describe(wanted),
                "the key cannot be held so against this adversary",
                map(_describe, KEY_HOLDINGS),
            )

    @property
    def claim(self) -> KeyClaim:
        """The promise of this way of holding the key."""
        return KEY_HOLDINGS[self.holder, self.masked, self.adversary]


def _describe(holding: tuple[str, bool, str]) -> str:
    holder, masked, adversary = holding
    return f"{holder}{' + pairwise masks' if masked else ''} against {adversary}"
