"""The arrays that clients and server exchange, as blocks of one table of ring words.

One array may have a row per item; of it a client may send some rows alone. All others are sent
whole, concatenated, as one vector of parameters.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.blocks import BlockKind, BlockLayout, BlockShape
from secure_fedrec.core.arrays import FloatArray, IndexArray, unmasked
from secure_fedrec.errors import MisfitError
from secure_fedrec.fixedpoint import FixedPoint

ITEMS, PARAMETERS = "items", "parameters"
_MOST_ROWS = 2**31
_FLAT_WIDTH = 64
"""Width of the table if no array has a row per item."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Where an array lies in the vector of parameters.

    Args:
        name: name of the array.
        shape: shape of the array.
        start: first position.
        stop: position after the last.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


def segments_of(shapes: Mapping[str, Sequence[int]]) -> tuple[Segment, ...]:
    """Concatenated arrays."""
    found, start = [], 0
    for name, shape in shapes.items():
        stop = start + prod(shape)
        found.append(Segment(name, tuple(int(size) for size in shape), start, stop))
        start = stop
    return tuple(found)


class SharedArrays:
    """The arrays that a message may hold.

    Args:
        shapes: shapes of all arrays that are exchanged, by name.
        items: name of the array whose row i is item i; None without such an array.
        weighted: whether a client's changes are sent times its weight, with the weight behind them.
        ring: how values are written down.

    Raises:
        MisfitError: no array, an array without values, or an item table that is not one of them.
    """

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        *,
        items: str | None,
        weighted: bool,
        ring: FixedPoint,
    ) -> None:
        for name, shape in shapes.items():
            _require_shape(name, shape)
        if items is not None and len(shapes.get(items, ())) != 2:
            tables = ", ".join(n for n, s in shapes.items() if len(s) == 2) or "none"
            raise MisfitError(f"items = {items!r} names no array of rows; there are: {tables}")
        if not shapes:
            raise MisfitError("arrays is empty: name the arrays that are exchanged, and shapes")
        self.shapes = {name: tuple(int(each) for each in shape) for name, shape in shapes.items()}
        self.items, self.weighted = items, weighted
        self.segments = segments_of({n: s for n, s in self.shapes.items() if n != items})
        self.size = self.segments[-1].stop if self.segments else 0
        blocks = []
        if items is not None:
            rows, width = self.shapes[items]
            blocks.append(BlockShape(name=ITEMS, kind=BlockKind.ITEMS, size=rows, width=width))
        if flat := self.size + weighted:
            width = self.shapes[items][1] if items is not None else min(_FLAT_WIDTH, flat)
            flat_block = BlockShape(name=PARAMETERS, kind=BlockKind.FLAT, size=flat, width=width)
            blocks.append(flat_block)
        self.layout = BlockLayout(blocks, ring)

    def knowledge(self, private: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Public knowledge of the parameters, in the form that attacks read."""
        if PARAMETERS not in self.layout.places:
            return {}
        return {
            "federated": [asdict(each) for each in self.segments],
            "private": [asdict(each) for each in segments_of(private)],
            "weight_position": self.size if self.weighted else None,
        }

    def rows(
        self, values: Mapping[str, Any], *, weight: float | None
    ) -> tuple[IndexArray, FloatArray]:
        """One message as rows of the table: int32[N], ascending, and float64[N, width].

        Args:
            values: arrays by name; of the item table also a pair of row numbers and rows.
            weight: weight of the sender.

        Raises:
            MisfitError: an array is missing, unknown or of another shape.
        """
        self._require_known(values)
        if (weight is not None) != self.weighted:
            asked = "a weight" if self.weighted else "no weight"
            raise MisfitError(f"weight = {weight}: this recording is of messages with {asked}")
        factor = 1.0 if weight is None else as_weight(weight)
        parts = [*self._item_rows(values, factor), *self._flat_rows(values, factor)]
        numbers = np.concatenate([each[0] for each in parts])
        return numbers.astype(np.int32), np.concatenate([each[1] for each in parts])

    def table(self, values: Mapping[str, Any]) -> FloatArray:
        """float64[rows, width]: a public model, all of its arrays.

        Raises:
            MisfitError: an array is missing, unknown or of another shape.
        """
        self._require_known(values)
        if self.items is not None and self.items not in values:
            raise MisfitError(f"{self.items} is missing: a model has all arrays")
        found = np.zeros((self.layout.rows, self.layout.width))
        numbers, rows = self.rows(values, weight=1.0 if self.weighted else None)
        found[numbers] = rows
        if self.weighted:  # a model has no weight
            row, column = divmod(self.size, self.layout[PARAMETERS].width)
            found[self.layout[PARAMETERS].first + row, column] = 0.0
        return found

    def changes(self, values: Mapping[str, Any], model: FloatArray) -> dict[str, Any]:
        """Differences between arrays and those of a public model: a client's change.

        Unchanged rows of the item table are left out: a party with the model can see which they
        are.

        Args:
            values: arrays by name, as of ``rows``.
            model: float64[rows, width], of ``table``.
        """
        self._require_known(values)
        flat = self._flat_of(model)
        found: dict[str, Any] = {}
        for each in self.segments:
            if each.name in values:
                own = as_array(values[each.name], each.name)
                found[each.name] = own - flat[each.start : each.stop].reshape(each.shape)
        if self.items is not None and self.items in values:
            place = self.layout[ITEMS]
            before = model[place.own, : place.width]
            numbers, rows = self._items_of(values)
            moved = rows - before[numbers]
            touched = (moved != 0).any(axis=1)
            found[self.items] = (numbers[touched], moved[touched])
        return found

    def _flat_of(self, model: FloatArray) -> FloatArray:
        if not self.segments:
            return np.zeros(0)
        place = self.layout[PARAMETERS]
        return model[place.own, : place.width].reshape(-1)[: self.size]

    def _require_known(self, values: Mapping[str, Any]) -> None:
        if not isinstance(values, Mapping):
            raise MisfitError(f"{type(values).__name__}: must be arrays by name, or None")
        for name in values:
            if name not in self.shapes:
                raise MisfitError(f"{name} is not one of the arrays: {', '.join(self.shapes)}")
        for each in self.segments:
            if each.name not in values:
                raise MisfitError(f"{each.name} is missing: arrays without rows travel whole")

    def _items_of(self, values: Mapping[str, Any]) -> tuple[IndexArray, FloatArray]:
        """Row numbers, ascending, and rows of the item table."""
        assert self.items is not None  # noqa: S101 - for the type checker
        told, shape = values[self.items], self.shapes[self.items]
        if not (isinstance(told, tuple) and len(told) == 2):
            rows = _shaped(told, shape, self.items)
            return np.arange(len(rows), dtype=np.int32), rows
        numbers = plain_array(told[0], f"{self.items}: row numbers")
        if numbers.dtype.kind == "b":
            raise MisfitError(f"{self.items}: row numbers, not a mask: np.flatnonzero makes them")
        if not np.isfinite(numbers).all() or (np.abs(numbers) >= _MOST_ROWS).any():
            raise MisfitError(f"{self.items}: row numbers are 0 to {shape[0] - 1}, none twice")
        whole = numbers.astype(np.int64)
        if numbers.ndim != 1 or (whole != numbers).any():
            raise MisfitError(f"{self.items}: row numbers are one list of whole numbers")
        if len(np.unique(whole)) < len(whole) or not ((whole >= 0) & (whole < shape[0])).all():
            raise MisfitError(f"{self.items}: row numbers are 0 to {shape[0] - 1}, none twice")
        rows = _shaped(told[1], (len(whole), shape[1]), self.items)
        order = np.argsort(whole)
        return whole[order].astype(np.int32), rows[order]

    def _item_rows(
        self, values: Mapping[str, Any], factor: float
    ) -> Iterator[tuple[IndexArray, FloatArray]]:
        if self.items is None:
            return
        place = self.layout[ITEMS]
        numbers, rows = np.zeros(0, dtype=np.int32), np.zeros((0, place.width))
        if self.items in values:
            numbers, rows = self._items_of(values)
        filled = np.zeros((len(numbers), self.layout.width))
        filled[:, : place.width] = rows * factor
        yield numbers + np.int32(place.first), filled

    def _flat_rows(
        self, values: Mapping[str, Any], factor: float
    ) -> Iterator[tuple[IndexArray, FloatArray]]:
        if PARAMETERS not in self.layout.places:
            return
        place = self.layout[PARAMETERS]
        flat = np.zeros(place.rows * place.width)
        for each in self.segments:
            own = _shaped(values[each.name], each.shape, each.name)
            flat[each.start : each.stop] = own.reshape(-1) * factor
        if self.weighted:
            flat[self.size] = factor
        rows = flat.reshape(place.rows, place.width)
        yield np.arange(place.first, place.first + place.rows, dtype=np.int32), rows


def _require_shape(name: Any, shape: Any) -> None:
    """Refuse names without an array of at least one value.

    Raises:
        MisfitError: the name does not have such an array.
    """
    if not isinstance(name, str):
        raise MisfitError(f"arrays: {name!r} is not a name")
    try:
        sizes = [index(each) for each in shape]
    except TypeError as other:
        problem = "an array, or a shape of whole numbers, is meant"
        raise MisfitError(f"{name} has the shape {shape!r}: {problem}") from other
    if min(sizes, default=1) < 1:
        raise MisfitError(f"{name} has the shape {tuple(sizes)}: it holds no value")


def as_weight(told: Any) -> float:
    """The weight of a sender: a finite number above 0.

    Raises:
        MisfitError: the weight is not such a number.
    """
    found = as_array(told, "weight")
    if found.shape or isinstance(told, bool) or not 0.0 < float(found) < np.inf:
        raise MisfitError(f"weight = {told!r}: a finite number above 0 is meant")
    return float(found)


def as_array(values: Any, name: str) -> FloatArray:
    """float64 of any shape, of a NumPy array, a PyTorch tensor or nested lists.

    Raises:
        MisfitError: it is masked, or holds anything but numbers.
    """
    return plain_array(values, name).astype(np.float64)


def plain_array(values: Any, name: str) -> npt.NDArray[Any]:
    """The same, of the type that it is given in.

    Raises:
        MisfitError: as ``as_array``.
    """
    try:
        if hasattr(values, "detach"):  # a tensor, of any device; PyTorch is not imported for it
            values = values.detach().cpu().numpy()
        found = unmasked(values, name)
    except (TypeError, ValueError, OverflowError, RuntimeError) as other:
        if isinstance(other, MisfitError):
            raise
        raise MisfitError(f"{name} is not an array of numbers: {other}") from other
    if found.dtype.kind not in "iufb":
        raise MisfitError(f"{name} holds {found.dtype}, not numbers")
    return found


def _shaped(values: Any, shape: tuple[int, ...], name: str) -> FloatArray:
    found = as_array(values, name)
    if found.shape != shape:
        raise MisfitError(f"{name} has the shape {found.shape}, not {shape}")
    return found
