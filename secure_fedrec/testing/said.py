"""Error texts of contracts for the classes that inherit them."""

from typing import Any


def require(kept: bool, problem: str) -> None:
    """Raises AssertionError if a condition is not met."""
    if not kept:
        raise AssertionError(problem)


class _Unsaid:
    def __set_name__(self, owner: type, name: str) -> None:
        self._problem = f"{owner.__name__}: say which `{name}` is tested"

    def __get__(self, contract: Any, owner: type) -> Any:
        raise AssertionError(self._problem)


def unsaid() -> Any:
    """A class attribute that must be given: until then, reading it raises AssertionError."""
    return _Unsaid()
