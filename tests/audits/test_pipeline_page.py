"""The page on pipelines says what happens, and the examples are workflows that their hosts take."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from audits import command_line
from audits.report import WRITERS
from tests.page_blocks import require_installable

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pipeline.md"
EXAMPLES = {
    "github.yml": ("--builtin-schema", "vendor.github-workflows"),
    "gitlab.yml": ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"),
}
Command = Callable[..., tuple[int, str, str]]


def blocks() -> list[tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_every_block_of_the_page_runs(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other in one folder: files are written, commands end as they say."""
    monkeypatch.chdir(tmp_path)
    printed, ran = "", 0
    for language, code in blocks():
        if language == "toml":
            path = tmp_path / code.split("\n")[0].removeprefix("# ")
            path.write_text(code, encoding="utf-8")
        elif language == "sh":
            for line in code.strip().split("\n"):
                words = shlex.split(line, comments=True)
                if words[0] == "mkdir":
                    (tmp_path / words[-1]).mkdir(exist_ok="-p" in words)
                    continue
                told = re.search(r"# exit code (\d)", line)
                code_, printed, err = command(*words[1:])
                assert (words[0], code_) == ("secure-fedrec", int(told[1]) if told else 0), err
                ran += 1
        else:
            assert language == "text"
            wanted = ".*".join(re.escape(part) for part in code.strip().split("..."))
            assert re.fullmatch(wanted, printed.strip(), re.DOTALL), printed
    assert ran >= 8


def checked(name: str, text: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The verdict of a schema that the linter ships; it has no way to the network."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "check_jsonschema", *EXAMPLES[name], str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **nowhere},
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_workflow(name: str, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "ci" / name).read_text(encoding="utf-8")
    found = checked(name, text, tmp_path)
    assert found.returncode == 0, found.stdout
    wrong = text.replace("    timeout", "    timeuot", 1).replace("  timeout", "  timeuot", 1)
    wrong = wrong.replace("artifacts:", "artefacts:").replace("runs-on", "run-on")
    assert checked(name, wrong.replace("when: always", "when: ever"), tmp_path).returncode == 1


def scalars(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from scalars(each)
    else:
        yield str(value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_calls_commands_that_there_are_and_keeps_reports_alone(name: str) -> None:
    content = YAML(typ="safe").load((ROOT / "examples" / "ci" / name).read_text(encoding="utf-8"))
    texts = list(scalars(content))
    commands = [text for text in texts if text.startswith("secure-fedrec ")]
    assert len(commands) == 1
    [install] = [text for text in texts if text.startswith("pip ")]
    require_installable(install.split(), name)
    parsed = command_line.parse(shlex.split(commands[0])[1:])
    files = {f"run/{WRITERS[each].file}" for each in parsed.formats}
    named = {text for text in texts if re.fullmatch(r"run/[\w.*]*", text)}
    assert named <= files | {"run/report.*"}
    assert len(named) >= 2
    assert not [text for text in texts if "transcript" in text or "truth" in text]
