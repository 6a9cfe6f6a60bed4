"""Positive controls: every attack must reach its known level on a federation built to leak.

An attack that silently broke looks like privacy. So each audit also runs the suite on small planted
federations, and a control that misses its floor makes the audit inconclusive. Attacks on ratings
run on FedRec++ with many denoisers (``subset-regression`` on one with sticky virtual items, which
defeat every attack on item numbers); attacks on split and on hierarchical personalization run on
federations whose algorithms are written for the purpose.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from attacks.planted import plant_organisations, plant_ratings, plant_split
from attacks.planted.ratings import CLIENTS, ROUNDS
from attacks.scoring.games import GroundTruth, evaluate
from attacks.suite import SUITE
from secure_fedrec.engines import RecordedRun
from secure_fedrec.wire import Adversary

__all__ = ["FLOORS", "ControlResult", "positive_controls"]

_Planted = tuple[RecordedRun, GroundTruth]

FLOORS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "direct": ("auc", 0.9),
        "intersection": ("auc", 0.99),
        "lattice": ("rating_accuracy", 0.99),
        "collusion-linkage": ("linked_share", 0.99),
        "tail-items": ("precision", 1.0),
        "denoiser-sums": ("unmasked_share", 0.9),
        "denoiser-exposure": ("precision", 1.0),
        "table-steps": ("precision", 1.0),
        "subset-regression": ("support_auc", 0.95),
        "dense-layer": ("reidentified_share", 1.0),
        "output-bias": ("label_accuracy", 0.9),
        "touched-rows": ("exact_set_share", 1.0),
        "signed-rows": ("auc", 0.99),
        "attribute-inference": ("attribute_auc", 0.95),
        "attribute-counts": ("histogram_correlation", 0.9),
        "drafts": ("disclosed_share", 0.16),  # one member of six is alone in its group
    }
)
"""Per attack: the figure that must reach the floor on the planted federation."""

_FEDERATIONS: Mapping[str, Callable[[], _Planted]] = MappingProxyType(
    {
        "denoisers": lambda: plant_ratings(denoisers=20, sticky=False, payload_rounds=(1,)),
        "sticky": lambda: plant_ratings(
            denoisers=2, sticky=True, payload_rounds=tuple(range(1, ROUNDS + 1))
        ),
        "split": plant_split,
        "implicit": lambda: plant_split(implicit=True, payload_rounds=(1,)),
        "organisations": plant_organisations,
    }
)
_PLACES: Mapping[str, str] = MappingProxyType(
    {
        "subset-regression": "sticky",
        "dense-layer": "split",
        "output-bias": "split",
        "touched-rows": "split",
        "signed-rows": "implicit",
        "attribute-inference": "split",
        "attribute-counts": "organisations",
        "drafts": "organisations",
    }
)
_SERVER = Adversary(name="planted-server", corrupt=frozenset({"server"}))
_WHO: Mapping[str, Adversary] = MappingProxyType(
    {
        "collusion-linkage": Adversary(name="planted", corrupt=frozenset({"server", "denoisers"})),
        "table-steps": Adversary(
            name="planted-clients",
            corrupt=frozenset(f"client:{number}" for number in range(CLIENTS - 1)),
        ),
    }
)
"""Who attacks, where it is not the server alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """Outcome of a positive control.

    Args:
        metric: the figure looked at.
        value: what the attack reached; None if it did not run.
        floor: what it must reach.
    """

    metric: str
    value: float | None
    floor: float

    @property
    def passed(self) -> bool:
        """Whether the attack works."""
        return self.value is not None and self.value >= self.floor


@lru_cache(maxsize=1)
def positive_controls() -> Mapping[str, ControlResult]:
    """Run every attack on its planted federation; a few seconds, once per process."""
    results: dict[str, ControlResult] = {}
    for name, attack in SUITE.items():
        metric, floor = FLOORS[name]
        run, truth = _planted(_PLACES.get(name, "denoisers"))
        finding = evaluate(attack, _WHO.get(name, _SERVER), run.transcript, truth, seed=0)
        results[name] = ControlResult(metric=metric, value=finding.figures.get(metric), floor=floor)
    return MappingProxyType(results)


@lru_cache(maxsize=len(_FEDERATIONS))
def _planted(place: str) -> _Planted:
    return _FEDERATIONS[place]()
