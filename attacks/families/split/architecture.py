"""What everybody knows about a model that is trained by split personalization.

The algorithm publishes name and shape of every parameter, and where it lies in the uploaded vector.
Names follow the modules they belong to: a dense layer has ``NAME.weight`` (outputs x inputs) and
``NAME.bias``, a table of vectors only ``NAME.weight``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attacks.base import need
from secure_fedrec.wire import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One federated parameter.

    Args:
        name: as the model calls it.
        shape: of its values.
        start: first position in the uploaded vector.
        stop: position after the last.
        by_input: whether a matrix lies in the vector input by input, not output by output.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    by_input: bool = False

    @property
    def is_matrix(self) -> bool:
        """Whether it has rows and columns."""
        return len(self.shape) == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLayer:
    """Weight and bias of a dense layer."""

    weight: Parameter
    bias: Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The public side of a model.

    Args:
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
                    name=each["name"],
                    shape=tuple(each["shape"]),
                    start=each["start"],
                    stop=each["stop"],
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
        pairs = ((each, self._bias_of(each)) for each in self.parameters if each.is_matrix)
        return tuple(
            DenseLayer(weight=weight, bias=bias)
            for weight, bias in pairs
            if bias is not None and bias.shape == weight.shape[:1]
        )

    def tables(self) -> tuple[Parameter, ...]:
        """Tables of vectors, one row per item, character or the like."""
        weights = (each for each in self.parameters if each.name.endswith(".weight"))
        return tuple(each for each in weights if each.is_matrix and self._bias_of(each) is None)

    def _bias_of(self, weight: Parameter) -> Parameter | None:
        name = f"{weight.name.removesuffix('.weight')}.bias"
        return next((each for each in self.parameters if each.name == name), None)
