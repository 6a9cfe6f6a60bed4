"""Noise under masks as records: the clip, and Skellam noise."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from secure_fedrec.protection.base.record import Budget, Claim, Layer, Place, Sizes, Stand
from secure_fedrec.protection.dp.config import DP_KEYS, ClipConfig, SkellamLayerConfig, encoding_of
from secure_fedrec.protection.dp.embedded import NOISED, NoisedSum
from secure_fedrec.protection.dp.hosted import HostedNoise
from secure_fedrec.protection.dp.skellam import skellam_events
from secure_fedrec.traits import AS_BEFORE

_EPSILON = 8.0
"""A default budget over all rounds; a smaller one costs accuracy."""


CLIP = Layer(
    name="clip",
    also_called=("clipping", "gradient clipping", "norm bound"),
    role="clip",
    settings=ClipConfig,
    build=None,
    traits=AS_BEFORE,  # stacks only under a noise layer
    requires=("skellam",),
    claim=None,
)


def _noised(noise: SkellamLayerConfig, place: Place) -> NoisedSum:
    masks, clip = place.layers["masking"], place.layers["clip"]
    return NoisedSum(masks, clip=clip, noise=noise, cohort=place.sizes.cohort, **place.table)


def _budget(layers: Mapping[str, Any], sizes: Sizes) -> Budget | None:
    noise, clip = layers["skellam"], layers.get("clip")
    if noise.epsilon is None or clip is None:
        return None
    encoding = encoding_of(n_items=sizes.n_items, width=sizes.width, clip=clip, noise=noise)
    return Budget(
        epsilon=noise.epsilon,
        delta=noise.delta,
        part="sums",
        keys=DP_KEYS,
        events=partial(skellam_events, encoding=encoding),
        settings=lambda multiplier: replace(noise, noise_multiplier=multiplier, epsilon=None),
    )


SKELLAM = Layer(
    name="skellam",
    also_called=("dp", "differential privacy", "distributed dp", "central dp", "gaussian"),
    role="noise",
    settings=SkellamLayerConfig,
    build=_noised,
    hosted=HostedNoise,
    budget=_budget,
    start=lambda _: {"epsilon": _EPSILON},
    costs="accuracy, the more the smaller epsilon and the fewer the clients: models of few "
    "parameters bear it (algorithm.biases = true with rank = 0), large ones diverge",
    bears={"biases": True, "rank": 0},
    traits=NOISED,
    requires=("clip", "masking"),
    stands=(
        Stand(corrupt=("server",), hides="contribution"),
        Stand(corrupt=("client:0",), hides="contribution"),
    ),
    claim=Claim(
        system="federated PMF with distributed differential privacy (Agarwal et al. 2021)",
        hides="a client's whole contribution, rows and counts, from the server and from anyone who "
        "sees the model, up to the stated epsilon and delta",
        assumes="as masking; at most the configured number of clients reveal their noise",
        lossless=False,
        found="counts and tail rows are estimates; the cost is accuracy",
    ),
    elsewhere=Claim(
        system="{name}{of} with distributed differential privacy (Agarwal et al. 2021)",
        hides="{uploads}, from the server and from anyone who sees the model, up to the stated "
        "epsilon and delta",
        assumes="as masking; at most the configured number of clients reveal their noise",
        lossless=False,
        found="sums are estimates; the cost is accuracy{beside}",
    ),
)
