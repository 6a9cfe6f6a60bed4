"""Whole rounds in one process: for simulations and tests.

Every byte passes through the halves exactly as it would over a network; only what all clients would
decrypt alike, the table they share, is decrypted once for all of them. A federation outlives its
rounds, and each round may have another cohort; its rounds are numbered here, whatever a caller
numbers them, because key holders answer each number once.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.paillier.client.table import TableClient, TableUpdate
from secure_fedrec.protection.paillier.client.uploading import UploadingClient
from secure_fedrec.protection.paillier.helper import Authority
from secure_fedrec.protection.paillier.key_holders import KeyHolding
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.plans import Plan
from secure_fedrec.protection.paillier.messages.tables import updaters
from secure_fedrec.protection.paillier.scheme.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.scheme.keys import PrivateKey
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.paillier.server.table import TableServer
from secure_fedrec.protection.paillier.server.uploading import UploadingServer
from secure_fedrec.protection.session import (
    AUTHORITY,
    SERVER,
    Carrier,
    Identity,
    Role,
    Roster,
    run_in_memory,
)
from secure_fedrec.protection.session import Node as Party
from secure_fedrec.protection.session.envelope import Family, SignedMessages


class _Federation:
    """Identities, roster and key of simulated parties.

    Args:
        clients: client numbers.
        private: the key, at whoever holds it.
        layouts: of the vectors that each client uploads.
        minimum: fewest clients in a sum that any party accepts.
    """

    def __init__(
        self,
        clients: Iterable[int],
        *,
        private: PrivateKey,
        layouts: Sequence[SlotLayout],
        minimum: int = 3,
    ) -> None:
        parties = [SERVER, AUTHORITY, *(Party(Role.CLIENT, number) for number in clients)]
        self.identities = {party: Identity.generate(party) for party in parties}
        keys = {party: each.public for party, each in self.identities.items()}
        self.roster = Roster.of(Ed25519PrivateKey.generate(), keys)
        self.private = private
        self.encryptor = Encryptor(private.public)  # one table of powers for all clients
        self.layouts = tuple(layouts)
        self.minimum = minimum
        self.series = _new_series()

    def _plan(
        self, holding: KeyHolding, cohort: Iterable[int], table: SlotLayout | None = None
    ) -> Plan:
        return Plan(
            holding=holding,
            key=self.private.public,
            roster=self.roster,
            clients=tuple(sorted(cohort)),
            layouts=self.layouts,
            table=table,
            minimum=self.minimum,
            federation=self.series,
        )


class _SharedDecryptor(Decryptor):
    """Decrypts once what all clients are sent: with one key, each would come to the same integers.

    The table is most of what a client of such a federation decrypts, and all of them get the same.
    """

    def __init__(self, key: PrivateKey) -> None:
        super().__init__(key)
        self._last: tuple[tuple[int, ...], list[int]] = ((), [])

    def decrypt(self, ciphertexts: Sequence[int]) -> list[int]:
        """As every client would."""
        asked = tuple(ciphertexts)
        if asked != self._last[0]:
            self._last = (asked, super().decrypt(ciphertexts))
        return list(self._last[1])


class AuthorityFederation(_Federation):
    """A federation whose key an authority holds; see ``authority``."""

    rounds = 0

    def sum(
        self,
        vectors: Mapping[int, Sequence[RingArray]],
        *,
        masked: bool = False,
        carrier: Carrier | None = None,
    ) -> tuple[RingArray, ...]:
        """Run the next round; ring words of each vector's sum, as the server has them.

        Args:
            vectors: ring words of each client of the cohort, one vector per layout, by number.
            masked: whether clients add pairwise masks.
            carrier: what stands between the halves; by default everything arrives.

        Raises:
            ConfigError: a cohort below the minimum, or one that is not of the federation.
            ProtocolError: the round was aborted.
        """
        plan = self._plan(KeyHolding(holder="authority", masked=masked), vectors)
        self.rounds += 1
        server = UploadingServer(plan, self.identities[SERVER], self.rounds)
        holder = self.identities[AUTHORITY]
        halves: list[Authority | UploadingClient] = [
            Authority(plan, holder, self.private, last_round=self.rounds - 1)
        ]
        for number in plan.clients:
            identity = self.identities[Party(Role.CLIENT, number)]
            half = UploadingClient(plan, identity, self.encryptor, self.rounds)
            half.load(vectors[number])
            halves.append(half)
        run_in_memory(server, halves, carrier=carrier)
        return server.result()


class TableFederation(_Federation):
    """A federation whose clients share the key and whose table the server keeps encrypted.

    Args:
        clients: client numbers.
        table: layout of the item table.
        common: the clients' key, layouts and minimum, as of any federation.
    """

    def __init__(self, clients: Iterable[int], *, table: SlotLayout, **common: Any) -> None:
        super().__init__(clients, **common)
        self.decryptor = _SharedDecryptor(self.private)
        self.table = table
        self._server: TableServer | None = None

    def begin(
        self, words: RingArray, cohort: Iterable[int], *, carrier: Carrier | None = None
    ) -> None:
        """Round 0: two clients of a cohort encrypt the first table, which all of it know.

        A second time it begins another series of rounds, which takes no message of the first.

        Raises:
            ProtocolError: the round was aborted.
        """
        self.series = _new_series()
        plan = self._plan(KeyHolding(holder="clients"), cohort, self.table)
        server = TableServer(plan, self.identities[SERVER])
        halves = [self._client(plan, number, _no_step, 1) for number in updaters(plan.clients, 0)]
        for half in halves:
            half.load(first=words)
        run_in_memory(server, halves, carrier=carrier)
        self._server = server

    def step(
        self,
        uploads: Mapping[int, Callable[[RingArray], Sequence[RingArray]]],
        update: TableUpdate,
        *,
        carrier: Carrier | None = None,
    ) -> None:
        """Run the next round, on the table that the cohort before left.

        Args:
            uploads: of each client of the cohort, what it uploads once it has read the table.
            update: the step of the table, the same on every client.
            carrier: what stands between the halves; by default everything arrives.

        Raises:
            ConfigError: a cohort below the minimum, or one that is not of the federation.
            ProtocolError: there is no table, the round before did not end, or this one was aborted.
        """
        if self._server is None:
            raise ProtocolError("there is no table yet")
        plan = self._plan(KeyHolding(holder="clients"), uploads, self.table)
        server = TableServer(plan, self.identities[SERVER], earlier=self._server)
        self._server = server
        halves = []
        for number in plan.clients:
            half = self._client(plan, number, update, server.round)
            half.load(uploads[number])
            halves.append(half)
        run_in_memory(server, halves, carrier=carrier)

    def _client(self, plan: Plan, number: int, update: TableUpdate, round_: int) -> TableClient:
        identity = self.identities[Party(Role.CLIENT, number)]
        return TableClient(
            plan, identity, self.private, self.encryptor, update, round_, self.decryptor
        )


def _new_series() -> bytes:
    return os.urandom(16)


def _no_step(table: RingArray, sums: tuple[RingArray, ...]) -> RingArray:
    """The step of clients that make the first table, which is never taken."""
    raise ProtocolError(f"a table of {len(table)} words takes no step before its first round")


def seal(identity: Identity, kind: Kind, *, round_: int, context: bytes, body: bytes) -> bytes:
    """A message of anybody, of any round and under any agreement."""
    others = [Identity.generate(node) for node in (SERVER, 0)]
    keys = {other.node: other.public for other in others} | {identity.node: identity.public}
    roster = Roster.of(Ed25519PrivateKey.generate(), keys)
    messages = SignedMessages(Family.PAILLIER, Kind, roster, round_, context)
    return messages.seal(kind, body, identity)
