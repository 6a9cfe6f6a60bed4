"""Senders and receivers of messages: a role and a number."""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from secure_fedrec.errors import ConfigError, WireError

SERVER_NUMBER = 2**32 - 1
"""Number of the server where messages name clients and the server alone; no client may have it."""


class Role(IntEnum):
    """What a node is; the number is its code on the wire and in files."""

    SERVER = 0
    CLIENT = 1
    AUTHORITY = 2
    DENOISER = 3
    MIX = 4


_LONE = frozenset({Role.SERVER, Role.AUTHORITY})


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A party of a protocol, by name.

    Args:
        role: role of the party.
        number: which one, 0 to 2^32 - 2; 0 for the server and the authority.

    Raises:
        ConfigError: the node is not possible.
    """

    role: Role
    number: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number < 2**32 - 1 or (self.role in _LONE and self.number):
            raise ConfigError("node.number", self.number, f"no such {self.role.name.lower()}")

    def __str__(self) -> str:
        name = self.role.name.lower()
        return f"the {name}" if self.role in _LONE else f"{name} {self.number}"


@lru_cache(maxsize=4096)
def node_of(role: int, number: int) -> Node:
    """The party that two numbers of a message name; cached, since they repeat.

    Raises:
        WireError: the numbers do not name a party.
    """
    try:
        return Node(Role(role), number)
    except (ValueError, ConfigError):
        raise WireError(f"there is no party of role {role} and number {number}") from None


SERVER = Node(Role.SERVER)
"""The one server of a federation."""

AUTHORITY = Node(Role.AUTHORITY)
"""The only holder of the key of sums, where clients do not hold it."""


def named(node: Node | int) -> Node:
    """A node, or the one that a number stands for: a client, or the server.

    Raises:
        ConfigError: no client has such a number.
    """
    if isinstance(node, Node):
        return node
    return SERVER if node == SERVER_NUMBER else Node(Role.CLIENT, node)
