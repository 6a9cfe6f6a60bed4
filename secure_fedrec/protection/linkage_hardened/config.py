"""Settings of linkage-hardened denoisers."""

from typing import Annotated

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.linkage_hardened.rows import row_bytes
from secure_fedrec.protection.routed_denoisers import RoutingLayerConfig
from secure_fedrec.protection.routing import LEAST_SENDERS
from secure_fedrec.settings import Unit, Within


def least_batch(*, cells: int, denoisers: int) -> int:
    """Fewest cells a mix may forward together, so that no client fills more than half a batch.

    Args:
        cells: public number of cells of each client to each denoiser.
        denoisers: number of denoisers.
    """
    return LEAST_SENDERS * cells * denoisers


class LinkageHardenedConfig(RoutingLayerConfig):
    """Settings of the layer.

    Args:
        count: number of denoisers, clients drawn once.
        cells: public number of cells that every client sends to each denoiser in a round; bounds
            the fakes of a client.
        layers: mixes a cell passes.
        cell_bytes: size of a cell; large enough for a row, 2^24 at most.
        kem: key encapsulation, "x25519" or "mlkem768-x25519".
        execution: "simulated", or "real": also run the halves and mixes, and require equal bits.

    Raises:
        ConfigError: a field is out of range.
    """

    count: Annotated[int, Within(2, 2**16 - 1, why="; one would see the fakes")] = 2
    cells: Annotated[int, Unit("cells")] = 1024
    cell_bytes: Annotated[int, Unit("bytes")] = 1024

    def _agree(self) -> None:
        most = (2**31 - 1) // least_batch(cells=1, denoisers=self.count)
        self.require_between("cells", 1, most)
        super()._agree()

    @property
    def _min_batch(self) -> int:
        return least_batch(cells=self.cells, denoisers=self.count)

    def require_fits(self, n_clients: int, *, width: int, codec: FixedPoint) -> None:
        """Check the settings against the federation.

        Raises:
            ConfigError: more denoisers than clients, or a row does not fit a cell.
        """
        if self.count > n_clients:
            raise ConfigError("protection.count", self.count, f"there are {n_clients} clients")
        lacking = row_bytes(width, codec.bytes_per_value) - self.routing.capacity
        if lacking > 0:
            raise ConfigError(
                "protection.cell_bytes",
                self.cell_bytes,
                f"must be at least {self.cell_bytes + lacking} to carry a row",
            )

    def require_cells(self, clients: IntArray, fakes: IntArray) -> None:
        """Check that the fakes of every client fit its cells; nothing is sent otherwise.

        Raises:
            ConfigError: those of some client do not.
        """
        most = int(fakes.max(initial=0))
        if most > self.cells:
            client = int(clients[int(np.argmax(fakes))])
            raise ConfigError(
                "protection.cells",
                self.cells,
                f"client {client} has {most} virtual rows; raise it for everyone, or lower rho",
            )
