"""Special functions of SciPy, which is imported at the first call.

SciPy takes longer to import than most commands to run, and few of them need it. Each function is
the one of its name in ``scipy.special``, for numbers and arrays.
"""

from typing import Any, TypeAlias

Numbers: TypeAlias = Any
"""A number or an array of them."""


def bdtr(k: Numbers, n: Numbers, p: Numbers) -> Any:
    """``P(X <= k)`` of a binomial of ``n`` trials."""
    from scipy import special  # noqa: PLC0415

    return special.bdtr(k, n, p)


def betaincinv(a: Numbers, b: Numbers, y: Numbers) -> Any:
    """The quantile of a beta distribution."""
    from scipy import special  # noqa: PLC0415

    return special.betaincinv(a, b, y)


def gammaln(x: Numbers) -> Any:
    """Logarithm of the gamma function."""
    from scipy import special  # noqa: PLC0415

    return special.gammaln(x)


def logsumexp(a: Numbers) -> Any:
    """``log(sum(exp(a)))`` over all of an array."""
    from scipy import special  # noqa: PLC0415

    return special.logsumexp(a)


def ndtri(y: Numbers) -> Any:
    """The quantile of the normal distribution."""
    from scipy import special  # noqa: PLC0415

    return special.ndtri(y)


def stdtrit(df: Numbers, p: Numbers) -> Any:
    """The quantile of Student's t with ``df`` degrees of freedom."""
    from scipy import special  # noqa: PLC0415

    return special.stdtrit(df, p)
