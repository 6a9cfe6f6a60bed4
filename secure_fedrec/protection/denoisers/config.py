"""Settings of the denoisers, and who denoises for whom."""

from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Settings
from secure_fedrec.streams import Stream


class DenoisersConfig(Settings, section="protection"):
    """Settings of the layer.

    Args:
        count: eta, number of denoisers, clients drawn once; 1 to half of the clients. A client is
            bound to one of them, and sits out of rounds to which that one is not invited.
    """

    count: int = 1

    def require_fits(self, n_clients: int) -> None:
        """Check eta against the number of clients.

        Raises:
            ConfigError: eta below 1 or above n / 2. A denoiser without ordinary clients would send
                only its own rows and expose its rated set.
        """
        if not 1 <= self.count <= n_clients // 2:
            raise ConfigError(
                "protection.count",
                self.count,
                f"must be between 1 and half of the {n_clients} clients ({n_clients // 2}); a "
                "spare denoiser would expose its own rated items",
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Binding:
    """Which denoiser serves which clients.

    Args:
        denoisers: int64[eta], client number of each denoiser.
        group: int64[n], denoiser index of each client; a denoiser belongs to its own group.
        is_denoiser: bool[n].
    """

    denoisers: IntArray
    group: IntArray
    is_denoiser: BoolArray

    @classmethod
    def draw(cls, n_clients: int, count: int, stream: Stream) -> "Binding":
        """Draw denoisers and balanced groups at random."""
        permutation = stream.generator().permutation(n_clients)
        denoisers = permutation[:count]
        group = np.empty(n_clients, dtype=np.int64)
        group[denoisers] = np.arange(count)
        ordinary = permutation[count:]
        group[ordinary] = np.arange(len(ordinary)) % count
        is_denoiser = np.zeros(n_clients, dtype=bool)
        is_denoiser[denoisers] = True
        return cls(denoisers=denoisers, group=group, is_denoiser=is_denoiser)
