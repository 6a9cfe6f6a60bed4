"""An own layer: clients round the values that they send."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.local import LocalModel
from secure_fedrec.protection import Claim, Layer
from secure_fedrec.protection.base import Cloaked
from secure_fedrec.settings import Positive, Settings
from secure_fedrec.traits import AS_BEFORE, Traits


class RoundedConfig(Settings, section="protection"):
    """Settings of the layer.

    Args:
        step: values are rounded to multiples of it.
    """

    step: Positive = 0.25


@dataclass(eq=False)
class Rounded:
    """A cloak that adds no row and rounds all values."""

    config: RoundedConfig
    traits: Traits = AS_BEFORE

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        """Round the values of clients that are not exempt."""
        name, block = next(iter(local.upload.blocks.items()))
        rounded = np.round(block.values / self.config.step) * self.config.step
        spared = np.repeat(exempt, block.lengths)[:, None]
        block = replace(block, values=np.where(spared, block.values, rounded))
        upload = replace(local.upload, blocks={name: block})
        return Cloaked(upload=upload, virtual=np.zeros(len(block.rows), dtype=bool))

    def expected_rows(self, rated: IntArray) -> tuple[IntArray, IntArray]:
        """As many as are rated, none of them virtual."""
        return rated, np.zeros_like(rated)

    def capped(self, rated: IntArray) -> IntArray:
        """Nobody."""
        return np.empty(0, dtype=np.int64)

    def describe(self) -> tuple[str, dict[str, Any]]:
        """The step is public."""
        return "rounded-values", asdict(self.config)


LAYER = Layer(
    name="rounded-values",
    role="cloak",
    settings=RoundedConfig,
    build=lambda own, place: Rounded(own),
    traits=AS_BEFORE,
    claim=Claim(
        system="federated PMF with rounded values",
        hides="what is smaller than a step, from the server",
        assumes="an honest-but-curious server",
        lossless=False,
        found="the server reads the rated set, as without it",
    ),
)
