"""User-level differential privacy for a PyTorch state_dict: Skellam noise inside masked sums.

Each client clips its whole update and adds its share of the noise before it is masked, so the
server never sees a number without the noise of all. Five clients are few: see how large it is.
"""

import copy
import secrets
from hashlib import sha256

import numpy as np
import torch

from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    Part,
    SkellamClient,
    SkellamConfig,
    SkellamServer,
)
from secure_fedrec.protection.masking import (
    Federation,
    MaskingConfig,
    SitePolicy,
    Statement,
    SumLayout,
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

# --- protection: what is clipped and noised, how it is masked, then a sum per round ---
whole = Contribution(parts=(Part(name="update", size=SIZE),))
noise = SkellamConfig(
    encoding=BoundedEncoding(contribution=whole, clip=0.5, fraction_bits=12),
    noise_multiplier=1.0,
    ring_bits=32,
    cohort=len(DATA),
    min_survivors=4,  # as the masking below has it:
    corrupt=1,  # one of five may drop out, and one may tell the server its noise
)
layout = SumLayout(bits=32, length=SIZE, clients=len(DATA), largest=int(noise.codec.clip))
config = MaskingConfig.for_cohort(
    len(DATA), bits=32, length=SIZE, layout_hash=layout.hash, corrupt=0.2, dropout=0.2
)
federation = Federation(range(len(DATA)), policy=SitePolicy(corrupt=0.2, dropout=0.2))
NAME = sha256(b"five devices" + federation.roster.operator).digest()  # the same at every device

for number in (1, 2):
    before = np.concatenate([value.numpy().ravel() for value in model.state_dict().values()])
    updates = {client: train(client) - before for client in DATA}
    seed = secrets.token_bytes(32)  # public, of the round's rotation
    words = {c: SkellamClient(noise, seed).protect({"update": updates[c]}) for c in DATA}
    vectors = {c: layout.encode(noise.codec.to_integers(words[c])) for c in DATA}
    state, told = state_hash({"model": before}), sha256(seed).digest()  # as each device has them
    statement = Statement(federation=NAME, state=state, round=number, instructions=told)
    outcome = federation.sum(config, vectors, statement=statement)
    sums = SkellamServer(noise, seed).decode(outcome.words, survivors=len(outcome.survivors))
    load(before + sums["update"] / len(DATA))
    # --- end of the protection ---
    np.testing.assert_array_equal(outcome.words, noise.codec.reduce(sum(words.values())))
    clipped = sum(min(1.0, 0.5 / np.linalg.norm(update)) * update for update in updates.values())
    error = np.sqrt(np.mean((sums["update"] - clipped) ** 2))
    print(f"noise in the sum: {error:.3f} per value, beside a clip of 0.5")

(event,) = noise.events(rounds=2)  # what an accountant prices: docs/protection/dp.md
print(f"{event.rounds} releases of {event.covers}, with {event.mechanism}")
