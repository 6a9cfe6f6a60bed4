"""Clipped gradients, by Opacus if it has formulas for their norms, otherwise one by one."""

import logging
from typing import Self

from torch import nn

from secure_fedrec.dp_sgd.clipping import ClippedGradients, ExampleLosses
from secure_fedrec.dp_sgd.layers import WithoutNormsError, require_norms
from secure_fedrec.dp_sgd.one_by_one import SingleGradients
from secure_fedrec.dp_sgd.separate import Batch

log = logging.getLogger("secure-fedrec")


class ExampleGradients:
    """Sums of clipped gradients of one model, by the faster possible way; a context.

    Args:
        model: has passed ``require_clippable``.
        weights: its trainable parameters by name.
        losses: per-example losses.
        clip: largest L2 norm of one example's gradient over all parameters.
    """

    __slots__ = ("_fast", "_single")

    def __init__(
        self,
        model: nn.Module,
        weights: dict[str, nn.Parameter],
        losses: ExampleLosses,
        clip: float,
    ) -> None:
        self._single = SingleGradients(model, weights, losses, clip)
        self._fast: ClippedGradients | None = None
        try:
            require_norms(model)
            self._fast = ClippedGradients(model, weights, losses, clip)
        except WithoutNormsError as reason:
            _tell(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave_opacus()

    def leave(self, batch: Batch) -> None:
        """Leave the batch's sum of clipped gradients in the parameters.

        Raises:
            ConfigError: the losses are not one per example, or mix examples.
        """
        if self._fast is not None:
            try:
                self._fast.leave(batch)
            except WithoutNormsError as reason:
                self._leave_opacus()
                _tell(reason)
            else:
                return
        self._single.leave(batch)

    def _leave_opacus(self) -> None:
        if self._fast is not None:
            self._fast.close()
            self._fast = None


def _tell(reason: WithoutNormsError) -> None:
    log.info("%s: gradients are formed example by example, which takes longer", reason)
