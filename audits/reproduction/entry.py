"""What a paper's package says of itself, so that ``reproduce`` finds it: its ``ENTRY``."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from audits.reproduction.files import paper_names

Run: TypeAlias = Callable[[argparse.Namespace], tuple[dict[str, Any], list[str]]]
"""Runs what is missing and draws: the result as JSON values, and as lines of text."""


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


DATA: Final = Option("data", "only this data set; repeatable")
METHOD: Final = Option("method", "only this method; repeatable")
FIGURE: Final = Option("figure", "only this figure; may be repeated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A paper.

    Args:
        seeds: what ``--seeds`` is by default, in words.
        options: beside those that all papers have.
        arrays: of a study, those that its tables are made from; None for all. What else a study
            holds, such as a trained state, is left out of the records of the repository.
    """

    seeds: str
    options: tuple[Option, ...] = ()
    arrays: tuple[str, ...] | None = None


def run_of(name: str) -> Run:
    """What reproduces a paper, ``reproduce_NAME`` of its ``command``.

    It is imported where it is wanted, as studies compile their loops and import torch.
    """
    command = import_module(f"audits.reproduction.{name}.command")
    return cast(Run, getattr(command, f"reproduce_{name}"))


def entries() -> Mapping[str, Entry]:
    """All papers by name: those with a file of numbers and a package of the same name."""
    packages = {name: import_module(f"audits.reproduction.{name}") for name in paper_names()}
    return MappingProxyType({name: package.ENTRY for name, package in packages.items()})
