"""One small case of the split-personalization checker, for tests of its edges and its input."""

from collections.abc import Callable
from typing import Any

from torch import nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.properties import SplitReport, check_split_personalization
from tests.properties.split_zoo import Factorisation, Shape, case, loss

SHAPE = Shape()
READS = "# reads"
"""Marks lines of the zoo that read another user's value."""
FOUND = case(Factorisation)(SHAPE)


def check(
    model: nn.Module | None = None,
    own_loss: Callable[[nn.Module, int, Batch], Any] = loss,
    **changes: Any,
) -> SplitReport:
    """The report on a matrix factorization, or another model with private ``users.weight``."""
    settings: dict[str, Any] = {"private": ("users.weight",), "batches": FOUND.batches()}
    settings |= {"trials": 3, **changes}
    return check_split_personalization(
        Factorisation(SHAPE) if model is None else model, own_loss, **settings
    )


def misplaced(report: SplitReport) -> list[str]:
    """Lines that a report names, and that do not read a value."""
    lines = {each.line for each in report.violations if each.line is not None}
    return [str(each) for each in lines if READS not in each.text]


def located(report: SplitReport) -> bool:
    """Whether a report of violations names a line."""
    return any(each.line is not None for each in report.violations)
