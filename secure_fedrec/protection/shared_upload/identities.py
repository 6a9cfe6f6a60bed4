"""Signing keys of all parties of a round, for rounds in one process."""

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.protection.session import Roster


@dataclass(frozen=True, slots=True, repr=False)
class Identities:
    """Signing keys of all parties, and the roster that lists them; see ``draw``."""

    server: Ed25519PrivateKey
    denoisers: tuple[Ed25519PrivateKey, ...]
    clients: tuple[Ed25519PrivateKey, ...]
    roster: Roster

    @classmethod
    def draw(cls, *, clients: int, denoisers: int) -> "Identities":
        """Fresh keys, listed by an operator whose own key is deleted afterwards."""
        make = Ed25519PrivateKey.generate
        server = make()
        helpers, members = (tuple(make() for _ in range(many)) for many in (denoisers, clients))
        roster = Roster.sign(
            make(),
            version=1,
            server=_public(server),
            denoisers=dict(enumerate(map(_public, helpers))),
            clients=dict(enumerate(map(_public, members))),
        )
        return cls(server, helpers, members, roster)


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
