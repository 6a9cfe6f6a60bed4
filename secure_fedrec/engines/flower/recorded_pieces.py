"""Pieces written by clients of a Flower federation, and their conversion to a recording.

A folder ``node-ID`` has ``piece-NNNNNN.npz`` for each message to a client, from 1, and
``model-DIGEST.npz`` for each model that it was sent: ``facts``, a JSON object in UTF-8 as uint8[k]
(``Piece``; of a model its ``names``), and ``array-I``, the arrays of the reply to a train message,
or of the model, in the order of ``names``. Nothing here needs Flower.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from operator import index
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.engines.flower.recorded_replies import (
    note_upload,
    require_left_out,
    whole_model,
)
from secure_fedrec.errors import MisfitError, TranscriptError
from secure_fedrec.protection.session.statement import state_hash
from secure_fedrec.recording import Recorder
from secure_fedrec.recording.own_files import require_file, require_folder

_NODE, _PIECE, _MODEL, _ARRAY, _FACTS = "node-", "piece-", "model-", "array-", "facts"
_HEX = re.compile("|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One message to a client and its answer, without arrays.

    Args:
        run: Flower's number of the run.
        node: Flower's number of the client.
        partition: the client's "partition-id", where it has one; else -1.
        round: "server-round" of the message, or its group where that is a number; else 0.
        kind: type of the message.
        model: digest of the model that was sent, in hexadecimal digits; empty without one.
        replied: whether the answer has content.
        names: names of the arrays of the answer to a train message, in order.
        metrics: metrics of that answer, by name.
    """

    run: int
    node: int
    partition: int
    round: int
    kind: str
    model: str
    replied: bool
    names: tuple[str, ...] = ()
    metrics: Mapping[str, Any]

    @property
    def trains(self) -> bool:
        """Whether the message asked the client to train."""
        return self.kind.partition(".")[0] == "train"


_Taken: TypeAlias = tuple[Piece, Path]


def folder_of(place: Path, node: int) -> Path:
    """The folder of a node's pieces; it is created if missing, for its owner only.

    Raises:
        OSError: it cannot be made.
    """
    folder = place / f"{_NODE}{node}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def keep_model(folder: Path, model: Mapping[str, Any]) -> str:
    """Store a model that a node was sent, once for all messages with it; returns its digest.

    Raises:
        OSError: it cannot be written.
    """
    digest = state_hash(model).hex()
    path = folder / f"{_MODEL}{digest}.npz"
    if not path.exists():
        _write(path, {"names": list(model)}, model.values())
    return digest


def keep_piece(folder: Path, piece: Piece, arrays: Iterable[Any]) -> None:
    """Write the next piece of a node.

    Args:
        folder: folder of the node.
        piece: facts about it.
        arrays: those of ``piece.names``, in that order.

    Raises:
        OSError: it cannot be written.
    """
    _write(folder / _name_of(len(_numbered(folder)) + 1), asdict(piece), arrays)


