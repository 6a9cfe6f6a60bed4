"""Shared uploads as a record."""

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.record import Claim, Layer, Place, Stand
from secure_fedrec.protection.shared_upload.config import SharedUploadConfig
from secure_fedrec.protection.shared_upload.embedded import SHARED, SharedUpload
from secure_fedrec.protection.shared_upload.hosted import HostedShares


def _fits(place: Place) -> None:
    """Refuse fresh virtual items under visible item numbers, and floors that no round reaches."""
    if not place.layers["virtual-ratings"].sticky:
        raise ConfigError(
            "protection.sticky",
            False,
            "item numbers of shared uploads stay visible: fresh virtual items would be intersected",
            (True,),
        )
    floor, cohort = place.layers[SHARED_UPLOAD.name].floor, place.sizes.cohort
    if floor > cohort:
        raise ConfigError("protection.floor", floor, f"only {cohort} clients take part in a round")


SHARED_UPLOAD = Layer(
    name="shared-upload",
    also_called=("secret sharing", "additive shares", "mpc"),
    role="collector",
    settings=SharedUploadConfig,
    build=lambda own, place: SharedUpload(own, **place.table),
    hosted=HostedShares,
    fits=_fits,
    traits=SHARED,
    requires=("virtual-ratings",),
    stands=(
        Stand(corrupt=("server",), hides="values"),
        Stand(corrupt=("denoisers",), hides="values"),
        Stand(corrupt=("server", "denoiser:0"), hides="values"),  # with two denoisers or more
    ),
    claim=Claim(
        system="FedRec++ with additively shared uploads",
        hides="values and which named rows are real, from any proper subset of the server and "
        "the denoisers, which learn the items named and sums and counts over all clients",
        assumes="honest-but-curious parties, one of server and denoisers honest; sticky "
        "virtual items, because fresh ones let the named items be intersected over rounds",
        lossless=True,
        found="one upload tells no more than its item numbers; counts of rare items and the sums "
        "of changing cohorts are not hidden",
    ),
    simulated="shares were drawn from one keystream per denoiser; run with execution = real for "
    "the cryptography itself",
)
