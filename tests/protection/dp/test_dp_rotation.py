"""The rotation is orthonormal, its own kind of random, public, and spreads what it moves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard as hadamard_matrix

from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.protection.dp import Rotation
from secure_fedrec.protection.dp.rotation import hadamard, window_of

SEED = bytes(range(32))


def matrix_of(rotation: Rotation) -> np.ndarray:
    columns = [rotation.apply(unit) for unit in np.eye(rotation.size)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 64])
def test_transform_is_the_hadamard_matrix(size: int) -> None:
    values = np.random.default_rng(size).normal(size=size)
    expected = hadamard_matrix(size) @ values / np.sqrt(size)
    hadamard(values)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 64, 100, 127])
def test_rotation_is_orthonormal_and_inverted(size: int) -> None:
    rotation = Rotation(size, SEED)
    matrix = matrix_of(rotation)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-12)
    inverse = np.stack([rotation.invert(unit) for unit in np.eye(size)], axis=1)
    np.testing.assert_allclose(inverse, matrix.T, atol=1e-12)


@settings(deadline=None)
@given(st.integers(1, 3000), st.binary(min_size=32, max_size=32))
def test_inverse_undoes_and_lengths_stay(size: int, seed: bytes) -> None:
    values = np.random.default_rng(size).normal(size=size) * 100
    rotation = Rotation(size, seed)
    before = values.copy()
    turned = rotation.apply(values)
    assert np.array_equal(values, before)
    np.testing.assert_allclose(np.linalg.norm(turned), np.linalg.norm(values), rtol=1e-12)
    np.testing.assert_allclose(rotation.invert(turned), values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [2, 3, 7, 8, 100, 300])
def test_windows_cover_every_coordinate_and_leave_none_alone(size: int) -> None:
    window = window_of(size)
    assert window <= size < 2 * window
    assert np.abs(matrix_of(Rotation(size, SEED))).max() < 0.8  # a coordinate left alone is a 1


def test_one_large_coordinate_is_spread() -> None:
    size = 5000
    spike = np.zeros(size)
    spike[4321] = 1000.0
    turned = Rotation(size, SEED).apply(spike)
    # Hoeffding over the signs at 2^-40 for all coordinates together.
    limit = 1000 * np.sqrt(2 * np.log(2 * size * 2.0**40) / window_of(size))
    assert np.abs(turned).max() < limit < 200


def test_rotation_is_a_function_of_the_seed_alone() -> None:
    values = np.arange(10.0)
    first = Rotation(10, SEED).apply(values)
    assert np.array_equal(first, Rotation(10, SEED).apply(values))
    assert not np.allclose(first, Rotation(10, SEED[::-1]).apply(values))


def test_both_windows_have_signs_of_their_own() -> None:
    signs = Rotation(3000, SEED)._signs
    assert signs.shape == (2, 2048)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(float((signs[0] * signs[1]).mean())) < 0.11  # 5 sigma of 2048 coins
    assert abs(float(signs.mean())) < 0.08


def test_wrong_sizes_and_seeds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"dp\.size"):
        Rotation(0, SEED)
    with pytest.raises(ConfigError, match="rotation_seed"):
        Rotation(4, b"short")
    with pytest.raises(EncodingError, match="shape"):
        Rotation(4, SEED).apply(np.zeros(5))
    with pytest.raises(EncodingError, match="shape"):
        Rotation(4, SEED).invert(np.zeros((4, 1)))
