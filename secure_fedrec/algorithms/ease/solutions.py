"""Computes the factors of scores from the summed matrix.

``Dense`` is EASE's closed form (Steck 2019, eq. 8): with P = (G + lambda I)^-1,

    B_ij = -P_ij / P_jj,  B_jj = 0,  scores x B.

``LowRank`` is the same for G = U diag(g) U^T of few columns, without a matrix of m x m: P is
(I - U diag(g / (g + lambda)) U^T) / lambda. ``Projected`` scores x V diag(w) V^T with the leading
eigenvectors of a sum with noise. The eigenvalues of symmetric noise of standard deviation s reach
up to 2 s sqrt(m) (Wigner). An eigenvalue l above that estimates a true one of t = (l + sqrt(l^2 - 4
s^2 m)) / 2, and its vector the true one up to w = 1 - s^2 m / t^2, the square of their cosine
(Benaych-Georges and Nadakuditi 2011). Items whose popularity, estimated from their row of the sum,
does not exceed its noise are left out first, since they would only add noise. All of this follows
from the noisy sum and the stated noise, so it does not cost privacy.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError

if TYPE_CHECKING:
    from scipy import sparse

_DENSE_PART: Final = 400
"""Most items for which all eigenvectors are computed at once."""
_LEAST_PIVOT: Final = 2.0**-40
"""Smallest pivot of a regular sum, relative to its largest diagonal value."""


class Scores(Protocol):
    """Scores of all items for rows of 0 and 1."""

    def of(self, rows: "sparse.csr_array") -> FloatArray:
        """float64[B, m], of the rows of B clients."""


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """Scores x B.

    Args:
        weights: B, float64[m, m].
    """

    weights: FloatArray

    def of(self, rows: "sparse.csr_array") -> FloatArray:
        """float64[B, m]."""
        return np.asarray(rows @ self.weights)


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """EASE's scores where G has few columns: x B without B.

    Args:
        vectors: U, float64[m, k].
        values: g / (g + lambda), float64[k].
        diagonal: of P, times lambda: float64[m].
    """

    vectors: FloatArray
    values: FloatArray
    diagonal: FloatArray

    def of(self, rows: "sparse.csr_array") -> FloatArray:
        """float64[B, m]."""
        inner = (rows @ (self.vectors * self.values)) @ self.vectors.T
        scores = np.asarray(inner / self.diagonal)
        # The diagonal of B is 0: an item's own contribution to its score is subtracted.
        own = np.einsum("ij,ij->i", self.vectors * self.values, self.vectors) / self.diagonal
        return np.asarray(scores - rows.multiply(own[None]).toarray())


@dataclass(frozen=True, slots=True, eq=False)
class Projected:
    """Scores x F F^T; items with rows of zeros are ranked below all others.

    Args:
        factors: F = V diag(sqrt(w)), float64[m, q].
    """

    factors: FloatArray

    def of(self, rows: "sparse.csr_array") -> FloatArray:
        """float64[B, m]."""
        scores = np.asarray((rows @ self.factors) @ self.factors.T)
        left_out = ~self.factors.any(axis=1)
        scores[:, left_out] = scores.min(axis=1, initial=0.0)[:, None] - 1.0
        return scores


def inverse_weights(gram: FloatArray, share: float, clients: int) -> FloatArray:
    """EASE's B: float64[m, m].

    Args:
        gram: G, float64[m, m], symmetric; overwritten.
        share: lambda as a share of the clients.
        clients: how many there are.

    Raises:
        ConfigError: G + lambda I is singular.
    """
    from scipy.linalg import lapack  # noqa: PLC0415 - who only reads of settings need not wait

    size = len(gram)
    gram[np.diag_indices(size)] += share * clients
    factor, failed = lapack.dpotrf(gram, lower=1, overwrite_a=1)
    least = np.square(np.diag(factor)).min(initial=np.inf)
    largest = np.square(np.diag(factor)).max(initial=0.0)
    if failed or not least > _LEAST_PIVOT * largest:
        raise ConfigError(
            "algorithm.shrinkage",
            share,
            "the sum is singular, as where an item has no users, two items have the same users, "
            "pairs are left out (algorithm.pair_floor), or noise is added (algorithm.solution = "
            f'"eigenvectors"); raise it above {share:g}',
        )
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    inverse = np.tril(inverse)
    inverse += np.tril(inverse, -1).T
    weights: FloatArray = -inverse / np.diag(inverse)
    weights[np.diag_indices(size)] = 0.0
    return weights


def low_rank(sums: FloatArray, signs: FloatArray, shrinkage: float) -> LowRank:
    """EASE on the Nystroem approximation Y (S^T Y)^+ Y^T of G, where Y = G S.

    Args:
        sums: Y, float64[m, k].
        signs: S, float64[m, k].
        shrinkage: lambda.

    Raises:
        ConfigError: lambda is 0, with which an approximation of few columns is singular.
    """
    if shrinkage <= 0:
        problem = "an approximation of few columns is singular; raise it above 0"
        raise ConfigError("algorithm.shrinkage", 0.0, problem)
    vectors, values = nystroem(sums, signs)
    kept = values / (values + shrinkage)
    diagonal = 1.0 - np.einsum("ij,ij->i", vectors * kept, vectors)
    return LowRank(vectors, kept, np.maximum(diagonal, np.finfo(np.float64).tiny))


def nystroem(sums: FloatArray, signs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvectors [m, r] and eigenvalues [r] of the approximation, largest first."""
    inner = signs.T @ sums
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    regular = values > 1e-10 * max(values.max(initial=0.0), 1e-300)
    root = sums @ (vectors[:, regular] / np.sqrt(values[regular]))
    left, singular, _ = np.linalg.svd(root, full_matrices=False)
    return left, np.square(singular)


