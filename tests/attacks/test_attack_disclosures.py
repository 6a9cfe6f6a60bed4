"""What is known for certain is counted in persons, and judged by the truth."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from attacks import SUITE, evaluate
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.planted.controls import WHO, planted
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.measures import Figures, severity_of
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.wire import BlockStore, Truth
from tests.attacks.made import scored_by

VECTORS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
PAIRS = [(0, 0), (0, 1), (1, 1), (1, 2), (2, 3)]


def table() -> RatingTable:
    clients, items = (np.array(each) for each in zip(*PAIRS, strict=True))
    return RatingTable.from_columns(
        name="small",
        n_clients=3,
        n_items=4,
        clients=clients,
        items=items,
        ratings=np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(3),
        item_labels=np.arange(4),
    )


def figures(
    *parts: Disclosures, corrupted: frozenset[int] = frozenset(), vectors: FloatArray = VECTORS
) -> Figures:
    store = BlockStore(None)
    store.append(1, "private-user_vectors", {"values": vectors})
    claim = DisclosureClaim(parts=parts)
    return scored_by(claim, Truth(store), corrupted, train=table()).figures


def pseudonyms(
    vectors: list[list[float]],
    ties: list[tuple[int, int, float, bool]],
    *,
    solved: list[bool] | None = None,
) -> Disclosures:
    whose, items, ratings, certain = (np.array(each) for each in zip(*ties, strict=True))
    return Disclosures(
        round=1,
        names=np.full(len(vectors), -1),
        vectors=np.array(vectors),
        solved=np.array(solved or [False] * len(vectors)),
        whose=whose,
        items=items,
        ratings=ratings.astype(float),
        certain=certain.astype(bool),
    )


def test_a_pseudonym_is_the_client_whose_vector_it_has() -> None:
    found = figures(pseudonyms([[0.0, 1.0]], [(0, 1, 3.0, True), (0, 2, np.nan, True)]))
    assert found["clients_exposed"] == 1
    assert found["largest_profile"] == 1.0
    assert found["interactions_exposed"] == 2
    assert found["disclosures_wrong"] == 0


def test_clients_with_one_vector_share_a_pseudonym() -> None:
    """What is claimed of it is true of either; nobody can tell them apart."""
    told = [(0, item, np.nan, True) for item in range(4)]
    apart = figures(pseudonyms([[0.0, 1.0]], told))
    assert (apart["clients_exposed"], apart["disclosures_wrong"]) == (1, 2)
    alike = figures(pseudonyms([[0.0, 1.0]], told), vectors=np.tile([0.0, 1.0], (3, 1)))
    assert (alike["clients_exposed"], alike["disclosures_wrong"]) == (3, 0)


def test_a_direction_alone_is_the_client_who_rated_most_of_its_items() -> None:
    found = figures(pseudonyms([[0.0, 0.0]], [(0, 0, np.nan, True), (0, 1, np.nan, True)]))
    assert (found["clients_exposed"], found["interactions_exposed"]) == (1, 2)


def test_a_pseudonym_without_a_vector_is_of_whom_its_certain_claims_are_true() -> None:
    ties = [(0, 1, 3.0, True), (0, 0, np.nan, False), (0, 0, np.nan, False)]
    assert figures(pseudonyms([[0.0, 0.0]], ties))["disclosures_wrong"] == 0
    found = figures(pseudonyms([[0.0, 0.0]], [(0, 1, 2.0, True), (0, 2, np.nan, True)]))
    assert found["disclosures_wrong"] == 1, "nobody rated both so"


@pytest.mark.claim("severity-of-exposure")
def test_what_is_false_exposes_nobody_and_is_counted() -> None:
    ties = [(0, 3, np.nan, True), (0, 1, 1.0, True)]  # not rated; another rating
    found = figures(pseudonyms([[0.0, 1.0]], ties))
    assert (found["clients_exposed"], found["disclosures_wrong"]) == (0, 2)
    found = figures(pseudonyms([[0.9, 0.0]], [(0, 0, np.nan, True)], solved=[True]))
    assert (found["clients_exposed"], found["disclosures_wrong"]) == (1, 1)


def test_a_vector_exposes_its_client() -> None:
    found = figures(pseudonyms([[1.0, 1.0]], [(0, 3, np.nan, False)], solved=[True]))
    assert (found["clients_exposed"], found["interactions_exposed"]) == (1, 0)
    assert found["vectors_exposed"] == 1


def test_rows_that_are_wider_than_vectors_tell_none() -> None:
    """As of biases: directions of rows, whose clients are those who rated most of the items."""
    found = figures(pseudonyms([[0.0, 0.0, 0.0]], [(0, 0, np.nan, True), (0, 1, np.nan, True)]))
    assert (found["interactions_exposed"], found["vectors_exposed"]) == (2, 0)
    nobody = replace(Disclosures.named(1, np.array([0]), np.array([0])), vectors=np.zeros((1, 3)))
    assert figures(nobody)["disclosures_wrong"] == 0


def test_a_profile_is_of_one_pseudonym() -> None:
    """Two pseudonyms are one profile where the attack says that they are one person."""
    ties = [(0, 1, np.nan, True), (1, 2, np.nan, True)]
    apart = pseudonyms([[0.0, 1.0], [0.0, 1.0]], ties)
    assert figures(apart)["largest_profile"] == 0.5
    together = replace(apart, people=np.array([7, 7]))
    assert figures(together)["largest_profile"] == 1.0
    first, second = (
        replace(
            apart,
            whose=apart.whose[[n]],
            items=apart.items[[n]],
            ratings=apart.ratings[[n]],
            certain=apart.certain[[n]],
        )
        for n in (0, 1)
    )
    assert figures(first, second)["largest_profile"] == 0.5
    assert figures(first, second)["interactions_exposed"] == 2


def test_what_is_not_certain_is_likely_at_most() -> None:
    found = figures(pseudonyms([[1.0, 1.0]], [(0, 3, 5.0, False)]))
    assert (found["clients_exposed"], found["likely_exposed"]) == (0, 1)
    assert severity_of(found) == "info"


def test_nobody_is_exposed_to_himself() -> None:
    named = Disclosures.named(1, np.array([0, 2]), np.array([0, 3]))
    assert figures(named)["clients_exposed"] == 2
    found = figures(named, corrupted=frozenset({2}))
    assert (found["clients_exposed"], found["clients_judged"]) == (1, 2)


@pytest.mark.claim("severity-of-exposure")
@pytest.mark.parametrize(
    ("exposed", "share", "profile", "severity"),
    [
        (0, 0.0, 0.0, "info"),
        (1, 0.001, 0.1, "high"),
        (1, 0.001, 0.9, "critical"),
        (30, 0.1, 0.1, "critical"),
    ],
)
def test_one_client_is_too_many(exposed: int, share: float, profile: float, severity: str) -> None:
    told = {"clients_exposed": exposed, "clients_exposed_share": share, "largest_profile": profile}
    assert severity_of(told) == severity


def test_sums_under_masks_expose_clients_and_claim_nothing_false() -> None:
    run, truth = planted("sums")
    found = evaluate(SUITE["sum-decoding"], WHO["server"], run.transcript, truth, seed=0)
    assert (found.figures["clients_exposed"] or 0) >= 10
    assert found.figures["disclosures_wrong"] == 0
    assert found.details["expected_false_matches"] <= 2.0**-20
    assert len(found.details["exposed_clients"]) == found.figures["clients_exposed"]


def test_a_missing_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of three and more of known vectors are left, which lattice reduction would search."""
    run, truth = planted("sums")
    monkeypatch.setitem(sys.modules, "flint", None)
    found = evaluate(SUITE["sum-decoding"], WHO["server"], run.transcript, truth, seed=0)
    assert found.not_installed.endswith("pip install 'secure-fedrec[lattice]' installs it")


def test_who_knows_the_seed_names_clients_in_sums_of_several() -> None:
    """First private vectors follow from it; with them sums name their raters."""
    run, truth = planted("sums")
    server, transcript, truth = WHO["server"], run.transcript, replace(truth, seeded=True)
    blind = evaluate(SumDecoding(), server, transcript, truth, seed=0).figures
    knowing = replace(server, knows=frozenset({"seed"}))
    found = evaluate(SumDecoding(), knowing, transcript, truth, seed=0)
    assert found.details["vectors_known_beforehand"] > 0
    assert found.figures["disclosures_wrong"] == 0
    assert (found.figures["clients_exposed"] or 0) > 2 * (blind["clients_exposed"] or 0)
