"""Private tables larger than memory likes: undone from a file, checkpointed as they come."""

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.blocks import TABLE
from secure_fedrec.core import npz
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.core.spill import Spill
from secure_fedrec.engines import LocalEngine, Problem, read_checkpoint, sizes_of, write_checkpoint
from secure_fedrec.errors import CheckpointError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate, RowBlock, Upload
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Messages, Meter, Step, Wire

N, ROWS, WIDTH = 30, 50, 8
CODEC = FixedPoint(bits=32, fraction_bits=12, clip=64.0)


class Dense:
    """A table per client, all of which is uploaded; and a note of odd length."""

    width, rounds = WIDTH, 3

    def __init__(self, dtype: str = "float64") -> None:
        self.dtype, self.batches = dtype, []  # type: ignore[var-annotated]

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        return PublicState(round=0, table=np.zeros((n_rows, WIDTH)))

    def initialise(self, vault: Vault, streams: Streams) -> None:
        draws = np.random.default_rng(1).normal(size=(N, ROWS, WIDTH))
        vault.create("own", draws.astype(self.dtype))
        vault.create_ragged("notes", np.arange(N + 1) * 3, np.zeros((3 * N, 2)))

    def client_step(self, clients: IntArray, public: Any, vault: Vault, streams: Any) -> Any:
        self.batches.append(len(clients))
        return Given(clients, vault.read("own", clients) + np.float32(0.1))

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        return replace(public, round=public.round + 1, table=aggregate.values)

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        return np.full(N, ROWS)

    def upload_vectors(self, vault: Vault) -> dict[str, IntArray]:
        return {}

    def public_knowledge(self) -> dict[str, Any]:
        return {"name": "dense"}


class Given:
    def __init__(self, clients: IntArray, own: Any) -> None:
        self.clients, self.own = clients, own

    @property
    def upload(self) -> Upload:
        size = len(self.clients)
        values = self.own.reshape(size * ROWS, WIDTH).astype(np.float64)
        rows = np.tile(np.arange(ROWS, dtype=np.int32), size)
        block = RowBlock(indptr=np.arange(size + 1) * ROWS, rows=rows, values=values)
        return Upload(clients=self.clients, blocks={TABLE: block})

    def commit(self, vault: Vault) -> None:
        vault.write("own", self.clients, self.own)
        for client in self.clients.tolist():
            vault.write_ragged("notes", client, np.full((3, 2), client + 1.0))


class LastIsLost:
    def apply(self, messages: Messages) -> Messages:
        lost = messages.step is Step.UPLOAD and N - 1 in messages.senders.ids
        return messages.select(np.arange(len(messages) - 1)) if lost else messages


def engine_of(algorithm: Dense, *layers: str, faults: Any = (), **settings: Any) -> LocalEngine:
    vault = Vault.of_examples(np.arange(N + 1), {"n": np.arange(N)})
    streams = Streams.from_seed(2)
    sizes = sizes_of(algorithm, Problem(vault=vault, n_rows=ROWS))
    settings_of: dict[str, Any] = {
        "masking": MaskingLayerConfig(),
        "paillier": EncryptionLayerConfig(),
    }
    chosen = {name: settings_of[name] for name in layers}
    return LocalEngine(
        algorithm=algorithm,
        stack=build_stack(chosen, sizes=sizes, codec=CODEC, streams=streams),
        vault=vault,
        n_rows=ROWS,
        streams=streams,
        wire=Wire(meter=Meter(N), faults=faults),
        **settings,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("undo_bytes", [0, 5000, 10**9])
def test_a_failed_round_is_undone_wherever_it_was_put_aside(undo_bytes: int, dtype: str) -> None:
    engine = engine_of(
        Dense(dtype), faults=(LastIsLost(),), undo_bytes=undo_bytes, batch_bytes=10**5
    )
    before = engine.state()
    assert before["vault.own"].dtype == np.dtype(dtype)
    with pytest.raises(Exception, match="no upload from 1 clients"):
        engine.run_round()
    assert len(engine.algorithm.batches) == 3  # type: ignore[attr-defined]
    for name, values in engine.state().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)
    engine.vault.write("own", np.array([0]), np.zeros((1, ROWS, WIDTH)))  # no longer kept
    engine.vault.end(undo=True)
    assert not engine.vault.read("own", np.array([0])).any()


