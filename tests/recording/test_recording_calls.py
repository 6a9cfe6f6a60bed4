"""Calls of a recorder that contradict themselves, or are of other types: typed errors, no guess."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import FedRecError, MisfitError, TranscriptError
from secure_fedrec.recording import (
    SENT_AS_THEY_ARE,
    SENT_HIDDEN,
    Recorder,
    Recording,
    RowTraits,
    validate,
)

CLIENTS, ITEMS = 3, 5
BOTH = {"V": np.ones((ITEMS, 2)), "b": np.ones(4)}


def recorder(**told: Any) -> Recorder:
    arrays = {"V": (ITEMS, 2), "b": (4,)}
    return Recorder(
        **{"n_clients": CLIENTS, "arrays": arrays, "items": "V", "sums": SENT_AS_THEY_ARE, **told}
    )


def model(value: float) -> dict[str, Any]:
    return {"V": np.full((ITEMS, 2), value), "b": np.full(4, value)}


@pytest.mark.parametrize(
    "counts",
    [
        *([7, 8], [1, 2, 3, 4, 5, 6], [1.7] * 5, [-1] * 5, [np.nan] * 5, [4] * 5, [10**300] * 5),
        *(np.ones((5, 2)), "abc", [[1], [1, 2]], 3),
    ],
)
def test_counts_are_one_whole_number_of_clients_per_row(counts: Any) -> None:
    """Neither padded nor rounded: what is refused here is what files are refused for."""
    taken = recorder(sums=SENT_HIDDEN)
    with pytest.raises(MisfitError, match="counts"):
        taken.message(1, "aggregate", "server", "server", BOTH, counts=counts)
    assert not taken.close().seen.rounds()


def test_counts_of_clients_are_kept_as_they_are(tmp_path: Path) -> None:
    """One per row of the item table; parameters are everybody's."""
    taken = recorder(sums=SENT_HIDDEN)
    taken.message(1, "aggregate", "server", "server", BOTH, counts=[0, 1, 2, 3, 1])
    recording = taken.close()
    (held,) = recording.seen.read(1, "aggregate")
    assert held["counts"].tolist() == [0, 1, 2, 3, 1, 3, 3]
    recording.save(tmp_path / "r")
    assert validate(tmp_path / "r").messages == 1


def test_changes_are_taken_against_the_model_of_the_round() -> None:
    """A model of a round before is not that of this one."""
    taken = recorder(send_models=True)
    taken.message(1, "model", "server", None, model(0.0))
    taken.message(1, "upload", 0, "server", model(0.5))
    with pytest.raises(MisfitError, match="round 2 does not have one"):
        taken.message(2, "upload", 0, "server", model(0.5))
    taken.message(2, "model", "server", None, model(0.25))
    taken.message(2, "upload", 0, "server", model(0.5))
    (sent,) = taken.close().seen.read(2, "upload")
    assert (sent["values"][0] / 2**32).tolist() == [0.25, 0.25]


def test_a_round_has_one_model(tmp_path: Path) -> None:
    """Another is refused, the same one is not written twice; files of two are no recording."""
    taken = recorder()
    taken.message(1, "model", "server", None, model(1.0))
    taken.message(1, "model", "server", None, model(1.0))
    with pytest.raises(MisfitError, match="another model"):
        taken.message(1, "model", "server", None, model(2.0))
    recording = taken.close()
    assert len(list(recording.seen.read(1, "model"))) == 1
    recording.save(tmp_path / "r")
    first = tmp_path / "r" / "rounds" / "000001" / "model-000.npz"
    first.with_name("model-001.npz").write_bytes(first.read_bytes())
    with pytest.raises(TranscriptError, match="more than one model"):
        validate(tmp_path / "r")


STATED: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("n_clients", {"n_clients": each}) for each in (0, -1, 2.5, "3", True, 10**12, None)),
    *(("n_clients", {"data": {"n_clients": each}}) for each in (99, CLIENTS)),
    ("ring", {"data": {"ring": {"bits": 8}}}),
    ("blocks", {"data": {"blocks": []}}),
    ("protection", {"data": {"protection": {}}}),
    ("of 6 items", {"data": {"n_items": 6}}),
    *(("rating_levels", {"data": {"rating_levels": each}}) for each in ([5, 1], "abc", [1], [])),
    ("facts in JSON", {"data": {"x": object()}}),
    ("x", {"data": {"x": float("nan")}}),
    ("algorithm.private", {"algorithm": {"private": [1]}}),
    ("algorithm.regularization", {"algorithm": {"regularization": float("nan")}}),
    ("sums", {"sums": {"uploads": "rows"}}),
    ("rows", {"rows": {"rows": "items"}}),
    (
        "traits",
        {
            "rows": RowTraits(rows="items", row_sets="rated", form="other"),
            "algorithm": {"traits": {}},
        },
    ),
    *(("V", {"arrays": {"V": each}}) for each in ((5, 0), (5, -2), 5, ("a", 2), (5.5, 2))),
    ("1 is not a name", {"arrays": {1: (5, 2)}, "items": None}),
    ("leave_out", {"leave_out": "abc"}),
    *(("round", {"payload_rounds": [each]}) for each in (0, "a", 1.5)),
)