def join_pieces(
    folders: str | Path | Iterable[str | Path],
    recorder: Recorder,
    *,
    client_of: Callable[[Piece], int] | None = None,
    round_of: Callable[[Piece], int] | None = None,
    weighted_by: str = "num-examples",
    final: Mapping[str, Any] | None = None,
) -> tuple[int, ...]:
    """Convert the pieces of a run to one recording, with the names and rules of a strategy's.

    The model that a round led to is the one of the next, or, after the last, the one that clients
    were sent to evaluate in it.

    Args:
        folders: those that the mods were given, or one for all; of all clients that took part.
        recorder: as for ``RecordedStrategy``; it is not closed.
        client_of: number of the client of a piece; by default its partition, where each node has
            one of its own, else the place of its node among all nodes, in ascending order.
        round_of: round of a piece, from 1; by default the one that the piece has.
        weighted_by: metric of a train reply that is its weight, where the recorder has one.
        final: the model after the last round, where no client was sent it.

    Returns:
        Flower's number of each client with a piece, in ascending order of client numbers.

    Raises:
        TranscriptError: a folder holds no pieces, one is damaged, not a regular file, in the folder
            of another node or missing in between, it names an array twice, they are of more than
            one run, or one has no round.
        MisfitError: clients of a round were sent different models, a client answers twice in a
            round, two nodes have one number, or as ``recorded_replies``.
    """
    places = [folders] if isinstance(folders, str | Path) else folders
    taken = [each for folder in places for each in _pieces_in(Path(folder))]
    runs = sorted({piece.run for piece, _ in taken})
    if len(runs) != 1:
        raise TranscriptError(f"pieces are of {len(runs)} runs, and must be of one: {runs}")
    clients = _numbers(taken, client_of)
    by_round: dict[int, list[_Taken]] = {}
    for piece, path in taken:
        round_ = piece.round if round_of is None else _number("round_of", round_of(piece))
        if round_ < 1:
            raise TranscriptError(f"{path}: the message does not name a round; give it by round_of")
        by_round.setdefault(round_, []).append((piece, path))
        if piece.replied and not piece.trains:
            require_left_out(recorder, piece.kind)
    trained = {round_: _of_training(each) for round_, each in by_round.items()}
    rounds = sorted(round_ for round_, each in trained.items() if each)
    for round_ in rounds:
        _note_round(recorder, round_, trained[round_], clients, weighted_by)
    if rounds and final is None:
        tried = [each for each in by_round[rounds[-1]] if each not in trained[rounds[-1]]]
        final = _sent(rounds[-1], [each for each in tried if each[0].model])
    if rounds and final is not None:
        recorder.after(rounds[-1], whole_model(recorder, final))
    return tuple(sorted(clients, key=clients.__getitem__))


def _of_training(taken: Iterable[_Taken]) -> list[_Taken]:
    return [each for each in taken if each[0].trains]


def _note_round(
    recorder: Recorder,
    round_: int,
    taken: Iterable[_Taken],
    clients: Mapping[int, int],
    weighted_by: str,
) -> None:
    """Record a round: the model, and the clients' messages in the order of their numbers.

    Raises:
        TranscriptError: a file is damaged.
        MisfitError: as ``join_pieces``.
    """
    ordered = sorted(taken, key=lambda each: clients[each[0].node])
    model = whole_model(recorder, _sent(round_, ordered) or {})
    recorder.message(round_, "model", "server", None, model)
    before = None
    for piece, path in ordered:
        if piece.node == before:
            raise MisfitError(f"client {clients[before]} answers twice in round {round_}: {path}")
        before = piece.node
        if piece.replied:
            arrays = _arrays_in(path, piece.names, f"{path} is damaged")
            client, metrics = clients[piece.node], piece.metrics
            note_upload(recorder, round_, client, arrays, metrics, weighted_by=weighted_by)


def _sent(round_: int, taken: Sequence[_Taken]) -> dict[str, Any] | None:
    """The model that clients were sent; None if none was sent.

    Raises:
        MisfitError: clients were sent different models.
        TranscriptError: its file is damaged.
    """
    models = {piece.model for piece, _ in taken}
    if len(models) > 1:
        problem = "different models, but a recording has one for all"
        raise MisfitError(f"in round {round_} clients were sent {problem}")
    if not taken:
        return None
    digest = models.pop()
    path = taken[0][1].with_name(f"{_MODEL}{digest}.npz")
    names: Any = _facts_in(path).get("names")
    wrong = f"{path} is not the model of its name"
    _require_names(wrong, names)
    model = _arrays_in(path, names, wrong)
    if not model or state_hash(model).hex() != digest:
        raise TranscriptError(wrong)
    return model


def _number(name: str, told: Any) -> int:
    """The result of a caller's function, checked.

    Raises:
        MisfitError: the result is not a whole number.
    """
    try:
        return index(told)
    except TypeError as other:
        raise MisfitError(f"{name} gives {told!r}: a whole number is meant") from other


