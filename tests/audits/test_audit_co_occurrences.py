"""Audits of federated EASE: exact sums, published or not, are held, and noise alone bounds them."""

from pathlib import Path
from typing import Any

import pytest

import audits
from audits.gates.gate import Outcome

MASKS = {"layer": "masking", "execution": "simulated", "min_survivors": 110}
NOISE = (
    {"layer": "clip", "norm": 1.0, "count_scale": 1e-4},
    {"layer": "skellam", "epsilon": 8.0, "delta": 1e-5, "fraction_bits": 14},
)
NOISED = {"solution": "eigenvectors", "largest_norm": 1.0}
CLOSED = {"bits": 32, "fraction_bits": 16, "clip": 1.0}
EXACT = {"bits": 11, "fraction_bits": 0, "clip": 1.0}
WHO = {"server": ["server"], "client": ["client:0"]}


def verdict(
    tmp_path: Path, layers: list[Any], ring: dict[str, Any], **algorithm: Any
) -> tuple[Outcome, str]:
    """Outcome and reasons of an audit of few items that many have, so that nothing stands out."""
    gate = {"attack": "co-occurrence-membership", "metric": "membership_gain", "max": 0.45}
    config: dict[str, Any] = {
        "title": "EASE",
        "seed": 1,
        "data": {"name": "synthetic", "clients": 120, "items": 12, "mean_ratings": 6.0},
        "algorithm": {"name": "ease", **algorithm},
        "ring": ring,
        "protection": layers,
        "recording": {"payload_rounds": [1]},
        "adversaries": [{"name": name, "corrupt": corrupt} for name, corrupt in WHO.items()],
        "gates": [{"adversary": name, **gate} for name in WHO],
    }
    found = audits.audit(config, out=tmp_path / "out").verdict
    return found.outcome, " ".join(found.reasons)


@pytest.mark.parametrize(
    ("algorithm", "published"),
    [
        ({}, "public co-occurrences"),
        ({"pair_floor": 5, "shrinkage": 2.0}, "public co-occurrences"),
        ({"solved_at": "server"}, "public weights"),
    ],
)
def test_exact_sums_do_not_pass_where_no_attack_finds_anything(
    tmp_path: Path, algorithm: dict[str, Any], published: str
) -> None:
    outcome, reasons = verdict(tmp_path, [MASKS], EXACT, **algorithm)
    assert outcome == Outcome.INCONCLUSIVE
    assert "server: it holds aggregate: no price of its own bounds that" in reasons
    assert f"client: it holds {published}: no price of its own bounds that" in reasons


def test_sums_with_a_price_pass(tmp_path: Path) -> None:
    assert verdict(tmp_path, [*NOISE, MASKS], CLOSED, **NOISED) == (Outcome.PASS, "")
