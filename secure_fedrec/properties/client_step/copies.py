"""Find private numbers that are sent unchanged, anywhere and in any training.

Four numbers that are drawn at random are not equal to four others by chance, even in one training.
So copies are also found at different places, or in some trainings only: a private value may decide
which row is sent, or whether it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secure_fedrec.properties.client_step.standing import Standing
from secure_fedrec.properties.split.random import is_exact

_WIDTH: Final = 4  # numbers that are looked for together
_MIXED: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = 16  # leading integers that are searched for


def find_copies(
    form: str,
    sent: Sequence[Mapping[str, Tensor]],
    private: Sequence[Tensor],
    downloaded: Sequence[Mapping[str, Tensor]],
) -> Standing | None:
    """Where a private array is sent unchanged, or negated, in some trainings.

    Args:
        form: which values of the array these are, in words.
        sent: arrays by path, of every training.
        private: the array in every training.
        downloaded: what the server gave before every training, which it knows.
    """
    found: dict[str, list[int]] = {}
    for values, own, given in zip(sent, private, downloaded, strict=True):
        known = np.concatenate([_keys(each) for each in given.values()] or [_keys(torch.empty(0))])
        for path, value in values.items():
            here = _first_copy(value, own, known)
            if here is not None:
                found.setdefault(path, []).append(here)
    if not found:
        return None
    path = max(found, key=lambda each: len(found[each]))
    return Standing(path, found[path][0], form, 1.0, 0.0, len(found[path]))


class Found(NamedTuple):
    """Private integers found in a client's upload.

    Args:
        path: path of the array that holds them.
        place: position of the first one in that array.
        bits: -log2 of the probability of a coincidence there: each number is as likely as it is
            frequent beside them, or as any in the array's range.
    """

    path: str
    place: int
    bits: float


def find_integers(sent: Sequence[Mapping[str, Tensor]], private: Tensor) -> list[Found]:
    """Places of private integers, multiplied by one number in all trainings."""
    own = private.reshape(-1).double()
    start = int(own.nonzero()[0])
    found: list[Found] = []
    for path in sent[0]:
        flat = torch.stack([each[path].reshape(-1) for each in sent])
        if flat.is_complex() or flat.shape[1] < len(own):
            continue
        windows = flat.double().unfold(1, len(own), 1)
        # The first number that is not 0 gives the factor, which is the same in every training.
        size = windows[:, :, start]
        same = ((size - size[0]).abs() <= 1e-5 * size[0].abs()).all(0)
        left = ((size[0] != 0) & same).nonzero()[:, 0]
        for at in range(0, len(own), _FIRST):
            some = slice(at, at + _FIRST)
            factor = size[:, left, None] / own[start]
            off = windows[:, left, some] - own[some] * factor
            left = left[(off.abs() <= 1e-5 * factor.abs() * own.abs().max()).all(2).all(0)]
        first = flat[0].double()
        found += [
            Found(path, at, _bits(first / size[0, at] * own[start], at, len(own)))
            for at in left.tolist()
        ]
    return found


def _bits(array: Tensor, place: int, size: int) -> float:
    """``Found.bits`` of the numbers that begin at a place of an array float64[N]."""
    array = (array * 1e4).round() / 1e4  # treats nearly equal numbers as equal
    window = array[place : place + size]
    beside = torch.cat([array[:place], array[place + size :]]).sort().values
    spread = float(array.amax() - array.amin()) + 1
    times = torch.searchsorted(beside, window, right=True) - torch.searchsorted(beside, window)
    shares = (times / max(1, len(beside))).clamp(min=1 / spread)
    return float(-shares.log2().sum())


def _first_copy(value: Tensor, own: Tensor, known: npt.NDArray[np.uint64]) -> int | None:
    if is_exact(value) or value.is_complex() or value.numel() < _WIDTH:
        return None
    rows = own if own.dim() and own.shape[-1] >= _WIDTH else own.reshape(1, -1)
    if rows.shape[-1] < _WIDTH:
        return None
    pieces = rows.unfold(-1, _WIDTH, 1).reshape(-1, _WIDTH).float()
    apart = pieces.sort(dim=1).values.diff(dim=1)
    pieces = pieces[(apart > 0).all(1) & (pieces != 0).all(1) & pieces.isfinite().all(1)]
    wanted = np.concatenate([_hashed(pieces), _hashed(-pieces)])
    places: Any = np.isin(_keys(value), wanted[~np.isin(wanted, known)]).nonzero()[0]
    return int(places[0]) if len(places) else None


def _keys(value: Tensor) -> npt.NDArray[np.uint64]:
    """A key for every four consecutive numbers."""
    flat = value.reshape(-1)
    if is_exact(value) or value.is_complex() or len(flat) < _WIDTH:
        return np.empty(0, np.uint64)
    return _hashed(flat.float().unfold(0, _WIDTH, 1))


def _hashed(windows: Tensor) -> npt.NDArray[np.uint64]:
    bits = windows.contiguous().numpy().view(np.uint64)
    hashed: npt.NDArray[np.uint64] = bits[:, 0] * _MIXED + bits[:, 1]
    return hashed
