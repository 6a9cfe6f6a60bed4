"""Faulty wires under real protocols: a round is refused, or has the bits of the round without.

Every kind of message of every protocol is altered in its first, a middle and its last byte, lost,
repeated and late. The engine trains on everybody in the round, so the only sum it may go on with
is that of all clients; what a round of the masking halves makes of those who are left is below.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Sizes, VirtualRatingsConfig, build_stack
from secure_fedrec.protection.denoisers.config import DenoisersConfig
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    MaskingConfig,
    SitePolicy,
    SumLayout,
    run_round,
)
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.protection.session import OverWire
from secure_fedrec.protection.shared_upload import SharedUploadConfig
from secure_fedrec.streams import Streams
from secure_fedrec.wire import (
    Alter,
    Delay,
    Drop,
    Fault,
    Meter,
    Parcels,
    RecordingPolicy,
    Repeat,
    Wire,
)
from tests.statements import about

pytestmark = pytest.mark.usefixtures("one_paillier_key")

N_CLIENTS, N_ITEMS, RANK = 6, 12, 2
TABLE = generate(SyntheticConfig(clients=N_CLIENTS, items=N_ITEMS, mean_ratings=5.0, seed=2))
STICKY = VirtualRatingsConfig(sticky=True)

MASKING = (
    *("SETUP", "ADVERTISE", "KEYS", "SHARES", "BOXES", "UPLOAD", "SURVIVORS", "REVEAL"),
    "RESULT",
)
"""Where the server is curious: nobody signs the survivors."""
MIXES = ("KEY", "UPLOAD", "CELLS", "RECEIPT", "SEEN", "SUMS")
PROTOCOLS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "masking": ({"masking": MaskingLayerConfig(execution="real")}, MASKING),
    "masking, active": (
        {"masking": MaskingLayerConfig(execution="real", adversary="active")},
        ("SETUP", "BOXES", "UPLOAD", "SURVIVORS", "CONFIRM", "QUORUM", "REVEAL"),
    ),
    "masking, floor": (
        {"masking": MaskingLayerConfig(execution="real", tail_floor=2)},
        ("MARKS", "COUNTS", "UPLOAD", "RESULT"),
    ),
    "paillier": (
        {"paillier": EncryptionLayerConfig(execution="real", key_bits=2048)},
        ("UPLOAD", "SUMS", "RESULT"),
    ),
    "paillier, clients' key": (
        {"paillier": EncryptionLayerConfig(execution="real", holder="clients", key_bits=2048)},
        ("UPDATE", "UPLOAD", "SUMS"),
    ),
    "shared upload": (
        {
            "virtual-ratings": STICKY,
            "shared-upload": SharedUploadConfig(count=2, floor=3, execution="real"),
        },
        ("ADVERT", "SHARES", "SEED", "HELD", "PROPOSAL", "CONSENT", "AGREEMENT", "SUMS"),
    ),
    "routed denoisers": (
        {
            "virtual-ratings": VirtualRatingsConfig(),
            "denoisers": DenoisersConfig(count=2),
            "routing": RoutingLayerConfig(layers=2, cell_bytes=1024, execution="real"),
        },
        MIXES,
    ),
}
CASES = [(name, stage) for name, (_, stages) in PROTOCOLS.items() for stage in stages]
FAULTS: dict[str, tuple[Callable[..., Fault], bool]] = {
    "altered in front": (lambda **chosen: Alter(at=0, **chosen), False),
    "altered inside": (lambda **chosen: Alter(at=30, **chosen), True),
    "altered at the end": (lambda **chosen: Alter(at=-1, **chosen), False),
    "one lost": (Drop, False),
    "all lost": (Drop, True),
    "repeated": (Repeat, True),
    "one late": (Delay, False),
    "all late": (Delay, True),
}
"""How a fault is made, and whether it strikes every message of the stage or one."""


class Striking:
    """Chooses one message of the first batch it is asked about, or all; counts what it struck."""

    def __init__(self, everyone: bool) -> None:
        self.everyone = everyone
        self.struck = 0

    def __call__(self, parcels: Parcels) -> Any:
        chosen = np.full(len(parcels), self.everyone)
        chosen[len(parcels) // 2 : len(parcels) // 2 + 1] = True
        if self.struck:
            chosen[:] = False
        self.struck += int(chosen.sum())
        return chosen


def run_of(layers: dict[str, Any], *faults: Fault) -> RecordedRun:
    streams = Streams.from_seed(3)
    sizes = Sizes(n_clients=N_CLIENTS, n_items=N_ITEMS, width=RANK, cohort=N_CLIENTS)
    algorithm = PMF(PMFConfig.printed(rank=RANK, rounds=2, init_scale=0.3))
    return RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=FixedPoint(), streams=streams),
        problem=rating_problem(algorithm, TABLE),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 2)),
        faults=faults,
    )


@cache
def healthy(name: str) -> tuple[str, ...]:
    """Digests of the public table after each round without faults."""
    run = run_of(PROTOCOLS[name][0])
    for _ in range(2):
        run.run_round()
    return tuple(run.table_digests)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize(("name", "stage"), CASES, ids=lambda value: value.replace(" ", "-"))
def test_a_fault_refuses_the_round_or_changes_nothing(name: str, stage: str, kind: str) -> None:
    fault, everyone = FAULTS[kind]
    chooser = Striking(everyone)
    run = run_of(PROTOCOLS[name][0], fault(stage=stage, chooser=chooser))
    for _ in range(2 if "late" in kind else 1):  # what is late may be so by a round
        before, done = run.engine.state(), run.completed
        try:
            run.run_round()
        except ProtocolError:
            assert run.completed == done
            for part, value in run.engine.state().items():
                assert np.array_equal(value, before[part], equal_nan=True), part
        else:
            assert run.table_digests[-1] == healthy(name)[done]
    assert chooser.struck


@pytest.mark.parametrize(
    ("name", "stage", "kind"),
    [
        ("masking", "REVEAL", "one lost"),
        ("masking, active", "SURVIVORS", "one lost"),
        ("masking, active", "CONFIRM", "one lost"),
        ("masking", "REVEAL", "altered at the end"),
        ("masking, active", "CONFIRM", "one late"),
        ("paillier", "UPLOAD", "repeated"),
        ("shared upload", "SHARES", "one late"),
        ("routed denoisers", "UPLOAD", "repeated"),
    ],
)
def test_rounds_go_on_where_their_rules_say_so(name: str, stage: str, kind: str) -> None:
    """Otherwise refusing everything would do for the test above."""
    fault, everyone = FAULTS[kind]
    run = run_of(PROTOCOLS[name][0], fault(stage=stage, chooser=Striking(everyone)))
    run.run_round()
    assert run.table_digests == [healthy(name)[0]]


@pytest.mark.parametrize(
    ("name", "stage", "kind"),
    [
        ("masking", "UPLOAD", "one lost"),
        ("masking", "UPLOAD", "altered at the end"),
        ("paillier", "UPLOAD", "altered inside"),
        ("shared upload", "SEED", "one lost"),
        ("routed denoisers", "CELLS", "one lost"),
        ("routed denoisers", "SUMS", "altered at the end"),
    ],
)
def test_what_is_struck_is_missed(name: str, stage: str, kind: str) -> None:
    fault, everyone = FAULTS[kind]
    run = run_of(PROTOCOLS[name][0], fault(stage=stage, chooser=Striking(everyone)))
    with pytest.raises(ProtocolError):
        run.run_round()
    run.run_round()  # and the next round is as if nothing had been
    assert run.table_digests == [healthy(name)[0]]


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("stage", [*MASKING, "CONFIRM", "QUORUM"])
def test_masked_halves_end_in_the_exact_sum_of_the_survivors(stage: str, kind: str) -> None:
    layout = SumLayout(bits=20, length=4, clients=6, largest=100)
    adversary: Adversary = "active" if stage in ("CONFIRM", "QUORUM") else "curious"
    config = MaskingConfig(
        clients=6,
        bits=20,
        length=4,
        layout_hash=layout.hash,
        threshold=2,
        min_survivors=4,
        quorum=4,
        corrupt_clients=0,
        adversary=adversary,
        statement=about(bytes(range(1, 33))).digest,
    )
    federation = Federation(range(6), policy=SitePolicy(adversary=adversary, corrupt=0.0))
    values = {n: np.arange(4) + 10 * n for n in range(6)}
    fault, everyone = FAULTS[kind]
    chooser = Striking(everyone)
    wire = Wire(meter=Meter(6), faults=(fault(stage=stage, chooser=chooser),))
    line = OverWire(wire, round=1, rows=lambda *_: None)
    server = federation.open_server(config, np.arange(6))
    expected = Expected(layout_hash=layout.hash, statement=about(bytes(range(1, 33))))
    clients = {n: federation.open_client(n, expected) for n in range(6)}
    try:
        outcome = run_round(
            server, clients, {n: layout.encode(v) for n, v in values.items()}, carrier=line
        )
    except ProtocolError:
        assert everyone  # one message costs one client at most
    else:
        assert len(outcome.survivors) >= (4 if everyone else 5)
        found = layout.decode(outcome.words)
        assert found.tolist() == np.sum([values[n] for n in outcome.survivors], axis=0).tolist()
    assert chooser.struck
