"""Masked rounds with a tail floor on hosts of their own: two sums an attempt."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.hosted_floor import FloorHub
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_rounds import TEN, settings

FLOOR = {"layer": "masking", "tail_floor": 3}
ONCE = ["ADVERTISE", "SHARES", "UPLOAD", "REVEAL"]


def deployed(folder: Path, **options: Any) -> Deployment:
    return Deployment.of(
        settings(FLOOR, **{**TEN, "algorithm": {"rounds": 3, "rank": 2}}), folder, **options
    )


@pytest.mark.claim("hosts-tail-floor")
def test_rows_at_the_floor_are_the_embedded_engines(tmp_path: Path) -> None:
    """Who drops out of the counts is in neither sum; no other row is learnt."""
    ran = deployed(tmp_path)
    ran.rounds(1)
    assert ran.transport.labels == ["greeting", *ONCE, *ONCE]
    assert ran.transport.log == []
    started = ran.twin(0).public.table
    learnt = (ran.coordinator.public.table != started).any(axis=1)
    raters = _raters(ran)
    assert np.array_equal(np.flatnonzero(learnt), np.flatnonzero(raters >= 3))
    assert (raters[~learnt] > 0).any()
    ran.kill(2)
    ran.rounds(1)
    assert list(ran.last.left_out) == [2]
    ran.restart(2)
    ran.rounds(1)
    assert len(ran.last.clients) == 10
    ran.require_equal()


def _raters(ran: Deployment) -> Any:
    """int64[40]: how many clients have rated each item."""
    vault = ran.federation.fresh().problem.vault
    raters = np.zeros(40, dtype=np.int64)
    for client in range(10):
        raters[np.unique(vault.examples(client)["items"])] += 1
    return raters


@pytest.mark.claim("hosts-tail-floor")
def test_counts_that_the_server_has_not_signed_bring_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client derives the second round from counts that it has checked, or sends no row."""
    ran = deployed(tmp_path, attempts=1)
    step = FloorHub.step

    def altered(self: FloorHub, inbox: Any) -> Any:
        return [
            each._replace(data=each.data[:-1] + bytes([each.data[-1] ^ 1]))
            if each.stage == "COUNTS"
            else each
            for each in step(self, inbox)
        ]

    monkeypatch.setattr(FloorHub, "step", altered)
    with pytest.raises(ProtocolError, match="round 1 was aborted after clients had revealed"):
        ran.rounds(1)
    assert {why for _, why in ran.transport.log} == {"this is not the sum that the server signed"}
    assert ran.transport.labels == ["greeting", *ONCE, "ADVERTISE"]


def test_who_drops_out_between_the_sums_ends_the_round(tmp_path: Path) -> None:
    """Its rows were counted; what was counted over one state is not counted again."""
    ran = deployed(tmp_path)
    ran.rounds(1)
    before, told = ran.coordinator.public, len(ran.transport.labels)

    def killing(label: str, client: int, data: bytes) -> list[bytes]:
        second = ran.transport.labels[told:].count("ADVERTISE") == 2
        if client == 2 and second and 2 in ran.transport.sites:
            ran.kill(2)
        return [data]

    ran.transport.out = killing
    with pytest.raises(ProtocolError, match="round 2 was aborted after clients had revealed"):
        ran.rounds(1)
    assert ran.coordinator.public is before
