"""The interface of a method in the family; the rest is in ``trainer``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from math import prod
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from secure_fedrec.algorithms.item_tables.local import (
    Batch,
    ItemTableStart,
    ItemTableTraining,
    Models,
    SingleArray,
)
from secure_fedrec.algorithms.item_tables.scoring import products
from secure_fedrec.algorithms.item_tables.starts import normal
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.streams import Streams

OWN = "own_parameters"
"""Name of the private table of clients' own parameters."""
_LATER = ("start", "layer_scale")
PERSONAL = "personal_item_table"
"""Private table of the personal item tables."""


class MethodConfig(Protocol):
    """Settings that every method has; a ``Settings`` of section "algorithm"."""

    @property
    def rank(self) -> int:
        """Length d of an item's vector."""

    @property
    def rounds(self) -> int:
        """Rounds of a full training run."""

    @property
    def local(self) -> ItemTableTraining:
        """Training of a round."""


class Start(NamedTuple):
    """The common initial model.

    Attributes:
        table: float64[m, d], the item table.
        shared: float64[S], further shared parameters, averaged like the table; S may be 0.
    """

    table: FloatArray
    shared: FloatArray


@runtime_checkable
class ItemTableMethod(Protocol):
    """A method: its model, one compiled step of training, and its scores.

    Everything it is given and gives is of a batch of clients; what it does for one of them must
    depend on that client's part alone. Its loops release the interpreter (``compiled_loop``):
    ``step`` runs in several threads at once, for different clients of the same ``Models``.
    """

    @property
    def name(self) -> str:
        """In public knowledge."""

    @property
    def config(self) -> MethodConfig:
        """Its settings."""

    @property
    def n_items(self) -> int:
        """Items it was made for, m."""

    @property
    def form(self) -> str:
        """The form of a row's change, one of those of ``traits.RowTraits``."""

    @property
    def dense(self) -> bool:
        """Whether a step changes all rows of the table; otherwise only rows of its examples."""

    @property
    def personal(self) -> bool:
        """Whether clients keep a personal table over all items; this requires a dense method."""

    def start(self, streams: Streams) -> Start:
        """Public state before round 1."""

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        """The clients' own parameters before round 1: float32[B, q], q of 1 or more."""

    def personal_start(self, streams: Streams) -> SingleArray:
        """float32[m, d], the personal table that all clients start from; asked if ``personal``."""

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """Train the batch's clients by one step, in place.

        Args:
            models: models of all clients, and of more than the batch's.
            batch: their examples.
            losses: float64[B] by place in ``models``; the batch's clients get their mean loss, as
                it was before the step.
        """

    def scores(self, models: Models, table: SingleArray) -> SingleArray:
        """Scores of all items by the clients' models as they are, larger is better: float32[B, m].

        Args:
            models: after training.
            table: float32[m, d], public, for the items that have no row in ``models``.
        """

    def knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, as JSON values."""


def placed(
    shapes: Mapping[str, Sequence[int]], *, first: int = 0, **others: Any
) -> list[dict[str, Any]]:
    """Parameters with these names and shapes, one after the other, in the form of public knowledge.

    Args:
        shapes: by name, in order; a layer has NAME.weight (outputs x inputs) and NAME.bias.
        first: where they begin in the shared parameters.
        others: further facts about each.
    """
    found = []
    for name, shape in shapes.items():
        stop = first + prod(shape)
        found.append({"name": name, "shape": list(shape), "start": first, "stop": stop, **others})
        first = stop
    return found


ConfigT = TypeVar("ConfigT", bound=MethodConfig)


def as_told(config: Any, later: Collection[str]) -> dict[str, Any]:
    """Settings as JSON values.

    Args:
        config: config of a method, or of a part of it.
        later: fields that came after the first studies; one that is as by default is left out, so
            that studies made before stay what they are.
    """
    told, usual = asdict(config), type(config)()
    for name in later:
        if name in told and getattr(config, name) == getattr(usual, name):
            del told[name]
    return told


class Method(Generic[ConfigT]):
    """Common parts of most methods: settings, and the public table as the only one.

    Args:
        config: hyper-parameters.
        n_items: m.
    """

    form = "change"
    dense = False
    personal = False

    def __init__(self, config: ConfigT, n_items: int) -> None:
        self.config = config
        self.n_items = n_items

    def start(self, streams: Streams) -> Start:
        """The item table from N(0, 1), times the settings' factor, without further parameters."""
        table = normal(streams.stream("item-table"), (self.n_items, self.config.rank))
        return Start(self.scales.items * table, np.empty(0))

    def scores(self, models: Models, table: SingleArray) -> SingleArray:
        """Products of rows with ``own``, which order items as the scores do."""
        return products(models, table)

    def personal_start(self, streams: Streams) -> SingleArray:
        """N(0, 1), times the same factor."""
        stream = streams.stream("personal-item-table")
        table = normal(stream, (self.n_items, self.config.rank))
        return (self.scales.items * table).astype(np.float32)

    @property
    def scales(self) -> ItemTableStart:
        """Factors on the initial values; 1 if the settings have none, or other factors."""
        scales: ItemTableStart = getattr(self.config, "start", ItemTableStart())
        return scales

    def knowledge(self) -> dict[str, Any]:
        """All hyper-parameters."""
        return as_told(self.config, _LATER)
