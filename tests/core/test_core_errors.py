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


def test_data_errors_name_the_line() -> None:
    assert str(DataError("u.data", "is short")) == "u.data: is short"
    assert str(DataError("u.data", "is odd", line=7)) == "u.data, line 7: is odd"
