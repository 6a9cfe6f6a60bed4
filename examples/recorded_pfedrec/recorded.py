"""PFedRec (Zhang et al., IJCAI 2023) as a plain PyTorch loop: two optimizers, one item table.

Every client scores items by a layer of its own over the item table that all share. A round: score
function first, item table second; the client sends all of its model but the layer's weight.
"""

import copy
from pathlib import Path

import torch

from secure_fedrec.recording import SENT_AS_THEY_ARE, Recorder, RowTraits

torch.manual_seed(1)
N, M, RANK, ROUNDS, NEGATIVES = 40, 80, 16, 2, 4
LIKED = torch.rand(N, M) < 0.1


class Model(torch.nn.Module):
    """An item's score."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_item = torch.nn.Embedding(M, RANK)
        self.affine_output = torch.nn.Linear(RANK, 1)

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        """Logits of some items."""
        return self.affine_output(self.embedding_item(items))[:, 0]


PRIVATE = ("affine_output.weight",)


def shared(model: Model) -> dict[str, torch.Tensor]:
    """What is exchanged."""
    return {name: v for name, v in model.state_dict().items() if name not in PRIVATE}


def train(model: Model, client: int) -> None:
    """One batch of likes and drawn negatives: score function, then item table."""
    liked = LIKED[client].nonzero()[:, 0]
    others = (~LIKED[client]).nonzero()[:, 0]
    drawn = others[torch.randperm(len(others))[: NEGATIVES * len(liked)]]
    items = torch.cat([liked, drawn])
    labels = torch.cat([torch.ones(len(liked)), torch.zeros(len(drawn))])
    for layer, rate in ((model.affine_output, 0.1), (model.embedding_item, 8.0)):
        optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
        model.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(items), labels).backward()
        optimizer.step()


server = Model()
own = {client: server.affine_output.weight.data.clone() for client in range(N)}
recorder = Recorder(
    n_clients=N,
    arrays=shared(server),
    items="embedding_item.weight",
    data={"negatives": NEGATIVES},
    algorithm={"name": "pfedrec"},
    rows=RowTraits(rows="items", row_sets="drawn", form="scored"),
    sums=SENT_AS_THEY_ARE,
    send_models=True,
)
for round_ in range(1, ROUNDS + 1):
    total = {name: 0.0 * value for name, value in shared(server).items()}
    recorder.message(round_, "model", "server", None, shared(server))
    recorder.private(round_, torch.cat([own[client] for client in range(N)]))
    for client in range(N):
        local = copy.deepcopy(server)
        local.affine_output.weight.data = own[client].clone()
        train(local, client)
        own[client] = local.affine_output.weight.data
        recorder.message(round_, "upload", client, "server", shared(local))
        for name, value in shared(local).items():
            total[name] += value / N
    server.load_state_dict(total, strict=False)
    print(f"round {round_}: norm {server.embedding_item.weight.norm().item():.4f}")

recorder.truth(ratings=(*LIKED.nonzero(as_tuple=True), torch.ones(int(LIKED.sum()))))
recorder.close().save(Path("recording"), truth=Path("truth.npz"))
