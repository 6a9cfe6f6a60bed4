"""Which arrays a public state has, and of which shapes.

A client's items are rows of the table, in compiled loops too; and what fails in training halts the
client. So a state of other arrays reaches no client's training, whoever sends it.
"""

from secure_fedrec.algorithms.base import Addressed, Algorithm, PublicState, VaryingExtras
from secure_fedrec.errors import ProtocolError


def require_arrays(algorithm: Algorithm, start: PublicState, public: PublicState) -> None:
    """Check the arrays of a public state, but for those that single clients are sent.

    Args:
        algorithm: whose state it is.
        start: the state before round 1.
        public: the state.

    Raises:
        ProtocolError: an array is missing, unknown, or of another shape than it has after as many
            rounds (``VaryingExtras``).
    """
    parts = algorithm.addressed(public) if isinstance(algorithm, Addressed) else {}
    due, found = ({"": each.table, **each.extras} for each in (start, public))
    shapes = {name: values.shape for name, values in due.items()}
    given = {name: values.shape for name, values in found.items() if name not in parts}
    if isinstance(algorithm, VaryingExtras):
        for name, rows in algorithm.extra_rows(public.round).items():
            first = given.get(name, ())[:1] if rows is None else (rows,)
            shapes[name] = (*first, *shapes[name][1:])
    for name in sorted({*given, *shapes}):
        has, has_to = given.get(name, "missing"), shapes.get(name, "missing")
        if has != has_to:
            raise ProtocolError(
                f"a public state of other arrays than round {public.round + 1} begins with: "
                f"{name or 'the table'} is {has}, and has to be {has_to}"
            )
