"""Findings on other secrets than rated sets: how bad, in which words, under which keys."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from attacks import SUITE, Finding
from audits.gates.gate import ATTACK_METRICS
from audits.gates.measures import MEASURES, measure_of, report_keys
from audits.report import SCHEMA_PATH
from audits.report.charts import leakage_chart
from audits.report.findings import finding_json, sentence, severity
from audits.report.view import finding_card, headline
from audits.systems import SYSTEMS, system_named


def finding(
    figures: Mapping[str, float | None], details: Mapping[str, Any] | None = None
) -> Finding:
    return Finding(
        attack="dense-layer",
        adversary="server",
        game="a game",
        rounds=(1,),
        figures=figures,
        units={"clients": 100},
        details=details or {},
    )


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"reidentified_share": 0.95, "reidentified_lift_certain": 0.9}, "critical"),
        ({"label_accuracy": 0.97, "label_lift_certain": 0.6}, "critical"),
        (
            {"label_accuracy": 0.97, "label_lift": 0.02, "label_lift_certain": 0.01},
            "low",
        ),  # nearly all have one label
        ({"reidentified_share": 0.5, "reidentified_lift_certain": 0.4}, "high"),
        ({"set_auc": 0.9, "set_lift_certain": 0.2}, "high"),
        ({"holder_accuracy": 0.5, "holder_lift_certain": 0.3}, "high"),
        ({"attribute_auc": 0.65, "attribute_lift_certain": 0.06}, "medium"),
        ({"disclosed_share": 0.01}, "medium"),
        (
            {
                "histogram_correlation": 0.9,
                "histogram_correlation_lift": 0.02,
                "histogram_correlation_lift_certain": 0.001,
            },
            "low",
        ),
        ({"vector_cosine": 0.0, "vector_cosine_lift_certain": -0.02}, "info"),
        ({"attribute_auc": None, "attribute_lift_certain": None}, "info"),
    ],
)
def test_severity_is_what_was_told_beyond_guessing(
    figures: Mapping[str, float | None], expected: str
) -> None:
    assert severity(finding(figures)) == expected


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (
            {
                "vector_cosine": 0.987,
                "user_vector_share": 0.3,
                "reidentified_share": 0.75,
                "reidentified_chance": 0.01,
            },
            "computes private vectors (mean cosine 0.99 with the true ones) and names the client "
            "behind 75.0 % of them (by chance: 1.0 %).",
        ),
        (
            {"label_accuracy": 0.98, "label_base_rate": 0.1},
            "names the most frequent answer of 98.0 % of the clients (always naming the commonest: "
            "10.0 %).",
        ),
        (
            {"set_auc": 0.9, "set_prior_auc": 0.8},
            "hold from what they do not with AUC 0.900 (popularity alone: 0.800).",
        ),
        (
            {"histogram_error": 0.05, "histogram_error_chance": 0.2},
            "off by 5.0 % of the records (any other client's: 20.0 %).",
        ),
        ({"disclosed_share": 0.25}, "holds the very vector of 25.0 % of the users."),
        (
            {"holder_accuracy": 0.8, "holder_chance": 0.1},
            "could name the client that 80.0 % of known users belong to (by chance: 10.0 %).",
        ),
    ],
)
def test_a_figure_is_told_beside_guessing(figures: Mapping[str, float | None], words: str) -> None:
    told = sentence(finding(figures))
    assert told.startswith("From one message of each client, server ")
    assert told.endswith(words)
    assert "recovers the private vector" not in told  # told once


def test_an_attribute_is_called_by_its_name() -> None:
    figures = {"attribute_auc": 0.7}
    told = sentence(finding(figures, {"attributes": {"age_band": {}, "gender": {}}}))
    assert told.endswith("tells the age band of persons with AUC 0.700.")
    assert sentence(finding(figures)).endswith("tells the attribute of persons with AUC 0.700.")


def test_every_measure_has_its_place_in_the_schema() -> None:
    schema = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    known = schema["$defs"]["finding"]["properties"]
    assert set(report_keys()) <= set(known)
    assert len(set(report_keys())) == len(report_keys())


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.key)
def test_every_measure_is_shown_with_its_interval_and_comparison(measure: Any) -> None:
    figures = {measure.key: 0.62, f"{measure.key}_low": 0.51, f"{measure.key}_high": 0.73}
    if measure.beside is not None:
        figures[measure.beside] = 0.11
    found = finding_json(finding(figures), None)
    spoken = measure_of(found)
    assert spoken is not None
    (row,) = [row for row in finding_card(found, None)["numbers"] if row[0] == measure.name]
    value, low, beside = (
        ("62.0%", "51.0%", "11.0%") if measure.as_percent else ("0.62", "0.51", "0.11")
    )
    assert row[1].startswith(value)
    assert low in row[2]
    assert (beside in row[2]) == (measure.beside is not None)
    assert headline(found).startswith(f"{spoken.name} ")
    drawn = leakage_chart([found])
    assert f"dense-layer by server: {spoken.name} 0.620" in drawn
    assert measure.units in finding_card(found, None)["units"] or spoken.key != measure.key


def test_gates_take_the_figures_of_every_measure() -> None:
    # What only compares is no gate's business, nor what is a ceiling of something else.
    assert {measure.key for measure in MEASURES} - set(ATTACK_METRICS) == set()


def test_every_attack_reads_the_messages_of_some_algorithm() -> None:
    named = [name for system in SYSTEMS for name in system_named(system).attacks]
    assert sorted(named) == sorted(SUITE)
