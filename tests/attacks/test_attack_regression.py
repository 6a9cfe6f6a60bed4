"""Subset regression: the exact sum of the real rows gives the virtual ones away."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attacks.families.sums.regression as regression
from attacks import Claims, Finding, GroundTruth, NotApplicable, evaluate
from attacks.families.sums.equations import fit_bits
from attacks.families.sums.regression import SubsetRegression
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.data import SyntheticConfig
from secure_fedrec.engines import RecordedRun
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import RandomizedResponseConfig, VirtualRatingsConfig
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, Step, Transcript
from secure_fedrec.wire.spool import Columns
from tests.attacks.made import predicted_of, proven_of, rated_of

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]
Cleaned = Callable[[RecordedRun, GroundTruth], Transcript]
Edit = Callable[[int, str, Columns], Columns | None]
Rewritten = Callable[[Transcript, Edit], Transcript]

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
STICKY = VirtualRatingsConfig(rho=1.0, sticky=True)
DENSE = SyntheticConfig(clients=120, items=60, mean_ratings=15.0, seed=5)
"""Sixty uploads an item: one round of six equations is far from enough."""


def every(rounds: int) -> tuple[int, ...]:
    return tuple(range(1, rounds + 1))


def solved(view_of: Transcript) -> Claims:
    claims = SubsetRegression().run(view_of.view(SERVER))
    assert isinstance(claims, Claims)
    return claims


def grid(claims: Claims, truth: GroundTruth) -> BoolArray:
    rated = np.zeros((truth.ratings.n_clients, truth.ratings.n_items), dtype=bool)
    rated[truth.ratings.clients, truth.ratings.items] = True
    return np.asarray(rated[rated_of(claims).clients])


def curve(finding: Finding) -> dict[int, float]:
    told = finding.details["auc_by_rounds"]
    return {int(rounds): figures["support_auc"] for rounds, figures in told.items()}


# --- the equations --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    equations=st.integers(1, 40),
    bits=st.integers(1, 25),
    seed=st.integers(0, 1000),
    share=st.floats(0, 1),
)
def test_fitted_bits_are_the_smallest_change_that_explains_the_sums(
    equations: int, bits: int, seed: int, share: float
) -> None:
    """Against the pseudo-inverse, in both forms of the normal equations."""
    rng = np.random.default_rng(seed)
    design = rng.standard_normal((equations, bits))
    truth = rng.random(bits) < share
    found = fit_bits(design, design @ truth, expected=share)
    prior = min(max(share, 1e-3), 1 - 1e-3)
    expected = prior + np.linalg.pinv(design) @ (design @ (truth - prior))
    # Nearly square systems can be badly conditioned; the sums must be explained in any case.
    assert np.abs(design @ (found - truth)).max() < 1e-3 * bits
    if not 0.7 < equations / bits < 1.5:
        np.testing.assert_allclose(found, expected, atol=1e-4)
    if equations > 1.5 * bits:
        np.testing.assert_array_equal(found, truth)


def test_noise_pulls_bits_towards_what_was_expected() -> None:
    rng = np.random.default_rng(1)
    design, truth = rng.standard_normal((30, 10)), np.arange(10) % 2.0
    sums = design @ truth
    pulls = [np.abs(fit_bits(design, sums, expected=0.5, noise=n) - 0.5) for n in (0.0, 5.0, 1e9)]
    np.testing.assert_array_equal(pulls[0], 0.5)
    assert (pulls[1] < pulls[0]).all()
    np.testing.assert_allclose(pulls[2], 0.0, atol=1e-6)


def test_no_equation_leaves_what_was_expected() -> None:
    np.testing.assert_array_equal(fit_bits(np.empty((0, 3)), np.empty(0), expected=0.25), 0.25)
    assert fit_bits(np.empty((2, 0)), np.zeros(2), expected=0.25).shape == (0,)
    zeros = fit_bits(np.zeros((2, 3)), np.zeros(2), expected=0.25)
    np.testing.assert_array_equal(zeros, 0.25)


def test_equations_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        fit_bits(np.array([[1.0, np.nan]]), np.ones(1), expected=0.5)


# --- the attack -----------------------------------------------------------------------------------


def test_sticky_virtual_ratings_fall_within_ten_rounds(federate: Federate) -> None:
    """Item numbers tell nothing here; 6 equations a round settle some 55 uploads an item."""
    run, truth = federate(
        data=DENSE, cloak=STICKY, denoisers=1, rounds=12, payload_rounds=every(12)
    )
    finding = evaluate(SubsetRegression(), SERVER, run.transcript, truth, seed=0)
    by_rounds = curve(finding)
    assert list(by_rounds) == [1, 2, 5, 10, 12]
    assert by_rounds[1] < 0.85
    assert by_rounds[10] >= 0.95
    assert list(by_rounds.values()) == sorted(by_rounds.values())
    assert finding.figures["support_auc"] == by_rounds[12]
    assert finding.figures["precision"] == 1.0
    assert finding.figures["wrongly_unmasked_share"] == 0.0
    assert finding.null_control is not None
    assert finding.null_control["passed"]


def test_without_unseen_rows_every_item_is_proven(federate: Federate, cleaned: Cleaned) -> None:
    run, truth = federate(data=DENSE, cloak=STICKY, rounds=12, payload_rounds=every(12))
    claims = solved(cleaned(run, truth))
    rated = grid(claims, truth)
    np.testing.assert_array_equal(predicted_of(claims), rated)
    np.testing.assert_array_equal(proven_of(claims), rated_of(claims).visible & ~rated)
    assert claims.details["items_proven"] == claims.details["items"]
    assert claims.details["pairs_proven_real"] == int(rated.sum())


def test_unrelated_sums_tell_nothing(
    federate: Federate, cleaned: Cleaned, rewritten: Rewritten
) -> None:
    """The same uploads beside the sums of other items: chance, and no proof."""
    run, truth = federate(data=DENSE, cloak=STICKY, rounds=12, payload_rounds=every(12))

    def roll(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name == "aggregate":
            for column in ("values", "counts"):
                columns[column] = np.roll(columns[column], 7, axis=0)
        return columns

    rolled = rewritten(cleaned(run, truth), roll)
    finding = evaluate(SubsetRegression(), SERVER, rolled, truth, seed=0)
    assert finding.details["items_proven"] == 0
    inside = finding.figures["support_auc"]
    assert inside is not None
    assert abs(inside - 0.5) < 0.05


@pytest.mark.parametrize(("column", "place"), [("values", (17, 2)), ("counts", (17,))])
def test_a_sum_off_by_one_unit_proves_nothing_about_its_item(
    federate: Federate,
    cleaned: Cleaned,
    rewritten: Rewritten,
    column: str,
    place: tuple[int, ...],
) -> None:
    """The substitution is exact: the last bit of one coordinate counts, and so does a count."""
    run, truth = federate(data=DENSE, cloak=STICKY, rounds=12, payload_rounds=every(12))

    def nudge(round_: int, name: str, columns: Columns) -> Columns:
        if name == "aggregate" and round_ == 4:
            columns[column][place] += 1
        return columns

    before = solved(cleaned(run, truth))
    after = solved(rewritten(cleaned(run, truth), nudge))
    assert after.details["items_proven"] == before.details["items_proven"] - 1
    assert not predicted_of(after)[:, 17].any()
    # The estimates do not hang on the last bit.
    np.testing.assert_array_equal(
        rated_of(after).scores[:, 17] > 2.5, rated_of(before).scores[:, 17] > 2.5
    )


def test_fresh_virtual_items_are_cleared_by_their_absence(
    federate: Federate, cleaned: Cleaned
) -> None:
    """What is missing from one upload is virtual, and no unknown of the equations any more."""
    fresh = VirtualRatingsConfig(rho=2.0)
    run, truth = federate(data=DENSE, cloak=fresh, rounds=3, payload_rounds=(2, 3))
    claims = solved(cleaned(run, truth))
    rated = grid(claims, truth)
    uploads = np.zeros(rated.shape)
    for round_ in (1, 2, 3):  # round 1 has no payloads; its item numbers count all the same
        messages = run.transcript.view(SERVER).messages(Step.UPLOAD, round_)
        assert isinstance(messages.payload, RowBlock)
        for client, part in zip(messages.senders.ids, messages.payload.split(), strict=True):
            uploads[client, part.rows] += 1
    missing = (uploads > 0) & (uploads < 3)
    assert missing.sum() > 1000
    assert proven_of(claims)[missing].all()
    assert not (proven_of(claims) & rated).any()


def test_changing_cohorts_give_equations_too(federate: Federate, cleaned: Cleaned) -> None:
    run, truth = federate(
        data=DENSE,
        cloak=STICKY,
        rounds=20,
        payload_rounds=every(20),
        cohort=CohortConfig(clients_per_round=50),
    )
    claims = solved(cleaned(run, truth))
    rated = grid(claims, truth)
    assert not (predicted_of(claims) & ~rated).any()
    assert not (proven_of(claims) & rated).any()
    assert predicted_of(claims)[rated].mean() > 0.9


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    eta=st.sampled_from([1, 5, 15]),
    rho=st.sampled_from([0.0, 1.0, 3.0]),
    sticky=st.booleans(),
    rank=st.sampled_from([1, 2, 8]),
    codec=st.sampled_from([FixedPoint(), FixedPoint(bits=32, fraction_bits=8, clip=16.0)]),
    cohort=st.sampled_from([None, 25]),
)
def test_nothing_false_is_ever_proven_by_equations(
    federate: Federate,
    seed: int,
    eta: int,
    rho: float,
    sticky: bool,
    rank: int,
    codec: FixedPoint,
    cohort: int | None,
) -> None:
    """Denoisers' own rows are in the sums and in no upload: no item they touch may be proven."""
    run, truth = federate(
        data=SyntheticConfig(clients=40, items=60, mean_ratings=8.0, seed=seed),
        algorithm=PMFConfig.printed(rank=rank, rounds=3),
        cloak=VirtualRatingsConfig(rho=rho, sticky=sticky),
        denoisers=eta,
        codec=codec,
        rounds=3,
        payload_rounds=(1, 2, 3),
        cohort=None if cohort is None else CohortConfig(clients_per_round=cohort),
        seed=seed,
    )
    claims = SubsetRegression().run(run.transcript.view(SERVER))
    if isinstance(claims, NotApplicable):
        assert not all(report.participants for report in run.history)
        return
    rated = grid(claims, truth)
    assert not (predicted_of(claims) & ~rated).any()
    assert not (proven_of(claims) & rated).any()
    assert not (proven_of(claims) & ~rated_of(claims).visible).any()


