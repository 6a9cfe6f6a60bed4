"""The coalitions that an audit tries: those that the claims of the stack cover, and no others.

There is one rule for every layer. Each states the coalitions that its claim covers (``Withstood``),
and others are refused: a run would not show such an adversary the keys, masks or noise that its
clients hold, and would wrongly find that it learns nothing. Covered coalitions are attacked, with
their own part subtracted from the sums (``attacks.view.coalition``).
"""

from collections.abc import Sequence

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import Withstood
from secure_fedrec.wire import Adversary


def require_withstood(
    adversaries: Sequence[Adversary], claims: Sequence[Withstood], *, n_clients: int
) -> None:
    """Refuse adversaries outside a claim, and those that leave no client to attack.

    Args:
        adversaries: adversaries of the audit.
        claims: the coalitions that the parts of the stack withstand.
        n_clients: clients of the federation.

    Raises:
        ConfigError: there is such an adversary; the choices list those that are allowed.
    """
    for adversary in adversaries:
        clients = len(adversary.members("client") or ())
        if clients >= n_clients:
            raise ConfigError(
                "adversaries.corrupt",
                adversary.name,
                f"has all {clients} clients: no client is left to attack",
                [f"at most {n_clients - 1} clients"],
            )
        for claim in claims:
            _require_covered(adversary, clients, claim)


def _require_covered(adversary: Adversary, clients: int, claim: Withstood) -> None:
    limits = {"at all": claim.alone}
    if adversary.has("server"):
        limits["with the server"] = claim.with_server
    for company, most in limits.items():
        if most is not None and clients > most:
            value = sorted(adversary.corrupt) if claim.value is None else claim.value
            raise ConfigError(
                claim.key,
                value,
                f"withstands {most} clients {company}, adversary {adversary.name!r} has {clients}: "
                f"{claim.reason}",
                [f"at most {most} clients {company}"],
            )
