"""Make an assertion from a function that measures: it takes the same arguments, and fails."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")
_Judged = TypeVar("_Judged")


def asserting(
    measure: Callable[_Arguments, _Found],
) -> Callable[[Callable[[_Found], _Judged]], Callable[_Arguments, _Judged]]:
    """Decorator: makes an assertion from a function that judges ``measure``'s results."""

    def decorate(judge: Callable[[_Found], _Judged]) -> Callable[_Arguments, _Judged]:
        @wraps(judge)
        def judged(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Judged:
            return judge(measure(*args, **kwargs))

        documented: Any = judged
        documented.__signature__ = inspect.signature(measure).replace(
            return_annotation=inspect.signature(judge).return_annotation
        )
        return judged

    return decorate
