"""What an audit requires of an attack: inherit ``AttackContract``, set ``attack``, run pytest.

    class TestMine(AttackContract):
        attack = Mine()

The attacks of the suite are tested by the same class. The checks that need no run,
``require_attack`` and ``require_measures``, are also applied to every attack that an audit loads as
a plug-in.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from itertools import product
from math import isfinite
from typing import Any, ClassVar

from attacks.base import AttackCard, Control, Controlled
from attacks.planted.controls import FEDERATIONS, WHO, control_result, planted, planted_finding
from attacks.scoring.games import Finding, evaluate
from attacks.scoring.measures import MEASURES, Measure, require_gains
from attacks.suite import SUITE
from secure_fedrec.protection import STOPS
from secure_fedrec.testing.said import require, unsaid
from secure_fedrec.traits import TRAITS
from secure_fedrec.wire import Adversary, Transcript


def require_attack(attack: Any) -> None:
    """Check what an attack states: its name, all lines of its card, and its control.

    Raises:
        AssertionError: names what is missing or unknown.
    """
    require(not isinstance(attack, type), "is a class, but must be an object")
    for part in ("name", "card", "control", "run"):
        require(hasattr(attack, part), f"has no {part}")
    require(bool(attack.name), "does not have a name")
    plain = isinstance(attack.name, str) and re.fullmatch(r"[\w.-]+", attack.name)
    require(bool(plain), "has a name with characters other than letters, digits, '-', '_' and '.'")
    require(
        attack.name not in ("all", "none", "unread", "unpriced"),
        "has a name that has another meaning",
    )
    require(isinstance(attack.card, AttackCard), "has a card that is not an AttackCard")
    for line in fields(attack.card):
        require(bool(getattr(attack.card, line.name)), f"does not state its {line.name}")
    control = attack.control
    require(isinstance(control, Control), "has a control that is not a Control")
    require(control.measure in MEASURES, "is controlled by an unknown figure")
    floor = control.floor if control.floor is not None else MEASURES[control.measure].severity.floor
    require(not isinstance(floor, str), f"is controlled by {control.measure}, which has no floor")
    number = isinstance(floor, int | float) and isfinite(floor) and floor > 0
    require(number, f"is controlled with the floor {floor!r}, not a number above 0")
    require(control.on in FEDERATIONS, "is controlled on an unknown federation")
    require(control.who in WHO, "is controlled by an unknown adversary")
    require(control.breaks in STOPS, "breaks something that no layer hides")
    require(callable(attack.run), "cannot be run")


def require_measures(measures: Any) -> None:
    """Check figures of an attack: records by key, with a secret, judged by known figures.

    Raises:
        AssertionError: names what is missing or unknown.
    """
    require(
        isinstance(measures, Mapping) and bool(measures), "are not a mapping of Measures by key"
    )
    for key, each in measures.items():
        require(isinstance(each, Measure), f"have {key!r}, which is not a Measure")
        require(each.key == key, f"have {each.key!r} under the key {key!r}")
        require(
            bool(each.secret.strip()), f"have {key!r}, which does not say which secret it tells"
        )
    try:
        require_gains(measures, {**MEASURES, **measures})
    except ValueError as refused:
        raise AssertionError(f"are not judged: {refused}") from refused


class AttackContract:
    """Tests an attack with every adversary of every planted federation.

    While its tests run, the attack is in the suite, with the ``measures`` that it brings.

    Raises:
        AssertionError: a test names the part of the contract that is broken.
    """

    attack: ClassVar[Controlled] = unsaid()

    def setup_method(self) -> None:
        """Add the attack to the suite, unless a shipped attack has its name."""
        for key, measure in getattr(self.attack, "measures", {}).items():
            MEASURES.add(key, measure, _TESTED)
        if self.attack.name not in SUITE.shipped:
            SUITE.add(self.attack.name, self.attack, _TESTED)

    def teardown_method(self) -> None:
        """Take it away again."""
        SUITE.remove(self.attack.name)
        for key in getattr(self.attack, "measures", {}):
            MEASURES.remove(key)

    def test_it_says_what_it_is(self) -> None:
        """It states its name, all lines of its card, and a control whose figure has a floor."""
        require_attack(self.attack)
        if measures := getattr(self.attack, "measures", {}):
            require_measures(measures)

    def test_it_finds_what_is_planted(self) -> None:
        """The figure of its control reaches the floor."""
        found, why = control_result(self.attack), planted_finding(self.attack).reason
        reached = f"its control reaches {found.metric} {found.value}, and Control(floor=...) asks "
        require(found.passed, f"{reached}for {found.floor}{f'; {why}' if why else ''}")

    def test_every_view_is_answered(self) -> None:
        """Every view is answered with claims or a reason, twice in the same way."""
        for place, who in product(FEDERATIONS, WHO):
            transcript, where = planted(place)[0].transcript, f"as {who} of {place}"
            found = self._found(transcript, place, who)
            require(found.reason != "", f"gives no reason {where}")
            json.dumps(dict(found.details))  # raises if it is not JSON
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
        """Without a trait it finds at most what it finds with it, or says which one is missing.

        If another value of a trait is a reason not to run, an unstated trait must be reported as
        missing.
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
        """Without a fact it finds at most what it finds with it, or says which one is missing."""
        transcript = planted(self.attack.control.on)[0].transcript
        for path in _facts(transcript.public):
            lacking = f"where {path[-1]!r} is not stated"
            told = transcript.stating(_without(transcript.public, path))
            reason = self._no_more(told, lacking)[0].reason or path[-1]
            # Without the fact, claims are made but cannot be judged.
            named = path[-1] in reason or "nothing to judge the claims by" in reason
            require(named, f"{reason}, {lacking}")

    def _no_more(self, told: Transcript, lacking: str) -> tuple[Finding, float | None]:
        """Check that it does not find more in a changed recording; returns the figure."""
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


_TESTED = "of this test"

_FORM = ("ring", "blocks", "protection", "traits", "name")
"""Public knowledge about reading a recording, which is tested elsewhere."""


def _facts(public: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Keys of the facts of the public knowledge."""
    top = [(name,) for name in public if name not in (*_FORM, "algorithm")]
    return [*top, *(("algorithm", name) for name in public["algorithm"] if name not in _FORM)]


def _without(public: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The public knowledge without one fact."""
    first, *rest = path
    inside = {first: _without(public[first], tuple(rest))} if rest else {}
    return {name: value for name, value in public.items() if name != first} | inside


def _stating(transcript: Transcript, whose: str, other: Mapping[str, Any]) -> Transcript:
    """The same recording with other traits; a trait that is None is not stated."""
    known = transcript.public[whose]
    traits = {**known["traits"], **other}
    kept = {name: value for name, value in traits.items() if value is not None}
    return transcript.stating({**transcript.public, whose: {**known, "traits": kept}})
