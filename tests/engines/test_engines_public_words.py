"""The public state as words: the same bits, and the step that the server takes."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from secure_fedrec.algorithms import PublicState
from secure_fedrec.engines.public_state_words import PublicStateWords
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import Aggregate


def doubled(public: PublicState, aggregate: Aggregate) -> PublicState:
    """A step that touches every part, and tells the parts apart."""
    extras = {name: 2 * values + len(name) for name, values in public.extras.items()}
    table = public.table - aggregate.values / np.maximum(aggregate.counts, 1)[:, None]
    return PublicState(round=public.round + 1, table=table, extras=extras)


ALGORITHM: Any = SimpleNamespace(server_step=doubled)
CODEC = FixedPoint()


def state() -> PublicState:
    table = np.array([[1.5, -0.0, np.inf], [5e-324, -2.25, np.nan]])
    # Not in the order of their names, and of several shapes.
    extras = {"zeta": np.arange(4.0).reshape(2, 2), "a": np.array([7.0]), "none": np.empty((0, 3))}
    return PublicState(round=3, table=table, extras=extras)


def aggregate() -> Aggregate:
    ring = CODEC.encode(np.arange(6.0).reshape(2, 3))
    return Aggregate(ring=ring, counts=np.array([2, 0]), codec=CODEC)


def test_words_are_the_bits_of_table_and_extras() -> None:
    public = state()
    words = PublicStateWords(ALGORITHM, public).words
    assert words.dtype == np.uint64
    whole = np.concatenate([public.table.reshape(-1), [7.0], np.arange(4.0)])
    assert words.tobytes() == whole.tobytes()


def test_the_step_on_words_is_the_step_of_the_server() -> None:
    public = state()
    step = PublicStateWords(ALGORITHM, public)
    after = step.after(step.words, aggregate())
    assert (
        after.tobytes() == PublicStateWords(ALGORITHM, doubled(public, aggregate())).words.tobytes()
    )


def test_the_step_is_from_the_words_given() -> None:
    here, elsewhere = state(), PublicState(round=3, table=np.ones((2, 3)), extras=state().extras)
    other = PublicStateWords(ALGORITHM, elsewhere)
    found = PublicStateWords(ALGORITHM, here).after(other.words, aggregate())
    assert found.tobytes() == other.after(other.words, aggregate()).tobytes()