@pytest.mark.parametrize(("said", "told"), STATED)
def test_what_is_stated_is_checked_when_it_is_stated(said: str, told: dict[str, Any]) -> None:
    """As the files will be: nothing is recorded under facts that make it invalid."""
    with pytest.raises(MisfitError, match=said):
        recorder(**told)


def test_what_passes_is_read_back(tmp_path: Path) -> None:
    """Facts of NumPy's types and tuples become JSON."""
    told = {"rating_levels": np.arange(1, 6), "n_items": ITEMS, "negatives": np.int64(2)}
    taken = recorder(n_clients=np.int64(CLIENTS), data=told, algorithm={"regularization": 0.1})
    taken.message(1, "model", "server", None, model(0.0))
    taken.close().save(tmp_path / "r")
    public = Recording.open(tmp_path / "r").transcript.public
    assert (public["n_clients"], public["negatives"]) == (CLIENTS, 2)


def upload(who: Any = 0, values: Any = None, **told: Any) -> Callable[[Recorder], object]:
    sent = model(0.0) if values is None else values
    return lambda r: r.message(1, "upload", who, "server", sent, **told)


def in_round(round_: Any) -> Callable[[Recorder], object]:
    return lambda r: r.message(round_, "upload", 0, "server", model(0.0))


def pair(rows: Any, values: Any) -> dict[str, Any]:
    return {**model(0.0), "V": (rows, values)}


def private_twice(taken: Recorder) -> None:
    taken.private(1, np.ones((CLIENTS, 2)))
    taken.private(1, np.ones((CLIENTS, 2)))


CALLS: tuple[tuple[str, Callable[[Recorder], object]], ...] = (
    *(("client", upload(who)) for who in ("client:²", "client:٢", "client:" + "9" * 5000, True)),
    ("server is meant", lambda r: r.message(1, "upload", 0, "server:1", model(0.0))),
    ("denoiser", lambda r: r.message(1, "noise", 0, f"denoiser:{CLIENTS}", model(0.0))),
    *(("round", in_round(each)) for each in ("1", 1.5, True, None, 10**12, 0)),
    ("step", lambda r: r.message(1, ["upload"], 0, "server", model(0.0))),  # type: ignore[arg-type]
    ("arrays by name", upload(values=[1, 2])),
    *(
        ("V", upload(values=pair(*each)))
        for each in (
            ([0, 1], [[1, 2], [3]]),
            ([np.nan], [[1, 2]]),
            ([1e300], [[1, 2]]),
            ([[0], [1, 2]], [[1]]),
        )
    ),
    ("round", lambda r: r.private("a", np.ones((CLIENTS, 2)))),  # type: ignore[arg-type]
    ("not finite", lambda r: r.private(1, np.full((CLIENTS, 2), np.nan))),
    ("private values", lambda r: r.private(1, [[1], [1, 2], [3]])),
    ("stated already", private_twice),
    ("labels.g", lambda r: r.truth(secrets={"labels.g": 5})),
    ("labels.g", lambda r: r.truth(secrets={"labels.g": [{}, [], None]})),
    ("KIND.NAME", lambda r: r.truth(secrets={"labels": [1, 2, 3]})),
    ("three columns", lambda r: r.truth(ratings=([0], [1]))),  # type: ignore[arg-type]
    ("not finite", lambda r: r.truth(ratings=([0], [1], [np.nan]))),
    ("not finite", lambda r: r.truth(ratings=([np.inf], [1], [1.0]))),
    ("one length", lambda r: r.truth(ratings=([0], [1, 2], [1.0]))),
    ("one length", lambda r: r.truth(ratings=(0, 1, 1.0))),
)


@pytest.mark.parametrize(("said", "call"), CALLS)
def test_other_types_are_refused_by_name(said: str, call: Callable[[Recorder], object]) -> None:
    """With an error of the package that names what is meant."""
    with pytest.raises(FedRecError, match=said):
        call(recorder())


@pytest.mark.parametrize("weight", [0, -1.0, True, "2", np.nan, np.inf, [1.0], None])
def test_weights_are_finite_numbers_above_0(weight: Any) -> None:
    """A weight of 0 or less makes no mean."""
    with pytest.raises(MisfitError, match="weight"):
        upload(weight=weight)(recorder(weighted=True))


def test_more_than_files_can_hold_is_not_saved(tmp_path: Path) -> None:
    """Rows that nothing but a number says are refused when they are written, as when read."""
    huge = Recorder(n_clients=2, arrays={"V": (10**8, 2)}, items="V")
    with pytest.raises(TranscriptError, match="n_items"):
        huge.close().save(tmp_path / "r")
    assert not (tmp_path / "r").exists()
