"""Every layer keeps the contract that an implementer inherits."""

from collections.abc import Mapping
from typing import Any

from secure_fedrec.protection import BAG_RECORDS, RECORDS
from secure_fedrec.testing import LayerContract

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "virtual-ratings": {"sticky": True},
    "denoisers": {"count": 2},
    "shared-upload": {"count": 2, "floor": 2},
    "linkage-hardened": {"count": 2},
    "clip": {"norm": 4.0},
    "skellam": {"fraction_bits": 8, "noise_multiplier": 1.0},
    "local-dp": {"clip": 3.0, "fraction_bits": 4, "noise_multiplier": 1.0},
}


class Shipped(LayerContract):
    """With the settings above."""

    def settings(self) -> Mapping[str, Any]:
        return {name: self._records[name].settings(**SETTINGS.get(name, {})) for name in self.names}


for record in (*RECORDS.values(), *BAG_RECORDS.values()):
    case = f"Test{record.name.title().replace('-', '')}" + (
        "InBags" if record.name in BAG_RECORDS else ""
    )
    globals()[case] = type(case, (Shipped,), {"layer": record})
