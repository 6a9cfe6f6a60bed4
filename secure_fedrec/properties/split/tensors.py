"""The parameters and buffers of a model by name, whole or cut where users' rows end."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from secure_fedrec.errors import ConfigError

_ROWS: Final = re.compile(r"(?P<name>.*)\[(?P<start>\d*):(?P<stop>\d*)\]")


class Place(NamedTuple):
    """Where a tensor is found.

    Args:
        held: the dict of its module.
        leaf: its name in that.
        rows: of it; None for all.
    """

    held: dict[str, Any]
    leaf: str
    rows: slice | None

    @property
    def whole(self) -> Tensor:
        """The tensor, all rows of it."""
        tensor: Tensor | None = self.held.get(self.leaf)
        if tensor is None:
            problem = (
                "is not a tensor of its module any more: parametrise it before, not in the loss"
            )
            raise ConfigError("model", self.leaf, problem)
        return tensor


class Tensors(Mapping[str, Tensor]):
    """The current tensors of a model: a module may replace a buffer's tensor.

    Args:
        model: under all names of its tensors, parameters first.

    Attributes:
        parameters: the names of parameters.
    """

    def __init__(self, model: nn.Module) -> None:
        self._places: dict[str, Place] = {}
        for kind in ("_parameters", "_buffers"):  # the dicts themselves, for O(1) look-up
            for prefix, module in model.named_modules(remove_duplicate=False):
                held: dict[str, Any] = getattr(module, kind)
                for leaf, tensor in held.items():
                    if tensor is not None:
                        name = f"{prefix}.{leaf}" if prefix else leaf
                        self._places[name] = Place(held, leaf, None)
            if kind == "_parameters":
                self.parameters = list(self._places)

    def __getitem__(self, name: str) -> Tensor:
        place = self._places[name]
        return place.whole if place.rows is None else place.whole[place.rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def place(self, name: str) -> Place:
        """Where a tensor is found."""
        return self._places[name]

    def key(self, name: str) -> tuple[int, int]:
        """Equal for two names of one tensor."""
        place = self._places[name]
        return id(place.whole), 0 if place.rows is None else place.rows.start

    def originals(self) -> dict[str, Tensor]:
        """The tensors whole; under the name of their first rows, where they are cut."""
        places = self._places.items()
        return {
            name: each.whole for name, each in places if each.rows is None or not each.rows.start
        }

    def cut(self, pattern: str) -> None:
        """Cut a table where a pattern such as ``table.weight[:100]`` says that users' rows end.

        Raises:
            ConfigError: the table does not exist, or lacks these rows.
        """
        asked = _ROWS.fullmatch(pattern)
        if asked is None or pattern in self._places:
            return
        name = asked["name"]
        pieces = [each for each in self._places if each == name or each.startswith(f"{name}[")]
        if not pieces:
            raise ConfigError("private", pattern, "matches no parameter and no buffer", self)
        whole = self._places[pieces[0]].whole
        rows = len(whole) if whole.dim() else 0
        start = int(asked["start"] or 0)
        stop = int(asked["stop"] or rows)
        if not 0 <= start < stop <= rows:
            raise ConfigError("private", pattern, f"{name!r} has rows 0 to {rows - 1}")
        for piece in pieces:
            held = self._places[piece].rows or slice(0, rows)
            if held.start <= start and stop <= held.stop:
                self._cut(piece, pattern, name, (held, slice(start, stop)))
                return
        raise ConfigError("private", pattern, "overlaps another slice of the table", pieces)

    def _cut(self, piece: str, pattern: str, name: str, rows: tuple[slice, slice]) -> None:
        """Cut the rows of a pattern out of a piece of a table."""
        place, (held, cut) = self._places.pop(piece), rows
        end = "" if held.stop == len(place.whole) else held.stop
        parts = {
            f"{name}[{held.start or ''}:{cut.start}]": slice(held.start, cut.start),
            pattern: cut,
            f"{name}[{cut.stop}:{end}]": slice(cut.stop, held.stop),
        }
        found = {new: part for new, part in parts.items() if part.start < part.stop}
        self._places |= {new: place._replace(rows=part) for new, part in found.items()}
        if piece in self.parameters:
            self.parameters.remove(piece)
            self.parameters += found


def require_usable(model: object) -> None:
    """Check that all tensors of a model can be read, written and put back.

    Raises:
        ConfigError: it is not a module, or compiled, or a tensor has no values of its own.
    """
    kind = type(model).__name__
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise ConfigError("model", kind, "must be an nn.Module, not compiled")
    for name, module in model.named_modules():
        if ".quantized" in type(module).__module__:
            why = (
                f"is quantized ({type(module).__name__}), so its weights are not parameters: check "
                "the model that it was made from"
            )
            raise ConfigError("model", name or kind, why)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        problem = None
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            problem = "is not initialised: call the model once on a batch"
        elif tensor.is_meta:
            problem = "lies on the device 'meta' and has no values"
        elif tensor.layout is not torch.strided or tensor.is_quantized:
            problem = "is sparse or quantized: keep it dense, or in an attribute"
        elif tensor.is_floating_point() and tensor.element_size() < 2:
            problem = f"is of {tensor.dtype}, which torch cannot add up"
        elif _overlaps(tensor):
            problem = "is expanded: several of its values are one in memory; clone it"
        if problem is not None:
            raise ConfigError("model", name, problem)


def _overlaps(tensor: Tensor) -> bool:
    return any(
        step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    )
