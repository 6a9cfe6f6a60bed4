"""A client's side of a round that can be saved between two messages and gone on with."""

from collections.abc import Mapping

from secure_fedrec.protection.masking.client.sealed_state import NO_SHARERS, SavedState
from secure_fedrec.protection.masking.client.steps import ClientRound
from secure_fedrec.protection.masking.config.policy import EncodedVector
from secure_fedrec.protection.masking.envelope import Envelope, Kind
from secure_fedrec.protection.masking.messages.shamir import ELEMENT_BYTES
from secure_fedrec.protection.masking.messages.sum_messages import hash_of_sharers
from secure_fedrec.protection.session.statement import NO_STATEMENT, Agreed


class ResumableRound(ClientRound):
    """One client's side of a round (arguments: ``ClientRound``)."""

    def save(
        self,
        awaits: Kind,
        *,
        told: Mapping[Kind, bytes],
        beacons: Mapping[int, bytes],
        vector: EncodedVector | None,
        agreed: Agreed | None,
    ) -> SavedState:
        """All that ``resumed`` needs."""
        uploaded = awaits in (Kind.SURVIVORS, Kind.QUORUM)
        held = {n: each.shares for n, each in self._neighbours.items() if each.shares is not None}
        return SavedState(
            awaits=awaits,
            secrets=self._secrets.roots,
            told=told,
            leaf=self._upload_leaf if uploaded else b"",
            shared=self._shared if uploaded else NO_SHARERS,
            shares={number: b"".join(shares) for number, shares in held.items()},
            beacons=beacons,
            vector=vector,
            agreed=agreed,
        )

    def resume(self, state: SavedState) -> None:
        """Continue from a state: received messages are read again, and nothing is sent.

        Raises:
            ProtocolError: what the state was told breaks a rule, so it is not this client's state.
        """
        if Kind.KEYS in state.told:
            beacon = state.beacons.get(self.public.epoch)
            self._take_keys(Envelope.decode(state.told[Kind.KEYS]), beacon)
        if state.awaits in (Kind.SURVIVORS, Kind.QUORUM):
            self._shared, self._upload_leaf = state.shared, state.leaf
            stated = NO_STATEMENT if state.agreed is None else state.agreed.digest
            self._shared_hash = hash_of_sharers(state.shared, stated)
            for number, both in state.shares.items():
                self._neighbours[number].shares = both[:ELEMENT_BYTES], both[ELEMENT_BYTES:]
        if Kind.SURVIVORS in state.told:
            self.take_survivors(Envelope.decode(state.told[Kind.SURVIVORS]))
