"""Values beyond the ring's clip, where the configuration says that they are clipped and counted."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.commands import _round_printer
from audits.config.audit import parse_config
from audits.report.assemble import _warnings
from audits.run.build import build_federation, load_dataset
from audits.run.training import open_run, train_recorded
from secure_fedrec.errors import ConfigError
from secure_fedrec.properties import assert_lossless
from secure_fedrec.wire import Meter
from tests.deploy.memory import Deployment, silences
from tests.deploy.test_deploy_halt import NOISED, failed_on
from tests.deploy.test_deploy_rounds import MASKS, settings

LOW: dict[str, Any] = {"clip": 1e-3, "beyond": "clip"}
FLOOR: dict[str, Any] = {"layer": "masking", "tail_floor": 2}
CLIPS = [1e-3, 2e-3]
"""The nearest multiple of a ring unit is below the first, and above the second."""


def told(ran: Deployment, round_: int) -> int:
    """Values that sites say they have clipped in a round."""
    lines = [
        line.split()
        for client in ran.layout.sites()
        if (path := ran.layout.site(client) / "state" / "clipped").exists()
        for line in path.read_text().splitlines()
    ]
    return sum(int(words[-2]) for words in lines if words[1] == str(round_))


@pytest.mark.claim("beyond-the-clip")
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("layer", [MASKS, FLOOR], ids=["masks", "floor"])
def test_sites_clip_what_the_embedded_engine_does(
    clip: float, layer: dict[str, Any], tmp_path: Path
) -> None:
    """The same bits; how many values were clipped a site tells its owner, and nobody else.

    Under a floor a second sum is of what the first one's words were decoded to.
    """
    ran = Deployment.of(settings(layer, ring=LOW | {"clip": clip}), tmp_path)
    counts = []
    for round_ in (1, 2):
        ran.rounds(1)
        counts.append(told(ran, round_))
        assert counts[-1] == ran.twin()._clipped > 0
    ran.require_equal()
    assert not silences(tmp_path)
    assert ran.transport.log == []
    with pytest.raises(ConfigError, match="sites do not tell how many values they clipped"):
        Deployment.of(settings(MASKS, ring=LOW), tmp_path / "recorded", record=True)


@pytest.mark.claim("beyond-the-clip")
@pytest.mark.parametrize("layers", [(), NOISED], ids=["plain", "noised"])
def test_a_state_that_is_large_silences_nobody(layers: Any, tmp_path: Path) -> None:
    """As one that others' uploads or noise led to; what is not finite is refused as ever."""
    ran = Deployment.of(settings(*layers, ring={"beyond": "clip"}), tmp_path)
    assert not [why for _, why in failed_on(ran, 1, 1e10) if "halted" in why]
    assert told(ran, 1) > 0
    assert all("is not finite" in why for _, why in failed_on(ran, 1, np.inf))
    assert not silences(tmp_path)


def test_a_note_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    """Or a silence would tell the server who clipped something."""
    ran = Deployment.of(settings(MASKS, ring=LOW), tmp_path)
    for client in ran.layout.sites():
        (ran.layout.site(client) / "state" / "clipped").mkdir()
    ran.rounds(1)
    assert len(ran.last.clients) == len(ran.layout.sites())
    ran.require_equal()


@pytest.mark.claim("beyond-the-clip")
def test_a_run_tells_what_was_clipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every line, in its checkpoint and in its report; it is lossless up to that."""
    config = parse_config(settings({"layer": "masking"}, ring=LOW))
    dataset = load_dataset(config, None)
    federation = build_federation(config, dataset.task(0))
    run = open_run(federation, tmp_path, resume=False)
    train_recorded(federation, run, tmp_path, on_round=_round_printer(Meter(5)), progress=False)
    counts = [report.clipped for report in run.history]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["clipped"] for line in lines] == counts
    again = open_run(federation, tmp_path, resume=True)
    assert [report.clipped for report in again.history] == counts
    assert min(counts) > 0
    task = SimpleNamespace(facts=SimpleNamespace(warning=None))
    measured: Any = SimpleNamespace(run=run, federation=SimpleNamespace(task=task))
    (warning,) = _warnings(measured)
    assert warning.startswith(f"{sum(counts)} values were beyond ring.clip and were clipped")
    assert_lossless(
        algorithm=federation.algorithm,
        stack=federation.stack,
        problem=lambda: federation.fresh().problem,
        streams=federation.streams,
        rounds=2,
    )
