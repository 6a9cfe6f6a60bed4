"""Pieces that are not what a mod writes: refused, and nothing of them is dropped in silence."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.engines.flower.recorded_pieces import (
    Piece,
    folder_of,
    join_pieces,
    keep_model,
    keep_piece,
)
from secure_fedrec.errors import MisfitError, TranscriptError
from secure_fedrec.recording import SENT_AS_THEY_ARE, Recorder

NODES = (11, 22)


def recorder() -> Recorder:
    return Recorder(
        n_clients=len(NODES),
        arrays={"w": (3, 2), "b": (2,), "metrics.loss": ()},
        sums=SENT_AS_THEY_ARE,
        weighted=True,
        send_models=True,
    )


def pieces(place: Path, *, weight: Any = 5, names: tuple[str, ...] = ("w", "b")) -> Path:
    """One round of two nodes."""
    for node in NODES:
        folder = folder_of(place, node)
        model = keep_model(folder, {"w": np.zeros((3, 2)), "b": np.zeros(2)})
        piece = Piece(
            run=7,
            node=node,
            partition=-1,
            round=1,
            kind="train",
            model=model,
            replied=True,
            names=names,
            metrics={"num-examples": weight, "loss": 0.5},
        )
        arrays = [np.ones((3, 2)), np.ones(2), np.zeros((3, 2)), np.array(7.0)]
        chosen = [arrays[0], arrays[1], *(arrays[3 if "." in n else 2] for n in names[2:])]
        keep_piece(folder, piece, chosen)
    return place


def test_sound_pieces_are_joined(tmp_path: Path) -> None:
    """Two uploads of one round, of the nodes in their order."""
    taken = recorder()
    assert join_pieces(pieces(tmp_path), taken) == NODES
    (sent,) = taken.close().seen.read(1, "upload")
    assert sent["senders"].tolist() == [0, 1]


@pytest.mark.parametrize("weight", [0, -5, True, None, "5"])
def test_a_weight_is_a_number_above_0(tmp_path: Path, weight: Any) -> None:
    """Whatever the metric holds."""
    with pytest.raises(MisfitError, match="weight"):
        join_pieces(pieces(tmp_path, weight=weight), recorder())


def test_no_array_is_named_twice_or_as_a_metric(tmp_path: Path) -> None:
    """One of both would stand for the other."""
    with pytest.raises(TranscriptError, match="must be distinct words"):
        join_pieces(pieces(tmp_path / "a", names=("w", "b", "w")), recorder())
    with pytest.raises(MisfitError, match="name of a metric"):
        join_pieces(pieces(tmp_path / "b", names=("w", "b", "metrics.loss")), recorder())


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [_pipe, _linked, _folder])
@pytest.mark.parametrize("of", ["piece-*", "model-*"])
def test_what_is_not_a_regular_file_is_refused(
    tmp_path: Path, of: str, spoil: Callable[[Path], None]
) -> None:
    """Before it is opened: a pipe would be waited for."""
    pieces(tmp_path)
    spoil(next((tmp_path / "node-11").glob(of)))
    with pytest.raises(TranscriptError, match=r"regular file|is a link"):
        join_pieces(tmp_path, recorder())


@pytest.mark.parametrize("fact", ["node", "names", "arrays"])
def test_facts_are_those_of_the_file(tmp_path: Path, fact: str) -> None:
    """A piece of another node, names that are not words, arrays that no name tells of."""
    pieces(tmp_path)
    path = tmp_path / "node-22" / "piece-000001.npz"
    with np.load(path) as archive:
        columns = dict(archive)
    facts = json.loads(columns["facts"].tobytes())
    if fact == "arrays":
        columns["array-2"] = np.zeros(2)
    else:
        facts[fact] = {"node": 11, "names": [["w"], 5]}[fact]
    columns["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    np.savez(path, **columns)
    with pytest.raises(TranscriptError, match="node-22"):
        join_pieces(tmp_path, recorder())


@pytest.mark.parametrize("answer", ["x", 1.5, None])
def test_answers_of_callers_are_whole_numbers(tmp_path: Path, answer: Any) -> None:
    """Of ``client_of`` and of ``round_of``."""
    pieces(tmp_path)
    with pytest.raises(MisfitError, match="client_of"):
        join_pieces(tmp_path, recorder(), client_of=lambda _: answer)
    with pytest.raises(MisfitError, match="round_of"):
        join_pieces(tmp_path, recorder(), round_of=lambda _: answer)
