"""``noise``: discrete noise per value against OpenDP's exact samplers, tables built apart.

Judged is ``ratio_opendp``: CPU seconds per value of OpenDP's discrete Gaussian over ours, the
smaller of the ratios at standard deviations 10 and 100, measured in turn in one run. Beside it
stand the time to build a table, the other noises, and a whole protected contribution.
"""

from collections.abc import Callable
from time import process_time
from typing import Any, Final

import numpy as np
import opendp.prelude as opendp

from benchmarks.federations import Options
from benchmarks.measure import Timings, interleave, progress
from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    Part,
    SkellamClient,
    SkellamConfig,
    draw_noise,
    noise_table,
)
from secure_fedrec.protection.dp.tables import Noise

__all__ = ["run"]

TARGETS: Final = {"ratio_opendp": ">= 100"}

_SIGMAS: Final = (10.0, 100.0)
_OUR_VALUES = 1_000_000
_QUICK_OPENDP, _FULL_OPENDP = 20_000, 200_000
_NOISES: Final[tuple[tuple[str, Noise, float], ...]] = (
    ("discrete_gaussian_10", "discrete-gaussian", 10.0),
    ("discrete_gaussian_100", "discrete-gaussian", 100.0),
    ("discrete_gaussian_10000", "discrete-gaussian", 10_000.0),
    ("rounded_gaussian_100", "rounded-gaussian", 100.0),
    ("discrete_laplace_100", "discrete-laplace", 100.0),
    ("skellam_100", "skellam", 100.0**2),
    ("skellam_10000", "skellam", 10_000.0**2),
)


def run(options: Options) -> dict[str, Any]:
    """All figures of the benchmark, as JSON values."""
    opendp.enable_features("contrib")
    progress("tables")
    tables = {name: _build_seconds(noise, parameter) for name, noise, parameter in _NOISES}
    progress("draws: ours and OpenDP's in turn")
    values = _QUICK_OPENDP if options.quick else _FULL_OPENDP
    repeats = 3 if options.quick else 5
    against = {f"sigma_{sigma:g}": _against_opendp(sigma, values, repeats) for sigma in _SIGMAS}
    progress("other noises, and a whole contribution")
    others = {name: _nanoseconds(noise, parameter) for name, noise, parameter in _NOISES}
    return {
        "benchmark": "noise",
        "ratio_opendp": min(figures["ratio"] for figures in against.values()),
        "against_opendp": against,
        "nanoseconds_per_value": others,
        "table_seconds": tables,
        "protect_milliseconds": _protect_milliseconds(repeats),
        "targets": TARGETS,
    }


def _build_seconds(noise: Noise, parameter: float) -> float:
    noise_table.cache_clear()
    start = process_time()
    noise_table(noise, parameter)
    return process_time() - start


def _against_opendp(sigma: float, values: int, repeats: int) -> dict[str, float]:
    """CPU per value of both, and the median ratio of neighbouring measurements."""
    table = noise_table("discrete-gaussian", sigma)
    space = opendp.vector_domain(opendp.atom_domain(T=int), values), opendp.l2_distance(T=float)
    theirs = opendp.m.make_gaussian(*space, scale=sigma)
    zeros = [0] * values
    _require_same_spread(draw_noise(table, values), np.array(theirs(zeros)), sigma)
    timings = interleave(
        {"ours": lambda: draw_noise(table, _OUR_VALUES), "opendp": lambda: theirs(zeros)},
        repeats=repeats,
    )
    per_value: Timings = {
        "ours": [seconds / _OUR_VALUES for seconds in timings["ours"]],
        "opendp": [seconds / values for seconds in timings["opendp"]],
    }
    pairs = zip(per_value["opendp"], per_value["ours"], strict=True)
    return {
        "ratio": float(np.median([theirs_ / ours for theirs_, ours in pairs])),
        "ours_nanoseconds": float(np.median(per_value["ours"])) * 1e9,
        "opendp_nanoseconds": float(np.median(per_value["opendp"])) * 1e9,
    }


def _require_same_spread(ours: Any, theirs: Any, sigma: float) -> None:
    """Both contenders must do the work: a spread that is off by 10 % is another distribution."""
    for draws in (ours, theirs):
        assert abs(float(np.std(draws)) / sigma - 1) < 0.1


def _nanoseconds(noise: Noise, parameter: float) -> float:
    table = noise_table(noise, parameter)
    timings = interleave({"draw": lambda: draw_noise(table, _OUR_VALUES)}, repeats=3)
    return float(np.median(timings["draw"])) / _OUR_VALUES * 1e9


def _protect_milliseconds(repeats: int) -> float:
    """One client's round on an ml-100k table of 20 factors with counts and weight."""
    layout = Contribution(
        parts=(
            Part(name="rows", size=1682 * 20),
            Part(name="counts", size=1682, scale=0.1),
            Part(name="weight", size=1, scale=0.1),
        )
    )
    config = SkellamConfig(
        encoding=BoundedEncoding(contribution=layout, clip=1.0, fraction_bits=12),
        noise_multiplier=2.0,
        ring_bits=24,
        cohort=64,
        min_survivors=48,
        corrupt=6,
    )
    values = {part.name: np.full(part.size, 0.01) for part in layout.parts}
    once: Callable[[], object] = lambda: SkellamClient(config, bytes(32)).protect(values)  # noqa: E731
    return float(np.median(interleave({"protect": once}, repeats=repeats)["protect"])) * 1e3
