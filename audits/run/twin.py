"""The plain twin of a recorded run: the same clients, no virtual row and no routing.

An audit has layers of the package alone, and lets them say whom they exempt and which reports they
drop. ``secure_fedrec.properties.compare_runs``, for layers of anybody, believes them nothing.
"""

from dataclasses import replace

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.protection import Sizes
from secure_fedrec.protection.base.stack import Stack
from secure_fedrec.protection.plain.embedded import DirectSession, DirectSum
from secure_fedrec.wire import Meter, Wire


def plain_twin(stack: Stack, sizes: Sizes) -> Stack:
    """The stack without routing and without virtual rows: what the server should end up with.

    Clients whom ``stack`` exempts from its cloak (denoisers report every item they rated) stay
    exempt, so a cloak that also drops rows drops the same ones in both runs.

    Args:
        stack: the protected stack, built anew: its collector is opened for rounds of its own.
        sizes: that it was built for.
    """
    cloak = None if stack.cloak is None else stack.cloak.without_virtual()
    direct = _DirectTwin(stack, n_items=sizes.n_items, width=sizes.width)
    bags = None if stack.bags is None else stack.bags.bare()
    return replace(stack, cloak=cloak, collector=direct, bags=bags)


class _DirectTwin(DirectSum):
    """Plain summation that exempts whom the collector it stands in for exempts."""

    def __init__(self, stack: Stack, *, n_items: int, width: int) -> None:
        super().__init__(n_clients=stack.n_clients, n_items=n_items, width=width, codec=stack.codec)
        self._original = stack.collector
        self._covered = stack.cloak is not None

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> "_DirectTwinSession":
        exempt = np.zeros(self.n_clients, dtype=bool)
        if self._covered:
            # A session is only asked whom it exempts; what it may send goes nowhere.
            nowhere = Wire(meter=Meter(self.n_clients))
            original = self._original.open(round_=round_, participants=participants, wire=nowhere)
            exempt[participants] = original.exempt(participants)
        return _DirectTwinSession(self, round_, participants, wire, exempt)


class _DirectTwinSession(DirectSession):
    def __init__(
        self,
        collector: DirectSum,
        round_: int,
        participants: IntArray,
        wire: Wire,
        exempt: BoolArray,
    ) -> None:
        super().__init__(collector, round_, participants, wire)
        self._exempt = exempt

    def exempt(self, clients: IntArray) -> BoolArray:
        return self._exempt[clients]
