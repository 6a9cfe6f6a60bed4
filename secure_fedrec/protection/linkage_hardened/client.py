"""The client's half: all rows to the server, shares of the fakes to the denoisers.

A client sends all its rows to the server under its name, and every fake row x once more through the
mix network: as D shares x = s_1 + ... + s_D in Z_2^b, one per denoiser, each in a cell of its own.
The number of cells a client sends to each denoiser is public and the same for all clients.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.core.arrays import BoolArray, IndexArray, RingArray
from secure_fedrec.errors import ConfigError, ProtocolError, WireError
from secure_fedrec.protection.linkage_hardened.config import least_batch
from secure_fedrec.protection.linkage_hardened.rows import (
    ROW_ID_BYTES,
    RowShare,
    encode_row,
    row_bytes,
)
from secure_fedrec.protection.routing import Directory, SentCells, address_of, send
from secure_fedrec.protection.routing.mix import node_of
from secure_fedrec.protection.session import Node, Parcel, Role
from secure_fedrec.protection.shared_upload.client import require_rows
from secure_fedrec.protection.shared_upload.context import RoundContext
from secure_fedrec.protection.shared_upload.halves import SigningHalf
from secure_fedrec.protection.shared_upload.messages import Kind, encode_rows
from secure_fedrec.protection.shared_upload.words import UniformWords


@dataclass(frozen=True, slots=True)
class Sent:
    """What a client sends in a round.

    Args:
        upload: message to the server.
        cells: onions for the mix network, in random order.
        noted: looks for the cells in the denoisers' lists of receipts, whose batch is the round and
            whose signing keys are those of the roster. A client that misses one ends the round
            before any denoiser releases its sums.
        row_ids: of its fakes; no message to the server names them.
    """

    upload: bytes
    cells: tuple[bytes, ...]
    noted: SentCells
    row_ids: tuple[bytes, ...]


def require_directory(directory: Directory, context: RoundContext, *, cells: int) -> None:
    """Check that the mix network fits the round: recipients 0 to D - 1 are the denoisers.

    Args:
        directory: the mix network of the epoch.
        context: the round.
        cells: public number of cells of each client to each denoiser.

    Raises:
        ConfigError: a cell is too small for a row, a batch may hold the cells of one client alone,
            the directory has too few recipients, or there is one denoiser only, who would see the
            fakes in clear.
    """
    denoisers = context.denoisers
    if denoisers < 2:
        raise ConfigError("protection.count", denoisers, "must be at least 2; one sees the rows")
    if len(directory.recipients) < denoisers:
        raise ConfigError(
            "routing.recipients", len(directory.recipients), f"must be at least {denoisers}"
        )
    needed = row_bytes(context.width, context.codec.bytes_per_value)
    config = directory.config
    if config.capacity < needed:
        raise ConfigError(
            "routing.cell_bytes",
            config.cell_bytes,
            f"must be at least {config.cell_bytes + needed - config.capacity} to carry a row",
        )
    least = least_batch(cells=cells, denoisers=denoisers)
    if config.min_batch < least:
        raise ConfigError(
            "routing.min_batch",
            config.min_batch,
            f"must be at least {least}; a client hands in {cells * denoisers} cells, and a smaller "
            "batch may be one client's alone",
        )


class _State(Enum):
    READY = "ready to send"
    DONE = "done"


class LinkageClient(SigningHalf):
    """One client in one round.

    Args:
        context: the round.
        client: its number.
        identity: its signing key.
        directory: the mix network of the epoch.
        cells: public number of cells to each denoiser.

    Raises:
        ProtocolError: the roster has another key for this client.
        ConfigError: see ``require_directory``.
    """

    def __init__(
        self,
        context: RoundContext,
        client: int,
        identity: Ed25519PrivateKey,
        *,
        directory: Directory,
        cells: int,
    ) -> None:
        super().__init__(context, Node(Role.CLIENT, client), identity, _State.READY)
        require_directory(directory, context, cells=cells)
        self._directory = directory
        self._cells = cells
        self._loaded: tuple[IndexArray, RingArray, BoolArray] | None = None
        self.sent: Sent | None = None
        """What ``step`` sent."""

    def load(self, rows: IndexArray, words: RingArray, virtual: BoolArray) -> None:
        """Hand over what ``step`` sends (arguments: ``send``)."""
        self._loaded = rows, words, virtual

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Send everything, at the server's prompt (``Party.step``); errors are those of ``send``.

        Cells are for the first mixes of their paths.
        """
        del inbox  # nobody has anything to say to a client
        if self._loaded is None:
            raise ProtocolError(f"{self.node} has nothing to send")
        sent = self.sent = self.send(*self._loaded)
        first = [node_of(0, address_of(cell).node) for cell in sent.cells]
        return [
            self._parcel(Kind.UPLOAD, sent.upload),
            *(
                Parcel(self.node, mix, "CELL", cell)
                for mix, cell in zip(first, sent.cells, strict=True)
            ),
        ]

    def send(self, rows: IndexArray, words: RingArray, virtual: BoolArray) -> Sent:
        """Upload the rows and route the shares of the fakes; a client does so once.

        Args:
            rows: int32[n], rated and fake rows, ascending.
            words: [n, d] ring words.
            virtual: bool[n], which are fake.

        Raises:
            ConfigError: more fakes than cells.
            WireError: the columns do not fit the table, or the words are of another ring.
            EncodingError: a word stands for a value beyond the ring's clip.
            ProtocolError: the client has sent already.
        """
        self._require(_State.READY)
        context, codec = self._context, self._context.codec
        if virtual.dtype != np.bool_ or virtual.shape != rows.shape:
            raise WireError("marks of fakes must be bool[n]")
        require_rows(rows, words, np.ones(len(rows), dtype=bool), context)
        fakes = np.flatnonzero(virtual)
        names = [secrets.token_bytes(ROW_ID_BYTES) for _ in fakes]
        denoisers = context.denoisers
        stream = UniformWords(secrets.token_bytes(32))
        last, cells = words[fakes], []
        noted = SentCells(self._directory, batch=context.round)
        for denoiser in range(denoisers):
            share = last
            if denoiser < denoisers - 1:
                share = stream.draw(len(fakes), context.width, codec)
                last = last - share
            share = codec.reduce(share)
            messages = [
                encode_row(RowShare(name, int(rows[fake]), share[n : n + 1]), denoiser, context)
                for n, (name, fake) in enumerate(zip(names, fakes.tolist(), strict=True))
            ]
            cells += send(
                messages,
                recipient=denoiser,
                cells=self._cells,
                directory=self._directory,
                sent=noted,
            )
        secrets.SystemRandom().shuffle(cells)
        self._state = _State.DONE
        upload = self._sign(Kind.UPLOAD, encode_rows(rows, words, context))
        return Sent(upload, tuple(cells), noted, tuple(names))
