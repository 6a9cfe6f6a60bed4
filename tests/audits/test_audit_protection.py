"""What a finished audit says about its protection: claim, execution, privacy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from audits.report import report_schema
from audits.report.claims import execution_of, protection_json
from audits.run.privacy import prices
from secure_fedrec.accounting import claim
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, STACKS, Sizes, build_stack
from secure_fedrec.protection.dp.embedded import NoisedSum
from secure_fedrec.streams import Streams

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]

NOISED = [
    {"layer": "clip", "norm": 4.0},
    {"layer": "skellam", "epsilon": 8.0, "least_count": 40},
    {"layer": "masking", "min_survivors": 30},
]


@pytest.fixture
def tiny(small: dict[str, Any]) -> dict[str, Any]:
    """The small federation with one attack of one adversary, and no gates."""
    small["adversaries"] = [{"name": "server", "corrupt": ["server"]}]
    small["run"]["check_lossless"] = False
    return small | {"attacks": ["direct"], "gates": []}


def audited(command: Command, path: Path, folder: Path) -> tuple[dict[str, Any], str]:
    """Report and standard output of an audit."""
    code, out, err = command("audit", path, "--out", folder, "--quiet")
    assert code in {0, 3}, err
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    schema = report_schema()
    jsonschema.Draft202012Validator(schema).validate(report)
    return report, out


@pytest.mark.parametrize("execution", ["simulated", "real"])
def test_an_audit_of_masked_sums_says_whether_it_was_simulated(
    command: Command, write_config: Write, tiny: dict[str, Any], tmp_path: Path, execution: str
) -> None:
    tiny["protection"] = [{"layer": "masking", "execution": execution}]
    tiny["algorithm"]["rounds"] = 2
    tiny["recording"]["payload_rounds"] = [1]
    report, out = audited(command, write_config(tiny), tmp_path / "run")
    protection = report["protection"]
    assert protection["layers"] == ["masking"]
    assert protection["hides"] == STACKS["masking",].hides
    assert protection["execution"] == execution
    assert protection["privacy"] == []
    assert f"protection, {execution}: {protection['execution_note']}" in out
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert ("<dd>Simulated: " in page) == (execution == "simulated")
    assert "privacy:" not in out


def test_a_noised_audit_prints_its_epsilon_and_what_it_covers(
    command: Command, write_config: Write, tiny: dict[str, Any], tmp_path: Path
) -> None:
    tiny["protection"] = NOISED
    tiny["algorithm"]["learning_rate"] = 1e-4
    report, out = audited(command, write_config(tiny), tmp_path / "run")
    (statement,) = report["protection"]["privacy"]
    assert 7.9 < statement["epsilon"] <= 8.0
    assert statement["rounds"] == tiny["algorithm"]["rounds"] == 6
    assert statement["adversary"] == "server"
    assert f"privacy: {statement['text']}\n" in out
    assert "over 6 rounds" in statement["text"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"<dd>epsilon_server = {statement['epsilon']:.4g} at delta = 1e-05" in page


def test_the_claim_is_that_of_the_events_of_the_rounds_that_were_run() -> None:
    layers = {
        "clip": LAYERS["clip"](norm=2.0),
        "skellam": LAYERS["skellam"](noise_multiplier=3.0),
        "masking": LAYERS["masking"](),
    }
    stack = build_stack(
        layers,
        sizes=Sizes(n_clients=20, n_items=30, width=2, cohort=20),
        codec=FixedPoint(),
        streams=Streams.from_seed(1),
    )
    assert isinstance(stack.collector, NoisedSum)
    (few,), (many,) = (
        protection_json(layers, prices=prices(stack, rounds=rounds))["privacy"] for rounds in (2, 9)
    )
    assert few["epsilon"] < many["epsilon"]
    events = stack.collector.skellam.events(rounds=9)
    assert many["epsilon"] == claim(events, adversary="server", delta=1e-5).epsilon
    # No round, no release.
    assert prices(stack, rounds=0) == ()


def test_no_stack_is_called_real_while_a_layer_is_simulated() -> None:
    masking = LAYERS["masking"]
    assert execution_of({}) is None
    assert execution_of({"virtual-ratings": LAYERS["virtual-ratings"]()}) is None
    assert execution_of({"clip": LAYERS["clip"](), "masking": masking(execution="real")}) == "real"
    assert execution_of({"masking": masking()}) == "simulated"
    mixed = {"paillier": LAYERS["paillier"](execution="real"), "masking": masking()}
    assert execution_of(mixed) == "simulated"


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(stack) or "none")
def test_every_stack_that_can_be_simulated_says_what_stood_in(stack: tuple[str, ...]) -> None:
    required = {"skellam": {"noise_multiplier": 1.0}}
    layers = {name: LAYERS[name](**required.get(name, {})) for name in stack}
    found = protection_json(layers)
    cryptographic = set(stack) & {"masking", "paillier", "routing", "shared-upload"}
    assert found["execution"] == ("simulated" if cryptographic else None)
    note = found["execution_note"] or ""
    assert note.count("for the cryptography itself") == len(cryptographic)


def test_a_plain_sum_claims_to_hide_nothing() -> None:
    found = protection_json({})
    assert found["hides"] == "nothing"
    assert found["execution"] is found["execution_note"] is None
    assert found["privacy"] == []
