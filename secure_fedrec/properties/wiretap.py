"""Traces of the wire, compared with ``==`` to test what a private value changes on it.

If two runs that differ in one private value leave equal traces, no party learns the value, not even
an observer of every line. Traces hold what is delivered: end points as the receiver sees them,
sizes, tags, row numbers, words and counts.
"""

from collections import defaultdict
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.base import RatingAlgorithm
from secure_fedrec.data import RatingTable
from secure_fedrec.engines import CohortConfig, LocalEngine, rating_problem
from secure_fedrec.protection.base.stack import Stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import DenseBlock
from secure_fedrec.wire import Messages, Meter, Parcels, Wire

Message = tuple[str, int, int, str]
"""Step or stage, sender and receiver as seen on the wire, and the SHA-256 of the whole message."""


class WireTap:
    """A fault of a ``Wire`` that records every delivered message and does not alter any.

    The order in which a simulation delivers messages is not part of a trace: it depends on the
    batch size, and simultaneous messages do not have an order.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, list[Message]] = defaultdict(list)

    def apply(self, messages: Any) -> Any:
        """Note the messages (``Messages`` or ``Parcels``) and deliver them."""
        in_bytes = isinstance(messages, Parcels)
        name = messages.stage if in_bytes else messages.step.name
        ends = zip(messages.senders.ids.tolist(), messages.receivers.ids.tolist(), strict=True)
        for place, (sender, receiver) in enumerate(ends):
            data = (
                sha256(messages.data[place]).hexdigest() if in_bytes else _digest(messages, place)
            )
            self._rounds[messages.round].append((name, sender, receiver, data))
        return messages

    def messages(self, round_: int) -> tuple[Message, ...]:
        """Messages of a round, in ascending order; empty if there were none."""
        return tuple(sorted(self._rounds.get(round_, ())))


def wire_trace(
    *,
    algorithm: Callable[[], RatingAlgorithm],
    stack: Stack,
    ratings: RatingTable,
    streams: Streams,
    rounds: int,
    cohort: CohortConfig | None = None,
    test: RatingTable | None = None,
    batch_bytes: int | None = None,
) -> tuple[tuple[Message, ...], ...]:
    """Run a federation and return all messages of each round.

    Args:
        algorithm: makes the algorithm.
        stack: how uploads are protected.
        ratings: training ratings.
        streams: the run's random streams.
        rounds: rounds to run.
        cohort: who is invited.
        test: held-out ratings; None for none.
        batch_bytes: see ``LocalEngine``.

    Returns:
        One tuple of messages per round. To test that a secret does not affect the wire, compare the
        traces of two rating tables that differ only in it::

            assert wire_trace(ratings=table, **run) == wire_trace(ratings=changed, **run)
    """
    tap, learner = WireTap(), algorithm()
    problem = rating_problem(learner, ratings, test)
    engine = LocalEngine(
        algorithm=learner,
        stack=stack,
        vault=problem.vault,
        n_rows=problem.n_rows,
        evaluate=problem.evaluate,
        streams=streams,
        wire=Wire(meter=Meter(ratings.n_clients), faults=(tap,)),
        cohort=cohort,
        batch_bytes=batch_bytes,
    )
    for _ in range(rounds):
        engine.run_round()
    return tuple(tap.messages(round_) for round_ in range(1, rounds + 1))


def _digest(messages: Messages, place: int) -> str:
    """SHA-256 of one message; every column enters with its name, type and shape."""
    ends = f"{messages.senders.role} {messages.receivers.role}"
    digest = sha256(f"{messages.round} {ends} {messages.bag}".encode())
    columns: dict[str, npt.NDArray[Any] | None] = {"size": messages.sizes[place : place + 1]}
    columns["tag"] = None if messages.tags is None else messages.tags[place : place + 1]
    payload = messages.payload
    if isinstance(payload, DenseBlock):
        columns["table"] = payload.values
        columns |= payload.extras
    else:
        mine = slice(int(payload.indptr[place]), int(payload.indptr[place + 1]))
        for name in ("rows", "values", "counts"):  # vectors for a bag have values alone
            column = getattr(payload, name, None)
            columns[name] = None if column is None else column[mine]
    for name, column in columns.items():
        if column is not None:
            digest.update(f"\n{name} {column.dtype.str} {column.shape}\n".encode())
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
