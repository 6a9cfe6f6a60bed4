"""``masking``: CPU time of a masked sum against Flower's SecAgg+ and against what masks must cost.

Each row is one cohort. Per repeat, in turn: the cost of one mask on this machine, a round of ours,
a round of the peer on the same vectors, neighbours, threshold and dropouts. A client's time runs
from its float32 vector to its last message, the server's from its first message to the mean: both
contenders encode and decode. Ours runs against an active server with every signature on, and the
sum of every measured round is compared with the exact integer sum.

Judged, worst over the rows:

- ``client_ratio_flower`` and ``server_ratio_flower``: the peer's CPU time over ours.
  ``client_ratio_flower_elsewhere`` leaves out 16 clients with 10^6 values, where the peer's costs
  per neighbour, which ours avoids, weigh least.
- ``client_over_limit``: our client's time over 1.3 k fused + 10 ms + 0.15 ms k + 0.07 ms T, where
  ``fused`` is expansion and addition of one mask by the library's AES-CTR, k the neighbours and T
  the signatures of the quorum. Its constants were set where an Ed25519 verification takes 0.062 ms
  of CPU time; ``verify_ms`` says what one takes here and now (a busy sibling core doubles it).
- ``client_over_scaled_limit``: the same with these constants at the speed of this machine, that is
  times ``verify_ms`` / 0.062: as ``fused``, what they stand for is then measured in the same run.
- ``server_over_bound``: our server's time over the masks that it expands, one per survivor and one
  per live neighbour of a dropped client, at ``fused`` each; at 10^6 values, since signatures, which
  do not grow with the vector, outweigh the masks of short ones.
- ``server_over_work``: our server's time without drops over what it does to every value of an
  upload: check its tag, add it, and expand and add its self-mask, at ``fused``. (Words of 32 bits,
  as here, travel as they are, so unpacking them costs nothing.) At 10^6 values, for the same
  reason.

The bars were set by ``fused``. Ours expands the same keystream by the library's GCM where that is
faster than its counter mode (``way``): ``mask_ms`` is a mask of ours, and ``server_over_own_work``
what ``server_over_work`` is where masks cost that. ``server_over_nominal_work`` is what it is where
every signature that the server checks takes 0.062 ms and all else what it took here. None of the
three is judged.

The process keeps what messages took (``KEPT_BY_SERVERS``), for both contenders, as ``deploy`` does.
"""

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from benchmarks.federations import Options
from benchmarks.masked_round import config_of, masked_round
from benchmarks.measure import progress
from benchmarks.secagg_case import Case, Contender, Inputs, Peer, RoundCost
from secure_fedrec.protection.keystream import KEY_BYTES, MaskExpander, faster_way

__all__ = ["TARGETS", "run"]

TARGETS: Final = {
    "client_ratio_flower": ">= 4",
    "client_ratio_flower_elsewhere": ">= 5",
    "server_ratio_flower": ">= 20",
    "client_over_limit": "<= 1",
    "client_over_scaled_limit": "<= 1",
    "server_over_bound": "<= 2",
    "server_over_work": "<= 1.5",
}

