"""The example of a loop over sockets: its mean is that of a loop without protection."""

import shutil
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from secure_fedrec.engines.flower.certificates import make_certificates
from secure_fedrec.engines.flower.processes import free_ports
from tests.deploy.keys import give_keys

LOOP = Path(__file__).parents[2] / "examples" / "torch-sockets" / "loop.py"


def loaded() -> Any:
    """The example's module."""
    names: dict[str, Any] = {"__name__": "loop"}
    exec(LOOP.read_text(), names)  # noqa: S102  the example's own
    return names


def test_a_loop_over_sockets_is_the_plain_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TLS between all parties; the model is that of plain means within the ring's unit."""
    loop = loaded()
    give_keys(tmp_path, loop["CLIENTS"])
    make_certificates(tmp_path)
    for name in ("pem", "key"):
        shutil.copy(tmp_path / f"superlink.{name}", tmp_path / "server" / f"server.{name}")
    (port,) = free_ports(1)
    words: list[tuple[Any, ...]] = [("server", tmp_path / "server", port)]
    for client in range(loop["CLIENTS"]):
        shutil.copy(tmp_path / "ca.pem", tmp_path / str(client))
        words.append(("client", tmp_path / str(client), client, port))
    # Threads of this process all but one: a start takes seconds.
    threads = [Thread(target=loop["main"], args=each, daemon=True) for each in words[:-1]]
    for thread in threads:
        thread.start()
    ended = subprocess.run(  # noqa: S603
        [sys.executable, LOOP, *map(str, words[-1])],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    for thread in threads:
        thread.join(60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    said = capsys.readouterr().out.splitlines()
    assert said == ["round 1: a mean of 3 clients", "round 2: a mean of 3 clients"]
    found = np.load(tmp_path / "server" / "model.npz")
    model = loop["start"]()
    for _ in range(loop["ROUNDS"]):
        trained = [loop["train"](model, client) for client in range(loop["CLIENTS"])]
        weights = [points for _, points in trained]
        for name in model:
            after = [np.float64(each[name]) for each, _ in trained]
            model[name] = np.float32(np.average(after, axis=0, weights=weights))
    assert np.abs(model["weight"]).max() > 1.0
    for name, array in model.items():
        # Half a unit of the ring and half one of float32 a round, and what training makes of it.
        np.testing.assert_allclose(found[name], array, rtol=0, atol=4e-6)


def test_the_example_is_short() -> None:
    lines = [line for line in LOOP.read_text().splitlines() if line.strip()]
    assert len(lines) <= 150
