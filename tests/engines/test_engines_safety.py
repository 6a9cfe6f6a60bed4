"""What the sum budget, the two ends of a stack and a round rest on is enforced, not assumed."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.kernels import gram, pair_dot, rank_one_rows, segment_sum
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.engines import LocalEngine, rating_evaluation, rating_problem, vault_of
from secure_fedrec.errors import ConfigError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import DirectSum, Stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock, Upload
from secure_fedrec.wire import Meter, Wire

TABLE = generate(SyntheticConfig(clients=12, items=30, mean_ratings=8.0, seed=3))


def stack_of(codec: FixedPoint, table: RatingTable = TABLE, width: int = 3) -> Stack:
    n_clients, n_items = table.n_clients, table.n_items
    direct = DirectSum(n_clients=n_clients, n_items=n_items, width=width, codec=codec)
    return Stack(codec=codec, cloak=None, collector=direct, n_clients=n_clients)


def engine_of() -> LocalEngine:
    algorithm = PMF(PMFConfig.printed(rank=3))
    return LocalEngine(
        algorithm=algorithm,
        stack=stack_of(FixedPoint()),
        vault=vault_of(TABLE),
        n_rows=TABLE.n_items,
        evaluate=rating_evaluation(algorithm, TABLE),
        streams=Streams.from_seed(1),
        wire=Wire(meter=Meter(TABLE.n_clients)),
        batch_bytes=2**10,
    )


def test_a_client_gets_one_row_per_item() -> None:
    stack = stack_of(FixedPoint(bits=16, fraction_bits=0, clip=100), width=1)
    session = stack.open(
        round_=1, participants=np.array([0]), wire=Wire(meter=Meter(TABLE.n_clients))
    )
    for rows in ([1, 1], [2, 1]):
        block = RowBlock(
            indptr=np.array([0, 2]), rows=np.array(rows, dtype=np.int32), values=np.ones((2, 1))
        )
        upload = Upload(clients=np.array([0]), blocks={"table": block})
        with pytest.raises(WireError, match="one per item"):
            session.submit(SimpleNamespace(upload=upload, clients=upload.clients))


def test_stack_and_collector_agree() -> None:
    inner = stack_of(FixedPoint()).collector
    with pytest.raises(ConfigError, match="differs from the ring"):
        Stack(
            codec=FixedPoint(bits=32, fraction_bits=16, clip=4.0),
            cloak=None,
            collector=inner,
            n_clients=12,
        )
    with pytest.raises(ConfigError, match="the collector has 12"):
        Stack(codec=FixedPoint(), cloak=None, collector=inner, n_clients=11)


def test_a_test_set_of_other_clients_is_refused() -> None:
    other = generate(SyntheticConfig(clients=13, items=30, mean_ratings=8.0, seed=3))
    with pytest.raises(ConfigError, match="12 vaults"):
        rating_problem(PMF(PMFConfig.printed(rank=3)), TABLE, other)


def test_an_interrupted_round_trains_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, twin = engine_of(), engine_of()
    engine.run_round()
    twin.run_round()
    calls = 0
    genuine = PMF.client_step

    def interrupted(self: PMF, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return genuine(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(PMF, "client_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.run_round()
    engine.run_round()
    twin.run_round()
    ours, theirs = engine.state(), twin.state()
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_kernels_refuse_rows_that_are_not_there() -> None:
    table, users = np.ones((4, 2)), np.ones((1, 2))
    whole = np.array([0, 1])
    for item in (-1, 4):
        items = np.array([item])
        for call in (
            lambda items=items: pair_dot(users, np.array([0]), table, items),
            lambda items=items: rank_one_rows(table, items, users, whole, np.ones(1), 0.1),
            lambda items=items: segment_sum(table, items, np.ones(1), whole),
            lambda items=items: gram(table, items, whole),
        ):
            with pytest.raises(ValueError, match="outside 0 to 3"):
                call()
    with pytest.raises(ValueError, match="fit together"):
        segment_sum(table, np.array([0]), np.ones(1), np.array([0, 2]))


def test_the_package_imports_where_nothing_can_be_cached(tmp_path: Path) -> None:
    """A read-only container: no writable package folder, no home."""
    source = Path(__file__).parents[2] / "secure_fedrec" / "core" / "compiled.py"
    copy = tmp_path / "compiled.py"
    copy.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "__pycache__").write_text("not a folder", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    ended = subprocess.run(
        [
            sys.executable,
            "-B",
            "-c",
            "import compiled, numpy as np; d = np.zeros((1, 1, 1)); ones = np.ones((3, 1)); "
            "compiled.gram(ones, np.arange(3), np.array([0, 3]), d); print(d[0, 0, 0])",
        ],
        cwd=tmp_path,
        env={**kept, "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "3.0\n"
