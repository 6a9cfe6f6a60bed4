"""What sums and counts prove: every claim called proven must be true, and none is made blindly."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import Attack, Claims, GroundTruth, NotApplicable, evaluate
from attacks.families.sums.denoisers import DenoiserExposure, DenoiserSums
from attacks.families.sums.sum_decoding import SumDecoding
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.data import SyntheticConfig
from secure_fedrec.engines import RecordedRun
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import RandomizedResponseConfig, VirtualRatingsConfig
from secure_fedrec.wire import Adversary, Transcript
from secure_fedrec.wire.spool import Columns
from tests.attacks.made import predicted_of, proven_of, rated_of

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]
Edit = Callable[[int, str, Columns], Columns | None]
Rewritten = Callable[[Transcript, Edit], Transcript]
InShares = Callable[[RecordedRun, GroundTruth], Transcript]
Cloak = VirtualRatingsConfig | RandomizedResponseConfig

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
CODECS = (FixedPoint(), FixedPoint(bits=32, fraction_bits=20, clip=16.0))
CLOAKS: tuple[Cloak, ...] = (
    VirtualRatingsConfig(rho=0.0),
    VirtualRatingsConfig(rho=1.0),
    VirtualRatingsConfig(rho=1.0, filling="predicted"),
    VirtualRatingsConfig(rho=3.0),
    RandomizedResponseConfig(),
)


def claims_of(attack: Attack, run: RecordedRun, adversary: Adversary = SERVER) -> Claims:
    claims = attack.run(run.transcript.view(adversary))
    assert isinstance(claims, Claims)
    return claims


def truth_of(claims: Claims, truth: GroundTruth) -> BoolArray:
    grid = np.zeros((truth.ratings.n_clients, truth.ratings.n_items), dtype=bool)
    grid[truth.ratings.clients, truth.ratings.items] = True
    return np.asarray(grid[rated_of(claims).clients])


def proven(claims: Claims) -> tuple[BoolArray, BoolArray]:
    """Pairs claimed to be real, and visible pairs claimed to be virtual."""
    return predicted_of(claims), proven_of(claims)


# --- proofs ---------------------------------------------------------------------------------------


@pytest.mark.claim("nothing-false-is-proven")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    eta=st.sampled_from([1, 2, 5, 10, 20]),
    cloak=st.sampled_from(CLOAKS),
    rank=st.sampled_from([1, 2, 3, 8]),
    codec=st.sampled_from(CODECS),
    cohort=st.sampled_from([None, 15, 30]),
)
def test_nothing_false_is_ever_proven(
    federate: Federate,
    seed: int,
    eta: int,
    cloak: Cloak,
    rank: int,
    codec: FixedPoint,
    cohort: int | None,
) -> None:
    run, truth = federate(
        data=SyntheticConfig(clients=40, items=60, mean_ratings=8.0, seed=seed),
        algorithm=PMFConfig.printed(rank=rank, rounds=1),
        cloak=cloak,
        denoisers=eta,
        codec=codec,
        cohort=None if cohort is None else CohortConfig(clients_per_round=cohort),
        seed=seed,
    )
    for attack in (SumDecoding(), DenoiserSums(), DenoiserExposure()):
        claims = attack.run(run.transcript.view(SERVER))
        if isinstance(claims, NotApplicable):
            empty_round = not run.history[0].participants
            few_bits = attack.name == "denoiser-sums" and rank < 8
            assert empty_round or few_bits
            continue
        rated = truth_of(claims, truth)
        real, virtual = proven(claims)
        assert not (real & ~rated).any(), attack.name
        assert not (virtual & rated).any(), attack.name
        assert not (virtual & ~rated_of(claims).visible).any(), attack.name
        assert not (real & virtual).any(), attack.name


@pytest.mark.parametrize(
    ("rank", "codec"),
    [(1, FixedPoint()), (3, FixedPoint(bits=32, fraction_bits=8, clip=16.0))],
    ids=["one-dimension", "coarse-ring"],
)
def test_rows_of_few_bits_prove_nothing(federate: Federate, rank: int, codec: FixedPoint) -> None:
    """In one dimension all rows are collinear; in a coarse ring different rows add up alike."""
    run, _ = federate(
        algorithm=PMFConfig.printed(rank=rank, rounds=1),
        cloak=VirtualRatingsConfig(rho=1.0),
        denoisers=20,
        codec=codec,
    )
    claims = DenoiserSums().run(run.transcript.view(SERVER))
    assert claims == NotApplicable(reason="rows hold too few bits to be told apart in sums")


# --- items with one rater -------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [1, 10, 30])
def test_counts_of_one_and_none_settle_readable_uploads(federate: Federate, eta: int) -> None:
    """Count 1: one upload of the item is real and the rest virtual. Count 0: all are virtual."""
    run, truth = federate(cloak=VirtualRatingsConfig(rho=2.0), denoisers=eta)
    claims = claims_of(SumDecoding(), run)
    popularity = truth.ratings.item_popularity()
    settled = rated_of(claims).visible & (popularity <= 1)
    rated = truth_of(claims, truth)
    real, virtual = proven(claims)
    np.testing.assert_array_equal(real, settled & rated)
    np.testing.assert_array_equal(virtual, settled & ~rated)
    assert claims.details["tail_items"] == int(np.sum(popularity == 1))
    assert claims.details["rows_proven_real"] == int(real.sum())
    assert claims.details["rows_proven_virtual"] == int(virtual.sum())


def test_verdicts_on_readable_uploads_are_ordered(federate: Federate) -> None:
    run, _ = federate(cloak=VirtualRatingsConfig(rho=2.0), denoisers=10)
    claims = claims_of(SumDecoding(), run)
    real, virtual = proven(claims)
    undecided = rated_of(claims).visible & ~real & ~virtual
    scores = rated_of(claims).scores
    levels = [scores[mask] for mask in (real, undecided, virtual, ~rated_of(claims).visible)]
    assert all(len(np.unique(level)) == 1 for level in levels)
    ordered = [float(level[0]) for level in levels]
    assert ordered == sorted(ordered, reverse=True)


def test_items_with_one_rater_in_a_plain_sum_prove_their_raters(federate: Federate) -> None:
    run, truth = federate()
    claims = claims_of(SumDecoding(), run)
    real, virtual = proven(claims)
    singles = truth.ratings.item_popularity() == 1
    assert not virtual.any()
    np.testing.assert_array_equal(real, truth_of(claims, truth) & singles)


def test_equal_uploads_of_a_tail_item_are_not_told_apart(
    federate: Federate, rewritten: Rewritten
) -> None:
    """In a coarse ring a virtual row can hold the words of the real one."""
    run, truth = federate(cloak=VirtualRatingsConfig(rho=2.0), denoisers=10)
    before = claims_of(SumDecoding(), run)
    real, virtual = proven(before)
    item = int(np.flatnonzero(real.any(axis=0) & virtual.any(axis=0))[0])

    def copy_row(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name == "upload":
            holders = np.flatnonzero(columns["rows"] == item)
            owners = np.repeat(columns["senders"], columns["lengths"])[holders]
            place = np.searchsorted(rated_of(before).clients, owners)
            source = holders[real[place, item]][0]
            columns["values"][holders] = columns["values"][source]
        return columns

    view = rewritten(run.transcript, copy_row).view(SERVER)
    claims = SumDecoding().run(view)
    assert isinstance(claims, Claims)
    now_real, now_virtual = proven(claims)
    assert not now_real[:, item].any()
    assert not now_virtual[:, item].any()
    others = np.arange(truth.ratings.n_items) != item
    np.testing.assert_array_equal(now_real[:, others], real[:, others])


# --- sums of denoisers ----------------------------------------------------------------------------


def test_more_denoisers_unmask_more(federate: Federate) -> None:
    """One denoiser mixes everybody; thirty mix next to nobody."""
    data = SyntheticConfig(clients=120, items=60, mean_ratings=15.0, seed=5)
    shares = []
    for eta in (1, 6, 30, 60):
        run, truth = federate(data=data, cloak=VirtualRatingsConfig(rho=1.0), denoisers=eta)
        finding = evaluate(DenoiserSums(), SERVER, run.transcript, truth, seed=0)
        unmasked = finding.figures["unmasked_share"]
        assert unmasked is not None
        assert finding.figures["wrongly_unmasked_share"] == 0.0
        shares.append(unmasked)
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert shares[1] < 0.2
    assert shares[-1] > 0.95


def test_explained_sums_prove_the_rows_outside_them_real(federate: Federate) -> None:
    """With the group's virtual rows of an item known, what else it uploads of the item is real."""
    run, truth = federate(cloak=VirtualRatingsConfig(rho=1.0), denoisers=20)
    claims = claims_of(DenoiserSums(), run)
    real, virtual = proven(claims)
    rated = truth_of(claims, truth)
    assert real.sum() == claims.details["rows_proven_real"]
    assert virtual.sum() == claims.details["rows_unmasked"]
    assert real[rated].mean() > 0.1
    assert virtual[rated_of(claims).visible & ~rated].mean() > 0.95


