"""A finding in the words and numbers of a report: severity, one plain sentence, JSON."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from attacks import Finding
from attacks.controls import ControlResult
from audits.measures import report_keys

__all__ = ["finding_json", "sentence", "severity"]

Figures: TypeAlias = Mapping[str, float | None]

_LIFTS = (
    "reidentified_lift_low",
    "vector_cosine_lift_low",
    "label_lift_low",
    "set_lift_low",
    "histogram_correlation_lift_low",
    "holder_lift_low",
    "attribute_lift_low",
)
"""How far beyond guessing other secrets than rated sets were told, at the lower end."""

_REPORT_KEYS = (
    "auc",
    "auc_low",
    "auc_high",
    "support_auc",
    "support_auc_low",
    "support_auc_high",
    "prior_auc",
    "lift_over_prior",
    "tpr_at_1pct_fpr",
    "tpr_at_1pct_fpr_low",
    "tpr_at_1pct_fpr_high",
    "tpr_at_01pct_fpr",
    "advantage",
    "precision",
    "recall",
    "exact_set_share",
    "rating_accuracy",
    "user_vector_share",
    "linked_share",
    *report_keys(),
)


def severity(finding: Finding) -> str | None:
    """How bad it is, from what is learned and not from the AUC alone.

    critical: ratings, or the rated sets of most clients, are recovered with at least 90 %
    precision, or 90 % of private vectors or labels are named far beyond guessing; high: the lift
    over the popularity prior, inside the visible support or over the catalogue, or over guessing,
    is at least 0.20, or TPR at 1 % FPR at least 10 %, both at their lower ends, or half of the
    virtual rows are unmasked; medium: a lift of 0.05 to 0.20, or 5 % of the ratings that stand
    alone in a sum are read off it, or 1 % of users disclosed by a draft; low: statistically visible
    below that; info otherwise. None if nothing was measured.
    """
    if not finding.measured:
        return None
    figures = finding.figures

    def value(name: str) -> float:
        found = figures.get(name)
        return 0.0 if found is None else found

    lift = max(value("lift_over_prior_low"), value("support_lift_over_prior_low"))
    beyond = max(value(name) for name in _LIFTS)
    named_sets = value("precision") >= 0.9 and value("recall") >= 0.5
    named_secrets = max(value("reidentified_share"), value("label_accuracy")) >= 0.9
    if value("rating_accuracy") >= 0.9 or named_sets or (named_secrets and beyond >= 0.20):
        return "critical"
    certain = value("tpr_at_1pct_fpr_low") >= 0.10 or value("unmasked_share") >= 0.5
    if max(lift, beyond) >= 0.20 or certain:
        return "high"
    alone = value("tail_rating_share") >= 0.05 or value("disclosed_share") >= 0.01
    if max(lift, beyond) >= 0.05 or alone:
        return "medium"
    return "low" if value("auc_low") > 0.5 or beyond > 0 else "info"


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
    auc, prior = figures.get("auc"), figures.get("prior_auc")
    if auc is None or prior is None:
        return f"{finding.adversary} learned nothing measurable from {span}."
    return (
        f"From {span} of each client, {finding.adversary} ranks rated above unrated items with AUC "
        f"{auc:.3f}; item popularity alone gives {prior:.3f}."
    )


def _clauses(figures: Figures) -> list[str]:
    """Rated sets, ratings, and who sent what."""
    clauses = []
    linked = figures.get("linked_share")
    if linked is not None:
        clauses.append(f"names the sender of {_percent(linked)} of the anonymous messages")
    precision, recall = figures.get("precision"), figures.get("recall")
    if precision is not None and recall is not None and recall > 0:
        clauses.append(
            f"names rated items with {_percent(precision)} precision and finds "
            f"{_percent(recall)} of them"
        )
    accuracy = figures.get("rating_accuracy")
    if accuracy is not None:
        clauses.append(f"recovers {_percent(accuracy)} of the ratings exactly")
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
    named = {key: figures.pop(key) for key in _REPORT_KEYS if key in figures}
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
