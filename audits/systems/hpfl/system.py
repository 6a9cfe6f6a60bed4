"""HPFL (Wu et al. 2021) among organisations: attribute vectors in sums, drafts in bags."""

from collections.abc import Mapping
from types import MappingProxyType

from attacks.suite import FAMILIES
from audits.system import DataKind, Statement, System
from audits.systems.hpfl.organisations import (
    OrganisationData,
    SyntheticOrganisationData,
    device,
    load_records,
)
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.data import ORGANISATIONS
from secure_fedrec.protection import BAG_STACKS, Claim, Subject, claims_about

_METRICS = ("accuracy", "auc", "mae", "rmse")

_KINDS: Mapping[str, DataKind] = MappingProxyType(
    {
        "synthetic": DataKind(SyntheticOrganisationData, HPFLConfig, _METRICS),
        **dict.fromkeys(ORGANISATIONS, DataKind(OrganisationData, HPFLConfig, _METRICS)),
    }
)

_CLAIMS = claims_about(
    Subject(
        name="HPFL",
        of=" with attribute vectors",
        things="attribute vectors",
        uploads="every organisation's weighted attribute vectors",
        sums="their sums",
        clients="organisations",
        few="sums of few organisations tell about each",
        beside="; drafts are not summed, and not hidden with the sums",
    ),
    Claim(
        system="HPFL's attribute vectors as published (Wu et al. 2021)",
        hides="nothing of what is sent; embeddings of users and items are sent as drafts only",
        assumes="nothing",
        lossless=True,
        found="the weight of an attribute is its number of records times epochs and accuracy: "
        "the server reads what an organisation's records are about",
    ),
)


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
        "Sending centres in the place of embeddings does not protect by itself: the centre of a "
        "cluster of one is that member's embedding."
    )
    return Statement(
        name=f"{names[algorithm.components]}, hierarchical personalized federated learning "
        "(Wu et al. 2021)",
        stays="records, and the embedding of every user and item",
        leaves="; and ".join(leaves),
        remark=remark if algorithm.shares_private else None,
    )


SYSTEM = System(
    name="hpfl",
    statement=_statement,
    kinds=_KINDS,
    default_data="synthetic",
    claims=_CLAIMS,
    bag_claims=BAG_STACKS,
    gives_to_bags=lambda algorithm: bool(algorithm.shares_private),
    attacks=FAMILIES["hierarchical"],
    libraries=("numba", "scikit-learn"),
    load=load_records,
    device=device,
)
