"""What a round led to is the model of the next one, and never the one that it began with."""

import numpy as np

from secure_fedrec.recording import Recorder, Recording


def results(recording: Recording) -> dict[int, float]:
    """By round, the one value of its result."""
    found = {}
    for round_ in recording.seen.rounds():
        for columns in recording.seen.read(round_, "result"):
            found[round_] = float(columns["table"][0, 0])
    return found


def recorded(rounds: tuple[int, ...], after: dict[int, float]) -> Recording:
    recorder = Recorder(n_clients=2, arrays={"w": (1,)})
    for round_ in rounds:
        recorder.message(round_, "model", "server", None, {"w": np.full(1, float(round_))})
        recorder.message(round_, "upload", 0, "server", {"w": np.ones(1)})
        if round_ in after:
            recorder.after(round_, {"w": np.full(1, after[round_])})
    return recorder.close()


def test_the_next_model_is_what_a_round_led_to() -> None:
    assert results(recorded((1, 2, 3), {})) == {1: 2.0, 2: 3.0}
    assert results(recorded((1, 2, 3), {1: 9.0, 3: 8.0})) == {1: 9.0, 2: 3.0, 3: 8.0}


def test_a_model_after_a_gap_is_no_result() -> None:
    """Rounds that nobody wrote down lie between."""
    assert results(recorded((2, 3, 7), {})) == {2: 3.0}
    assert results(recorded((1,), {})) == {}
