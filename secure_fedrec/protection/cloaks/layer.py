"""The cloaks as records: virtual ratings, and randomized response."""

from secure_fedrec.protection.base.record import Claim, Layer
from secure_fedrec.protection.cloaks.randomized_response import ANSWERED, RandomizedResponse
from secure_fedrec.protection.cloaks.virtual_ratings import (
    COVERED,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.dp.rated_set import RandomizedResponseConfig

RANDOMIZED_RESPONSE = Layer(
    name="randomized-response",
    also_called=("rr", "rappor", "random response"),
    role="cloak",
    settings=RandomizedResponseConfig,
    build=lambda own, place: RandomizedResponse(
        own, n_items=place.sizes.covered, streams=place.streams
    ),
    traits=ANSWERED,
    claim=Claim(
        system="SDCF",
        hides="the rated set, from the server, as local randomized response of each round",
        assumes="an honest-but-curious server",
        lossless=False,
        drops_reports=True,
        found="fresh reports add up over rounds",
    ),
)


VIRTUAL_RATINGS = Layer(
    name="virtual-ratings",
    also_called=("fake ratings", "fake items", "pseudo items", "sampled items"),
    role="cloak",
    settings=VirtualRatingsConfig,
    build=lambda own, place: VirtualRatings(
        own, n_items=place.sizes.covered, streams=place.streams, popularity=place.sizes.popularity
    ),
    traits=COVERED,
    claim=Claim(
        system="FedRec",
        hides="the rated set, from the server",
        assumes="an honest-but-curious server that keeps no history and looks at item numbers only",
        lossless=False,
        found="broken by the lattice decode of one upload and by intersecting rounds",
    ),
)
