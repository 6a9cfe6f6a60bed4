"""Paillier sums of a PyTorch state_dict: the server adds ciphertexts that it cannot read.

An authority of its own holds the key and opens sums, never uploads. ``PaillierSum`` is one call
per step and authenticates nobody; ``UploadingClient``, ``UploadingServer`` and ``Authority`` are
the halves that also sign, check who took part and bind every message to its round.
"""

import copy

import numpy as np
import torch

from secure_fedrec.protection import FixedPoint
from secure_fedrec.protection.paillier import EncryptedVector, PaillierSum, generate_key

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

# --- protection: settings, a key pair at the authority, then three steps per round ---
codec = FixedPoint(bits=32, fraction_bits=16, clip=16.0)
private = generate_key(2048)  # at the authority; 3072 bits by default
scheme = PaillierSum(n_clients=len(DATA), length=SIZE, codec=codec, key=private.public)

for _ in range(2):
    updates = {client: train(client) for client in DATA}
    uploads = [scheme.encrypt(codec.encode(update)).to_bytes() for update in updates.values()]
    received = [  # at the server, which holds no private key
        EncryptedVector.from_bytes(data, key=scheme.key, layout=scheme.layout) for data in uploads
    ]
    words = scheme.decrypt(scheme.total(received), private)  # at the authority
    load(codec.decode(words) / len(DATA))
    # --- end of the protection ---
    plain = sum(codec.to_integers(codec.encode(update)) for update in updates.values())
    np.testing.assert_array_equal(codec.to_integers(words), plain)
    print(f"{len(uploads[0])} bytes per client: equal to the plain sum")
