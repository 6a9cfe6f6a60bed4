"""How much noise a budget needs: bisection over the noise multiplier."""

from collections.abc import Callable, Sequence

from secure_fedrec.accounting.accountants import Accountant, spend
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.events import Adversary, Event, GaussianNoise, whole_contribution

_LARGEST = 2.0**20
_FINEST = 1e-12


def find_noise_multiplier(
    events_of: Callable[[float], Sequence[Event]],
    *,
    epsilon: float,
    delta: float,
    adversary: Adversary,
    accountant: Accountant = "rdp",
    tolerance: float = 1e-3,
) -> float:
    """The smallest noise multiplier, to a relative tolerance from above, that meets a budget.

    Args:
        events_of: what is released with a given multiplier; more noise must not cost more.
        epsilon: the budget.
        delta: its delta.
        adversary: the adversary.
        accountant: see ``spend``.
        tolerance: relative width at which the search ends, at least 1e-12; the upper end is
            returned.

    Returns:
        A multiplier that has a price, of at most ``epsilon``.

    Raises:
        ConfigError: the budget is not positive, the tolerance is too small, the events have no
            price at any multiplier (see ``spend``), or no multiplier up to 2^20 meets the budget.
    """
    if not epsilon > 0:
        raise ConfigError("dp.epsilon", epsilon, "must be positive")
    if not tolerance >= _FINEST:
        raise ConfigError("dp.tolerance", tolerance, f"must be at least {_FINEST}")
    unpriced: ConfigError | None = None

    def fits(multiplier: float) -> bool:
        nonlocal unpriced
        found = events_of(multiplier)
        try:
            spent = spend(found, adversary=adversary, delta=delta, accountant=accountant)
        except ConfigError as error:  # so little noise that the sampling error uses up delta
            unpriced = error
            return False
        unpriced = None
        return spent.epsilon <= epsilon

    high = 1.0
    while not fits(high):
        high *= 2
        if high > _LARGEST:
            raise unpriced or ConfigError(
                "dp.epsilon", epsilon, f"needs a noise multiplier above {_LARGEST}"
            )
    return _smallest(fits, high, tolerance)


def _smallest(fits: Callable[[float], bool], high: float, tolerance: float) -> float:
    """The smallest number that fits, to a relative tolerance, given one that does."""
    # Downwards in small steps: where there is almost no noise the accountants are slow.
    low = high / 2
    while fits(low):
        low, high = low / 2, low
        if high < 1 / _LARGEST:
            return high
    while high - low > tolerance * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def gaussian_events(multiplier: float, *, rounds: int) -> tuple[Event, ...]:
    """Rounded Gaussian noise on a client's contribution, for planning before a layout exists.

    It models noise that clients add, whose protection sampling does not amplify.
    """
    noise = GaussianNoise(multiplier=multiplier, form="rounded")
    return whole_contribution(noise, rounds=rounds)
