"""Every case of the zoo is on its right side, and its outcome says what was compared."""

import pytest

from secure_fedrec.errors import LosslessnessError
from secure_fedrec.properties import assert_lossless, compare_runs
from tests.properties.lossless_zoo import CASES


@pytest.mark.parametrize("name", CASES)
def test_case_is_on_its_right_side(name: str) -> None:
    case = CASES[name]
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
