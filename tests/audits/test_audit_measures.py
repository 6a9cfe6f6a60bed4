"""Findings on other secrets than rated sets: how bad, in which words, under which keys."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from attacks import SUITE, Finding
from attacks.planted.controls import planted_finding
from attacks.scoring.measures import (
    MEASURES,
    Behind,
    Context,
    Exposed,
    Gained,
    Measure,
    Observed,
    catalogue,
    leading,
    listed_keys,
)
from attacks.scoring.scales import SHARE, Page, Scale
from audits.gates.gate import GateConfig
from audits.report import report_schema
from audits.report.findings import finding_json, sentence, severity
from audits.report.view import finding_card, headline
from audits.systems import SYSTEMS, system_named
from secure_fedrec.errors import ConfigError


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
            "contain from what they do not with AUC 0.900 (popularity alone: 0.800).",
        ),
        (
            {"histogram_error": 0.05, "histogram_error_chance": 0.2},
            "off by 5.0 % of the records (any other client's: 20.0 %).",
        ),
        ({"disclosed_share": 0.25}, "holds the exact vector of 25.0 % of the users."),
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


LISTED = tuple(each for each in MEASURES.values() if each.page.listed)


def test_every_figure_says_what_it_is() -> None:
    assert all(each.about.strip() and each.name.strip() for each in MEASURES.values())


def test_every_measure_has_its_place_in_the_schema() -> None:
    known = report_schema()["$defs"]["finding"]["properties"]
    assert set(listed_keys()) <= set(known)
    assert len(set(listed_keys())) == len(listed_keys())
    assert all(each.about for each in LISTED)
    assert all(known[key]["type"] == ["number", "null"] for key in listed_keys())


@pytest.mark.parametrize("measure", LISTED, ids=lambda measure: measure.key)
def test_every_measure_is_shown_with_its_interval_and_comparison(measure: Measure) -> None:
    low_key, high_key = measure.ends
    unit = 100 if measure.scale.unit.write == "count" else 1
    figures = {measure.key: 0.62 * unit, low_key: 0.51 * unit, high_key: 0.73 * unit}
    if measure.prior is not None:
        figures[measure.prior.key] = 0.11
    found = finding_json(finding(figures), None)
    spoken = leading(found)
    assert spoken is measure
    rows = finding_card(found)["numbers"]
    (row,) = [row for row in rows if row[0] == measure.name]
    written = {"percent": ("62.0%", "51.0%", "11.0%"), "count": ("62", "51", "11")}
    value, low, beside = written.get(measure.scale.unit.write, ("0.62", "0.51", "0.11"))
    assert value in row[1]
    assert low in row[2]
    assert (beside in row[2]) == (measure.prior is not None)
    assert headline(found).startswith(f"{measure.name} ")
    assert measure.page.units in finding_card(found)["units"]


# --- records --------------------------------------------------------------------------------------


def worst(measure: Measure) -> dict[str, float | None]:
    """Figures of the worst that a measure can say, and that the gains it stands behind can."""
    rule = measure.severity
    gains = rule.gains if isinstance(rule, Behind) else (measure.key,)
    beside = (rule.beside or {}) if isinstance(rule, Behind) else {}
    return {
        **dict.fromkeys(beside, 1.0),
        **{name: 1.0 for gain in gains for name in (gain, f"{gain}_certain")},
        measure.key: 0.0 if measure.scale.lower_is_worse else 1.0,
    }


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_at_its_worst_a_figure_is_a_finding_or_says_why_not(measure: Measure) -> None:
    found = severity(finding(worst(measure)))
    if isinstance(measure.severity, Context):
        assert found == "info"
        assert len(measure.severity.why.split()) > 3
        return
    assert found != "info"
    if isinstance(measure.severity, Behind) and measure.severity.critical is not None:
        assert found == "critical"


def test_nothing_is_bad_where_nothing_was_gained() -> None:
    """Every figure at its worst, but no gain: what anybody reaches is not a finding."""
    figures = {
        each.key: 0.0 if each.scale.lower_is_worse or isinstance(each.severity, Gained) else 1.0
        for each in MEASURES.values()
        if not isinstance(each.severity, Exposed | Observed)
    }
    assert severity(finding(figures)) == "info"


GOOD: Mapping[str, Any] = {
    "name": "Hair colours named",
    "about": "Share of clients whose hair colour is named.",
    "scale": Scale(SHARE, "the commonest colour", "a miss"),
    "severity": Behind(("hair_lift",), floor=0.9),
}


@pytest.mark.parametrize("lacking", GOOD)
def test_a_record_that_leaves_something_out_is_refused(lacking: str) -> None:
    Measure(**GOOD)
    with pytest.raises(TypeError, match=lacking):
        Measure(**{key: value for key, value in GOOD.items() if key != lacking})


@pytest.mark.parametrize(
    "severity",
    [
        *(None, "high", Gained, Gained(None), Gained(" "), Gained(0.0), Gained(math.nan)),  # type: ignore[arg-type]
        *(Observed(0.1, ""), Observed(math.nan, 0.9), Observed(0.0, 0.9)),
        *(Behind(("hair_lift",), None), Behind((), 0.9), Context("", 0.9), Context(" ", 0.9)),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_record_without_a_rule_or_a_floor_is_refused(severity: Any) -> None:
    with pytest.raises(ValueError, match=r"named: a figure must (have a severity|state its floor)"):
        Measure(**{**GOOD, "severity": severity})


def test_a_record_that_does_not_say_what_it_measures_is_refused() -> None:
    with pytest.raises(ValueError, match="Hair colours named: a figure must say what it measures"):
        Measure(**{**GOOD, "about": " "})


@pytest.mark.parametrize("rule", [Gained, Behind, Observed, Context])
def test_no_rule_goes_without_a_floor(rule: Any) -> None:
    with pytest.raises(TypeError, match="floor"):
        rule(*range(len(rule._fields) - len(rule._field_defaults) - 1))


TOLD: Mapping[str, Any] = {
    "about": GOOD["about"],
    "scale": {"unit": "share", "chance": "the commonest colour", "abstention": "a miss"},
    "severity": {"rule": "behind", "gains": ["hair_lift"], "floor": 0.9},
}
LIFT: Mapping[str, Any] = {"about": "Hair.", "severity": {"rule": "gained", "floor": 0.5}}


def test_a_record_is_read_as_it_is_written() -> None:
    record = {**TOLD, "name": GOOD["name"], "page": {"leads": True}}
    read = catalogue({"hair": {"secret": "hair", "hair_accuracy": record, "hair_lift": LIFT}})
    given: Mapping[str, Any] = {"secret": "hair", "key": "hair_accuracy", "kind": "hair"}
    assert read["hair_accuracy"] == Measure(**GOOD, page=Page(leads=True), **given)
    assert read["hair_lift"].name == "hair lift"
    assert not read["hair_lift"].page.listed


@pytest.mark.parametrize("place", ["", "scale", "severity", "page"])
def test_a_record_that_says_what_no_record_does_is_refused(place: str) -> None:
    odd = {"colour": "red"}
    record = {**TOLD, **({place: {**TOLD.get(place, {}), **odd}} if place else odd)}
    with pytest.raises(TypeError, match="colour"):
        catalogue({"hair": {"secret": "hair", "hair_accuracy": record, "hair_lift": LIFT}})


def test_a_figure_is_judged_by_a_gain_that_is_measured() -> None:
    alone = {"secret": "hair", "hair_accuracy": TOLD}
    with pytest.raises(ValueError, match="hair_lift, which is not a gain"):
        catalogue({"hair": alone})
    with pytest.raises(ValueError, match="two figures have the key hair_accuracy"):
        catalogue({"hair": alone, "wigs": alone})
    both = {"hair": alone, "lift": {"secret": "hair", "hair_lift": LIFT}}
    assert list(catalogue(both)) == ["hair_accuracy", "hair_lift"]
    with pytest.raises(ValueError, match="judged by hair_lift, which tells another secret"):
        catalogue({"hair": alone, "lift": {"secret": "wig", "hair_lift": LIFT}})


def test_every_figure_says_which_secret_it_tells() -> None:
    with pytest.raises(ValueError, match="say which secret"):
        catalogue({"hair": {"secret": " ", "hair_lift": LIFT}})
    assert all(each.secret.strip() for each in MEASURES.values())


def test_every_figure_reaches_its_floor_where_it_is_planted() -> None:
    """So no scorer is silently dead: of each there is an attack that drives it to its floor."""
    found = [planted_finding(attack).figures for attack in SUITE.values()]
    for key, measure in MEASURES.items():
        values = [value for each in found if (value := each.get(key)) is not None]
        floor = measure.severity.floor
        if isinstance(floor, str):
            assert len(floor.split()) > 3, key
            assert not any(values), key
        elif measure.scale.lower_is_worse:
            assert min(values) <= floor, key
        else:
            assert max(values) > floor - 1e-9, key


@pytest.mark.parametrize("key", MEASURES)
def test_gates_take_every_figure_and_no_prior(key: str) -> None:
    bound: Any = {"min" if MEASURES[key].scale.lower_is_worse else "max": 0.5}
    gate = GateConfig(metric=key, attack="direct", adversary="server", **bound)
    assert not gate.documents_leak
    prior = MEASURES[key].prior
    if prior is not None:
        with pytest.raises(ConfigError, match="unknown metric"):
            GateConfig(metric=prior.key, attack="direct", adversary="server", max=0.5)


def test_every_attack_reads_the_messages_of_some_algorithm() -> None:
    named = [name for system in SYSTEMS for name in system_named(system).attacks]
    assert set(named) == set(SUITE)
