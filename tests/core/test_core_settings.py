"""Settings say what they hold, and refuse everything else under their own keys."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Literal, TypeVar, TypeVarTuple, cast

import numpy as np
import pytest
from typing_extensions import TypeAliasType

from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import (
    Count,
    Filled,
    Matching,
    Natural,
    NonNegative,
    OneOf,
    Positive,
    Probability,
    Rate,
    Refused,
    Round,
    Settings,
    Share,
    Unit,
    Within,
)
from secure_fedrec.settings.readers import reader


class Inner(Settings, section="inner"):
    size: Count = 1


class Everything(Settings, section="all"):
    flag: bool = True
    count: Count = 1
    natural: Natural = 0
    positive: Positive = 1.0
    non_negative: NonNegative = 0.0
    probability: Probability = 0.5
    rate: Rate = 0.5
    share: Share = 0.5
    word_size: Annotated[int, Within(1, 2**31 - 1)] = 1
    scale: Annotated[float, Within(2.0**-40, 2.0**40)] = 1.0
    span: Annotated[int, Within(8, 64, why="; a word")] = 8
    inside: Annotated[float, Within(above=0, below=1)] = 0.5
    beyond: Annotated[float, Within(above=2)] = 3.0
    word: Annotated[str, OneOf({"a": 1, "b": 2}, "no such word")] = "a"
    other: Annotated[str, OneOf("xy")] = "x"
    literal: Literal["p", "q"] = "p"
    order: Literal[1, 2] = 1
    title: Annotated[str, Filled()] = "t"
    widths: Annotated[tuple[Count, ...], Filled("needs some")] = (4, 2)
    pair: tuple[Share, Share] = (0.5, 0.5)
    rounds: tuple[Round, ...] | None = None
    names: frozenset[str] = frozenset()
    rates: Mapping[str, Rate] = field(default_factory=dict, hash=False)
    maybe: Positive | None = None
    inner: Inner = field(default_factory=Inner)
    free: Any = None
    computed: int = field(init=False, default=0)

    def _agree(self) -> None:
        if self.flag and self.count > 5:
            raise self.refusal("count", "is too many with {flag}", range(1, 6))


class Child(Everything):
    more: Count = 1


class Renamed(Everything, section="there.it"):
    def key(self, name: str) -> str:
        return f"--{name}"


REFUSED: list[tuple[str, Any, str]] = [
    ("flag", 1, "should be a valid boolean"),
    ("count", 0, "must be at least 1"),
    ("count", True, "should be a valid integer"),
    ("count", 2.0, "should be a valid integer"),
    ("count", "2", "should be a valid integer"),
    ("count", None, "should be a valid integer"),
    ("natural", -1, "must be at least 0"),
    ("positive", 0.0, "must be positive"),
    ("positive", math.nan, "must be finite"),
    ("positive", math.inf, "must be finite"),
    ("positive", 10**400, "must be finite"),
    ("positive", True, "should be a valid number"),
    ("positive", "1", "should be a valid number"),
    ("non_negative", -1e-9, "must be at least 0"),
    ("probability", 1.5, "must be between 0 and 1"),
    ("rate", 0.0, "must be above 0 and at most 1"),
    ("share", 1.0, "must be at least 0 and below 1"),
    ("word_size", 2**31, "must be between 1 and 2^31 - 1"),
    ("scale", 0.0, "must be between 2^-40 and 2^40"),
    ("span", 65, "must be between 8 and 64; a word"),
    ("inside", 1.0, "must be above 0 and below 1"),
    ("beyond", 2.0, "must be above 2"),
    ("word", "c", "no such word (choices: a, b)"),
    ("word", 3, "should be a valid string"),
    ("other", "z", "unknown (choices: x, y)"),
    ("literal", "r", "unknown (choices: p, q)"),
    ("literal", np.zeros(2), "unknown (choices: p, q)"),
    ("order", True, "unknown (choices: 1, 2)"),
    ("order", 1.0, "unknown (choices: 1, 2)"),
    ("title", " \t", "must not be empty"),
    ("widths", (), "needs some"),
    ("widths", 3, "should be a valid list"),
    ("pair", (0.5,), "should have 2 entries"),
    ("widths", {4, 2}, "should be a valid list"),
    ("names", "abc", "should be a valid list"),
    ("maybe", -1.0, "must be positive"),
    ("inner", {"size": 1}, "should be a valid Inner"),
]


@pytest.mark.parametrize(("name", "value", "problem"), REFUSED)
def test_a_value_that_breaks_its_rules_is_named(name: str, value: Any, problem: str) -> None:
    for kind, key in ((Everything, f"all.{name}"), (Child, f"all.{name}"), (Renamed, f"--{name}")):
        with pytest.raises(ConfigError) as found:
            kind(**{name: value})
        given = "" if value is None else f" = {value!r}"  # None was not written by anybody
        assert str(found.value) == f"{key}{given}: {problem}"


@pytest.mark.parametrize(
    ("name", "value", "part", "problem"),
    [
        ("widths", (4, 0), 0, "must be at least 1"),
        ("widths", [4, "x"], "x", "should be a valid integer"),
        ("pair", (0.5, 1.5), 1.5, "must be at least 0 and below 1"),
        ("rounds", (3, 0), 0, "must be at least 1: rounds count from 1"),
        ("names", ["a", 1], 1, "should be a valid string"),
        ("rates", {"a": 2.0}, 2.0, "must be above 0 and at most 1"),
        ("rates", {1: 0.5}, 1, "should be a valid string"),
    ],
)
def test_of_several_values_the_one_to_blame_is_named(
    name: str, value: Any, part: Any, problem: str
) -> None:
    with pytest.raises(ConfigError) as found:
        Everything(**{name: value})
    assert str(found.value) == f"all.{name} = {part!r}: {problem}"


def test_what_a_file_can_hold_stands_for_what_it_cannot() -> None:
    given: dict[str, Any] = {
        "positive": 2,
        "widths": [3, 1],
        "names": ["b", "a", "b"],
        "pair": [0, 0],
    }
    made = Everything(**given)
    assert made.positive == 2.0 and type(made.positive) is float
    assert made.widths == (3, 1)
    assert made.names == frozenset("ab")
    assert made.pair == (0.0, 0.0) and type(made.pair[0]) is float
    assert made == replace(made) and hash(made) == hash(replace(made))
    assert Everything(count=np.int64(3)) == Everything(count=3)  # type: ignore[arg-type]
    assert type(Everything(count=np.int64(3)).count) is int  # type: ignore[arg-type]


def test_fields_are_checked_before_what_they_are_together() -> None:
    with pytest.raises(
        ConfigError, match=r"all\.count = 6: is too many with \{flag\} \(choices: 1"
    ):
        Everything(count=6)
    assert Everything(count=6, flag=False).count == 6
    with pytest.raises(ConfigError, match=r"all\.share = 2\.0: must"):
        Everything(count=6, share=2)
    with pytest.raises(ConfigError, match=r"inner\.size = 0"):
        Inner(size=0)
    with pytest.raises(ConfigError, match=r"all\.more = 0"):
        Child(more=0)


def test_a_class_keeps_the_section_it_names() -> None:
    assert (Settings.section, Everything.section, Child.section) == ("", "all", "all")
    assert Renamed.section == "there.it"
    assert Settings().key("seed") == "seed"


def test_an_alias_of_a_type_statement_is_what_it_stands_for() -> None:
    """As NumPy's ``NDArray`` is from 2.5 on."""
    of = TypeVar("of")
    several = TypeAliasType("several", tuple[of, ...], type_params=(of,))
    number = TypeAliasType("number", Count)
    array = TypeAliasType("array", np.ndarray[Any, np.dtype[of]], type_params=(of,))

    class Aliased(Settings, section="aliased", eq=False):
        counts: several[number]
        words: array[np.uint32] | None = None

    words = np.zeros(2, dtype=np.uint32)
    made: Any = Aliased  # a list is taken for a tuple, which types do not know
    given = made(counts=[1, 2], words=words)
    assert given.counts == (1, 2)
    assert given.words is words
    for wrong, key in (({"counts": (1, 0)}, "counts"), ({"counts": (1,), "words": [1]}, "words")):
        with pytest.raises(ConfigError, match=rf"aliased\.{key}"):
            made(**wrong)


