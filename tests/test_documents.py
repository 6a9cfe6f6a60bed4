"""What the documents say is what the code does."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import attacks.testing
import secure_fedrec.testing
from attacks import SUITE
from audits.cli import main
from audits.command_line import parse
from audits.config.audit import load_config
from audits.reproduction.papers import paper_names
from secure_fedrec.protection import BAG_STACKS, STACKS
from tests.claims import claims

ROOT = Path(__file__).parents[1]
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
REPRODUCTIONS = (
    "reproduction.md",
    "reproduction-fed3cr.md",
    "reproduction-feddmf.md",
    "reproduction-fedrecpp.md",
)
REPRODUCTION = "\n".join(
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in REPRODUCTIONS
)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_claim_is_held_by_tests() -> None:
    assert len(claims()) >= 130
    assert [name for name, claim in claims().items() if not claim.tests] == []


def test_every_stack_is_in_the_security_table() -> None:
    for layers in STACKS:
        if layers == ("denoisers",):
            continue  # the twin of FedRec++ at rho = 0, not a protection of its own
        name = " + ".join(layers) if layers else "none"
        assert re.search(rf"^\| {re.escape(name)}[ (|]", SECURITY, re.MULTILINE), name


def test_lossless_claims_agree() -> None:
    for layers, claim in STACKS.items():
        if layers in {(), ("denoisers",)}:
            continue
        name = re.escape(" + ".join(layers))
        row = re.search(rf"^\| {name}[ (|].*$", SECURITY, re.MULTILINE)
        assert row is not None
        held = "relative to what it reports" if claim.drops_reports else "yes"
        assert f"| {held if claim.lossless else 'no'} |" in row.group()


def test_every_stack_over_bags_is_in_the_security_table() -> None:
    for layers, claim in BAG_STACKS.items():
        name = " + ".join(layers) if layers else "none"
        row = re.search(rf"^\| bags: {re.escape(name)}[ (|].*$", SECURITY, re.MULTILINE)
        assert row is not None, name
        assert f"| {'yes' if claim.lossless else 'no'} |" in row.group()


def test_attacks_named_in_documents_exist() -> None:
    named = re.findall(r"`([a-z]+-[a-z]+|lattice|intersection)`", SECURITY)
    unknown = set(named) - set(SUITE)
    assert not unknown


def test_commands_of_the_readme_exist(capsys: pytest.CaptureFixture[str]) -> None:
    commands = set(re.findall(r"(?:^|`)secure-fedrec ([a-z]+)", README, re.MULTILINE))
    assert commands == {
        *("audit", "train", "attack", "check", "plan", "report", "compare"),
        *("reproduce", "data", "init", "explain", "deploy", "gather", "roster", "site"),
        *("plugins", "completion"),
    }
    for command in sorted(commands):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out


def page_commands() -> list[list[str]]:
    """Every command of the page of reproductions, in words."""
    lines = re.findall(r"^```sh\n(.*?)^```", REPRODUCTION, re.MULTILINE | re.DOTALL)
    return [
        shlex.split(line)[1:]
        for block in lines
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("secure-fedrec")
    ]


def test_the_page_of_reproductions_names_its_commands() -> None:
    assert len(page_commands()) >= 8
    assert {words[0] for words in page_commands()} == {"reproduce", "audit"}
    reproduced = {words[1] for words in page_commands() if words[0] == "reproduce"}
    assert reproduced == set(paper_names())


@pytest.mark.parametrize("words", page_commands(), ids=" ".join)
def test_commands_of_the_page_of_reproductions_are_understood(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options, values and presets are real; there is no study to show, and nothing is run."""
    if words[0] == "audit":
        parsed = parse(words)
        load_config(ROOT / "audits" / "configs" / parsed.config, dict(parsed.overrides))
        return
    assert main([*words, "--no-run", "--out", str(tmp_path), "--quiet"]) == 2
    assert "holds no study of" in capsys.readouterr().err


def test_presets_of_the_readme_exist() -> None:
    presets = {path.stem for path in (ROOT / "audits" / "configs").glob("*.toml")}
    named = set(re.findall(r"^\| `([\w-]+)` \|", README, re.MULTILINE))
    assert named == presets


def test_the_contract_of_the_page_is_kept() -> None:
    """Every test of the class that the page shows."""
    page = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102  the page's own
    mine = names["TestMine"]()
    tests = [name for name in dir(mine) if name.startswith("test_")]
    assert len(tests) >= 5
    for name in tests:
        getattr(mine, name)()
    for contract in re.findall(r"`((?:secure_fedrec|attacks)\.testing)\.(\w+)`", page):
        home = attacks.testing if contract[0].startswith("attacks") else secure_fedrec.testing
        assert hasattr(home, contract[1])
