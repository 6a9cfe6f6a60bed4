"""FedDMF for recommendation: organisations also give the vectors of items that the others lack."""

from typing import Any

import numpy as np

from secure_fedrec.algorithms.feddmf.exchanged import ExchangedFedDMF
from secure_fedrec.core.arrays import IntArray


class ServedFedDMF(ExchangedFedDMF):
    """The algorithm; see the package. Training is that of ``ExchangedFedDMF``, to the bit.

    Others recommend an organisation's own items by their vectors, and can read off them how often
    these were interacted with.
    """

    def offered(self, sender: int, receiver: int) -> IntArray:
        """int64[k], all items of the sender's."""
        return np.asarray(self.listed(sender))

    def public_knowledge(self) -> dict[str, Any]:
        """As for ``ExchangedFedDMF``, with another name."""
        return {**super().public_knowledge(), "name": "feddmf-served"}