Figures: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cohort, and whether the peer runs it.

    Args:
        case: the cohort.
        left_out: why the peer does not run it; empty if it does.
    """

    case: Case
    left_out: str = ""


_TOO_LONG = "Flower's Shamir sharing alone takes seconds per client and minutes at the server"


def _rows(
    clients: int,
    lengths: Iterable[int],
    neighbours: int,
    threshold: int,
    drops: Iterable[int],
    left_out: str = "",
) -> tuple[Row, ...]:
    return tuple(
        Row(
            case=Case(
                clients=clients,
                length=length,
                neighbours=neighbours,
                threshold=threshold,
                dropped=dropped,
            ),
            left_out=left_out,
        )
        for length in lengths
        for dropped in drops
    )


_SHORT, _LONG = 100_000, 1_000_000
# Thresholds are two thirds of the neighbours, or half where a sparse graph meets dropouts.
_FULL_ROWS: Final = (
    *_rows(16, (_SHORT, _LONG), 15, 10, (0, 2)),
    *_rows(64, (_SHORT, _LONG), 24, 13, (0, 6)),
    *_rows(64, (_SHORT,), 63, 43, (0,)),
    *_rows(128, (_SHORT, _LONG), 24, 13, (0, 13)),
    *_rows(128, (_LONG,), 127, 85, (0, 13), _TOO_LONG),
)
_QUICK_ROWS: Final = (
    *_rows(16, (_SHORT,), 15, 10, (0,)),
    *_rows(16, (_LONG,), 15, 10, (0, 2)),
)
_LENIENT: Final = (16, _LONG)
"""Clients and length of the rows that ``client_ratio_flower_elsewhere`` leaves out."""

_FULL_EFFORT: Final = (9, 45.0)
_QUICK_EFFORT: Final = (3, 4.0)
"""Repeats of a row, and wall seconds after which no further one begins."""


def run(options: Options, peer: Peer | None) -> Figures:
    """All figures of the benchmark, as JSON values.

    Args:
        options: how long to measure.
        peer: whom to measure against; without one the ratios are null.
    """
    rows = _QUICK_ROWS if options.quick else _FULL_ROWS
    repeats, wall_budget = _QUICK_EFFORT if options.quick else _FULL_EFFORT
    for length in sorted({row.case.length for row in rows}):
        _warm_up(length, peer)
    figures = {}
    for row in rows:
        case = row.case
        progress(name_of(case) + (f" (alone: {row.left_out})" if row.left_out else ""))
        rival = None if row.left_out else peer
        begun, taken = perf_counter(), [_repeat(case, rival, seed=1)]
        while len(taken) < repeats and perf_counter() - begun < wall_budget:
            taken.append(_repeat(case, rival, seed=len(taken) + 1))
        figures[name_of(case)] = _row_figures(row, taken)
    return {
        "benchmark": "masking",
        "flower": None if peer is None else peer.version,
        "way": faster_way().value,
        **judged(figures),
        "rows": figures,
        "targets": TARGETS,
    }


def name_of(case: Case) -> str:
    """Short name of a row."""
    drop = f"_drop{case.dropped}" if case.dropped else ""
    return f"n{case.clients}_d{case.length}_k{case.neighbours}{drop}"


def judged(rows: dict[str, Figures]) -> dict[str, float | None]:
    """The worst figure over the rows that have it; None where none has."""

    def worst(key: str, choose: Callable[[list[float]], float], chosen: Iterable[Figures]) -> Any:
        found = [row[key] for row in chosen if row[key] is not None]
        return choose(found) if found else None

    every = list(rows.values())
    elsewhere = [row for row in every if (row["clients"], row["length"]) != _LENIENT]
    long = [row for row in every if row["length"] >= _LONG]
    return {
        "client_ratio_flower": worst("client_ratio_flower", min, every),
        "client_ratio_flower_elsewhere": worst("client_ratio_flower", min, elsewhere),
        "server_ratio_flower": worst("server_ratio_flower", min, every),
        "client_over_limit": worst("client_over_limit", max, every),
        "client_over_scaled_limit": worst("client_over_scaled_limit", max, every),
        "server_over_bound": worst("server_over_bound", max, long),
        "server_over_work": worst("server_over_work", max, long),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeat:
    """One turn: the cost of a mask, of taking an upload, of a signature, of both rounds."""

    fused: float
    mask: float
    taken: float
    verify: float
    ours: RoundCost
    peer: RoundCost | None


def _repeat(case: Case, peer: Peer | None, *, seed: int) -> _Repeat:
    inputs = Inputs.draw(case, seed)
    return _Repeat(
        fused=fused_seconds(case.length),
        mask=mask_seconds(case.length),
        taken=taken_seconds(case.length),
        verify=verify_seconds(),
        ours=_uninterrupted(masked_round, case, inputs),
        peer=None if peer is None else _uninterrupted(peer.round, case, inputs),
    )


def _warm_up(length: int, peer: Peer | None) -> None:
    """A few clients with vectors of a row's length, not counted: imports, caches, fresh memory."""
    _repeat(Case(clients=8, length=length, neighbours=7, threshold=4, dropped=1), peer, seed=0)


def _uninterrupted(contender: Contender, case: Case, inputs: Inputs) -> RoundCost:
    """A round without pauses of the garbage collector, which strike whoever happens to run."""
    gc.collect()
    gc.disable()
    try:
        return contender(case, inputs)
    finally:
        gc.enable()


_BLOCK_BYTES = 256 * 1024
_ZEROS = bytes(_BLOCK_BYTES)
_MASKED_WORDS = 8_000_000
_VERIFICATIONS = 100
_NOMINAL_VERIFY = 0.062e-3