def test_few_bits_prove_nothing_by_equations(federate: Federate, cleaned: Cleaned) -> None:
    """In a coarse ring many subsets have the same sum: one that fits is no proof."""
    coarse = FixedPoint(bits=32, fraction_bits=4, clip=16.0)
    run, truth = federate(data=DENSE, cloak=STICKY, rounds=2, payload_rounds=(1, 2), codec=coarse)
    assert solved(cleaned(run, truth)).details["items_proven"] == 0


def test_small_blocks_give_the_same_claims(
    federate: Federate, cleaned: Cleaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, truth = federate(data=DENSE, cloak=STICKY, rounds=12, payload_rounds=every(12))
    transcript = cleaned(run, truth)
    whole = solved(transcript)
    monkeypatch.setattr(regression, "_BLOCK_BYTES", 100_000)
    parts = solved(transcript)
    np.testing.assert_array_equal(rated_of(parts).scores, rated_of(whole).scores)
    np.testing.assert_array_equal(predicted_of(parts), predicted_of(whole))


# --- where there are no equations -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("cloak", "denoisers", "corrupt", "match"),
    [
        (STICKY, 5, "denoisers", "no uploads"),
        (STICKY, 5, "client:3", "no aggregate"),
        (STICKY, 0, "server", "still contains the virtual rows"),
        (RandomizedResponseConfig(), 5, "server", "drawn afresh"),
    ],
)
def test_a_protocol_without_equations_is_not_applicable(
    federate: Federate,
    cloak: VirtualRatingsConfig | RandomizedResponseConfig,
    denoisers: int,
    corrupt: str,
    match: str,
) -> None:
    run, _ = federate(cloak=cloak, denoisers=denoisers)
    who = Adversary(name="partial", corrupt=frozenset({corrupt}))
    claims = SubsetRegression().run(run.transcript.view(who))
    assert isinstance(claims, NotApplicable)
    assert match in claims.reason


