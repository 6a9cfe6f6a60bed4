"""A server that names states of its choice learns from a client's silence once, if at all."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.engines.distributed.site_state import HaltedClient
from secure_fedrec.errors import HaltedError, ProtocolError
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_rounds import MASKS, SHARED, settings

NOISED = ({"layer": "clip", "norm": 16.0}, {"layer": "skellam", "noise_multiplier": 0.5}, MASKS)


def failed_on(ran: Deployment, row: int, value: float) -> list[tuple[int, str]]:
    """Whom a state with one row of this value silences, and why, as they know."""
    before, told = ran.coordinator.public, len(ran.transport.log)
    table = before.table.copy()
    table[row] = value
    ran.coordinator.public = replace(before, table=table)
    with suppress(ProtocolError):
        ran.coordinator.run_round()
    # The table is as before; a round that was summed is over, and no client takes it again.
    ran.coordinator.public = replace(before, round=ran.coordinator.public.round)
    return ran.transport.log[told:]


def halted_on(ran: Deployment, row: int, value: float) -> set[int]:
    """Who is halted by it, or was: not who lacks messages of those (too few denoisers answered)."""
    failed = failed_on(ran, row, value)
    return {client for client, why in failed if "part was halted" in why or "part is halted" in why}


@pytest.mark.parametrize(
    "layers", [(), (MASKS,), SHARED, NOISED], ids=["plain", "masked", "shared", "noised"]
)
def test_who_fails_on_its_own_data_answers_nothing_more(
    layers: tuple[Mapping[str, Any], ...], tmp_path: Path
) -> None:
    ran = Deployment.of(settings(*layers), tmp_path)
    told = ran.transport.log
    first = halted_on(ran, 1, 1e10)
    # Who rated item 1; under shared uploads whoever was asked and has it among virtual items.
    assert first if layers is SHARED else first == {0, 1, 2}
    second = halted_on(ran, 2, 1e10)
    assert first <= second
    ends = [client for client, why in told if "EncodingError on this client's own data" in why]
    assert sorted(ends) == sorted(second)  # once each
    told.clear()
    for client in second:
        ran.kill(client)
        ran.restart(client)
    failed = failed_on(ran, 3, 0.5)
    assert {client for client, why in failed if "part was halted" in why} == second
    for client in second:
        (ran.layout.site(client) / "state" / "halted").unlink()
        ran.kill(client)
        ran.restart(client)
    assert not failed_on(ran, 3, 0.5)


def test_what_no_client_can_bear_is_refused_by_all_alike(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    for value in (np.nan, np.inf):
        failed = failed_on(ran, 1, value)
        assert {client for client, _ in failed} == set(ran.layout.sites())
        assert any("is not finite" in why for _, why in failed)
    ran.rounds(1)
    ran.require_equal()


def test_the_mark_is_what_halts_and_is_written_whenever_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = HaltedClient(tmp_path)
    with monkeypatch.context() as full:
        full.setattr("secure_fedrec.engines.distributed.site_state.replace_file", _full)
        with pytest.raises(OSError, match="no space"), halt.on_own_data():
            raise ValueError("rated 5")
        with pytest.raises(OSError, match="no space"):
            halt.require_active()  # silent all the same
    with pytest.raises(HaltedError, match="was halted"):
        halt.require_active()
    assert "rated 5" in (tmp_path / "halted").read_text()
    (tmp_path / "halted").unlink()
    halt.require_active()  # in the same process


def _full(*_: object, **__: object) -> None:
    raise OSError("no space")
