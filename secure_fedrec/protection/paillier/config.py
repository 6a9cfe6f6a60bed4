"""Settings of the layer "paillier"."""

from typing import Annotated

from secure_fedrec.protection.base.executions import Execution, Survivors
from secure_fedrec.protection.paillier.scheme.keys import DEFAULT_BITS, require_key_bits
from secure_fedrec.settings import Bits, OneOf, Settings


class EncryptionLayerConfig(Settings, section="protection"):
    """Settings of the layer.

    Args:
        execution: "simulated", or "real": encrypt, sum and open over the wire.
        holder: the holder of the key, "clients" or "authority".
        key_bits: length of the modulus, 2048 to 8192, a multiple of 16.
        min_survivors: fewest clients whose sum may be opened.

    Raises:
        ConfigError: a field is out of range.
    """

    execution: Execution = "simulated"
    holder: Annotated[str, OneOf(("authority", "clients"), "holds no key")] = "authority"
    key_bits: Bits = DEFAULT_BITS
    min_survivors: Survivors = 3

    def _agree(self) -> None:
        require_key_bits(self.key_bits, key="protection.key_bits")
