"""Which layers stack, and what each stack hides from whom.

One table for the rows that are summed, one for the vectors that are collected in bags; both are
shared by the configuration reader, SECURITY.md and the tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from secure_fedrec.errors import ConfigError

__all__ = ["BAG_STACKS", "STACKS", "Claim", "require_bags_compatible", "require_compatible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a stack promises.

    Args:
        system: the published system it amounts to: over PMF, or in a bag over HPFL.
        hides: what it is meant to hide, and from whom.
        assumes: under which assumptions.
        lossless: whether the public table (of a bag: the bag) equals the plain twin's, bit for bit.
        drops_reports: whether its cloak leaves rows of rated items out: it is lossless relative to
            what it reports, at most.
        found: what the attack suite shows, in one sentence.
    """

    system: str
    hides: str
    assumes: str
    lossless: bool
    found: str
    drops_reports: bool = False


STACKS: Mapping[tuple[str, ...], Claim] = MappingProxyType(
    {
        (): Claim(
            system="federated PMF",
            hides="nothing",
            assumes="nothing",
            lossless=True,
            found="the server reads rated set, ratings and user vector from one upload",
        ),
        ("virtual-ratings",): Claim(
            system="FedRec",
            hides="the rated set, from the server",
            assumes="an honest-but-curious server that keeps no history and looks at item numbers "
            "only",
            lossless=False,
            found="broken by the lattice decode of one upload and by intersecting rounds",
        ),
        ("virtual-ratings", "denoisers"): Claim(
            system="FedRec++",
            hides="the rated set, from the server, even if it colludes with denoisers",
            assumes="as FedRec, and an anonymous channel to the denoisers",
            lossless=True,
            found="broken like FedRec; collusion links every message by value, and many denoisers "
            "expose virtual rows, and themselves, to the server alone",
        ),
        ("virtual-ratings", "denoisers", "routing"): Claim(
            system="FedRec++ over a mix cascade",
            hides="as FedRec++; who sent what to a denoiser, from everybody on the way",
            assumes="as FedRec; one honest mix per path; mixes that replace no cells, or clients "
            "that look for theirs in the denoisers' receipts",
            lossless=True,
            found="as FedRec++: the channel was not the weak place, the repeated rows are; cells "
            "have no authentic sender, and what a mix puts in besides is not detected",
        ),
        ("virtual-ratings", "linkage-hardened"): Claim(
            system="FedRec++ with linkage-hardened denoisers",
            hides="which client sent a virtual row to the denoisers, and its values, from all but "
            "one of the denoisers; who sent a cell, from the mixes but one of each path and from "
            "whoever watches the lines; from the server, nothing",
            assumes="honest-but-curious parties, one honest mix per path, one honest denoiser; a "
            "server that tells nobody what it reads; clients that look for their cells in the "
            "denoisers' receipts, since a mix can replace them",
            lossless=True,
            found="the server needs no link: the sums and counts of the virtual rows of an item, "
            "beside all rows under their senders' names, name the virtual ones",
        ),
        ("virtual-ratings", "shared-upload"): Claim(
            system="FedRec++ with additively shared uploads",
            hides="values and which named rows are real, from any proper subset of the server and "
            "the denoisers, which learn the items named and sums and counts over all clients",
            assumes="honest-but-curious parties, one of server and denoisers honest; sticky "
            "virtual items, because fresh ones let the named items be intersected over rounds",
            lossless=True,
            found="one upload tells no more than its item numbers; counts of rare items and the "
            "sums of changing cohorts stay what they are",
        ),
        ("randomized-response",): Claim(
            system="SDCF",
            hides="the rated set, from the server, as local randomized response of each round",
            assumes="an honest-but-curious server",
            lossless=False,
            drops_reports=True,
            found="fresh reports add up over rounds",
        ),
        ("randomized-response", "denoisers"): Claim(
            system="SDCF with denoisers",
            hides="as SDCF",
            assumes="as SDCF, and an anonymous channel to the denoisers",
            lossless=True,
            drops_reports=True,
            found="as SDCF and FedRec++",
        ),
        ("masking",): Claim(
            system="federated PMF under secure aggregation (Bonawitz et al. 2017)",
            hides="every upload, from the server, which learns sums and counts per item",
            assumes="a roster of signing keys that the server did not choose, and at most the "
            "configured share of clients working with the server",
            lossless=True,
            found="one upload tells nothing; an item with a single rater is that rater's row in "
            "the sum, whoever it is, unless the tail floor keeps it back from a curious server; "
            "sums of different cohorts can be subtracted",
        ),
        ("clip", "skellam", "masking"): Claim(
            system="federated PMF with distributed differential privacy (Agarwal et al. 2021)",
            hides="a client's whole contribution, rows and counts, from the server and from "
            "whoever sees the model, up to the stated epsilon and delta",
            assumes="as masking; at most the configured number of clients reveal their noise",
            lossless=False,
            found="counts and tail rows are estimates; what is paid is accuracy",
        ),
        ("paillier",): Claim(
            system="FedMF (Chai et al. 2021) with all rows encrypted",
            hides="every upload, from the server; the sums as well, where the clients hold the key",
            assumes="an honest-but-curious server that does not collude with a holder of the key",
            lossless=True,
            found="as masking where an authority opens the sums",
        ),
        ("denoisers",): Claim(
            system="FedRec++ at rho = 0",
            hides="the rows of the denoisers from the server, inside sums",
            assumes="nothing is hidden for ordinary clients",
            lossless=True,
            found="as federated PMF; denoisers send their own rows alone",
        ),
    }
)
"""Claim by stack of layer names, over rows that are summed."""

