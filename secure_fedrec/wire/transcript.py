"""Transcripts and views: an attack gets exactly what one adversary saw, and nothing else.

An ``Adversary`` names the parties that it corrupts and the traffic that it taps. Its ``View`` of a
transcript yields the messages those parties sent or received, senders as the receiver saw them,
payloads where the recording policy kept them, and the public knowledge of the protocol. Asking a
view for anything else raises ``TranscriptError``.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.files import read_json, replace_file
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.errors import NOT_STATED, TranscriptError, UnstatedFactError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock, SetBlock
from secure_fedrec.wire.adversary import Adversary
from secure_fedrec.wire.closed import ClosedBlocks
from secure_fedrec.wire.held import held
from secure_fedrec.wire.message_batches import NOBODY, Messages, Parties, Step
from secure_fedrec.wire.recording import (
    EXTRA,
    HIDDEN_COUNTS,
    RESULT,
    BlockStore,
    kind_of,
    part_of,
    rows_in,
)
from secure_fedrec.wire.spool import Columns, concatenate_columns, gathered_columns
from secure_fedrec.wire.truth import OwnUploads
from secure_fedrec.wire.within import Within

_SCHEMA = "1"
ENDS = {  # role of sender, role of receiver
    Step.MODEL: ("server", "client"),
    Step.UPLOAD: ("client", "server"),
    Step.NOISE: ("client", "denoiser"),
    Step.DENOISE: ("denoiser", "server"),
    Step.AGGREGATE: ("server", "server"),
    Step.SHARE: ("client", "denoiser"),
    Step.COUNTS: ("client", "server"),
    Step.BAG: ("client", "server"),
    Step.PEER: ("client", "client"),
    Step.PART: ("server", "client"),
}
"""Roles of sender and receiver of each step."""

TRAFFIC = "traffic"
"""Name for the view of a network tap."""

TABLE = "table"
"""Name under which the next public table is received and read."""

_IN_BLOCKS = frozenset(
    kind_of(step) for step in Step if step not in (Step.MODEL, Step.PART, Step.BAG, Step.COUNTS)
)
COUNTED = f"{kind_of(Step.AGGREGATE)} counts"
"""Name for the numbers of clients behind rows of a sum."""

KNOWLEDGE = "knowledge: seed"
"""Name for facts that follow from the seed of a run."""

_BAGS = kind_of(Step.BAG, "")
_TAPPED = tuple(step for step in Step if step not in (Step.MODEL, Step.PART, Step.AGGREGATE))


class _Stated(dict[str, Any]):
    """Facts by name. A fact that is not stated is unknown and is not replaced by a default."""

    def __missing__(self, name: str) -> Any:
        raise UnstatedFactError(f"the public knowledge {NOT_STATED} {name!r}")


def _stated(known: Any) -> Any:
    """A copy of JSON values whose tables raise an error for a missing key."""
    if isinstance(known, Mapping):
        return _Stated({name: _stated(value) for name, value in known.items()})
    return [_stated(each) for each in known] if isinstance(known, list | tuple) else known


class Transcript:
    """A recorded run.

    Args:
        store: blocks of what parties saw.
        public: public knowledge of the protocol (JSON values).
    """

    __slots__ = ("_store", "public")

    def __init__(self, store: BlockStore, public: Mapping[str, Any]) -> None:
        self._store = store
        self.public = public

    def stating(self, public: Mapping[str, Any]) -> "Transcript":
        """The same recording with other public knowledge, e.g. with a fact left out."""
        return Transcript(self._store, public)

    def held(self) -> "Transcript":
        """The same finished recording, for repeated reading: blocks stay in memory once read."""
        return Transcript(held(self._store), self.public)

    def closed(self) -> "Transcript":
        """The same recording without its messages: asking for one raises ``MessageAskedError``."""
        return Transcript(ClosedBlocks(self._store), self.public)

    @classmethod
    def open(cls, directory: Path) -> "Transcript":
        """Open a recorded transcript folder.

        Raises:
            TranscriptError: no manifest there, or one of another version.
        """
        try:
            manifest = read_json(directory / "transcript.json")
        except (OSError, ValueError) as damage:
            raise TranscriptError(f"{directory} holds no readable transcript.json") from damage
        if not isinstance(manifest, dict) or not isinstance(manifest.get("public"), dict):
            raise TranscriptError(f"{directory} holds a transcript.json of another kind")
        if manifest.get("schema_version") != _SCHEMA:
            found = manifest.get("schema_version")
            raise TranscriptError(f"{directory} has transcript version {found!r}, need {_SCHEMA!r}")
        return cls(BlockStore(directory), manifest["public"])

    def save_manifest(self, directory: Path) -> None:
        """Write ``transcript.json`` beside the rounds."""
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"schema_version": _SCHEMA, "public": dict(self.public)}, indent=2)
        replace_file(directory / "transcript.json", f"{text}\n".encode())

    @property
    def bytes(self) -> int:
        """Bytes recorded so far."""
        return self._store.bytes

    def digest(self) -> str:
        """SHA-256 over the recorded columns of every round, independent of how they are stored."""
        whole = sha256(json.dumps(dict(self.public), sort_keys=True).encode())
        for round_ in self._store.rounds():
            stored = [(step, kind) for step in Step for kind in _kinds(self._store, step, round_)]
            for step, kind in stored:
                label = f"{round_}|{step.name}{kind.removeprefix(kind_of(step))}"
                for columns in self._store.read(round_, kind):
                    for name in sorted(columns):
                        whole.update(f"{label}|{name}|".encode())
                        whole.update(np.ascontiguousarray(columns[name]).tobytes())
        return whole.hexdigest()

    def view(
        self,
        adversary: Adversary,
        *,
        own: OwnUploads | None = None,
        first: Mapping[str, FloatArray] | None = None,
    ) -> "View":
        """The view of an adversary: what it saw and knows.

        Args:
            adversary: whose view.
            own: inputs of its own clients to sums.
            first: private tables before the first round, by name, for an adversary that knows the
                seed; None where they do not follow from it.
        """
        return View(self._store, self.public, adversary, own=own, first=first)


class View:
    """All that an attack is given.

    Attributes:
        adversary: whose view this is.
        public: read-only public knowledge (hyper-parameters, rating scale, ring, roles); what is
            not stated there raises ``UnstatedFactError``.
        codec: the public ring; of a view of one block that of its values.
        own: what the adversary's own clients put into the sums; None where it is not known.
        block: the rows of a view of one block; None for all rows.
        asked: steps whose payloads were read, here or in a view of a part of this one.
        fetched: the used parts of ``received`` and of ``known``, likewise.
    """

    __slots__ = (
        *("_first", "_only", "_store", "adversary", "asked", "block", "codec", "fetched", "own"),
        "public",
    )

    def __init__(
        self,
        store: BlockStore,
        public: Mapping[str, Any],
        adversary: Adversary,
        *,
        only: int | None = None,
        own: OwnUploads | None = None,
        first: Mapping[str, FloatArray] | None = None,
    ) -> None:
        self._store = store
        self._first = first if "seed" in adversary.knows else None
        self.asked: set[Step] = set()
        self.fetched: set[str] = set()
        self.block: Within | None = None
        self.own = own
        self._only = only
        self.adversary = adversary
        self.public: Mapping[str, Any] = MappingProxyType(_stated(public))
        try:
            self.codec = FixedPoint(**self.public["ring"])
        except (UnstatedFactError, TypeError) as damage:
            raise TranscriptError("the public knowledge names no ring") from damage

    def at(self, round_: int) -> "View":
        """The same view, limited to one round."""
        return self._part(self.block, self.own, only=round_)

    def of_block(self, kind: str) -> "View | None":
        """The same view of one block: only its rows, numbered from 0, in its own width.

        Args:
            kind: the first block of that kind is taken; the result is None where there is no such
                block.

        Raises:
            TranscriptError: the public knowledge names no blocks.
        """
        within = Within.of_kind(kind, self.public, FixedPoint(**self.public["ring"]))
        if within is None:
            return None
        own = None if self.own is None else self.own.within(within)
        return self._part(within, own)

    def of_values(self, start: int, stop: int) -> "View":
        """The same view of some values of its flat block: all others are 0 and not read.

        If uploads do not have named blocks, the view has all rows.
        """
        block = self.block
        return self if block is None else self._part(block.of_values(start, stop), self.own)

    def _part(
        self, block: Within | None, own: OwnUploads | None, *, only: int | None = None
    ) -> "View":
        only = self._only if only is None else only
        view = View(self._store, self.public, self.adversary, only=only, own=own, first=self._first)
        view.block, view.codec = block, self.codec if block is None else block.codec
        view.asked, view.fetched = self.asked, self.fetched
        return view

    def sees(self, step: Step) -> bool:
        """Whether any message of that step reached or left a corrupted party."""
        if step is Step.MODEL:  # everybody takes part in the broadcast, denoisers as clients
            # If it is not stated, nobody is excluded, so that adversaries are not underestimated.
            blind = set(self.public.get("model_hidden_from", ()))
            return any(party.split(":")[0] not in blind for party in self.adversary.corrupt)
        sender, receiver = ENDS[step]
        return self.adversary.has(sender) or self.adversary.has(receiver)

    def rounds(self, step: Step) -> tuple[int, ...]:
        """Completed rounds with a message of that step.

        Raises:
            TranscriptError: the adversary did not see the step.
        """
        self._require(step)
        return tuple(r for r in self._rounds() if self._names(step, r))

    def received(self) -> tuple[str, ...]:
        """Values that corrupted parties received from others, by name.

        For each step its blocks and bags, and counts of the aggregate separately; ``TRAFFIC`` for a
        tap. A party without the aggregate receives the moving parts of the public state: ``TABLE``,
        and extras. The party that makes that state, and the parts that go to single clients, learns
        nothing from them. No party learns anything from a block that holds a 1 of each client.
        """
        told: list[str] = []
        made = {Step.MODEL, *({Step.PART} if self.sees(Step.AGGREGATE) else ())}
        for step in (each for each in Step if each not in made and self._gets(each)):
            bags = {kind for r in self._rounds() for kind in _kinds(self._store, step, r)}
            ones = [f"{kind_of(step)} of {each['name']}" for each in self._ones(step)]
            names = (name for kind in sorted(bags) for name in self._parts(kind, whole=True))
            told += [name for name in names if name not in ones]
        if self._gets(Step.AGGREGATE) and self._is_counted():
            told.append(COUNTED)
        if self.sees(Step.MODEL) and not self._gets(Step.AGGREGATE):
            told += self._moved()
        return (*told, *((TRAFFIC,) if "network" in self.adversary.taps else ()))

    def known(self) -> tuple[str, ...]:
        """What the adversary knows besides messages, as ``received``: ``KNOWLEDGE`` or nothing."""
        return () if self._first is None else (KNOWLEDGE,)

    def first_vectors(self, width: int) -> FloatArray | None:
        """float64[n, width]: the private vectors that clients begin with; None if not known.

        They are the only private table with that many values per client, if there is exactly one.
        """
        tables = () if self._first is None else self._first.values()
        found = [table for table in tables if table.ndim == 2 and table.shape[1] == width]
        if len(found) != 1:
            return None
        self.fetched.add(KNOWLEDGE)
        return _frozen(found[0])

    def _gets(self, step: Step) -> bool:
        members = self.adversary.members(ENDS[step][1])
        if members is None:
            return any(self._names(step, round_) for round_ in self._rounds())
        later = (part_of(RESULT),) if step is Step.PART else ()
        return bool(members) and any(
            np.isin(columns["receivers"], sorted(members)).any()
            for round_ in self._rounds()
            for kind in (*_kinds(self._store, step, round_), *later)
            for columns in self._store.read(round_, kind)
        )

    def _is_counted(self) -> bool:
        """Whether sums show how many clients sent each row, if clients omit some rows."""
        kinds = {each["kind"] for each in self.public.get("blocks", ())}
        held = (each for r in self._rounds() for each in self._names(Step.AGGREGATE, r))
        return kinds != {"flat"} and any("counts" in each for each in held)

    def _ones(self, step: Step) -> Iterator[Mapping[str, Any]]:
        """Blocks of one value that equals the number of clients in all kept messages of a step."""
        for block in self.public.get("blocks", ()):
            if block["size"] == 1:
                own = Within.of(block, self.codec)
                kept = (c for r in self._kept(step) for c in self._store.read(r, kind_of(step)))
                found = [own.rows_of(rows_in(c)) for c in kept if "values" in c]
                if found and all(_is_ones(each, own.codec) for each in found):
                    yield block

    def _moved(self) -> Iterator[str]:
        """Parts of the public state that a round changed; the table, if none was kept."""
        kept, seen = self._kept(Step.MODEL), set[str]()
        for round_ in kept:
            before = self._model(round_)
            after = next(self._store.read(round_, RESULT), Columns())
            both = before.keys() & after.keys()
            seen |= (before.keys() | after.keys()) - {
                name for name in both if np.array_equal(before[name], after[name])
            }
        for name in sorted(seen) if kept else [TABLE]:
            yield from self._parts(name, whole=True) if name == TABLE else [_extra(name)]

    def _parts(self, kind: str, *, whole: bool = False) -> list[str]:
        """The view's names of messages, as received and as read: by block if there are several.

        Args:
            kind: kind of the messages.
            whole: of all blocks, whatever the view holds.
        """
        blocks = self.public.get("blocks", ())
        several = len(blocks) > 1 and kind in _IN_BLOCKS
        mine = [b for b in blocks if whole or self.block is None or self.block.first == b["first"]]
        if not whole and self.block is not None and self.block.leaves_out:
            return []
        return [f"{kind} of {each['name']}" for each in mine] if several else [kind]

    def payload_rounds(self, step: Step) -> tuple[int, ...]:
        """Rounds in which payloads of that step were kept."""
        self._require(step)
        self.asked.add(step)
        return self._kept(step)

    def unrecorded(self) -> tuple[Step, ...]:
        """Steps whose payloads were read, although some or all of their messages were not kept.

        Only messages of the rounds that the recording policy names count: other rounds are not
        missing if there is at least one round.
        """
        return tuple(step for step in Step if step in self.asked and self._lacks(step))

    def _lacks(self, step: Step) -> bool:
        kept = self._kept(step)
        if not kept:  # only digests of tables are recorded; every party was sent one
            return step is Step.MODEL or bool(self.rounds(step))
        parts = [names for round_ in kept for names in self._names(step, round_)]
        return step is not Step.MODEL and any("values" not in names for names in parts)

    def _kept(self, step: Step) -> tuple[int, ...]:
        column = "table" if step is Step.MODEL else "values"
        return tuple(
            r for r in self._rounds() if any(column in names for names in self._names(step, r))
        )

    def table(self, round_: int, *, after: bool = False) -> FloatArray:
        """float64[m, d]: the public item table the clients worked on in that round.

        Args:
            round_: which round.
            after: the table that the round led to instead.

        Raises:
            TranscriptError: it was not recorded, or the adversary does not see it.
        """
        table = _frozen(self._model(round_, after=after)["table"])
        if after:
            self.fetched.update(self._parts(TABLE))
        return table if self.block is None else self.block.kept(self._own_rows(table))

    def _own_rows(self, table: FloatArray) -> FloatArray:
        """The block's rows of a table; cut out if the table has the rows of all blocks."""
        block = self.block
        whole = sum(each["rows"] for each in self.public["blocks"])
        if block is None or len(table) != whole:
            return table
        return table[block.first : block.first + block.rows, : block.width]

    def has_result(self, round_: int) -> bool:
        """Whether the public state that a round led to was recorded."""
        self._require(Step.MODEL)
        return bool(self._store.names(round_, RESULT))

    def extras(self, round_: int, *, after: bool = False) -> dict[str, FloatArray]:
        """What was broadcast beside the table in that round, by name; ``after`` as for tables.

        Parts sent to some clients only are included if one of them, or the server, is corrupted.

        Raises:
            TranscriptError: it was not recorded, or the adversary does not see it.
        """
        kind = part_of(RESULT) if after else kind_of(Step.PART)
        parts = [
            columns
            for columns in self._store.read(round_, kind)
            if self._is_sent(columns["receivers"])
        ]
        found = [self._model(round_, after=after), *parts]
        extras = {name: part[name] for part in found for name in part if name.startswith(EXTRA)}
        told = {name.removeprefix(EXTRA): _frozen(values) for name, values in extras.items()}
        own = {name.removeprefix(EXTRA) for part in parts for name in part}
        return _Noting(told, self.fetched, own=own, after=after)

    def bags(self, round_: int) -> tuple[str, ...]:
        """Names of the bags that got messages in a round.

        Raises:
            TranscriptError: the adversary saw no message for a bag.
        """
        self._require(Step.BAG)
        self._require_round(round_)
        return tuple(k.removeprefix(_BAGS) for k in _kinds(self._store, Step.BAG, round_))

    def messages(
        self, step: Step, round_: int, *, payload: bool = False, bag: str | None = None
    ) -> Messages:
        """Messages of a step in a round, as the corrupted parties saw them.

        Named senders come in their order; anonymous messages come in their (random) order of
        arrival.

        Args:
            step: which step.
            round_: which round.
            payload: only the messages whose values were kept, with them; otherwise all messages,
                without values.
            bag: which bag, of step ``BAG``.

        Raises:
            TranscriptError: the adversary did not see such a message, or it was not recorded.
        """
        self._require(step)
        self._require_round(round_)
        if payload:
            self.asked.add(step)
            self.fetched.update(self._parts(kind_of(step, bag)))
        if step is Step.AGGREGATE:
            self.fetched.add(COUNTED)
        if step in (Step.MODEL, Step.PART):
            raise TranscriptError("the model is one table for all; ask for table or extras(round)")
        if (step is Step.BAG) != (bag is not None):
            raise TranscriptError("messages of step BAG, and no others, are those of one bag")
        columns = gathered_columns(
            self._strip(columns, step, payload=payload)
            for columns in self._store.read(round_, kind_of(step, bag))
            if not payload or "values" in columns
        )
        if not columns:
            what = "payload" if payload else "message"
            kind = kind_of(step, bag).upper()
            raise TranscriptError(f"no {what} of step {kind} was recorded in round {round_}")
        found = self._visible(self._build(step, round_, columns, bag))
        return found if self.block is None else self.block.cut(found)

    def traffic(self, round_: int) -> dict[Step, tuple[IntArray, IntArray, IntArray]]:
        """Per step, senders where known, receivers and sizes of every message, for a network tap.

        Raises:
            TranscriptError: the adversary taps no network.
        """
        if "network" not in self.adversary.taps:
            raise TranscriptError(f"{self.adversary.name} does not tap the network")
        self.fetched.add(TRAFFIC)
        seen: dict[Step, tuple[IntArray, IntArray, IntArray]] = {}
        for step in _TAPPED:
            parts = [
                {name: columns[name] for name in ("senders", "receivers", "sizes")}
                for kind in _kinds(self._store, step, round_)
                for columns in self._store.read(round_, kind)
            ]
            if parts:
                columns = concatenate_columns(parts)
                order = np.lexsort((columns["sizes"], columns["receivers"], columns["senders"]))
                ends = (columns["senders"], columns["receivers"], columns["sizes"])
                seen[step] = (ends[0][order], ends[1][order], ends[2][order])
        return seen

    def _is_sent(self, receivers: IntArray) -> bool:
        clients, own = self.adversary.members("client"), self.own
        mine = (clients or frozenset()) | (frozenset() if own is None else own.clients)
        return self.adversary.has("server") or bool(mine.intersection(receivers.tolist()))

    def _model(self, round_: int, *, after: bool = False) -> Columns:
        self._require(Step.MODEL)
        self._require_round(round_)
        for columns in self._store.read(round_, RESULT if after else "model"):
            return columns
        raise TranscriptError(f"the table of round {round_} was not recorded")

    def _names(self, step: Step, round_: int) -> list[tuple[str, ...]]:
        kinds = _kinds(self._store, step, round_)
        return [names for kind in kinds for names in self._store.names(round_, kind)]

    def _rounds(self) -> tuple[int, ...]:
        rounds = self._store.rounds()
        return rounds if self._only is None else tuple(r for r in rounds if r == self._only)

    def _require_round(self, round_: int) -> None:
        if self._only not in (None, round_):
            raise TranscriptError(f"this view holds round {self._only} only")

    def _require(self, step: Step) -> None:
        if not self.sees(step):
            raise TranscriptError(f"{self.adversary.name} saw no message of step {step.name}")

    @staticmethod
    def _strip(columns: Columns, step: Step, *, payload: bool) -> Columns:
        keep = dict(columns)
        if not payload:
            keep.pop("values", None)
            if step in HIDDEN_COUNTS:
                keep.pop("counts", None)
        return keep

    @staticmethod
    def _build(step: Step, round_: int, columns: Columns, bag: str | None) -> Messages:
        sender, receiver = ENDS[step]
        payload: RowBlock | SetBlock
        if step is Step.BAG:
            bounds = bounds_of(columns["lengths"])
            payload = SetBlock(indptr=bounds, values=columns.get("values"))
        else:
            payload = rows_in(columns)
        return Messages(
            round=round_,
            step=step,
            senders=Parties(role=sender, ids=columns["senders"]),
            receivers=Parties(role=receiver, ids=columns["receivers"]),
            payload=payload,
            sizes=columns["sizes"],
            tags=columns.get("tags"),
            bag=bag,
        )

    def _visible(self, messages: Messages) -> Messages:
        keep = np.zeros(len(messages), dtype=bool)
        for parties in (messages.senders, messages.receivers):
            members = self.adversary.members(parties.role)
            if members is None:
                keep[:] = True
            elif members:
                keep |= np.isin(parties.ids, [number for number in members if number != NOBODY])
        # In the order of arrival, by name or by random tag: as recorded within a block, not across
        # blocks with and without payloads.
        order = messages.senders.ids if messages.tags is None else messages.tags
        if keep.all() and (order[1:] >= order[:-1]).all():
            return messages
        visible = np.flatnonzero(keep)
        return messages.select(visible[np.argsort(order[visible], kind="stable")])


