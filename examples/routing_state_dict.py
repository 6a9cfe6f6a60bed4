"""Anonymous PyTorch state_dicts: the server learns the updates, but not whose each of them is.

Cells of one size pass three layers of mixes; every client hands in the same number of cells, real
or not, and finds them again in the list that the server signs. The updates themselves are readable:
add noise if they could give their owner away.
"""

import copy

import numpy as np
import torch

from secure_fedrec.protection import FixedPoint
from secure_fedrec.protection.routing import (
    KEMS,
    Directory,
    Endpoint,
    MixNode,
    OpeningKey,
    RoutingConfig,
    SentCells,
    new_identity,
    receipt_digest,
    send,
)

torch.manual_seed(7)
model = torch.nn.Linear(6, 2)
DATA = {client: torch.randn(8 + 4 * client, 6) for client in range(5)}  # of different sizes


def train(client: int) -> np.ndarray:
    """One step on a client's own data; its state_dict as one vector."""
    local = copy.deepcopy(model)
    torch.nn.functional.mse_loss(local(DATA[client]), DATA[client][:, :2]).backward()
    torch.optim.SGD(local.parameters(), lr=0.1).step()
    return np.concatenate([value.numpy().ravel() for value in local.state_dict().values()])


def load(vector: np.ndarray) -> None:
    """Write a vector back into the model's state_dict."""
    state, start = model.state_dict(), 0
    for name, value in state.items():
        part = vector[start : start + value.numel()].reshape(value.shape)
        state[name], start = torch.from_numpy(part).to(value.dtype), start + value.numel()
    model.load_state_dict(state)


SIZE = sum(value.numel() for value in model.state_dict().values())

# --- protection: three mixes and a recipient, each with a key, then one pass per round ---
codec = FixedPoint(bits=32, fraction_bits=16, clip=16.0)
settings = RoutingConfig(layers=3, cell_bytes=1024, min_batch=2 * len(DATA))
keys = [OpeningKey.generate(KEMS[settings.kem]) for _ in range(settings.layers + 1)]
publics = [(key.public,) for key in keys]
directory = Directory(config=settings, epoch=1, mixes=tuple(publics[:-1]), recipients=publics[-1])
mixes = [MixNode(layer=layer, node=0) for layer in range(settings.layers)]
server = Endpoint(layers=settings.layers, index=0)
for node, key in zip((*mixes, server), keys, strict=True):
    node.rotate(directory, key)

signing = new_identity()
signers = [signing.public_key().public_bytes_raw()]  # known to all, like the directory

for batch in range(2):
    updates = {client: codec.encode(train(client)) for client in DATA}
    noted = {client: SentCells(directory, batch=batch) for client in DATA}
    cells = []
    for words, sent in zip(updates.values(), noted.values(), strict=True):
        cells += send([words.tobytes()], recipient=0, cells=2, directory=directory, sent=sent)
    for mix in mixes:
        for cell in cells:
            mix.receive(cell)
        cells = mix.flush()
    received = [message for cell in cells if (message := server.receive(cell)) is not None]
    server.require_whole()
    receipt = server.receipt(batch=batch, identity=signing)
    published = [receipt_digest(receipt)]  # where all clients read it
    for sent in noted.values():  # a mix may have replaced a cell: its sender would miss it here
        sent.require_received([receipt], signers=signers, published=published)
    arrived = [np.frombuffer(message, dtype=codec.dtype) for message in received]
    load(np.mean([codec.decode(words) for words in arrived], axis=0))
    # --- end of the protection ---
    np.testing.assert_equal(sorted(received), sorted(w.tobytes() for w in updates.values()))
    np.testing.assert_array_equal(codec.reduce(sum(arrived)), codec.reduce(sum(updates.values())))
    print(f"{len(received)} updates without a sender, {server.dummies} dummies dropped")
