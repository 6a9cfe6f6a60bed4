"""The name of a public state: every bit of it counts, and the order of its parts does not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.masking import Expected, Later, Purpose, Statement, state_hash
from tests.statements import LATER, about

STATE: dict[str, Any] = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True])}


def test_every_bit_shape_type_and_name_counts() -> None:
    nearly = STATE["a"].copy()
    nearly[1, 2] = np.nextafter(5.0, 6.0)
    others = [
        state_hash(STATE),
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


def test_a_client_reveals_once_for_a_state_and_a_purpose_under_any_layout() -> None:
    def once(layout: bytes, stated: Statement | Later | None) -> bytes:
        return Expected(layout_hash=layout, statement=stated).once

    stated = about(state_hash(STATE))
    purposes = [replace(stated, purpose=purpose) for purpose in Purpose]
    for each in purposes:
        # A layout is as large as a ring: a server that could vary one would have a second sum.
        assert once(b"1" * 32, each) == once(b"2" * 32, each) == each.once
    assert len({each.once for each in purposes}) == len(Purpose) == 3
    other = replace(stated, state=state_hash({"a": STATE["a"]}))
    assert once(b"1" * 32, other) != once(b"1" * 32, stated)
    for unknown in (None, LATER, stated.later):
        assert once(b"1" * 32, unknown) == b""


def test_what_a_vector_is_computed_from_is_named_exactly_where_it_comes_later() -> None:
    stated = about(state_hash(STATE))
    now = Expected(layout_hash=bytes(32), statement=stated)
    later = Expected(layout_hash=bytes(32), statement=stated.later)
    assert now.agreed() == later.agreed(stated) == (stated.digest, stated.once)
    assert Expected(layout_hash=bytes(32)).agreed() is None
    assert (now.stated, later.stated) == (stated.digest, stated.later.digest)
    assert now.stated != later.stated
    for expected, named in ((now, stated), (later, None), (Expected(layout_hash=b""), stated)):
        with pytest.raises(
            ConfigError, match="exactly where the round begins with a later statement"
        ):
            expected.agreed(named)
    stranger = replace(stated, federation=b"g" * 32)
    with pytest.raises(ConfigError, match=r"statement\.federation"):
        later.agreed(stranger)
    assert stranger.later.digest != stated.later.digest
