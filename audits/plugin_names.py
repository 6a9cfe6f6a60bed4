"""Names that plug-ins may not have, because they have another meaning in configurations or reports.

Reserved words of configurations come from where they are defined, keys of figures from the schema
of a report and from the figures of gates.
"""

from collections.abc import Mapping

from attacks.scoring.measures import MEASURES, Measure
from audits.gates.gate import METRICS
from audits.gates.waivers import BESIDE_ATTACKS
from audits.report.schema import finding_fields

ALL = "all"
"""Name that stands for every shipped attack and those of the configuration."""

NONE = "none"
"""Name that stands for "without a layer" or "without an attack"."""

WORDS = frozenset((ALL, NONE, *BESIDE_ATTACKS))
"""Reserved words. An entry point with such a name is ignored."""


def require_name(name: str) -> None:
    """Refuse a name that is a reserved word of configurations.

    Raises:
        ValueError: the name is reserved.
    """
    if name in WORDS:
        raise ValueError(f"has the name {name!r}, which has another meaning")


def require_keys(measures: Mapping[str, Measure]) -> None:
    """Refuse figures whose keys, or interval keys, have another meaning in a report.

    A figure may have an existing figure as its comparison value.

    Args:
        measures: the figures by key; a key in the registry must be the same figure.

    Raises:
        ValueError: such a figure exists.
    """
    others = {key: each for key, each in MEASURES.items() if key not in measures}
    figures = {name: key for key, each in others.items() for name in _own_keys(each)}
    compared = {each.prior.key: key for key, each in others.items() if each.prior is not None}
    meant = finding_fields() | (METRICS.keys() - MEASURES.keys())
    for key, each in measures.items():
        require_name(key)
        prior = () if each.prior is None else (each.prior.key,)
        for name in (*_own_keys(each), *prior):
            if name in meant:
                raise ValueError(f"has a figure with the key {name!r}, which has another meaning")
        for name in _own_keys(each):
            if (other := figures.get(name, compared.get(name))) is not None:
                raise ValueError(f"has a figure with the key {name!r}, which is one of {other!r}")
            figures[name] = key


def _own_keys(measure: Measure) -> tuple[str, ...]:
    """Keys of a figure that nothing else may have, including its interval's."""
    return (measure.key, *measure.ends, f"{measure.key}_certain")
