"""The work of a masked sum: operations counted step by step, bookkeeping from real rounds.

The time of two small rounds on this machine that the operations do not explain is divided into a
part per client and one per neighbour: encoding, checking and passing on of messages and of the
records in them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from time import process_time
from typing import TypeVar, TypeVarTuple

import numpy as np

from secure_fedrec.planning.calibration import Calibration, measure_operations
from secure_fedrec.protection.masking.config.layouts import SumLayout
from secure_fedrec.protection.masking.config.policy import Expected, SitePolicy
from secure_fedrec.protection.masking.config.round_settings import MaskingConfig
from secure_fedrec.protection.masking.federation import Federation
from secure_fedrec.protection.masking.server.half import ServerState
from secure_fedrec.protection.session.statement import Statement

_SAMPLES = (8, 32)  # clients on a complete graph
_SAMPLE_ROUNDS = 3

_Arguments = TypeVarTuple("_Arguments")
_Answer = TypeVar("_Answer")


def client_seconds(config: MaskingConfig, calibration: Calibration) -> float:
    """CPU seconds of a client in a round in which all clients answer."""
    cost, k = calibration, config.neighbours
    seconds = (
        2 * cost.keygen  # mask and channel
        # A mask and a channel per neighbour, a channel to the server.
        + (2 * k + 1) * cost.agreement
        + (2 * k + 4) * cost.box  # shares sent and received, keys sealed for the server
        + 3 * cost.sign  # advertisement, sharers, survivors; others have MACs
        # Signatures of server, keys, sharers and quorum.
        + (6 + 2 * k + config.quorum) * cost.verify
        + 2 * cost.split
        + (k + 1) * cost.mask
        + cost.pack
        + cost.digest
        + cost.tag
    )
    seconds += cost.client_round + k * cost.client_edge
    if config.hybrid:  # a channel secret each way; a pair secret one way, by the lower of two
        seconds += 2 * cost.kem_keygen + 1.5 * k * (cost.kem_seal + cost.kem_open)
    return seconds


def server_seconds(config: MaskingConfig, calibration: Calibration, *, dropped: int) -> float:
    """CPU seconds of the server; ``dropped`` clients vanish after they shared their secrets."""
    cost, n, k = calibration, config.clients, config.neighbours
    survivors = n - dropped
    pairs = dropped * k * survivors / (n - 1)  # expected surviving neighbours of dropouts
    seconds = (
        6 * cost.sign  # a step is signed once for all
        + (n + survivors) * cost.verify  # advertisements, sharers
        + min(survivors, config.committee or n) * cost.verify  # survivors
        + n * cost.agreement  # channels
        + (n + 3 * survivors) * cost.box  # keys of shares, upload and reveal
        + survivors * (cost.tag + cost.unpack)
        + survivors * cost.mask  # self masks
        + dropped * (cost.combine + cost.keygen)  # restore a key and compare its public half
        + pairs * (cost.agreement + cost.mask)
    )
    seconds += n * (cost.server_client + k * cost.server_edge)
    if config.hybrid:  # the higher of a pair opens what the lower sealed
        seconds += dropped * cost.kem_keygen + pairs / 2 * cost.kem_open
    return seconds


def calibrate(config: MaskingConfig) -> Calibration:
    """Measure the operations of a configuration, and the bookkeeping on small complete graphs."""
    (few, client_few, server_few), (many, client_many, server_many) = map(_unexplained, _SAMPLES)
    client_edge = max(0.0, (client_many - client_few) / (many - few))
    server_edge = max(0.0, (server_many - server_few) / (many - few))
    return replace(
        measure_operations(config),
        client_round=max(0.0, client_few - few * client_edge),
        client_edge=client_edge,
        server_client=max(0.0, server_few - few * server_edge),
        server_edge=server_edge,
    )


_STATEMENT = Statement(federation=sha256(b"plan").digest(), state=sha256(b"none").digest())
"""An arbitrary value, since no state is used here."""


def _unexplained(clients: int) -> tuple[int, float, float]:
    """Neighbours, and CPU seconds of a client and of the server per client beyond operations."""
    layout = SumLayout(bits=32, length=16, clients=clients, largest=1)
    config = MaskingConfig.for_cohort(
        clients,
        bits=layout.bits,
        length=layout.words,
        layout_hash=layout.hash,
        corrupt=0.0,
        dropout=0.0,
        statement=_STATEMENT.digest,
    )
    operations = measure_operations(config)
    rounds = [_sample_round(config, layout) for _ in range(_SAMPLE_ROUNDS)]
    at_clients, server = map(min, zip(*rounds, strict=True))
    client = at_clients / clients
    return (
        config.neighbours,
        client - client_seconds(config, operations),
        (server - server_seconds(config, operations, dropped=0)) / clients,
    )


@dataclass(slots=True)
class _Stopwatch:
    seconds: float = 0.0

    def time(self, call: Callable[[*_Arguments], _Answer], *args: *_Arguments) -> _Answer:
        start = process_time()
        answer = call(*args)
        self.seconds += process_time() - start
        return answer


def _sample_round(config: MaskingConfig, layout: SumLayout) -> tuple[float, float]:
    """CPU seconds of all clients, and of the server, in a round in which all clients answer."""
    federation = Federation(range(config.clients), policy=SitePolicy(corrupt=0.0, dropout=0.0))
    cohort = np.arange(config.clients, dtype=np.int64)
    server = federation.open_server(config, cohort)
    expected = Expected(layout_hash=layout.hash, statement=_STATEMENT)
    clients = [federation.open_client(number, expected) for number in range(config.clients)]
    for client in clients:
        client.load(layout.encode(np.zeros(layout.length, dtype=np.int64)))
    at_clients, at_server = _Stopwatch(), _Stopwatch()
    outgoing = at_server.time(server.start)
    while outgoing:
        for number, message in outgoing:
            for reply in at_clients.time(clients[number].receive, message):
                at_server.time(server.receive, reply)
        outgoing = [] if server.state is ServerState.DONE else at_server.time(server.close_step)
    return at_clients.seconds, at_server.seconds
