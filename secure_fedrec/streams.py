"""Separate, random-access random streams for the cohort, initialisation, fakes and denoisers.

A stream is a keyed pseudo-random function: AES-256 applied to the block (lane, round, index). A
draw is therefore a function of (seed, stream name, round, lane, index) alone. It does not depend on
which other clients share a batch, on the order of calls, or on how much another stream consumed; so
a batch of thousands of clients draws exactly what each would have drawn by itself, a resumed run
draws what the killed one would have, and a change of rho does not change cohorts.

What a client draws for itself (its first private tables, negatives, the order of its batches,
virtual items) would be known to every party that knows the seed. So a client of a deployment draws
it under a secret of its own (``Streams.of_clients``), and draws that are equal on all hosts come
from the seed.

Seeded streams alone make *simulations* reproducible. The embedded engine draws what a deployment's
clients do if it is handed their secrets.
"""

import secrets
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from typing_extensions import override

from secure_fedrec.core.arrays import FloatArray, IntArray, WordArray
from secure_fedrec.errors import ConfigError

_BLOCK = np.dtype([("lane", "<u8"), ("round", "<u4"), ("index", "<u4")])
_INDEX_LIMIT = 2**32
# Rank = high bits of (42 random bits) * size: the bias of a rank is below size / 2^42, and size is
# a number of items or clients (< 2^22).
_RANK_BITS = 42
_RANK_LIMIT = 2**22


