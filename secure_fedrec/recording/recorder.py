"""Record who sent what to whom in a federation that this package does not run.

    recorder = Recorder(
        n_clients=943,
        arrays={"item_vectors": (1682, 10)},
        items="item_vectors",
        data={"rating_levels": [1, 2, 3, 4, 5]},
        algorithm={"name": "my-mf", "regularization": 0.01, "biases": False},
        rows=RowTraits(rows="items", row_sets="rated", form="factorized"),
        sums=SENT_AS_THEY_ARE,
    )
    for round_ in range(1, 11):
        recorder.message(round_, "model", "server", None, {"item_vectors": V})
        for client in cohort:
            recorder.message(round_, "upload", client, "server", {"item_vectors": (items, rows)})
    recorder.truth(ratings=(clients, items, ratings))
    recording = recorder.close()

Public knowledge is what the caller states: ``data``, ``algorithm``, ``rows`` and ``sums``. Unstated
facts are not assumed, and an attack that needs one says so.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from operator import index
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray, RingArray
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.errors import MisfitError, TranscriptError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.recording.public_facts import FREE, Form, form_of, require_counts
from secure_fedrec.recording.recording import Recording
from secure_fedrec.recording.shared_arrays import ITEMS, SharedArrays, as_array, plain_array
from secure_fedrec.recording.truth_file import rating_columns, require_secret
from secure_fedrec.traits import RowTraits, Traits
from secure_fedrec.uploads import DenseBlock, RowBlock
from secure_fedrec.wire import NOBODY, Messages, Parties, RecordingPolicy, Step, message_sizes
from secure_fedrec.wire.recording import Recorder as MessageRecorder
from secure_fedrec.wire.transcript import ENDS

Party: TypeAlias = str | SupportsIndex | None
"""``"server"``, the number of a client, ``"client:3"``, ``"denoiser:0"``; None if unknown."""

PRIVATE = ("user_vectors", "private_parameters")
"""Names under which attacks look for clients' private tables, by kind of model."""

_STEPS = {
    step.name.lower(): step
    for step in (Step.UPLOAD, Step.NOISE, Step.DENOISE, Step.AGGREGATE, Step.SHARE, Step.PEER)
}


_NUMBER = re.compile("[0-9]{1,9}")
_MOST_ROUNDS = 10**9 - 1
_MOST_COUNTED = 2**53


class _Kind(NamedTuple):
    """Messages that are written together: of one step, with or without names and values."""

    step: Step
    named: bool
    readable: bool


class _Message(NamedTuple):
    """One message of the recorded round."""

    sender: int
    receiver: int
    rows: IndexArray
    words: RingArray
    counts: IntArray | None


