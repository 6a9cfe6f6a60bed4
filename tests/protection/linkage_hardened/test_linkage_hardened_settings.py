"""Settings of linkage-hardened denoisers that no round could keep."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.linkage_hardened import LinkageHardened, LinkageHardenedConfig
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Meter, Wire


def test_impossible_settings_are_refused() -> None:
    for changes, key in (
        ({"count": 1}, "protection.count"),
        ({"count": 2**16}, "protection.count"),
        ({"cells": 0}, "protection.cells"),
        ({"cells": 2**29}, "protection.cells"),
        ({"layers": 0}, "protection.layers"),
        ({"cell_bytes": 64}, "protection.cell_bytes"),
        ({"kem": "none"}, "protection.kem"),
    ):
        with pytest.raises(ConfigError) as refusal:
            LinkageHardenedConfig(**changes)
        assert refusal.value.key == key
    streams = Streams.from_seed(1)
    shape: dict[str, Any] = {"n_items": 5, "codec": FixedPoint(), "streams": streams}
    with pytest.raises(ConfigError, match="there are 3 clients"):
        LinkageHardened(LinkageHardenedConfig(count=4), n_clients=3, width=2, **shape)
    with pytest.raises(ConfigError, match="to carry a row") as refusal:
        LinkageHardened(LinkageHardenedConfig(), n_clients=3, width=200, **shape)
    least = int(refusal.value.problem.split()[4])
    for size, fits in ((least, True), (least - 1, False)):
        config = LinkageHardenedConfig(cell_bytes=size)
        if fits:
            LinkageHardened(config, n_clients=3, width=200, **shape)
        else:
            with pytest.raises(ConfigError):
                LinkageHardened(config, n_clients=3, width=200, **shape)
    large = LinkageHardened(LinkageHardenedConfig(execution="real"), n_clients=80, width=2, **shape)
    with pytest.raises(ConfigError, match="at most 64 run with real cryptography"):
        large.open(round_=1, participants=np.arange(65), wire=Wire(meter=Meter(80)))
