"""Masking as a record."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.dense_uploads import HIDDEN
from secure_fedrec.protection.base.hidden_sum import NO_CLOAK, require_reachable
from secure_fedrec.protection.base.record import Claim, Layer, Option, Place, Sizes, Stand
from secure_fedrec.protection.masking.config.parameters import COMPLETE_UP_TO
from secure_fedrec.protection.masking.embedded import MaskedSum
from secure_fedrec.protection.masking.hosted import HostedMasks
from secure_fedrec.protection.masking.hosted_floor import HostedFloor
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig


def _masks_fit(place: Place) -> None:
    """Refuse sums that no round reaches, and rounds that the masks have no parameters for."""
    masks, cohort = place.layers["masking"], place.sizes.cohort
    require_reachable(masks, cohort)
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
    found="one upload tells nothing; sums over few clients are equations in their vectors: the sum "
    "of an item with a single rater is that rater's row, and a tail floor only raises, for a "
    "curious server, how many raters the smallest sum has; "
    "sums of different cohorts can be subtracted, by which a server that deviates opens "
    "single uploads over several rounds",
)


def _hosted(collector: MaskedSum) -> HostedMasks | HostedFloor:
    """With a tail floor, halves of two sums each."""
    floor = collector.config.floor
    return HostedMasks(collector) if floor is None else HostedFloor(collector, floor)


MASKING = Layer(
    name="masking",
    also_called=("secagg", "secure aggregation", "secure sum", "pairwise masks", "bonawitz"),
    role="collector",
    settings=MaskingLayerConfig,
    build=lambda own, place: MaskedSum(own, **place.table),
    hosted=_hosted,
    fits=_masks_fit,
    traits=HIDDEN,
    excludes=NO_CLOAK,
    stands=(Stand(corrupt=("server",), hides="owners"),),
    options=(
        Option(
            setting="tail_floor",
            raises="lone rows",
            costs="a round of masked counts before every sum, and rows of fewer clients are not "
            "learned; a floor raises how many clients a sum is over and does not hide any of "
            "them",
            lossless=False,
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
        "subtracted, by which a server that deviates opens single uploads over several "
        "rounds{beside}",
    ),
    simulated="uploads were hidden by pads with the protocol's distribution; run with "
    "execution = real for the cryptography itself",
)
