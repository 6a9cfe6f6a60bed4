"""What a finding is called, and how bad it is, follow from what was learned."""

import pytest

from attacks import Finding
from attacks.scoring.measures import MEASURES, listed_keys
from audits.report import report_schema
from audits.report.findings import finding_json, sentence, severity
from audits.report.view import finding_card, headline


def finding(**figures: float) -> Finding:
    return Finding(
        attack="sum-decoding", adversary="server", game="tell", rounds=(1,), figures=dict(figures)
    )


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"auc": 0.99, "auc_low": 0.98}, "info"),  # no AUC says anything without its prior
        ({"tpr_at_1pct_fpr": 0.59, "tpr_at_1pct_fpr_low": 0.5}, "info"),
        ({"rating_accuracy": 1.0, "rating_lift": 0.0, "rating_lift_certain": -0.1}, "info"),
        ({"precision_gain": 0.01, "precision_gain_certain": 0.005}, "info"),  # too little
        ({"precision_gain": 0.1, "precision_gain_certain": -0.01}, "info"),  # not certain
        ({"precision_gain": 0.03, "precision_gain_certain": 0.01}, "low"),
        ({"linked_share": 0.64, "linked_lift_certain": 0.04}, "info"),
        ({"linked_share": 0.64, "linked_lift_certain": 0.06}, "medium"),
        ({"lift_over_prior_certain": 0.06}, "medium"),
        ({"support_lift_over_prior_certain": 0.2}, "high"),
        ({"unmasked_lift_certain": 0.2}, "high"),
        ({"tpr_gain_certain": 0.2}, "high"),
        # With a prior of 0.944 a complete break has a lift of 0.056 and all of the headroom.
        ({"lift_over_prior_certain": 0.05, "support_headroom_lift_certain": 0.9}, "high"),
        ({"precision_at_k": 0.95, "headroom_lift_certain": 0.9}, "critical"),
        ({"precision_at_k": 0.95, "precision_gain_certain": 0.01}, "info"),  # popularity's own
        ({"precision": 0.95, "recall": 0.6, "precision_gain_certain": 0.3}, "critical"),
        ({"rating_accuracy": 0.95, "rating_lift_certain": 0.5}, "critical"),
        ({"rating_accuracy": 0.95, "rating_headroom_lift_certain": 0.5}, "critical"),
    ],
)
def test_severity_follows_what_was_learned(figures: dict[str, float], expected: str) -> None:
    assert severity(finding(**figures)) == expected


def test_what_is_known_beyond_doubt_is_said_in_persons() -> None:
    text = sentence(finding(auc=0.86, prior_auc=0.855, clients_exposed=3.0, clients_judged=60.0))
    assert "private vector of 3 of 60 clients" in text
    nobody = sentence(finding(auc=0.86, prior_auc=0.855, clients_exposed=0.0, clients_judged=60.0))
    assert "doubt" not in nobody


def test_nothing_measured_is_no_severity() -> None:
    blank = Finding(attack="lattice", adversary="server", game="tell", reason="no uploads")
    assert severity(blank) is None
    assert "does not apply to server: no uploads" in sentence(blank)


def test_ratings_stand_beside_the_best_constant() -> None:
    """All ones: an attack that says nothing names 100 % of them, as does everybody."""
    text = sentence(finding(rating_accuracy=1.0, rating_mode_accuracy=1.0, coverage=0.0))
    assert "names 100.0 % of the ratings exactly (the best constant: 100.0 %)" in text
    assert "making claims about 0.0 % and using that constant for the rest" in text
    assert "saying" not in sentence(finding(rating_accuracy=1.0, coverage=1.0))


def test_rated_sets_stand_beside_popularity() -> None:
    text = sentence(finding(precision_at_k=0.776, prior_precision_at_k=0.283))
    assert "77.6 % precision, knowing item popularity (which alone gives 28.3 %)" in text


def test_every_reported_figure_has_its_place_in_the_schema() -> None:
    schema = report_schema()
    assert set(listed_keys()) <= set(schema["$defs"]["finding"]["properties"])
    assert {each.key for each in MEASURES.values() if each.page.listed} <= set(listed_keys())


def test_a_report_shows_precision_beside_that_of_popularity() -> None:
    figures = {
        "auc": 0.972,
        "prior_auc": 0.855,
        "combined_auc": 0.991,
        "combined_auc_low": 0.990,
        "combined_auc_high": 0.992,
        "precision_at_k": 0.776,
        "prior_precision_at_k": 0.283,
        "precision_gain": 0.493,
        "precision_gain_low": 0.48,
        "precision_gain_high": 0.51,
        "precision_gain_certain": 0.47,
        "headroom_lift": 0.939,
    }
    found = finding_json(finding(**figures), None)
    assert found["severity"] == "high"
    assert found["details"]["precision_gain_certain"] == 0.47
    assert headline(found).endswith("77.6%, popularity alone 28.3%")
    rows = {name: (value, span) for name, value, span in finding_card(found)["numbers"]}
    assert rows["Precision gained over popularity"][0].startswith("+0.49")
    assert "0.48" in rows["Precision gained over popularity"][1]
    assert rows["Share of the headroom gained"][0].startswith("+0.93")
