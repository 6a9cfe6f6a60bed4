"""The loop that speed is measured against must do the engine's work, to the bit."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import agreement, federations, fedrec, peak
from benchmarks.agreement import RememberingPMF, Tap
from benchmarks.float_round import float_stack
from benchmarks.loop import ClientLoop, Fakes
from benchmarks.measure import interleave, own_peak_gb, ratio
from secure_fedrec.algorithms import PMF
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.wire import Step

SMALL = SyntheticConfig(clients=40, items=60, mean_ratings=12.0, seed=3)


@pytest.fixture
def table() -> RatingTable:
    return generate(SMALL)


@pytest.fixture
def small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECURE_FEDREC_DATA", raising=False)
    monkeypatch.setattr(federations, "SHAPES", {"ml-1m": SMALL, "ml-100k": SMALL})


@pytest.mark.parametrize("filling", ["average", "predicted"])
@pytest.mark.parametrize("rho", [0.0, 1.0, 8.0])
def test_loop_and_engine_agree_on_the_same_fakes(
    table: RatingTable, rho: float, filling: str
) -> None:
    federation = federations.Federation(table, rho=rho, local_steps=3, filling=filling)
    assert agreement.require_agreement(federation) == 3 * SMALL.items * 20


def test_a_differing_loop_is_found(table: RatingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ClientLoop.encode

    def one_unit_off(self: ClientLoop, values: FloatArray) -> object:
        return honest(self, values) + np.uint64(1)

    monkeypatch.setattr(ClientLoop, "encode", one_unit_off)
    with pytest.raises(AssertionError, match="uploads"):
        agreement.require_agreement(federations.Federation(table))


def test_loop_trains_like_the_engine_over_rounds(table: RatingTable) -> None:
    federation = federations.Federation(table, local_steps=3)
    engine = federation.engine()
    loop = ClientLoop(federation, engine)
    for _ in range(5):
        engine.run_round()
        loop.run_round()
    # Different fakes on purpose: the denoiser takes them out again.
    np.testing.assert_allclose(loop.item_vectors, engine.public.table, rtol=0, atol=1e-8)
    everybody = np.arange(table.n_clients)
    users = engine.vault.read("user_vectors", everybody)
    np.testing.assert_allclose(loop.users, users, rtol=0, atol=1e-8)


def test_loop_predicts_the_same_virtual_ratings(table: RatingTable) -> None:
    federation = federations.Federation(table, local_steps=3)
    engine = federation.engine()
    loop = ClientLoop(federation, engine)
    client = 0 if federation.denoiser != 0 else 1
    fakes = loop.draw(client)
    step = PMF(federation.algorithm).client_step(
        np.array([client]), engine.public, engine.vault, federation.streams
    )
    indptr, items = np.array([0, len(fakes.items)]), fakes.items.astype(np.int32)
    filled = step.impute(indptr, items, method="predicted", local_steps=3)
    given = loop.rows(client, Fakes(fakes.items, filled))
    drawn = loop.rows(client, fakes)
    np.testing.assert_allclose(drawn.values, given.values, rtol=0, atol=1e-12)


def test_loop_draws_distinct_unrated_items(table: RatingTable) -> None:
    federation = federations.Federation(table, rho=2.0)
    loop = ClientLoop(federation, federation.engine())
    indptr, rated = table.indptr(), table.counts()
    for client in range(table.n_clients):
        fakes = loop.draw(client).items
        own = table.items[indptr[client] : indptr[client + 1]]
        wanted = min(2 * rated[client], table.n_items - rated[client])
        assert len(fakes) == (0 if client == federation.denoiser else wanted)
        assert len(np.unique(fakes)) == len(fakes)
        assert not np.intersect1d(fakes, own).size


def test_float_round_sums_the_same_rows(table: RatingTable) -> None:
    federation = federations.Federation(table, local_steps=3)
    tap = Tap(table.n_items, federation.algorithm.rank)
    federation.engine(tap=tap).run_round()
    engine = federation.engine(float_stack(federation.stack()))
    server = RememberingPMF(federation.algorithm)
    engine.algorithm = server
    engine.run_round()
    assert server.aggregate is not None
    # The denoiser's own rows are in its sums only: DENOISE = NOISE - own rows.
    ring = tap.sums[Step.UPLOAD] + tap.sums[Step.NOISE] - tap.sums[Step.DENOISE]
    expected = federation.codec.decode(ring)
    np.testing.assert_allclose(server.aggregate.values, expected, rtol=0, atol=1e-7)
    assert server.aggregate.counts.sum() > 2 * len(table)


def test_interleaving_alternates_and_pairs() -> None:
    order: list[str] = []
    timings = interleave(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2
    )
    assert order == ["a", "b"] * 3
    assert {name: len(seconds) for name, seconds in timings.items()} == {"a": 2, "b": 2}
    assert ratio({"a": [2.0, 9.0, 8.0], "b": [1.0, 3.0, 4.0]}, "a", "b") == 2.0


def test_peak_memory_is_in_gigabytes() -> None:
    assert 0.02 < own_peak_gb() < 64


def test_first_clients_keep_their_ratings(table: RatingTable) -> None:
    part = federations.first_clients(table, 10)
    assert part.n_clients == 10
    assert np.array_equal(part.items, table.items[: table.indptr()[10]])
    assert federations.first_clients(table, 99) is table


def test_unknown_names_are_refused_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["nosuch", "--json"])
    assert stop.value.code == 2
    assert "fedrec" in capsys.readouterr().err


def test_a_data_folder_without_the_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["fedrec", "--quick", "--data-dir", str(tmp_path)]) == 2
    assert "ml-1m" in capsys.readouterr().err


def test_a_variable_for_other_sets_falls_back_to_synthetic_ratings(
    tmp_path: Path, small_shapes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FEDREC_DATA", str(tmp_path))
    source, table = federations.ratings_of("ml-1m", federations.Options())
    assert source == "synthetic (ml-1m shape)"
    assert table.n_clients == SMALL.clients


@pytest.mark.parametrize("as_json", [True, False])
def test_every_judged_key_is_reported(
    as_json: bool,
    small_shapes: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def small_peak(module: str, arguments: list[str]) -> str:
        assert module == "benchmarks.peak"
        peak.main(int(arguments[0]), None)
        return capsys.readouterr().out

    monkeypatch.setattr(fedrec, "run_module", small_peak)
    assert command.main(["fedrec", "--quick", *(["--json"] if as_json else [])]) == 0
    out, err = capsys.readouterr()
    assert "benchmarks:" in err
    if not as_json:
        assert "speedup_vs_loop" in out
        assert ">= 3" in out
        return
    result = json.loads(out)
    for key in ("speedup_vs_loop", "ring_overhead", "peak_gb", "rows_ratio_loop_over_ours"):
        assert result[key] > 0, key
    for rho in ("0", "1", "3"):
        assert result["ml_100k"][rho]["seconds_per_iteration"] > 0


def test_threads_are_limited_before_numpy_is_loaded() -> None:
    script = (
        "import sys, benchmarks, os; print('numpy' in sys.modules, os.environ['OMP_NUM_THREADS'])"
    )
    command_line = [sys.executable, "-c", script]
    root = Path(__file__).parents[2]
    done = subprocess.run(  # noqa: S603
        command_line, capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.split() == ["False", "1"]
