"""The name of a public state: every bit of it counts, and the order of its parts does not."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.masking import Expected, state_hash

STATE: dict[str, Any] = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True])}


def test_every_bit_shape_type_name_and_purpose_counts() -> None:
    nearly = STATE["a"].copy()
    nearly[1, 2] = np.nextafter(5.0, 6.0)
    others = [
        state_hash(STATE),
        state_hash(STATE, purpose="score"),
        state_hash({**STATE, "a": nearly}),
        state_hash({**STATE, "a": STATE["a"].reshape(3, 2)}),
        state_hash({**STATE, "a": STATE["a"].astype(np.float32)}),
        state_hash({**STATE, "a": -0.0 * STATE["a"]}),
        state_hash({**STATE, "a": 0.0 * STATE["a"]}),
        state_hash({"a": STATE["b"], "b": STATE["a"]}),
        state_hash({"a": STATE["a"]}),
        state_hash({"ab": STATE["a"], "": STATE["b"]}),
    ]
    assert len(set(others)) == len(others)
    assert {len(each) for each in others} == {32}


def test_one_state_has_one_name_however_it_is_held() -> None:
    name = state_hash(STATE)
    assert state_hash(dict(reversed(STATE.items()))) == name
    assert state_hash({**STATE, "a": np.asfortranarray(STATE["a"])}) == name
    assert state_hash({**STATE, "a": STATE["a"].astype(">f8")}) == name
    assert state_hash({**STATE, "a": np.repeat(STATE["a"], 2, axis=1)[:, ::2]}) == name


@pytest.mark.parametrize("state", [{}, {"a": np.array([object()])}, {"a": np.array(["x"])}])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(ConfigError, match="state"):
        state_hash(state)


def test_a_sum_is_of_a_state_and_a_layout() -> None:
    state = state_hash(STATE)
    sums = {
        Expected(layout_hash=layout, public_state=each).sum_hash
        for layout in (b"1" * 32, b"2" * 32)
        for each in (state, state_hash(STATE, purpose="score"))
    }
    assert len(sums) == 4
    assert Expected(layout_hash=b"1" * 32).sum_hash == b""
