"""``completion SHELL``: a script that lets a shell complete commands, options and names."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

from attacks import SUITE
from audits.command_line import parser
from audits.presets import PRESETS
from audits.reproduction.papers import entries


def completion(arguments: argparse.Namespace) -> int:
    """Print the script; the help of the command says where shells look for it."""
    whole = parser.__wrapped__()  # a parser of its own, as ``parser`` is shared
    names = {"PRESET": PRESETS, "PAPER": entries(), "--attack": SUITE}
    for action in _actions(whole):
        known = [names[key] for key in (action.metavar, *action.option_strings) if key in names]
        if action.choices is None and known:
            action.choices = [*known[0]]
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it
    print(shtab.complete(whole, shell=arguments.shell), end="")
    return 0


def _actions(within: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a command and of those below it."""
    for action in within._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