class Stream:
    """One named pseudo-random function; make it through ``Streams.stream``."""

    __slots__ = ("_cipher", "name")

    def __init__(self, name: str, key: bytes) -> None:
        self.name = name
        # ECB over distinct counter blocks is the plain evaluation of a PRF, not encryption of data.
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB())  # noqa: S305

    def words_at(
        self, round_: int, lanes: IntArray, indices: IntArray, *, width: int = 2
    ) -> WordArray:
        """Uniform 64-bit words at given positions.

        Args:
            round_: round number, 0 to 2^32 - 1.
            lanes: int64[N], one lane (client) per position.
            indices: int64[N], position inside the lane.
            width: words per position.

        Returns:
            uint64[N, width]; row n is a function of (round, lanes[n], indices[n]) alone.
        """
        blocks_each = (width + 1) // 2
        blocks = np.empty((len(lanes), blocks_each), dtype=_BLOCK)
        blocks["lane"] = lanes[:, None]
        blocks["round"] = round_
        first = np.asarray(indices, dtype=np.int64)[:, None] * blocks_each
        if first.size and int(first.max()) + blocks_each > _INDEX_LIMIT:
            raise ValueError(
                f"stream {self.name!r}: index {int(first.max())} is beyond 2^32 blocks"
            )
        blocks["index"] = first + np.arange(blocks_each)
        return self._evaluate(blocks).reshape(len(lanes), 2 * blocks_each)[:, :width]

    def words(self, round_: int, lanes: IntArray, counts: IntArray, starts: IntArray) -> WordArray:
        """Concatenated runs of consecutive words, one run per lane.

        Args:
            round_: round number.
            lanes: int64[B].
            counts: int64[B], words wanted per lane.
            starts: int64[B], first word per lane; must be even (a block holds two words).

        Returns:
            uint64[counts.sum()].
        """
        blocks_each = (counts + 1) // 2
        ends = np.cumsum(blocks_each)
        blocks = np.empty(int(ends[-1]) if len(ends) else 0, dtype=_BLOCK)
        within = np.arange(len(blocks)) - np.repeat(ends - blocks_each, blocks_each)
        blocks["lane"] = np.repeat(lanes, blocks_each)
        blocks["round"] = round_
        blocks["index"] = within + np.repeat(starts // 2, blocks_each)
        words = self._evaluate(blocks)
        if not np.any(counts & 1):
            return words
        keep = np.ones(len(words), dtype=bool)
        keep[2 * ends[(counts & 1) == 1] - 1] = False  # the unused second half of a last block
        return words[keep]

    def generator(self, round_: int = 0, lane: int = 0) -> np.random.Generator:
        """A numpy generator keyed by this stream, for whole-cohort draws at the server."""
        key = self.words_at(round_, np.array([lane]), np.array([0]), width=2)[0]
        return np.random.Generator(np.random.Philox(key=key))

    def _evaluate(self, blocks: npt.NDArray[np.void]) -> WordArray:
        encryptor = self._cipher.encryptor()
        out = bytearray(blocks.nbytes + 15)  # pyca asks for a spare block less one byte
        encryptor.update_into(blocks.view(np.uint8).data if blocks.size else b"", out)
        return np.frombuffer(out, dtype="<u8", count=blocks.nbytes // 8)


class ClientStream(Stream):
    """A stream whose lanes are clients, each under a key of its own (``Streams.private``).

    Args:
        streams: by client.
    """

    __slots__ = ("_streams",)

    def __init__(self, streams: Mapping[int, Stream]) -> None:
        self._streams = streams

    @override
    def words_at(
        self, round_: int, lanes: IntArray, indices: IntArray, *, width: int = 2
    ) -> WordArray:
        found = np.empty((len(lanes), width), dtype=np.uint64)
        for lane in np.unique(lanes).tolist():
            own = lanes == lane
            found[own] = self._of(lane).words_at(round_, lanes[own], indices[own], width=width)
        return found

    @override
    def words(self, round_: int, lanes: IntArray, counts: IntArray, starts: IntArray) -> WordArray:
        runs = [
            self._of(lane).words(round_, lanes[n : n + 1], counts[n : n + 1], starts[n : n + 1])
            for n, lane in enumerate(lanes.tolist())
        ]
        return np.concatenate([np.empty(0, dtype=np.uint64), *runs])

    @override
    def generator(self, round_: int = 0, lane: int = 0) -> np.random.Generator:
        return self._of(lane).generator(round_, lane)

    def _of(self, client: int) -> Stream:
        if client not in self._streams:
            raise ConfigError("streams.client", client, "draws for itself, on its own host")
        return self._streams[client]


class Streams:
    """The family of streams of one run.

    Args:
        root: 32 bytes.
        secrets: 32 bytes of each client's own, by number; None if clients have none and draw from
            the root.
    """

    __slots__ = ("_root", "_secrets")

    def __init__(self, root: bytes, secrets: Mapping[int, bytes] | None = None) -> None:
        if len(root) != 32:
            raise ValueError(f"a root key has 32 bytes, got {len(root)}")
        self._root = root
        self._secrets = secrets

    @classmethod
    def from_seed(cls, seed: int) -> "Streams":
        """Reproducible streams for simulations; never for a deployment.

        Raises:
            ConfigError: the seed is negative or has more than 128 bits.
        """
        if not 0 <= seed < 2**128:
            raise ConfigError("seed", seed, "must be between 0 and 2^128 - 1")
        return cls(seed.to_bytes(32, "little"))

    @classmethod
    def system(cls) -> "Streams":
        """Streams keyed by the operating system's generator: unpredictable, not reproducible."""
        return cls(secrets.token_bytes(32))

    def of_clients(self, secrets: Mapping[int, bytes]) -> "Streams":
        """The family in which clients draw under secrets of their own.

        Args:
            secrets: 32 bytes by client; a client's host knows its own alone.
        """
        return Streams(self._root, dict(secrets))

    @property
    def seed(self) -> int | None:
        """The seed of ``from_seed``; None where a key is secret."""
        seed = int.from_bytes(self._root, "little")
        return seed if seed < 2**128 and not self.keyed else None

    def __repr__(self) -> str:
        """``from_seed``, or no key at all."""
        return "Streams" if self.seed is None else f"Streams.from_seed({self.seed})"

    @property
    def keyed(self) -> bool:
        """Whether clients draw under secrets of their own."""
        return self._secrets is not None

    def of(self, client: int) -> "Streams":
        """The family that a client draws for itself from.

        Raises:
            ConfigError: the client's secret is not known here.
        """
        if self._secrets is None:
            return self
        if client not in self._secrets:
            raise ConfigError("streams.client", client, "draws for itself, on its own host")
        return self.bound_to(self._secrets[client])

    def private(self, name: str) -> Stream:
        """The stream of that name that clients draw for themselves from; lanes are clients."""
        if self._secrets is None:
            return self.stream(name)
        return ClientStream({client: self.of(client).stream(name) for client in self._secrets})

    def bound_to(self, secret: bytes) -> "Streams":
        """The family under this key *and* a secret: the seed alone does not determine its draws."""
        info = b"secure-fedrec|v1|bound streams"
        return Streams(
            HKDF(algorithm=SHA256(), length=32, salt=secret, info=info).derive(self._root)
        )

    def stream(self, name: str) -> Stream:
        """The stream of that name, equal on all hosts; different names are independent."""
        info = b"secure-fedrec|v1|stream|" + name.encode()
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(self._root)
        return Stream(name, key)


def uniform_ranks(words: WordArray, sizes: IntArray) -> IntArray:
    """Map words to uniform integers below ``sizes`` (element by element).

    Raises:
        ValueError: a size is above 2^22, where the bias bound of 2^-20 would no longer hold.
    """
    if sizes.size and int(sizes.max()) > _RANK_LIMIT:
        raise ValueError(f"ranks are drawn below {_RANK_LIMIT}, asked for {int(sizes.max())}")
    top = words >> np.uint64(64 - _RANK_BITS)
    ranks = (top * sizes.astype(np.uint64)) >> np.uint64(_RANK_BITS)
    return ranks.view(np.int64)


def uniform_reals(words: WordArray) -> FloatArray:
    """Map words to reals in the open interval (0, 1), on the grid of odd multiples of 2^-53."""
    # 52 bits and a half fit a float64; with 53 the largest words would round to 1.
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
