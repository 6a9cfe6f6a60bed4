"""Theorems as tests, for anybody's code: losslessness of a protected run, and strategies."""

from secure_fedrec.properties.lossless import (
    Comparison,
    assert_lossless,
    compare_runs,
    plain_twin,
)

__all__ = ["Comparison", "assert_lossless", "compare_runs", "plain_twin"]
