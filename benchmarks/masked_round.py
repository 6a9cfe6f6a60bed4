"""One round of this project's masked sum, metered: our contender of ``masking``.

The real halves exchange real bytes through ``run_round``. Signatures are on, the server is taken
for active, and every client draws fresh keys. What is summed is a weighted mean, [w, w x].
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from benchmarks.secagg_case import CLIP, MAX_WEIGHT, Case, CpuMeter, Inputs, RoundCost
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    Kind,
    MaskingClient,
    MaskingConfig,
    MaskingServer,
    MeanLayout,
    Roster,
    RoundOutcome,
    SitePolicy,
    Statement,
    run_round,
)
from secure_fedrec.protection.masking.config.committee import overlap_of, smallest_committee
from secure_fedrec.protection.session.parties import Parcel

__all__ = ["config_of", "masked_round"]

_CODEC: Final = FixedPoint(bits=32, fraction_bits=18, clip=CLIP)
"""Twice as fine as Flower's default: 2^22 steps over [-8, 8]."""

_CORRUPT = 0.1
_RARE, _SELDOM = Fraction(1, 2**41), Fraction(1, 2**21)
_EPOCH = 1
STATEMENT: Final = Statement(federation=b"f" * 32, state=b"s" * 32)
"""Any one: nothing is computed from a state here."""


def masked_round(case: Case, inputs: Inputs) -> RoundCost:
    """Run a round and check its sum.

    Returns:
        What it cost.

    Raises:
        AssertionError: the sum is not the exact integer sum over the survivors.
    """
    layout = layout_of(case)
    config = config_of(case)
    meter = CpuMeter()
    federation = Federation(range(case.clients), policy=_AnyGraph(corrupt=_CORRUPT))
    expected = Expected(layout_hash=layout.hash, statement=STATEMENT)
    server = _open_server(federation, config, meter)
    clients = {
        number: _open_client(federation, number, expected, inputs, meter)
        for number in range(case.clients)
    }
    vectors = {}
    for number, client in clients.items():
        with meter.charge(f"encode {client.party}"):
            vectors[number] = layout.encode(inputs.vectors[number], weight=inputs.weights[number])
    outcome = run_round(
        server,
        clients,
        vectors,
        drops=dict.fromkeys(inputs.dropped, Kind.UPLOAD),
        epoch=_EPOCH if config.needs_beacon else 0,
        beacon=bytes(range(32)) if config.needs_beacon else None,
    )
    with meter.charge("decode"):
        mean = layout.decode(outcome.words).mean
    _require_exact(layout, inputs, outcome)
    assert len(mean) == case.length
    return _cost(meter, clients, inputs)


def layout_of(case: Case) -> MeanLayout:
    """A weighted mean of the case's vectors in a ring of 32 bits."""
    return MeanLayout(codec=_CODEC, length=case.length, clients=case.clients, max_weight=MAX_WEIGHT)


def config_of(case: Case) -> MaskingConfig:
    """The case's graph and threshold against an active server; three quarters must survive.

    On a sparse graph a committee signs the survivors, as large as it takes for half of both bounds;
    where no fewer than all clients would do, all sign.
    """
    corrupt, dropped = int(_CORRUPT * case.clients), case.clients - case.clients * 3 // 4
    layout = layout_of(case)
    drawn = None
    if not case.complete:
        drawn = smallest_committee(
            case.clients, corrupt, dropped, privacy=_RARE, correctness=_SELDOM
        )
    return MaskingConfig(
        clients=case.clients,
        bits=_CODEC.bits,
        length=layout.words,
        layout_hash=layout.hash,
        degree=None if case.complete else case.neighbours,
        threshold=case.threshold,
        min_survivors=case.clients * 3 // 4,
        quorum=overlap_of(case.clients, corrupt) if drawn is None else drawn.quorum,
        committee=None if drawn is None else drawn.members,
        corrupt_clients=corrupt,
        window_least=None if case.complete else 1,
        statement=STATEMENT.digest,
    )


class _AnyGraph(SitePolicy):
    """A site that takes part on the graph of a row and insists on everything else.

    The peer's rows have as few neighbours as its user asks for; for so few clients ours would have
    the complete graph. The check that is made costs what the real one does.
    """

    def require(self, config: MaskingConfig, roster: Roster) -> None:
        # Not super(): a dataclass with slots is another class than the one super() looks for.
        whole = replace(
            config, degree=None, window_least=None, committee=None, quorum=config.overlap
        )
        SitePolicy.require(self, whole, roster)


class _MeteredClient(MaskingClient):
    """A client that is charged for what it does."""

    meter: CpuMeter
    party: str
    sent = 0

    def receive(self, data: bytes) -> list[bytes]:
        with self.meter.charge(self.party):
            replies = super().receive(data)
        self.sent += sum(map(len, replies))
        return replies


class _MeteredServer(MaskingServer):
    """A server that is charged for what it does, letting go of messages included.

    As on a host of its own, and as the peer's, it begins a step when all answers to it are there.
    """

    meter: CpuMeter

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        waiting = deque(inbox)
        with self.meter.charge("server"):
            return super().step(waiting.popleft() for _ in range(len(waiting)))


def _open_server(federation: Federation, config: MaskingConfig, meter: CpuMeter) -> _MeteredServer:
    with meter.charge("server"):
        server = _MeteredServer(
            identity=federation.server,
            roster=federation.roster,
            config=config,
            cohort=federation.roster.numbers,
            round_number=1,
            epoch=_EPOCH if config.needs_beacon else 0,
        )
    server.meter = meter
    return server


def _open_client(
    federation: Federation, number: int, expected: Expected, inputs: Inputs, meter: CpuMeter
) -> _MeteredClient:
    party = "dropped" if number in inputs.dropped else "survivor"
    with meter.charge(party):
        client = _MeteredClient(
            identity=federation.identities[number],
            roster=federation.roster,
            policy=federation.policy,
            journal=federation.journals[number],
            expected=expected,
        )
    client.meter, client.party = meter, party
    return client


def _require_exact(layout: MeanLayout, inputs: Inputs, outcome: RoundOutcome) -> None:
    """The sum is that of the integers, computed here without the ring."""
    assert outcome.survivors.tolist() == inputs.survivors
    assert not outcome.aborted
    assert not outcome.faults
    total = np.zeros(layout.length, dtype=np.int64)
    scale = np.float64(1 / _CODEC.resolution)
    for number in inputs.survivors:
        integers = np.rint(inputs.vectors[number].astype(np.float64) * scale).astype(np.int64)
        total += integers * inputs.weights[number]
    found = layout.decode(outcome.words)
    assert found.weight == sum(inputs.weights[number] for number in inputs.survivors)
    assert np.array_equal(found.sums, total)


def _cost(meter: CpuMeter, clients: dict[int, _MeteredClient], inputs: Inputs) -> RoundCost:
    seconds, count = meter.seconds, len(inputs.survivors)
    encode = seconds["encode survivor"] / count
    return RoundCost(
        client=seconds["survivor"] / count + encode,
        encode=encode,
        server=seconds["server"] + seconds["decode"],
        decode=seconds["decode"],
        upload=sum(clients[number].sent for number in inputs.survivors) / count,
    )
