"""The benchmark of masked sums does the work it claims, and charges it to the right party."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

import benchmarks
from benchmarks import __main__ as command
from benchmarks import masked_round, masking, secagg_case
from benchmarks.federations import Options
from benchmarks.masking import (
    add_mask,
    client_limit,
    judged,
    server_bound,
    signatures_checked,
)
from benchmarks.secagg_case import Case, CpuMeter, Inputs, Peer, RoundCost
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking import MaskingServer, MeanLayout
from secure_fedrec.protection.masking import envelope as formats
from secure_fedrec.protection.masking.messages import sum_messages
from secure_fedrec.protection.session.roster import signed_by

COMPLETE = Case(clients=8, length=300, neighbours=7, threshold=4, dropped=2)
SPARSE = Case(clients=16, length=300, neighbours=6, threshold=3, dropped=1)
HEADER_ROOM = 8000


@pytest.fixture
def ticking_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes one second."""
    ticks = count()
    monkeypatch.setattr(secagg_case, "process_time", lambda: float(next(ticks)))


@pytest.fixture
def one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in ("_QUICK_ROWS", "_FULL_ROWS"):
        monkeypatch.setattr(masking, rows, (masking.Row(case=COMPLETE),))


@pytest.fixture
def no_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.delitem(sys.modules, "benchmarks.flower_secagg", raising=False)
    monkeypatch.delattr(benchmarks, "flower_secagg", raising=False)


@pytest.mark.parametrize("case", [COMPLETE, SPARSE], ids=["complete", "sparse"])
def test_a_round_of_ours_is_exact_on_the_graph_of_the_row(case: Case) -> None:
    config = masked_round.config_of(case)
    assert config.neighbours == case.neighbours
    assert config.threshold == case.threshold
    assert config.adversary == "active"
    cost = masked_round.masked_round(case, Inputs.draw(case, 1))
    assert 4 * case.length < cost.upload < 4 * case.length + HEADER_ROOM
    assert 0 < cost.encode < cost.client
    assert 0 < cost.decode < cost.server


def test_a_committee_signs_on_a_sparse_graph_and_everybody_on_a_complete_one() -> None:
    sparse = masked_round.config_of(Case(clients=200, length=10, neighbours=40, threshold=21))
    assert (sparse.committee, sparse.quorum) == (99, 60)
    complete = masked_round.config_of(Case(clients=200, length=10, neighbours=199, threshold=21))
    assert (complete.committee, complete.quorum) == (None, 111)


@pytest.mark.parametrize("case", [COMPLETE, SPARSE], ids=["complete", "sparse"])
def test_the_server_checks_as_many_signatures_as_are_counted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = replace(case, dropped=0)
    serving, checked = [False], 0
    step = MaskingServer.step

    def counted(*arguments: bytes) -> bool:
        nonlocal checked
        checked += serving[-1]
        return signed_by(*arguments)

    def serve(self: MaskingServer, inbox: Any) -> Any:
        serving.append(True)
        try:
            return step(self, inbox)
        finally:
            serving.pop()

    for module in (formats, sum_messages):
        monkeypatch.setattr(module, "signed_by", counted)
    monkeypatch.setattr(MaskingServer, "step", serve)
    masked_round.masked_round(case, Inputs.draw(case, 1))
    assert checked == signatures_checked(case)


def test_a_sum_that_is_off_by_one_unit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = MeanLayout.encode

    def one_unit_off(self: MeanLayout, values: Any, *, weight: int = 1) -> Any:
        vector = honest(self, values, weight=weight)
        vector.words[-1] += 1
        return vector

    monkeypatch.setattr(MeanLayout, "encode", one_unit_off)
    with pytest.raises(AssertionError):
        masked_round.masked_round(COMPLETE, Inputs.draw(COMPLETE, 1))


def test_other_rounds_drop_other_clients() -> None:
    drawn = {Inputs.draw(SPARSE, seed).dropped for seed in range(20)}
    assert len(drawn) > 5
    assert {len(dropped) for dropped in drawn} == {1}
    assert Inputs.draw(SPARSE, 3).survivors == Inputs.draw(SPARSE, 3).survivors


def test_a_server_does_not_pay_for_the_clients_it_calls(ticking_clock: None) -> None:
    meter = CpuMeter()
    with meter.charge("server"):
        for _ in range(3):
            with meter.charge("client"):
                pass
    # One second per look: entering and leaving a client each end a stretch of the server's.
    assert meter.seconds == {"nobody": 1.0, "server": 4.0, "client": 3.0}


