"""Noise in floating point has holes that give the input away; noise in the ring has none."""

from itertools import pairwise

import numpy as np
import pytest

from secure_fedrec.protection.dp import (
    BoundedEncoding,
    Contribution,
    DirectNoiseConfig,
    LocalNoise,
    Part,
    noise_table,
)

DRAWS = 4000


def fine_grained(outputs: np.ndarray) -> np.ndarray:
    """Outputs near 0 with binary digits below 2^-53: no float64 in [1/2, 2) has such digits.

    1 + noise is computed by rounding to a multiple of 2^-53 at least, where noise is in [-1/2, 0)
    and so exact on noise's own grid; only an input of 0 leaves finer digits.
    """
    digits = np.ldexp(outputs, 53)
    return np.asarray((np.abs(outputs) < 0.25) & (digits != np.rint(digits)))


def textbook(value: float, rng: np.random.Generator) -> np.ndarray:
    """``value + Laplace noise`` in doubles, as papers and their code have it."""
    noise = -np.log(rng.random(DRAWS)) * np.where(rng.random(DRAWS) < 0.5, -1.0, 1.0)
    return np.asarray(value + noise)


@pytest.mark.claim("dp-float-input")
def test_textbook_laplace_outputs_prove_their_input() -> None:
    rng = np.random.default_rng(1)
    from_zero, from_one = fine_grained(textbook(0.0, rng)), fine_grained(textbook(1.0, rng))
    # An output of this kind is certain to come from 0, at a pure epsilon that claims e.
    assert from_zero.mean() > 0.1
    assert from_one.sum() == 0


@pytest.mark.claim("dp-float-input")
@pytest.mark.parametrize("noise", ["discrete-laplace", "discrete-gaussian", "rounded-gaussian"])
def test_ring_noise_reaches_every_output_from_either_input(noise: str) -> None:
    order = 1 if noise == "discrete-laplace" else 2
    encoding = BoundedEncoding(
        contribution=Contribution(parts=(Part(name="value", size=1),)),
        clip=1.0,
        fraction_bits=4,
        order=order,  # type: ignore[arg-type]
    )
    config = DirectNoiseConfig(
        encoding=encoding,
        noise=noise,  # type: ignore[arg-type]
        noise_multiplier=1.0,
        place="local",
        ring_bits=32,
        cohort=1,
    )
    table = noise_table(config.table.noise, config.table.parameter)
    thresholds = [0, *(table.threshold(m) for m in range(table.largest + 1))]
    # No hole among the magnitudes whose tail is above 2^-100 (the table is cut at 2^-126).
    body = [threshold for threshold in thresholds if 2**127 - threshold > 2**27]
    assert len(body) > 0.75 * table.largest
    assert all(after > before for before, after in pairwise(body))
    # Every integer within reach is possible from both inputs, up to the stated cut of the tail.
    client = LocalNoise(config)
    for value in (0.0, 1.0):
        outputs = {
            int(config.codec.to_integers(client.protect({"value": np.array([value])}))[0])
            for _ in range(1500)
        }
        shift = round(value * encoding.scale)
        common = range(shift - 20, shift + 21)
        assert outputs.issuperset(common)
        assert max(abs(output - shift) for output in outputs) <= table.largest + 1