def test_single_precision_takes_half_of_the_memory_and_is_its_own_bits() -> None:
    half, whole = (engine_of(Dense(dtype)) for dtype in ("float32", "float64"))
    for engine in (half, whole):
        engine.run_round()
    sizes = [engine.state()["vault.own"].nbytes for engine in (half, whole)]
    assert 2 * sizes[0] == sizes[1]
    assert not np.array_equal(half.state()["vault.own"], whole.state()["vault.own"])
    again = engine_of(Dense("float32"), batch_bytes=1)
    again.run_round()
    np.testing.assert_array_equal(again.state()["vault.own"], half.state()["vault.own"])
    with pytest.raises(ValueError, match="float64, not float32"):
        half.restore(whole.state())
    with pytest.raises(ValueError, match="is float32 or float64, not int64"):
        half.vault.create("counts", np.zeros(N, dtype=np.int64))  # type: ignore[arg-type]


def test_what_is_put_aside_comes_back() -> None:
    spill, rng = Spill(1000), np.random.default_rng(1)
    arrays = [rng.normal(size=(size, 3)).astype(t) for size in (10, 90, 0, 7) for t in "fd"]
    arrays.append(np.arange(2000, dtype=np.uint64)[::3])
    kept = [spill.put(array) for array in arrays]
    assert {each.place is None for each in kept} == {True, False}
    for array, each in zip(reversed(arrays), reversed(kept), strict=True):
        found = spill.get(each)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("layer", ["masking", "paillier"])
def test_hidden_uploads_are_sent_as_they_come(layer: str) -> None:
    """An upload is on its way before the next client works: a round holds one, and not all."""
    algorithm, sent = Dense(), []

    class Tap:
        def apply(self, messages: Messages) -> Messages:
            if messages.step is Step.UPLOAD:
                sent.append((messages.senders.ids.tolist(), len(algorithm.batches)))
            return messages

    engine = engine_of(algorithm, layer, batch_bytes=1, faults=(Tap(),))
    engine.run_round()
    assert sent == [([client], client + 1) for client in range(N)]
    engine.run_round()
    plain = engine_of(Dense())
    for _ in range(2):
        plain.run_round()
    np.testing.assert_array_equal(plain.public.table, engine.public.table)


def test_large_checkpoints_are_written_and_read_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "_STREAMED", 10**5)
    path, table = tmp_path / "checkpoint.npz", np.sqrt(np.arange(8e6)).reshape(4000, 2000)
    target = np.zeros_like(table)
    tracemalloc.start()
    write_checkpoint(path, {"vault.own": table, "round": np.array(3)}, run_id="run")
    state = read_checkpoint(path, run_id="run", later="vault.")
    state["vault.own"].fill(target)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state["round"] == 3
    np.testing.assert_array_equal(target, table)
    assert peak < table.nbytes // 2  # numpy writes in pieces of at most 16 MiB
    np.testing.assert_array_equal(read_checkpoint(path, run_id="run")["vault.own"], table)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(ValueError, match="CRC"):
        state["vault.own"].fill(target)
    with pytest.raises(CheckpointError):
        read_checkpoint(path, run_id="run", later="vault.")


def test_a_full_disk_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "_STREAMED", 1000)
    path = tmp_path / "checkpoint.npz"
    write_checkpoint(path, {"vault.own": np.ones(4)}, run_id="run")
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(Path("/dev/full"), {"vault.own": np.ones(10**6)}, run_id="run")

    def refuse(write: Any, columns: Any) -> None:
        write(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(npz, "_stream", refuse)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(path, {"vault.own": np.ones(10**6)}, run_id="run")
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.npz"]
    np.testing.assert_array_equal(read_checkpoint(path, run_id="run")["vault.own"], np.ones(4))