def test_one_denoiser_leaves_the_sums_unexplained(federate: Federate) -> None:
    data = SyntheticConfig(clients=120, items=60, mean_ratings=15.0, seed=5)
    run, _ = federate(data=data, cloak=VirtualRatingsConfig(rho=1.0), denoisers=1)
    claims = claims_of(DenoiserSums(), run)
    real, virtual = proven(claims)
    assert not real.any()
    assert not virtual.any()
    expected = {"rows_unmasked": 0, "rows_proven_real": 0, "clients_bound": 0, "sums_explained": 0}
    assert expected.items() <= claims.details.items()
    np.testing.assert_array_equal(
        rated_of(claims).scores, rated_of(claims).visible.astype(np.float64)
    )


def test_clients_are_bound_to_their_true_denoiser(federate: Federate) -> None:
    from attacks.families.sums.denoisers import _read

    run, truth = federate(cloak=VirtualRatingsConfig(rho=1.0), denoisers=20)
    puzzle = _read(run.transcript.view(SERVER), 1)
    puzzle.find_groups()
    collector = run.engine.stack.collector
    binding = getattr(collector, "binding")  # noqa: B009 (the protocol does not declare it)
    assert puzzle.group_of
    for position, denoiser in puzzle.group_of.items():
        client = puzzle.senders[position]
        assert binding.group[client] == denoiser
        assert client not in truth.denoiser_clients


