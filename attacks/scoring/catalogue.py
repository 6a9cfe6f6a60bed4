"""The records of all figures, and what follows: which speaks for a finding, and how bad it is."""

import tomllib
from pathlib import Path

from attacks.scoring.measures import SEVERITIES, Figures, Measure, catalogue

_FILE = Path(__file__).with_name("figures.toml")

MEASURES = catalogue(tomllib.loads(_FILE.read_text(encoding="utf-8")))
"""Every figure by key: what gates may ask, what findings may say."""


def measures_of(figures: Figures) -> list[Measure]:
    """The measures that a finding has, in the order of reports."""
    return [each for each in MEASURES.values() if each.told(figures)]


def leading(figures: Figures) -> Measure | None:
    """The one that stands for a finding; None if it has none with a key of its own."""
    listed = [each for each in measures_of(figures) if each.page.listed]
    return min(listed, key=lambda each: not each.page.leads, default=None)


def listed_keys() -> tuple[str, ...]:
    """Keys of ``report.json`` that figures have: their own, of intervals, of comparisons."""
    listed = (each for each in MEASURES.values() if each.page.listed)
    return tuple(dict.fromkeys(key for each in listed for key in each.keys))


def severity_of(figures: Figures) -> str:
    """How bad figures are: as the worst of them says."""
    grades = {each.severity.grade(each.key, figures) for each in MEASURES.values()}
    return min(grades, key=SEVERITIES.index)
