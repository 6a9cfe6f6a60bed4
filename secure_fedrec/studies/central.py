"""NeuMF and LightGCN: the quality of one party with all data, to compare with federated methods.

NeuMF (He et al., WWW 2017) scores ``h . [p * q; mlp([p'; q'])]`` and learns by cross entropy with
sampled negatives. LightGCN (He et al., SIGIR 2020) averages user and item vectors over the layers
of a propagation on the normalised graph of positives, scores by their product and learns by the
pairwise loss -log sigmoid(positive - negative).

Negatives are drawn anew in every epoch, by the sampler of the case's protocol (``data.negatives``).
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings

# isort: split
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from secure_fedrec.algorithms.item_tables.local import SingleArray
from secure_fedrec.data.negatives import draw_negatives
from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.settings import Count, Natural, NonNegative, OneOf, Positive, Settings
from secure_fedrec.streams import Streams

MODELS = ("neumf", "lightgcn")


class CentralConfig(Settings, section="central"):
    """Hyper-parameters.

    Args:
        model: "neumf" or "lightgcn".
        rank: d, length of every vector.
        layers: of NeuMF's perceptron, each half as wide as the one before, or of the propagation.
        epochs: passes over the positives.
        batch_size: examples of a step; of LightGCN pairs.
        negatives: items drawn per positive.
        learning_rate: of Adam.
        weight_decay: decay of all parameters to 0.
        seed: of start, draws and order.

    Raises:
        ConfigError: a field is out of range.
    """

    model: Annotated[str, OneOf(MODELS)] = "neumf"
    rank: Count = 32
    layers: Count = 3
    epochs: Count = 50
    batch_size: Count = 2048
    negatives: Count = 4
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 0.0
    seed: Natural = 0


class NeuMF(nn.Module):
    """Generalised factorization and a perceptron; see the module docstring."""

    def __init__(self, n_users: int, n_items: int, rank: int, layers: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(n_users, 2 * rank), nn.Embedding(n_items, 2 * rank)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.01)
        widths = [max(2 * rank >> layer, 1) for layer in range(layers + 1)]
        self.perceptron = nn.Sequential(
            *(
                part
                for one, other in pairwise(widths)
                for part in (nn.Linear(one, other), nn.ReLU())
            )
        )
        self.score = nn.Linear(rank + widths[-1], 1)
        self.rank = rank

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits of pairs: float[...]."""
        one, other = self.users(users), self.items(items)
        one = one.expand_as(other)
        products = one[..., : self.rank] * other[..., : self.rank]
        both = torch.cat([one[..., self.rank :], other[..., self.rank :]], dim=-1)
        logits: Tensor = self.score(torch.cat([products, self.perceptron(both)], dim=-1))
        return logits.squeeze(-1)

    def scores(self) -> Tensor:
        """float[n, m], user by user."""
        items = torch.arange(self.items.num_embeddings)
        rows = [self(torch.tensor([user]), items) for user in range(self.users.num_embeddings)]
        return torch.stack(rows)


class LightGCN(nn.Module):
    """Propagated vectors; see the module docstring.

    Args:
        pairs: int64[2, N], users and items of the positives.
        n_users, n_items, rank, layers: sizes.
    """

    def __init__(self, pairs: Tensor, n_users: int, n_items: int, rank: int, layers: int) -> None:
        super().__init__()
        size = n_users + n_items
        self.vectors = nn.Parameter(0.1 * torch.randn(size, rank))
        self.layers, self.n_users = layers, n_users
        ends = torch.stack([pairs[0], pairs[1] + n_users])
        both = torch.cat([ends, ends.flip(0)], dim=1)
        degrees = torch.bincount(both[0], minlength=size).clamp(min=1).float()
        weights = (degrees[both[0]] * degrees[both[1]]).rsqrt()
        self.graph = torch.sparse_coo_tensor(
            both, weights, (size, size), check_invariants=True
        ).coalesce()

    def propagated(self) -> tuple[Tensor, Tensor]:
        """Vectors of users and of items, means over all layers."""
        seen: list[Tensor] = [self.vectors]
        for _ in range(self.layers):
            seen.append(torch.sparse.mm(self.graph, seen[-1]))
        mean = torch.stack(seen).mean(dim=0)
        return mean[: self.n_users], mean[self.n_users :]

    def scores(self) -> Tensor:
        """float[n, m]."""
        users, items = self.propagated()
        return users @ items.T


def epochs(case: RankingCase, config: CentralConfig) -> Iterator[SingleArray]:
    """Train on a case's positives; a function of case and settings on one machine.

    Yields:
        After every epoch float32[n, m], scores of all items for all clients, larger is better: for
        ``evaluation.ranks``, and for choosing the epoch on validation.
    """
    streams = Streams.from_seed(config.seed)
    order = torch.Generator().manual_seed(config.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = _model(case, config)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    for epoch in range(config.epochs):
        users, items, labels = _examples(case, config, streams, epoch)
        _epoch(model, optimizer, (users, items, labels), config, order)
        with torch.no_grad():
            yield model.scores().numpy()


def _model(case: RankingCase, config: CentralConfig) -> NeuMF | LightGCN:
    sizes = (case.n_clients, case.n_items, config.rank, config.layers)
    if config.model == "neumf":
        return NeuMF(*sizes)
    rated = case.rated
    users = np.repeat(np.arange(case.n_clients), np.diff(rated.indptr))
    pairs = torch.from_numpy(np.stack([users, rated.items.astype(np.int64)]))
    return LightGCN(pairs, *sizes)


def _examples(
    case: RankingCase, config: CentralConfig, streams: Streams, epoch: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Users, items and labels: every positive, followed by its negatives."""
    clients = np.arange(case.n_clients)
    drawn = draw_negatives(
        case.rated,
        case.kept_out,
        case.n_items,
        per_positive=config.negatives,
        stream=streams.stream("central-negatives"),
        round=epoch,
        clients=clients,
    )
    users = np.repeat(clients, np.diff(drawn.indptr))
    labels = drawn.labels.astype(np.float32)
    return tuple(map(torch.from_numpy, (users, drawn.items.astype(np.int64), labels)))  # type: ignore[return-value]


def _epoch(
    model: NeuMF | LightGCN,
    optimizer: torch.optim.Optimizer,
    examples: tuple[Tensor, Tensor, Tensor],
    config: CentralConfig,
    order: torch.Generator,
) -> None:
    users, items, labels = examples
    pairwise = isinstance(model, LightGCN)
    # Each negative's positive is the last one before it.
    firsts = torch.cummax(torch.arange(len(labels)) * labels.long(), dim=0).values
    chosen = torch.nonzero(labels == 0).squeeze(1) if pairwise else torch.arange(len(labels))
    mixed = chosen[torch.randperm(len(chosen), generator=order)]
    for part in torch.split(mixed, config.batch_size):
        optimizer.zero_grad()
        if isinstance(model, LightGCN):
            of_users, of_items = model.propagated()
            apart = of_items[items[firsts[part]]] - of_items[items[part]]
            loss = -functional.logsigmoid((of_users[users[part]] * apart).sum(dim=1)).mean()
        else:
            logits = model(users[part], items[part])
            loss = functional.binary_cross_entropy_with_logits(logits, labels[part])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
