"""Names that no plug-in may have, since they mean something else where they stand.

Words of configurations are read from where they are defined, keys of figures from the schema of a
report and from what gates bound.
"""

from collections.abc import Mapping

from attacks.scoring.measures import MEASURES, Measure
from audits.gates.gate import METRICS
from audits.gates.waivers import BESIDE_ATTACKS
from audits.report.schema import finding_fields

ALL = "all"
"""In the list of attacks: every one that is shipped, and those that the configuration brings."""

NONE = "none"
"""In tables: no layer, no attack, nothing."""

WORDS = frozenset((ALL, NONE, *BESIDE_ATTACKS))
"""Words that stand in the place of a name. An entry point of such a name is not looked at."""


def require_name(name: str) -> None:
    """Refuse a name that is a word of configurations.

    Raises:
        ValueError: it is one.
    """
    if name in WORDS:
        raise ValueError(f"has the name {name!r}, which means something else")


def require_keys(measures: Mapping[str, Measure]) -> None:
    """Refuse figures whose keys, or those of their intervals, mean something else in a report.

    A figure may be compared with one that is there.

    Args:
        measures: the figures by key, none of which is in the registry unless as it is here.

    Raises:
        ValueError: there is one.
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
                raise ValueError(f"has a figure with the key {name!r}, which means something else")
        for name in _own_keys(each):
            if (other := figures.get(name, compared.get(name))) is not None:
                raise ValueError(f"has a figure with the key {name!r}, which is one of {other!r}")
            figures[name] = key


def _own_keys(measure: Measure) -> tuple[str, ...]:
    """What nothing else may be called: the figure, its interval, and what of it is certain."""
    return (measure.key, *measure.ends, f"{measure.key}_certain")