def projection(gram: FloatArray, noise: float, rank: int) -> FloatArray:
    """Factors of ``Projected``: float64[m, rank]; columns that do not exceed the noise are zeros.

    Args:
        gram: the sum, float64[m, m], symmetric.
        noise: standard deviation of the noise on its values; sqrt(1 / 2) of it off the diagonal. 0
            without noise.
        rank: most columns.
    """
    size = len(gram)
    spread = noise / np.sqrt(2)
    popularity = gram.sum(axis=1)
    doubt = np.sqrt(spread**2 * max(size - 1, 0) + noise**2)
    kept = np.flatnonzero(popularity > doubt)
    if not len(kept):  # only noise: keep the item with the largest value
        kept = np.array([int(np.argmax(popularity))])
    part = gram[np.ix_(kept, kept)]
    values, vectors = _leading(part, min(rank, len(kept)))
    radius = spread * np.sqrt(len(kept))
    standing = np.flatnonzero(values > max(2 * radius, 0.0))
    if not len(standing):
        standing, weights = np.array([0]), np.ones(1)
    else:
        seen = values[standing]
        true = (seen + np.sqrt(np.square(seen) - 4 * radius**2)) / 2
        weights = 1.0 - np.square(radius / true)
    factors = np.zeros((size, rank))
    factors[kept[:, None], np.arange(len(standing))] = vectors[:, standing] * np.sqrt(weights)
    return factors


def _leading(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """The largest eigenvalues, descending, and their vectors."""
    size = len(matrix)
    if size <= max(_DENSE_PART, 2 * count):
        values, vectors = np.linalg.eigh(matrix)
    else:
        from scipy.sparse.linalg import eigsh  # noqa: PLC0415 - likewise

        start = np.ones(size)  # otherwise ARPACK starts at random
        values, vectors = eigsh(matrix, k=count, which="LA", v0=start)
    order = np.argsort(-values, kind="stable")[:count]
    return values[order], vectors[:, order]
