"""What simulated masks cost is what the protocol sends: uploads to the byte, the rest nearly."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines import RecordedRun
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.wire import Adversary, Step

N_CLIENTS = 10
Run = Callable[..., RecordedRun]
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
HASH_BYTES = 32
CASES: dict[str, dict[str, Any]] = {
    "curious": {},
    "active": {"adversary": "active"},
    "tail floor": {"tail_floor": 3},
}


def totals(run: RecordedRun) -> dict[str, IntArray]:
    return run.engine.wire.meter.state()


def both(run_of: Run, cohort: int | None = None, **settings: Any) -> list[RecordedRun]:
    return [
        run_of(
            {"masking": MaskingLayerConfig(execution=execution, **settings)}, cohort=cohort, done=2
        )
        for execution in ("real", "simulated")
    ]


@pytest.mark.parametrize("bits", [32, 44, 64])
def test_simulated_uploads_have_the_size_of_real_ones(bits: int, run_of: Run) -> None:
    codec = FixedPoint(bits=bits, fraction_bits=20, clip=32.0)
    sizes = []
    for execution in ("real", "simulated"):
        layers = {"masking": MaskingLayerConfig(execution=execution)}
        view = run_of(layers, codec=codec, done=1).transcript.view(SERVER)
        sizes.append(view.messages(Step.UPLOAD, 1).sizes.tolist())
    assert sizes[0] == sizes[1]
    # 24 items of 4 words, and what is around them.
    assert sizes[0] == [24 * 4 * bits // 8 + 270] * N_CLIENTS


@pytest.mark.parametrize("cohort", [None, 7])
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_the_messages_of_the_protocol_are_foreseen(
    settings: dict[str, Any], cohort: int | None, run_of: Run
) -> None:
    real, simulated = (totals(run) for run in both(run_of, cohort, **settings))
    for name in ("messages_sent", "messages_received", "bytes_sent"):
        assert real[name].tolist() == simulated[name].tolist(), name
    # Inclusion paths, two per phase and round, are as long as the longest one: a few hashes.
    phases = 2 if "tail_floor" in settings else 1
    over = simulated["bytes_received"] - real["bytes_received"]
    assert over.min() >= 0
    assert over.max() <= 2 * 2 * phases * 3 * HASH_BYTES
    assert over.max() < 0.06 * real["bytes_received"].max()
    beside = 10 if settings.get("adversary") == "active" else 8  # no CONFIRM and QUORUM
    # With a floor every client is sent the counts, to derive the second round from.
    messages = 2 * (cohort or N_CLIENTS) * (phases * beside + ("tail_floor" in settings))
    assert real["beside"][0] == simulated["beside"][0] == messages
    assert simulated["beside"][1] >= real["beside"][1] > 0


def test_what_is_sent_beside_uploads_reaches_both_ends(run_of: Run) -> None:
    plain = totals(run_of({}, done=1))
    masked = totals(run_of({"masking": MaskingLayerConfig()}, done=1))
    fields = dict(enumerate(masked["server"].tolist()))
    names = ("messages_sent", "messages_received", "vectors_sent", "vectors_received")
    for number, name in enumerate((*names, "bytes_sent", "bytes_received")):
        other = name.replace("sent", "R").replace("received", "sent").replace("R", "received")
        assert fields[number] == masked[other].sum()
    # Three messages up and five down beside the upload and the broadcast.
    assert (masked["messages_sent"] - plain["messages_sent"]).tolist() == [3] * N_CLIENTS
    assert (masked["messages_received"] - plain["messages_received"]).tolist() == [5] * N_CLIENTS
    assert np.all(masked["bytes_received"] > plain["bytes_received"])
