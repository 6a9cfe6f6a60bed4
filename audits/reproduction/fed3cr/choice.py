"""The studies that a method needs, and the setting that is reported, chosen on validation only."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from audits.reproduction.fed3cr.paper import Needed, Place, StudySource, find_studies
from audits.reproduction.fed3cr.search import WORST, Search, Setting
from audits.reproduction.progress import Found

_NAMES = ("validation_hit_rate_at_10", "validation_ndcg_at_10")


class Chosen(NamedTuple):
    """What is reported of a method.

    Attributes:
        setting: of it.
        found: its studies by seed; those that there are.
    """

    setting: Setting
    found: dict[int, Found]


class Tuning(NamedTuple):
    """How a method's search has gone.

    Attributes:
        studies: that were tried.
        ended: whether none is left to be tried.
        edges: keys whose chosen value is the last that was tried, though there are more behind.
        along: validation HR@10 of the first seed by key and value, the best of what has that value.
    """

    studies: int
    ended: bool
    edges: list[str]
    along: dict[str, dict[str, float]]


class Library:
    """The studies that were found or made so far.

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

        A search makes one study after the other on the first seed; its finalists are trained on all
        seeds, and longer where they need it. If settings are taken from another data set and all
        that are tried diverge, the next one is tried.
        """
        self.fetch(self._oracles(places))
        for place in places:
            for method in methods[place]:
                searched = self.paper.tuned(place) or not self.paper.carried(method)
                if place.protocol == "clean" and searched:
                    self._tune(self._home(place), method)
        for due in (self._of, self._of_finalists):
            known = -1
            while known < len(self.studies):  # a result may ask for further studies
                known = len(self.studies)
                self.fetch(
                    each for place in places for name in methods[place] for each in due(place, name)
                )

    def best(self, place: Place, method: str) -> Chosen | None:
        """The setting that is best on validation items; None where no study is there."""
        return max(self._ranking(place, method), key=_merit, default=None)

    def tuning(self, place: Place, method: str) -> Tuning | None:
        """How the search of a method has gone; None where there is none."""
        chosen = self.best(place, method)
        if not self.paper.tuned(place) or chosen is None:
            return None
        space, search = self.paper.space(method), self.search(place, method)
        point = next(each for each in search.tried if space.setting(each) == chosen.setting)
        merits = self._merits(place, method)
        return Tuning(
            studies=len(search.tried),
            ended=search.ended,
            edges=space.edges(point, search.tried),
            along=space.along({each: merits[space.setting(each)] for each in search.tried}),
        )

    def search(self, place: Place, method: str) -> Search:
        """The search of a method, as far as its studies go."""
        return self.paper.space(method).search(self._merits(place, method), self.paper.budget)

    def _merits(self, place: Place, method: str) -> dict[Setting, float]:
        """The studies that may belong to a search, by setting."""
        return {
            each.setting: WORST if found.diverged else _merit_of([found.report])[0]
            for each, found in self.studies.items()
            if each == self._needed(place, method, each.setting)
        }

    def _tune(self, place: Place, method: str) -> None:
        known = -1
        while known < len(self.studies):
            known, due = len(self.studies), self.search(place, method).next
            if due is not None:
                self.fetch([self._needed(place, method, due)])

    def _of(self, place: Place, method: str) -> list[Needed]:
        """Studies whose settings do not follow from a search."""
        if self.paper.tuned(place):
            return []
        return [
            self._needed(place, method, each, seed)
            for seed in self.seeds(place)
            for each in self._settings(place, method)
        ]

    def _of_finalists(self, place: Place, method: str) -> list[Needed]:
        if not self.paper.tuned(place):
            return []
        return [
            self._needed(place, method, each, seed, self._lengths(place, method, each)[-1])
            for each in self._finalists(place, method)
            for seed in self.seeds(place)
        ]

    def _needed(
        self,
        place: Place,
        method: str,
        setting: Setting,
        seed: int | None = None,
        rounds: int | None = None,
    ) -> Needed:
        """A study, by default of the first seed and with the usual number of rounds."""
        return Needed(
            place,
            method,
            setting,
            self.seeds(place)[0] if seed is None else seed,
            self.paper.rounds(place, method=method) if rounds is None else rounds,
        )

    def _settings(self, place: Place, method: str) -> list[Setting]:
        """The studies that are compared on validation."""
        if place.protocol != "clean":
            return [self.paper.pinned(place, method)]
        carried = self.paper.carried(method) or self._finalists(self._home(place), method)
        count = self.paper.candidates(place.data)
        diverged = [self._diverged(place, method, setting) for setting in carried]
        while count < len(carried) and all(diverged[:count]):
            count += 1
        return carried[:count]

    def _home(self, place: Place) -> Place:
        """The place where the methods of a place are tuned."""
        return place._replace(data=self.paper.tuned_on)

    def _finalists(self, place: Place, method: str) -> list[Setting]:
        """The best settings of a search, without those that diverge on a seed."""
        space, search = self.paper.space(method), self.search(place, method)
        settings = [space.setting(point) for point in search.tried]
        studies = {each: self.studies[self._needed(place, method, each)] for each in settings}
        ranked = sorted(
            (each for each, found in studies.items() if not found.diverged),
            key=lambda each: _merit_of([studies[each].report]),
            reverse=True,
        )
        kept = [each for each in ranked if not self._diverged(place, method, each)]
        return kept[: self.paper.finalists]

    def _diverged(self, place: Place, method: str, setting: Setting) -> bool:
        """Whether it is known to diverge on a seed."""
        needed = [self._needed(place, method, setting, seed) for seed in self.seeds(place)]
        return any(each in self.studies and self.studies[each].diverged for each in needed)

    def _lengths(self, place: Place, method: str, setting: Setting) -> list[int]:
        """Rounds of a finalist: doubled as long as a chosen round is among the last tenth."""
        lengths = [self.paper.rounds(place, method=method)]
        while (longer := self.paper.longer(lengths[-1])) is not None:
            found = self.of_setting(place, method, setting, rounds=lengths[-1])
            reports = [each.report for each in found.values()]
            if len(found) < len(self.seeds(place)) or not any(map(at_its_end, reports)):
                break
            lengths.append(longer)
        return lengths

    def _ranking(self, place: Place, method: str) -> list[Chosen]:
        """Settings with a study; finalists with the most rounds that all of their seeds have."""
        if not self.paper.tuned(place):
            settings = self._settings(place, method)
            found = [Chosen(each, self.of_setting(place, method, each)) for each in settings]
        else:
            found = [
                max(
                    (
                        Chosen(each, self.of_setting(place, method, each, rounds=rounds))
                        for rounds in reversed(self._lengths(place, method, each))
                    ),
                    key=lambda chosen: len(chosen.found),
                )
                for each in self._finalists(place, method)
            ]
        return [each for each in found if each.found]

    def of_setting(
        self,
        place: Place,
        method: str,
        setting: Setting,
        part: str = "",
        *,
        rounds: int | None = None,
    ) -> dict[int, Found]:
        """Its studies by seed, by default with the usual rounds, without those that diverged."""
        length = self.paper.rounds(place, part, method) if rounds is None else rounds
        seeds = self.seeds(place, part)
        return self.found(self._needed(place, method, setting, seed, length) for seed in seeds)

    def oracles(self, place: Place) -> dict[int, Found]:
        """Studies of rules without a model, by seed."""
        return self.found(self._oracles([place]))

    def found(self, needed: Iterable[Needed]) -> dict[int, Found]:
        """The existing studies by seed; empty if one diverged."""
        there = {each.seed: self.studies[each] for each in needed if each in self.studies}
        return {seed: found for seed, found in there.items() if not found.diverged}

    def _oracles(self, places: Sequence[Place]) -> list[Needed]:
        return [self.paper.oracles(place, seed) for place in places for seed in self.seeds(place)]


def at_its_end(report: Mapping[str, Any]) -> bool:
    """Whether the chosen round is among the last tenth, so that later ones may be better."""
    return "diverged" not in report and 10 * report["chosen"] > 9 * len(report["rounds"])


def _merit(chosen: Chosen) -> tuple[float, ...]:
    """Sort key: the number of seeds, so that no study counts against a setting; ``_merit_of``."""
    reports = [found.report for found in chosen.found.values()]
    return (len(reports), *_merit_of(reports))


def _merit_of(reports: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Validation HR@10 and NDCG@10 of the round that is reported, mean over seeds."""
    rounds = [report["rounds"][report["chosen"] - 1]["quality"] for report in reports]
    return tuple(float(np.mean([each[name] for each in rounds])) for name in _NAMES)