def test_time_goes_back_to_whoever_was_interrupted_by_a_failure(ticking_clock: None) -> None:
    meter = CpuMeter()
    with meter.charge("server"), pytest.raises(ZeroDivisionError), meter.charge("client"):
        raise ZeroDivisionError
    with meter.charge("server"):
        pass
    assert set(meter.seconds) == {"nobody", "server", "client"}
    assert meter.seconds["nobody"] == 2.0


def test_dropped_clients_do_not_lower_the_mean(ticking_clock: None) -> None:
    # With a clock that ticks per look a client costs one second per message: SETUP, KEYS, BOXES,
    # SURVIVORS, QUORUM, RESULT; one more to open it, and one to encode.
    cost = masked_round.masked_round(COMPLETE, Inputs.draw(COMPLETE, 1))
    assert cost.client == 6 + 1 + 1
    assert cost.encode == 1


def test_the_reference_mask_is_the_mask() -> None:
    length = 70_001  # beyond the buffer, and no multiple of it
    ours = np.arange(length, dtype=np.uint32)
    reference = ours.copy()
    key = bytes(range(32))
    MaskExpander().apply(ours, add=[key], subtract=[])
    add_mask(reference, key, np.empty(256 * 1024, dtype=np.uint8))
    assert np.array_equal(ours, reference)


def test_bounds_follow_their_formulas() -> None:
    case = Case(clients=16, length=1, neighbours=15, threshold=10, dropped=2)
    # 15 masks at 30 % on top, quorum (16 + 1) // 2 + 1 = 9.
    assert client_limit(case, 1e-3) == pytest.approx(19.5e-3 + 10e-3 + 2.25e-3 + 0.63e-3)
    # All but the masks at half the speed, on a machine that verifies half as fast.
    half = client_limit(case, 1e-3, verify=0.124e-3)
    assert half == pytest.approx(19.5e-3 + 2 * (10e-3 + 2.25e-3 + 0.63e-3))
    assert server_bound(case, 1e-3) == pytest.approx((14 + 2 * 14) * 1e-3)
    sparse = Case(clients=65, length=1, neighbours=24, threshold=13, dropped=1)
    assert server_bound(sparse, 1e-3) == pytest.approx((64 + 24) * 1e-3)


def test_the_worst_row_is_judged() -> None:
    def row(clients: int, length: int, ratio: float | None, over: float) -> dict[str, Any]:
        return {
            "clients": clients,
            "length": length,
            "client_ratio_flower": ratio,
            "server_ratio_flower": ratio,
            "client_over_limit": over,
            "client_over_scaled_limit": over / 2,
            "server_over_bound": over,
            "server_over_work": None if ratio is None else over,
        }

    rows = {
        "lenient": row(16, 1_000_000, 4.5, 0.5),
        "short": row(16, 100_000, 6.0, 0.9),
        "alone": row(128, 1_000_000, None, 0.7),
    }
    assert judged(rows) == {
        "client_ratio_flower": 4.5,
        "client_ratio_flower_elsewhere": 6.0,
        "server_ratio_flower": 4.5,
        "client_over_limit": 0.9,
        "client_over_scaled_limit": 0.45,
        "server_over_bound": 0.7,
        "server_over_work": 0.5,
    }
    assert set(judged(rows)) == set(masking.TARGETS)
    only = judged({"alone": rows["alone"]})
    assert only["client_ratio_flower"] is None
    assert only["client_over_limit"] == 0.7


