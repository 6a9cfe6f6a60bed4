"""A server that names states of its choice learns from a few silences of a client, if from any."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.engines.distributed.site_state import MOST_SAT_OUT, HaltedClient
from secure_fedrec.errors import HaltedError, ProtocolError, SitsOutError
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_rounds import MASKS, SHARED, TEN, settings

NOISED = ({"layer": "clip", "norm": 16.0}, {"layer": "skellam", "noise_multiplier": 0.5}, MASKS)


def failed_on(ran: Deployment, row: int, value: float) -> list[tuple[int, str]]:
    """Whom a state with one row of this value silences in a round, and why, as they know."""
    before, told = ran.coordinator.public, len(ran.transport.log)
    table = before.table.copy()
    table[row] = value
    ran.coordinator.public = replace(before, table=table)
    with suppress(ProtocolError):
        ran.coordinator.run_round()
    # The table is as before, and every question is asked in a round of its own.
    ran.coordinator.public = replace(before, round=before.round + 1)
    return ran.transport.log[told:]


def silent(failed: list[tuple[int, str]], *words: str) -> set[int]:
    """Who says so: not who lacks messages of those (too few denoisers answered)."""
    return {client for client, why in failed if any(each in why for each in words)}


SITS, HALTS = "sits this round out", ("part was halted", "part is halted")
ROUNDS = {"algorithm": {"rounds": 3 * MOST_SAT_OUT + 6}}


@pytest.mark.claim("hosts-silence")
@pytest.mark.parametrize(
    "layers", [(), (MASKS,), SHARED, NOISED], ids=["plain", "masked", "shared", "noised"]
)
def test_who_fails_on_its_own_data_sits_out_a_few_rounds(
    layers: tuple[Mapping[str, Any], ...], tmp_path: Path
) -> None:
    """A silence is an answer of its data: as many are given, and then none."""
    ran = Deployment.of(settings(*layers, **ROUNDS), tmp_path)
    sat_out: Counter[int] = Counter()
    halted: set[int] = set()
    while not halted:
        failed = failed_on(ran, 1, 1e10)
        halted, sits = silent(failed, *HALTS), silent(failed, SITS)
        # Who rated item 1; under shared uploads whoever was asked and has it among virtual items.
        assert halted | sits if layers is SHARED else halted | sits == {0, 1, 2}
        sat_out.update(sits - halted)
        kept = {client: ran.site(client)._sealed.halted.sat_out for client in range(5)}
        assert kept == {client: sat_out[client] for client in range(5)}
        if not halted:
            assert not failed_on(
                ran, 3, 0.5 + ran.coordinator.public.round / 64
            )  # and in the next are
    assert {sat_out[client] for client in halted} == {MOST_SAT_OUT}
    for client in halted:
        ran.kill(client)
        ran.restart(client)
    for row in (2, 3):
        assert silent(failed_on(ran, row, 0.25), *HALTS) >= halted
    for client in halted:
        ran.site(client)._sealed.halted.resume("looked")
    failed_on(ran, 3, -0.5)
    assert not failed_on(ran, 3, -0.25)


@pytest.mark.claim("hosts-silence")
def test_a_round_is_sat_out_whole(tmp_path: Path) -> None:
    """Whatever states its attempts begin with: a round is one answer."""
    ran = Deployment.of(settings(MASKS, **ROUNDS), tmp_path, attempts=1)
    before = ran.coordinator.public
    for row in range(1, 9):
        failed_on(ran, row, 1e10 * (1 + row))
        ran.coordinator.public = before
    counts = [ran.site(client)._sealed.halted.sat_out for client in range(5)]
    assert set(counts) == {0, 1} or set(counts) == {1}
    first = silent(failed_on(ran, 1, 1e10), SITS)
    assert first == {client for client in range(5) if counts[client]}


def test_the_server_is_told_who_sits_out(tmp_path: Path) -> None:
    """And nothing of why; its keys of the next round are agreed on meanwhile."""
    ran = Deployment.of(settings(MASKS, **{**TEN, **ROUNDS}), tmp_path)
    ran.rounds(1)
    with pytest.MonkeyPatch.context() as failing:
        site = ran.site(2)

        def failed(*_: object) -> None:
            raise ValueError("rated 5")

        failing.setattr(site, "_trained", failed)
        ran.rounds(1)
    assert ran.last.left_out == {2: "sits this round out: its result cannot be sent"}
    assert ran.last.ready == 10
    ran.rounds(1)
    assert ran.last.left_out == {}
    ran.require_equal()


@pytest.mark.claim("hosts-silence")
def test_what_no_client_can_bear_is_refused_by_all_alike(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    before = ran.coordinator.public
    for value in (np.nan, np.inf):
        failed = failed_on(ran, 1, value)
        assert {client for client, _ in failed} == set(ran.layout.sites())
        assert any("is not finite" in why for _, why in failed)
    ran.coordinator.public = before
    ran.rounds(1)
    ran.require_equal()


@pytest.mark.claim("hosts-silence")
def test_the_mark_is_what_halts_and_is_written_whenever_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = HaltedClient(tmp_path)
    for _ in range(MOST_SAT_OUT):
        with pytest.raises(SitsOutError), halt.on_own_data():
            raise ValueError("rated 4")
        halt.require_active()
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


@pytest.mark.claim("hosts-silence")
def test_what_cannot_be_written_down_is_counted_all_the_same(tmp_path: Path) -> None:
    """A text that is no Unicode is written in digits; a long one is cut; on a full disk a file
    without a byte halts the client, in whatever process comes next."""
    halt = HaltedClient(tmp_path)
    with pytest.raises(SitsOutError), halt.on_own_data():
        raise ValueError("rated \ud800")
    with pytest.raises(SitsOutError), halt.on_own_data():
        raise ValueError("long " * 100_000)
    assert halt.sat_out == 2
    assert (tmp_path / "sat-out").stat().st_size < 20_000
    with pytest.MonkeyPatch.context() as full:
        full.setattr("secure_fedrec.engines.distributed.site_state.replace_file", _full)
        with pytest.raises(OSError, match="no space"), halt.on_own_data():
            raise ValueError("rated 5")
    with pytest.raises(HaltedError):
        HaltedClient(tmp_path).require_active()
