"""``python -m tests.pins``: what every shipped audit computes, pinned before a change of the house.

    python -m tests.pins take FILE [--only WORD]
    python -m tests.pins compare BEFORE AFTER

``take`` runs every preset on its stand-in of generated data, and five on ml-100k for three rounds
(those are left out where no data folder is named). It writes, preset by preset,

- ``state``: a digest of every public and private table of the checkpoint;
- ``sums``: by round whose payloads are kept, step and receiver, digests of the rows it was sent and
  of their sum per row;
- ``figures``: the attacks' figures by adversary and attack, and the verdict.

What a receiver was sent is summed before it is digested: pads and noise of the operating system's
generator cancel, or make a sum that differs from run to run. Such entries are told by running
twice, ``take --twice``, and are left out of the file.

``compare`` prints every entry that differs, and exits 1 if one does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from audits.presets import PRESETS
from secure_fedrec.data import DATA_DIR_VARIABLE
from secure_fedrec.uploads import DenseBlock, RowBlock
from secure_fedrec.wire import Adversary, Messages, Step, Transcript
from tests.audits.stand_ins import STAND_INS

REAL: Mapping[str, Mapping[str, Any]] = {
    name: {"algorithm.rounds": 3, "recording.payload_rounds": [1, 3], "data.utility_folds": 1}
    for name in ("fedrecpp-ml100k", "shared-upload-ml100k", "masking-ml100k", "sdcf-ml100k")
} | {"furl-ncf-ml100k": {"algorithm.rounds": 3}}
"""Presets that are pinned on real data, and what is changed."""

Pins = dict[str, dict[str, Any]]


def main(arguments: list[str] | None = None) -> int:
    """Take pins, or compare two files of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.pins", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    take = actions.add_parser("take", help="run the presets and write a file of pins")
    take.add_argument("file", type=Path)
    take.add_argument("--only", default="", help="presets whose name holds this word")
    take.add_argument("--twice", action="store_true", help="leave out what differs between runs")
    both = actions.add_parser("compare", help="print what differs between two files")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    if options.action == "take":
        pins = taken(options.only, runs=2 if options.twice else 1)
        options.file.write_text(json.dumps(pins, indent=1, sort_keys=True), encoding="utf-8")
        print(f"{sum(map(len, pins.values()))} pins of {len(pins)} runs")
        return 0
    before, after = (
        json.loads(path.read_text("utf-8")) for path in (options.before, options.after)
    )
    different = list(differences(before, after))
    equal = sum(len(before[run]) for run in before.keys() & after.keys())
    print(*different, f"{len(different)} differ, of {equal} in {len(before)} runs", sep="\n")
    return 1 if different else 0


def taken(word: str, *, runs: int) -> Pins:
    """The pins of all presets whose name holds a word; of several runs, what they agree on."""
    work = [(name, name, STAND_INS.get(name, {})) for name in PRESETS]
    if os.environ.get(DATA_DIR_VARIABLE):
        work += [(f"{name} (real)", name, changes) for name, changes in REAL.items()]
    found: Pins = {}
    chosen = [one for one in work if word in one[0]]
    for label, preset, changes in tqdm(chosen, "presets", file=sys.stderr, disable=None):
        several = [pinned(preset, changes) for _ in range(runs)]
        first = several[0]
        found[label] = {
            key: value
            for key, value in first.items()
            if all(one.get(key) == value for one in several)
        }
    return found


