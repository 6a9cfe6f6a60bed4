"""A layer that lies of itself falls in an audit, in a check and in its contract alike."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.local import LocalModel
from secure_fedrec.protection import RECORDS, RandomizedResponse, VirtualRatings
from secure_fedrec.protection.base import Cloaked
from secure_fedrec.protection.base.picked_rows import pick
from secure_fedrec.protection.denoisers.embedded import DenoisingSession
from secure_fedrec.testing import LayerContract

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]
Cover = Callable[..., Cloaked]

UNIT = 2.0**-32
"""Of the ring of these federations."""


def with_values(covered: Cloaked, change: Callable[[FloatArray], FloatArray]) -> Cloaked:
    block = covered.upload.block
    assert block.values is not None
    changed = replace(block, values=change(block.values))
    return replace(covered, upload=replace(covered.upload, blocks={"table": changed}))


def rounds_to_two_units(cover: Cover) -> Cover:
    def lying(cloak: Any, local: LocalModel, **told: Any) -> Cloaked:
        covered = cover(cloak, local, **told)
        return with_values(covered, lambda values: np.round(values / (2 * UNIT)) * (2 * UNIT))

    return lying


def adds_a_unit_to_a_row(cover: Cover) -> Cover:
    def lying(cloak: Any, local: LocalModel, **told: Any) -> Cloaked:
        covered = cover(cloak, local, **told)
        mine = np.repeat(local.clients == 7, covered.upload.block.lengths) & ~covered.virtual

        def one_more(values: FloatArray) -> FloatArray:
            values = values.copy()
            values[np.flatnonzero(mine)[:1], 0] += UNIT
            return values

        return with_values(covered, one_more)

    return lying


def without(covered: Cloaked, keep: BoolArray) -> Cloaked:
    kept = pick(covered.upload.block, np.ones(len(covered.upload.clients), dtype=bool), keep)
    upload = replace(covered.upload, blocks={"table": kept})
    return Cloaked(upload=upload, virtual=covered.virtual[keep])


def drops_a_row(cover: Cover) -> Cover:
    def lying(cloak: Any, local: LocalModel, **told: Any) -> Cloaked:
        covered = cover(cloak, local, **told)
        mine = np.repeat(local.clients == 7, covered.upload.block.lengths) & ~covered.virtual
        keep = np.ones(len(mine), dtype=bool)
        keep[np.flatnonzero(mine)[:1]] = False
        return without(covered, keep)

    return lying


def covers_the_wrong_clients(cover: Cover) -> Cover:
    def lying(cloak: Any, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        return cover(cloak, local, round_=round_, exempt=~exempt)

    return lying


def drops_reports_of_the_exempt(cover: Cover) -> Cover:
    def lying(cloak: Any, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = cover(cloak, local, round_=round_, exempt=np.zeros_like(exempt))
        spared = np.repeat(exempt, covered.upload.block.lengths)
        return without(covered, ~(spared & covered.virtual))

    return lying


def exempts_one_more(exempt: Any) -> Any:
    def lying(session: DenoisingSession, clients: IntArray) -> BoolArray:
        ordinary = np.flatnonzero(~session.collector.binding.is_denoiser)
        spared: BoolArray = exempt(session, clients) | (clients == ordinary[0])
        return spared

    return lying


def states(**traits: Any) -> Callable[[property], property]:
    def lying(stated: property) -> property:
        assert stated.fget is not None
        told = stated.fget
        return property(lambda part: replace(told(part), **traits))

    return lying


FILLED: tuple[dict[str, Any], ...] = ({"layer": "virtual-ratings"},)
ANSWERED: tuple[dict[str, Any], ...] = ({"layer": "randomized-response"},)
LIES: dict[str, tuple[Any, str, Callable[[Any], Any], tuple[dict[str, Any], ...], str]] = {
    "rounds every value": (VirtualRatings, "cover", rounds_to_two_units, FILLED, "off by"),
    "adds a unit to a row": (VirtualRatings, "cover", adds_a_unit_to_a_row, FILLED, "off by +1 "),
    "drops a row": (VirtualRatings, "cover", drops_a_row, FILLED, "relative to what it reports"),
    "covers the wrong clients": (
        VirtualRatings,
        "cover",
        covers_the_wrong_clients,
        FILLED,
        "exempt from the cloak",
    ),
    "drops reports of denoisers": (
        RandomizedResponse,
        "cover",
        drops_reports_of_the_exempt,
        ANSWERED,
        "is not sent, though the client is exempt",
    ),
    "exempts whom it does not state": (
        DenoisingSession,
        "exempt",
        exempts_one_more,
        FILLED,
        "exempt from the cloak, but not a denoiser of the record",
    ),
    "states that no row is virtual": (
        VirtualRatings,
        "traits",
        states(virtual_rows="none"),
        FILLED,
        "rows are virtual, but the record states that none are",
    ),
    "states that all reports are sent": (
        RandomizedResponse,
        "traits",
        states(reports="all"),
        ANSWERED,
        "rows are not sent, but the record states that all are",
    ),
}


@pytest.fixture(params=LIES)
def lie(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """Layers of a configuration, one of which lies; and what is to be said of it."""
    part, name, lying, layers, says = LIES[request.param]
    monkeypatch.setattr(part, name, lying(getattr(part, name)))
    return layers, says


def configured(small: dict[str, Any], layers: Any) -> dict[str, Any]:
    gates = [{"metric": "lossless", "equals": True}]
    protection = [*layers, {"layer": "denoisers", "count": 10}]
    return small | {"protection": protection, "attacks": ["direct"], "gates": gates}


@pytest.mark.claim("lying-layer-falls")
def test_a_layer_that_lies_falls_in_an_audit(
    lie: tuple[Any, str],
    small: dict[str, Any],
    write_config: Write,
    command: Command,
    tmp_path: Path,
) -> None:
    layers, says = lie
    path = write_config(configured(small, layers))
    code, out, err = command("audit", path, "--out", tmp_path / "out", "--quiet", "--json")
    report = json.loads(out)
    assert code == 1, err
    assert report["lossless"] | {"statement": ""} == {
        "claimed": True,
        "holds": False,
        "rounds_compared": 1,
        "statement": "",
        "first_difference": report["lossless"]["first_difference"],
    }
    assert says in report["lossless"]["first_difference"]


@pytest.mark.claim("lying-layer-falls")
def test_a_layer_that_lies_falls_in_a_check(
    lie: tuple[Any, str], small: dict[str, Any], write_config: Write, command: Command
) -> None:
    layers, says = lie
    path = write_config(configured(small, layers))
    code, out, err = command("check", path, "--rounds", "2", "--quiet")
    assert code == 1, err
    assert says in out


@pytest.mark.claim("lying-layer-falls")
def test_a_layer_that_lies_falls_in_its_contract(lie: tuple[Any, str]) -> None:
    layers, _ = lie
    contract = type("Mine", (LayerContract,), {"layer": RECORDS[layers[0]["layer"]]})()
    with pytest.raises(AssertionError, match=r"claims (True|False), found|states"):
        contract.test_it_is_lossless_where_it_says_so()


def test_without_payloads_the_public_state_tells(
    small: dict[str, Any],
    write_config: Write,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VirtualRatings, "cover", adds_a_unit_to_a_row(VirtualRatings.cover))
    small["recording"]["payload_rounds"] = [2]
    path = write_config(configured(small, FILLED))
    out = command("audit", path, "--out", tmp_path / "out", "--quiet", "--json")[1]
    told = json.loads(out)["lossless"]["first_difference"]
    assert told == "round 1, the public tables differ"


def test_a_claim_that_is_broken_needs_no_gate_to_fall(
    small: dict[str, Any],
    write_config: Write,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VirtualRatings, "cover", drops_a_row(VirtualRatings.cover))
    asked = configured(small, FILLED) | {"gates": [{"metric": "rmse", "max": 5.0}]}
    code, out, _ = command(
        "audit", write_config(asked), "--out", tmp_path / "out", "--quiet", "--json"
    )
    (reason, *_) = json.loads(out)["verdict"]["reasons"]
    assert code == 1
    assert reason.startswith("the layers claim to be lossless, but are not: round 1, client 7's")


@pytest.mark.parametrize("layers", [FILLED, ANSWERED], ids=["filled", "answered"])
def test_layers_that_say_what_they_do_hold_everywhere(
    layers: Any, small: dict[str, Any], write_config: Write, command: Command, tmp_path: Path
) -> None:
    path = write_config(configured(small, layers))
    assert command("check", path, "--rounds", "2", "--quiet")[0] == 0
    out = command("audit", path, "--out", tmp_path / "out", "--quiet", "--json")[1]
    assert json.loads(out)["lossless"]["holds"]
    contract = type("Mine", (LayerContract,), {"layer": RECORDS[layers[0]["layer"]]})()
    contract.test_it_is_lossless_where_it_says_so()
