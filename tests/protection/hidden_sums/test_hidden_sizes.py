"""A simulated masked upload has the size of a real one."""

import numpy as np
import pytest

from secure_fedrec.protection.hidden_sums import masked
from secure_fedrec.protection.masking import (
    Federation,
    Kind,
    MaskingConfig,
    MaskingServer,
    SumLayout,
)


def test_the_envelope_is_that_of_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    receive = MaskingServer.receive

    def listening(server: MaskingServer, message: bytes) -> None:
        if Kind(message[1]) is Kind.UPLOAD:
            sizes.append(len(message))
        receive(server, message)

    monkeypatch.setattr(MaskingServer, "receive", listening)
    layout = SumLayout(bits=32, length=10, clients=5, largest=9)
    config = MaskingConfig.for_cohort(5, bits=32, length=10, layout_hash=layout.hash)
    vectors = {client: layout.encode(np.arange(10) % 9) for client in range(5)}
    Federation(range(5)).sum(config, vectors)
    assert sizes == [40 + masked._ENVELOPE_BYTES] * 5
