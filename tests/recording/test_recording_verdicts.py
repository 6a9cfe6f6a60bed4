"""Recordings whose statements or omissions would make an audit look better than its messages."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audits
from audits.gates.gate import Outcome
from secure_fedrec.recording import SENT_AS_THEY_ARE, SENT_HIDDEN, Recorder, Recording, RowTraits

CLIENTS, ITEMS, WIDTH = 30, 60, 4
RNG = np.random.default_rng(5)
RATED = RNG.random((CLIENTS, ITEMS)) < 0.3
WORDS = RNG.uniform(-4000.0, 4000.0, (CLIENTS, ITEMS, WIDTH))
SHARES = replace(SENT_AS_THEY_ARE, uploads="shares")
JUDGE = {
    "adversaries": [{"name": "server", "corrupt": ["server"]}],
    "gates": [{"adversary": "server", "attack": "direct", "metric": "precision_gain", "max": 0.3}],
}


def recorded(sums: Any, *, words: bool = True, moves: bool = False) -> Recording:
    """Two rounds of rows under names, with words or none; the model moves by sums nobody has."""
    start = np.zeros((ITEMS, WIDTH))
    recorder = Recorder(
        n_clients=CLIENTS,
        arrays={"items": start},
        items="items",
        algorithm={"name": "own"},
        rows=RowTraits(rows="items", row_sets="some", form="other"),
        sums=sums,
    )
    for round_ in (1, 2):
        recorder.message(round_, "model", "server", None, {"items": start})
        for client in range(CLIENTS):
            own = np.where(RATED[client][:, None], WORDS[client], 0.0)
            rows = np.flatnonzero(RATED[client])
            sent = {"items": (rows, own[rows]) if sums is SHARES else own}
            recorder.message(round_, "upload", client, "server", sent if words else None)
        start = start + (0.1 * RATED.sum(axis=0)[:, None] if moves else 0.0)
    clients, items = np.nonzero(RATED)
    recorder.truth(ratings=(clients, items, np.ones(len(items))))
    return recorder.close()


@pytest.mark.claim("verdicts-judge-everything")
@pytest.mark.parametrize(
    ("sums", "words", "moves", "held"),
    [
        (SHARES, True, False, "upload"),  # the row numbers of shares are in the clear
        (SENT_HIDDEN, True, False, "upload"),  # it says so, and the words are there
        (SENT_HIDDEN, False, True, "table"),  # sums that are not recorded move the model
    ],
    ids=["shares", "said to be hidden", "without sums"],
)
def test_what_a_recording_says_is_no_bound(sums: Any, words: bool, moves: bool, held: str) -> None:
    found = audits.audit(recorded(sums, words=words, moves=moves), gates=JUDGE)
    assert found.verdict.outcome is not Outcome.PASS
    assert all(held in each["held"] for each in found.report["findings"])


def test_a_layer_that_a_manifest_lists_hides_nothing(tmp_path: Path) -> None:
    recorded(SENT_HIDDEN).save(tmp_path / "run", truth=tmp_path / "truth.npz")
    manifest = tmp_path / "run" / "transcript.json"
    told = json.loads(manifest.read_text())
    told["public"]["protection"]["layers"] = ["masking"]
    manifest.write_text(json.dumps(told))
    found = audits.audit(
        Recording.open(tmp_path / "run", truth=tmp_path / "truth.npz"), gates=JUDGE
    )
    assert found.verdict.outcome is not Outcome.PASS
    assert all("upload" in each["held"] for each in found.report["findings"])


def test_readable_uploads_are_not_judged_where_the_truth_does_not_hold_them() -> None:
    """None in the clear would be a figure of nothing."""
    found = audits.audit(recorded(SENT_HIDDEN), gates=JUDGE)
    [clear] = [each for each in found.report["findings"] if each["attack"] == "clear-uploads"]
    assert clear["status"] == "not-applicable"
    assert "what clients put into the sums" in clear["reason"]
