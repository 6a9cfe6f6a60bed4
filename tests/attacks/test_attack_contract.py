"""Every attack of the suite keeps the contract that an implementer inherits."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from attacks import SUITE, Claims, NotApplicable
from attacks.base import Controlled
from attacks.planted.controls import planted
from attacks.testing import AttackContract
from secure_fedrec.wire import View

for attack in SUITE.values():
    case = "Test" + attack.name.title().replace("-", "")
    globals()[case] = type(case, (AttackContract,), {"attack": attack})


class Faulty:
    """An attack of the suite with one fault."""

    def __init__(self, attack: Controlled, run: Callable[[Controlled, View], Any]) -> None:
        self.name, self.card, self.control = attack.name, attack.card, attack.control
        self._inner, self._run = attack, run

    def run(self, view: View) -> Claims | NotApplicable:
        found: Claims | NotApplicable = self._run(self._inner, view)
        return found


def contract_of(attack: Any) -> AttackContract:
    return type("Mine", (AttackContract,), {"attack": attack})()  # type: ignore[no-any-return]


def unfinished(inner: Controlled, view: View) -> Any:
    return NotApplicable(reason="") if view.adversary.has("denoisers") else inner.run(view)


def ignorant(inner: Controlled, view: View) -> Any:
    del inner, view
    return NotApplicable(reason="nobody told me anything")


def crashing(inner: Controlled, view: View) -> Any:
    if not view.adversary.has("server"):
        raise KeyError("server")
    return inner.run(view)


@pytest.mark.parametrize(
    ("run", "test", "says"),
    [
        (unfinished, "test_every_view_is_answered", "gives no reason as server"),
        (ignorant, "test_it_finds_what_is_planted", "nobody told me anything"),
        (ignorant, "test_what_nobody_stated_helps_nobody", "nobody told me anything, where"),
    ],
)
def test_what_breaks_the_contract_is_told(run: Any, test: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        getattr(contract_of(Faulty(SUITE["intersection"], run)), test)()


def test_an_attack_that_sees_little_must_not_crash() -> None:
    with pytest.raises(KeyError):
        contract_of(Faulty(SUITE["intersection"], crashing)).test_who_sees_little_is_answered()


def test_an_attack_must_be_named() -> None:
    with pytest.raises(AssertionError, match="say which `attack`"):
        AttackContract().test_it_says_what_it_is()


def test_an_attack_that_trusts_in_what_nobody_stated_is_told() -> None:
    stated = planted("ratings")[0].transcript.public["algorithm"]

    def trusting(inner: Controlled, view: View) -> Any:
        known = view.public["algorithm"]
        whole = {**known, "traits": {**stated["traits"], **known["traits"]}}
        view.public = MappingProxyType({**view.public, "algorithm": whole})
        return inner.run(view)

    with pytest.raises(AssertionError, match="needs no 'row_sets' of the algorithm"):
        contract_of(Faulty(SUITE["denoiser-sums"], trusting)).test_what_nobody_stated_helps_nobody()
