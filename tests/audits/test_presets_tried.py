"""Each change that a report names runs as it is written, and ends as the report says or warns."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from audits.config.audit import load_config
from audits.presets import PRESETS
from audits.report.front import front
from audits.run.tried_remedies import REFUSED, TriedRemedy, tried_remedies
from tests.audits.presets_tried import (
    BEGIN,
    END,
    PAGE,
    configured,
    recorded,
    report_of,
    row_of,
    section,
)
from tests.audits.stand_ins import RATINGS, SMALLER
from tests.audits.test_audit_presets import OUTCOMES

Command = Callable[..., tuple[int, str, str]]


def require_sound(report: Mapping[str, Any], tried: Sequence[TriedRemedy]) -> None:
    """Advice runs, answers what it says, and says beforehand what else may fall or leak."""
    assert len(tried) == len(report["remedies"])
    for each in tried:
        assert each.outcome != REFUSED, each.reasons
        assert each.report is not None
        assert each.outcome == each.report["verdict"]["outcome"]
        assert each.left == ()
        assert each.unforeseen == ()
        assert each.outcome in ("pass", "leaks as documented") or each.reasons


@pytest.mark.claim("advice-runs")
@pytest.mark.parametrize("preset", PRESETS)
def test_the_changes_of_every_preset_end_as_said(preset: str) -> None:
    """On small data and few rounds: what a preset itself ends in is another test's."""
    config = configured(preset, quick=True, rounds=3, changes=SMALLER.get(preset, {}))
    row, report, tried = row_of(preset, config)
    require_sound(report, tried)
    assert [each["outcome"] for each in row["changes"]] == [each.outcome for each in tried]


def stars(rows: random.Random) -> str:
    """Half stars of 80 people for 30 books each of which has many readers."""
    lines = [
        f"quokka-{who};wombat-{book};{rows.randint(1, 10) / 2:g}"
        for who in range(80)
        for book in rows.sample(range(30), 10)
    ]
    return "\n".join(["user;item;stars", *lines]) + "\n"


def tail(rows: random.Random) -> str:
    """Ratings of 80 people for films of which many have one or two viewers."""
    lines = [
        f"quokka-{who};wombat-{film};{rows.randint(1, 5)}"
        for who in range(80)
        for film in rows.sample(range(120), 5)
    ]
    return "\n".join(["user;item;rating", *lines]) + "\n"


def plays(rows: random.Random) -> str:
    """Counts of 80 people, which become implicit feedback."""
    lines = [
        f"quokka-{who}\twombat-{song}\t{rows.randint(1, 500)}"
        for who in range(80)
        for song in rows.sample(range(30), 8)
    ]
    return "\n".join(["user\titem\tplays", *lines]) + "\n"


def two(rows: random.Random) -> str:
    """Two people: no stack that hides one in a sum starts from so few."""
    lines = [f"{who};{item};{1 + item % 5}" for who in "ab" for item in range(12)]
    return "\n".join(["user;item;rating", *lines]) + "\n"


@pytest.mark.claim("advice-runs")
@pytest.mark.parametrize("written", [stars, tail, plays, two], ids=lambda each: each.__name__)
def test_what_describe_writes_passes_by_the_first_advice(
    written: Callable[[random.Random], str], command: Command, tmp_path: Path
) -> None:
    """Or the report says that nothing helps; and that no stack of exact sums does."""
    path, config = tmp_path / "own.csv", tmp_path / "own.toml"
    path.write_text(written(random.Random(8)))
    assert command("data", "describe", path, "--write", config)[0] == 0
    short = {"algorithm.rounds": 2, "recording.payload_rounds": [1]}
    report = report_of(load_config(config, short), data_dir=tmp_path)
    tried = list(tried_remedies(report, data_dir=tmp_path, progress=False))
    require_sound(report, tried)
    actions = " ".join(each.what for each in front(report)["actions"])
    if not tried:
        assert "Nothing in this toolkit stops" in actions
        return
    assert tried[0].outcome == "pass", tried[0].reasons
    assert "No stack of exact sums withstands" in actions
    assert "sum-decoding" in actions.partition("No stack")[2]


def test_noise_in_bags_is_advised_that_has_a_price() -> None:
    """With the noise of the default, so many vectors would cost more than has a price."""
    changes = {"algorithm.user_drafts": 1.0, "algorithm.item_drafts": 1.0, "algorithm.rounds": 3}
    report = report_of(configured("hpfl-quickstart", quick=True, changes=changes))
    (change,) = report["remedies"]
    assert change["value"][0]["noise_multiplier"] > 1.0
    (tried,) = tried_remedies(report, data_dir=None, progress=False)
    assert tried.outcome != REFUSED
    assert tried.report is not None
    (price,) = tried.report["protection"]["privacy"]
    assert 0 < price["epsilon"] < 100


@pytest.mark.claim("advice-runs")
def test_a_floor_is_set_beyond_what_was_within_reach() -> None:
    """It hides nobody, and so is no claim: the advice says against what nothing is claimed."""
    data = {**RATINGS, "clients": 60, "items": 150, "mean_ratings": 8.0}
    config = configured("masking-ml100k", quick=True, rounds=2, changes={"data": data})
    report = report_of(config)
    (found,) = [each for each in report["findings"] if each["attack"] == "sum-decoding"]
    assert not found["claimed"]
    floors = [
        layer["tail_floor"]
        for each in report["remedies"]
        for layer in each["value"]
        if "tail_floor" in layer
    ]
    assert floors == [1 + found["details"]["largest_sum_within_reach"]]
    (floor,) = [each for each in report["remedies"] if "tail_floor" in each["value"][-1]]
    assert {"attack": "sum-decoding", "adversary": "server"} in floor["open"]
    assert not floor["lossless"]
    noise = report["remedies"][0]
    assert noise["open"] == []


def test_the_page_has_the_table_of_the_record() -> None:
    """``python -m tests.audits.presets_tried OUT --record`` writes both."""
    rows = recorded()
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown == section(rows)
    names = [row["preset"] for row in rows]
    assert names == [preset for preset in PRESETS if preset in names]
    for row in rows:
        whole = row["rounds"] == row["shipped_rounds"]
        assert not whole or row["verdict"] == OUTCOMES[row["preset"]], row["preset"]
        for change in row["changes"]:
            assert change["outcome"] != REFUSED
            assert change["unforeseen"] == []
            assert change["outcome"] in ("pass", "leaks as documented") or change["reasons"]
