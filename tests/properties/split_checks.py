"""One small case of the split-personalization checker, for tests of its edges and its input."""

from collections.abc import Callable
from typing import Any

from torch import nn

from secure_fedrec.algorithms.local_training import Batch
from secure_fedrec.properties import SplitReport, check_split_personalization
from tests.properties.split_zoo import Factorisation, Shape, case, loss

SHAPE = Shape()
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
