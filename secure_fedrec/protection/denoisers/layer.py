"""FedRec++'s denoisers as records: by themselves, and behind mixes."""

from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.base.hosting import Hosting
from secure_fedrec.protection.base.record import Claim, Layer
from secure_fedrec.protection.denoisers.config import DenoisersConfig
from secure_fedrec.protection.denoisers.embedded import DENOISED, Denoisers
from secure_fedrec.protection.denoisers.embedded_mixes import RoutedDenoisers
from secure_fedrec.protection.denoisers.hosted import HostedDenoisers
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.traits import AS_BEFORE


def _without_channel(collector: Denoisers) -> Hosting:
    """Refuse hosts, since messages between hosts have senders."""
    raise ConfigError(
        "protection",
        "denoisers",
        "assumes a channel that hides who sends, which lines between hosts do not: "
        'add the layer "routing"',
    )


DENOISERS = Layer(
    name="denoisers",
    also_called=("fedrec++", "denoising clients"),
    role="collector",
    settings=DenoisersConfig,
    build=lambda own, place: Denoisers(own, **place.table),
    hosted=_without_channel,
    traits=DENOISED,
    claim=Claim(
        system="FedRec++ at rho = 0",
        hides="the rows of the denoisers from the server, inside sums",
        assumes="nothing is hidden for ordinary clients",
        lossless=True,
        found="as federated PMF; denoisers send their own rows alone",
    ),
    published={
        ("virtual-ratings", "denoisers"): Claim(
            system="FedRec++",
            hides="the rated set, from the server, even if it colludes with denoisers",
            assumes="as FedRec, and an anonymous channel to the denoisers",
            lossless=True,
            found="broken like FedRec; collusion links every message by value, and many denoisers "
            "expose virtual rows, and themselves, to the server alone",
        ),
        ("randomized-response", "denoisers"): Claim(
            system="SDCF with denoisers",
            hides="as SDCF",
            assumes="as SDCF, and an anonymous channel to the denoisers",
            lossless=True,
            drops_reports=True,
            found="as SDCF and FedRec++",
        ),
    },
)


ROUTING = Layer(
    name="routing",
    also_called=("mixnet", "mix", "onion", "tor", "shuffler", "anonymous channel"),
    role="channel",
    settings=RoutingLayerConfig,
    build=lambda own, place: RoutedDenoisers(place.layers["denoisers"], routing=own, **place.table),
    hosted=HostedDenoisers,
    traits=AS_BEFORE,  # messages to denoisers are anonymous with or without mixes
    requires=("virtual-ratings", "denoisers"),
    claim=Claim(
        system="FedRec++ over a mix cascade",
        hides="as FedRec++; who sent what to a denoiser, from all parties on the way",
        assumes="as FedRec; one honest mix per path; mixes that replace no cells, or clients "
        "that look for theirs in the denoisers' receipts",
        lossless=True,
        found="as FedRec++: repeated rows, not the channel, are the weakness; cells do not have an "
        "authentic sender, and cells that a mix adds are not detected",
    ),
    simulated="messages lost their senders without being sealed or mixed; run with "
    "execution = real for the cryptography itself",
    uncounted="What mixes pass on to one another and their keys are not counted.",
)
