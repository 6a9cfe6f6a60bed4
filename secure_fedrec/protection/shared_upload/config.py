"""Settings of shared uploads."""

from typing import Annotated

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.executions import Execution
from secure_fedrec.protection.routing.sealing import KemName
from secure_fedrec.protection.shared_upload.round_context import LEAST_FLOOR
from secure_fedrec.settings import Count, Settings, Within


class SharedUploadConfig(Settings, section="protection"):
    """Settings of the layer.

    Args:
        count: number of denoisers, clients drawn once; they hold shares with the server.
        floor: fewest clients over which a sum is formed. A party that knows the uploads of c of
            them can compute a sum over floor - c.
        kem: key encapsulation of the sealed seeds, "x25519" or "mlkem768-x25519".
        execution: "simulated", or "real": run the halves over the wire.

    Raises:
        ConfigError: a field is out of range.
    """

    count: Count = 1
    floor: Annotated[int, Within(least=LEAST_FLOOR)] = 16
    kem: KemName = "x25519"
    execution: Execution = "simulated"

    def require_fits(self, n_clients: int) -> None:
        """Check the settings against the number of clients.

        Raises:
            ConfigError: more denoisers than clients, or a floor that no round can reach.
        """
        for key, value in (("count", self.count), ("floor", self.floor)):
            if value > n_clients:
                raise ConfigError(f"protection.{key}", value, f"there are {n_clients} clients")
