"""Keys of a federation in one folder."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.files import replace_file
from secure_fedrec.protection.session import SERVER, Identity, Node, Role, Roster


def give_keys(folder: Path, clients: int) -> Ed25519PrivateKey:
    """Folders ``server`` and ``0``, ``1``, ... with keys and a roster; the operator's key."""
    nodes = {SERVER: "server"} | {Node(Role.CLIENT, n): str(n) for n in range(clients)}
    identities = {node: Identity.generate(node) for node in nodes}
    operator = Ed25519PrivateKey.generate()
    roster = Roster.of(operator, {node: each.public for node, each in identities.items()})
    for node, name in nodes.items():
        own = folder / name
        own.mkdir(mode=0o700)
        identities[node].save(own / f"{node.role.name.lower()}.identity")
        roster.save(own / "roster")
        replace_file(own / "operator.pub", roster.operator.hex().encode() + b"\n")
    return operator
