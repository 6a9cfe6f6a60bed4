"""The layers that hide what is summed, as records: masking, Paillier, and noise under masks."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.dp import skellam_events
from secure_fedrec.protection.hidden_sums.dense import HIDDEN
from secure_fedrec.protection.hidden_sums.encrypted import EncryptedSum, EncryptionLayerConfig
from secure_fedrec.protection.hidden_sums.masked import MaskedSum, MaskingLayerConfig
from secure_fedrec.protection.hidden_sums.noised import (
    DP_KEYS,
    NOISED,
    ClipConfig,
    NoisedSum,
    SkellamLayerConfig,
    encoding_of,
)
from secure_fedrec.protection.layer import Budget, Claim, Layer, Option, Place, Sizes, Stand
from secure_fedrec.protection.masking import COMPLETE_UP_TO
from secure_fedrec.traits import AS_BEFORE

_EPSILON = 8.0
"""A budget to start from, over all rounds; whoever needs less pays with accuracy."""

_NO_CLOAK = ("cloak",)  # every row is hidden: there is no rated set left to cover


def _reachable(settings: Any, cohort: int) -> None:
    if settings.min_survivors > cohort:
        raise ConfigError(
            "protection.min_survivors",
            settings.min_survivors,
            f"only {cohort} clients take part in a round",
        )


def _masks_fit(place: Place) -> None:
    """Refuse sums that no round reaches, and rounds that the masks have no parameters for."""
    masks, cohort = place.layers["masking"], place.sizes.cohort
    _reachable(masks, cohort)
    if masks.adversary == "active" and cohort > COMPLETE_UP_TO and masks.beacon == "none":
        raise ConfigError(
            "protection.adversary",
            "active",
            f"{cohort} clients in a round need a sparse graph, which the server must not choose: "
            f'set protection.beacon = "operator", or take at most {COMPLETE_UP_TO} clients, or',
            ("curious",),
        )
    masks.parameters(cohort, place.sizes.n_clients)


def _outlasting(sizes: Sizes) -> Mapping[str, Any]:
    """As many survivors as the planned dropouts leave."""
    found = MaskingLayerConfig().parameters(sizes.cohort, sizes.n_clients)
    return {"min_survivors": found.min_survivors}


_MASKED = Claim(
    system="federated PMF under secure aggregation (Bonawitz et al. 2017)",
    hides="every upload, from the server, which learns sums and counts per item",
    assumes="a roster of signing keys that the server did not choose, and at most the "
    "configured share of clients working with the server",
    lossless=True,
    found="one upload tells nothing; an item with a single rater is that rater's row in "
    "the sum, whoever it is, unless the tail floor keeps it back from a curious server; "
    "sums of different cohorts can be subtracted",
)

MASKING = Layer(
    name="masking",
    role="collector",
    settings=MaskingLayerConfig,
    build=lambda own, place: MaskedSum(own, **place.table),
    fits=_masks_fit,
    traits=HIDDEN,
    excludes=_NO_CLOAK,
    stands=(Stand(corrupt=("server",), hides="owners"),),
    options=(
        Option(
            settings={"tail_floor": 2},
            hides="lone rows",
            costs="a round of masked counts before every sum, and rows that a single client has "
            "are not learned",
        ),
    ),
    start=_outlasting,
    costs="keys and shares are exchanged before every sum",
    claim=_MASKED,
    elsewhere=replace(
        _MASKED,
        system="{name}{of} under secure aggregation (Bonawitz et al. 2017)",
        hides="{uploads}, from the server, which learns {sums}",
        found="one upload tells nothing; {few}, and sums of different cohorts can be "
        "subtracted{beside}",
    ),
    simulated="uploads were hidden by pads with the protocol's distribution; run with "
    "execution = real for the cryptography itself",
)


def _carried_out(config: EncryptionLayerConfig) -> str:
    kept = "; the server kept the public table encrypted, and two clients in turn took its steps"
    return kept if config.holder == "clients" else ""


_ENCRYPTED = Claim(
    system="FedMF (Chai et al. 2021) with all rows encrypted",
    hides="every upload, from the server; the sums as well, where the clients hold the key",
    assumes="an honest-but-curious server that does not collude with a holder of the key",
    lossless=True,
    found="as masking where an authority opens the sums",
)

PAILLIER = Layer(
    name="paillier",
    role="collector",
    settings=EncryptionLayerConfig,
    build=lambda own, place: EncryptedSum(own, **place.table),
    fits=lambda place: _reachable(place.layers["paillier"], place.sizes.cohort),
    traits=HIDDEN,
    excludes=_NO_CLOAK,
    stands=(Stand(corrupt=("server",), hides="owners"),),
    costs="every client encrypts its whole table with a public key, which takes it far longer "
    "than masks",
    claim=_ENCRYPTED,
    elsewhere=replace(
        _ENCRYPTED,
        system="{name} with encrypted {things} (Chai et al. 2021)",
        hides="{uploads}, from the server; the sums as well, where the {clients} hold the key",
        found="one upload tells nothing; where an authority opens the sums, {few}{beside}",
    ),
    simulated="uploads were random words in the place of ciphertexts; run with execution = "
    "real for the cryptography itself",
    real=_carried_out,
)

CLIP = Layer(
    name="clip",
    role="clip",
    settings=ClipConfig,
    build=None,
    traits=AS_BEFORE,  # it stacks under noise alone
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
    role="noise",
    settings=SkellamLayerConfig,
    build=_noised,
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
        hides="a client's whole contribution, rows and counts, from the server and from "
        "whoever sees the model, up to the stated epsilon and delta",
        assumes="as masking; at most the configured number of clients reveal their noise",
        lossless=False,
        found="counts and tail rows are estimates; what is paid is accuracy",
    ),
    elsewhere=Claim(
        system="{name}{of} with distributed differential privacy (Agarwal et al. 2021)",
        hides="{uploads}, from the server and from whoever sees the model, up to the stated "
        "epsilon and delta",
        assumes="as masking; at most the configured number of clients reveal their noise",
        lossless=False,
        found="sums are estimates; what is paid is accuracy{beside}",
    ),
)
