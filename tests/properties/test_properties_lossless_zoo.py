"""Every case of the zoo is on its right side, and its outcome says what was compared."""

from dataclasses import replace

import numpy as np
import pytest

from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.errors import ConfigError, LosslessnessError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import Scope, assert_lossless, compare_runs
from tests.properties.lossless_zoo import CASES, CLIENTS, ITEMS, WIDTH
from tests.properties.lossless_zoo_layers import Overwrites
from tests.properties.lossless_zoo_losses import LOSSES


@pytest.mark.claim("lossless-reference")
@pytest.mark.parametrize("name", CASES | LOSSES)
def test_case_is_on_its_right_side(name: str) -> None:
    case = (CASES | LOSSES)[name]
    outcome = compare_runs(**case.arguments())
    assert outcome.verdict == case.expected, str(outcome)
    assert case.says in (outcome.first_difference or "")
    assert outcome.holds == case.expected.startswith("lossless")
    if outcome.holds:
        assert assert_lossless(**case.arguments()) == outcome
    else:
        with pytest.raises(LosslessnessError) as refused:
            assert_lossless(**case.arguments())
        assert str(refused.value).startswith(case.expected.replace("nothing", "nothing was"))


def test_ratings_that_a_stack_overwrites_are_its_fault() -> None:
    case = CASES["plain sums"]
    own = generate(SyntheticConfig(clients=CLIENTS, items=ITEMS, mean_ratings=6, seed=2))
    sums = {"n_clients": CLIENTS, "n_items": ITEMS, "width": WIDTH, "codec": FixedPoint()}
    stack = replace(case.stack(), collector=Overwrites(own.ratings, **sums))
    outcome = compare_runs(**case.arguments() | {"ratings": own, "stack": stack})
    assert outcome.verdict == "not lossless: the stack"
    assert outcome.first_difference == "round 1, the ratings themselves were overwritten"


@pytest.mark.parametrize("named", [[0, 8], [0, 0, 1]])
def test_a_scope_of_strangers_is_refused(named: list[int]) -> None:
    scope = Scope(taking_part=lambda invited: np.array(named))
    with pytest.raises(ConfigError, match=r"scope\.taking_part"):
        scope.due(np.arange(8))


def test_a_scope_cannot_change_who_is_invited() -> None:
    def everybody(invited: np.ndarray) -> np.ndarray:
        invited[:] = 0
        return np.arange(2)

    invited = np.arange(4)
    assert Scope(taking_part=everybody).due(invited).tolist() == [0, 1]
    assert invited.tolist() == [0, 1, 2, 3]
