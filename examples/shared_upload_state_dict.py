"""Shared uploads of PyTorch embedding rows: neither server nor denoisers see a client's row.

A client moves the rows of the items it rated and names as many others. Every named row is shared
between the server and two denoisers; rows of the others share zero. Together they learn how far
each item moved and how many rated it; alone they learn which items were named.
"""

import copy
import secrets

import numpy as np
import torch

from secure_fedrec.protection import FixedPoint
from secure_fedrec.protection.shared_upload import (
    RoundContext,
    SharingClient,
    SharingDenoiser,
    SharingServer,
)
from secure_fedrec.protection.shared_upload.real import Identities

torch.manual_seed(7)
ITEMS, WIDTH = 12, 4
model = torch.nn.Embedding(ITEMS, WIDTH)
DRAWN = {client: torch.randperm(ITEMS).numpy() for client in range(5)}
RATED = {client: np.sort(items[:3]) for client, items in DRAWN.items()}
NAMED = {client: np.sort(items[:6]).astype(np.int32) for client, items in DRAWN.items()}  # sticky


def train(client: int) -> np.ndarray:
    """One step on the items a client rated: how far it moves each row of its state_dict."""
    local = copy.deepcopy(model)
    local(torch.from_numpy(RATED[client])).square().sum().backward()
    torch.optim.SGD(local.parameters(), lr=0.1).step()
    return (local.state_dict()["weight"] - model.state_dict()["weight"]).double().numpy()


def load(moves: np.ndarray) -> None:
    """Move the rows of the model's state_dict."""
    weight = model.state_dict()["weight"]
    model.load_state_dict({"weight": weight + torch.from_numpy(moves).to(weight.dtype)})


# --- protection: keys of all parties, then shares, one agreed set and sums per round ---
codec = FixedPoint(bits=32, fraction_bits=16, clip=16.0)
keys = Identities.draw(clients=len(RATED), denoisers=2)  # Ed25519, each at its party
public = {"codec": codec, "n_items": ITEMS, "width": WIDTH, "floor": 4, "roster": keys.roster}

for number in (1, 2):
    context = RoundContext(round=number, round_id=secrets.token_bytes(16), **public)
    server = SharingServer(context, keys.server)
    denoisers = [SharingDenoiser(context, n, key) for n, key in enumerate(keys.denoisers)]
    adverts = [denoiser.advertise() for denoiser in denoisers]
    moved = {client: train(client) for client in RATED}
    for client, rows in NAMED.items():
        half = SharingClient(context, client, keys.clients[client])
        half.accept(adverts)
        words = codec.encode(moved[client][rows])
        shared = half.share(rows, words, np.isin(rows, RATED[client]))
        server.receive(shared.server)
        for denoiser, message in zip(denoisers, shared.denoisers, strict=True):
            denoiser.receive(message)
    proposal = server.propose([denoiser.hold() for denoiser in denoisers])
    agreement = server.agree([denoiser.consent(proposal) for denoiser in denoisers])
    total = server.finish([denoiser.release(agreement) for denoiser in denoisers])
    load(codec.decode(total.ring) / np.maximum(total.counts, 1)[:, None])
    # --- end of the protection ---
    plain = sum(codec.to_integers(codec.encode(rows)) for rows in moved.values())
    np.testing.assert_array_equal(codec.to_integers(total.ring), plain)
    raters = np.bincount(np.concatenate(list(RATED.values())), minlength=ITEMS)
    np.testing.assert_array_equal(total.counts, raters)
    named = sum(map(len, NAMED.values()))
    print(f"{raters.sum()} rated rows among {named}: equal to the plain sum")
