"""The server's half: it adds up identified uploads and takes the denoisers' sums of fakes off."""

from collections.abc import Iterable, Sequence
from enum import Enum

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.linkage_hardened.rows import decode_sums
from secure_fedrec.protection.session import SERVER, Parcel, refusals_of
from secure_fedrec.protection.shared_upload.client import with_counts
from secure_fedrec.protection.shared_upload.context import RoundContext
from secure_fedrec.protection.shared_upload.halves import HubHalf
from secure_fedrec.protection.shared_upload.messages import Kind, decode_rows, open_envelope
from secure_fedrec.uploads import Aggregate


class _State(Enum):
    COLLECTING = "collecting"
    DONE = "done"
    ABORTED = "aborted"


class LinkageServer(HubHalf):
    """The server in one round.

    Args:
        context: the round.
        cells: public number of cells of each client to each denoiser.
        cohort: clients that ``step`` invites; None for all of the roster.
    """

    def __init__(
        self, context: RoundContext, *, cells: int, cohort: Sequence[int] | None = None
    ) -> None:
        super().__init__(context, SERVER, _State.COLLECTING)
        self._cells = cells
        self._heard: set[int] = set()
        self._totals = np.zeros((context.n_items, context.width + 1), dtype=context.codec.dtype)
        self._named: IntArray = np.zeros(context.n_items, dtype=np.int64)
        self._cohort = cohort

    @property
    def heard(self) -> frozenset[int]:
        """Clients whose uploads are in the sum."""
        return frozenset(self._heard)

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        """Ask for uploads, then for sets of rows, hand them on, add up (``Party.step``).

        An upload that is refused is left out, and the round then aborted for its cells.

        Raises:
            ProtocolError, WireError: a denoiser is missing or refused, or the round is aborted.
        """
        whole = list(dict.fromkeys(inbox))  # what came twice in the same bytes came once
        match self.stage:
            case "CREATED":
                self.stage = "UPLOAD"
                return self._invite("UPLOAD", b"")
            case "UPLOAD":
                refusals_of(whole, self.receive)
                return self._ask("ROW_SET", Kind.ROW_SET, b"")
            case "ROW_SET":
                return self._ask("FAKES", Kind.ROW_SET, *whole)
        self.aggregate = self.finish(whole)
        return []

    def receive(self, message: bytes) -> None:
        """Take a client's upload.

        Raises:
            ProtocolError: it is unsigned, of another round, or the client's second; it is dropped.
            WireError: a malformed message; it is dropped.
        """
        self._require(_State.COLLECTING)
        context = self._context
        signed = open_envelope(message, Kind.UPLOAD, context=context)
        if signed.sender.number in self._heard:
            raise ProtocolError(f"client {signed.sender.number} sent two uploads")
        rows, words = decode_rows(signed.body, context, width=context.width)
        self._heard.add(signed.sender.number)
        self._named[rows] += 1
        scatter_add(self._totals, rows, with_counts(words, np.ones(len(rows), dtype=bool)))

    def finish(self, sums: Sequence[bytes]) -> Aggregate:
        """Take the fakes off.

        Args:
            sums: FAKES of every denoiser, in any order.

        Raises:
            ProtocolError: fewer clients were heard than the floor, denoisers disagree on rows and
                counts, cells are missing or too many for the clients that were heard, or the rest
                is none that real rows can sum to: the round is aborted. Or a message is missing,
                unsigned or of another round.
            WireError: a malformed message.
        """
        self._require(_State.COLLECTING)
        context = self._context
        parts = [decode_sums(body, context) for body in self._open_all(sums, Kind.FAKES)]
        if len(self._heard) < context.floor:
            self._abort(f"{len(self._heard)} clients are fewer than the floor of {context.floor}")
        expected = self._cells * len(self._heard)
        rows, counts = parts[0][1], parts[0][2]
        for number, (cells, own_rows, own_counts, words) in enumerate(parts):
            if cells != expected:
                self._abort(f"denoiser {number} got {cells} cells, {expected} were due")
            if not (np.array_equal(own_rows, rows) and np.array_equal(own_counts, counts)):
                self._abort(f"denoiser {number} counts other fakes than denoiser 0")
            self._totals[rows, :-1] -= words
        self._totals[rows, -1] -= counts.astype(self._totals.dtype)
        self._state = _State.DONE
        return self._reveal(self._totals, self._named)
