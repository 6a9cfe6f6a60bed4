"""The code blocks of a page, and how a reader would run them: one after the other, in one folder.

- ``sh``: commands, each expected to end with 0, or with N where a comment behind it says "exit
  code N".
- ``text`` below commands: what they print; "..." stands for anything, on a line of its own for any
  lines.
- ``python``: run in one namespace per page; ``toml``: a configuration, or a part of one;
  ``yaml``: a pipeline, whose commands are understood. One whose first line is a comment with a file
  name is that file, in a folder that is there.
- ``<!-- checked, not run: why -->`` above a block: its commands are understood, and that is all.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec  # noqa: TID251 - finds, imports nothing
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from audits import cli, command_line
from audits.config.audit import load_config
from audits.explain.schema import config_schema
from secure_fedrec import __version__

ROOT = Path(__file__).parents[1]
_MADE = re.compile(r"^<!-- generated: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^(`{3,})(.*)$")
_MARK = re.compile(r"^<!-- checked, not run: (.+) -->$")
_FILE = re.compile(r"^# ([\w./-]+\.\w+)$")
_EXIT = re.compile(r"#.*\bexit code (\d+)")
NOT_CODE = ("{toctree}", "{eval-rst}", "{literalinclude}")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code.

    Args:
        place: page and line, for messages.
        language: the word behind the fence, "" for none.
        code: its text.
        not_run: why it is not run; "" where it is.
    """

    place: str
    language: str
    code: str
    not_run: str = ""


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order, but for those of parts that are made from the code."""
    text = page.read_text(encoding="utf-8")
    lines = _MADE.sub(lambda part: "\n" * part[0].count("\n"), text).splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            at += 1
            continue
        end = next(n for n in range(at + 1, len(lines)) if lines[n].rstrip() == opened[1])
        above = next((line for line in reversed(lines[:at]) if line.strip()), "")
        mark = _MARK.match(above)
        yield Block(
            place=f"{page.relative_to(ROOT)}:{at + 1}",
            language=opened[2].split()[0] if opened[2] else "",
            code="\n".join(lines[at + 1 : end]) + "\n",
            not_run=mark[1] if mark else "",
        )
        at = end + 1


def commands_of(code: str) -> Iterator[tuple[str, int]]:
    """Commands of a block of the shell, and the exit code that each is to end with."""
    for line in code.replace("\\\n", " ").splitlines():
        expected = _EXIT.search(line)
        command = re.sub(r"\s+#.*$", "", f" {line}").strip()
        if command:
            yield command, int(expected[1]) if expected else 0


@dataclass(kw_only=True)
class Reader:
    """Somebody who works through a page.

    Args:
        folder: where, an empty folder.
        environment: of the commands that are started.
    """

    folder: Path
    environment: Mapping[str, str]
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str | None = None
    ran: int = 0

    def work_through(self, block: Block) -> None:
        """Do what a block says."""
        how = {
            "sh": self._shell,
            "bash": self._shell,
            "text": self._output,
            "python": self._python,
            "py": self._python,
            "toml": self._toml,
            "yaml": self._yaml,
        }
        assert block.language in how, f"{block.place}: nobody checks {block.language!r}"
        if block.not_run:
            understand(block)
            return
        with contextlib.chdir(self.folder):
            how[block.language](block)
        self.ran += 1

    def _shell(self, block: Block) -> None:
        self.printed = ""
        for command, expected in commands_of(block.code):
            ended, printed = self._run(command)
            self.printed += printed
            assert ended == expected, f"{block.place}: {command} ended with {ended}:\n{printed}"

    def _run(self, command: str) -> tuple[int, str]:
        """A command: ours in this process, since a start takes seconds; others in a shell."""
        words = shlex.split(command)
        plain = not set(words) & {"|", "&&", "||", ";"}
        if words[0] != "secure-fedrec" or not plain:
            done = subprocess.run(  # noqa: S603
                ["bash", "-euo", "pipefail", "-c", command],  # noqa: S607
                capture_output=True,
                text=True,
                check=False,
                env=dict(self.environment),
            )
            return done.returncode, done.stdout + done.stderr
        target = None
        if ">" in words:
            target = Path(words[words.index(">") + 1])
            words = words[: words.index(">")]
        out = io.StringIO()
        error = io.StringIO() if target is not None else out  # as a terminal shows them
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            try:
                code = cli.main(words[1:])
            except SystemExit as ended:
                code = int(ended.code or 0)
        if target is not None:
            target.write_text(out.getvalue(), encoding="utf-8")
            return code, error.getvalue()
        return code, out.getvalue()

    def _output(self, block: Block) -> None:
        assert self.printed is not None, f"{block.place}: the output of what?"
        # A bar draws over itself: a terminal shows what stands behind the last return of a line.
        said = "\n".join(line.rpartition("\r")[2].rstrip() for line in self.printed.split("\n"))
        assert matches(block.code, said), f"{block.place}: it printed\n{self.printed}"

    def _python(self, block: Block) -> None:
        if not self._is_file(block):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block.code, block.place, "exec"), self.names)  # noqa: S102
            self.printed = out.getvalue()

    def _toml(self, block: Block) -> None:
        raw = tomllib.loads(block.code)
        if self._is_file(block):
            load_config(Path(str(_named(block))))
        else:
            validator().validate(raw)

    def _yaml(self, block: Block) -> None:
        self._is_file(block)
        understand(block)

    def _is_file(self, block: Block) -> bool:
        name = _named(block)
        if name is None:
            return False
        path = Path(name)
        assert path.parent.is_dir(), f"{block.place}: no command of the page makes {path.parent}"
        path.write_text(block.code, encoding="utf-8")
        return True


def _named(block: Block) -> str | None:
    found = _FILE.match(block.code.partition("\n")[0])
    return found[1] if found else None


@cache
def validator() -> Any:
    """Of configurations, whole or in part."""
    return jsonschema.Draft7Validator(config_schema())


def matches(wanted: str, said: str) -> bool:
    """Whether output is as a page shows it; "..." stands for anything."""
    pattern = "".join(map(_pattern, wanted.splitlines()))
    return re.fullmatch(pattern, f"{said.rstrip()}\n") is not None


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    return re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"\n"


def understand(block: Block) -> None:
    """What a block that is not run says is there: options, values, targets, extras, files."""
    assert block.language in ("sh", "bash", "yaml"), block.place
    code = block.code
    if block.language == "yaml":
        code = "\n".join(_scripts(yaml.safe_load(code)))
    for command, _ in commands_of(code):
        words = shlex.split(command)
        if words[0] == "secure-fedrec":
            parsed = command_line.parse(words[1 : words.index(">") if ">" in words else None])
            config = getattr(parsed, "config", None)
            preset = ROOT / "audits" / "configs" / str(config)
            if preset.is_file():
                load_config(preset, dict(parsed.overrides))
        elif words[0] == "make":
            shown = subprocess.run(  # noqa: S603
                ["make", "-n", *words[1:]],  # noqa: S607
                cwd=ROOT,
                capture_output=True,
                check=False,
            )
            assert shown.returncode == 0, f"{block.place}: {command}"
        elif "pip" in words:
            require_installable(words, block.place)
        elif words[:2] == ["python", "-m"]:
            assert find_spec(words[2]), f"{block.place}: {command}"
        else:
            raise AssertionError(f"{block.place}: nobody checks {command}")


def _scripts(value: Any) -> Iterator[str]:
    """The command lines of a pipeline: under ``run`` of GitHub, under ``script`` of GitLab."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("run", "script", "before_script"):
                yield from [each] if isinstance(each, str) else each
            else:
                yield from _scripts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _scripts(each)


def require_installable(words: list[str], place: str) -> None:
    """A command of pip installs what there is: a checkout, this version's wheel, known extras.

    Raises:
        AssertionError: it does not; the package is on no index.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = f"secure_fedrec-{__version__}-py3-none-any.whl"
    for word in words:
        assert word != project["name"], f"{place}: {word} is on no index"
        if ".whl" in word:
            assert Path(word.partition("[")[0]).name == wheel, f"{place}: no wheel {word!r}"
    for extras in re.findall(r"\[([\w,-]+)\]", " ".join(words)):
        for extra in extras.split(","):
            assert extra in project["optional-dependencies"], f"{place}: no extra {extra!r}"


def environment(folder: Path) -> dict[str, str]:
    """An environment in which ``secure-fedrec`` and ``python`` are those of this checkout."""
    shims = folder / "bin"
    shims.mkdir()
    for name, words in (("secure-fedrec", "-m audits.cli"), ("python", "")):
        shim = shims / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        shim.chmod(0o755)
    path = f"{shims}{os.pathsep}{os.environ['PATH']}"
    plugin = "audits.pytest_plugin"  # as the installed package has it
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTEST_PLUGINS": plugin}