def _numbers(taken: Iterable[_Taken], client_of: Callable[[Piece], int] | None) -> dict[int, int]:
    """Number of the client of each node.

    Raises:
        MisfitError: two nodes have one, or one has two.
    """
    pieces = [piece for piece, _ in taken]
    nodes = sorted({piece.node for piece in pieces})
    if client_of is None:
        parts = {(piece.node, piece.partition) for piece in pieces}
        own = {partition for _, partition in parts if partition >= 0}
        places = dict(zip(nodes, range(len(nodes)), strict=True))
        found = parts if len(parts) == len(own) == len(nodes) else set(places.items())
    else:
        found = {(piece.node, _number("client_of", client_of(piece))) for piece in pieces}
    if not len(found) == len(nodes) == len({number for _, number in found}):
        raise MisfitError("client_of gives two nodes the same number, or one node two numbers")
    return dict(found)


def _pieces_in(folder: Path) -> Iterator[_Taken]:
    """The pieces of all nodes of a folder, or those of the node whose folder it is.

    Raises:
        TranscriptError: there are none, one is missing in between, or one is damaged.
    """
    nodes = [folder] if folder.name.startswith(_NODE) else sorted(folder.glob(f"{_NODE}*"))
    found = 0
    for node in nodes:
        require_folder(node)
        for number, path in enumerate(_numbered(node), start=1):
            if path.name != _name_of(number):
                raise TranscriptError(f"{node} lacks {_name_of(number)}, and has later ones")
            yield _piece_of(path), path
            found += 1
    if not found:
        raise TranscriptError(f"{folder} holds no pieces of a recording")


def _numbered(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_PIECE}*.npz"))


def _name_of(number: int) -> str:
    return f"{_PIECE}{number:06d}.npz"


def _write(path: Path, facts: Mapping[str, Any], arrays: Iterable[Any]) -> None:
    told = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    columns = {f"{_ARRAY}{place}": array for place, array in enumerate(arrays)}
    write_npz(path, {_FACTS: told, **columns}, private=True)


def _piece_of(path: Path) -> Piece:
    """The facts of a piece.

    Raises:
        TranscriptError: it is damaged.
    """
    facts = _facts_in(path)
    kinds = {"run": int, "node": int, "partition": int, "round": int, "kind": str, "model": str}
    kinds |= {"replied": bool, "names": list, "metrics": dict}
    if facts.keys() != kinds.keys() or any(type(facts[key]) is not kinds[key] for key in kinds):
        raise TranscriptError(f"{path} does not hold the facts of a piece")
    if not _HEX.fullmatch(facts["model"]):
        raise TranscriptError(f"{path} names no model by its digest")
    if path.parent.name != f"{_NODE}{facts['node']}":
        raise TranscriptError(f"{path} is a piece of node {facts['node']}")
    _require_names(f"{path} is damaged", facts["names"])
    return Piece(**{**facts, "names": tuple(facts["names"])})


def _require_names(wrong: str, names: Any) -> None:
    """Refuse names of arrays that are not words, each of one array.

    Raises:
        TranscriptError: a name is not a word, or names several arrays.
    """
    words = isinstance(names, list) and all(isinstance(each, str) for each in names)
    if not words or len(set(names)) < len(names):
        raise TranscriptError(f"{wrong}: names of arrays must be distinct words")


def _facts_in(path: Path) -> dict[str, Any]:
    with _unless_damaged(path):
        facts = json.loads(read_npz(path, later=_ARRAY, stored=True)[_FACTS].tobytes())
    if not isinstance(facts, dict):
        raise TranscriptError(f"{path} does not hold facts")
    return facts


def _arrays_in(path: Path, names: Iterable[str], wrong: str) -> dict[str, Any]:
    with _unless_damaged(path):
        columns = read_npz(path, stored=True)
        found = {name: columns[f"{_ARRAY}{place}"] for place, name in enumerate(names)}
    if len(found) != len(columns) - 1:
        raise TranscriptError(f"{wrong}: it does not hold the arrays that it names")
    return found


@contextmanager
def _unless_damaged(path: Path) -> Iterator[None]:
    require_file(path)
    try:
        yield
    except (OSError, ValueError, KeyError, AttributeError, RecursionError) as damage:
        raise TranscriptError(f"{path} is damaged: {damage}") from damage
