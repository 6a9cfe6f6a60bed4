"""Utility beside trivial rules: averaged alike, compared fairly, and said in the verdict line."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from audits.config.audit import load_config
from audits.gates.gate import GateConfig, Outcome, judge
from audits.report import report_schema
from audits.run.build import build_federation
from audits.run.utility import Utility, utility_of
from audits.system import Wanted
from audits.systems.pmf import load_ratings
from secure_fedrec.engines import LocalEngine
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import Rule
from secure_fedrec.wire import Meter, Wire
from tests.audits.silenced import all_waived

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]

FOLDER = os.environ.get("SECURE_FEDREC_DATA")
SKELLAM = Path(__file__).parents[2] / "audits" / "configs" / "skellam-ml100k.toml"
GAIN = GateConfig(metric="utility_gain", min=0.0)


def rules(own: float, sums: float) -> dict[str, Rule]:
    return {
        "user mean": Rule(figures={"mae": 0.8, "rmse": own}, local=True),
        "item mean": Rule(figures={"mae": 0.7, "rmse": sums}),
    }


def found(*errors: float, local_only: bool = False) -> Utility:
    return utility_of(
        ("mae", "rmse"),
        [{"fold": place, "mae": 0.75, "rmse": error} for place, error in enumerate(errors)],
        [rules(1.0 + place / 10, 0.9 + place / 10) for place in range(len(errors))],
        local_only=local_only,
    )


def outcome_of(gate: GateConfig, utility: Mapping[str, float]) -> Outcome:
    return judge(gate, findings=(), utility=utility, lossless=None).outcome


def test_run_and_rules_are_averaged_over_the_same_folds() -> None:
    utility = found(0.8, 1.0)
    assert utility.mean == pytest.approx({"mae": 0.75, "rmse": 0.9})
    assert utility.rules["user mean"].figures["rmse"] == pytest.approx(1.05)
    assert utility.standing is not None
    assert utility.standing.rule == "item mean"
    assert utility.standing.metric == "rmse"
    assert utility.standing.gain == pytest.approx(0.95 - 0.9)
    assert utility.standing.verdict is None


def test_beside_noised_sums_only_local_rules_apply() -> None:
    exact, noised = found(0.95), found(0.95, local_only=True)
    assert exact.standing is not None and noised.standing is not None
    assert (exact.standing.rule, noised.standing.rule) == ("item mean", "user mean")
    assert exact.standing.gain == pytest.approx(-0.05)
    assert noised.standing.gain == pytest.approx(0.05)
    assert exact.standing.verdict == (
        "the model is no better than a trivial rule: RMSE 0.9500, 'item mean' has 0.9000"
    )


def test_a_gate_asks_for_the_gain() -> None:
    assert outcome_of(GAIN, found(0.85).figures()) is Outcome.PASS
    assert outcome_of(GAIN, found(0.95).figures()) is Outcome.FAIL
    assert (
        outcome_of(GateConfig(metric="utility_gain", min=0.06), found(0.85).figures())
        is Outcome.FAIL
    )
    # Nothing measured, or nothing to compare with: never a pass.
    nothing = utility_of(("rmse",), [{"fold": 0}], [{}], local_only=False)
    assert nothing.standing is None
    assert outcome_of(GAIN, nothing.figures()) is Outcome.INCONCLUSIVE


def test_the_gain_belongs_to_no_attack() -> None:
    with pytest.raises(ConfigError, match="belongs to no attack"):
        GateConfig(metric="utility_gain", min=0.0, attack="lattice", adversary="server")


@pytest.mark.parametrize("worthless", [True, False])
def test_the_verdict_line_says_what_a_model_is_worth(
    worthless: bool, small: dict[str, Any], write_config: Write, command: Command, tmp_path: Path
) -> None:
    small["algorithm"] |= {"rounds": 1} if worthless else {"rank": 0, "biases": True}
    small["protection"], small["waivers"] = [], all_waived(small)
    small["recording"] = {"payload_rounds": [1]}
    small["gates"] = [{"metric": "utility_gain", "min": 0.0}]
    code, out, err = command("audit", write_config(small), "--out", tmp_path / "run", "--quiet")
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    jsonschema.validate(report, report_schema())
    standing = report["utility"]["standing"]
    assert set(report["utility"]["baselines"]) == {
        "global mean",
        "user mean",
        "item mean",
        "user mean + item bias",
    }
    best = min(figures["rmse"] for figures in report["utility"]["baselines"].values())
    assert standing["gain"] == pytest.approx(best - report["utility"]["mean"]["rmse"])
    assert (standing["gain"] < 0) == worthless
    assert code == (1 if worthless else 0), err
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for text in (
        out.splitlines()[0],
        report["verdict"]["summary"],
        page.split("<dl")[0],
    ):
        assert ("the model is no better than a trivial rule" in text) == worthless
    assert "trivial rules, RMSE: global mean" in out


@pytest.mark.data
@pytest.mark.parametrize(("epsilon", "rounds", "bar"), [(8.0, 10, 0.985), (2.0, 5, 1.02)])
def test_noise_leaves_something_on_ml_100k(epsilon: float, rounds: int, bar: float) -> None:
    if FOLDER is None:
        pytest.skip("SECURE_FEDREC_DATA is not set")
    config = load_config(
        SKELLAM,
        {
            "protection.epsilon": epsilon,
            "algorithm.rounds": rounds,
            "recording.payload_rounds": [1],
            "gates": [],
        },
    )
    data = load_ratings(Wanted(config.data, config.algorithm, 1, Path(FOLDER), config.cohort))
    task = data.task(0)
    federation = build_federation(config, task)
    algorithm, problem, _ = federation.fresh()
    engine = LocalEngine(
        algorithm=algorithm,
        stack=federation.stack,
        vault=problem.vault,
        n_rows=problem.n_rows,
        evaluate=problem.evaluate,
        streams=federation.streams,
        wire=Wire(meter=Meter(problem.vault.n_clients)),
    )
    for _ in range(rounds):
        error = (engine.run_round().metrics or {})["rmse"]
    assert error < bar < task.facts.baselines["user mean"].figures["rmse"]
