"""Linkage-hardened denoisers: what the server links without a link, and what stays hidden of whom.

The server gets the sums of all virtual rows per item, and how many there are, beside all rows under
their senders' names: subset sums name the virtual ones. What a *cell* is of, and the values in it,
stays hidden from all but one of the denoisers, even where the server helps them.
"""

from typing import Any

import numpy as np
import pytest

from attacks import Claims, GroundTruth, NotApplicable, evaluate
from attacks.families.sums.denoisers import DenoiserSums
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Sizes, VirtualRatingsConfig, build_stack
from secure_fedrec.protection.linkage_hardened import LinkageHardenedConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, RecordingPolicy, Step
from tests.attacks.made import predicted_of, proven_of, rated_of

CLIENTS, ITEMS, RANK, DENOISERS = 24, 60, 6, 3
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
MINORITY = Adversary(name="all but one", corrupt=frozenset({"denoiser:0", "denoiser:2"}))
HELPED = Adversary(name="helped", corrupt=frozenset({"server", "denoiser:0", "denoiser:2"}))
ALL = Adversary(name="all", corrupt=frozenset({"server", "denoisers"}))


def recorded(execution: str = "simulated", clients: int = CLIENTS) -> tuple[RecordedRun, Any]:
    data = SyntheticConfig(clients=clients, items=ITEMS, mean_ratings=12.0, seed=4)
    ratings = generate(data)
    streams, codec = Streams.from_seed(6), FixedPoint()
    hardened = LinkageHardenedConfig(
        count=DENOISERS, cells=60, layers=1, cell_bytes=512, execution=execution
    )
    layers = {"virtual-ratings": VirtualRatingsConfig(rho=1.0), "linkage-hardened": hardened}
    sizes = Sizes(n_clients=clients, n_items=ITEMS, width=RANK, cohort=clients)
    algorithm = PMF(PMFConfig(rank=RANK, rounds=1))
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=codec, streams=streams),
        problem=rating_problem(algorithm, ratings),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1,)),
    )
    run.run_round()
    return run, ratings


@pytest.fixture(scope="module")
def hardened() -> tuple[RecordedRun, RatingTable]:
    return recorded()


def grid_of(ratings: RatingTable) -> Any:
    rated = np.zeros((ratings.n_clients, ratings.n_items), dtype=bool)
    rated[ratings.clients, ratings.items] = True
    return rated


def require_all_linked(run: RecordedRun, ratings: RatingTable) -> int:
    claims = DenoiserSums().run(run.transcript.view(SERVER))
    assert isinstance(claims, Claims)
    rated = grid_of(ratings)[rated_of(claims).clients]
    np.testing.assert_array_equal(proven_of(claims), rated_of(claims).visible & ~rated)
    np.testing.assert_array_equal(predicted_of(claims), rated)
    return int(proven_of(claims).sum())


def test_the_server_alone_links_every_virtual_row(
    hardened: tuple[RecordedRun, RatingTable],
) -> None:
    run, ratings = hardened
    assert require_all_linked(run, ratings) > 200
    truth = GroundTruth(train=ratings, recorded=run.truth)
    finding = evaluate(DenoiserSums(), SERVER, run.transcript, truth, seed=0)
    assert finding.figures["unmasked_share"] == 1.0
    assert finding.figures["wrongly_unmasked_share"] == 0.0


def test_real_keys_and_mixes_change_nothing_of_that() -> None:
    run, ratings = recorded("real", clients=6)
    assert require_all_linked(run, ratings) > 20


def test_more_uploads_of_an_item_than_can_be_searched_prove_nothing() -> None:
    run, ratings = recorded(clients=120)
    claims = DenoiserSums().run(run.transcript.view(SERVER))
    assert isinstance(claims, Claims)
    rated = grid_of(ratings)[rated_of(claims).clients]
    assert not (proven_of(claims) & rated).any()
    assert not (predicted_of(claims) & ~rated).any()
    assert claims.details["sums_explained"] < claims.details["sums"]


def test_denoisers_alone_have_nothing_to_link(hardened: tuple[RecordedRun, RatingTable]) -> None:
    run, _ = hardened
    for adversary in (MINORITY, Adversary(name="taps", taps=frozenset({"network"}))):
        assert isinstance(DenoiserSums().run(run.transcript.view(adversary)), NotApplicable)


def linked_cells(run: RecordedRun, ratings: RatingTable, adversary: Adversary) -> tuple[int, Any]:
    """Cells whose sender is named by the nearest virtual row of their item, and the odds of each.

    The attacker is told which uploads a virtual row of each item came from; the sums give it that.
    """
    view = run.transcript.view(adversary)
    uploads = view.messages(Step.UPLOAD, 1, payload=True)
    cells = view.messages(Step.NOISE, 1, payload=True)
    sent, held = uploads.payload, cells.payload
    assert isinstance(sent, RowBlock) and sent.values is not None
    assert isinstance(held, RowBlock) and held.values is not None and cells.tags is not None
    origins = run.truth.columns(1, "noise-origins")
    assert origins is not None
    sender_of = dict(zip(origins["tags"].tolist(), origins["clients"].tolist(), strict=True))
    rated, owners = grid_of(ratings), np.repeat(uploads.senders.ids, sent.lengths)
    virtual = ~rated[owners, sent.rows]
    hits, odds = 0, []
    for tag in np.unique(cells.tags):
        mine = cells.tags == tag
        item = held.rows[mine][0]
        words = held.values[mine].sum(axis=0, dtype=np.uint64)
        candidates = np.flatnonzero(virtual & (sent.rows == item))
        if len(candidates) < 2:
            continue  # the one virtual row of its item
        apart = np.abs(view.codec.decode(sent.values[candidates] - words)).sum(axis=1)
        hits += int(owners[candidates[np.argmin(apart)]] == sender_of[int(tag)])
        odds.append(1.0 / len(candidates))
    return hits, np.array(odds)


def test_cells_are_linked_at_chance_by_all_but_one_denoiser_and_the_server(
    hardened: tuple[RecordedRun, RatingTable],
) -> None:
    run, ratings = hardened
    hits, odds = linked_cells(run, ratings, HELPED)
    assert len(odds) > 150
    # Six standard deviations: odds of a false alarm below 1e-8.
    assert abs(hits - odds.sum()) <= 6 * np.sqrt((odds * (1 - odds)).sum())


def test_all_denoisers_and_the_server_link_every_cell(
    hardened: tuple[RecordedRun, RatingTable],
) -> None:
    run, ratings = hardened
    hits, odds = linked_cells(run, ratings, ALL)
    assert hits == len(odds) > 150
