"""The two ends of the network: senders' cells, recipients' messages, and cells sent to oneself.

A sender hands in a *public* number of cells, however many messages it has: the rest are dummies,
which only the recipient can tell from messages. Every party that sends, and every operator of a
mix, is also an endpoint and sends loops: cells to itself. A loop looks to each mix but the last
like any other cell (the last one sees where a path ends), and a loop that does not return shows
that cells are being dropped.
"""

import secrets
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.routing.directory import Directory
from secure_fedrec.protection.routing.fragments import (
    Fragment,
    Kind,
    Reassembler,
    cover,
    cut,
    decode_fragment,
    encode_fragment,
)
from secure_fedrec.protection.routing.onions import CellOpener, draw_path, wrap
from secure_fedrec.protection.routing.receipts import SentCells, fragment_digest, sign_receipt
from secure_fedrec.protection.routing.sealing import OpeningKey

MAX_PIECES = 2**16
"""Most pieces of a message, where an endpoint is not told fewer."""
MAX_UNFINISHED_BYTES = 2**28
"""Most bytes of pieces that an endpoint holds while it waits for the others of their messages."""


def cells_needed(messages: Sequence[bytes], capacity: int) -> int:
    """Cells that these messages fill; an empty message fills one."""
    return sum(max(1, -(-len(message) // capacity)) for message in messages)


def send(
    messages: Sequence[bytes],
    *,
    recipient: int,
    cells: int,
    directory: Directory,
    sent: SentCells | None = None,
) -> list[bytes]:
    """Onions for the messages to one recipient, filled up with dummies.

    Args:
        messages: any number, of any length.
        recipient: number of the recipient.
        cells: public number of cells; how many are returned.
        directory: keys of the epoch.
        sent: records the cells, to look for them in the recipient's list of receipts.

    Returns:
        Cells in a uniformly random order, each over a path of its own.

    Raises:
        ConfigError: the messages do not fit; nothing is sent.
        ProtocolError: the recipient is unknown.
    """
    capacity = directory.config.capacity
    needed = cells_needed(messages, capacity)
    if needed > cells:
        raise ConfigError(
            "routing.cells", cells, f"the messages of a sender fill {needed}; raise it for everyone"
        )
    pieces: list[Fragment] = [piece for message in messages for piece in cut(message, capacity)]
    pieces += [cover(Kind.DUMMY) for _ in range(cells - needed)]
    secrets.SystemRandom().shuffle(pieces)
    if sent is not None:
        sent.add(recipient, (encode_fragment(piece, capacity) for piece in pieces))
    return [
        wrap(piece, path=draw_path(directory), recipient=recipient, directory=directory)
        for piece in pieces
    ]


class Endpoint:
    """A place where paths end.

    Args:
        layers: mixes a cell passes.
        index: number of the recipient.
        max_pieces: most pieces of a message; no sender needs more than its public number of cells.

    Attributes:
        dummies: cells received that were sent to fill up a number.

    Raises:
        ConfigError: ``max_pieces`` is out of range.
    """

    def __init__(self, *, layers: int, index: int, max_pieces: int = MAX_PIECES) -> None:
        if not 1 <= max_pieces < 2**32:
            raise ConfigError("routing.max_pieces", max_pieces, "must be between 1 and 2^32 - 1")
        self._index = index
        self._opener = CellOpener(layers, index)
        self._max_pieces = max_pieces
        self._reassembler = self._fresh()
        self._loops: set[bytes] = set()
        self._unsigned: dict[int, list[bytes]] = {}  # digests of fragments, by epoch
        self._signed: dict[int, int] = {}  # last batch, by epoch
        self.dummies = 0

    def rotate(self, directory: Directory, key: OpeningKey) -> None:
        """Begin an epoch with a fresh key.

        Raises:
            ProtocolError: the epoch is not a later one, or the directory differs.
        """
        self._opener.rotate(directory, key)
        self._unsigned[directory.epoch] = []

    def retire(self, epoch: int) -> None:
        """Forget an epoch, and its cells without a receipt.

        Raises:
            ProtocolError: the endpoint holds no key of it.
        """
        self._opener.retire(epoch)
        del self._unsigned[epoch]
        self._signed.pop(epoch, None)

    def loop(self) -> bytes:
        """A cell to oneself; it should come back."""
        directory = self._opener.directory
        piece = cover(Kind.LOOP)
        path = draw_path(directory)
        cell = wrap(piece, path=path, recipient=self._index, directory=directory)
        self._loops.add(piece.message)
        return cell

    @property
    def loops_out(self) -> int:
        """Loops that have not returned."""
        return len(self._loops)

    def require_loops(self) -> None:
        """Check that every loop has returned.

        Raises:
            ProtocolError: some have not: cells are being dropped.
        """
        if self._loops:
            raise ProtocolError(f"{len(self._loops)} loops did not return: cells are being dropped")

    def require_whole(self) -> None:
        """Check that no message is unfinished.

        Raises:
            ProtocolError: pieces of some are missing.
        """
        if self._reassembler.unfinished:
            raise ProtocolError(f"{self._reassembler.unfinished} messages miss a fragment")

    def forget_unfinished(self) -> int:
        """Give up the messages of which pieces are missing; how many there were."""
        lost = self._reassembler.unfinished
        self._reassembler = self._fresh()
        return lost

    def receipt(self, *, batch: int, identity: Ed25519PrivateKey) -> bytes:
        """Sign for all cells of the newest epoch since the last list; one list for all senders.

        Args:
            batch: number of the batch within the epoch, beyond the last one signed for: two lists
                of one batch would prove misconduct of this endpoint.
            identity: signing key of this endpoint.

        Raises:
            ProtocolError: there is no epoch yet, a number does not fit its field, or a list was
                signed for this batch or a later one.
        """
        directory = self._opener.directory
        last = self._signed.get(directory.epoch, -1)
        if batch <= last:
            raise ProtocolError(f"batch {batch} is not beyond batch {last}, which was signed for")
        receipt = sign_receipt(
            self._unsigned[directory.epoch],
            recipient=self._index,
            batch=batch,
            directory=directory,
            identity=identity,
        )
        self._unsigned[directory.epoch] = []
        self._signed[directory.epoch] = batch
        return receipt

    def receive(self, cell: bytes) -> bytes | None:
        """Take a cell in; the message that it completes, or None.

        Raises:
            ProtocolError: see ``CellOpener.open``; or what is inside is not a fragment, repeats or
                contradicts another one, is of a message of too many pieces, finds no room beside
                the unfinished messages, or is a loop that this party did not send.
        """
        directory, inside = self._opener.open(cell)
        capacity = directory.config.capacity
        try:
            piece = decode_fragment(inside, capacity)
        except WireError as damage:
            raise ProtocolError(f"cell refused: {damage}") from damage
        if piece.kind is Kind.LOOP:
            if piece.message not in self._loops:
                raise ProtocolError("cell refused: a loop that was not sent from here")
            self._loops.remove(piece.message)
            return None
        whole = None
        if piece.kind is Kind.DATA:
            whole = self._reassembler.add(piece, capacity)
        else:
            self.dummies += 1
        self._unsigned[directory.epoch].append(fragment_digest(inside))
        return whole

    def _fresh(self) -> Reassembler:
        return Reassembler(MAX_UNFINISHED_BYTES, max_pieces=self._max_pieces)
