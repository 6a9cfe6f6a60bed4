"""Uploads of several blocks: an attack on items reads the rows of items, wherever they lie."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from attacks.scoring.games import Finding, evaluate
from attacks.scoring.truth import GroundTruth
from attacks.suite import SUITE
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.blocks import BlockKind, BlockShape
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun, rating_problem, sizes_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import DenoisersConfig, VirtualRatingsConfig, build_stack
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.shared_upload import SharedUploadConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import FlatBlock, RowBlock, Upload
from secure_fedrec.wire import Adversary, RecordingPolicy

ADVERSARIES = (
    Adversary(name="server", corrupt=frozenset({"server"})),
    Adversary(name="both", corrupt=frozenset({"server", "denoisers", "client:3"})),
    Adversary(name="clients", corrupt=frozenset({f"client:{n}" for n in range(20)})),
)
STACKS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "denoisers": {"virtual-ratings": VirtualRatingsConfig(), "denoisers": DenoisersConfig(count=3)},
    "shared-upload": {
        "virtual-ratings": VirtualRatingsConfig(sticky=True),
        "shared-upload": SharedUploadConfig(count=2, floor=2),
    },
    "masking": {"masking": MaskingLayerConfig()},
}
RATINGS, TEST = k_fold(
    generate(SyntheticConfig(clients=40, items=90, mean_ratings=12.0, seed=3)),
    folds=5,
    fold=0,
    seed=1,
)
ITEMS = BlockShape(name="items", kind=BlockKind.ITEMS, size=RATINGS.n_items, width=6)
BESIDE = BlockShape(name="beside", kind=BlockKind.ROWS, size=2, width=9, fraction_bits=20)
MODEL = BlockShape(name="model", kind=BlockKind.FLAT, size=13, width=1)
SHAPES = {"below": (ITEMS, BESIDE), "above": (MODEL, BESIDE, ITEMS)}


class Beside(PMF):
    """PMF, and two rows of another table and a flat model, which go nowhere."""

    def __init__(self, shapes: tuple[BlockShape, ...]) -> None:
        super().__init__(PMFConfig.printed(rank=6, rounds=2))
        self.shapes = shapes

    def blocks(self, n_rows: int) -> tuple[BlockShape, ...]:
        assert n_rows == RATINGS.n_items
        return self.shapes

    def client_step(self, clients: IntArray, public: Any, vault: Any, streams: Any) -> Any:
        return Step(self.shapes, super().client_step(clients, public, vault, streams))

    def server_step(self, public: Any, aggregate: Any) -> Any:
        assert aggregate.of("beside").values[0, 8] == aggregate.of("beside").counts[0] / 2
        return super().server_step(public, aggregate.of("items"))


class Step:
    def __init__(self, shapes: tuple[BlockShape, ...], step: Any) -> None:
        self._shapes, self._step = shapes, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)

    @property
    def upload(self) -> Upload:
        size = len(self._step.clients)
        blocks: dict[str, Any] = {
            "items": self._step.upload.block,
            "beside": RowBlock(
                indptr=np.arange(size + 1) * 2,
                rows=np.tile(np.arange(2, dtype=np.int32), size),
                values=np.full((2 * size, 9), 0.5),
            ),
            "model": FlatBlock(values=np.ones((size, 13))),
        }
        given = {shape.name: blocks[shape.name] for shape in self._shapes}
        return Upload(clients=self._step.clients, blocks=given)


def findings(algorithm: PMF, layers: Mapping[str, Any]) -> dict[tuple[str, str], Finding]:
    streams, problem = Streams.from_seed(5), rating_problem(algorithm, RATINGS, TEST)
    sizes = sizes_of(algorithm, problem)
    stack = build_stack(layers, sizes=sizes, codec=FixedPoint(), streams=streams)
    run = RecordedRun(
        algorithm=algorithm,
        stack=stack,
        problem=problem,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 2)),
    )
    for _ in range(2):
        run.run_round()
    denoisers = stack.describe().get("denoisers", {}).get("clients", ())
    truth = GroundTruth(train=RATINGS, recorded=run.truth, denoiser_clients=tuple(denoisers))
    return {
        (name, adversary.name): evaluate(attack, adversary, run.transcript, truth, seed=1)
        for name, attack in SUITE.items()
        for adversary in ADVERSARIES
    }


@pytest.mark.parametrize("layers", STACKS)
def test_other_blocks_change_no_figure_of_an_attack_on_items(layers: str) -> None:
    """Every attack finds what it finds of the items alone: beside them, and below them."""
    alone = findings(PMF(PMFConfig.printed(rank=6, rounds=2)), STACKS[layers])
    ran = [key for key, finding in alone.items() if finding.measured]
    assert len(ran) >= 2
    for where, shapes in SHAPES.items():
        found = findings(Beside(shapes), STACKS[layers])
        for key, finding in alone.items():
            assert found[key].reason == finding.reason, (where, key)
            if layers == "shared-upload" and key[0] == "lattice":
                continue  # decodes random words, of which there are more
            assert found[key].figures == finding.figures, (where, key)


def test_every_attack_on_items_ran_somewhere() -> None:
    """Else the test above would compare reasons for not running."""
    every = [findings(Beside(SHAPES["above"]), layers) for layers in STACKS.values()]
    ran = {name for found in every for (name, _), one in found.items() if one.measured}
    due = {name for name, attack in SUITE.items() if getattr(attack, "reads_item_rows", True)}
    # PMF sends rated items alone; item tables, which always have other blocks, are tested beside.
    assert ran & due == due - {"never-touched"}
