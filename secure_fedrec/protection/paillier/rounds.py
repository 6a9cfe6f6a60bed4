"""Whole rounds in one process: for simulations and tests.

Every byte passes through the halves exactly as it would over a network; only what all clients would
decrypt alike, the table they share, is decrypted once for all of them. A federation outlives its
rounds, and each round may have another cohort; its rounds are numbered here, whatever a caller
numbers them, because key holders answer each number once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.paillier.authority import (
    Authority,
    UploadingClient,
    UploadingServer,
)
from secure_fedrec.protection.paillier.encrypted_table import (
    TableClient,
    TableServer,
    TableUpdate,
    updaters,
)
from secure_fedrec.protection.paillier.encryption import Decryptor, Encryptor
from secure_fedrec.protection.paillier.envelopes import Identity, Kind, Party, Role, Roster
from secure_fedrec.protection.paillier.key_holders import KeyHolding
from secure_fedrec.protection.paillier.keys import PrivateKey
from secure_fedrec.protection.paillier.message_sizes import Sent
from secure_fedrec.protection.paillier.plans import Plan
from secure_fedrec.protection.paillier.slots import SlotLayout

__all__ = ["AuthorityFederation", "AuthorityRound", "TableFederation", "TableRound"]

_SERVER = Party(Role.SERVER)
_AUTHORITY = Party(Role.AUTHORITY)


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
        parties = [_SERVER, _AUTHORITY, *(Party(Role.CLIENT, number) for number in clients)]
        self.identities = {party: Identity.generate(party) for party in parties}
        self.roster = Roster({party: each.public for party, each in self.identities.items()})
        self.private = private
        self.encryptor = Encryptor(private.public)  # one table of powers for all clients
        self.layouts = tuple(layouts)
        self.minimum = minimum

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

    def open(self, cohort: Iterable[int]) -> "AuthorityRound":
        """The next round.

        Raises:
            ConfigError: a cohort below the minimum, or one that is not of the federation.
        """
        plan = self._plan(KeyHolding(holder="authority"), cohort)
        self.rounds += 1
        return AuthorityRound(
            plan=plan,
            number=self.rounds,
            identities=self.identities,
            encryptor=self.encryptor,
            server=UploadingServer(plan, self.identities[_SERVER], self.rounds),
            authority=Authority(
                plan, self.identities[_AUTHORITY], self.private, last_round=self.rounds - 1
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuthorityRound:
    """One round under the authority's key.

    Args:
        plan: the agreement of its cohort.
        number: of the round.
        identities: everybody's.
        encryptor: under the key.
        server, authority: the halves.
        sent: what was sent so far.
    """

    plan: Plan
    number: int
    identities: dict[Party, Identity]
    encryptor: Encryptor
    server: UploadingServer
    authority: Authority
    sent: list[Sent] = field(default_factory=list)

    def submit(self, client: int, vectors: Sequence[RingArray]) -> bytes:
        """Encrypt a client's ring words and hand them to the server; what it received."""
        party = Party(Role.CLIENT, client)
        half = UploadingClient(self.plan, self.identities[party], self.encryptor, self.number)
        message = half.upload(vectors)
        self.sent.append(Sent(Kind.UPLOAD, party, _SERVER, len(message)))
        self.server.receive(message)
        return message

    def close(self) -> tuple[RingArray, ...]:
        """Let the authority open the sums; ring words of each vector, as the server has them."""
        sums = self.server.sums()
        self.sent.append(Sent(Kind.SUMS, _SERVER, _AUTHORITY, len(sums)))
        result = self.authority.answer(sums, self.number)
        self.sent.append(Sent(Kind.RESULT, _AUTHORITY, _SERVER, len(result)))
        self.server.receive(result)
        return self.server.result()


