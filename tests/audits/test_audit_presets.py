"""Every shipped configuration, end to end on generated data, with the outcome that README states.

``OUTCOMES`` is the one list of what the presets end with; README's table is compared with it, and a
preset without an entry fails. A preset on real data runs on a small stand-in (``stand_ins``).
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from attacks.suite import SUITE
from audits.config.audit import load_config
from audits.gates.verdict import UNSOLVED
from audits.presets import PRESETS
from audits.report.endings import leaks
from tests.audits.preset_columns import README, expected, nobody_tries, rows
from tests.audits.stand_ins import STAND_INS

pytestmark = pytest.mark.claim("reach-is-a-leak")

Command = Callable[..., tuple[int, str, str]]

PASS, LEAK, FAIL, OPEN = "pass", "leaks as documented", "fail", "inconclusive"
OUTCOMES: Mapping[str, str] = {
    "quickstart": LEAK,
    "plain": LEAK,
    "fedrec-ml100k": FAIL,
    "fedrecpp-ml100k": FAIL,
    "fedrecpp-collusion-ml100k": FAIL,
    "sdcf-ml100k": FAIL,
    "fedrecpp-sticky-ml100k": FAIL,
    "shared-upload-ml100k": FAIL,
    "masking-ml100k": FAIL,
    "paillier-ml100k": FAIL,
    "skellam-ml100k": PASS,
    "furl-quickstart": LEAK,
    "furl-20newsgroups": LEAK,
    "furl-20newsgroups-masking": OPEN,
    "furl-ncf-ml100k": LEAK,
    "furl-ncf-ml100k-masking": OPEN,
    "pfedrec-ml100k": OPEN,
    "pfedrec-ml100k-masking": OPEN,
    "fed3cr-ml100k": LEAK,
    "ease-ml100k": FAIL,
    "ease-ml100k-masking": FAIL,
    "ease-ml100k-skellam": PASS,
    "feddmf-ml100k": LEAK,
    "hpfl-quickstart": LEAK,
    "hpfl-ml100k": LEAK,
    "hpfl-ml100k-protected": OPEN,
}
"""Outcome by preset, in the order of README's table."""

WORDS = {PASS: "passes", LEAK: LEAK, FAIL: "fails", OPEN: "inconclusive"}
"""How README's table begins to say an outcome."""
CODES = {PASS: 0, LEAK: 0, FAIL: 1, OPEN: 3}


def test_every_preset_has_its_outcome() -> None:
    assert sorted(OUTCOMES) == sorted(PRESETS)


def test_the_readme_states_the_outcomes() -> None:
    table = rows(README.read_text(encoding="utf-8"))
    assert list(table) == list(OUTCOMES)
    for name, (_, stated, *_) in table.items():
        assert re.match(rf"{WORDS[OUTCOMES[name]]}\b", stated), name


def test_the_readme_states_what_is_documented_and_what_was_not_tried() -> None:
    """``python -m tests.audits.preset_columns`` writes these columns."""
    readme = README.read_text(encoding="utf-8")
    assert {name: cells[2:] for name, cells in rows(readme).items()} == expected()
    assert nobody_tries() in readme


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_ends_as_stated(preset: str, command: Command, tmp_path: Path) -> None:
    config, out = tmp_path / "preset.toml", tmp_path / "run"
    assert command("init", preset, "--out", config)[0] == 0
    changes = [f"{key}={json.dumps(value)}" for key, value in STAND_INS.get(preset, {}).items()]
    words = [word for change in changes for word in ("--set", change)]
    code, printed, err = command("audit", config, "--out", out, "--quiet", "--json", *words)
    assert code in {0, 1, 3}, err
    report = json.loads(printed)
    gates = [f"{gate['outcome']}: {gate['name']} ({gate['reason']})" for gate in report["gates"]]
    verdict, expected = report["verdict"], OUTCOMES[preset]
    assert (verdict["outcome"], code) == (expected, CODES[expected]), "\n".join(gates)
    broken = [one for one in report["findings"] if one["claimed"] and leaks(one)]
    assert broken == []  # a layer is not said to withstand what is found
    run = {one["attack"] for one in report["findings"] if one["status"] == "measured"}
    assert run <= {*load_config(config).audited.attacks}
    if expected == OPEN:  # for nothing but what nobody has read, and sums that nobody can bound
        known = ("no attack has read: ", UNSOLVED)
        assert all(any(each in why for each in known) for why in verdict["reasons"])
    hidden = preset.endswith(("-masking", "-protected")) and expected != FAIL
    if hidden or expected == PASS:  # nor does what no gate asks for leak
        bounded = {name for name in SUITE if SUITE[name].control.breaks == "presence"}
        told = {one["attack"]: one["severity"] for one in report["findings"]}
        told |= dict.fromkeys(bounded & told.keys())  # by epsilon, and by the gate on it
        assert set(told.values()) <= {None, "info"}, told
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"<title>{expected.upper()}: " in page