BAG_STACKS: Mapping[tuple[str, ...], Claim] = MappingProxyType(
    {
        (): Claim(
            system="HPFL's drafts as published (Wu et al. 2021)",
            hides="nothing",
            assumes="nothing",
            lossless=True,
            found="the server reads every vector and whose it is; a draft of one member is that "
            "member's representation",
        ),
        ("local-dp",): Claim(
            system="drafts with local differential privacy",
            hides="every vector, from everybody, up to the stated epsilon and delta of one vector, "
            "and of all vectors of a client",
            assumes="nothing of the others; the client's own generator",
            lossless=False,
            found="the server knows whose noisy vector is whose: averages over rounds take the "
            "noise off, which is what the price over all rounds says",
        ),
        ("routing",): Claim(
            system="drafts over a mix cascade",
            hides="whose a vector is, which vectors are of one client, and how many a client "
            "gives, from the server and from whoever watches the lines",
            assumes="one honest mix per path; clients that do not all but one work together, and "
            "look for their cells in the server's receipts, since a mix can replace them",
            lossless=True,
            found="values stay: a vector close to one of an earlier round, or one that only a "
            "certain client could give, names its owner; cells have no authentic sender",
        ),
        ("local-dp", "routing"): Claim(
            system="noisy drafts over a mix cascade",
            hides="as local-dp and as routing; no smaller epsilon is claimed for the shuffling",
            assumes="as routing for the owner, as local-dp for the vector",
            lossless=False,
            found="noise covers the closeness of vectors over rounds up to its price",
        ),
    }
)
"""Claim by stack of layer names, over vectors that are collected in bags."""


def require_compatible(layers: tuple[str, ...]) -> Claim:
    """The claim of a stack over rows.

    Raises:
        ConfigError: the layers do not stack in this order.
    """
    return _claim_of(layers, STACKS, "protection", "these layers do not stack")


def require_bags_compatible(layers: tuple[str, ...]) -> Claim:
    """The claim of a stack over bags.

    Raises:
        ConfigError: the layers do not stack in this order, or hide sums, which bags have none of.
    """
    problem = "these layers do not stack over bags"
    if not {"masking", "paillier"}.isdisjoint(layers):
        problem = "hides what is summed, and nothing in a bag is"
    return _claim_of(layers, BAG_STACKS, "bag_protection", problem)


def _claim_of(
    layers: tuple[str, ...], table: Mapping[tuple[str, ...], Claim], key: str, problem: str
) -> Claim:
    if layers not in table:
        choices = [" + ".join(stack) if stack else "none" for stack in table]
        raise ConfigError(key, " + ".join(layers), problem, choices)
    return table[layers]
