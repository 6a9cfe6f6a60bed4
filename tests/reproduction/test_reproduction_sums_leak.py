"""What exact sums leak on the real ml-100k: sticky virtual items, and sums over few clients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attacks import Finding, GroundTruth, attack_named, evaluate
from audits.config.audit import parse_config
from audits.run.build import Federation, build_federation
from audits.system import Wanted
from audits.systems.pmf import RatingTask, load_ratings
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.engines import RecordedRun
from secure_fedrec.wire import Adversary, RecordingPolicy

pytestmark = [pytest.mark.data, pytest.mark.xdist_group("ml-100k")]

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
TEN = tuple(range(1, 11))

Build = Callable[..., Federation[RatingTask]]


@pytest.fixture(scope="module")
def build(recorded: object, request: pytest.FixtureRequest) -> Build:
    """Federations with any layers; skips, as ``recorded`` does, where there are no data."""
    del recorded
    conftest = Path(__file__).with_name("conftest.py")
    folder: Path = request.config.pluginmanager.getplugin(str(conftest)).data_dir()

    def federation(**settings: Any) -> Federation[RatingTask]:
        printed = {name: getattr(PMFConfig.printed(), name) for name in PMFConfig.trains}
        config = parse_config({"data": {"name": "ml-100k"}, "algorithm": printed, **settings})
        ratings = load_ratings(
            Wanted(config.data, config.algorithm, config.seed, folder, config.cohort)
        )
        return build_federation(config, ratings.task(0))

    return federation


def attacked(
    federation: Federation[RatingTask], attack: str, *, rounds: int, payload_rounds: tuple[int, ...]
) -> Finding:
    algorithm, problem, _ = federation.fresh()
    run = RecordedRun(
        algorithm=algorithm,
        stack=federation.stack,
        problem=problem,
        streams=federation.streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds),
    )
    for _ in range(rounds):
        run.run_round()
    truth = GroundTruth(
        train=federation.task.split.train,
        recorded=run.truth,
        denoiser_clients=federation.denoiser_clients,
    )
    return evaluate(attack_named(attack), SERVER, run.transcript, truth, seed=1)


@pytest.mark.parametrize(
    ("ring", "rounds"),
    [({}, 10), ({"bits": 24, "fraction_bits": 8, "clip": 32.0}, 5)],
    ids=["64-bit", "24-bit"],
)
def test_subset_regression_breaks_sticky_virtual_items(
    build: Build, ring: dict[str, Any], rounds: int
) -> None:
    """The server alone: within the upload, AUC above 0.95 from two rounds and 0.99 from five."""
    federation = build(
        protection=[
            {"layer": "virtual-ratings", "rho": 1, "sticky": True},
            {"layer": "denoisers", "count": 1},
        ],
        ring=ring,
    )
    finding = attacked(federation, "subset-regression", rounds=rounds, payload_rounds=TEN)
    curve = [told["support_auc"] for told in finding.details["auc_by_rounds"].values()]
    assert curve == sorted(curve)
    assert 0.88 < curve[0] < 0.92
    assert curve[1] >= 0.95
    assert curve[-1] == finding.figures["support_auc"]
    assert curve[-1] >= 0.99
    # What it proves is true: nearly all virtual rows, and every rating of most items.
    assert finding.figures["precision"] == 1.0
    assert finding.figures["wrongly_unmasked_share"] == 0.0
    unmasked = finding.figures["unmasked_share"]
    assert unmasked is not None
    assert unmasked > 0.75
    assert finding.null_control is not None
    assert finding.null_control["passed"]


@pytest.mark.parametrize("floor", [0, 5], ids=["all-rows", "tail-floor"])
def test_sums_of_items_with_few_raters_under_masks(build: Build, floor: int) -> None:
    """147 items have one rater; their rows lie in the sum unless a floor keeps them out of it."""
    federation = build(protection=[{"layer": "masking", "tail_floor": floor}])
    finding = attacked(federation, "sum-decoding", rounds=1, payload_rounds=(1,))
    assert finding.details["tail_items"] == 147
    assert finding.figures["disclosures_wrong"] == 0
    exposed = [finding.figures[f"{name}_exposed"] or 0 for name in ("interactions", "vectors")]
    if floor:
        assert exposed == [0, 0]
    else:
        assert exposed[0] > 0.6 * 147
        assert exposed[1] >= 15
    # The rated sets of named clients stay where item popularity puts them.
    lift = finding.figures["lift_over_prior"]
    assert lift is not None
    assert abs(lift) < 0.05
