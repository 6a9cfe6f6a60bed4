"""What an audit takes for granted of an attack: inherit ``AttackContract``, say which, run pytest.

    class TestMine(AttackContract):
        attack = Mine()

The attacks of the suite are tested by the same class.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from itertools import product
from math import isfinite
from typing import Any, ClassVar

from attacks.base import Controlled
from attacks.planted.controls import FEDERATIONS, WHO, control_result, planted, planted_finding
from attacks.scoring.games import Finding, evaluate
from attacks.scoring.measures import MEASURES
from secure_fedrec.testing.said import require, unsaid
from secure_fedrec.traits import TRAITS
from secure_fedrec.wire import Adversary, Transcript


class AttackContract:
    """An attack before every adversary of every planted federation.

    Raises:
        AssertionError: by each test, what is not kept.
    """

    attack: ClassVar[Controlled] = unsaid()

    def test_it_says_what_it_is(self) -> None:
        """Name, all lines of its card, and a control whose figure has a floor."""
        require(bool(self.attack.name), "has no name")
        for line in fields(self.attack.card):
            require(bool(getattr(self.attack.card, line.name)), f"says nothing of its {line.name}")
        require(self.attack.control.measure in MEASURES, "is controlled by an unknown figure")

    def test_it_finds_what_is_planted(self) -> None:
        """The figure of its control reaches the floor."""
        found, why = control_result(self.attack), planted_finding(self.attack).reason
        require(found.passed, f"reaches {found.metric} {found.value}, not {found.floor}; {why}")

    def test_every_view_is_answered(self) -> None:
        """With claims, or with the reason why there are none; twice with the same."""
        for place, who in product(FEDERATIONS, WHO):
            transcript, where = planted(place)[0].transcript, f"as {who} of {place}"
            found = self._found(transcript, place, who)
            require(found.reason != "", f"gives no reason {where}")
            json.dumps(dict(found.details))  # refuses what is no JSON value
            again = self._found(transcript, place, who)
            require(again.figures == found.figures, f"has other figures the second time {where}")
            values = [value for value in found.figures.values() if value is not None]
            require(all(map(isfinite, values)), f"has figures that are not finite {where}")

    def test_who_sees_little_is_answered(self) -> None:
        """One client, and one denoiser: with claims or a reason."""
        for place, corrupt in product(FEDERATIONS, ({"client:0"}, {"denoiser:0"})):
            run, truth = planted(place)
            little = Adversary(name="little", corrupt=frozenset(corrupt))
            found = evaluate(self.attack, little, run.transcript, truth, seed=0)
            require(found.reason != "", f"gives no reason to {corrupt} of {place}")

    def test_what_nobody_stated_helps_nobody(self) -> None:
        """Without a trait it finds no more than with it, or says which one is missing.

        A trait of which another value is a reason not to run is missing where it is not stated.
        """
        transcript = planted(self.attack.control.on)[0].transcript
        for whose in ("protection", "algorithm"):
            for trait in transcript.public[whose]["traits"]:
                lacking = f"where the {whose} does not state {trait!r}"
                found, value = self._no_more(_stating(transcript, whose, {trait: None}), lacking)
                silent = trait in found.reason if found.reason else True
                require(silent, f"{found.reason}, {lacking}")
                for other in TRAITS.get(trait, ()) if value is not None else ():
                    told = self._told(_stating(transcript, whose, {trait: other}))
                    need = f"needs no {trait!r} of the {whose}, and {other!r} is a reason"
                    require(told.reason is None, f"{need}: {told.reason}")

    def test_an_unstated_fact_is_unknown(self) -> None:
        """Without a fact it finds no more than with it, or says which one is missing."""
        transcript = planted(self.attack.control.on)[0].transcript
        for path in _facts(transcript.public):
            lacking = f"where {path[-1]!r} is not stated"
            told = transcript.stating(_without(transcript.public, path))
            reason = self._no_more(told, lacking)[0].reason or path[-1]
            # Claims that the fact would have given a name are there, and nothing judges them.
            named = path[-1] in reason or "nothing to judge the claims by" in reason
            require(named, f"{reason}, {lacking}")

    def _no_more(self, told: Transcript, lacking: str) -> tuple[Finding, float | None]:
        """What it finds in another recording of its control, no more than there; and the figure."""
        key = self.attack.control.measure
        most, found = planted_finding(self.attack).figures.get(key), self._told(told)
        value = found.figures.get(key)
        more = value is not None and (most is None or value > most)
        require(not more, f"finds more {lacking}")
        return found, value

    def _told(self, transcript: Transcript) -> Finding:
        return self._found(transcript, self.attack.control.on, self.attack.control.who)

    def _found(self, transcript: Transcript, place: str, who: str) -> Finding:
        return evaluate(self.attack, WHO[who], transcript, planted(place)[1], seed=0)


_FORM = ("ring", "blocks", "protection", "traits", "name")
"""Public knowledge that says how a recording is read, and what has tests of its own."""


def _facts(public: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Where the facts of the public knowledge stand."""
    top = [(name,) for name in public if name not in (*_FORM, "algorithm")]
    return [*top, *(("algorithm", name) for name in public["algorithm"] if name not in _FORM)]


def _without(public: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The public knowledge less one fact."""
    first, *rest = path
    inside = {first: _without(public[first], tuple(rest))} if rest else {}
    return {name: value for name, value in public.items() if name != first} | inside


def _stating(transcript: Transcript, whose: str, other: Mapping[str, Any]) -> Transcript:
    """The same recording with other traits; None is not stated."""
    known = transcript.public[whose]
    traits = {**known["traits"], **other}
    kept = {name: value for name, value in traits.items() if value is not None}
    return transcript.stating({**transcript.public, whose: {**known, "traits": kept}})
