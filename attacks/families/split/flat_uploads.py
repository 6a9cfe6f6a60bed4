"""Uploads that are one vector per client: the weighted changes of all federated parameters.

The algorithm publishes name and shape of every parameter, and where it lies in the uploaded vector.
Names follow the modules they belong to: a dense layer has ``NAME.weight`` (outputs x inputs) and
``NAME.bias``, a table of vectors only ``NAME.weight``.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from attacks.base import need
from attacks.view.coalition import rows_of
from attacks.view.knowledge import flat_view
from attacks.view.named import named_payload_rounds, named_rows, readable, sees_named_rows
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.wire import View


class Parameter(NamedTuple):
    """One federated parameter.

    Attributes:
        name: as the model calls it.
        shape: shape of its values.
        start: first position in the uploaded vector.
        stop: position after the last.
        by_input: whether a matrix lies in the vector input by input, not output by output.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    by_input: bool = False

    def of(self, flat: FloatArray) -> FloatArray:
        """The array's values in the vector of the public model."""
        return flat[self.start : self.stop].reshape(self.shape)


class DenseLayer(NamedTuple):
    """Weight and bias of a dense layer."""

    weight: Parameter
    bias: Parameter


class Architecture(NamedTuple):
    """The public side of a model.

    Attributes:
        parameters: the federated ones, in the order of the model.
        private: number of private values of a client.
        weight_position: where the client's weight stands in the uploaded vector; None where all
            clients weigh the same.
    """

    parameters: tuple[Parameter, ...]
    private: int
    weight_position: int | None

    @classmethod
    def of(cls, view: View) -> "Architecture":
        """Read the public knowledge."""
        known: Mapping[str, Any] = view.public["algorithm"]
        told = {"federated", "private", "weight_position"} & known.keys()
        need(told, "the algorithm shares no named parameters")
        return cls(
            parameters=tuple(
                Parameter(
                    *(each["name"], tuple(each["shape"]), each["start"], each["stop"]),
                    by_input=each.get("by_input", False),
                )
                for each in known["federated"]
            ),
            private=sum(each["stop"] - each["start"] for each in known["private"]),
            weight_position=known["weight_position"],
        )

    @property
    def values(self) -> int:
        """How many values a whole upload has, at least."""
        last = max((each.stop for each in self.parameters), default=0)
        return last if self.weight_position is None else max(last, self.weight_position + 1)

    def dense_layers(self) -> tuple[DenseLayer, ...]:
        """All dense layers, from the input to the output."""
        pairs = ((each, self._bias_of(each)) for each in self.parameters if len(each.shape) == 2)
        both = ((w, b) for w, b in pairs if b is not None and b.shape == w.shape[:1])
        return tuple(DenseLayer(weight=weight, bias=bias) for weight, bias in both)

    def tables(self) -> tuple[Parameter, ...]:
        """Tables of vectors, one row per item, character or the like."""
        weights = (each for each in self.parameters if each.name.endswith(".weight"))
        return tuple(
            each for each in weights if len(each.shape) == 2 and self._bias_of(each) is None
        )

    def item_table(self, view: View) -> Parameter:
        """The table that is said to have the items as its rows; needs it."""
        tables = {each.name: each for each in self.tables()}
        found = tables.get(view.public["item_table"])
        return need(found, "no federated table has the items as its rows")

    def _bias_of(self, weight: Parameter) -> Parameter | None:
        name = f"{weight.name.removesuffix('.weight')}.bias"
        return next((each for each in self.parameters if each.name == name), None)


_AT_ONCE = 1 << 19
"""Values that are decoded at once."""


class FlatUploads(NamedTuple):
    """The uploads of one round as seen by the adversary; those that cannot be read are 0.

    Attributes:
        round: which round.
        clients: int64[B], ascending.
        words: ring words [B, values].
        plain: bool[B], which can be read.
        codec: the public ring.
        architecture: places of the parameters.
    """

    round: int
    clients: IntArray
    words: RingArray
    plain: BoolArray
    codec: FixedPoint
    architecture: Architecture

    @classmethod
    def read(cls, view: View) -> "FlatUploads":
        """Read the first round whose payloads were kept."""
        architecture = Architecture.of(view)
        need(sees_named_rows(view), "the view holds no uploads")
        rounds = need(named_payload_rounds(view), "no payload of an upload was recorded")
        flat = need(flat_view(view), "no block of the uploads is flat parameters")
        uploads, block = rows_of(named_rows(flat, rounds[0], payload=True))
        need(len(block), "no upload of the round reached the adversary")
        rows = len(block.rows) // len(block)
        whole = np.tile(np.arange(rows), len(block))
        words = np.zeros((0, 0)) if block.values is None else block.values
        words = words.reshape(len(block), -1) if np.array_equal(block.rows, whole) else words[:0]
        need(words.shape[1] >= architecture.values, "the uploads are not whole vectors")
        plain = readable(flat, block)
        if not plain.all():
            words = np.where(plain[:, None], words, words.dtype.type(0))
        return cls(rounds[0], uploads.senders.ids, words, plain, flat.codec, architecture)

    def change(self, parameter: Parameter, clients: slice = slice(None)) -> FloatArray:
        """Weighted change of one parameter, of all clients or some: float64[B, *shape]."""
        words = self.words[clients, parameter.start : parameter.stop]
        values = self.codec.decode(words)
        if parameter.by_input:
            return values.reshape(len(words), *parameter.shape[::-1]).swapaxes(1, -1)
        return values.reshape(len(words), *parameter.shape)

    def each(self, table: Parameter, read: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Apply a reader to the changes of a table, client by client: float64[B, rows].

        Args:
            table: the table.
            read: makes float64[b, rows] of the float64[b, rows, dim] of some clients.
        """
        some = max(1, _AT_ONCE // max(1, table.stop - table.start))
        starts = range(0, len(self.clients), some)
        return np.concatenate([read(self.change(table, slice(s, s + some))) for s in starts])

    def weights(self) -> FloatArray:
        """The clients' weights: float64[B]."""
        if self.architecture.weight_position is None:
            return np.ones(len(self.clients))
        return self.codec.decode(self.words[:, self.architecture.weight_position])
