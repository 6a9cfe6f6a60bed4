"""A bag of vectors through a cascade of mixes: ``python cascade.py FOLDER [MIX ...]``.

Every mix is a process; without addresses three are started here. This program plays everybody
else: the operator, who signs the directory of the mixes' keys, five senders, who hand in as many
cells each, and the recipient, who learns the vectors and not whose they are. Over many hosts each
of them is elsewhere, and keys and directory travel as the roster does.
"""

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audits.deploy.mix import address
from secure_fedrec.engines.cascade import Inlet, hand_in, save_directory
from secure_fedrec.protection import FixedPoint
from secure_fedrec.protection.routing import (
    KEMS,
    Directory,
    Endpoint,
    OpeningKey,
    RoutingConfig,
    SealingKey,
    SentCells,
    new_identity,
    receipt_digest,
    send,
)

SENDERS, CELLS, PORT = 5, 2, 9500
CODEC, KEM = FixedPoint(bits=32, fraction_bits=16, clip=16.0), KEMS["x25519"]

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path, help="where mixes show keys and find the directory")
parser.add_argument("mixes", nargs="*", metavar="MIX", help="HOST:PORT, layer by layer")
parser.add_argument("--listen", default=f"127.0.0.1:{PORT + 3}", help="of the recipient")
parsed = parser.parse_args()
folder = parsed.folder
folder.mkdir(parents=True, exist_ok=True)
names = parsed.mixes or [f"127.0.0.1:{PORT + layer}" for layer in range(3)]
settings = RoutingConfig(layers=len(names), cell_bytes=1024, min_batch=SENDERS * CELLS)

with ExitStack() as ending:
    for layer, name in enumerate(names if not parsed.mixes else ()):
        command = [sys.executable, "-m", "audits.deploy.mix", str(folder)]
        command += ["--layer", str(layer), "--listen", name]
        mix = ending.enter_context(subprocess.Popen(command))  # noqa: S603
        ending.callback(mix.terminate)

    # The operator: keys of the mixes and of the recipient, signed.
    shown = [folder / "keys" / f"{layer}-0" for layer in range(len(names))]
    while not all(path.exists() for path in shown):
        time.sleep(0.1)
    operator, own = Ed25519PrivateKey.generate(), OpeningKey.generate(KEM)
    directory = Directory(
        config=settings,
        epoch=1,
        mixes=tuple((SealingKey(KEM, path.read_bytes()),) for path in shown),
        recipients=(own.public,),
    )
    places = {f"{layer}-0": name for layer, name in enumerate((*names, parsed.listen))}
    (folder / "addresses.json").write_text(json.dumps(places))
    (folder / "operator.pub").write_text(operator.public_key().public_bytes_raw().hex())
    save_directory(directory, folder / "directory", operator)

    # The recipient.
    endpoint = Endpoint(layers=len(names), index=0)
    endpoint.rotate(directory, own)
    received: list[bytes] = []

    def take(cell: bytes) -> None:
        """Open what a batch brings."""
        if (found := endpoint.receive(cell)) is not None:
            received.append(found)

    inlet = Inlet(address(parsed.listen), settings.size_at(len(names)), take)
    ending.callback(inlet.close)

    # Senders: the same number of cells each, whatever they have to say.
    vectors = np.random.default_rng(1).normal(size=(SENDERS, 8))
    noted = []
    for vector in vectors:
        sent = SentCells(directory, batch=1)
        cells = send(
            [CODEC.encode(vector).tobytes()],
            recipient=0,
            cells=CELLS,
            directory=directory,
            sent=sent,
        )
        hand_in(cells, address(names[0]))
        noted.append(sent)
    while len(received) < SENDERS:
        time.sleep(0.1)
    signing = new_identity()
    receipt = endpoint.receipt(batch=1, identity=signing)
    signers, published = [signing.public_key().public_bytes_raw()], [receipt_digest(receipt)]
    for sent in noted:  # a mix may have replaced a cell: its sender would miss it here
        sent.require_received([receipt], signers=signers, published=published)

if sorted(received) != sorted(CODEC.encode(vector).tobytes() for vector in vectors):
    raise SystemExit("the bag is another one")
print(f"{len(received)} vectors without a sender, through {len(names)} processes")