def test_parameters_of_an_alias_go_where_they_are_named() -> None:
    """Found by attacking: they went in the order in which they stand in what is meant."""
    one, other = TypeVar("one"), TypeVar("other")
    alias: Any = TypeAliasType  # the checker knows those of statements alone
    mapping: Any = Mapping
    swapped = alias("swapped", mapping[other, one], type_params=(one, other))
    itself = alias("itself", one, type_params=(one,))
    unused = alias("unused", int, type_params=(one,))
    least = alias("least", Annotated[int, Within(least=1)])
    kinds = {
        "table": swapped[int, str],
        "word": itself[str],
        "number": unused[str],
        "between": Annotated[least, Within(most=9)],
    }
    read = {name: reader(kind) for name, kind in kinds.items()}
    right = {"table": {"a": 1}, "word": "b", "number": 2, "between": 9}
    assert {name: read[name](value) for name, value in right.items()} == right
    for name, wrong in (("table", {1: "a"}), ("word", 1), ("number", "b"), ("between", 0)):
        with pytest.raises(Refused):
            read[name](wrong)
    with pytest.raises(Refused):
        read["between"](10)
    variadic: Any = TypeVarTuple
    several, held = variadic("several"), cast(Any, tuple)
    row = alias("row", held[(*several,)], type_params=(several,))
    with pytest.raises(TypeError, match="write out what it stands for"):
        reader(row[int, str])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("Count", "a field of 'Count' cannot be checked"),  # as by postponed annotations
        (object, "cannot be checked"),
        (int | object, "cannot be checked"),
        (TypeVar("Kind"), "cannot be checked"),
        (Annotated[int, "at least 1"], "are not rules"),
        (Annotated[int, Within], "are not rules"),
        (Annotated[int | None, Within(least=1)], "is a rule for numbers"),
        (Annotated[str, Within(least=1)], "is a rule for numbers"),
        (tuple[object, ...], "cannot be checked"),
        (tuple, "the values in a tuple"),
        (list[int], "the values in a list"),
        (Sequence[int] | None, "the values in a Sequence"),
        (Mapping[str, dict[str, int]], "the values in a dict"),
    ],
)
def test_a_field_that_cannot_be_checked_is_refused_when_its_class_is_made(
    kind: Any, says: str
) -> None:
    with pytest.raises(TypeError, match=r"Loose\.size: ") as refused:
        type("Loose", (Settings,), {"__annotations__": {"size": kind}}, section="loose")
    assert says in str(refused.value)


