"""The messages of a round and their sizes, known before anything is encrypted."""

from collections.abc import Sequence
from dataclasses import dataclass

from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.paillier.messages.tables import DIGEST_BYTES, updaters
from secure_fedrec.protection.paillier.scheme.slots import SlotLayout
from secure_fedrec.protection.paillier.scheme.vectors import vector_bytes
from secure_fedrec.protection.paillier.scheme.words import words_bytes
from secure_fedrec.protection.session import AUTHORITY, SERVER, Role
from secure_fedrec.protection.session import Node as Party
from secure_fedrec.protection.session.envelope import ENVELOPE_BYTES


@dataclass(frozen=True, slots=True)
class Sent:
    """One message of a round.

    Args:
        kind: kind of the message.
        sender: the party that sent it.
        receiver: the party that received it.
        size: bytes, signature included.
    """

    kind: Kind
    sender: Party
    receiver: Party
    size: int


def authority_messages(
    clients: Sequence[int], *, layouts: Sequence[SlotLayout], key_bits: int
) -> list[Sent]:
    """The messages of a round without masks whose key an authority holds."""
    vectors = upload_bytes(layouts, key_bits)
    words = words_bytes(layouts)
    return [
        *(Sent(Kind.UPLOAD, Party(Role.CLIENT, number), SERVER, vectors) for number in clients),
        Sent(Kind.SUMS, SERVER, AUTHORITY, vectors),
        Sent(Kind.RESULT, AUTHORITY, SERVER, ENVELOPE_BYTES + words),
    ]


def table_messages(
    clients: Sequence[int],
    *,
    round_: int,
    layouts: Sequence[SlotLayout],
    table: SlotLayout,
    key_bits: int,
) -> list[Sent]:
    """The messages of a round on an encrypted table."""
    vectors, size = upload_bytes(layouts, key_bits), table_bytes(table, key_bits)
    sent = []
    for number in clients:
        client = Party(Role.CLIENT, number)
        sent += [Sent(Kind.TABLE, SERVER, client, size), Sent(Kind.UPLOAD, client, SERVER, vectors)]
    for number in updaters(clients, round_):
        client = Party(Role.CLIENT, number)
        sent += [Sent(Kind.SUMS, SERVER, client, vectors), Sent(Kind.UPDATE, client, SERVER, size)]
    return sent


def table_bytes(table: SlotLayout, key_bits: int) -> int:
    """Size of an encrypted table with its digest, on its way to the server or from it."""
    return ENVELOPE_BYTES + DIGEST_BYTES + vector_bytes(table, key_bits)


def upload_bytes(layouts: Sequence[SlotLayout], key_bits: int) -> int:
    """Size of encrypted vectors, of one client or their sums."""
    return ENVELOPE_BYTES + sum(vector_bytes(layout, key_bits) for layout in layouts)
