"""Taking the masks off a sum, with as few secrets restored as that takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from secure_fedrec.core.arrays import BoolArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.mask_expander import MaskExpander
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unmasking:
    """What the server holds when the last step is closed.

    Args:
        public: what SETUP settled.
        topology: who masked with whom.
        shared: bool[n], who shared secrets: each uploader masked with its neighbours among them.
        survivors: bool[n], whose vectors are in the sum.
        keys: advertisement by client.
        shares: share records by client.
        reveals: what survivors revealed, by client; some may have gone silent.
        blame: told of every client found at fault.
    """

    public: PublicRound
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
            subtract.append(self_key(self._self_seed(place, client), self.public.context, client))
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
