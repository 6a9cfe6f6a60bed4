"""FedAvg of a small model in one process: every client trains, the server takes a mean."""

import copy

import torch

from secure_fedrec.engines.loop import protect

torch.manual_seed(1)
TRUE, DATA = torch.randn(6), {}
for client in range(20):
    points = torch.randn(20 + 2 * client, 6)
    DATA[client] = points, (points @ TRUE > 0).float()
model = torch.nn.Sequential(torch.nn.BatchNorm1d(6, affine=False), torch.nn.Linear(6, 1))


def loss(net: torch.nn.Module, client: int) -> torch.Tensor:
    """The loss of a model on a client's own data."""
    points, labels = DATA[client]
    return torch.nn.functional.binary_cross_entropy_with_logits(net(points)[:, 0], labels)


def train(client: int) -> dict[str, torch.Tensor]:
    """A few steps on a client's own data; what is sent after them."""
    local = copy.deepcopy(model)
    optimizer = torch.optim.SGD(local.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss(local, client).backward()
        optimizer.step()
    return local.state_dict()


protection = protect(model.state_dict(), clients=DATA, clip=1.5, rounds=5, epsilon=8.0, delta=1e-5)
for round_ in range(1, 6):
    states = {client: train(client) for client in DATA}
    model.load_state_dict(protection.mean(states, start=model.state_dict()).model)
    with torch.no_grad():
        losses = [loss(copy.deepcopy(model), client).item() for client in DATA]
    print(f"round {round_}: loss {sum(losses) / len(losses):.3f}")
print(protection.price)
