"""Pairs of runs of one system, which differ by noise alone, and of systems that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attacks import evaluate
from attacks.base import Claims
from attacks.scoring.rated_sets import RatedSetClaim
from audits.report.findings import finding_json
from secure_fedrec.core.arrays import FloatArray
from tests.attacks.made import grid_of
from tests.audits.nulls import SERVER, Spec, Stub, federation, guesses

GAINS = ("precision_gain", "headroom_lift", "lift_over_prior", "tpr_gain", "exact_set_gain")


def bare(seed: int, findings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """As much of a report as a comparison reads."""
    return {
        "configuration": {"seed": seed},
        "data": {"fingerprint": "one"},
        "gates": [],
        "findings": list(findings),
        "utility": {"mean": {"rmse": 1.0}},
        "lossless": {"holds": True},
    }


def stated(seed: int, values: Mapping[str, float], *, clients: int = 60) -> dict[str, Any]:
    """A report whose only finding has these figures, without intervals."""
    finding = {
        "adversary": "server",
        "attack": "stub",
        "status": "measured",
        "units": {"clients": clients},
        "details": {},
        **values,
    }
    return bare(seed, [finding])


def noisy(kind: str, rng: np.random.Generator, figures: int) -> FloatArray:
    """The figures of one run of a system whose noise is of some kind."""
    shared = rng.standard_normal()
    if kind == "normal":
        return 0.2 + 0.02 * rng.standard_normal(figures)
    if kind == "shared":  # all figures of a run move together
        return 0.2 + 0.02 * (0.9 * shared + 0.4 * rng.standard_normal(figures))
    if kind == "shares":  # of 60 clients, most often none
        return rng.binomial(60, 0.02, figures) / 60
    if kind == "heavy":
        return 0.2 + 0.02 * rng.standard_t(3, figures)
    return np.where(rng.random(figures) < 0.1, 0.3, 0.2)  # "rare"


KINDS = ("normal", "shared", "shares", "heavy", "rare")


def audited(spec: Spec, seed: int, noise: int, shift: float) -> dict[str, Any]:
    """A report of an attack on one federation; another ``noise`` is another run on it.

    Args:
        spec: the federation.
        seed: of it.
        noise: of what the attack claims.
        shift: of the scores of rated items, which have deviation 1.
    """
    transcript, truth, labels, levels = federation(spec, np.random.default_rng(seed))
    rng = np.random.default_rng((seed, noise))
    rated, *others = guesses(spec, levels, rng, 1).made
    assert isinstance(rated, RatedSetClaim)
    rated = replace(rated, scores=grid_of(rated.scores) + shift * labels)
    stub = Stub({1: Claims(rounds=(1,), made=(rated, *others))})
    finding = evaluate(stub, SERVER, transcript, truth, seed=seed, judged=2)
    return bare(seed, [finding_json(finding, None)])
