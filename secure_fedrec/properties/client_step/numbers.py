"""Sent and private values, as rows of numbers that can be compared."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from secure_fedrec.properties.split.random import is_exact

PIECES: Final = 1 << 18
"""Number of pieces of a private array that are searched for, along each of its axes."""

_WHOLE: Final = 8  # a row of so many numbers is one piece
_PIECE: Final = 4  # numbers of a piece of a longer one: of any seven in a row it holds one whole
_PAIRED: Final = 4  # arrays of one shape that each array is held against, where no name agrees
_ROWS: Final = 16  # of a table, where one row is sent
_BYTES: Final = {torch.uint8, torch.int8, torch.int32}


class Row(NamedTuple):
    """Consecutive numbers, in all trainings: float64[trainings, numbers]."""

    path: str
    values: Tensor


def rows_of(
    sent: Sequence[Mapping[str, Tensor]],
    downloaded: Sequence[Mapping[str, Tensor]],
    quantized: Container[str],
) -> tuple[list[Row], list[Row]]:
    """The numbers sent, in every order in which a row may be sent: exact rows, and rounded ones.

    Args:
        sent: arrays by path, of every training: the same names and shapes in all.
        downloaded: what the server gave before each training, which it can subtract from what was
            sent.
        quantized: paths of numbers that were made of few bits.
    """
    exact: list[Row] = []
    rounded: list[Row] = []
    for path in sent[0]:
        values = torch.stack([_real(each[path]) for each in sent])
        few = is_exact(values) or path in quantized
        (rounded if few else exact).extend(_orders(path, values))
        exact += _bits(path, values)
        for given in () if few else given_for(path, sent, downloaded):
            exact += _orders(f"{path}, less what was downloaded", values.double() - given)
    return exact, rounded


def rows_given(downloaded: Sequence[Mapping[str, Tensor]]) -> list[Row]:
    """What the server gave, in every order in which a row may be sent."""
    return [
        row
        for name, first in downloaded[0].items()
        if first.is_floating_point()
        for row in _orders(name, torch.stack([each[name] for each in downloaded]))
    ]


def pieces_of(values: Tensor, *, differences: bool = False) -> Iterator[Tensor]:
    """Pieces of rows along each axis of an array: float64[trainings, pieces, numbers].

    Args:
        values: float64[trainings, ...].
        differences: whether to take differences of neighbours, which do not change if a number is
            added to all.
    """
    axes = range(1, values.dim()) if values.dim() > 1 else (0,)
    for axis in axes:
        rows = values.movedim(axis, -1) if axis else values[:, None]
        rows = rows.reshape(len(values), -1, rows.shape[-1] if axis else 1)
        rows = rows.diff(dim=2) if differences else rows
        size = rows.shape[2]
        # A single number cannot be told from chance.
        if not size or (size == 1 and rows.shape[1] > 1):
            continue
        width = size if size <= _WHOLE else _PIECE
        starts = [*range(0, size - width, width), size - width]
        # The first piece of every row comes first.
        pieces = torch.cat([rows[:, :, start : start + width] for start in starts], dim=1)
        chosen = pieces.isfinite().all(2).all(0).nonzero()[:PIECES, 0]
        if len(chosen):
            yield pieces[:, chosen]


def is_told_from_chance(pieces: Tensor, near: float) -> Tensor:
    """Which of float64[trainings, pieces, numbers] are another one in most trainings: bool[pieces].

    One step of Adam or of a sign moves a number by plus or minus its learning rate. Of thousands of
    such numbers, some have the same signs in all trainings. The same holds for a number that is
    large in one training and tiny in the others, or that hardly varies.

    Args:
        pieces: which.
        near: 1 - cos^2 of what counts as equal; numbers are taken as equal that differ by three
            times as much as that allows.
    """
    cells = (pieces / pieces.abs().amax((0, 2), keepdim=True) / (3 * near**0.5)).round()
    weights = torch.sqrt(torch.arange(2.0, 2.0 + pieces.shape[2], dtype=pieces.dtype))
    ordered = (cells @ weights).sort(dim=0).values
    different: Tensor = 1 + (ordered.diff(dim=0) > 1e-6).sum(0)
    told: Tensor = different > len(pieces) // 2
    return told


def is_too_large(value: Tensor) -> bool:
    """Whether an array has more pieces than the check searches for."""
    pieces = [value.numel() // size * -(-size // _PIECE) for size in value.shape if size > _WHOLE]
    return max(pieces, default=value.numel()) > PIECES


def _orders(path: str, values: Tensor) -> Iterator[Row]:
    """Numbers along each axis of float64[trainings, ...]."""
    yield Row(path, values.reshape(len(values), -1).double())
    for axis in range(1, values.dim() - 1):
        turned = values.movedim(axis, -1).reshape(len(values), -1)
        yield Row(f"{path}, transposed", turned.double())


def _bits(path: str, values: Tensor) -> Iterator[Row]:
    """Bytes, and integers of 32 bits, read as floating-point numbers from every byte on."""
    if values.dtype not in _BYTES:
        return
    raw = np.ascontiguousarray(values.reshape(len(values), -1).numpy()).view(np.uint8)
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for start in range(0, dtype.itemsize, values.element_size()):
            size = (raw.shape[1] - start) // dtype.itemsize * dtype.itemsize
            if size:
                found = np.ascontiguousarray(raw[:, start : start + size]).view(dtype)
                with np.errstate(invalid="ignore"):  # bytes may not be numbers of this type
                    numbers = np.nan_to_num(found.astype(float), posinf=0, neginf=0)
                yield Row(f"{path}, read as {dtype}", torch.from_numpy(numbers))


def given_for(
    path: str, sent: Sequence[Mapping[str, Tensor]], downloaded: Sequence[Mapping[str, Tensor]]
) -> Iterator[Tensor]:
    """Values that the server may subtract: those that it gave with the same name or shape.

    Yields:
        float64[trainings, ...], of the array's shape.
    """
    value, given = sent[0][path], downloaded[0]
    if is_exact(value) or value.is_complex() or not value.dim():
        return
    real = [name for name, each in given.items() if each.is_floating_point()]
    same = [name for name in real if given[name].shape == value.shape]
    named = [n for n in same if f".{path}".endswith(f".{n}") or f".{n}".endswith(f".{path}")]
    for name in named or same[:_PAIRED]:
        yield torch.stack([each[name] for each in downloaded]).double()
    for name in [name for name in real if given[name].shape[1:] == value.shape]:
        yield from torch.stack([each[name][:_ROWS] for each in downloaded], 1).double()


def _real(values: Tensor) -> Tensor:
    return torch.view_as_real(values) if values.is_complex() else values
