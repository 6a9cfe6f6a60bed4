"""HPFL (Wu et al. 2021) among organisations: attribute vectors in sums, drafts in bags."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from attacks.suite import FAMILIES
from audits.systems.base import DataKind, Statement, System
from audits.systems.hpfl.organisations import (
    OrganisationData,
    SyntheticOrganisationData,
    load_records,
)
from secure_fedrec.algorithms.hpfl.system import HPFLConfig
from secure_fedrec.data import ORGANISATIONS
from secure_fedrec.protection import BAG_STACKS, STACKS, Claim

__all__ = ["HPFL_SYSTEM"]

_METRICS = ("accuracy", "auc", "mae", "rmse")

_KINDS: Mapping[str, DataKind] = MappingProxyType(
    {
        name: DataKind(
            settings=SyntheticOrganisationData if name == "synthetic" else OrganisationData,
            algorithm=HPFLConfig,
            metrics=_METRICS,
            secrets=("secrets",),
        )
        for name in ("synthetic", *ORGANISATIONS)
    }
)

_CLAIMS: Mapping[tuple[str, ...], Claim] = MappingProxyType(
    {
        (): Claim(
            system="HPFL's attribute vectors as published (Wu et al. 2021)",
            hides="nothing of what is sent; embeddings of users and items are sent as drafts only",
            assumes="nothing",
            lossless=True,
            found="the weight of an attribute is its number of records times epochs and accuracy: "
            "the server reads what an organisation's records are about",
        ),
        ("masking",): Claim(
            system="HPFL with attribute vectors under secure aggregation (Bonawitz et al. 2017)",
            hides="every organisation's weighted attribute vectors, from the server, which learns "
            "their sums",
            assumes=STACKS["masking",].assumes,
            lossless=True,
            found="sums of few organisations tell about each; drafts are not summed, and masks do "
            "not hide them",
        ),
        ("paillier",): Claim(
            system="HPFL with encrypted attribute vectors (Chai et al. 2021)",
            hides="every organisation's weighted attribute vectors, from the server; the sums as "
            "well, where the organisations hold the key",
            assumes=STACKS["paillier",].assumes,
            lossless=True,
            found="where an authority opens the sums, those of few organisations tell about each; "
            "drafts are not summed, and ciphertexts do not hide them",
        ),
    }
)


def _bag_claims() -> Mapping[tuple[str, ...], Claim]:
    """Those of the layers, the claim of both together written out."""
    noise, mixes = BAG_STACKS["local-dp",], BAG_STACKS["routing",]
    both = replace(
        BAG_STACKS["local-dp", "routing"],
        hides=f"{noise.hides}; {mixes.hides}; no smaller epsilon is claimed for the shuffling",
        assumes=f"for a vector: {noise.assumes}; for its owner: {mixes.assumes}",
    )
    return MappingProxyType({**BAG_STACKS, ("local-dp", "routing"): both})


def _statement(algorithm: HPFLConfig) -> Statement:
    names = {"both": "HPFL", "public": "HPFL-K", "private": "HPFL-R"}
    leaves = []
    if algorithm.shares_public:
        leaves.append(
            "attribute vectors, weighted by iterations times accuracy, for a weighted mean"
        )
    if algorithm.shares_private:
        leaves.append("drafts, cluster centres of the embeddings, for a bag")
    remark = (
        "Sending centres in the place of embeddings protects nobody by itself: the centre of a "
        "cluster of one is that member's embedding."
    )
    return Statement(
        name=f"{names[algorithm.components]}, hierarchical personalized federated learning "
        "(Wu et al. 2021)",
        stays="records, and the embedding of every user and item",
        leaves="; and ".join(leaves),
        remark=remark if algorithm.shares_private else None,
    )


def _gives_to_bags(algorithm: HPFLConfig) -> bool:
    return algorithm.shares_private


HPFL_SYSTEM = System(
    name="hpfl",
    statement=_statement,
    kinds=_KINDS,
    default_data="synthetic",
    claims=_CLAIMS,
    bag_claims=_bag_claims(),
    gives_to_bags=_gives_to_bags,
    attacks=FAMILIES["hierarchical"],
    libraries=("numba", "scikit-learn"),
    load=load_records,
)