def fused_seconds(length: int) -> float:
    """CPU seconds to expand one mask and add it to uint32[length]: what any implementation pays."""
    target = np.zeros(length, dtype=np.uint32)
    buffer = np.empty(_BLOCK_BYTES, dtype=np.uint8)
    masks = max(4, _MASKED_WORDS // length)
    begun = process_time()
    for _ in range(masks):
        add_mask(target, bytes(32), buffer)
    return (process_time() - begun) / masks


def add_mask(target: npt.NDArray[np.uint32], key: bytes, buffer: npt.NDArray[np.uint8]) -> None:
    """Add the AES-256-CTR keystream of a key to a vector, through a buffer that fits the cache.

    Args:
        target: uint32[d]; words wrap.
        key: 32 bytes.
        buffer: uint8[256 KiB].
    """
    words = buffer.view(np.uint32)
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    for start in range(0, len(target), len(words)):
        piece = target[start : start + len(words)]
        stream.update_into(memoryview(_ZEROS)[: piece.nbytes], buffer.data)
        np.add(piece, words[: len(piece)], out=piece)


def mask_seconds(length: int) -> float:
    """CPU seconds to expand one mask and add it to uint32[length], as ours does, of several."""
    target, expander = np.zeros(length, dtype=np.uint32), MaskExpander()
    masks = [
        number.to_bytes(KEY_BYTES, "little") for number in range(max(4, _MASKED_WORDS // length))
    ]
    begun = process_time()
    expander.apply(target, add=masks, subtract=[])
    return (process_time() - begun) / len(masks)


def taken_seconds(length: int) -> float:
    """CPU seconds to check the AES-256-GMAC of uint32[length] and add it to a sum."""
    total, upload = np.zeros(length, dtype=np.uint32), np.ones(length, dtype=np.uint32)
    uploads = max(4, _MASKED_WORDS // length)
    begun = process_time()
    for _ in range(uploads):
        check = Cipher(algorithms.AES256(bytes(32)), modes.GCM(bytes(12))).encryptor()
        check.authenticate_additional_data(upload.view(np.uint8).data)
        check.finalize()
        np.add(total, upload, out=total)
    return (process_time() - begun) / uploads


def verify_seconds() -> float:
    """CPU seconds to load an Ed25519 public key and verify one signature of 300 bytes."""
    signer, message = Ed25519PrivateKey.generate(), bytes(300)
    public, signature = signer.public_key().public_bytes_raw(), signer.sign(message)
    begun = process_time()
    for _ in range(_VERIFICATIONS):
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    return (process_time() - begun) / _VERIFICATIONS


def client_limit(case: Case, fused: float, *, verify: float = _NOMINAL_VERIFY) -> float:
    """Most CPU seconds of a client.

    Args:
        case: the cohort.
        fused: seconds to expand and add a mask.
        verify: seconds of a verification, by which all but the masks is scaled.
    """
    neighbours, quorum = case.neighbours, config_of(case).quorum
    rest = 10e-3 + 0.15e-3 * neighbours + 0.07e-3 * quorum
    return 1.3 * neighbours * fused + rest * verify / _NOMINAL_VERIFY


def server_bound(case: Case, fused: float) -> float:
    """CPU seconds of the masks that the server must expand."""
    survivors = case.clients - case.dropped
    # Each dropped client has this many neighbours among them: exactly on the complete graph, on
    # average on another.
    live = case.neighbours * survivors / (case.clients - 1)
    return (survivors + case.dropped * live) * fused


def signatures_checked(case: Case) -> int:
    """Signatures that the server checks where nobody drops out.

    Each client's over its keys and over the sharers, and the committee's over the survivors.
    """
    committee = config_of(case).committee
    return 2 * case.clients + (case.clients if committee is None else committee)


def _row_figures(row: Row, taken: list[_Repeat]) -> Figures:
    """Medians over the repeats; ratios are medians over neighbouring measurements."""
    case = row.case
    peers = [(turn.ours, turn.peer) for turn in taken if turn.peer is not None]
    figures: Figures = {
        "clients": case.clients,
        "length": case.length,
        "neighbours": case.neighbours,
        "threshold": case.threshold,
        "dropped": case.dropped,
        "repeats": len(taken),
        "fused_ms": 1e3 * median(turn.fused for turn in taken),
        "mask_ms": 1e3 * median(turn.mask for turn in taken),
        "verify_ms": 1e3 * median(turn.verify for turn in taken),
        **_contender_figures([turn.ours for turn in taken], ""),
        "client_over_limit": median(
            turn.ours.client / client_limit(case, turn.fused) for turn in taken
        ),
        "client_over_scaled_limit": median(
            turn.ours.client / client_limit(case, turn.fused, verify=turn.verify) for turn in taken
        ),
        "server_over_bound": median(
            turn.ours.server / server_bound(case, turn.fused) for turn in taken
        ),
        "server_over_work": None
        if case.dropped
        else median(
            turn.ours.server / (case.clients * (turn.fused + turn.taken)) for turn in taken
        ),
        "server_over_own_work": None
        if case.dropped
        else median(turn.ours.server / (case.clients * (turn.mask + turn.taken)) for turn in taken),
        "server_over_nominal_work": None
        if case.dropped
        else median(
            (turn.ours.server - signatures_checked(case) * (turn.verify - _NOMINAL_VERIFY))
            / (case.clients * (turn.fused + turn.taken))
            for turn in taken
        ),
        **_contender_figures([peer for _, peer in peers], "flower_"),
        "client_ratio_flower": None,
        "server_ratio_flower": None,
    }
    if peers:
        figures["client_ratio_flower"] = median(peer.client / ours.client for ours, peer in peers)
        figures["server_ratio_flower"] = median(peer.server / ours.server for ours, peer in peers)
    if row.left_out:
        figures["flower_left_out"] = row.left_out
    return figures


def _contender_figures(costs: list[RoundCost], prefix: str) -> Figures:
    if not costs:
        return {}
    figures = {
        "client_ms": 1e3 * median(cost.client for cost in costs),
        "client_encode_ms": 1e3 * median(cost.encode for cost in costs),
        "server_ms": 1e3 * median(cost.server for cost in costs),
        "server_decode_ms": 1e3 * median(cost.decode for cost in costs),
        "upload_mb": median(cost.upload for cost in costs) / 1e6,
    }
    return {prefix + key: value for key, value in figures.items() if value}
