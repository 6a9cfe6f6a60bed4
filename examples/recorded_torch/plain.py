"""FedAvg of a small model of item embeddings in plain PyTorch: clients send what they trained."""

import copy

import torch

torch.manual_seed(1)
N, M, ROUNDS = 40, 60, 2
LIKED = torch.rand(N, M) < 0.2


class Model(torch.nn.Module):
    """Scores items for the one client that has it; its own vector stays at home."""

    def __init__(self) -> None:
        super().__init__()
        self.user = torch.nn.Parameter(0.1 * torch.randn(8))
        self.item = torch.nn.Embedding(M, 8)
        self.hidden = torch.nn.Linear(16, 16)
        self.score = torch.nn.Linear(16, 1)

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        """The scores of some items."""
        pair = torch.cat([self.user.expand(len(items), -1), self.item(items)], dim=1)
        return self.score(torch.relu(self.hidden(pair)))[:, 0]


def shared(model: Model) -> dict[str, torch.Tensor]:
    """What is exchanged: all but the client's own vector."""
    return {name: value for name, value in model.state_dict().items() if name != "user"}


def train(model: Model, client: int) -> int:
    """One epoch on the client's likes and as many other items; how many examples it had."""
    liked = LIKED[client].nonzero()[:, 0]
    items = torch.cat([liked, (~LIKED[client]).nonzero()[: len(liked), 0]])
    labels = torch.cat([torch.ones(len(liked)), torch.zeros(len(items) - len(liked))])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.nn.functional.binary_cross_entropy_with_logits(model(items), labels).backward()
    optimizer.step()
    return len(items)


server, own = Model(), {client: Model().user.data for client in range(N)}
for round_ in range(1, ROUNDS + 1):
    total, weights = {name: 0.0 * value for name, value in shared(server).items()}, 0
    for client in range(N):
        local = copy.deepcopy(server)
        local.user.data = own[client].clone()
        weight = train(local, client)
        own[client] = local.user.data
        for name, value in shared(local).items():
            total[name] += weight * value
        weights += weight
    server.load_state_dict({n: v / weights for n, v in total.items()}, strict=False)
    print(f"round {round_}: item 0 scores {server(torch.tensor([0])).item():.6f}")