class TableFederation(_Federation):
    """A federation whose clients share the key and whose table the server keeps encrypted.

    Args:
        clients: client numbers.
        private: the clients' key.
        layouts: of the vectors that each client uploads.
        table: layout of the item table.
        minimum: fewest clients in a sum that any party accepts.
    """

    def __init__(
        self,
        clients: Iterable[int],
        *,
        private: PrivateKey,
        layouts: Sequence[SlotLayout],
        table: SlotLayout,
        minimum: int = 3,
    ) -> None:
        super().__init__(clients, private=private, layouts=layouts, minimum=minimum)
        self.decryptor = _SharedDecryptor(private)
        self.table = table
        self._server: TableServer | None = None

    def begin(self, words: RingArray, cohort: Iterable[int]) -> list[Sent]:
        """Round 0: two clients of a cohort encrypt the first table, which all of it know.

        Returns:
            What was sent.
        """
        plan = self._plan(KeyHolding(holder="clients"), cohort, self.table)
        server = TableServer(plan, self.identities[_SERVER])
        sent = []
        for number in updaters(plan.clients, 0):
            message = self._client(plan, number, _no_step, 1).initialise(words)
            if message is None:
                raise ProtocolError(f"client {number} makes no table")
            sent.append(Sent(Kind.UPDATE, Party(Role.CLIENT, number), _SERVER, len(message)))
            server.receive(message)
        self._server = server
        return sent

    def open(self, cohort: Iterable[int], update: TableUpdate) -> "TableRound":
        """The next round, on the table that the cohort before left.

        Args:
            cohort: the clients of the round.
            update: the step of the table, the same on every client.

        Raises:
            ConfigError: a cohort below the minimum, or one that is not of the federation.
            ProtocolError: there is no table, or the round before did not end.
        """
        if self._server is None:
            raise ProtocolError("there is no table yet")
        plan = self._plan(KeyHolding(holder="clients"), cohort, self.table)
        server = TableServer(plan, self.identities[_SERVER], earlier=self._server)
        self._server = server
        halves = {
            number: self._client(plan, number, update, server.round) for number in plan.clients
        }
        return TableRound(server=server, clients=halves, table=server.table())

    def _client(self, plan: Plan, number: int, update: TableUpdate, round_: int) -> TableClient:
        identity = self.identities[Party(Role.CLIENT, number)]
        return TableClient(
            plan, identity, self.private, self.encryptor, update, round_, self.decryptor
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableRound:
    """One round on an encrypted table.

    Args:
        server: the server's half.
        clients: the halves of the cohort, by number.
        table: the server's message with the encrypted table.
        sent: what was sent so far.
    """

    server: TableServer
    clients: dict[int, TableClient]
    table: bytes
    sent: list[Sent] = field(default_factory=list)

    def read(self, client: int) -> RingArray:
        """A client's first step: ring words of the table."""
        self.sent.append(Sent(Kind.TABLE, _SERVER, Party(Role.CLIENT, client), len(self.table)))
        return self.clients[client].receive_table(self.table)

    def submit(self, client: int, vectors: Sequence[RingArray]) -> bytes:
        """Encrypt a client's ring words and hand them to the server; what it received."""
        message = self.clients[client].upload(vectors)
        self.sent.append(Sent(Kind.UPLOAD, Party(Role.CLIENT, client), _SERVER, len(message)))
        self.server.receive(message)
        return message

    def close(self) -> None:
        """Let two clients open the sums, take the step and encrypt the next table.

        Raises:
            ProtocolError: uploads are missing, or the two disagree.
        """
        sums = self.server.sums()
        for number in updaters(sorted(self.clients), self.server.round):
            party = Party(Role.CLIENT, number)
            self.sent.append(Sent(Kind.SUMS, _SERVER, party, len(sums)))
            update = self.clients[number].receive_sums(sums)
            self.sent.append(Sent(Kind.UPDATE, party, _SERVER, len(update)))
            self.server.receive(update)


def _no_step(table: RingArray, sums: tuple[RingArray, ...]) -> RingArray:
    """The step of clients that make the first table, which is never taken."""
    del sums
    raise ProtocolError(f"a table of {len(table)} words takes no step before its first round")