def pinned(preset: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The pins of one audit."""
    with tempfile.TemporaryDirectory(prefix="pins-") as scratch:
        out = Path(scratch) / "run"
        words = [
            word
            for key, value in changes.items()
            for word in ("--set", f"{key}={json.dumps(value)}")
        ]
        config = Path(__file__).parents[2] / "audits" / "configs" / f"{preset}.toml"
        command = [sys.executable, "-m", "audits.cli", "audit", str(config), "--out", str(out)]
        ended = subprocess.run(  # noqa: S603
            [*command, "--quiet", *words], check=False, capture_output=True, text=True
        )
        if ended.returncode not in {0, 1, 3}:
            raise SystemExit(f"{preset}: {ended.stderr}")
        report = json.loads((out / "report.json").read_text("utf-8"))
        parts = [dict(states(out)), dict(sums(out)), dict(figures(report))]
        if not all(parts):
            raise SystemExit(f"{preset}: no table, no sum or no figure was found")
        return {key: value for part in parts for key, value in part.items()}


def states(out: Path) -> Iterator[tuple[str, str]]:
    """Digests of the public and private tables after the last round."""
    algorithm = Transcript.open(out / "transcript").public["algorithm"]
    with np.load(out / "checkpoint.npz") as arrays:
        for stored in sorted(arrays.files):
            name = stored.removeprefix("state.")
            if name == "table":
                yield "state|table", digest(in_rows(arrays[stored], algorithm))
            elif name != stored and name.startswith(("extras.", "vault.")):
                yield f"state|{name}", digest(arrays[stored])


def in_rows(values: Any, algorithm: Mapping[str, Any]) -> Any:
    """A flat public vector in rows, with a place for the weight behind it, as it once was kept."""
    if values.ndim != 1 or "weight_position" not in algorithm:
        return values
    width = int(algorithm["row_width"])
    padded = np.zeros(-(-(len(values) + 1) // width) * width)
    padded[: len(values)] = values
    return padded.reshape(-1, width)


def sums(out: Path) -> Iterator[tuple[str, str]]:
    """Digests of the row sets and of the sums that every receiver was sent."""
    everybody = Adversary(name="all", corrupt=frozenset({"server", "denoisers"}))
    view = Transcript.open(out / "transcript").view(everybody)
    bits = view.codec.bits
    for step in Step:
        if step is Step.MODEL or not view.sees(step):
            continue
        for round_ in view.payload_rounds(step):
            bags = view.bags(round_) if step is Step.BAG else (None,)
            for bag in bags:
                name = f"{round_}|{step.name}" + ("" if bag is None else f":{bag}")
                sent = view.messages(step, round_, payload=True, bag=bag)
                for receiver in np.unique(sent.receivers.ids):
                    part = sent.select(np.flatnonzero(sent.receivers.ids == receiver))
                    yield from summed(f"{name}|{sent.receivers.role}:{receiver}", part, bits)


def summed(name: str, messages: Messages, bits: int) -> Iterator[tuple[str, str]]:
    """Who sent how many rows of what, and the sums of their words."""
    block, mask = messages.payload, np.uint64(2**bits - 1) if bits < 64 else None
    if isinstance(block, DenseBlock):
        raise TypeError("a table is sent by the server alone")
    yield f"sums|{name}|senders", digest(np.sort(messages.senders.ids))
    lengths = np.sort(block.lengths) if messages.tags is not None else block.lengths
    yield f"sums|{name}|lengths", digest(lengths)
    rows = np.zeros(len(block.values) if block.values is not None else 0, dtype=np.int64)
    if isinstance(block, RowBlock):
        rows = block.rows.astype(np.int64)
        yield f"sums|{name}|rows", digest(np.unique(rows, return_counts=True))
        if block.counts is not None:
            total = np.zeros(rows.max(initial=-1) + 1, dtype=np.int64)
            np.add.at(total, rows, block.counts)
            kept = total if mask is None else total & np.int64(mask)
            yield f"sums|{name}|counts", digest(kept)
    if block.values is not None:
        words = np.zeros((rows.max(initial=-1) + 1, block.values.shape[1]), dtype=np.uint64)
        np.add.at(words, rows, block.values.astype(np.uint64))
        yield f"sums|{name}|values", digest(words if mask is None else words & mask)


def figures(report: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Figures by adversary, attack and key; severities; verdict; what was lossless."""
    yield "figures|verdict", report["verdict"]["outcome"]
    yield "figures|lossless", json.dumps(report["lossless"], sort_keys=True)
    yield "figures|utility", json.dumps(report["utility"], sort_keys=True)
    for finding in report["findings"]:
        name = f"figures|{finding['adversary']}|{finding['attack']}"
        yield f"{name}|severity", finding["severity"]
        yield f"{name}|sentence", finding["sentence"]
        for key, value in {**finding, **finding["details"]}.items():
            if isinstance(value, int | float):
                yield f"{name}|{key}", value
    for gate in report["gates"]:
        yield f"figures|gate|{gate['name']}", gate["outcome"]


def differences(before: Pins, after: Pins) -> Iterator[str]:
    """Every pin that is not the same in both files, in one line each."""
    for run in sorted(before.keys() | after.keys()):
        old, new = before.get(run, {}), after.get(run, {})
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield f"{run}: {key}: {old.get(key, 'absent')} -> {new.get(key, 'absent')}"


def digest(value: Any) -> str:
    """The first 16 digits of SHA-256 over arrays: types, shapes and bits."""
    whole = sha256()
    for array in value if isinstance(value, tuple) else (value,):
        whole.update(f"{array.dtype} {array.shape}".encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