class Recorder:
    """Records the rounds of a federation, message by message.

    Args:
        n_clients: clients of the federation; they have the numbers from 0.
        arrays: all arrays that are exchanged, or their shapes, by name: a ``state_dict`` will do.
        items: name of the array whose row i is item i; None without such an array.
        data: public facts of the data by name: "rating_levels" (what a rating may be), "negatives"
            (unrated items drawn per rated one), "item_table" (name of the array, among those that
            travel whole, whose rows are items), "private_input".
        algorithm: public facts of the algorithm: "name", "regularization", "biases" and the like.
        rows: what the rows of the item table are; None leaves it unstated.
        sums: how uploads reach the server; None leaves it unstated. ``SENT_AS_THEY_ARE`` for
            uploads that the server reads under names, ``SENT_HIDDEN`` for masked or encrypted ones.
        private: shapes of the arrays that stay at the clients, by name.
        weighted: whether each upload has a weight that the server reads with it.
        send_models: whether clients send what their arrays are after training, not by how much they
            changed; what is written down is the change, which everybody can compute.
        directory: where to write the transcript; None keeps it in memory.
        payload_rounds: rounds whose values are kept; None for all.
        leave_out: in words, what receivers read but this recording does not hold; reports print it.
        ring: how values are written down: each is rounded to its resolution.

    Raises:
        MisfitError: arrays that cannot be exchanged, a number or a fact of another form, or a fact
            that the recorder states itself.
        ConfigError: a trait that is not known, or a ring without room.
        TranscriptError: the directory holds something already.
    """

    def __init__(
        self,
        *,
        n_clients: int,
        arrays: Mapping[str, Any],
        items: str | None = None,
        data: Mapping[str, Any] | None = None,
        algorithm: Mapping[str, Any] | None = None,
        rows: RowTraits | None = None,
        sums: Traits | None = None,
        private: Mapping[str, Sequence[int]] | None = None,
        weighted: bool = False,
        send_models: bool = False,
        directory: str | os.PathLike[str] | None = None,
        payload_rounds: Collection[int] | None = None,
        leave_out: Sequence[str] = (),
        ring: FixedPoint | None = None,
    ) -> None:
        n_clients = _whole("n_clients", n_clients, FREE)
        _require_kinds(rows=(rows, RowTraits), sums=(sums, Traits))
        for name, given in (("leave_out", leave_out), ("payload_rounds", payload_rounds)):
            if isinstance(given, str):
                raise MisfitError(f"{name} = {given!r}: a list is meant")
        self.arrays = SharedArrays(
            {name: getattr(each, "shape", each) for name, each in arrays.items()},
            items=items,
            weighted=weighted,
            ring=FixedPoint() if ring is None else ring,
        )
        self._n_clients, self._send_models = n_clients, send_models
        self.leave_out = tuple(leave_out)
        self._public = self._knowledge(data or {}, algorithm or {}, rows, sums, private or {})
        self._keep = None if payload_rounds is None else frozenset(map(_round_of, payload_rounds))
        self._stated = self._checked()
        self._denoisers = self._stated.denoisers or n_clients
        self._recording = Recording.new(
            self._public, None if directory is None else Path(directory)
        )
        self._open: dict[_Kind, list[_Message]] = {}
        self._own: list[_Message] = []
        self._round, self._closed = 0, False
        self._model: FloatArray | None = None
        self._model_of = 0
        self._after: FloatArray | None = None
        self._writer = self._fresh_writer(())

    def message(
        self,
        round_: int,
        step: str,
        sender: Party,
        receiver: Party,
        values: Mapping[str, Any] | None,
        *,
        weight: float | None = None,
        counts: Any = None,
    ) -> None:
        """Record a message as its receiver reads it.

        Rounds come in ascending order. A "model" is what the server hands to all clients in front
        of a round; the one of the next round is what this round led to (``after`` states it where
        none follows). An "aggregate" goes from the server to the server: the sums that it holds
        after the round.

        Args:
            round_: from 1.
            step: "model", "upload", "aggregate", "noise", "denoise", "share" or "peer".
            sender: sender as the receiver knows it; None if unknown.
            receiver: the party that reads it.
            values: arrays by name: NumPy arrays, PyTorch tensors or lists. Of the item table also a
                pair of row numbers and rows, where not all are sent; it may be left out. None for a
                message that the receiver cannot read, a masked or encrypted one.
            weight: weight of the sender, where uploads are ``weighted``.
            counts: int[N], how many clients are behind each row of the item table that is sent, of
                an aggregate; None for one each.

        Raises:
            MisfitError: a step, party or array that is not of this federation.
            EncodingError: a value beyond the ring's clip, or one that is not finite.
            TranscriptError: a round that is over, or a recorder that is closed.
        """
        round_ = _round_of(round_)
        if step == Step.MODEL.name.lower():
            self._note_model(round_, {} if values is None else values)
            return
        if not isinstance(step, str) or step not in _STEPS:
            raise MisfitError(f"step {step!r}: one of model, {', '.join(_STEPS)}")
        number, ends = _STEPS[step], ENDS[_STEPS[step]]
        source = NOBODY if sender is None else self._number(sender, ends[0])
        kind = _Kind(number, sender is not None, values is not None)
        to = self._number(receiver, ends[1])
        self._require_open(round_)
        self._require_model(round_, number, values)
        found = self._message(number, source, to, values, weight=weight, counts=counts)
        self._begin(round_)
        self._open.setdefault(kind, []).append(found)

    def after(self, round_: int, values: Mapping[str, Any]) -> None:
        """State the public arrays after a round, if no next round's model states them.

        Raises:
            MisfitError: an array is missing, unknown or of another shape.
            TranscriptError: the round is over, or has not begun.
        """
        round_ = _round_of(round_)
        self._require_open(round_)
        if round_ != self._round:
            raise TranscriptError(f"round {round_} has not begun")
        self._after = self.arrays.table(values)

    def own(
        self,
        round_: int,
        client: SupportsIndex,
        values: Mapping[str, Any],
        *,
        weight: float | None = None,
    ) -> None:
        """State what a client put into a hidden sum: an adversary that corrupts it knows this.

        Args:
            round_: which round.
            client: the client.
            values: as of ``message``.
            weight: likewise.

        Raises:
            MisfitError: an array or a client that is not of this federation.
            EncodingError: as ``message``.
            TranscriptError: likewise.
        """
        round_, who = _round_of(round_), self._number(client, "client")
        self._require_open(round_)
        self._require_model(round_, Step.UPLOAD, values)
        found = self._message(Step.UPLOAD, who, 0, values, weight=weight, counts=None)
        self._begin(round_)
        self._own.append(found)

    @contextmanager
    def round(self, round_: int, model: Mapping[str, Any]) -> Iterator["RecordedRound"]:
        """Record a round of a training loop.

        Use it around the aggregation:

            with recorder.round(t, model.state_dict()) as taken:
                for client, own in train(cohort):
                    taken.upload(client, own.state_dict(), weight=sizes[client])
                model.load_state_dict(mean(...))
                taken.result(model.state_dict())

        Args:
            round_: from 1.
            model: what the clients begin from, arrays by name.

        Raises:
            MisfitError, EncodingError, TranscriptError: as ``message``.
        """
        self.message(round_, "model", "server", None, model)
        yield RecordedRound(self, round_)

    def truth(
        self,
        *,
        ratings: tuple[Any, Any, Any] | None = None,
        rating_levels: Sequence[float] | None = None,
        secrets: Mapping[str, Any] | None = None,
    ) -> None:
        """State the truth that claims are scored against; attacks are not shown it.

        Args:
            ratings: of training: client, item and rating of each, three arrays of one length.
            rating_levels: what a rating may be; those stated in ``data`` if left out, else those
                that occur.
            secrets: further secrets, an entry per client, by kind and name: "labels.gender" is an
                int per client.

        Raises:
            MisfitError: columns do not fit together, or a client or item is unknown.
        """
        if ratings is not None:
            levels = self._public.get("rating_levels") if rating_levels is None else rating_levels
            n_items = self._public.get("n_items")
            self._recording.secrets.ratings = rating_columns(
                ratings, n_clients=self._n_clients, n_items=n_items, levels=levels
            )
        for name, values in (secrets or {}).items():
            found = plain_array(values, name)
            require_secret(str(name), found)
            if len(found) != self._n_clients:
                raise MisfitError(f"{name} has {len(found)} entries for {self._n_clients} clients")
            self._recording.secrets.secrets[name] = found.copy()

    def private(self, round_: int, values: Any) -> None:
        """State the clients' private tables before a round: float[n, d].

        Attacks that claim private vectors are scored against it.

        Raises:
            MisfitError: the table does not have a row for each client.
        """
        round_, found = _round_of(round_), as_array(values, "private values")
        if self._recording.hidden.kinds(round_) and any(
            self._recording.hidden.read(round_, f"private-{PRIVATE[0]}")
        ):
            raise MisfitError(f"private values of round {round_} are stated already")
        if not np.isfinite(found).all():
            raise MisfitError("private values hold a value that is not finite")
        if found.ndim != 2 or len(found) != self._n_clients or not found.size:
            shape = f"({self._n_clients}, d)"
            raise MisfitError(f"private values have the shape {found.shape}, not {shape}")
        for name in PRIVATE:
            self._recording.hidden.append(round_, f"private-{name}", {"values": found})

    def close(self) -> Recording:
        """End the last round; the recording is complete and nothing can be added."""
        if not self._closed:
            self._end()
            self._closed = True
        return self._recording

    def __enter__(self) -> "Recorder":
        """Itself."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Close, unless something went wrong inside."""
        if kind is None:
            self.close()

    def _knowledge(
        self,
        data: Mapping[str, Any],
        algorithm: Mapping[str, Any],
        rows: RowTraits | None,
        sums: Traits | None,
        private: Mapping[str, Sequence[int]],
    ) -> dict[str, Any]:
        arrays, ring = self.arrays, self.arrays.layout.codec
        own = {"n_clients", "ring", "blocks", "algorithm", "protection", "left_out"}
        if overridden := own & set(data):
            names = ", ".join(sorted(overridden))
            raise MisfitError(f"data states {names}, which the recorder states itself")
        if rows is not None and "traits" in algorithm:
            raise MisfitError("algorithm states traits, and rows does: say them once")
        traits = {} if rows is None else {"traits": asdict(rows)}
        sizes = {} if arrays.items is None else {"n_items": arrays.shapes[arrays.items][0]}
        protection = {} if sums is None else {"traits": _plain(asdict(sums))}
        return {
            "n_clients": self._n_clients,
            **sizes,
            **_plain(data),
            "ring": {"bits": ring.bits, "fraction_bits": ring.fraction_bits, "clip": ring.clip},
            "blocks": arrays.layout.describe(),
            "algorithm": {**arrays.knowledge(private), **_plain(algorithm), **traits},
            "protection": {"layers": [], **protection},
            **({"left_out": list(self.leave_out)} if self.leave_out else {}),
        }

    def _checked(self) -> Form:
        """The stated facts, checked like those of files.

        Raises:
            MisfitError: a fact is of another form.
        """
        layout = self.arrays.layout
        try:
            told = json.loads(json.dumps(self._public))
            return form_of(told, held=8 * layout.rows * layout.width)
        except TranscriptError as wrong:
            raise MisfitError(str(wrong).removeprefix("transcript.json: ")) from wrong
        except (TypeError, ValueError, RecursionError) as wrong:
            raise MisfitError(f"data and algorithm are facts in JSON: {wrong}") from wrong

    def _require_model(self, round_: int, step: Step, values: Any) -> None:
        """Refuse a change that is relative to the model of another round.

        Raises:
            MisfitError: the model of the round is not recorded.
        """
        changes = self._send_models and step is Step.UPLOAD and values is not None
        if changes and self._model_of != round_:
            problem = "record the model of the round in front of the uploads"
            raise MisfitError(f"send_models: {problem}; round {round_} does not have one")

    def _require_open(self, round_: int) -> None:
        if self._closed:
            raise TranscriptError("the recorder is closed")
        if round_ < max(1, self._round):
            raise TranscriptError(f"round {round_} is over: rounds ascend from 1")

    def _begin(self, round_: int) -> None:
        if round_ > self._round:
            self._end()
            self._round = round_
            kept = (round_,) if self._keep is None or round_ in self._keep else ()
            self._writer = self._fresh_writer(kept)

    def _fresh_writer(self, kept: tuple[int, ...]) -> MessageRecorder:
        return MessageRecorder(
            policy=RecordingPolicy(payload_rounds=kept),
            seen=self._recording.seen,
            truth=self._recording.hidden,
            n_items=self.arrays.layout.rows,
        )

    def _message(
        self,
        step: Step,
        sender: int,
        receiver: int,
        values: Mapping[str, Any] | None,
        *,
        weight: float | None,
        counts: Any,
    ) -> _Message:
        layout = self.arrays.layout
        if values is None:
            everything = np.arange(layout.rows, dtype=np.int32)
            nothing = np.zeros((layout.rows, 0), dtype=layout.codec.dtype)
            return _Message(sender, receiver, everything, nothing, None)
        told = self._changes(values) if self._send_models and step is Step.UPLOAD else values
        rows, reals = self.arrays.rows(told, weight=weight)
        behind = self._counts(step, rows, counts)
        found = _Message(sender, receiver, rows, self._encoded(rows, reals), behind)
        return self._whole_sum(found) if step is Step.AGGREGATE else found

    def _note_model(self, round_: int, values: Mapping[str, Any]) -> None:
        table = self.arrays.table(values)
        self._require_open(round_)
        if self._model is not None and self._model_of == round_:
            if not np.array_equal(self._model, table):
                raise MisfitError(f"round {round_} has another model already: one is for all")
            return
        if 0 < self._round == round_ - 1 and self._after is None:  # no round precedes round 1
            self._after = table
        self._begin(round_)
        self._model, self._model_of = table, round_
        block = DenseBlock(values=table, shape=table.shape)
        everybody = np.arange(self._n_clients)
        self._writer.record(
            Messages(
                round=self._round,
                step=Step.MODEL,
                senders=Parties.server(self._n_clients),
                receivers=Parties(role="client", ids=everybody),
                payload=block,
                sizes=np.full(self._n_clients, block.nbytes),
            ),
            origins=None,
        )

    def _changes(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._model is None:
            raise MisfitError("send_models: record the model of the round in front of the uploads")
        return self.arrays.changes(values, self._model)

    def _encoded(self, rows: IndexArray, reals: FloatArray) -> RingArray:
        words = np.zeros(reals.shape, dtype=self.arrays.layout.codec.dtype)
        for place in self.arrays.layout.places.values():
            own = (rows >= place.first) & (rows < place.first + place.rows)
            words[own] = place.codec.encode(reals[own])
        return words

    def _whole_sum(self, told: _Message) -> _Message:
        """A sum with all rows of the table: rows that no client sent are 0, with a count of 0."""
        size = self.arrays.layout.rows
        words = np.zeros((size, told.words.shape[1]), dtype=told.words.dtype)
        words[told.rows] = told.words
        counts = None
        if told.counts is not None:
            counts = np.zeros(size, dtype=np.int64)
            counts[told.rows] = told.counts
        return told._replace(rows=np.arange(size, dtype=np.int32), words=words, counts=counts)

    def _counts(self, step: Step, rows: IndexArray, counts: Any) -> IntArray | None:
        if counts is None:
            return None
        told = as_array(counts, "counts")
        place = self.arrays.layout.places.get(ITEMS)
        items = 0 if place is None else int((rows < place.first + place.rows).sum())
        if told.shape != (items,):
            problem = f"one per row of the item table that is sent, {items}"
            raise MisfitError(f"counts has the shape {told.shape}: {problem}")
        if not ((np.abs(told) < _MOST_COUNTED) & (told == np.rint(told))).all():
            raise MisfitError("counts are whole numbers")
        numbers = told.astype(np.int64)
        if step is Step.AGGREGATE:
            require_counts(numbers, self._stated)
        whole = np.full(len(rows) - items, numbers.max(initial=1), dtype=np.int64)
        return np.concatenate([numbers, whole])

    def _number(self, party: Party, role: str) -> int:
        said, _, number = str(party).partition(":")
        if party is not None and not isinstance(party, str | bool):
            with suppress(TypeError, ValueError):  # includes integer tensors
                said, number = "client", str(index(party))
        fits = said == role and (role == "server") == (not number)
        fits = fits and (not number or _NUMBER.fullmatch(number) is not None)
        count = {"client": self._n_clients, "denoiser": self._denoisers}.get(role)
        if not fits or (count is not None and int(number) >= count):
            known = "'server'" if role == "server" else f"the number of a {role}, from 0"
            most = "" if count is None else f" to {count - 1}"
            raise MisfitError(f"party {party!r}: the {role} is meant here, {known}{most}")
        return 0 if role == "server" else int(number)

    def _end(self) -> None:
        """Write the messages of the round that is open."""
        if not self._round:
            return
        for kind, messages in self._open.items():
            self._writer.record(self._batch(kind, messages), origins=None)
        if self._own:
            block = self._block(self._own, readable=True)
            clients = np.array([each.sender for each in self._own])
            self._writer.record_own(self._round, clients, lambda _: block, {})
        if self._after is not None:
            led_to = DenseBlock(values=self._after, shape=self._after.shape)
            self._writer.record_result(self._round, led_to, None)
        self._open, self._own, self._after = {}, [], None
        self._writer.end_round(self._round)

    def _batch(self, kind: _Kind, messages: Sequence[_Message]) -> Messages:
        sender, receiver = ENDS[kind.step]
        block = self._block(messages, readable=kind.readable)
        layout = self.arrays.layout
        return Messages(
            round=self._round,
            step=kind.step,
            senders=Parties(role=sender, ids=np.array([each.sender for each in messages])),
            receivers=Parties(role=receiver, ids=np.array([each.receiver for each in messages])),
            payload=block,
            sizes=message_sizes(block, width=layout.width, codec=layout.codec),
            # Placeholders: tags are drawn when messages are written.
            tags=None if kind.named else np.arange(len(messages), dtype=np.uint64),
        )

    @staticmethod
    def _block(messages: Sequence[_Message], *, readable: bool) -> RowBlock:
        counted = any(each.counts is not None for each in messages)
        counts = [
            np.ones(len(each.rows), dtype=np.int64) if each.counts is None else each.counts
            for each in messages
        ]
        return RowBlock(
            indptr=bounds_of(np.array([len(each.rows) for each in messages])),
            rows=np.concatenate([each.rows for each in messages]),
            values=np.concatenate([each.words for each in messages]) if readable else None,
            counts=np.concatenate(counts) if counted else None,
        )


class RecordedRound:
    """A round that is being recorded; see ``Recorder.round``.

    Args:
        recorder: writes it.
        number: number of the round.
    """

    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder, self._number = recorder, number

    def upload(
        self, client: Party, values: Mapping[str, Any] | None, *, weight: float | None = None
    ) -> None:
        """Record a client's message to the server; None for values that the server cannot read."""
        self._recorder.message(self._number, "upload", client, "server", values, weight=weight)

    def aggregate(self, values: Mapping[str, Any], *, counts: Any = None) -> None:
        """The sums that the server holds."""
        self._recorder.message(self._number, "aggregate", "server", "server", values, counts=counts)

    def result(self, values: Mapping[str, Any]) -> None:
        """The public arrays that the round leads to."""
        self._recorder.after(self._number, values)


def _whole(name: str, value: Any, most: int) -> int:
    """A whole number of any kind, from 1.

    Raises:
        MisfitError: the value is not such a number.
    """
    try:
        found = 0 if isinstance(value, bool | np.bool_) else index(value)
    except (TypeError, ValueError, RuntimeError):
        found = 0
    if not 1 <= found <= most:
        raise MisfitError(f"{name} = {value!r}: a whole number from 1 to {most} is meant")
    return found


def _round_of(value: Any) -> int:
    return _whole("round", value, _MOST_ROUNDS)


def _require_kinds(**told: tuple[Any, type]) -> None:
    """Refuse statements of another type.

    Raises:
        MisfitError: a statement has another type.
    """
    for name, (value, kind) in told.items():
        if value is not None and not isinstance(value, kind):
            raise MisfitError(f"{name} = {value!r}: a {kind.__name__} is meant")


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts as JSON values: arrays and tuples as lists."""
    return {name: _json(value) for name, value in facts.items()}


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_json(each) for each in value] if isinstance(value, list | tuple) else value
