"""Recording: what is kept, what it takes, and how a folder of it is read back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, TranscriptError
from secure_fedrec.uploads import DenseBlock, RowBlock
from secure_fedrec.wire import (
    BlockStore,
    Messages,
    Parties,
    Recorder,
    RecordingPolicy,
    Step,
    Transcript,
)

Columns = dict[str, Any]


def rows_of(lengths: list[int]) -> RowBlock:
    size = sum(lengths)
    return RowBlock(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        rows=np.concatenate([np.arange(n) for n in lengths]).astype(np.int32),
        values=np.arange(2 * size, dtype=np.uint64).reshape(size, 2),
    )


def uploads(round_: int, clients: list[int], lengths: list[int]) -> Messages:
    return Messages(
        round=round_,
        step=Step.UPLOAD,
        senders=Parties(role="client", ids=np.array(clients)),
        receivers=Parties.server(len(clients)),
        payload=rows_of(lengths),
        sizes=np.array(lengths) * 20,
    )


def noise(round_: int, lengths: list[int]) -> Messages:
    count = len(lengths)
    return Messages(
        round=round_,
        step=Step.NOISE,
        senders=Parties.anonymous("client", count),
        receivers=Parties(role="denoiser", ids=np.zeros(count, dtype=np.int64)),
        payload=rows_of(lengths),
        sizes=np.array(lengths) * 20,
        tags=np.arange(count, dtype=np.uint64),
    )


def recorder_of(n_items: int = 50, **policy: Any) -> Recorder:
    return Recorder(
        policy=RecordingPolicy(**policy),
        seen=BlockStore(None),
        truth=BlockStore(None),
        n_items=n_items,
    )


def test_payloads_of_named_rounds_only_ids_of_all() -> None:
    recorder = recorder_of(payload_rounds=(2,))
    for round_ in (1, 2, 3):
        recorder.record(uploads(round_, [4, 7], [2, 1]), origins=np.array([4, 7]))
        recorder.end_round(round_)
    for round_ in (1, 2, 3):
        (block,) = recorder.seen.read(round_, "upload")
        assert block["senders"].tolist() == [4, 7]
        assert block["sizes"].tolist() == [40, 20]
        assert block["lengths"].tolist() == [2, 1]
        assert block["rows"].tolist() == [0, 1, 0]
        assert ("values" in block) is (round_ == 2)


def test_payloads_of_named_senders_only_ids_of_all() -> None:
    recorder = recorder_of(payload_rounds=(1,), payload_senders=(7, 9))
    recorder.record(uploads(1, [4, 7, 9], [2, 1, 3]), origins=np.array([4, 7, 9]))
    recorder.record(uploads(1, [2], [2]), origins=np.array([2]))
    recorder.end_round(1)
    found = {bool("values" in block): block for block in recorder.seen.read(1, "upload")}
    assert found[True]["senders"].tolist() == [7, 9]
    assert found[True]["values"].tolist() == np.arange(4, 12).reshape(4, 2).tolist()
    assert found[False]["senders"].tolist() == [2, 4]  # by name, not as they were sent


def test_named_senders_choose_nothing_among_anonymous_messages() -> None:
    """Keeping the payloads of some would tell every view whose they are."""
    recorder = recorder_of(payload_rounds=(1,), payload_senders=(6,))
    recorder.record(noise(1, [1, 2, 1]), origins=np.array([5, 6, 8]))
    recorder.end_round(1)
    (kept,) = list(recorder.seen.read(1, "noise"))
    assert len(kept["tags"]) == 3
    assert "values" in kept
    assert kept["senders"].tolist() == [-1, -1, -1]


@pytest.mark.claim("anonymous-sender-in-truth-only")
def test_true_senders_go_to_the_truth_and_nowhere_else() -> None:
    recorder = recorder_of(payload_rounds=(1,))
    origins = np.array([30, 10, 20])
    recorder.record(noise(1, [1, 2, 1]), origins=origins)
    recorder.record(uploads(1, [1], [1]), origins=np.array([1]))
    recorder.end_round(1)
    (hidden,) = recorder.truth.read(1, "noise-origins")
    assert hidden["clients"].tolist() == origins.tolist()
    assert list(recorder.truth.read(1, "upload-origins")) == []
    (seen,) = recorder.seen.read(1, "noise")
    assert np.sort(hidden["tags"]).tolist() == seen["tags"].tolist() != [0, 1, 2]
    numbers = np.concatenate([seen[name].ravel() for name in ("senders", "receivers", "tags")])
    assert not np.isin(origins, numbers).any()


def test_public_tables_are_kept_in_payload_rounds() -> None:
    recorder = recorder_of(payload_rounds=(2,))
    for round_ in (1, 2):
        table = np.full((3, 2), float(round_))
        model = Messages(
            round=round_,
            step=Step.MODEL,
            senders=Parties.server(1),
            receivers=Parties(role="client", ids=np.array([0])),
            payload=DenseBlock(values=table, shape=table.shape),
            sizes=np.array([48]),
        )
        recorder.record(model, origins=None)
        recorder.end_round(round_)
    assert list(recorder.seen.read(1, "model")) == []
    (block,) = recorder.seen.read(2, "model")
    assert block["table"].tolist() == [[2.0, 2.0]] * 3


@pytest.mark.parametrize(("n_items", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_row_numbers_take_the_narrowest_column(n_items: int, dtype: type[np.generic]) -> None:
    recorder = recorder_of(n_items=n_items)
    block = RowBlock(
        indptr=np.array([0, 1]),
        rows=np.array([n_items - 1], dtype=np.int32),
        values=np.zeros((1, 2), dtype=np.uint64),
    )
    one = uploads(1, [0], [1])
    messages = Messages(
        round=1,
        step=one.step,
        senders=one.senders,
        receivers=one.receivers,
        payload=block,
        sizes=one.sizes,
    )
    recorder.record(messages, origins=np.array([0]))
    recorder.end_round(1)
    (kept,) = recorder.seen.read(1, "upload")
    assert kept["rows"].dtype == dtype
    assert kept["rows"].tolist() == [n_items - 1]


def test_large_rounds_are_written_in_blocks_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secure_fedrec.wire.recording._BLOCK_BYTES", 600)
    recorder = recorder_of(payload_rounds=(1,))
    for client in range(12):
        recorder.record(uploads(1, [client], [5]), origins=np.array([client]))
    recorder.end_round(1)
    blocks = list(recorder.seen.read(1, "upload"))
    assert len(blocks) > 2
    assert all(sum(column.nbytes for column in block.values()) <= 600 for block in blocks)
    assert [client for block in blocks for client in block["senders"].tolist()] == list(range(12))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"payload_rounds": (0,)}, "recording.payload_rounds"),
        ({"payload_rounds": (3, -1)}, "recording.payload_rounds"),
        ({"payload_senders": (0, -1)}, "recording.payload_senders"),
        ({"max_transcript_gb": 0.0}, "recording.max_transcript_gb"),
        ({"max_transcript_gb": float("nan")}, "recording.max_transcript_gb"),
    ],
)
def test_impossible_policies_are_refused(settings: Columns, key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        RecordingPolicy(**settings)
    assert refusal.value.key == key


def block(value: int) -> Columns:
    return {"senders": np.array([value]), "values": np.full((2, 3), value, dtype=np.uint64)}


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path if request.param == "folder" else None)


def test_blocks_come_back_in_the_order_written(store: BlockStore) -> None:
    for value in (3, 1, 2):
        store.append(1, "upload", block(value))
    store.append(1, "noise", block(9))
    store.seal(1)
    assert [part["senders"].tolist() for part in store.read(1, "upload")] == [[3], [1], [2]]
    (part,) = store.read(1, "noise")
    assert part["values"].dtype == np.uint64
    assert part["values"].tolist() == [[9] * 3] * 2
    assert list(store.read(1, "denoise")) == list(store.read(2, "upload")) == []
    assert store.rounds() == (1,)
    assert store.names(1, "upload") == [("senders", "values")] * 3
    assert store.names(1, "denoise") == []


def test_many_blocks_keep_their_order(store: BlockStore) -> None:
    for value in range(12):
        store.append(1, "upload", block(value))
    store.seal(1)
    assert [int(part["senders"][0]) for part in store.read(1, "upload")] == list(range(12))


def test_unfinished_rounds_are_invisible(tmp_path: Path) -> None:
    store = BlockStore(tmp_path)
    store.append(1, "upload", block(1))
    store.seal(1)
    store.append(2, "upload", block(2))
    for reader in (store, BlockStore(tmp_path)):
        assert reader.rounds() == (1,)
        assert list(reader.read(2, "upload")) == []
    store.seal(2)
    assert BlockStore(tmp_path).rounds() == (1, 2)


def test_memory_forgets_rounds_after_a_checkpoint() -> None:
    store = BlockStore(None)
    for round_ in (1, 2, 3):
        store.append(round_, "upload", block(round_))
    kept = store.bytes
    store.append(4, "upload", block(4))
    assert store.bytes == 4 * (8 + 48)
    store.discard_after(3)
    assert store.rounds() == (1, 2, 3)
    assert list(store.read(4, "upload")) == []
    assert store.bytes == kept


def test_rounds_after_a_checkpoint_are_dropped(tmp_path: Path) -> None:
    store = BlockStore(tmp_path)
    for round_ in (1, 2, 3):
        store.append(round_, "upload", block(round_))
        store.seal(round_)
    store.append(4, "upload", block(4))
    resumed = BlockStore(tmp_path)
    resumed.discard_after(2)
    assert resumed.rounds() == (1, 2)
    assert sorted(path.name for path in (tmp_path / "rounds").iterdir()) == ["000001", "000002"]
    for round_ in (3, 4):
        resumed.append(round_, "upload", block(10 * round_))
        resumed.seal(round_)
    assert [int(part["senders"][0]) for part in resumed.read(3, "upload")] == [30]
    assert resumed.rounds() == (1, 2, 3, 4)


def written(tmp_path: Path) -> Path:
    store = BlockStore(tmp_path)
    store.append(1, "upload", block(5))
    store.seal(1)
    return tmp_path / "rounds" / "000001" / "upload-000.npz"


def read_back(tmp_path: Path) -> list[Columns]:
    return list(BlockStore(tmp_path).read(1, "upload"))


def test_truncated_blocks_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    whole = file.read_bytes()
    for length in range(0, len(whole), 13):
        file.write_bytes(whole[:length])
        with pytest.raises(TranscriptError, match=r"upload-000\.npz of round 1 is damaged"):
            read_back(tmp_path)


@pytest.mark.claim("no-pickle")
def test_changed_blocks_are_refused_or_unchanged_in_content(tmp_path: Path) -> None:
    file = written(tmp_path)
    whole = file.read_bytes()
    refused = 0
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        file.write_bytes(damaged)
        try:
            (columns,) = read_back(tmp_path)
        except TranscriptError:
            refused += 1
            continue
        # Dates and attributes of the archive carry nothing.
        assert {name: column.tolist() for name, column in columns.items()} == {
            name: column.tolist() for name, column in block(5).items()
        }
    assert refused > len(whole) / 3 / 2


@pytest.mark.claim("no-pickle")
def test_pickled_columns_are_not_read(tmp_path: Path) -> None:
    file = written(tmp_path)
    np.savez(file, senders=np.array([{"an": "object"}], dtype=object), allow_pickle=True)
    with pytest.raises(TranscriptError) as refused:
        read_back(tmp_path)
    assert "does not hold plain values" in str(refused.value.__cause__)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"schema_version": "0"}', "\x80"])
def test_a_folder_without_a_readable_manifest_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "transcript.json").write_text(text, encoding="latin-1")
    with pytest.raises(TranscriptError):
        Transcript.open(tmp_path)
