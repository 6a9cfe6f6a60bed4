"""What a finding is called, and how bad it is, follow from what was learned."""

import pytest

from attacks import Finding
from audits.findings import sentence, severity


def finding(**figures: float) -> Finding:
    return Finding(
        attack="tail-items", adversary="server", game="tell", rounds=(1,), figures=dict(figures)
    )


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"auc": 0.5, "auc_low": 0.49}, "info"),
        ({"auc": 0.52, "auc_low": 0.51}, "low"),
        ({"auc": 0.52, "auc_low": 0.51, "tail_rating_share": 0.04}, "low"),
        ({"auc": 0.52, "auc_low": 0.51, "tail_rating_share": 0.64}, "medium"),
        ({"auc": 0.6, "lift_over_prior_low": 0.06}, "medium"),
        ({"auc": 0.9, "support_lift_over_prior_low": 0.2}, "high"),
        ({"auc": 0.9, "unmasked_share": 0.5}, "high"),
        ({"auc": 0.9, "precision": 0.95, "recall": 0.6}, "critical"),
        ({"auc": 0.9, "rating_accuracy": 0.95}, "critical"),
    ],
)
def test_severity_follows_what_was_learned(figures: dict[str, float], expected: str) -> None:
    assert severity(finding(**figures)) == expected


def test_rows_without_a_name_are_said_to_be_without_a_name() -> None:
    text = sentence(finding(auc=0.86, prior_auc=0.855, tail_rating_share=0.64))
    assert "reads 64.0 % of the ratings that no other client's hide in a sum" in text
    assert "without their clients' names" in text
    assert "tail" not in sentence(finding(auc=0.86, prior_auc=0.855, tail_rating_share=0.0))


def test_nothing_measured_is_no_severity() -> None:
    blank = Finding(attack="lattice", adversary="server", game="tell", reason="no uploads")
    assert severity(blank) is None
    assert "does not apply to server: no uploads" in sentence(blank)
