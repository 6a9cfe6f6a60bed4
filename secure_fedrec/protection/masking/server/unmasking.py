"""The masked sum: vectors are added as they come in, and the masks removed at the end.

Adding is limited by memory, not arithmetic: one pass that adds four vectors reads and writes the
sum once instead of four times. So up to three vectors wait for the next one. As few secrets as
possible are restored to remove the masks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, RingArray
from secure_fedrec.core.compiled import add_four
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking.messages.key_messages import (
    Advertisement,
    ShareRecord,
    Shares,
    commitment_to,
)
from secure_fedrec.protection.masking.messages.keys import self_key
from secure_fedrec.protection.masking.messages.shamir import decode_element
from secure_fedrec.protection.masking.messages.sum_messages import Reveal
from secure_fedrec.protection.masking.messages.topology import PublicRound, Topology
from secure_fedrec.protection.masking.server.recovery import Dealt, Fault, pair_keys_of, restore

_AT_ONCE: Final = 4


class RunningSum:
    """A sum modulo the word size.

    Args:
        length: words per vector, d.
        dtype: uint32 or uint64.
    """

    __slots__ = ("_total", "_waiting")

    def __init__(self, length: int, dtype: type[np.uint32] | type[np.uint64]) -> None:
        self._total: RingArray = np.zeros(length, dtype=dtype)
        self._waiting: list[RingArray] = []

    def add(self, words: RingArray) -> None:
        """Take one more vector: [d] of the sum's type, which must not change until it is added.

        Raises:
            ValueError: the vector has another length or type.
        """
        if words.shape != self._total.shape or words.dtype != self._total.dtype:
            raise ValueError(
                f"the sum is of {self._total.dtype}{self._total.shape}, not "
                f"{words.dtype}{words.shape}"
            )
        self._waiting.append(words)
        if len(self._waiting) == _AT_ONCE:
            add_four(self._total, *self._waiting)
            self._waiting.clear()

    def total(self) -> RingArray:
        """The sum of everything taken so far; the caller may go on with the array in place."""
        for words in self._waiting:
            np.add(self._total, words, out=self._total)
        self._waiting.clear()
        return self._total

    def wipe(self) -> None:
        """Forget the sum and what waits to be added."""
        self._total = np.zeros(0, dtype=self._total.dtype)
        self._waiting.clear()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unmasking:
    """What the server holds when the last step is closed.

    Args:
        public: the facts that SETUP fixed.
        stated: digest of the round's statement.
        topology: which clients masked with each other.
        shared: bool[n], clients that shared secrets: each uploader masked with its neighbours among
            them.
        survivors: bool[n], the clients whose vectors are in the sum.
        keys: advertisement by client.
        shares: share records by client.
        reveals: what survivors revealed, by client; some may have gone silent.
        blame: told of every client found at fault.
    """

    public: PublicRound
    stated: bytes
    topology: Topology
    shared: BoolArray
    survivors: BoolArray
    keys: Mapping[int, Advertisement]
    shares: Mapping[int, Shares]
    reveals: Mapping[int, Reveal]
    blame: Callable[[Fault], None]

    def apply(self, total: RingArray) -> None:
        """Take every mask off a sum, in place; all secrets are restored before it is touched.

        Raises:
            ProtocolError: a secret cannot be restored.
        """
        cohort = self.public.cohort
        add: list[bytes] = []
        subtract: list[bytes] = []
        for place in np.flatnonzero(self.survivors).tolist():
            client = int(cohort[place])
            seed = self._self_seed(place, client)
            subtract.append(self_key(seed, self.public.context, client, self.stated))
        for place in np.flatnonzero(self.shared & ~self.survivors).tolist():
            client = int(cohort[place])
            for partner, key in self._pair_keys(place, client).items():
                # The survivor added the mask if its number is the lower one, else took it off.
                (subtract if partner < client else add).append(key)
        MaskExpander().apply(total, add=add, subtract=subtract)

    def _self_seed(self, place: int, client: int) -> int:
        reveal = self.reveals.get(client)
        commitment = self.shares[client].commitment
        if reveal is not None:
            try:
                element = decode_element(reveal.self_seed)
                if commitment_to(self.public.context, client, element) == commitment:
                    return element
            except ProtocolError:
                pass
            self.blame(Fault(kind="bad seed", client=client, about=client))
        return self._restore(place, client, mask=False)

    def _pair_keys(self, place: int, client: int) -> dict[int, bytes]:
        partners = self.public.cohort[self.topology.live(place, self.survivors)].tolist()
        if not partners:
            return {}
        return pair_keys_of(
            self._restore(place, client, mask=True),
            self.public.context,
            client,
            stated=self.stated,
            partners={partner: self.keys[partner] for partner in partners},
            seals={
                partner: self.shares[min(client, partner)].seals[max(client, partner)]
                for partner in partners
                if self.public.config.hybrid
            },
            blame=self.blame,
        )

    def _restore(self, place: int, client: int, *, mask: bool) -> int:
        live, keys = self.topology.live(place, self.survivors), self.keys[client]
        responders = {
            number: (place_ + 1, ShareRecord.decode(self.shares[client].records[number]))
            for place_, number in zip(live.tolist(), self.public.cohort[live].tolist(), strict=True)
            if number in self.reveals and client in self.reveals[number].shares
        }
        dealt = Dealt(
            context=self.public.context,
            owner=client,
            purpose="mask" if mask else "self",
            public=keys.mask_public + keys.mask_kem if mask else self.shares[client].commitment,
            hashes={
                number: record.mask_hash if mask else record.self_hash
                for number, (_, record) in responders.items()
            },
            indices={number: index for number, (index, _) in responders.items()},
        )
        returned = {number: self.reveals[number].shares[client] for number in responders}
        return restore(dealt, returned, threshold=self.public.config.threshold, blame=self.blame)
