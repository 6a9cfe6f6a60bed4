"""Sums over few clients, solved as equations: whose vectors stand behind them, and who is in which.

Reading order: ``round_sums`` (the equations), ``decoded`` (what is found, and when it is certain),
``vector_matches`` (what fits within tolerances), ``state``, ``unknown_raters`` and
``known_raters`` (the searches).
"""

from collections.abc import Sequence

from attacks.families.sums.decoded import BUDGET, Decoded
from attacks.families.sums.known_raters import look_up, merge, reduce, refine
from attacks.families.sums.round_sums import MOST_RATERS, RoundSums
from attacks.families.sums.state import State
from attacks.families.sums.unknown_raters import lone_rows, propagate, same_pairs
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import MissingExtraError

_PASSES = 20


def decode(
    sums: RoundSums,
    known: Sequence[tuple[FloatArray, float]] = (),
    *,
    stages: int = 0,
    budget: float = BUDGET,
) -> Decoded:
    """Solve a round.

    Args:
        sums: the round.
        known: private vectors that are known beforehand, each with a bound of its error; they are
            the first pseudonyms.
        stages: searches before it, over which the odds of a false match are dealt out as well.
        budget: sums that may be formed or looked up.
    """
    found = Decoded(stages=stages, budget=budget)
    for each in known:
        found.settle(found.add([each]))
    if len(sums.items) < 2:
        return found
    state = State(sums, found)
    lone_rows(state)
    if not len(sums.levels):
        return found
    merge(state)
    look_up(state, 2)
    same_pairs(state)
    for _ in range(_PASSES):
        before = len(found.entries), len(found.explained)
        merge(state)
        look_up(state, 2)
        propagate(state)
        refine(state)
        if before == (len(found.entries), len(found.explained)):
            break
    for raters in range(3, MOST_RATERS + 1):
        look_up(state, raters)
        refine(state)
    try:
        reduce(state)
    except MissingExtraError as absent:
        found.lacking = str(absent)
    return found
