"""What was computed last is kept, within its bound."""

from functools import partial

from secure_fedrec.core.bounded import Bounded


def made_of(*names: str) -> list[str]:
    """What has to be made of what is asked for, in a memory for four letters."""
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    kept: Bounded[str] = Bounded(4, len)
    for name in names:
        assert kept.get(name, partial(make, name)) == name
    return made


def test_values_used_longest_ago_go_first() -> None:
    assert made_of("aa", "bb", "aa", "cc", "aa", "bb") == ["aa", "bb", "cc", "bb"]


def test_a_value_beyond_the_bound_pushes_nothing_out() -> None:
    assert made_of("aa", "too large", "aa", "too large") == ["aa", "too large", "too large"]
