"""The interface of a batch's local work, before it is protected.

Algorithms implement it and layers use it, independently of each other.
"""

from typing import Protocol

from secure_fedrec.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
from secure_fedrec.uploads import RowBlock, Upload


class LocalUpload(Protocol):
    """The interface of an algorithm's client step that a stack needs, for a batch of clients."""

    @property
    def clients(self) -> IntArray:
        """int64[B], the clients of the batch."""

    @property
    def upload(self) -> Upload:
        """The clients' upload, as it is sent without a cloak."""


class LocalModel(LocalUpload, Protocol):
    """Capability of a client step on ratings: further methods that a cloak may call."""

    @property
    def rated(self) -> RowBlock:
        """The clients' rated items, ascending, without values."""

    def impute(
        self, indptr: IntArray, items: IndexArray, *, method: str, local_steps: int
    ) -> FloatArray:
        """Virtual ratings for unrated items.

        Args:
            indptr: int64[B + 1], the items of each client of the upload.
            items: int32[N].
            method: "average" (the client's mean rating) or "predicted" (by a locally trained copy
                of the user vector).
            local_steps: training steps of that copy.

        Returns:
            float64[N].
        """

    def resample_residuals(
        self, indptr: IntArray, items: IndexArray, *, draws: IntArray
    ) -> FloatArray:
        """Virtual ratings whose residual is that of one of the client's own ratings.

        Args:
            indptr: int64[B + 1], the items of each client of the upload.
            items: int32[N].
            draws: int64[N], non-negative random integers that choose the ratings.

        Returns:
            float64[N].
        """

    def rows(
        self, indptr: IntArray, items: IndexArray, virtual: BoolArray, ratings: FloatArray
    ) -> FloatArray:
        """Upload rows of rated and virtual items together, computed all in the same way.

        Args:
            indptr: int64[B + 1], the items of each client.
            items: int32[N], ascending within a client.
            virtual: bool[N]; the others are rated, and their ratings are the client's own.
            ratings: float64[K], of the virtual items, in order.

        Returns:
            float64[N, d].

        Raises:
            ValueError: an item is neither virtual nor rated, or the numbers do not match.
        """
