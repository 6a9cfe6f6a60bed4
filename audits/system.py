"""An audit's interface to an algorithm: its settings, data, claims, and texts for reports.

A ``System`` is one algorithm as audits see it. It names the data sets that it learns from, each
with the classes of its settings; it loads one; and what it loads hands out ``Task``s: the data of
one fold, with the algorithm that learns from it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.engines import Problem
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.evaluation import Rule
from secure_fedrec.protection import Claim
from secure_fedrec.protection.bags import BagShape

Secrets = Mapping[str, Mapping[str, npt.NDArray[Any]]]
"""Columns that only the truth holds, by file and name: see ``audits.run.truth``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nouns:
    """A report's nouns, in the plural.

    Args:
        clients: parties of the federation.
        items: the objects that examples are about.
        examples: the records that clients learn from.
    """

    clients: str = "clients"
    items: str = "items"
    examples: str = "ratings"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """The data of a run as a report states them.

    Args:
        name: name of the data set.
        fingerprint: fingerprint of the whole data set.
        clients, items, examples: how many there are.
        train: examples that clients train on.
        test: examples that the utility is measured on.
        nouns: what they are called.
        baselines: what trivial rules reach on the same test examples, by name.
        warning: why figures of utility do not show what a model has learnt, as measured; None where
            nothing was found.
    """

    name: str
    fingerprint: str
    clients: int
    items: int
    examples: int
    train: int
    test: int
    nouns: Nouns = field(default_factory=Nouns)
    baselines: Mapping[str, Rule] = field(default_factory=dict)
    warning: str | None = None


class Fresh(NamedTuple):
    """The objects that one run needs for itself only.

    Attributes:
        algorithm: the algorithm to train.
        problem: its data, in vaults of its own, and how it is judged.
        bags: sizes of the bags that it gives to, by name.
    """

    algorithm: Algorithm
    problem: Problem
    bags: Mapping[str, BagShape] = MappingProxyType({})


class Task(Protocol):
    """The data of one fold and the algorithm that learns from it."""

    @property
    def facts(self) -> DataFacts:
        """The data in figures."""

    def identity(self) -> str:
        """Digest of every example that is trained or measured on."""

    def fresh(self) -> Fresh:
        """Algorithm and problem of one more run, always the same."""

    def secrets(self) -> Secrets:
        """Truth that attacks are scored against, beside the private tables that a run records."""


class Dataset(Protocol):
    """A data set, read once."""

    @property
    def folds(self) -> Sequence[int]:
        """Folds that the utility averages over, the audited one first."""

    def task(self, fold: int) -> Task:
        """One fold."""


@dataclass(frozen=True, slots=True)
class Undivided:
    """A data set with one split.

    Args:
        only: its task.
    """

    only: Task

    @property
    def folds(self) -> Sequence[int]:
        """Always 1."""
        return (0,)

    def task(self, fold: int) -> Task:
        """The only task."""
        return self.only


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Outcome of checking a configuration for a property.

    Args:
        name: name of the property.
        holds: whether the property holds; None where it could not be tested.
        text: the outcome in words.
        facts: further facts, as JSON values.
    """

    name: str
    holds: bool | None
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataKind:
    """A data set that a system learns from.

    Args:
        settings: class of ``[data]``; it has a field ``name``.
        algorithm: class of ``[algorithm]``; it has a field ``rounds``.
        metrics: names of the utility figures, in the order of reports.
        implicit: names of the utility figures where its ratings are implicit feedback; by default
            as ``metrics``.
    """

    settings: type
    algorithm: type
    metrics: tuple[str, ...]
    implicit: tuple[str, ...] = ()

    def measured(self, data: Any) -> tuple[str, ...]:
        """Names of the utility figures with these settings of ``[data]``."""
        return self.implicit or self.metrics if getattr(data, "implicit", False) else self.metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The words of a report about the audited algorithm.

    Args:
        name: name of the algorithm, and where it was published.
        stays: what never leaves a client.
        leaves: what a client sends.
        remark: a remark against misunderstandings; None without one.
    """

    name: str
    stays: str
    leaves: str
    remark: str | None = None


class Wanted(NamedTuple):
    """The settings that a data set is read for.

    Attributes:
        data: settings of ``[data]``.
        algorithm: settings of ``[algorithm]``.
        seed: seed of the run.
        data_dir: where data sets lie.
        cohort: which clients take part in a round.
    """

    data: Any
    algorithm: Any
    seed: int
    data_dir: Path | None
    cohort: CohortConfig


Loader: TypeAlias = Callable[[Wanted], Dataset]
"""Reads a data set, or raises a ``DataError`` where it is missing or damaged, and a ``ConfigError``
where the settings do not fit it."""


class Checker(Protocol):
    """Checks properties of a configuration that only this system has."""

    def __call__(self, task: Task, algorithm: Any, *, rounds: int, seed: int) -> Sequence[Check]:
        """Check them on the task's own data, over so many rounds."""


class Device(Protocol):
    """Makes an algorithm on a separate host, with one client's data; at the server without data."""

    def __call__(
        self, algorithm: Any, facts: Mapping[str, Any], own: Mapping[str, npt.NDArray[Any]]
    ) -> Algorithm:
        """Make it.

        Args:
            algorithm: settings of ``[algorithm]``.
            facts: public facts about the data, as JSON values (``Apart.public``).
            own: a client's private facts beside its examples (``Apart.own``); empty at the server.
        """


@runtime_checkable
class Apart(Protocol):
    """Capability of a task: its data can be divided among hosts."""

    def public(self) -> Mapping[str, Any]:
        """The facts about the data that every host is told, as JSON values."""

    def own(self, client: int) -> Mapping[str, npt.NDArray[Any]]:
        """The facts that one client's host is given beside the examples in its vault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One algorithm as audits see it.

    Args:
        name: its name in configurations.
        statement: the words of a report about it, with these settings.
        kinds: data sets by name.
        default_data: the data set of configurations that do not name one.
        claims: what each stack of layers over the summed rows promises; no other stack is allowed.
        bag_claims: likewise over bags.
        gives_to_bags: whether the algorithm gives vectors to bags under given settings.
        reads_singles: why its server has to see single uploads under their names, as a clause: no
            stack that hides them is among its claims; empty where it does not.
        attacks: names of the attacks that read its messages.
        libraries: distributions, beside NumPy and SciPy, that decide the bits of a run.
        load: reads a data set.
        lossless: whether settings allow any protection to be lossless.
        check: checks that are the system's own.
        device: makes the algorithm without all of the data; None if that is not possible.
    """

    name: str
    statement: Callable[[Any], Statement]
    kinds: Mapping[str, DataKind]
    default_data: str
    claims: Mapping[tuple[str, ...], Claim]
    bag_claims: Mapping[tuple[str, ...], Claim] = field(default_factory=dict)
    gives_to_bags: Callable[[Any], bool] = lambda algorithm: False
    reads_singles: str = ""
    attacks: tuple[str, ...]
    libraries: tuple[str, ...] = ("numba",)
    load: Loader
    lossless: Callable[[Any], bool] = lambda algorithm: True
    check: Checker = lambda task, algorithm, *, rounds, seed: ()
    device: Device | None = None


def digest_of(columns: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 of named columns, types and shapes included, equal on every platform."""
    digest = sha256()
    for name in sorted(columns):
        values = np.asarray(columns[name])
        values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
        digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
