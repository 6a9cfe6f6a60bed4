"""PFedRec as most people would write it: a loop over clients, a torch model for each.

A module with ``nn.Embedding`` and ``nn.Linear``, copied for every client; automatic
differentiation; ``torch.optim.SGD`` for the score function and another for the table; a mean of the
trained tables in floats; and, per client, the places of the held-out items. What a client trains
on, ``draw`` says, one client at a time. No ring, no vault, no messages.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from secure_fedrec.algorithms.item_tables import PFedRecConfig
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.evaluation.protocols import RankingCase

__all__ = ["Draw", "PFedRecLoop", "ScoreModel"]


Draw: TypeAlias = Callable[[int, int], tuple[Tensor, Tensor]]
"""Items, int64[N], and labels, float32[N], of (round, client), in the order of training."""


class ScoreModel(nn.Module):
    """An item table and a score function, in single precision.

    Args:
        table: float64[m, d], where the table starts.
        own: float32[d + 1], where the score function starts: weights, then the bias.
    """

    def __init__(self, table: FloatArray, own: FloatArray) -> None:
        super().__init__()
        items, width = table.shape
        self.embedding = nn.Embedding(items, width)
        self.score = nn.Linear(width, 1)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.from_numpy(table))
            self.score.weight.copy_(torch.from_numpy(own[None, :-1]))
            self.score.bias.copy_(torch.from_numpy(own[-1:]))

    def forward(self, items: Tensor) -> Tensor:
        """Scores of items: float[N]."""
        scores: Tensor = torch.sigmoid(self.score(self.embedding(items))).reshape(-1)
        return scores


@dataclass
class PFedRecLoop:
    """The federation.

    Args:
        model: where everybody starts; its table is the server's.
        config: hyper-parameters; one local epoch.
        case: what is held out.
        draw: what clients train on.
        scores: state of every client's score function by number.
    """

    model: ScoreModel
    config: PFedRecConfig
    case: RankingCase
    draw: Draw
    scores: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def round(self, number: int, clients: IntArray) -> float:
        """Train these clients and average their tables; the hit rate at 10 of the test items."""
        config, items = self.config, self.model.embedding.num_embeddings
        total, hits = torch.zeros_like(self.model.embedding.weight), []
        rate = config.learning_rate
        for client in clients.tolist():
            chosen, labels = self.draw(number, client)
            model = deepcopy(self.model)
            if client in self.scores:
                model.score.load_state_dict(self.scores[client])
            down = torch.optim.SGD(model.score.parameters(), lr=rate)
            table_down = torch.optim.SGD(
                model.embedding.parameters(), lr=rate * items * config.item_scale
            )
            for start in range(0, len(chosen), config.local.batch_size):
                batch = slice(start, start + config.local.batch_size)
                for optimizer in (down, table_down):
                    optimizer.zero_grad()
                    scores = model(chosen[batch])
                    nn.functional.binary_cross_entropy(scores, labels[batch]).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
            hits.append(self._places(model, client)[1] <= 10)
            self.scores[client] = {k: v.clone() for k, v in model.score.state_dict().items()}
            total += model.embedding.weight.detach()
        with torch.no_grad():
            self.model.embedding.weight.copy_(total / len(clients))
        return float(np.mean(hits))

    def _places(self, model: ScoreModel, client: int) -> tuple[int, int, int]:
        """Of the validation and the test item among their negatives, and of this among all."""
        case = self.case
        with torch.no_grad():
            scores = model(torch.arange(case.n_items)).numpy()
        held = (case.validation[client], case.test[client])
        sampled = [
            1 + int((scores[others[others >= 0]] >= scores[item]).sum())
            for item, others in zip(
                held, (case.validation_negatives[client], case.test_negatives[client]), strict=True
            )
        ]
        open_ = np.ones(case.n_items, dtype=bool)
        open_[case.rated.of(client)] = False
        open_[held[0]] = False
        return sampled[0], sampled[1], int((scores[open_] >= scores[held[1]]).sum())
