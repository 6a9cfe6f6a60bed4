"""The command line: results on stdout, progress and errors on stderr.

Exit codes: 0 pass, 1 a gate fell, 2 bad configuration, data or usage, or nowhere to write, 3
inconclusive, 4 internal error, 130 interrupted. This module reads arguments and maps errors to
codes; ``cli`` is the entry point. A command's code is imported only when that command is run, so
that the help, and commands without attacks, start at once.
"""

import argparse
import contextlib
import errno
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from audits.deploy.options import add_gather, add_hosts, add_roster, add_site
from audits.exit_codes import EXIT_CODES
from audits.options import acceptable, add_policy
from audits.presets import PRESETS
from audits.reproduce import add_reproduce
from audits.run.folder import CONFIG_NAME
from secure_fedrec import __version__
from secure_fedrec.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    EncodingError,
    HostError,
    MissingExtraError,
    TranscriptError,
)

EXIT_USAGE = 2

_RUNS, _PIPELINE = "audits.commands:", "audits.pipeline:"
"""Modules of the commands, imported when a command runs."""

_SURROUNDINGS = frozenset(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "EACCES", "EPERM", "ENAMETOOLONG"),
        *("ENOTDIR", "EISDIR", "ELOOP", "EMFILE", "ENFILE", "EEXIST", "ENOENT", "EPIPE"),
    )
    if hasattr(errno, name)
)
"""Errors of the machine that its user can fix: a full disk, no permission, a closed pipe."""

_MENDABLE = (
    CheckpointError,
    ConfigError,
    DataError,
    EncodingError,  # a training that left the ring; its message names the settings
    HostError,
    MissingExtraError,
    TranscriptError,
)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read a command line.

    Raises:
        SystemExit: it is wrong (exit code 2), or asks for help (0).
    """
    parsed = parser().parse_args(list(words))
    parsed.command_line = ["secure-fedrec", *words]
    return parsed


def load(parsed: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    """Import the function that runs a command read by ``parse``."""
    module, _, name = parsed.run.partition(":")
    return cast(Callable[[argparse.Namespace], int], getattr(import_module(module), name))


def run(parsed: argparse.Namespace) -> int:
    """Run a command that was read by ``parse``, and return its exit code."""
    from audits.owners import require_own_packages  # noqa: PLC0415 - no help waits for it

    refuse = partial(_refuse, parsed)
    try:
        command = load(parsed)
        require_own_packages()
        code = command(parsed)
        sys.stdout.flush()
        return code
    except _MENDABLE as refused:
        return refuse(str(refused), *getattr(refused, "__notes__", ()))
    except MemoryError as full:
        return refuse(f"there is too little memory for this ({full or 'none is left'})")
    except OSError as failure:
        if failure.errno not in _SURROUNDINGS:
            raise
        _drop_output()
        return refuse(f"{failure.filename or 'standard output'}: {failure.strerror}")


def interrupted(parsed: argparse.Namespace, said: str) -> str:
    """The message for an interrupted command, and how to continue it, if possible."""
    out = getattr(parsed, "out", None)
    begun = hasattr(parsed, "resume") and out is not None and (out / CONFIG_NAME).exists()
    return _spoken(f"{said}; continue with --resume" if begun else said, parsed)


def _spoken(line: str, parsed: argparse.Namespace) -> str:
    """A line in the format of the command's log."""
    if getattr(parsed, "log_format", "text") == "text":
        return line
    from audits.deploy.logs import spoken  # noqa: PLC0415 - no help waits for it

    return spoken(line)


def _refuse(parsed: argparse.Namespace, problem: str, *notes: str) -> int:
    # A key or a path may hold line ends, a message is one line.
    with contextlib.suppress(OSError):  # stderr may be closed
        for line in (f"secure-fedrec: {problem}", *notes):
            print(_spoken(" ".join(line.split()), parsed), file=sys.stderr)
    return EXIT_USAGE


