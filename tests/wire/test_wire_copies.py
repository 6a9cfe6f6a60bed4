"""Rubbish beside a good message: the round has its exact sum, and the record what was accepted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.errors import WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import RECORDS, Sizes, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Adversary, Parcels, RecordingPolicy, Step

pytestmark = pytest.mark.usefixtures("one_paillier_key")

N, ITEMS, RANK = 5, 12, 2
TABLE = generate(SyntheticConfig(clients=N, items=ITEMS, mean_ratings=5.0, seed=2))
REAL: dict[str, dict[str, dict[str, Any]]] = {
    "masking": {"masking": {"execution": "real"}},
    "paillier": {"paillier": {"execution": "real", "key_bits": 2048}},
    "paillier, clients' key": {
        "paillier": {"execution": "real", "holder": "clients", "key_bits": 2048}
    },
    "shared-upload": {
        "virtual-ratings": {"sticky": True},
        "shared-upload": {"count": 2, "floor": 3, "execution": "real"},
    },
}
STAGES = {"shared-upload": "SHARES"}
"""Where what clients send the server is no UPLOAD."""


class Beside:
    """A fault: a spoilt copy of the first message of a stage arrives behind or before it."""

    def __init__(self, stage: str, spoil: Any, *, first: bool) -> None:
        self.stage, self.spoil, self.first, self.struck = stage, spoil, first, 0

    def apply(self, messages: Any) -> Any:
        if not isinstance(messages, Parcels) or messages.stage != self.stage or self.struck:
            return messages
        self.struck += 1
        copied = messages.select(np.concatenate([[0], np.arange(len(messages))]))
        data = list(copied.data)
        data[0 if self.first else 1] = self.spoil(data[0])
        return replace(copied, data=tuple(data))


SPOILT = {
    "rubbish": lambda data: b"rubbish",
    "half": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + bytes(8),
}


def run_of(name: str, *faults: Any) -> RecordedRun:
    streams, algorithm = (
        Streams.from_seed(3),
        PMF(PMFConfig.printed(rank=RANK, rounds=2, init_scale=0.3)),
    )
    layers = {layer: RECORDS[layer].settings(**own) for layer, own in REAL[name].items()}
    sizes = Sizes(n_clients=N, n_items=ITEMS, width=RANK, cohort=N)
    return RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=FixedPoint(), streams=streams),
        problem=rating_problem(algorithm, TABLE),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1,)),
        faults=faults,
    )


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("name", REAL)
def test_rubbish_beside_an_upload_changes_nothing(name: str, spoilt: str, first: bool) -> None:
    stage = STAGES.get(name, "UPLOAD")
    healthy, fault = run_of(name), Beside(stage, SPOILT[spoilt], first=first)
    struck = run_of(name, fault)
    for run in (healthy, struck):
        run.run_round()
    assert fault.struck
    assert struck.table_digests == healthy.table_digests
    server = Adversary(name="server", corrupt=frozenset({"server"}))
    seen = struck.transcript.view(server).messages(Step.UPLOAD, 1)
    assert sorted(seen.senders.ids.tolist()) == list(range(N))  # once each


class Misshapen(PMF):
    """Sends rows of another shape than it says."""

    def __init__(self, change: Any) -> None:
        super().__init__(PMFConfig.printed(rank=RANK))
        self.change = change

    def client_step(self, *arguments: Any) -> Any:
        step: Any = super().client_step(*arguments)

        class Changed:
            clients, commit = step.clients, step.commit
            upload = replace(
                step.upload,
                blocks={"table": replace(step.upload.block, **self.change(step.upload.block))},
            )

        return Changed()


CHANGES: dict[str, Any] = {
    "narrow": lambda block: {"values": block.values[:, :1]},
    "wide": lambda block: {"values": np.hstack([block.values, block.values])},
    "empty": lambda block: {"values": block.values[:, :0]},
    "below": lambda block: {"rows": block.rows - 1 - block.rows.min()},
    "beyond": lambda block: {"rows": block.rows + ITEMS},
    "words": lambda block: {"values": np.ones(block.values.shape, np.uint32)},
    "counted": lambda block: {"counts": np.full(len(block.rows), 5)},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("layers", [(), ("masking",), ("paillier",), ("denoisers",)])
def test_rows_of_another_shape_are_refused_by_every_stack(
    layers: tuple[str, ...], change: str
) -> None:
    streams, algorithm = Streams.from_seed(3), Misshapen(CHANGES[change])
    own: dict[str, Any] = {"denoisers": {"count": 2}}
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(
            {name: RECORDS[name].settings(**own.get(name, {})) for name in layers},
            sizes=Sizes(n_clients=N, n_items=ITEMS, width=RANK, cohort=N),
            codec=FixedPoint(),
            streams=streams,
        ),
        problem=rating_problem(algorithm, TABLE),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1,)),
    )
    with pytest.raises(WireError, match="block table: "):
        run.run_round()
    assert run.completed == 0
