"""FedDMF (Cheung 2023) among organisations with common items, exchanged or in a protected sum."""

from types import MappingProxyType

from attacks.suite import FAMILIES
from audits.rating_data import FILE
from audits.system import DataKind, Statement, System
from audits.systems.feddmf.organisations import (
    CutData,
    CutFileData,
    FedDMFSettings,
    device,
    load_organisations,
)
from secure_fedrec.data import DATASETS
from secure_fedrec.protection import Claim, Subject, claims_about

_LEAVES = {
    "exchanged": "vectors of common items, every round, to every other organisation that has them",
    "served": "vectors of all items, every round, to every other organisation",
    "summed": "vectors of common items at length 1, summed at the server, the sum to all",
    "averaged": "vectors of common items and all layers, averaged at the server",
}


def _statement(algorithm: FedDMFSettings) -> Statement:
    remark = (
        "No layer over sums hides what one organisation gives another, and of two organisations "
        "each reads the other's part off the sum of both."
    )
    return Statement(
        name="FedDMF, deep matrix factorization among organisations (Cheung 2023)"
        if algorithm.form != "averaged"
        else "Federated Averaging of DMF, FedDMF's baseline (Cheung 2023)",
        stays="interactions and the vectors of users"
        + ("" if algorithm.form == "averaged" else ", and all layers"),
        leaves=_LEAVES[algorithm.form],
        remark=remark,
    )


_KINDS = {
    **dict.fromkeys(DATASETS, DataKind(CutData, FedDMFSettings, metrics=("auc",))),
    FILE: DataKind(CutFileData, FedDMFSettings, metrics=("auc",)),
}

SYSTEM = System(
    name="feddmf",
    statement=_statement,
    kinds=MappingProxyType(_KINDS),
    default_data="ml-100k",
    claims=claims_about(
        Subject(
            name="FedDMF",
            of=" with item vectors",
            things="item vectors",
            uploads="every organisation's vectors that go into the sum",
            sums="their sum",
            clients="organisations",
            few="of two organisations each learns the other's vectors, whatever hides the sum",
            beside="; vectors that organisations give each other are not summed, and not hidden",
        ),
        Claim(
            system="FedDMF as published (Cheung 2023)",
            hides="nothing of what is sent; no user and no user's vector is matched or sent",
            assumes="nothing",
            lossless=True,
            found="vectors of items tell the partner how often they were interacted with",
        ),
    ),
    attacks=FAMILIES["partners"],
    load=load_organisations,
    device=device,
)
