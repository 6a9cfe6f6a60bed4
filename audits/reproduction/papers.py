"""Papers that are reproduced: the file of each, and what the command knows from it."""

import argparse
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Settings

Run: TypeAlias = Callable[[argparse.Namespace], tuple[dict[str, Any], list[str]]]
"""Runs what is missing and draws: the result as JSON values, and as lines of text."""

_PAPERS: Final = Path(__file__).parent.parent / "papers"
_HEAD: Final = "reproduce"


class Option(NamedTuple):
    """An option that not all papers have; several may share it.

    Attributes:
        name: without dashes.
        help: what it does, alike in all papers that have it.
        flag: whether it takes no value; else it takes a word, and may be repeated.
        once: whether it may not be repeated.
        apart: whether what is run with it is written beside what is run without.
    """

    name: str
    help: str
    flag: bool = False
    once: bool = False
    apart: bool = False


OPTIONS: Final = (
    Option("figure", "only this figure; may be repeated"),
    Option("protocol", "of the evaluation: clean or published; may be repeated (default: both)"),
    Option("data", "only this data set; repeatable"),
    Option("method", "only this method; repeatable"),
    Option("task", "only this task; may be repeated"),
    Option(
        "start",
        "of training: xavier (the paper's) or identity (its code's); may be repeated "
        "(default: both)",
    ),
    Option("form", "of the user model: paper (default) or published", once=True),
    Option(
        "variants",
        "in place of the tables, choices that they do not vary, on one seed",
        flag=True,
        apart=True,
    ),
)
"""All options that not all papers have."""


class Entry(Settings, section=_HEAD):
    """What the command knows of a paper: the table ``[reproduce]`` of its file.

    Args:
        seeds: what ``--seeds`` is by default, in words.
        options: names of ``OPTIONS`` that it has.
        arrays: of a study, those that its tables are made from; None for all. What else a study
            holds, such as a trained state, is left out of the records of the repository.
    """

    seeds: str
    options: tuple[str, ...] = ()
    arrays: tuple[str, ...] | None = None


def paper_names() -> list[str]:
    """Papers that are reproduced, in order."""
    return sorted(path.stem for path in _PAPERS.glob("*.toml"))


def read_paper(name: str) -> dict[str, Any]:
    """What the file of a paper has of its numbers and settings.

    Raises:
        ConfigError: there is no such paper, or its file is not TOML.
    """
    raw = _read(name)
    del raw[_HEAD]
    return raw


def run_of(name: str) -> Run:
    """What reproduces a paper, the ``reproduce`` of its module or package.

    It is imported where it is wanted, as studies compile their loops and import torch.
    """
    return cast(Run, import_module(f"audits.reproduction.{name}").reproduce)


@cache
def entries() -> Mapping[str, Entry]:
    """All papers by name."""
    heads = {name: _read(name)[_HEAD] for name in paper_names()}
    return MappingProxyType({name: Entry(**head) for name, head in heads.items()})


def _read(name: str) -> dict[str, Any]:
    known = paper_names()
    if name not in known:
        raise ConfigError("paper", name, "cannot be reproduced", known)
    try:
        return tomllib.loads((_PAPERS / f"{name}.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as damage:
        raise ConfigError("paper", name, f"its file is not TOML ({damage})") from damage
