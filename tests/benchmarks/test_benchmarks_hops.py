"""A maintainer can follow a round: how often it leaves a file for another, and over how many."""

import json
import sys

import pytest

from benchmarks import hops

HOPS, FILES = 6_500, 45


@pytest.mark.parametrize("words", [[], ["--curious"]], ids=["active", "curious"])
def test_a_deployed_masked_round_can_be_followed(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hops", "--json", *words])
    hops.main()
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"hops", "files", "pairs"}
    assert found["hops"] == sum(times for _, _, times in found["pairs"])
    assert found["hops"] <= HOPS
    assert found["files"] <= FILES


def test_the_count_is_the_same_every_time() -> None:
    assert hops.counted() == hops.counted()
