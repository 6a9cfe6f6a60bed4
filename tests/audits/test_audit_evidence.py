"""Attacks that lack what was not recorded: they say so, and nothing passes for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from attacks import SUITE
from audits.config.audit import parse_config
from audits.run.audit import audit

MASKS = [{"layer": "masking"}]


def audited(small: Mapping[str, Any], folder: Path, **recording: Any) -> dict[str, Any]:
    """The report of a small federation whose server looks."""
    raw = {**small, "recording": recording, "adversaries": [small["adversaries"][0]]}
    result = audit(
        parse_config(raw),
        out=folder,
        data_dir=None,
        resume=False,
        command=["secure-fedrec"],
        progress=False,
    )
    return dict(result.report)


def lacking(report: Mapping[str, Any]) -> dict[str, list[str]]:
    return {each["attack"]: each["lacks"] for each in report["findings"] if each["lacks"]}


@pytest.mark.claim("verdicts-judge-everything")
@pytest.mark.parametrize(
    ("layers", "recording", "lacks"),
    [
        ([], {"payload_rounds": [1, 4]}, set()),
        (MASKS, {"payload_rounds": [1, 4]}, set()),
        ([], {"payload_rounds": []}, {"lattice", "sum-decoding", "subset-regression"}),
        ([], {"payload_rounds": [50]}, {"lattice", "sum-decoding", "subset-regression"}),
        (MASKS, {"payload_rounds": []}, {"sum-decoding", "lattice"}),
        (
            [],
            {"payload_rounds": [1], "payload_senders": list(range(25))},
            {"lattice", "sum-decoding", "subset-regression"},
        ),
        ([], {"payload_rounds": [1], "payload_senders": []}, {"lattice", "sum-decoding"}),
    ],
)
def test_an_attack_says_which_payloads_it_lacked(
    small: dict[str, Any],
    tmp_path: Path,
    layers: list[dict[str, Any]],
    recording: dict[str, Any],
    lacks: set[str],
) -> None:
    """Also one that measured something from what was left."""
    small |= {"protection": layers, "gates": [{"metric": "rmse", "max": 5.0}]}
    report = audited(small, tmp_path / "run", **recording)
    found = lacking(report)
    assert found.keys() >= lacks if lacks else not found
    if not layers:  # rows are always recorded; what is to be hidden is looked at, word for word
        assert not {"direct", "intersection"} & found.keys()
    texts = [text for text in report["verdict"]["reasons"] if "were not all recorded" in text]
    assert len(texts) == len(found)
    assert not lacks or report["verdict"]["exit_code"] == 3


def test_missing_evidence_is_waived_by_name_and_is_no_pass(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small |= {"protection": MASKS, "gates": [{"metric": "rmse", "max": 5.0}]}
    names = lacking(audited(small, tmp_path / "first", payload_rounds=[]))
    told = {"adversary": "server", "reason": "no room", "owner": "ann", "expires": "2999-12-31"}
    waivers = [{**told, "attack": name} for name in [*names, "unread"]]
    ended = audited({**small, "waivers": waivers}, tmp_path / "second", payload_rounds=[])
    assert ended["verdict"]["outcome"] == "leaks as documented"
    assert ended["policy"]["measured"]["outcome"] == "inconclusive"
    some = audited({**small, "waivers": waivers[1:]}, tmp_path / "third", payload_rounds=[])
    assert some["verdict"]["outcome"] == "inconclusive"


@pytest.mark.claim("verdicts-judge-everything")
def test_an_attack_that_is_left_out_is_switched_off_whatever_the_system_lists(
    small: dict[str, Any], tmp_path: Path
) -> None:
    """It is asked of a recording without messages whether it would have read one."""
    small["algorithm"] = {"name": "fedmf", "rank": 4, "rounds": 2}
    small["data"] |= {"items": 120, "mean_ratings": 5.0}
    small |= {"protection": MASKS, "gates": [], "cohort": {"clients_per_round": 30}}
    left = {"sum-decoding", "lone-rows"}
    small["attacks"] = [name for name in SUITE if name not in left | {"drafts"}]
    report = audited(small, tmp_path / "run", payload_rounds=[1, 2])
    assert report["switched_off"] == [name for name in SUITE if name in left]
    reasons = report["verdict"]["reasons"]
    assert sum("was switched off" in each for each in reasons) == len(left)


def test_rows_that_a_floor_leaves_out_put_nobody_in_the_clear(
    small: dict[str, Any], tmp_path: Path
) -> None:
    """All clients send the same few rows then, and words alone tell who is readable."""
    floor = [{"layer": "masking", "tail_floor": 2, "min_survivors": 20}]
    small |= {"protection": floor, "gates": [{"metric": "rmse", "max": 5.0}]}
    report = audited(small, tmp_path / "run", payload_rounds=[1, 4])
    (direct,) = [each for each in report["findings"] if each["attack"] == "direct"]
    assert direct["status"] == "measured"
    assert (direct["clients_exposed"], direct["details"]["disclosures_wrong"]) == (0.0, 0.0)
