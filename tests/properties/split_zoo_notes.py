"""What a model of the zoo keeps in another module than its own."""

from torch import Tensor

NORM: Tensor | None = None
LATER: Tensor | None = None
