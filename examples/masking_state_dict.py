"""Secure aggregation of a PyTorch state_dict: the server learns weighted sums, and nothing else.

Weights travel inside the masked vectors. In the second round a client vanishes after it shared
its keys; the others restore what its masks left behind, and the mean is that of those who stayed.
"""

import copy
from hashlib import sha256

import numpy as np
import torch

from secure_fedrec.protection import FixedPoint
from secure_fedrec.protection.masking import (
    Federation,
    Kind,
    MaskingConfig,
    MeanLayout,
    SitePolicy,
    Statement,
    state_hash,
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

# --- protection: settings that all parties share, then one sum per round ---
codec = FixedPoint(bits=48, fraction_bits=24, clip=16.0)
layout = MeanLayout(codec=codec, length=SIZE, clients=len(DATA), max_weight=100)
config = MaskingConfig.for_cohort(
    len(DATA), bits=48, length=layout.words, layout_hash=layout.hash, corrupt=0.2, dropout=0.2
)
federation = Federation(range(len(DATA)), policy=SitePolicy(corrupt=0.2, dropout=0.2))
# What tells this federation from others; every device makes it of what it was set up with.
NAME = sha256(b"linear model, five devices" + federation.roster.operator).digest()

for number, drops in enumerate(({}, {3: Kind.UPLOAD}), start=1):
    updates = {client: train(client) for client in DATA}
    vectors = {c: layout.encode(update, weight=len(DATA[c])) for c, update in updates.items()}
    # Each device states what it trained from. Vectors of other models or rounds add up to noise,
    # and no device answers for a model twice.
    state = state_hash({name: value.numpy() for name, value in model.state_dict().items()})
    statement = Statement(federation=NAME, state=state, round=number)
    outcome = federation.sum(config, vectors, statement=statement, drops=drops)  # real messages
    total = layout.decode(outcome.words)
    load(total.mean)
    # --- end of the protection ---
    survivors = outcome.survivors.tolist()
    integers = {c: codec.to_integers(codec.encode(updates[c])) for c in survivors}
    plain = sum(len(DATA[c]) * integers[c] for c in survivors)
    np.testing.assert_array_equal(total.sums, plain)
    np.testing.assert_equal(total.weight, sum(len(DATA[c]) for c in survivors))
    print(f"{len(survivors)} survivors, {outcome.sent} bytes up: equal to the plain sum")
