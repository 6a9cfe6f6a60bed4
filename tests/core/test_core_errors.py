"""The error tree: one root, and messages that name key, value and choices."""

import pytest

from secure_fedrec import errors
from secure_fedrec.errors import ConfigError, DataError, FedRecError, SumBudgetError


def test_every_error_is_in_the_tree_and_in_its_drawing() -> None:
    drawing = errors.__doc__ or ""
    kinds = [each for each in errors.__all__ if isinstance(getattr(errors, each), type)]
    assert len(kinds) > 15
    for name in kinds:
        assert issubclass(getattr(errors, name), FedRecError)
        assert name in drawing


@pytest.mark.parametrize("kind", [ConfigError, SumBudgetError])
def test_config_errors_name_key_value_and_choices(kind: type[ConfigError]) -> None:
    error = kind("a.b", 3, "must be even", (2, 4))
    assert str(error) == "a.b = 3: must be even (choices: 2, 4)"
    assert (error.key, error.value, error.problem) == ("a.b", 3, "must be even")
    assert error.choices == (2, 4)
    assert isinstance(error, ValueError)
    assert str(kind("a", "x", "no")) == "a = 'x': no"


def test_of_many_choices_the_one_that_is_almost_written_is_named() -> None:
    many = [f"choice_{letter}" for letter in "abcdefgh"]
    assert str(ConfigError("a", "choise_c", "unknown", many)).endswith(
        "choice_h); is 'choice_c' meant?"
    )
    renamed = ConfigError("a", "choise_c", "unknown", many).renamed({"a": "b"})
    assert str(renamed).startswith("b = 'choise_c': ")
    assert str(renamed).count("is 'choice_c' meant?") == 1
    for value, choices in (("oracle", many), ("choise_c", many[:4]), (3, many)):
        assert str(ConfigError("a", value, "unknown", choices)).endswith(")")


def test_data_errors_name_the_line() -> None:
    assert str(DataError("u.data", "is short")) == "u.data: is short"
    assert str(DataError("u.data", "is odd", line=7)) == "u.data, line 7: is odd"
