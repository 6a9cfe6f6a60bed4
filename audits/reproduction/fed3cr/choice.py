"""Which studies a method takes, and which of its settings is reported: on validation alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from audits.reproduction.fed3cr.paper import Needed, Place, Setting
from audits.reproduction.fed3cr.studies import Found, StudySource, find_studies

_NAMES = ("validation_hit_rate_at_10", "validation_ndcg_at_10")


class Chosen(NamedTuple):
    """What is reported of a method.

    Attributes:
        setting: of it.
        found: its studies by seed; those that there are.
    """

    setting: Setting
    found: dict[int, Found]


class Library:
    """Studies that were found or made so far.

    Args:
        source: where they are.
        asked: how many repetitions are wanted; None for those of the paper's file.
    """

    def __init__(self, source: StudySource, asked: int | None) -> None:
        self.source, self.paper, self._asked = source, source.paper, asked
        self.studies: dict[Needed, Found] = {}

    def seeds(self, place: Place, part: str = "") -> tuple[int, ...]:
        """Of a place."""
        return self.paper.repetitions(place, part, asked=self._asked)

    def fetch(self, needed: Iterable[Needed]) -> None:
        """Find, or make, what is not here yet."""
        missing = [each for each in dict.fromkeys(needed) if each not in self.studies]
        self.studies |= find_studies(missing, self.source)

    def fetch_methods(
        self, places: Sequence[Place], methods: Mapping[Place, Sequence[str]]
    ) -> None:
        """Every method of some places, tuned where the protocol tunes, and the oracles.

        Where a set has candidates, they are the best settings of the set that is tuned on: all that
        is tuned on comes before. There every setting is tried on the first seed, and the finalists
        on the others. Where all candidates diverge, the next best of that set is one.
        """
        first = [place for place in places if self._candidates(place) is None]
        others = [place for place in places if place not in first]
        tuned = [self._tuned(place) for place in others]
        due = [(place, name) for place in first for name in methods[place]]
        due += [
            (home, name)
            for place, home in zip(others, tuned, strict=True)
            for name in methods[place]
        ]
        tried = (each for place, name in due for each in self._of(place, name))
        self.fetch([*self._oracles(places), *tried])
        self.fetch(each for place, name in due for each in self._of_finalists(place, name))
        known = -1
        while known < len(self.studies):  # one that has diverged calls for another
            known = len(self.studies)
            self.fetch(
                each
                for place in others
                for name in methods[place]
                for each in self._of(place, name)
            )

    def best(self, place: Place, method: str) -> Chosen | None:
        """The setting that is best on validation items; None where no study is there."""
        ranking = self._ranking(place, method)
        return ranking[0] if ranking else None

    def _of(self, place: Place, method: str) -> list[Needed]:
        seeds, settings = self.seeds(place), self._settings(place, method)
        seeds = seeds[:1] if len(settings) > self.paper.finalists(place) else seeds
        return [self._needed(place, method, each, seed) for seed in seeds for each in settings]

    def _of_finalists(self, place: Place, method: str) -> list[Needed]:
        ranking = self._ranking(place, method)[: self.paper.finalists(place)]
        return [
            self._needed(place, method, each.setting, seed)
            for seed in self.seeds(place)
            for each in ranking
        ]

    def _needed(self, place: Place, method: str, setting: Setting, seed: int) -> Needed:
        return Needed(place, method, setting, seed, self.paper.rounds(place))

    def _settings(self, place: Place, method: str) -> list[Setting]:
        """That are tried."""
        if place.protocol != "clean":
            return [self.paper.pinned(place, method)]
        count = self._candidates(place)
        if count is None:
            return self.paper.grid(method)
        ranked = [each.setting for each in self._ranking(self._tuned(place), method)]
        diverged = [self._diverged(place, method, setting) for setting in ranked]
        while count < len(ranked) and all(diverged[:count]):
            count += 1
        return ranked[:count]

    def _diverged(self, place: Place, method: str, setting: Setting) -> bool:
        needed = self._needed(place, method, setting, self.seeds(place)[0])
        return needed in self.studies and self.studies[needed].diverged

    def _ranking(self, place: Place, method: str) -> list[Chosen]:
        """Settings with a study, those of the most seeds first, then the best on validation."""
        found = []
        for setting in self._settings(place, method):
            own = self.of_setting(place, method, setting)
            if own:
                found.append(Chosen(setting, own))
        return sorted(found, key=_merit, reverse=True)

    def of_setting(
        self, place: Place, method: str, setting: Setting, part: str = ""
    ) -> dict[int, Found]:
        """Its studies by seed; those that diverged are none."""
        needed = {
            seed: Needed(place, method, setting, seed, self.paper.rounds(place, part))
            for seed in self.seeds(place, part)
        }
        return self._found(needed)

    def oracles(self, place: Place) -> dict[int, Found]:
        """Studies of rules without a model, by seed."""
        return self._found({seed: self.paper.oracles(place, seed) for seed in self.seeds(place)})

    def _found(self, needed: Mapping[int, Needed]) -> dict[int, Found]:
        there = {seed: self.studies[each] for seed, each in needed.items() if each in self.studies}
        return {seed: found for seed, found in there.items() if not found.diverged}

    def _oracles(self, places: Sequence[Place]) -> list[Needed]:
        return [self.paper.oracles(place, seed) for place in places for seed in self.seeds(place)]

    def _candidates(self, place: Place) -> int | None:
        return None if place.protocol != "clean" else self.paper.candidates(place.data)

    def _tuned(self, place: Place) -> Place:
        return place._replace(data=str(self.paper.protocols["clean"]["tuned_on"]))


def _merit(chosen: Chosen) -> tuple[float, ...]:
    """Seeds, then validation HR@10 and NDCG@10 of the round that is reported, mean over seeds."""
    reports = [found.report for found in chosen.found.values()]
    rounds = [report["rounds"][report["chosen"] - 1]["quality"] for report in reports]
    return (len(reports), *(float(np.mean([each[name] for each in rounds])) for name in _NAMES))
