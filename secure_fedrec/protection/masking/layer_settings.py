"""Settings of the layer "masking"."""

from fractions import Fraction
from typing import Annotated

from secure_fedrec.errors import renamed_keys
from secure_fedrec.protection.base.executions import Execution, Survivors
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.masking.config.hypergeometric import least_within
from secure_fedrec.protection.masking.config.parameters import MaskingParameters, find_parameters
from secure_fedrec.protection.masking.config.policy import SitePolicy
from secure_fedrec.protection.masking.tail_floor import TailFloor
from secure_fedrec.settings import Natural, OneOf, Settings, Share

_KEYS = {
    "masking.clients": "cohort.clients_per_round",
    "masking.corrupt": "protection.corrupt",
    "masking.dropout": "protection.corrupt",  # the other rate is not a setting here
}


class MaskingLayerConfig(Settings, section="protection"):
    """Settings of the layer.

    Args:
        execution: "simulated", or "real": run the halves, keys and signatures over the wire.
        min_survivors: fewest clients whose sum may be formed.
        tail_floor: rows of items with fewer ratings in the round are not sent; 0 or 1 sends all.
            It raises how many clients the smallest sum is over, and does not hide any of them. More
            than 1 needs a curious server: an active one would sign false counts.
        corrupt: fraction of the federation's clients that may work with the server.
        adversary: the server that is withstood, "curious" or "active".
        beacon: against an active server rounds of more than 128 clients mask on a sparse graph,
            which public randomness draws: that of the roster's "operator", one signed value a
            round; the embedded engine draws it itself. "none" allows complete graphs only.

    Raises:
        ConfigError: a field is out of range.
    """

    execution: Execution = "simulated"
    min_survivors: Survivors = 3
    tail_floor: Natural = 0
    corrupt: Share = 0.1
    adversary: Adversary = "curious"
    beacon: Annotated[str, OneOf(("none", "operator"))] = "none"

    def _agree(self) -> None:
        if self.beacon != "none" and self.adversary != "active":
            raise self.refusal("beacon", "has no effect against a curious server")
        if self.floor is not None:
            TailFloor.require_curious(self.adversary, key="protection.adversary")

    @property
    def floor(self) -> TailFloor | None:
        """The two rounds, if rows below a floor are not sent."""
        return TailFloor(floor=self.tail_floor) if self.tail_floor > 1 else None

    @property
    def policy(self) -> SitePolicy:
        """The conditions of every client of the protocol."""
        return SitePolicy(
            adversary=self.adversary, corrupt=self.corrupt, min_survivors=self.min_survivors
        )

    def parameters(self, cohort: int, n_clients: int) -> MaskingParameters:
        """The protocol's parameters for rounds of that many clients.

        Raises:
            ConfigError: such rounds do not have settings that meet the bounds.
        """
        with renamed_keys(_KEYS, {"protection.corrupt": self.corrupt}):
            return find_parameters(
                cohort,
                corrupt=self.corrupt,
                dropout=self.policy.dropout,
                adversary=self.adversary,
                roster=n_clients if n_clients > cohort else None,
            )

    def corrupt_clients(self, *, cohort: int, n_clients: int) -> int:
        """Clients of a round that may work with the server.

        All of the federation's where all clients take part; a random cohort may hold more than its
        share of them, and exceeds this number with probability 2^-41.
        """
        marked = int(Fraction(repr(self.corrupt)) * n_clients)
        if cohort >= n_clients:
            return marked
        return max(0, least_within(n_clients, marked, cohort, Fraction(1, 2**41)) - 1)
