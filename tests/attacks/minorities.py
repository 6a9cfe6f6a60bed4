"""Masked federations some of whose clients send in the clear: the others' pads still cancel."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.protection.base.dense_uploads import DenseWords
from secure_fedrec.protection.masking import embedded

SHARES = (0.01, 0.03, 0.1, 0.2)


def some_of(clients: int, share: float, seed: int = 3) -> frozenset[int]:
    """So many clients, drawn at random."""
    size = round(share * clients)
    return frozenset(np.random.default_rng(seed).permutation(clients)[:size].tolist())


class _SomePads(embedded._Pads):
    """Pads of all but some clients, which send their words as they are."""

    clear: frozenset[int]

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        hidden = [client for client in self._next if client not in self.clear]
        self._next = dict(zip(hidden, [*hidden[1:], *hidden[:1]], strict=True))

    def hide(self, part: DenseWords) -> RingArray:
        words = part.words.copy()
        hidden = np.array([client not in self.clear for client in part.clients.tolist()])
        some = DenseWords(
            clients=part.clients[hidden], words=part.words[hidden], layout=part.layout
        )
        words[hidden] = super().hide(some)
        return self._codec.reduce(words)


@contextmanager
def in_the_clear(clients: frozenset[int]) -> Iterator[None]:
    """Masked rounds of which these clients leave their masks away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "_Pads", type("Some", (_SomePads,), {"clear": clients}))
        yield
