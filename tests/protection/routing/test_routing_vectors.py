"""Frozen cells: what one version sealed, every later one opens. Others can replay the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secure_fedrec.protection.routing import (
    KEMS,
    Directory,
    Endpoint,
    MixNode,
    OpeningKey,
    RoutingConfig,
    address_of,
    send,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "cells.json").read_text("utf-8"))


def key(kem: str, number: int) -> OpeningKey:
    """A fixed key; such exist in tests alone."""
    point = X25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    hybrid = kem == "mlkem768-x25519"
    lattice = MLKEM768PrivateKey.from_seed_bytes(bytes([number]) * 64) if hybrid else None
    return OpeningKey(KEMS[kem], point, lattice)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["kem"]))
def test_frozen_cells_open(vector: dict[str, Any]) -> None:
    kem = vector["kem"]
    config = RoutingConfig(
        layers=vector["layers"],
        cell_bytes=vector["cell_bytes"],
        kem=kem,
        min_batch=vector["min_batch"],
    )
    first, second, third = (key(kem, number) for number in (1, 2, 3))
    directory = Directory(
        config=config,
        epoch=vector["epoch"],
        mixes=((first.public,), (second.public,)),
        recipients=(third.public,),
    )
    assert directory.digest.hex() == vector["directory_sha256"]
    cells = [bytes.fromhex(vector["cell"])]
    cells += send([], recipient=0, cells=1, directory=directory)
    assert {len(cell) for cell in cells} == {vector["cell_bytes"]}
    for layer, own in enumerate((first, second)):
        mix = MixNode(layer=layer, node=0)
        mix.rotate(directory, own)
        for cell in cells:
            mix.receive(cell)
        cells = mix.flush()
    end = Endpoint(layers=2, index=0)
    end.rotate(directory, third)
    assert {address_of(cell).layer for cell in cells} == {2}
    received = [end.receive(cell) for cell in cells]
    assert sorted(message or b"" for message in received) == [b"", vector["message"].encode()]
