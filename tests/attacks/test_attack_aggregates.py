"""Sums of hidden uploads: what items with one rater and changing cohorts prove about clients."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import Claims, GroundTruth, NotApplicable, evaluate
from attacks.families.ratings.lattice import Lattice
from attacks.families.sums.denoisers import DenoiserExposure
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.data import SyntheticConfig
from secure_fedrec.engines import RecordedRun
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.protection import RandomizedResponseConfig, VirtualRatingsConfig
from secure_fedrec.wire import Adversary, Transcript
from secure_fedrec.wire.spool import Columns
from tests.attacks.made import predicted_of, proven_of, rated_of

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]
Cleaned = Callable[[RecordedRun, GroundTruth], Transcript]
Hidden = Callable[..., Transcript]
Edit = Callable[[int, str, Columns], Columns | None]
Rewritten = Callable[[Transcript, Edit], Transcript]

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
STICKY = VirtualRatingsConfig(rho=1.0, sticky=True)
SPARSE = SyntheticConfig(clients=60, items=600, mean_ratings=15.0, seed=11)
"""Ten items for each client: many have one rater, and many clients several of these."""
COHORT = CohortConfig(clients_per_round=20)
SMALL = SumDecoding(budget=2.0**18)
"""With a search that ends soon."""


def claims_of(transcript: Transcript) -> Claims:
    claims = SMALL.run(transcript.view(SERVER))
    assert isinstance(claims, Claims)
    return claims


def grid(claims: Claims, truth: GroundTruth) -> BoolArray:
    rated = np.zeros((truth.ratings.n_clients, truth.ratings.n_items), dtype=bool)
    rated[truth.ratings.clients, truth.ratings.items] = True
    return np.asarray(rated[rated_of(claims).clients])


def assert_true(claims: Claims, truth: GroundTruth) -> None:
    """No pair is called rated that is not, none excluded that is."""
    rated = grid(claims, truth)
    assert not (predicted_of(claims) & ~rated).any()
    lowest = rated_of(claims).scores <= 0.5
    assert not (lowest & rated & rated_of(claims).visible).any()
    assert not (proven_of(claims) & rated).any()


# --- items with one rater in masked sums ----------------------------------------------------------


def solved_parts(claims: Claims) -> list[Disclosures]:
    """What was solved of each round, beside what counts alone tell."""
    (claim,) = claims.of(DisclosureClaim)
    return [part for part in claim.parts if part.vectors.shape[1]]


@pytest.mark.parametrize("layer", ["masking", "paillier"])
def test_rows_of_items_with_one_rater_are_read_off_a_masked_sum(
    federate: Federate, hidden: Hidden, layer: str
) -> None:
    run, truth = federate(data=SPARSE)
    popularity = truth.ratings.item_popularity()
    finding = evaluate(SMALL, SERVER, hidden(run.transcript, layer), truth, seed=0)
    figures, details = finding.figures, finding.details
    singles = np.flatnonzero(popularity == 1)
    assert details["tail_items"] == len(singles)
    lone = np.isin(truth.ratings.items, singles)
    several = np.bincount(truth.ratings.clients[lone]) > 1
    assert (figures["vectors_exposed"] or 0) >= several.sum() > 20
    assert (figures["interactions_exposed"] or 0) > 0.7 * len(singles)
    assert figures["disclosures_wrong"] == 0
    # Whose they are does not follow: to the counts of one cohort, its clients are all alike.
    assert details["pseudonyms_named"] == 0
    scores = rated_of(claims_of(hidden(run.transcript, layer))).scores
    assert (scores == scores[0]).all()


@pytest.mark.parametrize(("form", "read"), [("factorized", True), ("other", False)])
def test_rows_are_decoded_by_their_form_whatever_the_algorithm_is_called(
    federate: Federate, hidden: Hidden, form: str, read: bool
) -> None:
    run, truth = federate(data=SPARSE)
    summed = hidden(run.transcript, "masking")
    told = summed.public["algorithm"]
    told = {**told, "name": "another", "traits": {**told["traits"], "form": form}}
    finding = evaluate(
        SMALL, SERVER, summed.stating({**summed.public, "algorithm": told}), truth, seed=0
    )
    assert ((finding.figures["vectors_exposed"] or 0) > 20) is read
    assert (finding.details["unsolved"] == "") is read


def test_every_payload_round_is_read(federate: Federate, hidden: Hidden) -> None:
    run, truth = federate(data=SPARSE, rounds=3, payload_rounds=(1, 3))
    claims = claims_of(hidden(run.transcript, "masking"))
    parts = solved_parts(claims)
    assert [part.round for part in parts] == [1, 3]
    single = set(np.flatnonzero(truth.ratings.item_popularity() == 1).tolist())
    for part in parts:
        assert single <= set(part.items.tolist())


@pytest.mark.claim("certain-is-right")
def test_pseudonyms_of_rounds_with_one_cohort_are_one_person(
    federate: Federate, hidden: Hidden
) -> None:
    """Who rated an item alone is the same in both; the last rater of an item is left over."""
    run, truth = federate(data=SPARSE, rounds=3, payload_rounds=(1, 3))
    masked = hidden(run.transcript, "masking")
    parts = solved_parts(claims_of(masked))
    whose: dict[int, set[int]] = {}
    for part in parts:
        assert part.people is not None
        private = truth.recorded.columns(part.round, "private-user_vectors")
        assert private is not None
        for who in np.flatnonzero(part.solved).tolist():
            off = np.linalg.norm(private["values"] - part.vectors[who], axis=1)
            whose.setdefault(int(part.people[who]), set()).add(int(off.argmin()))
    assert all(len(clients) == 1 for clients in whose.values())
    together = [set(part.people[part.solved].tolist()) for part in parts if part.people is not None]
    assert len(together[0] & together[1]) >= 0.9 * min(map(len, together)) > 20
    other, _ = federate(data=SPARSE, rounds=6, payload_rounds=(1, 4), cohort=COHORT)
    apart = solved_parts(claims_of(hidden(other.transcript, "masking")))
    people = [set(part.people.tolist()) for part in apart if part.people is not None]
    assert len(people) == 2
    assert not people[0] & people[1]


def test_a_tail_floor_leaves_no_row_to_recover(
    federate: Federate, hidden: Hidden, rewritten: Rewritten
) -> None:
    """Rows of items below the floor are not in the sum; their counts are."""
    run, truth = federate(data=SPARSE)

    def floor(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name == "aggregate":
            columns["values"][columns["counts"] < 3] = 0
        return columns

    floored = rewritten(hidden(run.transcript, "masking"), floor)
    finding = evaluate(SMALL, SERVER, floored, truth, seed=0)
    assert finding.details["tail_items"] > 100
    single = np.flatnonzero(truth.ratings.item_popularity() < 3)
    for part in solved_parts(claims_of(floored)):
        assert not np.isin(part.items, single).any()


def noised(transcript: Transcript, rewritten: Rewritten, deviation: float) -> Transcript:
    rng = np.random.default_rng(0)

    def add(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name == "aggregate":
            if "values" in columns:
                noise = rng.normal(0.0, deviation * 2.0**32, columns["values"].shape)
                columns["values"] += np.rint(noise).astype(np.int64).view(np.uint64)
            shift = rng.normal(0.0, deviation, len(columns["counts"]))
            columns["counts"] += np.rint(shift).astype(np.int64)
        return columns

    return rewritten(transcript, add)


@pytest.mark.parametrize("deviation", [0.5, 5.0])
def test_noised_sums_and_counts_prove_nothing(
    federate: Federate,
    hidden: Hidden,
    rewritten: Rewritten,
    relabelled: Hidden,
    deviation: float,
) -> None:
    run, truth = federate(data=SPARSE, rounds=6, payload_rounds=(1, 4), cohort=COHORT)
    noisy = noised(hidden(run.transcript, "masking"), rewritten, deviation)
    for public in (
        relabelled(noisy, "clip", "skellam", "masking"),
        relabelled(noisy, "masking", noise="added"),
    ):
        finding = evaluate(SMALL, SERVER, public, truth, seed=0)
        assert finding.details["counts_exact"] is False
        nothing = ("pseudonyms_named", "pairs_proven_real", "pairs_excluded")
        assert {finding.details[name] for name in nothing} == {0}
        assert "noise" in finding.details["unsolved"]
        assert finding.figures["clients_exposed"] == finding.figures["likely_exposed"] == 0


def test_counts_that_contradict_each_other_prove_nothing(
    federate: Federate, hidden: Hidden, rewritten: Rewritten
) -> None:
    """Noise that the public settings do not own up to is noticed."""
    run, truth = federate(data=SPARSE, rounds=6, payload_rounds=(1, 4), cohort=COHORT)
    noisy = noised(hidden(run.transcript, "masking"), rewritten, 2.0)
    claims = claims_of(noisy)
    assert claims.details["counts_consistent"] is False
    assert claims.details["pairs_proven_real"] == claims.details["pairs_excluded"] == 0
    assert claims.details["pseudonyms_named"] == 0
    assert len(grid(claims, truth)) == len(rated_of(claims).clients)


# --- changing cohorts -----------------------------------------------------------------------------


def test_changing_cohorts_name_raters(federate: Federate, hidden: Hidden) -> None:
    """The more rounds, the more pairs are settled, every one of them rightly."""
    data = SyntheticConfig(clients=60, items=150, mean_ratings=15.0, seed=3)
    settled, aucs = [], []
    for rounds in (1, 10, 40, 70):
        run, truth = federate(data=data, rounds=rounds, cohort=COHORT, payload_rounds=(1,))
        masked = hidden(run.transcript, "masking")
        claims = claims_of(masked)
        assert_true(claims, truth)
        settled.append(claims.details["pairs_proven_real"] + claims.details["pairs_excluded"])
        finding = evaluate(SMALL, SERVER, masked, truth, seed=0)
        aucs.append(finding.figures["auc"] or 0.0)
        assert finding.null_control is not None
        assert finding.null_control["passed"]
        assert finding.figures["disclosures_wrong"] == 0
        exposed = finding.figures["interactions_exposed"] or 0
        assert exposed >= claims.details["pairs_proven_real"]
    assert settled == sorted(settled)
    assert aucs == sorted(aucs)
    # Seventy cohorts of sixty clients: as many equations as unknowns.
    assert aucs[-1] == 1.0
    assert settled[-1] == 60 * 150


def test_shared_uploads_under_full_participation_give_counts_alone(
    federate: Federate, cleaned: Cleaned, hidden: Hidden
) -> None:
    run, truth = federate(data=SPARSE, cloak=STICKY, rounds=4, payload_rounds=(1, 4))
    claims = claims_of(hidden(cleaned(run, truth), "shared-upload"))
    assert_true(claims, truth)
    assert claims.details["cohorts"] == 1
    rated = grid(claims, truth)
    counts, supports = rated.sum(axis=0), rated_of(claims).visible.sum(axis=0)
    # Settled are items whose count says it all (nobody, or everybody who shows the item), and what
    # follows from the names of those whom one client alone can be.
    settled = predicted_of(claims) | proven_of(claims)
    by_count = rated_of(claims).visible & ((counts == 0) | (counts == supports))
    assert settled[by_count].all()
    assert claims.details["pseudonyms_named"] > 0


def test_shared_uploads_of_changing_cohorts_fall(
    federate: Federate, cleaned: Cleaned, hidden: Hidden
) -> None:
    data = SyntheticConfig(clients=60, items=150, mean_ratings=15.0, seed=3)
    run, truth = federate(data=data, cloak=STICKY, rounds=20, payload_rounds=(1, 10), cohort=COHORT)
    shared = hidden(cleaned(run, truth), "shared-upload")
    assert_true(claims_of(shared), truth)
    finding = evaluate(SMALL, SERVER, shared, truth, seed=0)
    inside, prior = finding.figures["support_auc"], finding.figures["support_prior_auc"]
    assert inside is not None
    assert prior is not None
    assert inside > prior + 0.2
    assert finding.figures["precision"] == 1.0
    assert finding.figures["wrongly_unmasked_share"] == 0.0
    assert finding.figures["disclosures_wrong"] == 0
    assert finding.details["pseudonyms_named"] > 0


@pytest.mark.claim("certain-is-right")
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    cloak=st.sampled_from([None, STICKY, VirtualRatingsConfig(rho=2.0)]),
    rank=st.sampled_from([1, 2, 3, 8]),
    cohort=st.sampled_from([None, 8, 20]),
    rounds=st.integers(1, 8),
)
def test_nothing_false_is_proven_from_hidden_uploads(
    federate: Federate,
    cleaned: Cleaned,
    hidden: Hidden,
    seed: int,
    cloak: VirtualRatingsConfig | None,
    rank: int,
    cohort: int | None,
    rounds: int,
) -> None:
    run, truth = federate(
        data=SyntheticConfig(clients=30, items=80, mean_ratings=8.0, seed=seed),
        algorithm=PMFConfig.printed(rank=rank, rounds=rounds),
        cloak=cloak,
        rounds=rounds,
        payload_rounds=tuple(range(1, rounds + 1)),
        cohort=None if cohort is None else CohortConfig(clients_per_round=cohort),
        seed=seed,
    )
    layers = ("masking", "paillier") if cloak is None else ("shared-upload",)
    for layer in layers:
        transcript = hidden(run.transcript if cloak is None else cleaned(run, truth), layer)
        assert_true(claims_of(transcript), truth)
        figures = evaluate(SMALL, SERVER, transcript, truth, seed=0).figures
        assert figures["disclosures_wrong"] == 0


def test_dropped_reports_exclude_nobody(
    federate: Federate, cleaned: Cleaned, hidden: Hidden
) -> None:
    """Under randomized response a rater can be missing from a count of 0."""
    run, truth = federate(cloak=RandomizedResponseConfig(), rounds=4, payload_rounds=(1,))
    claims = claims_of(hidden(cleaned(run, truth), "shared-upload"))
    assert not proven_of(claims).any()
    assert claims.details["pairs_proven_real"] == 0


# --- views that lack what is needed ---------------------------------------------------------------


def test_hidden_uploads_without_an_aggregate_are_not_applicable(
    federate: Federate, hidden: Hidden, rewritten: Rewritten
) -> None:
    """As where the clients hold the key: the server never sees the sum."""
    run, _ = federate(data=SPARSE)

    def drop(round_: int, name: str, columns: Columns) -> Columns | None:
        del round_
        return None if name == "aggregate" else columns

    claims = SMALL.run(rewritten(hidden(run.transcript, "paillier"), drop).view(SERVER))
    assert claims == NotApplicable(reason="no round has both uploads and an aggregate")


def test_without_payloads_counts_still_speak(
    federate: Federate, hidden: Hidden, rewritten: Rewritten
) -> None:
    run, truth = federate(data=SPARSE, rounds=6, payload_rounds=(1,), cohort=COHORT)

    def drop(round_: int, name: str, columns: Columns) -> Columns:
        del round_, name
        columns.pop("values", None)
        return columns

    claims = claims_of(rewritten(hidden(run.transcript, "masking"), drop))
    assert not solved_parts(claims)
    assert claims.details["pairs_excluded"] > 0
    assert_true(claims, truth)


def test_rows_are_not_decoded_without_the_public_table(federate: Federate, hidden: Hidden) -> None:
    """Where the model is hidden from the server, its rows stay rows."""
    run, _ = federate(data=SPARSE)
    transcript = hidden(run.transcript, "paillier")
    blind = Transcript(transcript._store, {**transcript.public, "model_hidden_from": ["server"]})
    claims = claims_of(blind)
    assert claims.details["tail_items"] > 0
    assert claims.details["unsolved"] == "the view holds no public table"
    assert not solved_parts(claims)
    assert Lattice().run(blind.view(SERVER)) == NotApplicable(
        reason="the view holds no public table"
    )


def test_shares_of_denoisers_expose_no_row_of_their_own(
    federate: Federate, relabelled: Hidden
) -> None:
    run, _ = federate(cloak=VirtualRatingsConfig(rho=1.0), denoisers=10)
    shared = relabelled(run.transcript, "shared-upload", denoisers=[1, 2])
    claims = DenoiserExposure().run(shared.view(SERVER))
    assert isinstance(claims, NotApplicable)
    assert "shares" in claims.reason