def test_ratios_pair_a_round_with_the_peer_of_its_repeat(
    one_row: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: Iterator[float] = iter([1.0, 1.0, 2.0, 4.0])  # the first is the warm-up
    order: list[str] = []

    def contender(name: str, seconds: Callable[[], float]) -> Any:
        def run(_case: Case, _inputs: Inputs) -> RoundCost:
            order.append(name)
            return RoundCost(client=seconds(), server=1.0, upload=1e6)

        return run

    monkeypatch.setattr(masking, "_FULL_EFFORT", (3, 60.0))
    monkeypatch.setattr(masking, "masked_round", contender("ours", lambda: next(ours)))
    peer = Peer(round=contender("peer", lambda: 8.0), version="0")
    result = masking.run(Options(quick=False), peer=peer)
    assert order == ["ours", "peer"] * 4
    (row,) = result["rows"].values()
    assert row["client_ratio_flower"] == 4.0  # median of 8, 4 and 2
    assert result["flower"] == "0"


@pytest.mark.parametrize("as_json", [True, False])
def test_ours_alone_needs_no_flower(
    as_json: bool, one_row: None, no_flower: None, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["masking", "--quick", "--ours-only", *(["--json"] if as_json else [])]
    assert command.main(arguments) == 0
    out, err = capsys.readouterr()
    assert "n8_d300_k7_drop2" in err
    if not as_json:
        assert "client_over_limit" in out
        return
    result = json.loads(out)
    assert set(masking.TARGETS) <= set(result)
    assert result["client_ratio_flower"] is None
    assert result["client_over_limit"] > 0
    assert result["rows"]["n8_d300_k7_drop2"]["dropped"] == 2


def test_without_flower_the_command_names_the_extra(
    no_flower: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["masking", "--quick"]) == 2
    err = capsys.readouterr().err
    assert "flwr" in err
    assert "secure-fedrec[benchmarks]" in err
    assert "--ours-only" in err


@pytest.mark.parametrize(("name", "peer"), [("noise", "opendp"), ("paillier", "phe")])
def test_a_missing_peer_is_named(
    name: str, peer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [key for key in sys.modules if key.partition(".")[0] == peer]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, peer, None)
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    monkeypatch.delattr(benchmarks, name, raising=False)
    assert command.main([name, "--json"]) == 2
    assert f"measures against {peer}" in capsys.readouterr().err


def test_a_defect_of_our_own_is_no_missing_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "benchmarks.masked_round", None)
    monkeypatch.delitem(sys.modules, "benchmarks.masking", raising=False)
    monkeypatch.delattr(benchmarks, "masking", raising=False)
    with pytest.raises(ModuleNotFoundError):
        command.find("masking", ours_only=True)


def test_only_masking_can_be_measured_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["noise", "--ours-only"]) == 2
    assert "masking" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        command.find("fedrec", ours_only=True)


def test_every_benchmark_can_be_found() -> None:
    for name, peer in (("fedrec", "numpy"), ("noise", "opendp.prelude"), ("paillier", "phe")):
        pytest.importorskip(peer)
        assert callable(command.find(name))


@pytest.mark.parametrize("case", [COMPLETE, SPARSE], ids=["complete", "sparse"])
def test_a_round_of_flower_gives_the_mean(case: Case) -> None:
    pytest.importorskip("flwr")
    from benchmarks import flower_secagg

    cost = flower_secagg.flower_round(case, Inputs.draw(case, 1))
    assert 8 * case.length < cost.upload
    assert cost.client > 0
    assert cost.server > 0


def test_a_round_that_flower_halts_is_no_measurement() -> None:
    pytest.importorskip("flwr")
    from benchmarks import flower_secagg

    too_many = Case(clients=8, length=10, neighbours=7, threshold=4, dropped=5)
    with pytest.raises(AssertionError, match="halted"):
        flower_secagg.flower_round(too_many, Inputs.draw(too_many, 1))


def test_the_server_is_charged_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it does, it does in time of its own; and the clock is looked at once a step."""
    charged: dict[str, list[str]] = {
        name: [] for name in ("start", "receive", "close_step", "step")
    }
    parties: list[str] = []
    charge = CpuMeter.charge

    def noting(self: CpuMeter, party: str) -> Any:
        parties.append(party)
        return charge(self, party)

    for name, calls in charged.items():
        honest = getattr(MaskingServer, name)

        def noted(
            self: Any, *given: Any, _calls: list[str] = calls, _do: Any = honest, **named: Any
        ) -> Any:
            _calls.append(self.meter._party)
            return _do(self, *given, **named)

        monkeypatch.setattr(MaskingServer, name, noted)
    monkeypatch.setattr(CpuMeter, "charge", noting)
    masked_round.masked_round(COMPLETE, Inputs.draw(COMPLETE, 1))
    clients = COMPLETE.clients
    counts = {name: len(calls) for name, calls in charged.items()}
    # Keys and shares of all; vectors, signatures and reveals of those that have not dropped.
    messages = 2 * clients + 3 * (clients - COMPLETE.dropped)
    assert counts == {"start": 1, "receive": messages, "close_step": 5, "step": 6}
    assert {party for calls in charged.values() for party in calls} == {"server"}
    # One more charge to open the server half.
    assert parties.count("server") == counts["step"] + 1
