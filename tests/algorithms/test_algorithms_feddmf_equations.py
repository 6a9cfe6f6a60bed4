"""FedDMF's equations 1 to 5, written again from the paper in NumPy, beside the compiled rounds.

The loss is written as printed and its derivatives come from complex steps, so nothing is shared but
start values and the order of the examples. Vectors without a term in the loss of a batch move on as
``models.dmf.adam`` says.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms.feddmf.config import FedDMFConfig
from secure_fedrec.algorithms.feddmf.exchanged import ExchangedFedDMF
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.data.organisations.common_items import (
    CommonItems,
    CommonItemsConfig,
    split_common_items,
)
from secure_fedrec.engines import Problem
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.dmf.arrays import Examples
from secure_fedrec.models.dmf.model import DMFConfig
from secure_fedrec.models.dmf.training import DMFTraining, Interactions, examples_of, part_of
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import unprotected

STREAMS = Streams.from_seed(7)
TABLE = generate(SyntheticConfig(clients=9, items=14, mean_ratings=6.0, seed=3))
CONFIG = FedDMFConfig(
    epochs=3,
    exchanges=2,
    model=DMFConfig(width=4, hidden=5, dropout=0.0, spread=0.7),
    training=DMFTraining(learning_rate=0.01, batch_size=6),
    beta=2.0,
)


class Reference:
    """An organisation that trains by the printed loss."""

    def __init__(self, config: FedDMFConfig, start: FloatArray, users: int, items: int) -> None:
        self.config, self.users, self.rows = config, users, users + items
        self.values, self.step = start.copy(), 0
        self.first, self.second = np.zeros_like(start), np.zeros_like(start)
        self.seen = np.zeros(self.rows, dtype=np.int64)

    def row(self, place: int) -> slice:
        """Where a vector lies."""
        return slice(place * self.config.model.width, (place + 1) * self.config.model.width)

    def vector(self, item: int) -> FloatArray:
        return self.values[self.row(self.users + item)].copy()

    def loss(self, flat: Any, batch: Examples, pairs: list[tuple[int, FloatArray]]) -> Any:
        """L_a = L_MSE + L_emb (eq. 5)."""
        d, h = self.config.model.width, self.config.model.hidden
        vectors, rest = flat[: self.rows * d].reshape(self.rows, d), flat[self.rows * d :]
        weights, rest = rest[: 2 * h * d].reshape(h, 2 * d), rest[2 * h * d :]
        both = np.hstack([vectors[batch.users], vectors[self.users + batch.items]])
        hidden = both @ weights.T + rest[:h]
        hidden = np.where(hidden.real > 0, hidden, 0)
        found = 1 / (1 + np.exp(-(hidden @ rest[h : 2 * h] + rest[2 * h])))
        total = np.mean((found - batch.labels) ** 2)
        for item, other in pairs:
            own, margin = vectors[self.users + item], self.config.margin
            apart = 1 - own @ other / np.sqrt((own @ own) * (other @ other))
            total = total + self.config.beta / len(pairs) * (
                apart if apart.real > margin else margin
            )
        return total

    def train(self, batch: Examples, pairs: list[tuple[int, FloatArray]]) -> None:
        """A step of Adam on what has a term in the loss."""
        touched = {*batch.users, *(self.users + batch.items)}
        touched |= {self.users + item for item, _ in pairs}
        for place in touched:
            self.remember(place)
        self.step += 1
        slope = np.empty_like(self.values)
        for place in range(len(slope)):
            moved = self.values.astype(np.complex128)
            moved[place] += 1e-30j
            slope[place] = self.loss(moved, batch, pairs).imag / 1e-30
        layers = np.arange(self.rows * self.config.model.width, len(slope))
        own = [np.r_[self.row(int(place))] for place in sorted(touched)]
        where = np.concatenate([*own, layers])
        self.first[where] = 0.9 * self.first[where] + 0.1 * slope[where]
        self.second[where] = 0.999 * self.second[where] + 0.001 * slope[where] ** 2
        mean = self.first[where] / (1 - 0.9**self.step)
        spread = np.sqrt(self.second[where] / (1 - 0.999**self.step))
        self.values[where] -= self.config.training.learning_rate * mean / (spread + 1e-8)
        self.seen[sorted(touched)] = self.step

    def remember(self, place: int) -> None:
        """Steps of a vector without a slope, at the pace of the last one."""
        missed, where = self.step - self.seen[place], self.row(place)
        if missed:
            total = sum((0.9 / np.sqrt(0.999)) ** k for k in range(1, missed + 1))
            mean = self.first[where] / (1 - 0.9**self.step)
            spread = np.sqrt(self.second[where] / (1 - 0.999**self.step)) + 1e-8
            self.values[where] -= self.config.training.learning_rate * total * mean / spread
            self.first[where] *= 0.9**missed
            self.second[where] *= 0.999**missed
        self.seen[place] = self.step


def batches(
    data: CommonItems, config: FedDMFConfig, client: int, round_: int
) -> Iterator[Examples]:
    """The examples of a round, in order."""
    dmf = ExchangedFedDMF(config, data).model(client)
    known = Interactions.of_pairs(*data.known(client), dmf)
    epoch, part = divmod(round_, config.exchanges)
    whole = examples_of(known, config.training, STREAMS, epoch=epoch, client=client)
    own, size = part_of(whole, part, config.exchanges), config.training.batch_size
    for begin in range(0, len(own.labels), size):
        yield Examples(*(column[begin : begin + size] for column in own))  # type: ignore[arg-type]


def furthest(config: FedDMFConfig, similarity: str, organisations: int) -> float:
    """How far rounds of ``config`` ever are from those of the printed loss over such pairs."""
    split = CommonItemsConfig(organisations=organisations, seed=1)
    data = split_common_items(TABLE, split)
    algorithm = ExchangedFedDMF(config, data)
    problem = Problem(vault=data.vault(), n_rows=data.n_items)
    engine = unprotected(algorithm, problem, STREAMS, codec=FixedPoint())
    everybody = range(organisations)
    written = [
        Reference(
            config,
            algorithm.read(client, engine.vault).parameters,
            int(data.n_users[client]),
            len(data.items_of(client)),
        )
        for client in everybody
    ]
    apart = 0.0
    for round_ in range(config.rounds):
        engine.run_round()
        pairs = {
            client: [
                (places[client], written[other].vector(places[other]))
                for item in range(data.n_items)
                for other in everybody
                if other != client and data.listed[client, item] and data.listed[other, item]
                for places in [[int(data.listed[n, :item].sum()) for n in everybody]]
            ]
            for client in everybody
        }
        for client, own in enumerate(written):
            for batch in batches(data, config, client, round_):
                near = [pair for pair in pairs[client] if pair[0] in batch.items]
                own.train(batch, pairs[client] if similarity == "all-common" else near)
            for place in range(own.rows):
                own.remember(place)
            found = algorithm.read(client, engine.vault)
            apart = max(apart, float(np.abs(found.parameters - own.values).max()))
    return apart


@pytest.mark.parametrize("margin", [0.0, 0.2])
@pytest.mark.parametrize("organisations", [2, 3])
@pytest.mark.parametrize("similarity", ["all-common", "batch"])
def test_rounds_are_those_of_the_printed_loss(
    similarity: str, organisations: int, margin: float
) -> None:
    config = replace(CONFIG, similarity=similarity, margin=margin)
    assert furthest(config, similarity, organisations) < 1e-6


def test_the_printed_loss_is_the_default_and_another_than_a_batchs() -> None:
    assert furthest(CONFIG, "all-common", 2) < 1e-6
    assert furthest(CONFIG, "batch", 2) > 1e-2
