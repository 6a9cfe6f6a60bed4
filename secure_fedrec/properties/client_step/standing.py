"""Where private values stand in what clients send.

A client trains several times, each time with other private values and the same chance. At some
place of all that it sends, the numbers are c times the private ones, with one c in all trainings:
that is found, whatever the name, shape or type of what is sent, and does not happen by chance. c
may be -1, or whatever a learning rate is. Besides the values themselves, before training and
after, it may be their change, and each of these over the norm of its row.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from secure_fedrec.properties.split.random import is_exact

DRAWS: Final = 12
"""Trainings of every client: a single number is told from others by so many digits."""

_PIECE: Final = 8  # numbers of a row that are looked for together
_PIECES: Final = 2048  # of every array
_BLOCK: Final = 1 << 22  # pairs of a place and a piece at a time
_SEVERAL: Final = 4  # numbers of a piece that has a direction of its own
_ALIKE: Final = 1e-5  # of 1 - cos^2: half precision is nearer, bfloat16 too
_ROUNDED: Final = 1e-3  # numbers in 8 bits are nearer

Segments: TypeAlias = list[tuple[str, Tensor]]
"""Numbers of all trainings by path: float64[trainings, numbers]."""


class Standing(NamedTuple):
    """A private value in what was sent.

    Args:
        path: where.
        place: the number of the first value there, in the order of memory.
        form: which of the values it is.
        factor: what they are multiplied by; None where it is another one in every training.
        distance: 1 - cos^2 of both, over all trainings.
    """

    path: str
    place: int
    form: str
    factor: float | None
    distance: float

    def __str__(self) -> str:
        times = (
            "" if self.factor is None or abs(self.factor - 1) < 1e-3 else f"{self.factor:.4g} x "
        )
        return f"{times}{self.form} stands in {self.path!r}, from number {self.place} on"


def find_standing(
    sent: Sequence[Mapping[str, Tensor]], before: Sequence[Tensor], after: Sequence[Tensor]
) -> Standing | None:
    """Where a private array stands in what was sent, if it does.

    Args:
        sent: arrays by path, of every training: the same names and shapes in all.
        before: the private array before every training.
        after: the same, afterwards.

    Returns:
        The place where it is nearest, with the same factor in all trainings if there is one.
    """
    begun, ended = torch.stack(list(before)).double(), torch.stack(list(after)).double()
    forms = {
        "its value before training": begun,
        "its value after training": ended,
        "its change": ended - begun,
    }
    found = [
        Standing(*_place(segments, place), f"{form}{over}", factor, distance)
        for segments, alike in _segments(sent)
        for form, values in forms.items()
        for over, pieces in _pieces(values)
        for distance, place, factor in _nearest(segments, pieces, alike)
    ]
    return min(found, key=lambda each: (each.factor is None, each.distance), default=None)


def _place(segments: Segments, place: int) -> tuple[str, int]:
    """In which segment a place is, and where in it."""
    for path, values in segments:
        if place < values.shape[1]:
            return path, place
        place -= values.shape[1]
    raise AssertionError("a place beyond the end")


def _segments(sent: Sequence[Mapping[str, Tensor]]) -> Iterator[tuple[Segments, float]]:
    """What was sent, in every order that a row may stand in: first what is exact, then integers.

    Yields:
        Segments, and how near numbers are when they are alike: integers may be rounded ones.
    """
    exact: Segments = []
    rounded: Segments = []
    for path in sent[0]:
        values = torch.stack([_real(each[path]) for each in sent])
        flat = values.reshape(len(sent), -1)
        found = rounded if is_exact(values) else exact
        found.append((path, flat.double()))
        if values.dim() > 2:
            found.append((f"{path}, transposed", values.mT.reshape(len(sent), -1).double()))
        if values.dtype in {torch.uint8, torch.int8, torch.int32} and flat.shape[1] % 4 == 0:
            bits = flat.view(torch.float32).double().nan_to_num(0.0, 0.0, 0.0)
            exact.append((f"{path}, read as float32", bits))
    yield from ((found, alike) for found, alike in ((exact, _ALIKE), (rounded, _ROUNDED)) if found)


def _real(values: Tensor) -> Tensor:
    return torch.view_as_real(values) if values.is_complex() else values


def _pieces(values: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Some pieces of the rows of an array, float64[trainings, pieces, numbers], and of which form.

    Args:
        values: float64[trainings, ...].
    """
    rows = values.reshape(len(values), -1, values.shape[-1] if values.dim() > 1 else 1)
    if rows.shape[2] == 1:  # a column is one row
        rows = rows.mT
    width = min(_PIECE, rows.shape[2])
    starts = [*range(0, rows.shape[2] - width, width), rows.shape[2] - width]
    norms = torch.linalg.vector_norm(rows, dim=2, keepdim=True)
    for over, shown in (("", rows), (" over the norm of its row", rows / norms)):
        # Of every row its first piece first.
        pieces = torch.cat([shown[:, :, start : start + width] for start in starts], dim=1)
        # What does not vary, or is not there, tells nothing.
        varies = (pieces.std(0) > 1e-3 * pieces.abs().mean(0)).any(1)
        chosen = (varies & pieces.isfinite().all(2).all(0)).nonzero()[:_PIECES, 0]
        if len(chosen) and (width > 1 or not over):
            yield over, pieces[:, chosen]


def _nearest(
    segments: Segments, pieces: Tensor, alike: float
) -> Iterator[tuple[float, int, float | None]]:
    """Where pieces stand: (distance, place, factor), where it is another in every training None."""
    row, width = torch.cat([values for _, values in segments], dim=1), pieces.shape[2]
    if row.shape[1] < width:
        return
    windows = row.unfold(1, width, 1)
    several = width >= _SEVERAL  # which have a direction, so that one training tells where to look
    looked = slice(1 if several else None)
    directions = _directions(pieces[looked])
    step = _BLOCK // len(directions)
    for start in range(0, windows.shape[1], step):
        block = _directions(windows[looked, start : start + step])
        for place, piece in ((block @ directions.T).abs() > 1 - 10 * alike).nonzero().tolist():
            found, own = windows[:, start + place], pieces[:, piece]
            product, sizes = (found * own).sum(1), (found.square().sum(1), own.square().sum(1))
            distance = 1 - product.sum() ** 2 / (sizes[0].sum() * sizes[1].sum())
            if distance < alike:
                yield float(distance), start + place, float(product.sum() / sizes[1].sum())
            elif several and (apart := 1 - (product**2 / (sizes[0] * sizes[1])).min()) < _ALIKE:
                yield float(apart), start + place, None


def _directions(vectors: Tensor) -> Tensor:
    """Vectors of several trainings as one of norm 1: float32[places, trainings * numbers]."""
    return torch.nn.functional.normalize(vectors.transpose(0, 1).flatten(1), dim=1).float()
