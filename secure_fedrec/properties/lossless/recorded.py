"""Compare a recorded run with plain sums, without running its stack.

The plain run is the one of ``compare_runs``, in batches and without keeping finished clients, so
that it costs one more training. From the recorded run it reads the files beside the transcript:
which rows each client marked as real, with payloads also their words, which clients were exempt
from the cloak, and how many rows the cloak added. It also reads the digest of every round's public
state.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.engines import CohortConfig, Problem, RecordedRun, table_digest
from secure_fedrec.engines.federated_problem import step_bytes
from secure_fedrec.errors import TranscriptError
from secure_fedrec.properties.lossless.comparison import Comparison, Scope
from secure_fedrec.properties.lossless.plain_run import PlainRun, Rows, own_ring
from secure_fedrec.properties.lossless.row_differences import (
    all_exempt,
    foreign_row,
    other_clients,
    silent_row,
    unlike_record,
    values_differ,
)
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire.recording import rows_in

_BATCH_BYTES = 2**19
"""Size of the plain run's batches, different from the run's, because no bit may depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sent:
    """What some clients sent.

    Args:
        clients: int64[B].
        real: one segment of rows per client, with ring words if payloads were kept; None if nothing
            was recorded, because all rows went to the server in clear.
        exempt: bool[B], the clients that were exempt from the cloak.
        virtual: int64[B], rows that the cloak added.
    """

    clients: IntArray
    real: RowBlock | None
    exempt: BoolArray
    virtual: IntArray

    def part(self, which: slice) -> "_Sent":
        """A consecutive part of the clients."""
        block = self.real
        if block is not None:
            bounds = block.indptr[which.start : which.stop + 1]
            rows = slice(int(bounds[0]), int(bounds[-1]))
            block = RowBlock(
                indptr=bounds - bounds[0],
                rows=block.rows[rows],
                values=None if block.values is None else block.values[rows],
                counts=None if block.counts is None else block.counts[rows],
            )
        return _Sent(
            clients=self.clients[which],
            real=block,
            exempt=self.exempt[which],
            virtual=self.virtual[which],
        )


