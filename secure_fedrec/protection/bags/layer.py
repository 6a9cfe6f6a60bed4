"""The layers over bags as records: noise per vector, and mixes."""

import math
from collections.abc import Mapping
from dataclasses import replace

from secure_fedrec.protection.bags.config import LocalDPConfig
from secure_fedrec.protection.bags.embedded import ANONYMOUS, NOISED
from secure_fedrec.protection.base.record import Claim, Layer, Sizes, Stand
from secure_fedrec.protection.denoisers.layer import ROUTING


def _for_a_round(sizes: Sizes) -> Mapping[str, float]:
    """Noise with which a round of all vectors costs as much as one vector by default."""
    vectors = sum(shape.most for shape in sizes.bags.values())
    return {"noise_multiplier": float(math.ceil(math.sqrt(max(vectors, 1))))}


LOCAL_DP = Layer(
    name="local-dp",
    also_called=("ldp", "local differential privacy", "local noise"),
    role="noise",
    settings=LocalDPConfig,
    build=None,
    traits=NOISED,
    stands=(Stand(corrupt=("server",), hides="contribution"),),
    start=_for_a_round,
    costs="accuracy, the more the larger noise_multiplier",
    claim=Claim(
        system="drafts with local differential privacy",
        hides="every vector, from all other parties, up to the stated epsilon and delta of one "
        "vector, and of all vectors of a client",
        assumes="nothing about the other parties; the client's own generator",
        lossless=False,
        found="the server knows which client sent which noisy vector: averages over rounds remove "
        "the noise, which the price over all rounds states",
    ),
)


_MIXED = Claim(
    system="drafts over a mix cascade",
    hides="which client sent a vector, which vectors are of one client, and how many a client "
    "gives, from the server and from anyone who watches the lines",
    assumes="one honest mix per path, with batches that the adversary has not filled itself; "
    "at least two clients that do not work with others; and that clients look for their cells in "
    "the server's receipts, since a mix can replace them",
    lossless=True,
    found="values stay: a vector close to one of an earlier round, or one that only a "
    "certain client could give, names its owner; cells have no authentic sender",
)


_NOISED = LOCAL_DP.claim or _MIXED


BAG_ROUTING = replace(
    ROUTING,
    build=None,
    traits=ANONYMOUS,
    requires=(),
    stands=(Stand(corrupt=("server",), hides="owners"),),
    claim=_MIXED,
    published={
        ("local-dp", "routing"): Claim(
            system="noisy drafts over a mix cascade",
            hides=f"{_NOISED.hides}; {_MIXED.hides}; no smaller epsilon is claimed for the "
            "shuffling",
            assumes=f"for a vector: {_NOISED.assumes}; for its owner: {_MIXED.assumes}",
            lossless=False,
            found="noise covers the closeness of vectors over rounds up to its price",
        )
    },
)
"""The mixes of ``denoisers.embedded_mixes``, before a bag."""