class _Noting(dict[str, FloatArray]):
    """Arrays by name; records which are looked up, with parts for single clients as one."""

    def __init__(
        self, told: Mapping[str, FloatArray], fetched: set[str], *, own: set[str], after: bool
    ) -> None:
        super().__init__(told)
        self._fetched, self._own, self._after = fetched, own, after

    def __getitem__(self, name: str) -> FloatArray:
        if name in self._own:
            self._fetched.add(kind_of(Step.PART))
        elif self._after:
            self._fetched.add(_extra(name))
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The same, or a default."""
        return self[name] if self.keys() & {name} else default


def _is_ones(block: RowBlock, codec: FixedPoint) -> bool:
    """Whether a block of one value holds a 1 of each client behind its rows."""
    clients = np.ones(len(block.rows)) if block.counts is None else block.counts
    return block.values is not None and np.array_equal(codec.decode(block.values)[:, 0], clients)


def _extra(column: str) -> str:
    return f"public {column.removeprefix(EXTRA)}"


def _frozen(values: FloatArray) -> FloatArray:
    copied = np.array(values)
    copied.setflags(write=False)
    return copied


def _kinds(store: BlockStore, step: Step, round_: int) -> list[str]:
    """Names under which messages of a step may be stored."""
    if step is not Step.BAG:
        return [kind_of(step)]
    return [kind for kind in store.kinds(round_) if kind.startswith(_BAGS)]
