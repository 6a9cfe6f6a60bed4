"""What an audit takes for granted of an attack: inherit ``AttackContract``, say which, run pytest.

    class TestMine(AttackContract):
        attack = Mine()

The attacks of the suite are tested by the same class.
"""

import json
from dataclasses import fields
from itertools import product
from typing import ClassVar

from attacks.base import Controlled
from attacks.planted.controls import FEDERATIONS, WHO, planted, planted_finding
from attacks.scoring.games import Finding, evaluate
from attacks.suite import MEASURES
from secure_fedrec.wire import Transcript


class AttackContract:
    """An attack before every adversary of every planted federation.

    Raises:
        AssertionError: by each test, what is not kept.
    """

    attack: ClassVar[Controlled]

    def test_it_says_what_it_is(self) -> None:
        """Name, all lines of its card, and a control whose figure has a floor."""
        _require(bool(self.attack.name), "has no name")
        for line in fields(self.attack.card):
            _require(bool(getattr(self.attack.card, line.name)), f"says nothing of its {line.name}")
        _require(self.attack.control.measure in MEASURES, "is controlled by an unknown figure")

    def test_it_finds_what_is_planted(self) -> None:
        """The figure of its control reaches the floor."""
        control, found = self.attack.control, planted_finding(self.attack)
        floor = MEASURES[control.measure].severity.floor if control.floor is None else control.floor
        value = found.figures.get(control.measure)
        _require(
            value is not None and value >= float(floor),
            f"reaches {control.measure} {value}, not {floor}; {found.reason}",
        )

    def test_every_view_is_answered(self) -> None:
        """With claims, or with the reason why there are none; twice with the same."""
        for place, who in product(FEDERATIONS, WHO):
            transcript, where = planted(place)[0].transcript, f"as {who} of {place}"
            found = self._found(transcript, place, who)
            _require(found.reason != "", f"gives no reason {where}")
            json.dumps(dict(found.details))  # refuses what is no JSON value
            again = self._found(transcript, place, who)
            _require(again.figures == found.figures, f"has other figures the second time {where}")

    def test_what_nobody_stated_helps_nobody(self) -> None:
        """Without a trait it finds no more than with it, or says which one is missing."""
        control = self.attack.control
        transcript = planted(control.on)[0].transcript
        most = self._found(transcript, control.on, control.who).figures.get(control.measure)
        for whose in ("protection", "algorithm"):
            for trait in transcript.public[whose]["traits"]:
                found = self._found(_without(transcript, whose, trait), control.on, control.who)
                value = found.figures.get(control.measure)
                silent = trait in found.reason if found.reason else True
                _require(silent, f"{found.reason}, where the {whose} does not state {trait!r}")
                more = value is not None and (most is None or value > most)
                _require(not more, f"finds more where the {whose} does not state {trait!r}")

    def _found(self, transcript: Transcript, place: str, who: str) -> Finding:
        return evaluate(self.attack, WHO[who], transcript, planted(place)[1], seed=0)


def _without(transcript: Transcript, whose: str, trait: str) -> Transcript:
    """The same recording, where a trait is not stated."""
    known = transcript.public[whose]
    kept = {name: value for name, value in known["traits"].items() if name != trait}
    return transcript.stating({**transcript.public, whose: {**known, "traits": kept}})


def _require(kept: bool, problem: str) -> None:
    if not kept:
        raise AssertionError(problem)
