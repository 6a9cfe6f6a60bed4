"""The messages of one kind in one round, in an order that does not depend on their senders.

A simulator works through clients one after the other, and files written in this order reveal
senders: row k of two files has the same sender, and a block holds clients that were processed
together. So the messages of a round are put in order before any of them is written: anonymous ones
by tag, named ones by name. Where blocks are cut follows from that order.

Memory stays bounded: more than a block is sorted, written to a scratch folder and merged when the
round ends; besides blocks only the keys of the messages are in memory, 16 bytes each.
"""

import io
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.files import replace_file
from secure_fedrec.core.kernels import bounds_of, segments

Columns = dict[str, npt.NDArray[Any]]
_PER_MESSAGE = frozenset({"senders", "receivers", "sizes", "lengths", "tags"})


def concatenate_columns(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Columns:
    """Join blocks with equal columns."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def gathered_columns(parts: Iterable[Mapping[str, npt.NDArray[Any]]]) -> Columns:
    """As ``concatenate_columns``, with only one block at a time in memory besides the result."""
    joined: Columns = {}
    for part in parts:
        if not joined:
            joined = {name: np.array(column, order="C") for name, column in part.items()}
            continue
        for name, whole in joined.items():
            column, size = part[name], len(whole)
            if column.dtype != whole.dtype:
                joined[name] = np.concatenate([whole, column])
                continue
            # Grown in place if possible: no other reference to the array exists.
            whole.resize((size + len(column), *whole.shape[1:]), refcheck=False)
            whole[size:] = column
    return joined


class Spool:
    """Messages with the same columns, in any order; one object per round and kind.

    Args:
        scratch: folder for data beyond the limit; None keeps everything in memory.
        limit: bytes of a block, and about as many are held at once.
    """

    __slots__ = ("_limit", "_parts", "_runs", "_scratch", "_size")

    def __init__(self, scratch: Path | None, *, limit: int) -> None:
        self._scratch = scratch
        self._limit = limit
        self._parts: list[Columns] = []
        self._size = 0
        self._runs: list[Columns] = []

    def add(self, columns: Columns) -> None:
        """Take the messages of a batch."""
        size = sum(column.nbytes for column in columns.values())
        if self._parts and self._size + size > self._limit:
            run = self._taken()
            self._runs.append(run if self._scratch is None else self._on_disk(run, self._scratch))
        self._parts.append(columns)
        self._size += size

    def blocks(self) -> Iterator[Columns]:
        """All messages in order, in blocks of at most ``limit`` bytes (or of one message)."""
        if self._parts:  # the last run is within the limit, or one batch: it can be written
            fits = not self._runs and self._size <= self._limit
            self._runs.append(self._taken())
            if fits:
                yield self._runs[0]
                return
        if not self._runs:
            return
        keys = [_keys(run) for run in self._runs]
        first, second = (np.concatenate(column) for column in zip(*keys, strict=True))
        order = np.lexsort((second, first))
        bounds = np.concatenate([[0], np.cumsum([len(run["sizes"]) for run in self._runs])])
        for start, stop in self._cuts(order):
            chosen = np.sort(order[start:stop])
            ends = np.searchsorted(chosen, bounds)
            yield _in_order(
                concatenate_columns(
                    [
                        # Every run is in order, so its share of a block is one stretch of it.
                        _stretch(run, chosen[low] - begin, chosen[high - 1] - begin + 1)
                        for run, begin, low, high in zip(
                            self._runs, bounds, ends, ends[1:], strict=False
                        )
                        if high > low
                    ]
                )
            )

    def clear(self) -> None:
        """Forget everything, the scratch folder included."""
        self._parts, self._runs, self._size = [], [], 0
        if self._scratch is not None and self._scratch.exists():
            shutil.rmtree(self._scratch)

    def _taken(self) -> Columns:
        """The messages in memory, in order."""
        run = _in_order(concatenate_columns(self._parts))
        self._parts, self._size = [], 0
        return run

    def _on_disk(self, run: Columns, scratch: Path) -> Columns:
        folder = scratch / str(len(self._runs))
        folder.mkdir(parents=True)
        held: Columns = {}
        for name, column in run.items():
            held[name] = column
            if column.size:
                # In memory first: numpy takes a file that a full disk cut short for a whole one.
                whole = io.BytesIO()
                np.save(whole, column, allow_pickle=False)
                replace_file(folder / f"{name}.npy", whole.getvalue())
                held[name] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return held

    def _cuts(self, order: IntArray) -> Iterator[tuple[int, int]]:
        """Stretches of ``order`` that fill a block each."""
        sizes = np.concatenate([_bytes_each(run) for run in self._runs])[order]
        filled = np.concatenate([[0], np.cumsum(sizes)])
        start = 0
        while start < len(order):
            stop = int(np.searchsorted(filled, filled[start] + self._limit, side="right")) - 1
            stop = max(stop, start + 1)
            yield start, stop
            start = stop


def _keys(columns: Columns) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The order of messages: by tag or, where they have a name, by sender; then by receiver."""
    return np.asarray(columns.get("tags", columns["senders"])), np.asarray(columns["receivers"])


def _in_order(columns: Columns) -> Columns:
    first, second = _keys(columns)
    order = np.lexsort((second, first))
    rows, _ = segments(bounds_of(columns["lengths"]), order)
    return {
        name: column[order] if name in _PER_MESSAGE else column[rows]
        for name, column in columns.items()
    }


def _stretch(run: Columns, start: int, stop: int) -> Columns:
    before = int(run["lengths"][:start].sum())
    rows = slice(before, before + int(run["lengths"][start:stop].sum()))
    return {
        name: column[start:stop] if name in _PER_MESSAGE else column[rows]
        for name, column in run.items()
    }


def _bytes_each(run: Columns) -> IntArray:
    """int64[B], bytes of every message in all columns."""
    sizes = np.zeros(len(run["sizes"]), dtype=np.int64)
    for name, column in run.items():
        each = column.itemsize * int(np.prod(column.shape[1:]))
        sizes += each if name in _PER_MESSAGE else each * run["lengths"]
    return sizes
