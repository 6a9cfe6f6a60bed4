"""A denoiser's half: it sums shares by row, once all denoisers hold shares of the same rows."""

import struct
from collections.abc import Sequence
from enum import Enum

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import RingArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.linkage_hardened.rows import (
    RowShare,
    decode_row,
    encode_sums,
    set_of_rows,
)
from secure_fedrec.protection.routing import Endpoint
from secure_fedrec.protection.session import Node, Parcel, Role, refusals_of
from secure_fedrec.protection.shared_upload.context import RoundContext
from secure_fedrec.protection.shared_upload.halves import SigningHalf
from secure_fedrec.protection.shared_upload.messages import Kind

_SET = struct.Struct("<II32s")


class _State(Enum):
    COLLECTING = "collecting"
    CLOSED = "waiting for the other denoisers"
    DONE = "done"
    ABORTED = "aborted"


class LinkageDenoiser(SigningHalf):
    """One denoiser in one round.

    Args:
        context: the round.
        denoiser: its number, also as recipient of the mix network.
        identity: its signing key.
        endpoint: its end of the mix network; lives longer than a round.
        cells: public number of cells of each client to each denoiser.

    Raises:
        ProtocolError: the roster has another key for this denoiser.
    """

    def __init__(
        self,
        context: RoundContext,
        denoiser: int,
        identity: Ed25519PrivateKey,
        *,
        endpoint: Endpoint,
        cells: int,
    ) -> None:
        super().__init__(context, Node(Role.DENOISER, denoiser), identity, _State.COLLECTING)
        self._cells = cells
        self._denoiser = denoiser
        self._endpoint = endpoint
        self._dummies = endpoint.dummies
        self._rows: dict[bytes, int] = {}
        self._words: list[RingArray] = []

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Take cells and tell which rows are held; upon all sets, release (``Party.step``).

        A cell that is refused is left out; its sender misses it in the receipts.

        Raises:
            ProtocolError, WireError: the sets are refused, or this denoiser aborts.
        """
        if self._state is _State.COLLECTING:
            refusals_of(inbox, self.receive)
            return [self._parcel(Kind.ROW_SET, self.close())]
        return [self._parcel(Kind.FAKES, self.release(list(dict.fromkeys(inbox))))]

    @property
    def shares(self) -> list[RowShare]:
        """What is held of this round, in the order of arrival."""
        held = zip(self._rows.items(), self._words, strict=True)
        return [RowShare(row_id, row, words) for (row_id, row), words in held]

    def receive(self, cell: bytes) -> None:
        """Take a cell from the mix network.

        Raises:
            ProtocolError: the cell is refused by the endpoint, or holds a share of another round,
                for another denoiser, or a row id for the second time; it is dropped.
            WireError: what it holds is no row share; it is dropped.
        """
        self._require(_State.COLLECTING)
        message = self._endpoint.receive(cell)
        if message is None:
            return
        share = decode_row(message, self._denoiser, self._context)
        if share.row_id in self._rows:
            raise ProtocolError(f"denoiser {self._denoiser}: a row id came twice")
        self._rows[share.row_id] = share.row
        self._words.append(share.words)

    @property
    def received(self) -> int:
        """Cells of this round: row shares and dummies."""
        return len(self._rows) + self._endpoint.dummies - self._dummies

    def close(self) -> bytes:
        """End the collection: which rows are held, for the other denoisers.

        Cells have no senders, so a denoiser can count cells only: one client that sends more than
        its number makes up for others that are missing, until the server counts uploads.

        Raises:
            ProtocolError: fewer cells came than the floor's number of clients send: the round is
                aborted. Or it has ended already.
        """
        self._require(_State.COLLECTING)
        floor = self._context.floor
        if self.received < floor * self._cells:
            self._abort(
                f"{self.received} cells, {floor * self._cells} are those of the floor of {floor} "
                "clients"
            )
        self._state = _State.CLOSED
        return self._sign(Kind.ROW_SET, self._set())

    def release(self, sets: Sequence[bytes]) -> bytes:
        """Sums of the shares by row, if all denoisers hold shares of the same rows.

        Args:
            sets: ROW_SET of every denoiser, in any order.

        Raises:
            ProtocolError: a denoiser holds other rows: this one aborts. Or a message is missing,
                unsigned or of another round: it is dropped.
            WireError: a malformed message; it is dropped.
        """
        self._require(_State.CLOSED)
        for number, body in enumerate(self._open_all(sets, Kind.ROW_SET)):
            if body != self._set():
                self._abort(f"denoiser {number} holds other rows or cells")
        self._state = _State.DONE
        return self._sign(Kind.FAKES, self._sums())

    def _set(self) -> bytes:
        return _SET.pack(self.received, len(self._rows), set_of_rows(self._rows, self._context))

    def _sums(self) -> bytes:
        context = self._context
        rows = np.fromiter(self._rows.values(), dtype=np.int64, count=len(self._rows))
        totals = np.zeros((context.n_items, context.width), dtype=context.codec.dtype)
        if len(rows):
            scatter_add(totals, rows, np.concatenate(self._words))
        counts = np.bincount(rows, minlength=context.n_items)
        support = np.flatnonzero(counts).astype(np.int32)
        words = context.codec.reduce(totals[support])
        return encode_sums(self.received, support, counts[support], words, context)

    def _forget(self) -> None:
        self._words = []