class BesideRecorded:
    """Plain sums beside a recorded run, round by round.

    Args:
        run: the recorded run, up to its last round.
        algorithm: a fresh one.
        problem: what it learns from, its own.
        streams: streams of the run.
        cohort: the invited clients; an invited client that is not in the run's round sat it out by
            its protocol.
        drops_reports: whether the cloak's record says that it may leave rows out.
        bags: values per vector by name of the bag.

    Attributes:
        plain: the plain run.
    """

    def __init__(
        self,
        run: RecordedRun,
        *,
        algorithm: Algorithm,
        problem: Problem,
        streams: Streams,
        cohort: CohortConfig,
        drops_reports: bool,
        bags: Mapping[str, int],
    ) -> None:
        self.plain = PlainRun(algorithm, problem, streams, own_ring(run.engine.stack.codec))
        self._run = run
        self._stack = run.engine.stack
        self._covered = run.engine.stack.cloak is not None
        self._cohort = cohort
        self._scope = Scope(drops_reports=drops_reports)
        self._empty: dict[str, FloatArray] = {
            name: np.empty((0, width)) for name, width in bags.items()
        }
        self._costs = step_bytes(algorithm, problem.vault, problem.n_rows)
        self._rounds = 0
        self._numbers: Counter[str] = Counter()

    def round(self, digest: str) -> str | None:
        """Train one more round and return where the recorded round differs.

        Args:
            digest: of the recorded run's public state after that round, see ``table_digest``.

        Raises:
            EncodingError: a value does not fit the ring.
            TranscriptError: what was recorded is damaged, or does not say what the cloak did.
        """
        plain, round_ = self.plain, self.plain.public.round + 1
        due = self._run.participants(round_)
        plain.begin([due[part] for part in self._parts(due)])
        taking, exempt = [due[:0]], set[int]()
        numbers, where = Counter[str](), None
        for sent in self._sent(round_, due):
            taking.append(sent.clients)
            exempt.update(sent.clients[sent.exempt].tolist())
            for part in self._parts(sent.clients):
                found, differs = self._batch(sent.part(part))
                numbers.update(found)
                where = where or differs
        sums, clients = plain.close(self._empty), np.concatenate(taking)
        self._rounds += 1
        self._numbers.update(numbers)
        self._numbers.update(
            invited=self._cohort.invited(round_, self._run.engine.vault.n_clients),
            taken=len(clients),
            exempt=len(exempt),
            compared=sums.nonzero,
        )
        where = other_clients(clients, due) or where
        if where is None and self._covered:
            where = all_exempt(clients, exempt)
        where = where or unlike_record(
            self._stack.traits,
            covered=clients[: None if self._covered else 0],
            exempt=exempt,
            virtual=numbers["virtual_rows"],
            silent=numbers["unreported"],
        )
        if where is None and table_digest(plain.public) != digest:
            where = "the public tables differ"
        return None if where is None else f"round {self._rounds}, {where}"

    def compare(self, on_round: Callable[[], object] = lambda: None) -> Comparison:
        """Compare all rounds of the recorded run, up to the first difference.

        In rounds with payloads every client's rows are compared word for word. In all rounds the
        comparison covers which client sent which rows, which clients the cloak exempted, what it
        added, and the public state.

        Args:
            on_round: called after every round that was compared.

        Raises:
            EncodingError, TranscriptError: as ``round``.
        """
        for digest in self._run.table_digests:
            where = self.round(digest)
            on_round()
            if where is not None:
                return self._outcome(where)
        return self._outcome(None)

    def _outcome(self, where: str | None) -> Comparison:
        """The result so far, with the first difference."""
        names = ("invited", "taken", "exempt", "rows", "unreported", "virtual_rows", "compared")
        numbers: dict[str, Any] = {name: self._numbers[name] for name in names}
        return Comparison(
            rounds=self._rounds,
            holds=where is None and self._numbers["compared"] > 0,
            first_difference=where,
            blames=None if where is None else "the recorded run",
            largest_difference=0.0 if where is None else float("nan"),
            **numbers,
        )

    def _batch(self, sent: _Sent) -> tuple[dict[str, int], str | None]:
        """Train some clients, add what they sent, and compare it with their plain upload."""
        plain, n_rows, real = self.plain, self.plain.n_rows, sent.real
        rows = plain.step(sent.clients)
        found = {"rows": len(rows), "virtual_rows": int(sent.virtual.sum())}
        if real is None:
            plain.add(rows)
            return found, None
        told = Rows.of(sent.clients, replace(real, values=self._words(real)), plain.ring)
        made_up = np.flatnonzero(sent.exempt & (sent.virtual > 0))
        where = None
        if len(made_up):
            client = int(sent.clients[made_up[0]])
            where = f"client {client} sends virtual rows, but is exempt from the cloak"
        summed, keys, due = rows, told.keys(n_rows), rows.keys(n_rows)
        if not np.array_equal(keys, due):
            reported = np.isin(due, keys)
            summed, silent = rows.pick(reported), rows.pick(~reported)
            found["unreported"] = len(silent)
            where = where or foreign_row(told, rows, n_rows)
            exempt = sent.clients[sent.exempt].tolist()
            where = where or silent_row(silent, exempt, self._scope)
        plain.add(summed)
        if where is None and real.values is not None:
            where = values_differ(told, summed)
        return found, where

    def _words(self, real: RowBlock) -> RingArray:
        """Words of rows; rows without values if none were kept."""
        if real.values is not None:
            return real.values
        return np.empty((len(real.rows), 0), dtype=self.plain.ring.dtype)

    def _sent(self, round_: int, due: IntArray) -> Iterator[_Sent]:
        """The recording of a round, in batches of clients as the run had them."""
        if not self._stack.protects:
            none = np.zeros(len(due), dtype=np.int64)
            yield _Sent(clients=due, real=None, exempt=none.astype(bool), virtual=none)
            return
        for columns in self._run.truth.own(round_):
            clients = columns["senders"].astype(np.int64)
            none = np.zeros(len(clients), dtype=np.int64)
            if self._covered and "exempt" not in columns:
                raise TranscriptError(
                    f"the record of what clients sent in round {round_} lacks what the cloak did"
                )
            yield _Sent(
                clients=clients,
                real=rows_in(columns),
                exempt=np.asarray(columns.get("exempt", none), dtype=bool),
                virtual=columns.get("virtual", none),
            )

    def _parts(self, clients: IntArray) -> Iterator[slice]:
        """Consecutive runs of clients whose steps work in about ``_BATCH_BYTES`` each."""
        cost = np.cumsum(self._costs[clients])
        last = int(cost[-1]) if len(cost) else 0
        cuts = np.searchsorted(cost, np.arange(_BATCH_BYTES, last, _BATCH_BYTES))
        bounds = np.unique([0, *cuts.tolist(), len(clients)]).tolist()
        yield from map(slice, bounds, bounds[1:])
