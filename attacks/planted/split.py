"""A planted federation for attacks on split personalization, small enough to need no torch.

A client has examples (item, class). Its private vector u and the item's vector e go through a dense
layer with ReLU to a score per class:

    h = relu(W [u; e] + b),    scores = V h + a,    loss = mean cross-entropy

A round is one step of gradient descent on all parameters; those but u are federated with example
weights, in the layout of ``secure_fedrec.algorithms.furl.system``. Gradients are written out below,
so the control does not rest on the code under audit.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.vector_table import VectorTable
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.vault import Vault

__all__ = ["ITEM_TABLE", "PlantedSplit", "PlantedSplitConfig"]

ITEM_TABLE: Final = "item_embedding.weight"
"""The parameter whose rows are the items."""

_PRIVATE: Final = "private_parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedSplitConfig:
    """Sizes of the planted model.

    Args:
        items: m.
        classes: number of classes.
        dim: length of a vector.
        units: of the dense layer.
        learning_rate: step size.
    """

    items: int
    classes: int
    dim: int = 6
    units: int = 24
    learning_rate: float = 0.5

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the federated parameters, in order."""
        return {
            ITEM_TABLE: (self.items, self.dim),
            "hidden.weight": (self.units, 2 * self.dim),
            "hidden.bias": (self.units,),
            "output.weight": (self.classes, self.units),
            "output.bias": (self.classes,),
        }


class PlantedSplit:
    """The algorithm; see the module docstring.

    Args:
        config: sizes.
        rounds: of a run.
    """

    def __init__(self, config: PlantedSplitConfig, *, rounds: int) -> None:
        self.config = config
        self.rounds = rounds
        sizes = [int(np.prod(shape)) for shape in config.shapes.values()]
        self._ends = np.concatenate([[0], np.cumsum(sizes)])
        self._layout = VectorTable(size=int(self._ends[-1]) + 1, width=32)

    @property
    def width(self) -> int:
        """Values per row."""
        return self._layout.width

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self._layout.rows

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """Random parameters, zero biases."""
        self._layout.require_rows(n_rows)
        draws = streams.stream("planted-start").generator()
        values = [
            draws.normal(scale=0.5, size=shape) if len(shape) > 1 else np.zeros(shape)
            for shape in self.config.shapes.values()
        ]
        return PublicState(round=0, table=self._table(values, 0.0))

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Every private vector starts at zero."""
        del streams
        vault.create(_PRIVATE, np.zeros((vault.n_clients, self.config.dim)))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> "PlantedStep":
        """One gradient step of some clients."""
        del streams
        vectors, tables = vault.read(_PRIVATE, clients), []
        rate = self.config.learning_rate
        for position, client in enumerate(clients.tolist()):
            examples = vault.examples(client)
            own, shared = self._gradients(self._values(public), vectors[position], examples)
            vectors[position] -= rate * own
            weight = len(examples["items"])
            tables.append(self._table([-rate * weight * each for each in shared], weight))
        return PlantedStep(clients, vectors, np.concatenate(tables))

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The weighted mean of the changes."""
        sums = self._layout.vector(aggregate.values)
        flat = self._layout.vector(public.table)[:-1] + sums[:-1] / sums[-1]
        return PublicState(round=public.round + 1, table=self._layout.table(np.append(flat, 0.0)))

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """Every client sends every row."""
        return np.full(vault.n_clients, n_rows, dtype=np.int64)

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """No bags."""
        del vault
        return {}

    def public_knowledge(self) -> dict[str, Any]:
        """Names, shapes and places."""
        ends = self._ends.tolist()
        federated = [
            {"name": name, "shape": list(shape), "start": start, "stop": stop}
            for (name, shape), start, stop in zip(
                self.config.shapes.items(), ends[:-1], ends[1:], strict=True
            )
        ]
        dim = self.config.dim
        private = [{"name": "user", "shape": [1, dim], "start": 0, "stop": dim}]
        return {
            "name": "planted-split",
            "local": {
                "optimizer": "sgd",
                "learning_rate": self.config.learning_rate,
                "epochs": 1,
                "batch_size": None,
            },
            "federated": federated,
            "private": private,
            "weight_position": ends[-1],
            "traits": asdict(OTHER_ROWS),
        }

    def _gradients(
        self, values: list[FloatArray], user: FloatArray, examples: Mapping[str, Any]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Gradients of the mean loss: at u, and at the federated parameters in order."""
        table, weight, bias, out_weight, out_bias = values
        items, classes, size = examples["items"], examples["classes"], len(examples["items"])
        inputs = np.hstack([np.tile(user, (size, 1)), table[items]])
        hidden = np.maximum(inputs @ weight.T + bias, 0.0)
        scores = hidden @ out_weight.T + out_bias
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        at_scores = odds / odds.sum(axis=1, keepdims=True)
        at_scores[np.arange(size), classes] -= 1.0
        at_scores /= size
        at_hidden = (at_scores @ out_weight) * (hidden > 0)
        at_inputs = at_hidden @ weight
        dim = self.config.dim
        at_table = np.zeros_like(table)
        np.add.at(at_table, items, at_inputs[:, dim:])
        shared = [
            at_table,
            at_hidden.T @ inputs,
            at_hidden.sum(axis=0),
            at_scores.T @ hidden,
            at_scores.sum(axis=0),
        ]
        return at_inputs[:, :dim].sum(axis=0), shared

    def _values(self, public: PublicState) -> list[FloatArray]:
        flat = self._layout.vector(public.table)
        places = zip(self._ends[:-1], self._ends[1:], strict=True)
        shapes = self.config.shapes.values()
        return [
            flat[start:stop].reshape(shape)
            for (start, stop), shape in zip(places, shapes, strict=True)
        ]

    def _table(self, values: list[FloatArray], weight: float) -> FloatArray:
        flat = np.concatenate([each.reshape(-1) for each in values])
        return self._layout.table(np.append(flat, weight))


class PlantedStep:
    """One round's work of some clients.

    Args:
        clients: int64[B].
        vectors: float64[B, dim], the private vectors after it.
        table: float64[B * rows, width], what they give out.
    """

    def __init__(self, clients: IntArray, vectors: FloatArray, table: FloatArray) -> None:
        self.clients = clients
        self._vectors = vectors
        self._table = table

    @property
    def upload(self) -> Upload:
        """Every row of the table from every client."""
        size = len(self.clients)
        rows = len(self._table) // size
        block = RowBlock(
            indptr=np.arange(size + 1) * rows,
            rows=np.tile(np.arange(rows, dtype=np.int32), size),
            values=self._table,
        )
        return Upload(clients=self.clients, block=block)

    def commit(self, vault: Vault) -> None:
        """Keep the private vectors."""
        vault.write(_PRIVATE, self.clients, self._vectors)
