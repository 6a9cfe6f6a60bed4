"""What a federation learns from, and how it is judged: all that an engine needs of the data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from secure_fedrec.algorithms.base import Algorithm, PublicState, SizedUploads
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.vault import Vault

__all__ = ["Evaluate", "Problem", "batch_costs", "upload_rows", "upload_vectors"]

Evaluate: TypeAlias = Callable[[PublicState, Vault], Mapping[str, float] | None]
"""Metrics of a state by name; None where there is nothing to measure."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """The data side of one run.

    Args:
        vault: the clients' private state; an engine fills it with the algorithm's tables, so every
            run needs its own.
        n_rows: rows of the shared table.
        evaluate: measures a state; None measures nothing.
        knowledge: what everybody knows about the data, as JSON values.
        popularity: int64[n_rows], clients that hold each item: stands for the popularity that is
            public elsewhere. None where rows are not items.
    """

    vault: Vault
    n_rows: int
    evaluate: Evaluate | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    popularity: IntArray | None = None


def upload_rows(algorithm: Algorithm, vault: Vault, n_rows: int) -> IntArray:
    """int64[n], rows each client sends: one per example unless the algorithm says otherwise."""
    if isinstance(algorithm, SizedUploads):
        return algorithm.upload_rows(vault, n_rows)
    return vault.example_counts()


def upload_vectors(algorithm: Algorithm, vault: Vault) -> Mapping[str, IntArray]:
    """int64[n] by name of the bag, vectors each client gives to it; none unless it says so."""
    if isinstance(algorithm, SizedUploads):
        return algorithm.upload_vectors(vault)
    return {}


def batch_costs(algorithm: Algorithm, vault: Vault, n_rows: int) -> IntArray:
    """int64[n], how much of a batch each client takes up: examples read or rows sent."""
    rows = upload_rows(algorithm, vault, n_rows)
    return np.maximum(vault.example_counts(), rows) + 1
