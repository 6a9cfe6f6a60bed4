"""Papers that are reproduced: the file of each, and what the command knows from it."""

import argparse
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias, cast

from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import OneOf, Settings

Run: TypeAlias = Callable[[argparse.Namespace], tuple[dict[str, Any], list[str]]]
"""Runs what is missing and draws; returns the result as JSON values and as lines of text."""

_PAPERS: Final = Path(__file__).parent.parent / "papers"
_HEAD: Final = "reproduce"


_REPEATED: Final = {"action": "append", "metavar": "NAME"}
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "figure": {**_REPEATED, "help": "only this figure; may be repeated"},
        "protocol": {
            **_REPEATED,
            "help": "of the evaluation: clean or published; may be repeated (default: both)",
        },
        "data": {**_REPEATED, "help": "only this data set; repeatable"},
        "method": {**_REPEATED, "help": "only this method; repeatable"},
        "task": {**_REPEATED, "help": "only this task; may be repeated"},
        "start": {
            **_REPEATED,
            "help": "of training: xavier (the paper's) or identity (its code's); may be repeated "
            "(default: both)",
        },
        "form": {"help": "of the user model: paper (default) or published"},
        "variants": {
            "action": "store_true",
            "help": "in place of the tables, choices that they do not vary, on one seed",
        },
    }
)
"""Options that not all papers have, as ``argparse`` takes them; several may share one."""

APART: Final = ("variants",)
"""Options whose result is written in addition to the default result."""


class Entry(Settings, section=_HEAD):
    """What the command knows of a paper: the table ``[reproduce]`` of its file.

    Args:
        seeds: what ``--seeds`` is by default, in words.
        options: names of ``OPTIONS`` that it has.
        arrays: of a study, those that its tables are made from; None for all. What else a study
            holds, such as a trained state, is left out of the records of the repository.
    """

    seeds: str
    options: tuple[Annotated[str, OneOf(OPTIONS)], ...] = ()
    arrays: tuple[str, ...] | None = None


def paper_names() -> list[str]:
    """Papers that are reproduced, in order."""
    return sorted(path.stem for path in _PAPERS.glob("*.toml"))


def read_paper(name: str) -> dict[str, Any]:
    """The numbers and settings in the file of a paper.

    Raises:
        ConfigError: there is no such paper, or its file is not TOML.
    """
    raw = _read(name)
    del raw[_HEAD]
    return raw


def run_of(name: str) -> Run:
    """The function that reproduces a paper, ``reproduce`` of its module or package.

    It is imported when needed, since studies compile their loops and import torch.
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
