"""A finding in the words and numbers of a report: severity, one plain sentence, JSON."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from attacks import Finding
from attacks.planted.controls import ControlResult
from audits.gates.measures import report_keys

__all__ = ["GAINS", "REPORT_KEYS", "finding_json", "sentence", "severity"]

Figures: TypeAlias = Mapping[str, float | None]

GAINS = (
    "precision_gain",
    "headroom_lift",
    "lift_over_prior",
    "support_lift_over_prior",
    "support_headroom_lift",
    "tpr_gain",
    "exact_set_gain",
    "rating_lift",
    "rating_headroom_lift",
    "tail_rating_lift",
    "unmasked_lift",
    "reidentified_lift",
    "vector_cosine_lift",
    "label_lift",
    "set_lift",
    "histogram_correlation_lift",
    "holder_lift",
    "attribute_lift",
)
"""What was told beyond public knowledge or guessing; nothing else sets a severity."""

_LEAST = 0.02
"""A gain smaller than this is no finding, however certain."""

_MEDIUM, _HIGH = 0.05, 0.20

REPORT_KEYS = (
    "auc",
    "auc_low",
    "auc_high",
    "support_auc",
    "support_auc_low",
    "support_auc_high",
    "prior_auc",
    "lift_over_prior",
    "combined_auc",
    "combined_auc_low",
    "combined_auc_high",
    "precision_at_k",
    "precision_at_k_low",
    "precision_at_k_high",
    "prior_precision_at_k",
    "precision_gain",
    "precision_gain_low",
    "precision_gain_high",
    "headroom_lift",
    "headroom_lift_low",
    "headroom_lift_high",
    "tpr_at_1pct_fpr",
    "tpr_at_1pct_fpr_low",
    "tpr_at_1pct_fpr_high",
    "prior_tpr_at_1pct_fpr",
    "tpr_at_01pct_fpr",
    "advantage",
    "precision",
    "recall",
    "exact_set_share",
    "rating_accuracy",
    "rating_mode_accuracy",
    "coverage",
    "user_vector_share",
    "linked_share",
    *report_keys(),
)


def severity(finding: Finding) -> str | None:
    """How bad it is: from what was told beyond public knowledge or guessing, and is certain.

    Every gain counts by its lower limit, which holds for all gains of an audit at once with 99 %.

    critical: at least 90 % of the rated items (or of the items named, with half of the set), of the
    ratings, or of private vectors or labels are named, with a gain of at least 0.20; high: a gain
    of at least 0.20; medium: of 0.05, or 1 % of users disclosed by a draft, whose very vector is no
    guess; low: certain, and estimated at 0.02 or more; info otherwise. None if nothing was
    measured.
    """
    if not finding.measured:
        return None

    def value(name: str) -> float:
        found = finding.figures.get(name)
        return 0.0 if found is None else found

    def certain(*names: str) -> float:
        return max(value(f"{name}_certain") for name in names)

    sets = value("precision_at_k") >= 0.9 or (value("precision") >= 0.9 and value("recall") >= 0.5)
    named = {
        ("precision_gain", "headroom_lift", "exact_set_gain"): sets,
        ("rating_lift", "rating_headroom_lift"): value("rating_accuracy") >= 0.9,
        ("reidentified_lift",): value("reidentified_share") >= 0.9,
        ("label_lift",): value("label_accuracy") >= 0.9,
    }
    if any(found and certain(*gains) >= _HIGH for gains, found in named.items()):
        return "critical"
    if certain(*GAINS) >= _HIGH:
        return "high"
    if certain(*GAINS) >= _MEDIUM or value("disclosed_share") >= 0.01:
        return "medium"
    told = any(certain(name) > 0 and value(name) >= _LEAST for name in GAINS)
    return "low" if told else "info"


def sentence(finding: Finding) -> str:
    """The finding in one sentence for a privacy officer."""
    if not finding.measured:
        return f"{finding.attack} does not apply to {finding.adversary}: {finding.reason}."
    figures = finding.figures
    rounds = len(finding.rounds)
    span = "one message" if rounds == 1 else f"messages of {rounds} rounds"
    clauses = _clauses(figures) + _other_clauses(figures, finding.details)
    if clauses:
        return f"From {span} of each client, {finding.adversary} {', '.join(clauses)}."
    return f"{finding.adversary} learned nothing measurable from {span}."


def _clauses(figures: Figures) -> list[str]:
    """Rated sets, ratings, and who sent what."""
    clauses = []
    linked = figures.get("linked_share")
    if linked is not None:
        clauses.append(f"names the sender of {_percent(linked)} of the anonymous messages")
    at_k, without = figures.get("precision_at_k"), figures.get("prior_precision_at_k")
    if at_k is not None and without is not None:
        clauses.append(
            f"names as many items as a client rated with {_percent(at_k)} precision, knowing item "
            f"popularity (which alone gives {_percent(without)})"
        )
    precision, recall = figures.get("precision"), figures.get("recall")
    if precision is not None and recall is not None and recall > 0:
        clauses.append(
            f"guesses sets outright with {_percent(precision)} precision and {_percent(recall)} "
            "recall"
        )
    accuracy, coverage = figures.get("rating_accuracy"), figures.get("coverage")
    if accuracy is not None:
        words = f"names {_percent(accuracy)} of the ratings exactly"
        words += _beside(figures, "rating_mode_accuracy", "the best constant")
        if coverage is not None and coverage < 1:
            words += f", saying something of {_percent(coverage)} and that constant of the rest"
        clauses.append(words)
    vectors = figures.get("user_vector_share")
    if vectors is not None and figures.get("vector_cosine") is None:
        clauses.append(f"recovers the private vector of {_percent(vectors)} of the clients")
    tail = figures.get("tail_rating_share")
    if tail is not None and tail > 0:
        clauses.append(
            f"reads {_percent(tail)} of the ratings that no other client's hide in a sum, without "
            "their clients' names"
        )
    unmasked = figures.get("unmasked_share")
    if unmasked is not None and unmasked > 0:
        clauses.append(f"proves {_percent(unmasked)} of the virtual rows to be virtual")
    return clauses


def _other_clauses(figures: Figures, details: Mapping[str, Any]) -> list[str]:
    """Secrets that are no rated sets, each beside what anybody could have said."""
    clauses = []
    cosine, named = figures.get("vector_cosine"), figures.get("reidentified_share")
    if cosine is not None and named is not None:
        clauses.append(
            f"computes private vectors (mean cosine {cosine:.2f} with the true ones) and names the "
            f"client behind {_percent(named)} of them"
            + _beside(figures, "reidentified_chance", "by chance")
        )
    label = figures.get("label_accuracy")
    if label is not None:
        clauses.append(
            f"names the most frequent answer of {_percent(label)} of the clients"
            + _beside(figures, "label_base_rate", "always naming the commonest")
        )
    area = figures.get("set_auc")
    if area is not None:
        prior = figures.get("set_prior_auc")
        clauses.append(
            f"tells what a client's examples hold from what they do not with AUC {area:.3f}"
            + ("" if prior is None else f" (popularity alone: {prior:.3f})")
        )
    error, chance = figures.get("histogram_error"), figures.get("histogram_error_chance")
    if error is not None and chance is not None:
        clauses.append(
            f"reads which attributes a client's records have, off by {_percent(error)} of the "
            f"records (any other client's: {_percent(chance)})"
        )
    disclosed = figures.get("disclosed_share")
    if disclosed is not None:
        clauses.append(f"holds the very vector of {_percent(disclosed)} of the users")
    holder = figures.get("holder_accuracy")
    if holder is not None:
        clauses.append(
            f"could name the client that {_percent(holder)} of known users belong to"
            + _beside(figures, "holder_chance", "by chance")
        )
    attribute = figures.get("attribute_auc")
    if attribute is not None:
        name = next(iter(details.get("attributes", ())), "attribute")
        clauses.append(f"tells the {name.replace('_', ' ')} of persons with AUC {attribute:.3f}")
    return clauses


def _beside(figures: Figures, name: str, words: str) -> str:
    found = figures.get(name)
    return "" if found is None else f" ({words}: {_percent(found)})"


def _percent(share: float) -> str:
    if 0.9995 <= share < 1:
        return "over 99.9 %"
    return f"{100 * share:.1f} %"


def finding_json(finding: Finding, control: ControlResult | None) -> dict[str, Any]:
    """A finding as ``report.json`` keeps it; figures without a key of their own go to details."""
    figures = dict(finding.figures)
    named = {key: figures.pop(key) for key in REPORT_KEYS if key in figures}
    positive = None
    if control is not None:
        positive = {
            "metric": control.metric,
            "value": 0.0 if control.value is None else control.value,
            "floor": control.floor,
            "passed": control.passed,
        }
    return {
        "attack": finding.attack,
        "adversary": finding.adversary,
        "game": finding.game,
        "status": "measured" if finding.measured else "not-applicable",
        "reason": finding.reason,
        "rounds": list(finding.rounds),
        "units": {"clients": 0, "pairs": 0, "positives": 0, **finding.units},
        **dict.fromkeys(("auc", "auc_low", "auc_high", "tpr_at_1pct_fpr", "advantage")),
        **named,
        "details": {**figures, **finding.details},
        "severity": severity(finding),
        "sentence": sentence(finding),
        "null_control": None if finding.null_control is None else dict(finding.null_control),
        "positive_control": positive,
        "roc": None if finding.roc is None else dict(finding.roc),
    }