def test_fields_of_a_class_that_is_no_settings_are_looked_at_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"Mixed\.sizes: the values in a list"):
        type("Mixed", (type("Plain", (), {"__annotations__": {"sizes": list[int]}}), Settings), {})


def test_a_number_or_a_text_is_told_from_others() -> None:
    class Either(Settings, section="either"):
        place: int | Annotated[str, OneOf(["first"])] | None = None

    assert [Either(place=each).place for each in (3, "first", None)] == [3, "first", None]
    for wrong, says in ((1.5, "valid integer, or a valid string"), (True, "valid integer")):
        with pytest.raises(ConfigError, match=says):
            Either(place=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="choices: first"):
        Either(place="last")


def test_one_of_several_classes_is_told_from_others() -> None:
    class Several(Settings, section="several"):
        part: Inner | Everything | None = None

    assert Several(part=Inner()).part == Inner()
    with pytest.raises(ConfigError, match=r"several\.part = 3: should be a valid Inner or Everyth"):
        Several(part=3)  # type: ignore[arg-type]


def test_the_largest_seed_is_written_as_what_it_is() -> None:
    """The next float above 2^63 - 1 is 2^63."""
    assert str(Within(0, 2**63 - 1)) == "between 0 and 2^63 - 1"
    assert str(Within(most=2**63)) == "at most 2^63"


def test_text_of_a_pattern() -> None:
    class Named(Settings, section="named"):
        name: Annotated[str, Matching(r"[a-z]+|\d", "is not a name", ("word", "0 to 9"))]

    assert Named(name="abc").name == "abc"
    for wrong in ("", "ab1", "12", "abc\n"):
        with pytest.raises(ConfigError) as refused:
            Named(name=wrong)
        told = f"named.name = {wrong!r}: is not a name (choices: word, 0 to 9)"
        assert str(refused.value) == told


def test_a_unit_is_no_rule() -> None:
    class Sized(Settings, section="sized"):
        size: Annotated[int, Unit("bytes")]

    assert Sized(size=-3).size == -3
    with pytest.raises(ConfigError, match="valid integer"):
        Sized(size=1.5)  # type: ignore[arg-type]