def _drop_output() -> None:
    """Keep the interpreter from retrying output that could not be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@cache
def parser() -> argparse.ArgumentParser:
    """All commands with their options; one and the same object every time."""
    whole = argparse.ArgumentParser(
        prog="secure-fedrec",
        description="Audit what a federated recommender really leaks.",
        epilog="Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()),
    )
    whole.add_argument("--version", action="version", version=__version__)
    words = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_runs(words)
    _add_plan(words)
    _add_pipeline(words)
    _add_looks(words)
    return whole


def _add_runs(words: Any) -> None:
    """Commands that train or attack."""
    what = "train, record, attack, judge, write a report"
    audit = _command(words, "audit", _RUNS + "audit", what)
    _config_argument(audit, default="the embedded quickstart on synthetic data")
    audit.add_argument("--out", type=Path, default=Path("audit-out"), help="run folder")
    audit.add_argument(
        "--dry-run",
        action="store_true",
        help="estimate time, memory, disk and what the gates can decide; tries some rounds, and "
        "keeps no run",
    )
    add_policy(audit)
    _run_options(audit)

    train = _command(words, "train", _RUNS + "train", "train only; metrics as JSON lines")
    _config_argument(train)
    train.add_argument("--out", type=Path, help="run folder; without one nothing is kept")
    _run_options(train)

    about = "train on Flower, with every host as a process on this machine"
    deployed = _command(words, "deploy", "audits.deploy.command:deploy", about)
    deployed.set_defaults(serves=True)  # this process is the server
    _config_argument(deployed)
    deployed.add_argument(
        "--out", type=Path, default=Path("deploy-out"), help="folder of all hosts"
    )
    _run_options(deployed)
    add_hosts(deployed)
    about = "make a run for audit and attack from what hosts recorded"
    gathered = _command(words, "gather", "audits.deploy.gather:gather", about)
    add_gather(gathered)
    _data_options(gathered)
    about = "manage keys of parties, and the list that an operator signs"
    add_roster(_command(words, "roster", "audits.deploy.roster:roster", about))
    about = "show what a site has spent, and whether it takes part"
    add_site(_command(words, "site", "audits.deploy.site_command:site", about))

    attack = _command(words, "attack", _RUNS + "attack", "run the suite on a recorded transcript")
    attack.add_argument(
        "transcript",
        type=Path,
        metavar="TRANSCRIPT",
        help="DIR/transcript of a run, or the folder of a recording made elsewhere",
    )
    attack.add_argument(
        "--truth",
        type=Path,
        metavar="FILE",
        help="for a recording made elsewhere: the file with the truth",
    )
    asked = "for such a recording: adversaries, attacks, gates and waivers to judge it by (TOML)"
    attack.add_argument("--gates", type=Path, metavar="CONFIG", help=asked)
    attack.add_argument(
        "--out", type=Path, metavar="DIR", help="for such a recording: where to write its report"
    )
    attack.add_argument("--attack", action="append", metavar="NAME", help="only these attacks")
    attack.add_argument(
        "--adversary",
        action="append",
        metavar="PARTY[+PARTY]",
        help="e.g. server+denoisers; default: those of the run's configuration",
    )
    _output_options(attack)

    about = "check every file and column of a recording; or convert it to Parquet"
    recorded = _command(words, "transcript", "audits.recorded_command:transcript", about)
    recorded.add_argument("action", choices=("validate", "convert"))
    recorded.add_argument("transcript", type=Path, metavar="TRANSCRIPT")
    recorded.add_argument(
        "converted",
        type=Path,
        nargs="?",
        metavar="OUT",
        help="for convert: a new folder for the Parquet form, or for the transcript made from it",
    )
    recorded.add_argument("--truth", type=Path, metavar="FILE", help="check this file as well")
    recorded.add_argument("--json", action="store_true", help="machine-readable result on stdout")

    check = _command(words, "check", _RUNS + "check", "check that a configuration is lossless")
    _config_argument(check, default="the embedded quickstart")
    check.add_argument("--rounds", type=int, default=10, help="rounds to compare (default 10)")
    _override_option(check)
    _data_options(check)
    _output_options(check)


def _add_plan(words: Any) -> None:
    """The command that plans a deployment; its options are the fields of ``Deployment``."""
    about = "parameters and costs of a deployment"
    plan = _command(words, "plan", "audits.plan_command:plan", about)
    numbers: tuple[tuple[str, type, str], ...] = (
        ("cohort", int, "clients of a round (default: all)"),
        ("dropout", float, "largest fraction of dropouts that a round survives (default 0.1)"),
        ("corrupt", float, "largest fraction of corrupt clients (default 0.1)"),
        ("dim", int, "ring words of a client's vector (default 100000)"),
        ("bits", int, "ring width (default 32)"),
        ("min-honest", int, "fewest honest clients behind a sum (default 2)"),
        ("tail-floor", int, "fewest clients behind a summed row; curious server only"),
        ("privacy-bits", int, "privacy fails with probability 2^-BITS at most (default 40)"),
        ("correctness-bits", int, "a round fails with probability 2^-BITS at most (default 20)"),
        ("noise-multiplier", float, "noise of one round, in clips (default 1)"),
        (
            "epsilon-per-round",
            float,
            "epsilon budget against the server from which the noise is computed",
        ),
        ("delta", float, "delta of every epsilon (default 1e-5)"),
        ("clip", float, "L2 clip of a contribution; the noise is then Skellam, in the ring"),
        ("fraction-bits", int, "binary digits of a clipped contribution (default 12)"),
    )
    # What is left out keeps the default of ``Deployment``.
    add, absent = plan.add_argument, argparse.SUPPRESS
    add("--clients", type=int, required=True, metavar="N", help="clients in all")
    for name, kind, text in numbers:
        letter = "N" if kind is int else "X"
        add(f"--{name}", type=kind, default=absent, metavar=letter, help=text)
    add("--adversary", default=absent, help="curious, active or both (default both): the server")
    add("--key-agreement", default=absent, metavar="KEM", help="x25519 or x25519+mlkem768")
    without = "no public randomness is available that the server does not choose"
    add("--no-beacon", action="store_false", dest="beacon", help=without)
    add("--json", action="store_true", help="machine-readable result on stdout")


def _add_pipeline(words: Any) -> None:
    """Commands on runs that are over."""
    about = "write the report of a run in further formats"
    written = _command(words, "report", _PIPELINE + "report", about)
    written.add_argument("result", type=Path, metavar="RESULT", help=_RESULT)
    written.add_argument("--out", type=Path, help="folder to write to (default: beside RESULT)")
    tried = "make each change that the report advises, and audit the result; writes no file"
    written.add_argument("--try-remedies", action="store_true", help=tried)
    add_policy(written)
    _data_options(written)
    _output_options(written)

    about = "find what got worse between two runs beyond noise"
    compared = _command(words, "compare", _PIPELINE + "compare", about)
    several = f"{_RESULT}; or a folder of run folders, one per seed"
    compared.add_argument("before", type=Path, metavar="A", help=several)
    compared.add_argument(
        "after", type=Path, metavar="B", help="the later runs, with the same seeds"
    )
    compared.add_argument(
        "--tolerance",
        type=float,
        default=math.inf,
        metavar="X",
        help="inconclusive if a figure may have got worse by more than this (default: unlimited)",
    )
    compared.add_argument(
        "--accept",
        action="append",
        default=[],
        type=acceptable,
        metavar="WHAT",
        help="lossless, or attack:NAME: accept that sums are no longer exact, or that this attack "
        "no longer applies",
    )
    compared.add_argument("--all", action="store_true", help="list unchanged figures as well")
    compared.add_argument("--json", action="store_true", help="machine-readable result on stdout")


_RESULT = "a run folder, or its report.json"


def _add_looks(words: Any) -> None:
    """Commands that show or prepare something."""
    sets = _command(words, "data", "audits.data_command:data", "list, fetch or describe data sets")
    add = sets.add_argument
    add("action", choices=("list", "get", "describe"))
    add("name", nargs="?", help="data set; for describe, also a file of your own")
    add("--write", type=Path, metavar="CONFIG", help="write a configuration that fits the file")
    add("--plot", type=Path, metavar="FILE", help="draw popularity and activity, as .svg or .png")
    add("--force", action="store_true", help="overwrite existing files")
    _override_option(sets, "set how a file is read, by any key of [data], e.g. data.user=reader")
    _data_options(sets)
    _output_options(sets)

    init = _command(words, "init", "audits.presets:init", "write a commented configuration")
    init.add_argument("preset", nargs="?", metavar="PRESET", help="one of: " + ", ".join(PRESETS))
    init.add_argument("--out", type=Path, help="file to write; default: standard output")
    init.add_argument("--force", action="store_true", help="overwrite an existing file")

    what = "explain an attack, figure, layer or key"
    told = _command(words, "explain", "audits.explain.command:explain", what)
    told.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="attack, figure, layer, or key of a configuration such as protection.rho or "
        "protection; config.json or report.json for its JSON Schema; without a name, lists all "
        "attacks",
    )
    _output_options(told)

    about = (
        "list plug-ins that are installed, or that a configuration names, without importing them"
    )
    plugged = _command(words, "plugins", "audits.plugins_command:plugins", about)
    plugged.add_argument(
        "config", nargs="?", type=Path, metavar="CONFIG", help="TOML file, or config.json of a run"
    )
    plugged.add_argument("--json", action="store_true", help="machine-readable result on stdout")

    about = "print a script that lets a shell complete commands and names"
    completed = _command(words, "completion", "audits.completion:completion", about)
    completed.add_argument("shell", choices=("bash", "zsh", "tcsh", "fish"))
    completed.epilog = 'bash: put eval "$(secure-fedrec completion bash)" into ~/.bashrc'

    paper = "print a paper's tables, its numbers beside ours"
    again = _command(words, "reproduce", "audits.reproduce:reproduce", paper)
    add_reproduce(again)
    _data_options(again)
    _output_options(again)


def _command(words: Any, name: str, run: str, text: str) -> argparse.ArgumentParser:
    """A command, and its function as "module:function"."""
    command: argparse.ArgumentParser = words.add_parser(name, help=text, description=text)
    command.set_defaults(run=run)
    return command


def _config_argument(command: argparse.ArgumentParser, default: str = "") -> None:
    nargs, text = ("?", f"TOML file; default: {default}") if default else (None, "TOML file")
    command.add_argument("config", nargs=nargs, type=Path, metavar="CONFIG", help=text)


def _run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--resume", action="store_true", help="continue the run in --out")
    _override_option(command)
    _data_options(command)
    _output_options(command)


def _override_option(
    command: argparse.ArgumentParser, about: str = "override a setting, e.g. protection.rho=2"
) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        type=_override,
        help=about,
    )


def _data_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data-dir",
        type=Path,
        help="folder of the data sets (default: $SECURE_FEDREC_DATA, else the download cache)",
    )


def _output_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    command.add_argument("--quiet", action="store_true", help="no progress bars")


def _override(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    with contextlib.suppress(json.JSONDecodeError):
        return key, json.loads(value)
    if value.startswith("{"):  # TOML inline table
        import tomllib  # noqa: PLC0415

        with contextlib.suppress(tomllib.TOMLDecodeError):
            return key, tomllib.loads(f"value = {value}")["value"]
    return key, value
