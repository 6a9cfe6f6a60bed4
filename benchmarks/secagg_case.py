"""What both contenders of ``masking`` are given, and how their CPU time is told apart."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["CLIP", "MAX_WEIGHT", "Case", "Contender", "CpuMeter", "Inputs", "Peer", "RoundCost"]

CLIP = 8.0
MAX_WEIGHT = 4
_DISTINCT = 8
_LARGEST = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table.

    Args:
        clients: clients of the cohort, n.
        length: values per client, d.
        neighbours: clients that each client masks with, k; ``clients - 1`` is the complete graph.
        threshold: shares that restore a secret, t.
        dropped: clients that share their secrets and then never upload.
    """

    clients: int
    length: int
    neighbours: int
    threshold: int
    dropped: int = 0

    @property
    def complete(self) -> bool:
        """Whether every client masks with every other."""
        return self.neighbours == self.clients - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inputs:
    """Vectors, weights and dropouts of one round.

    Args:
        vectors: float32[d] of each client; a few distinct arrays in turn, to save memory.
        weights: integer weight of each client, 1 to ``MAX_WEIGHT``.
        dropped: numbers of the clients that drop out.
    """

    vectors: list[npt.NDArray[np.float32]]
    weights: list[int]
    dropped: frozenset[int]

    @classmethod
    def draw(cls, case: Case, seed: int) -> "Inputs":
        """Draw the inputs of one round; other seeds drop other clients."""
        generator = np.random.default_rng(seed)
        distinct = [
            generator.uniform(-_LARGEST, _LARGEST, case.length).astype(np.float32)
            for _ in range(min(_DISTINCT, case.clients))
        ]
        drops = generator.choice(case.clients, case.dropped, replace=False)
        return cls(
            vectors=[distinct[number % len(distinct)] for number in range(case.clients)],
            weights=generator.integers(1, MAX_WEIGHT, case.clients, endpoint=True).tolist(),
            dropped=frozenset(drops.tolist()),
        )

    @property
    def survivors(self) -> list[int]:
        """Clients whose vectors are summed."""
        return [number for number in range(len(self.vectors)) if number not in self.dropped]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCost:
    """CPU seconds and bytes of one round.

    Args:
        client: of one surviving client, the mean over all: from its vector to its last message.
        encode: the part of ``client`` in which real numbers become ring words; 0 if not told apart.
        server: of the server, from its first message to the mean.
        decode: the part of ``server`` in which ring words become the mean; 0 if not told apart.
        upload: bytes that one surviving client sends, the mean over all.
    """

    client: float
    encode: float = 0.0
    server: float
    decode: float = 0.0
    upload: float


Contender: TypeAlias = Callable[[Case, Inputs], RoundCost]
"""Runs one round, checks its outcome, and says what it cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another library's contender, and the version that is measured."""

    round: Contender
    version: str


class CpuMeter:
    """Charges the CPU time of this process to one party at a time.

    Whoever is charged inside the time of another interrupts it, so a server that calls its clients
    does not pay for them.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._party = "nobody"
        self._since = process_time()

    def charge(self, party: str) -> "_Charged":
        """Charge what runs inside to ``party``."""
        return _Charged(self, party)

    def switch(self, party: str) -> str:
        """Charge ``party`` from now on; who was charged before."""
        now = process_time()
        self.seconds[self._party] += now - self._since
        previous, self._party, self._since = self._party, party, now
        return previous


class _Charged:
    """The time of one party; a generator's context would take part of it for itself."""

    __slots__ = ("_interrupted", "_meter", "_party")

    def __init__(self, meter: CpuMeter, party: str) -> None:
        self._meter = meter
        self._party = party

    def __enter__(self) -> None:
        self._interrupted = self._meter.switch(self._party)

    def __exit__(self, *raised: object) -> None:
        self._meter.switch(self._interrupted)
