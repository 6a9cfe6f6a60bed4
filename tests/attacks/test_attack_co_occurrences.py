"""Sums of co-occurrences: what is proven of persons, in them and in the regression on them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attacks import SUITE, evaluate
from attacks.base import Claims, InapplicableError
from attacks.families.co_occurrences.persons import persons_in
from attacks.planted.pairs import plant_pairs
from attacks.scoring.disclosures import DisclosureClaim
from attacks.scoring.gains import Level, gain_figures
from attacks.scoring.games import Finding
from attacks.scoring.pair_games import ChoiceClaim, MembershipClaim
from attacks.scoring.truth import Case, GroundTruth
from attacks.view.pairs import sums_of_weights
from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.algorithms.ease import EASE, EASEConfig
from secure_fedrec.algorithms.ease.solutions import inverse_weights
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import Problem, RecordedRun, sizes_of
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Adversary, RecordingPolicy, Step

Rows = npt.NDArray[np.int64]

ROWS = st.tuples(st.integers(1, 9), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 1))
)
SERVER = frozenset({"server"})


def floored(rows: Rows, floor: int) -> Rows:
    counts = rows.T @ rows
    return np.where(counts >= floor, counts, 0)


def marked(items: npt.NDArray[np.int64], size: int) -> Rows:
    row = np.zeros(size, dtype=np.int64)
    row[items] = 1
    return row


def table_of(rows: Rows) -> RatingTable:
    clients, items = np.nonzero(rows)
    return RatingTable.from_columns(
        name="made",
        n_clients=len(rows),
        n_items=rows.shape[1],
        clients=clients,
        items=items,
        ratings=np.ones(len(items)),
        scale=RatingScale(0.0, 1.0, 1.0),
        client_labels=np.arange(len(rows)),
        item_labels=np.arange(rows.shape[1]),
    )


def ran(
    rows: Rows,
    config: EASEConfig,
    *,
    cohort: int | None = None,
    masked: bool = True,
    recorded: tuple[int, ...] | None = None,
) -> tuple[RecordedRun, GroundTruth]:
    """EASE over some rows, every round recorded, or some."""
    clients, items = np.nonzero(rows)
    algorithm: Algorithm = EASE(config, *rows.shape)
    vault = Vault(
        indptr=np.searchsorted(clients, np.arange(len(rows) + 1)),
        items=items.astype(np.int32),
        ratings=np.ones(len(items)),
    )
    known = {"n_items": rows.shape[1], "cohort": {"clients_per_round": cohort}}
    problem = Problem(vault=vault, n_rows=rows.shape[1], knowledge=known)
    streams, drawn = Streams.from_seed(3), CohortConfig(clients_per_round=cohort)
    layers = {"masking": LAYERS["masking"](min_survivors=3)} if masked else {}
    sizes = sizes_of(algorithm, problem, cohort=cohort)
    stack = build_stack(layers, sizes=sizes, codec=FixedPoint(), streams=streams)
    run = RecordedRun(
        algorithm=algorithm,
        stack=stack,
        problem=problem,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=recorded or tuple(range(1, config.rounds + 1))),
        cohort=drawn,
    )
    for _ in range(config.rounds):
        run.run_round()
    return run, GroundTruth(recorded=run.truth, train=table_of(rows))


def found(name: str, ran_: tuple[RecordedRun, GroundTruth], *corrupt: str) -> Finding:
    who = Adversary(name="them", corrupt=frozenset(corrupt))
    return evaluate(SUITE[f"co-occurrence-{name}"], who, ran_[0].transcript, ran_[1], seed=0)


# --- proofs -------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(ROWS, st.integers(0, 4))
def test_whole_persons_are_people_and_what_is_left_is_the_others_sum(
    rows: Rows, floor: int
) -> None:
    persons = persons_in(floored(rows, floor), floor)
    assert persons.consistent
    left = [tuple(row) for row in rows.tolist()]
    for each in persons.whole:
        left.remove(tuple(marked(each, rows.shape[1]).tolist()))
    if floor <= 1:
        others = np.array(left, dtype=np.int64).reshape(len(left), rows.shape[1])
        np.testing.assert_array_equal(persons.left, others.T @ others)
    else:
        assert not persons.whole


@settings(max_examples=500, deadline=None)
@given(ROWS, st.integers(0, 4), st.integers(0, 3))
def test_somebody_has_all_that_is_said_of_a_person_in_part(
    rows: Rows, floor: int, own: int
) -> None:
    others, published = rows[own:], floored(rows, floor)
    known = np.where(published > 0, published - rows[:own].T @ rows[:own], 0)
    for each in persons_in(known, floor).parts:
        assert (others[:, each] == 1).all(axis=1).any()


def test_what_may_be_hidden_behind_a_0_is_reckoned_with() -> None:
    # All people of item 0 but the last have item 1; the adversary's own row makes pairs with item 0
    # known, and those with item 1 stay hidden.
    others = np.array([[1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0, 0]])
    own = np.array([[1, 0, 1, 1, 1, 1, 1]])
    published = floored(np.vstack([others, own]), 2)
    known = np.where(published > 0, published - own.T @ own, 0)
    assert known[0, 2:].all()
    assert not known[1, 2:].any()
    for each in persons_in(known, 2).parts:
        assert (others[:, each] == 1).all(axis=1).any()


@settings(max_examples=300, deadline=None)
@given(ROWS, st.sampled_from([0.5, 1.0, 2.75]), st.integers(0, 3))
def test_sums_come_back_from_the_regression_or_not_at_all(
    rows: Rows, shrinkage: float, floor: int
) -> None:
    sums = floored(rows, floor).astype(np.float64)
    if np.linalg.eigvalsh(sums)[0] + shrinkage < 1e-3:
        return  # left out by the floor: there is no regression
    weights = inverse_weights(sums.copy(), shrinkage, 1)
    try:
        told = sums_of_weights(weights, shrinkage, len(rows))
    except InapplicableError:
        return
    there = told.diagonal() > 0
    np.testing.assert_array_equal(told[there][:, there], sums[there][:, there])
    assert not sums[there][:, ~there].any()


def test_sums_that_several_factors_make_whole_are_not_told() -> None:
    rows = np.array([[1, 1], [1, 1], [1, 0], [1, 0], [0, 1], [0, 1]])
    weights = inverse_weights((rows.T @ rows).astype(np.float64), 2.0, 1)
    with pytest.raises(InapplicableError, match="or several, give whole numbers"):
        sums_of_weights(weights, 2.0, len(rows))
    weights = inverse_weights((rows.T @ rows).astype(np.float64), 2.5, 1)
    np.testing.assert_array_equal(sums_of_weights(weights, 2.5, len(rows)), rows.T @ rows)


@pytest.mark.claim("ease-pairs")
def test_an_item_of_two_tells_them_apart_where_pairs_connect_its_items() -> None:
    rows = np.array([[1, 1, 1, 0, 0], [1, 0, 0, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1]] * 1)
    rows = np.vstack([rows, [[0, 1, 1, 1, 1], [0, 1, 1, 1, 1]]])
    apart = persons_in(rows[:4].T @ rows[:4])
    assert sorted(each.tolist() for each in apart.whole)[:2] == [[0, 1, 2], [0, 3, 4]]
    assert len(apart.whole) == 4
    # Where two others have items of both, nothing connects the sides.
    assert not persons_in(rows.T @ rows).whole


def test_what_all_but_one_share_tells_of_that_one_under_a_floor() -> None:
    rows = np.array([[1, 1, 0]] * 5 + [[1, 0, 1]] + [[0, 0, 1]] * 5)
    rows[:5, 2] = [1, 1, 1, 1, 1]
    rows[6:, 2] = 0  # item 2: all six of item 0, of which item 1 has five
    parts = persons_in(floored(rows, 5), 5).parts
    assert [0, 2] in [each.tolist() for each in parts]


def test_sums_that_nobody_can_have_are_not_taken_apart() -> None:
    sums = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 1]])
    assert not persons_in(sums).consistent


# --- on runs ------------------------------------------------------------------------------------


def made_rows(clients: int = 30, items: int = 40, seed: int = 5) -> Rows:
    rng = np.random.default_rng(seed)
    rows = (rng.random((clients, items)) < 0.2 * 0.97 ** np.arange(items)).astype(np.int64)
    rows[np.arange(clients), rng.integers(0, 5, clients)] = 1
    return rows


@pytest.mark.parametrize(
    ("config", "corrupt"),
    [
        ({}, "server"),
        ({}, "client:0"),
        ({"solved_at": "server"}, "client:0"),
        ({"pair_floor": 3, "solved_at": "server", "shrinkage": 1.0}, "server"),
    ],
)
def test_exact_sums_and_the_regression_on_them_tell_the_same(
    config: dict[str, Any], corrupt: str
) -> None:
    finding = found("persons", ran(made_rows(), EASEConfig(**config)), corrupt)
    assert finding.reason is None
    assert finding.figures["disclosures_wrong"] == 0
    assert (finding.figures["clients_exposed"] or 0) >= 20


def test_a_floor_hides_from_who_is_sent_the_sums_and_not_from_the_server() -> None:
    config = EASEConfig(pair_floor=4, shrinkage=1.0)
    made = ran(made_rows(), config)
    server, client = found("persons", made, "server"), found("persons", made, "client:0")
    assert (client.figures["interactions_exposed"] or 0) < (
        server.figures["interactions_exposed"] or 0
    )
    assert client.details["persons_whole"] == 0
    assert found("membership", made, "client:0").figures["absence_proven"] == 0.0
    assert (found("membership", made, "server").figures["absence_proven"] or 0.0) > 0.8


def test_who_comes_late_alone_is_named() -> None:
    rows = made_rows(12)
    made = ran(rows, EASEConfig(rounds=2), cohort=11)
    finding = found("persons", made, "server")
    view = made[0].transcript.view(Adversary(name="them", corrupt=SERVER))
    first, second = (view.messages(Step.UPLOAD, round_).senders.ids for round_ in (1, 2))
    late = np.setdiff1d(second, first)
    assert len(late) == 1
    claims = SUITE["co-occurrence-persons"].run(view)
    assert isinstance(claims, Claims)
    (claim,) = claims.of(DisclosureClaim)
    assert [each.names.tolist() for each in claim.parts][1] == late.tolist()
    assert set(claim.parts[0].names) == {-1}
    assert late[0] in finding.details["exposed_clients"]
    assert finding.figures["largest_profile"] == 1.0
    assert finding.figures["disclosures_wrong"] == 0


def test_what_own_clients_sent_is_taken_out() -> None:
    rows = made_rows(12)
    own = [f"client:{number}" for number in range(10)]
    made = ran(rows, EASEConfig())
    assert found("persons", made, "server", *own).details["persons_whole"] == 2
    assert found("persons", made, *own).details["persons_whole"] == 2
    alone = found("rows", made, "server", *own, "client:10")
    assert alone.details["exposed_clients"] == [11]
    assert alone.figures["exact_set_share"] == 1.0


@pytest.mark.parametrize("config", [EASEConfig(), EASEConfig(sketch=24)])
def test_an_upload_that_can_be_read_is_its_clients_items(config: EASEConfig) -> None:
    finding = found("rows", ran(made_rows(), config, masked=False), "server")
    assert finding.figures["exact_set_share"] == 1.0
    assert finding.figures["disclosures_wrong"] == 0
    masked = found("rows", ran(made_rows(), config), "server")
    assert masked.reason == "no upload can be read"


@pytest.mark.parametrize(
    ("config", "attack", "why"),
    [
        (EASEConfig(sketch=8), "persons", "a sketch of the sums is not taken apart"),
        (EASEConfig(sketch=8), "membership", "a sketch of the sums is not taken apart"),
        (EASEConfig(largest_norm=2.0), "persons", "rows are scaled: the sums are not counts"),
        (
            EASEConfig(solution="eigenvectors", rank=5, solved_at="server"),
            "persons",
            "the weights are a projection on few directions",
        ),
    ],
)
def test_what_is_not_taken_apart_has_its_reason(config: EASEConfig, attack: str, why: str) -> None:
    assert found(attack, ran(made_rows(), config), "client:0").reason == why


def test_noise_is_no_count() -> None:
    run, truth = plant_pairs()
    known = run.transcript.public
    noised = {**known["protection"], "traits": {**known["protection"]["traits"], "noise": "added"}}
    transcript = run.transcript.stating({**known, "protection": noised})
    who = Adversary(name="them", corrupt=SERVER)
    told = evaluate(SUITE["co-occurrence-persons"], who, transcript, truth, seed=0)
    assert told.reason == "noise is in the sums: they are not exact counts"


# --- membership and next choice -----------------------------------------------------------------


def case_of(rows: Rows, held_out: Rows | None = None) -> Case:
    secrets = {} if held_out is None else {"held_out.items": held_out.astype(np.int8)}
    truth = GroundTruth(recorded=plant_pairs()[0].truth, train=table_of(rows), secrets=secrets)
    return Case(truth=truth, corrupted=frozenset(), seed=0)


def membership(sums: npt.NDArray[np.float64], rows: Rows, *, noise: float = 0.0) -> Any:
    claim = MembershipClaim(matrix=sums, noise=noise, floor=0, largest_norm=None)
    (scored,) = claim.scored(case_of(rows))
    return scored


def test_membership_is_certain_where_everybody_has_a_pair_of_its_own() -> None:
    rows = made_rows(20)
    rows = np.hstack([rows, np.eye(20, dtype=np.int64)])
    scored = membership((rows.T @ rows).astype(np.float64), rows)
    assert scored.figures["absence_proven"] == 1.0
    assert scored.figures["membership_auc"] == 1.0
    assert scored.null_control["passed"]


def test_membership_is_at_chance_under_noise_that_drowns_a_row() -> None:
    rows = made_rows(60)
    noise = np.random.default_rng(0).normal(scale=500.0, size=(40, 40))
    sums = rows.T @ rows + np.triu(noise) + np.triu(noise, 1).T
    scored = membership(sums, rows, noise=500.0 * np.sqrt(2))
    assert scored.figures["membership_auc"] == pytest.approx(0.5, abs=0.02)
    assert scored.figures["absence_proven"] == 0.0


def test_what_eigenvectors_explain_without_a_row_is_what_they_do_where_it_is_not_in_the_sums() -> (
    None
):
    rng = np.random.default_rng(4)
    rows = rng.random((80, 32)) < np.where(
        np.arange(32) % 2 == np.arange(80)[:, None] % 2, 0.5, 0.1
    )
    sums = (rows.T.astype(np.int64) @ rows).astype(np.float64)
    leading = MembershipClaim(matrix=sums, noise=0.0, floor=0, largest_norm=None)._leading()
    off = np.zeros((2, 40))
    for place, row in enumerate(rows[:40]):
        items = np.flatnonzero(row)
        total = float(sums[np.ix_(items, items)].sum())
        values, vectors = np.linalg.eigh(sums - np.outer(row, row))
        exact = float((values[-4:] * vectors[items, -4:].sum(axis=0) ** 2).sum())
        off[:, place] = [leading.within(items, total, w).sum() - exact for w in (1.0, 0.0)]
    without, as_it_is = np.abs(off).mean(axis=1)
    assert without < 0.1 * as_it_is


def test_next_choices_without_a_client_are_those_of_a_regression_without_it() -> None:
    rows, shrinkage = made_rows(25, 15), 3.0
    rows = rows[rows.sum(axis=1) > 1]
    held = np.where(rows == 1, -1, 0)
    for row in held:
        row[np.flatnonzero(row == 0)[0]] = 1
    sums = (rows.T @ rows).astype(np.float64)
    claim = ChoiceClaim(matrix=sums, noise=0.0, floor=0, largest_norm=None, shrinkage=shrinkage)
    with_own, without = claim._ranked(rows == 1)
    for row, one, other in zip(rows, with_own, without, strict=True):
        outside = row == 0
        whole = row @ inverse_weights(sums.copy(), shrinkage, 1)
        less = row @ inverse_weights(sums - np.outer(row, row), shrinkage, 1)
        np.testing.assert_allclose(one[outside], whole[outside], atol=1e-10)
        np.testing.assert_allclose(other[outside], less[outside], atol=1e-10)
    (scored,) = claim.scored(case_of(rows, held))
    expected = scored.figures["choice_auc"] - scored.figures["choice_without_auc"]  # type: ignore[operator]
    assert gain_figures(scored.gains, Level(seed=0))["choice_gain"] == pytest.approx(expected)


def test_what_was_added_before_a_recorded_round_is_in_its_public_state() -> None:
    """Leaving payloads out hides nothing that later ones hold."""
    rows, config = made_rows(), EASEConfig(rounds=2)
    run, truth = ran(rows, config, recorded=(2,))
    whole, _ = ran(rows, EASEConfig())
    for who in ("server", "client:0"):
        adversary = Adversary(name=who, corrupt=frozenset({who}))
        late, first = (
            evaluate(SUITE["co-occurrence-persons"], adversary, each.transcript, truth, seed=1)
            for each in (run, whole)
        )
        assert late.figures["disclosures_wrong"] == 0
        found = [each.figures["clients_exposed"] or 0.0 for each in (late, first)]
        assert found[0] >= found[1] - 1 > 0


@pytest.mark.parametrize(
    ("config", "cohort", "why"),
    [
        (EASEConfig(rounds=2, candidates=(0.1, 1.0)), None, "kept an item of its row out"),
        (EASEConfig(), 20, "not all clients are invited"),
    ],
)
def test_membership_is_not_judged_of_sums_that_not_all_rows_are_in(
    config: EASEConfig, cohort: int | None, why: str
) -> None:
    run, truth = ran(made_rows(), config, cohort=cohort)
    server = Adversary(name="server", corrupt=frozenset({"server"}))
    found = evaluate(SUITE["co-occurrence-membership"], server, run.transcript, truth, seed=1)
    assert why in (found.reason or "")
