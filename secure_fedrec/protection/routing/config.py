"""Settings of the layer "routing"."""

from typing import Annotated

from secure_fedrec.errors import renamed_keys
from secure_fedrec.protection.base.executions import Execution
from secure_fedrec.protection.routing.directory import LEAST_SENDERS, Mixes, RoutingConfig
from secure_fedrec.protection.routing.sealing import KemName
from secure_fedrec.settings import Settings, Unit


class RoutingLayerConfig(Settings, section="protection"):
    """Settings of the layer.

    Args:
        layers: mixes a cell passes.
        cell_bytes: size of a cell; large enough for a row, 2^24 at most.
        kem: key encapsulation, "x25519" or "mlkem768-x25519".
        execution: "simulated", or "real": seal, mix and open over the wire.

    Raises:
        ConfigError: a field is out of range.
    """

    layers: Mixes = 3
    cell_bytes: Annotated[int, Unit("bytes")] = 65536
    kem: KemName = "x25519"
    execution: Execution = "simulated"

    def _agree(self) -> None:
        with renamed_keys({"routing": "protection"}):
            _ = self.routing

    @property
    def routing(self) -> RoutingConfig:
        """Sizes of the mix network.

        Denoisers' clients send different numbers of cells without a public bound, so numbers of
        cells do not tell numbers of senders: ``RoutedDenoisers.open`` counts senders, and a round
        is one batch.
        """
        return RoutingConfig(
            layers=self.layers, cell_bytes=self.cell_bytes, kem=self.kem, min_batch=LEAST_SENDERS
        )
