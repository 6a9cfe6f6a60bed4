"""The client's half: rows become one share per party.

Let x be the words of a row and c its count word (1 rated, 0 fake; a fake has x = 0). Denoiser k is
given PRG(seed_k) and the server x || c - sum_k PRG(seed_k), all in Z_2^b: any set of parties that
leaves one out holds words that are uniform and independent of x and c, if the PRG is one
(AES-256-CTR under a key that HKDF-SHA256 derives from the seed, the context and both numbers).
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fedrec.core.arrays import BoolArray, IndexArray, RingArray
from secure_fedrec.errors import EncodingError, ProtocolError, WireError
from secure_fedrec.protection.base.row_numbers import encode_row_numbers, require_ascending
from secure_fedrec.protection.routing.sealing import SealingKey, labelled
from secure_fedrec.protection.session import Node, Parcel, Role
from secure_fedrec.protection.shared_upload.messages import SEED_BYTES, Kind, encode_rows
from secure_fedrec.protection.shared_upload.round_context import DOMAIN, RoundContext
from secure_fedrec.protection.shared_upload.round_parties import Half
from secure_fedrec.protection.shared_upload.uniform_words import UniformWords


@dataclass(frozen=True, slots=True)
class Shared:
    """The messages of a client in a round.

    Args:
        server: message to the server.
        denoisers: message to each denoiser, in order. They are sealed: their carrier learns no more
            than how many rows there are.
    """

    server: bytes
    denoisers: tuple[bytes, ...]


class _State(Enum):
    WAITING = "waiting for the denoisers' keys"
    READY = "ready to share"
    DONE = "done"


class SharingClient(Half):
    """One client in one round.

    Args:
        context: the round.
        client: its number.
        identity: its signing key.

    Raises:
        ProtocolError: the roster has another key for this client.
    """

    def __init__(self, context: RoundContext, client: int, identity: Ed25519PrivateKey) -> None:
        super().__init__(context, Node(Role.CLIENT, client), identity, _State.WAITING)
        self._client = client
        self._keys: list[SealingKey] = []
        self._loaded: tuple[IndexArray, RingArray, BoolArray] | None = None

    def load(self, rows: IndexArray, words: RingArray, rated: BoolArray) -> None:
        """Give the rows that ``step`` shares (arguments: ``share``)."""
        self._loaded = rows, words, rated

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        """Upon the denoisers' keys, one share per party (``Party.step``).

        Raises:
            ProtocolError: a key is missing or refused (``accept``), or nothing was loaded.
            WireError: a malformed message or key, or rows that do not fit.
            EncodingError: a word stands for a value beyond the ring's clip.
        """
        self.accept(list(dict.fromkeys(inbox)))
        if self._loaded is None:
            raise ProtocolError(f"client {self._client} has not loaded rows to share")
        shared = self.share(*self._loaded)
        seeds = [
            Parcel(self.node, Node(Role.DENOISER, number), Kind.SEED.name, seed)
            for number, seed in enumerate(shared.denoisers)
        ]
        return [self._parcel(Kind.SHARES, shared.server), *seeds]

    def accept(self, adverts: Sequence[bytes]) -> None:
        """Take the denoisers' keys of this round, one message from each, in any order.

        Raises:
            ProtocolError: a message is missing, repeated, unsigned, or of another round.
            WireError: a malformed message or key.
        """
        self._require(_State.WAITING)
        bodies = self._open_all(adverts, Kind.ADVERT)
        keys = [SealingKey(self._context.mechanism, body) for body in bodies]
        if len({key.data for key in keys}) != len(keys):
            raise ProtocolError("two denoisers advertise one key")
        self._keys, self._state = keys, _State.READY

    def share(self, rows: IndexArray, words: RingArray, rated: BoolArray) -> Shared:
        """Share the rows; a client does so once.

        Args:
            rows: int32[n], rated and fake rows, ascending.
            words: [n, d] ring words; those of fake rows are not read.
            rated: bool[n].

        Raises:
            WireError: the columns do not fit the table, or the words are of another ring.
            EncodingError: a word stands for a value beyond the ring's clip.
            ProtocolError: the keys are missing, or the client has shared already.
        """
        self._require(_State.READY)
        context = self._context
        _require_rows(rows, words, rated, context)
        rest = with_counts(words, rated)
        boxes, named = [], encode_row_numbers(rows)
        for number, key in enumerate(self._keys):
            seed = secrets.token_bytes(SEED_BYTES)
            rest -= expand(seed, len(rows), self._client, number, context)
            info = seed_info(self._client, number, context)
            boxes.append(number.to_bytes(4, "little") + key.seal(seed + named, info))
        body = encode_rows(rows, context.codec.reduce(rest), context)
        self._state = _State.DONE
        return Shared(
            self._sign(Kind.SHARES, body), tuple(self._sign(Kind.SEED, box) for box in boxes)
        )


def with_counts(words: RingArray, rated: BoolArray) -> RingArray:
    """[n, d + 1]: the words of rated rows and a 1, zeros for fake rows."""
    whole = np.zeros((len(words), words.shape[1] + 1), dtype=words.dtype)
    np.multiply(words, rated[:, None], out=whole[:, :-1])
    whole[:, -1] = rated
    return whole


def expand(seed: bytes, rows: int, client: int, denoiser: int, context: RoundContext) -> RingArray:
    """A denoiser's share of a client's rows: [rows, d + 1]."""
    ends = client.to_bytes(4, "little") + denoiser.to_bytes(4, "little")
    info = labelled(DOMAIN, b"share", ends)
    key = HKDF(algorithm=SHA256(), length=32, salt=context.digest, info=info).derive(seed)
    return UniformWords(key).draw(rows, context.width + 1, context.codec)


def seed_info(client: int, denoiser: int, context: RoundContext) -> bytes:
    """The facts that a sealed seed is bound to."""
    ends = client.to_bytes(4, "little") + denoiser.to_bytes(4, "little")
    return labelled(DOMAIN, b"seed", context.digest, ends)


def _require_rows(
    rows: IndexArray, words: RingArray, rated: BoolArray, context: RoundContext
) -> None:
    """Check rows before anything is made of them; words are read where ``rated``.

    Raises:
        WireError: the columns do not fit the table, or the words are of another ring.
        EncodingError: a word stands for a value beyond the ring's clip.
    """
    codec = context.codec
    if words.dtype != codec.dtype or words.shape != (len(rows), context.width):
        raise WireError(f"words {words.dtype}{words.shape} for {len(rows)} rows of this ring")
    if rated.dtype != np.bool_ or rated.shape != rows.shape or rows.dtype != np.int32:
        raise WireError("rows and their marks must be int32[n] and bool[n]")
    require_ascending(rows, context.n_items)
    real = words[rated]
    if real.size and int(real.max()) > codec.dtype(2**codec.bits - 1):
        raise WireError(f"a word lies outside the ring of 2^{codec.bits}")
    integers = codec.to_integers(real)
    if np.any(integers > codec.largest) or np.any(integers < -codec.largest):
        raise EncodingError(f"a word stands for a value beyond ring.clip = {codec.clip:g}")