@pytest.mark.parametrize(
    ("layer", "stated", "match"),
    [
        ("shared-upload", {}, "hidden"),
        ("masking", {}, "hidden"),
        ("denoisers", {"noise": "added"}, "carries noise"),
    ],
)
def test_public_settings_decide_whether_there_are_equations(
    federate: Federate,
    relabelled: Callable[..., Transcript],
    layer: str,
    stated: dict[str, str],
    match: str,
) -> None:
    run, _ = federate(cloak=STICKY, denoisers=1)
    claims = SubsetRegression().run(relabelled(run.transcript, layer, **stated).view(SERVER))
    assert isinstance(claims, NotApplicable)
    assert match in claims.reason


@pytest.mark.parametrize("lost", ["upload", "aggregate"])
def test_a_round_without_all_payloads_gives_no_equation(
    federate: Federate, rewritten: Rewritten, lost: str
) -> None:
    run, _ = federate(cloak=STICKY, denoisers=1)

    def drop(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name == lost:
            del columns["values"]
        return columns

    claims = SubsetRegression().run(rewritten(run.transcript, drop).view(SERVER))
    assert isinstance(claims, NotApplicable)
    assert "no round has payloads" in claims.reason


def test_payloads_of_some_senders_give_no_equation(federate: Federate) -> None:
    run, _ = federate(cloak=STICKY, denoisers=1, payload_senders=(3, 9, 40))
    claims = SubsetRegression().run(run.transcript.view(SERVER))
    assert isinstance(claims, NotApplicable)
    assert "of every one of its uploads" in claims.reason
