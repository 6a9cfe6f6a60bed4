"""The protection's part of a report: its schema, and what the page shows of it."""

import html
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from audits.report import render_html, report_schema

SAMPLE = Path(__file__).with_name("report_sample.json")


def sample() -> dict[str, Any]:
    """A report with two rounds and no curves."""
    report: dict[str, Any] = json.loads(SAMPLE.read_text(encoding="utf-8"))
    report["utility"]["rounds"] = [{"round": n, "mae": 0.7, "rmse": 0.9} for n in (1, 2)]
    for finding in report["findings"]:
        finding["roc"] = None
    return report


def schema_problems(report: dict[str, Any]) -> list[str]:
    schema = report_schema()
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(report)]


def words(report: dict[str, Any]) -> str:
    """What a reader sees of a page before the chapter on findings."""
    body = render_html(report).partition("<body>")[2].partition('id="findings"')[0]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", body)))


@pytest.mark.parametrize(
    ("execution", "note", "accepted"),
    [
        ("simulated", "pads", True),
        ("real", "keys", True),
        (None, None, True),
        ("simulated", None, False),
        (None, "pads", False),
        ("almost", "pads", False),
    ],
)
def test_the_schema_wants_a_note_wherever_there_is_cryptography(
    execution: str | None, note: str | None, accepted: bool
) -> None:
    report = sample()
    report["protection"] |= {"execution": execution, "execution_note": note}
    assert (schema_problems(report) == []) == accepted


def test_the_page_says_what_the_protection_claims_and_that_it_was_simulated() -> None:
    protection, text = sample()["protection"], words(sample())
    for key in ("system", "hides", "assumes", "found", "execution_note"):
        assert protection[key] in text
    assert "(clip + skellam + masking)" in text
    assert "Simulated: uploads were hidden by pads" in text
    assert "Privacy epsilon_server = 7.98 at delta = 1e-05 over 60 rounds against: the" in text
    # Near the verdict: before anything that was measured.
    assert text.index("clip + skellam + masking, simulated") < text.index("Top findings")
    assert text.index("ε 7.98 against the server, 60 rounds") < text.index("Top findings")


def test_the_page_of_a_stack_without_cryptography_or_noise_claims_neither() -> None:
    report = sample()
    report["protection"] |= {
        "layers": [],
        "execution": None,
        "execution_note": None,
        "privacy": [],
    }
    text = words(report)
    assert "(no layers)" in text
    assert "Simulated" not in text
    assert "Privacy epsilon" not in text


def test_a_report_from_before_the_claim_still_renders() -> None:
    report = sample()
    del report["protection"]
    assert schema_problems(report) == []
    assert "What the protection claims" not in words(report)
