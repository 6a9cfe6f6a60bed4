"""Finds private values in what clients send.

A client trains several times, each time with different private values and the same seed. The search
finds places in what it sends where the numbers are c times the private numbers, with one c in all
trainings, whatever the name, shape or type of what is sent. That does not happen by chance. c may
be -1 or any learning rate. The private numbers may be the values before or after training or their
change, and each of these divided by a norm.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from secure_fedrec.properties.client_step.numbers import (
    Row,
    given_for,
    is_told_from_chance,
    pieces_of,
    rows_given,
    rows_of,
)

DRAWS: Final = 12
"""Trainings of every client; more trainings distinguish a single number from others better."""

_SEVERAL: Final = 4  # numbers of a piece that has a direction of its own
_ALIKE: Final = 1e-5  # limit of 1 - cos^2; errors of float16 and bfloat16 are smaller
_ROUNDED: Final = 1e-3  # the same for numbers of 8 bits
_BLOCK: Final = 1 << 22  # pairs of a place and a piece at a time
_PAIRS: Final = 1 << 18  # pairs alike in one training, compared in all

Scales = Mapping[str, Tensor]
"""Factors by which an array may be multiplied, in words and for every training: float64[trainings].
"""


class Standing(NamedTuple):
    """A private value that was found in what was sent.

    Args:
        path: the path of the array that holds it.
        place: the number of the first value there, in the order of memory.
        form: which of the values it is, in words.
        factor: by what they are multiplied; None if the factor differs between trainings.
        distance: 1 - cos^2 of the two vectors, over all trainings.
        trainings: the number of trainings, if not all.
    """

    path: str
    place: int
    form: str
    factor: float | None
    distance: float
    trainings: int | None = None

    def __str__(self) -> str:
        times = (
            "" if self.factor is None or abs(self.factor - 1) < 1e-3 else f"{self.factor:.4g} x "
        )
        some = "" if self.trainings is None else f", in {self.trainings} of {DRAWS} trainings"
        return f"{times}{self.form} stands in {self.path!r}, from number {self.place} on{some}"


def find_standing(
    sent: Sequence[Mapping[str, Tensor]],
    before: Sequence[Tensor],
    after: Sequence[Tensor],
    downloaded: Sequence[Mapping[str, Tensor]] | None = None,
    quantized: Container[str] = (),
) -> Standing | None:
    """Where in what was sent a private array is, if it was sent.

    Args:
        sent: arrays by path, of every training: the same names and shapes in all.
        before: the private array before every training.
        after: the same, afterwards.
        downloaded: arrays by name that the server gave before every training.
        quantized: paths of numbers that were made of few bits.

    Returns:
        The nearest place, with the same factor in all trainings if there is such a place.
    """
    begun, ended = torch.stack(list(before)).double(), torch.stack(list(after)).double()
    forms = {
        "its value before training": begun,
        "its value after training": ended,
        "its change": ended - begun,
    }
    exact, rounded = rows_of(sent, downloaded or [{}] * len(sent), quantized)
    public = rows_given(downloaded or [{}])
    shifted = [Row(f"{path}, its differences", each.diff(dim=1)) for path, each in rounded]
    found = [
        standing
        for rows, near, differences in (
            (exact, _ALIKE, False),
            (rounded, _ROUNDED, False),
            (shifted, _ROUNDED, True),
        )
        for form, values in forms.items()
        for shown, scales in _shown(form, values)
        for pieces in pieces_of(shown, differences=differences)
        for standing in _nearest(rows, pieces, scales, near, _Known(public, differences))
    ]
    for path in sent[0]:
        for given in given_for(path, sent, downloaded or [{}] * len(sent)):
            target = torch.stack([each[path] for each in sent]).double()
            found += [
                Standing(path, place, f"{form} + a part of what was downloaded", factor, 0.0)
                for form, values in forms.items()
                for place, factor in _beside(target, values, given)
            ]
    return min(found, key=lambda each: (each.factor is None, each.distance), default=None)


def _beside(target: Tensor, values: Tensor, given: Tensor) -> Iterator[tuple[int, float]]:
    """Places and factors of values in a sum of them and of what was downloaded."""
    whole = _factor_beside(target, values, given)
    if whole is not None:
        yield 0, whole
    width = target.shape[-1]
    if target.dim() < 2 or values.dim() < 2 or values.shape[-1] != width or width < _SEVERAL:
        return
    # What the server gave in a row's place is projected out of both the row and the copy.
    sums, public, own = (
        each.reshape(len(each), -1, width).transpose(0, 1).flatten(1)
        for each in (target, given, values)
    )
    told = is_told_from_chance(values.reshape(len(values), -1, width), _ALIKE)
    length = public.square().sum(1).clamp(min=torch.finfo(public.dtype).tiny)
    left = sums - ((sums * public).sum(1) / length)[:, None] * public
    moved = (left.square().sum(1) > 1e-9 * sums.square().sum(1)).nonzero()[:, 0]
    for rows in torch.split(moved, max(1, _BLOCK // max(1, len(own)))):
        inner = left[rows] @ own.T
        rest = own.square().sum(1) - (public[rows] @ own.T).square() / length[rows, None]
        near = inner.square() > (1 - _ALIKE) * rest * left[rows].square().sum(1)[:, None]
        for row, which in (near & told & (rest > 0)).nonzero().tolist():
            yield int(rows[row]) * width, float(inner[row, which] / rest[row, which])


def _factor_beside(target: Tensor, values: Tensor, given: Tensor) -> float | None:
    """Factors of values in a sum of them and of downloaded arrays, all of one shape."""
    told = is_told_from_chance(values.reshape(len(values), 1, -1), _ALIKE)
    if target.shape != values.shape or not bool(told):
        return None
    parts = torch.stack([given.flatten(), values.flatten()], dim=1)
    flat = target.reshape(-1, 1)
    without, both = (torch.linalg.lstsq(each, flat).solution for each in (parts[:, :1], parts))
    left = (flat - parts[:, :1] @ without).square().sum()
    rest = (flat - parts @ both).square().sum()
    return float(both[1]) if float(rest) < _ALIKE * float(left) else None


def _shown(form: str, values: Tensor) -> Iterator[tuple[Tensor, Scales]]:
    """An array unchanged or divided by a norm; and an array with each row divided by its norm."""
    one = torch.ones(len(values), dtype=torch.float64)
    flat = values.reshape(len(values), -1)
    scales = {form: one}
    if flat.shape[1] > 1:
        scales[f"{form} over its norm"] = 1 / torch.linalg.vector_norm(flat, dim=1)
        scales[f"{form} over its largest number"] = 1 / flat.abs().amax(1)
        scales[f"{form} over its range"] = 1 / (flat.amax(1) - flat.amin(1))
    yield values, scales
    if values.dim() > 2 and values.shape[-1] > 1:
        norms = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        yield values / norms, {f"{form} over the norm of its row": one}


class _Known:
    """What the server gave: a private piece that is a multiple of it is known to the server.

    Args:
        rows: what it gave.
        differences: whether differences of neighbours are taken, as for the pieces.
    """

    def __init__(self, rows: Sequence[Row], differences: bool) -> None:
        self._rows = [each.values.diff(dim=1) if differences else each.values for each in rows]

    def holds(self, pieces: Tensor, near: float) -> Tensor:
        """bool[pieces]: which pieces of all trainings the server has, up to a factor."""
        found = torch.zeros(pieces.shape[1], dtype=torch.bool)
        width = pieces.shape[2]
        row = torch.cat([*self._rows, pieces[:, :0, 0]], dim=1)
        if row.shape[1] < width:
            return found
        windows = row.unfold(1, width, 1)
        several = width >= _SEVERAL
        looked = (windows[:1], pieces[:1]) if several else (windows, pieces)
        for places, chosen in _candidates(*looked, near):
            product = (windows[:, places] * pieces[:, chosen]).sum(2)
            there, own = (each.square().sum(2) for each in (windows[:, places], pieces[:, chosen]))
            # Where a piece has a direction, the factor may vary: the direction alone tells the
            # server.
            apart = (1 - product**2 / (there * own)).amax(0)
            distances = 1 - product.sum(0) ** 2 / (there.sum(0) * own.sum(0))
            found[chosen[(apart if several else distances) < near]] = True
        return found


def _nearest(
    rows: Sequence[Row], pieces: Tensor, scales: Scales, near: float, known: _Known
) -> Iterator[Standing]:
    """The nearest place of the pieces for each scale, or, if the factor varies, without a scale."""
    row, width = torch.cat([each.values for each in rows] or [pieces[:, :0, 0]], 1), pieces.shape[2]
    if row.shape[1] < width:
        return
    windows = row.unfold(1, width, 1)
    pieces = pieces[:, is_told_from_chance(pieces, near)]
    if width >= _SEVERAL:  # pieces with a direction: one training finds candidates
        for pairs in _candidates(windows[:1], pieces[:1], near):
            yield from _judge(rows, windows, pieces, pairs, scales, near, known)
        return
    for form, scale in scales.items():
        scaled = pieces * scale[:, None, None]
        scaled = scaled[:, is_told_from_chance(scaled, near)]
        one = {form: torch.ones_like(scale)}
        for pairs in _candidates(windows, scaled, near):
            yield from _judge(rows, windows, scaled, pairs, one, near, known)


def _judge(
    rows: Sequence[Row],
    windows: Tensor,
    pieces: Tensor,
    pairs: tuple[Tensor, Tensor],
    scales: Scales,
    near: float,
    known: _Known,
) -> Iterator[Standing]:
    """The nearest pair among some pairs of a place and a piece, over all trainings."""
    places, chosen = pairs
    product = (windows[:, places] * pieces[:, chosen]).sum(2)
    there, own = (each.square().sum(2) for each in (windows[:, places], pieces[:, chosen]))

    def best(distances: Tensor) -> int | None:
        """The nearest pair that is close enough and whose piece the server did not know before."""
        close = (distances.nan_to_num(1.0) < near).nonzero()[:, 0]
        kinds, which = chosen[close].unique(return_inverse=True)  # type: ignore[no-untyped-call]
        close = close[~known.holds(pieces[:, kinds], near)[which]]
        return int(close[distances[close].argmin()]) if len(close) else None

    for form, scale in scales.items():
        inner = (product * scale[:, None]).sum(0)
        size = (own * scale[:, None] ** 2).sum(0)
        distances = 1 - inner**2 / (there.sum(0) * size)
        pair = best(distances)
        if pair is not None:
            place = _place(rows, int(places[pair]))
            yield Standing(*place, form, float(inner[pair] / size[pair]), float(distances[pair]))
    if pieces.shape[2] >= _SEVERAL and len(places):
        apart = (1 - product**2 / (there * own)).amax(0)
        pair = best(apart)
        if pair is not None:
            place = _place(rows, int(places[pair]))
            yield Standing(*place, next(iter(scales)), None, float(apart[pair]))


def _candidates(windows: Tensor, pieces: Tensor, near: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Places and pieces whose directions agree up to the sign: two int64[pairs], in batches.

    If directions agree, so do their projections: pairs are searched for in cells of two
    projections.

    Args:
        windows: float64[trainings, places, numbers].
        pieces: float64[trainings, pieces, numbers].
        near: the largest 1 - cos^2 that counts as agreement.
    """
    there, own = (_directions(each) for each in (windows, pieces))
    reach = (20 * near) ** 0.5  # how far directions are apart where 1 - |cos| is 10 times as much
    axes = torch.cos(torch.arange(2.0 * there.shape[1])).view(-1, 2) + torch.eye(there.shape[1], 2)
    cells = [((each @ normalize(axes, dim=0)).abs() / reach).long() for each in (there, own)]
    many = int(2 / reach) + 4
    keys, order = (cells[1][:, 0] * many + cells[1][:, 1]).sort()
    for shift in (-1, 0, 1):
        middle = (cells[0][:, 0] + shift) * many + cells[0][:, 1]
        low = torch.searchsorted(keys, middle - 1)
        counts = torch.searchsorted(keys, middle + 1, right=True) - low
        counts[there.square().sum(1) < 0.5] = 0  # zeros have no direction
        for block in _blocks(counts):
            place = torch.repeat_interleave(block, counts[block])
            ends = counts[block].cumsum(0)
            within = torch.arange(int(ends[-1])) - torch.repeat_interleave(
                ends - counts[block], counts[block]
            )
            piece = order[low[place] + within]
            agree = (there[place] * own[piece]).sum(1).abs() > 1 - 10 * near
            pairs = (torch.split(each[agree], _PAIRS) for each in (place, piece))
            yield from zip(*pairs, strict=True)


def _blocks(counts: Tensor) -> Iterator[Tensor]:
    """Places in batches with a bounded number of pairs: int64[places] each."""
    places = counts.nonzero()[:, 0]
    number = counts[places].cumsum(0) // _BLOCK
    sizes = torch.unique_consecutive(number, return_counts=True)[1].tolist()
    yield from torch.split(places, sizes)


def _place(rows: Sequence[Row], place: int) -> tuple[str, int]:
    """The row that holds a place counted over all rows, and the place within it."""
    for path, values in rows:
        if place < values.shape[1]:
            return path, place
        place -= values.shape[1]
    raise AssertionError("a place beyond the end")


def _directions(vectors: Tensor) -> Tensor:
    """Join vectors over trainings, with norm 1: float32[vectors, trainings * numbers]."""
    return normalize(vectors.transpose(0, 1).flatten(1), dim=1).float()
