"""Positive controls: every attack must reach a known level on a federation built to leak.

An attack that is broken finds nothing, which looks like privacy. So each audit also runs the suite
on small planted federations, and a control that misses its floor makes the audit inconclusive.
Attacks on ratings run on FedRec++ with many denoisers (``subset-regression`` on one with sticky
virtual items, which defeat every attack on item numbers) or, where they read hidden sums, under
masks; attacks on split and on hierarchical personalization, and on what is never touched or given
to partners, run on federations whose algorithms are written for the purpose.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial

from attacks.base import Controlled
from attacks.planted.organisations import plant_organisations
from attacks.planted.pairs import plant_pairs
from attacks.planted.partners import plant_partner_users, plant_partners
from attacks.planted.ratings import CLIENTS, plant_careless, plant_ratings
from attacks.planted.split import plant_split
from attacks.planted.untouched import plant_untouched
from attacks.scoring.games import Finding, tried
from attacks.scoring.measures import MEASURES
from attacks.scoring.truth import GroundTruth
from attacks.suite import SUITE
from secure_fedrec.engines import RecordedRun
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.wire import Adversary

_Planted = tuple[RecordedRun, GroundTruth]

FEDERATIONS: Mapping[str, Callable[[], _Planted]] = {
    **{name: partial(plant_ratings, name) for name in ("ratings", "sticky", "sums", "cohorts")},
    "split": plant_split,
    "implicit": partial(plant_split, implicit=True, payload_rounds=(1,)),
    "organisations": plant_organisations,
    "lone organisations": lambda: plant_organisations(
        layers={"masking": MaskingLayerConfig()}, attributes=300, evenness=0.01
    ),
    "untouched": plant_untouched,
    "partners": plant_partners,
    "partner users": plant_partner_users,
    "careless": plant_careless,
    "co-occurrences": plant_pairs,
}
WHO: Mapping[str, Adversary] = {
    "server": Adversary(name="planted-server", corrupt=frozenset({"server"})),
    "server+denoisers": Adversary(name="planted", corrupt=frozenset({"server", "denoisers"})),
    "one client": Adversary(name="planted-client", corrupt=frozenset({"client:0"})),
    "all clients but one": Adversary(
        name="planted-clients",
        corrupt=frozenset(f"client:{number}" for number in range(CLIENTS - 1)),
    ),
}
"""Adversaries, by the names that controls use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """Outcome of a positive control.

    Args:
        metric: the figure looked at.
        value: what the attack reached; None if it did not run.
        floor: the value that it must reach.
    """

    metric: str
    value: float | None
    floor: float

    @property
    def passed(self) -> bool:
        """Whether the attack works."""
        return self.value is not None and self.value >= self.floor


@cache
def positive_control(name: str) -> ControlResult:
    """Run an attack of the suite on its planted federation, once per process."""
    return control_result(SUITE[name])


def control_result(attack: Controlled) -> ControlResult:
    """The figure of an attack in the federation of its control, with the required floor."""
    control = attack.control
    own = MEASURES[control.measure].severity.floor if control.floor is None else control.floor
    value = planted_finding(attack).figures.get(control.measure)
    return ControlResult(metric=control.measure, value=value, floor=float(own))


def planted_finding(attack: Controlled) -> Finding:
    """The result of an attack in the federation of its control."""
    run, truth = planted(attack.control.on)
    return tried(attack, WHO[attack.control.who], run.transcript, truth, seed=0)


def planted(place: str) -> _Planted:
    """A planted federation by its name, run, and the truth of it."""
    return planted_for(place, tuple(name for name, each in SUITE.items() if each.control.secrets))


@lru_cache(maxsize=len(FEDERATIONS))
def planted_for(place: str, told_by: tuple[str, ...]) -> _Planted:
    """A planted federation with the secrets that controls of some attacks tell from its arrays."""
    del told_by
    return FEDERATIONS[place]()