def require_same_rows(found: Claims, expected: Claims) -> None:
    assert found.details == expected.details
    for name in ("scores", "predicted"):
        np.testing.assert_array_equal(
            getattr(rated_of(found), name), getattr(rated_of(expected), name)
        )


@pytest.mark.parametrize("rho", [0.5, 2.0])
def test_sums_that_are_alike_are_explained_as_each_alone(
    federate: Federate, rho: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = federate(cloak=VirtualRatingsConfig(rho=rho), denoisers=20)
    together = claims_of(DenoiserSums(), run)
    for module in ("puzzle", "subsets"):  # a sum at a time
        monkeypatch.setattr(f"attacks.families.sums.{module}._AT_ONCE", 1)
    alone = claims_of(DenoiserSums(), run)
    require_same_rows(alone, together)
    assert int(alone.details["sums_explained"]) > 100


# --- denoisers that release sums of shares --------------------------------------------------------


def grid_of_all(claims: Claims, truth: GroundTruth) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Rated pairs, and those claimed to be real and to be virtual."""
    return truth_of(claims, truth), *proven(claims)


def test_sums_of_shares_name_every_virtual_row(federate: Federate, in_shares: InShares) -> None:
    """The server adds the shares up, and needs no link between a client and its denoisers."""
    few = SyntheticConfig(clients=24, items=60, mean_ratings=12.0, seed=4)
    run, truth = federate(data=few, cloak=VirtualRatingsConfig(rho=1.0))
    transcript = in_shares(run, truth)
    claims = DenoiserSums().run(transcript.view(SERVER))
    assert isinstance(claims, Claims)
    rated, real, virtual = grid_of_all(claims, truth)
    np.testing.assert_array_equal(real, rated)
    np.testing.assert_array_equal(virtual, rated_of(claims).visible & ~rated)
    assert virtual.sum() > 200
    finding = evaluate(DenoiserSums(), SERVER, transcript, truth, seed=0)
    assert finding.figures["unmasked_share"] == 1.0
    assert finding.figures["wrongly_unmasked_share"] == 0.0


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_denoisers_send_is_uniform_but_for_its_sum(
    federate: Federate, in_shares: InShares, rewritten: Rewritten, codec: FixedPoint
) -> None:
    """Without one denoiser's message nothing is explained: the attack reads the sum, not shares."""
    run, truth = federate(cloak=VirtualRatingsConfig(rho=1.0), codec=codec)

    def without_the_last(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name == "denoise":
            last = len(columns["values"]) * 2 // 3
            columns["values"][last:] = 0
        return columns

    whole = in_shares(run, truth)
    for transcript, least, most in (
        (whole, 100, 10**6),
        (rewritten(whole, without_the_last), 0, 0),
    ):
        claims = DenoiserSums().run(transcript.view(SERVER))
        assert isinstance(claims, Claims)
        assert least <= int(claims.details["rows_unmasked"]) <= most


def test_more_uploads_of_an_item_than_can_be_searched_prove_nothing(
    federate: Federate, in_shares: InShares
) -> None:
    many = SyntheticConfig(clients=120, items=60, mean_ratings=12.0, seed=4)
    run, truth = federate(data=many, cloak=VirtualRatingsConfig(rho=1.0))
    claims = DenoiserSums().run(in_shares(run, truth).view(SERVER))
    assert isinstance(claims, Claims)
    rated, real, virtual = grid_of_all(claims, truth)
    assert not (virtual & rated).any()
    assert not (real & ~rated).any()
    assert claims.details["sums_explained"] < claims.details["sums"]


def test_shares_expose_no_row_of_the_denoisers(federate: Federate, in_shares: InShares) -> None:
    run, truth = federate(cloak=VirtualRatingsConfig(rho=1.0))
    transcript = in_shares(run, truth)
    claims = DenoiserExposure().run(transcript.view(SERVER))
    assert claims == NotApplicable(
        reason="the denoisers' sums are shares, with no row of their own"
    )
    denoiser = Adversary(name="one", corrupt=frozenset({"denoiser:0"}))
    assert isinstance(DenoiserSums().run(transcript.view(denoiser)), NotApplicable)


# --- the denoisers themselves ---------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1.0, 3.0])
def test_a_denoiser_exposes_the_items_nobody_covers(federate: Federate, rho: float) -> None:
    run, truth = federate(cloak=VirtualRatingsConfig(rho=rho), denoisers=20)
    claims = claims_of(DenoiserExposure(), run)
    np.testing.assert_array_equal(rated_of(claims).clients, np.sort(truth.denoiser_clients))
    rated = truth_of(claims, truth)
    noise = run.transcript._store.read(1, "noise")
    covered = np.zeros((20, truth.ratings.n_items), dtype=bool)
    for columns in noise:
        covered[np.repeat(columns["receivers"], columns["lengths"]), columns["rows"]] = True
    index = [truth.denoiser_clients.index(int(client)) for client in rated_of(claims).clients]
    expected = rated & ~covered[index]
    np.testing.assert_array_equal(predicted_of(claims), expected)
    assert claims.details == {"denoisers": 20, "items_exposed": int(expected.sum())}
    assert expected.any()
    # What a denoiser does not send it has not rated.
    np.testing.assert_array_equal(rated_of(claims).visible, rated | covered[index])


def test_more_denoisers_expose_more_of_themselves(federate: Federate) -> None:
    data = SyntheticConfig(clients=120, items=60, mean_ratings=15.0, seed=5)
    recalls = []
    for eta in (1, 6, 60):
        run, truth = federate(data=data, cloak=VirtualRatingsConfig(rho=1.0), denoisers=eta)
        finding = evaluate(DenoiserExposure(), SERVER, run.transcript, truth, seed=0)
        recalls.append(finding.figures["recall"] or 0.0)
    assert recalls[0] == 0.0
    assert recalls == sorted(recalls)
    assert recalls[-1] > 0.5


# --- views that lack what is needed ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("attack", "corrupt", "denoisers", "match"),
    [
        (SumDecoding(), "server", 0, "still contain the virtual rows"),
        (SumDecoding(), "client:3", 0, "still contain the virtual rows"),
        (DenoiserSums(), "denoisers", 10, "no uploads"),
        (DenoiserSums(), "client:3", 10, "no denoisers' sums"),
        (DenoiserSums(), "server", 0, "no round has payloads of uploads and sums"),
        (DenoiserExposure(), "client:3", 10, "no denoisers' sums"),
        (DenoiserExposure(), "server", 0, "no denoisers' sums were recorded"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_view_that_lacks_messages_is_not_applicable(
    federate: Federate, attack: Attack, corrupt: str, denoisers: int, match: str
) -> None:
    run, _ = federate(cloak=VirtualRatingsConfig(rho=1.0), denoisers=denoisers)
    adversary = Adversary(name="partial", corrupt=frozenset({corrupt}))
    claims = attack.run(run.transcript.view(adversary))
    assert isinstance(claims, NotApplicable)
    assert match in claims.reason


@pytest.mark.parametrize("attack", [SumDecoding(), DenoiserSums()], ids=["decoding", "sums"])
@pytest.mark.parametrize("lost", ["upload", "denoise", "aggregate"])
def test_lost_payloads_are_not_applicable(
    federate: Federate, rewritten: Rewritten, attack: Attack, lost: str
) -> None:
    def drop(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name == lost:
            del columns["values"]
        return columns

    run, _ = federate(cloak=VirtualRatingsConfig(rho=1.0), denoisers=10)
    claims = attack.run(rewritten(run.transcript, drop).view(SERVER))
    unused = {"sum-decoding": "denoise", "denoiser-sums": "aggregate"}[attack.name]
    if lost == unused:
        assert isinstance(claims, Claims)
    else:
        assert isinstance(claims, NotApplicable)
        assert "no round has payloads" in claims.reason
