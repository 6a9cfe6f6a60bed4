"""How a run is executed changes nothing: batches, interruptions; and rings refuse in time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import CohortConfig, LocalEngine, rating_evaluation, vault_of
from secure_fedrec.engines.local_engine import BATCH_BYTES
from secure_fedrec.errors import ConfigError, SumBudgetError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import Started, WireTap
from secure_fedrec.properties.strategies import Federation, federations, latent_vectors
from secure_fedrec.protection import (
    Denoisers,
    DenoisersConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Meter, Wire

PROFILE = settings.get_profile("properties")
HOT = PMFConfig.printed(rank=2, learning_rate=0.1, init_scale=0.5, temperature=0.05)


def engine_of(
    federation: Federation, *, batch_bytes: int = BATCH_BYTES, tap: WireTap
) -> LocalEngine:
    ratings = federation.ratings
    algorithm = PMF(HOT)
    return LocalEngine(
        algorithm=algorithm,
        stack=federation.stack,
        vault=vault_of(ratings),
        n_rows=ratings.n_items,
        evaluate=rating_evaluation(algorithm, ratings),
        streams=federation.streams,
        wire=Wire(meter=Meter(ratings.n_clients), faults=(tap,)),
        cohort=federation.cohort,
        batch_bytes=batch_bytes,
    )


def bits_of(engine: LocalEngine) -> dict[str, bytes]:
    """Public, private and metered state."""
    return {name: np.asarray(value).tobytes() for name, value in engine.state().items()}


@given(federation=federations(width=2), batch_bytes=st.sampled_from((1, 100, 250, 800)))
@settings(PROFILE, max_examples=60)
def test_batch_size_changes_no_bit_on_the_wire_or_at_the_clients(
    federation: Federation, batch_bytes: int
) -> None:
    taps = WireTap(), WireTap()
    small = engine_of(federation, batch_bytes=batch_bytes, tap=taps[0])
    large = engine_of(federation, tap=taps[1])
    for round_ in range(1, federation.rounds + 1):
        assert small.run_round() == large.run_round()
        assert taps[0].messages(round_) == taps[1].messages(round_)
    assert bits_of(small) == bits_of(large)


@given(federation=federations(width=2), data=st.data())
@settings(PROFILE, max_examples=40)
def test_a_resumed_run_goes_on_to_the_same_bits(
    federation: Federation, data: st.DataObject
) -> None:
    stop = data.draw(st.integers(0, federation.rounds), label="interrupted after round")
    taps = WireTap(), WireTap()
    whole, resumed = (engine_of(federation, tap=tap) for tap in taps)
    for round_ in range(federation.rounds + 1):
        if round_ == stop:
            resumed.restore({name: value.copy() for name, value in whole.state().items()})
        if round_ < federation.rounds:
            whole.run_round()
    for round_ in range(stop + 1, federation.rounds + 1):
        resumed.run_round()
        assert taps[0].messages(round_) == taps[1].messages(round_)
    assert bits_of(whole) == bits_of(resumed)


def full_table(n_clients: int) -> RatingTable:
    """Everybody rated all six items with five stars: the largest sums there are."""
    clients, items = np.divmod(np.arange(n_clients * 6), 6)
    return RatingTable(
        name="full",
        n_clients=n_clients,
        n_items=6,
        clients=clients.astype(np.int32),
        items=items.astype(np.int32),
        ratings=np.full(len(items), 5.0),
        scale=RatingScale(1.0, 5.0, 1.0),
        client_labels=np.arange(n_clients),
        item_labels=np.arange(6),
    )


def run_full(codec: FixedPoint, *, n_clients: int, rho: float, tap: WireTap) -> None:
    """One round of FedRec++ with as many denoisers as allowed."""
    streams, ratings = Streams.from_seed(2), full_table(n_clients)
    collector = Denoisers(
        DenoisersConfig(count=n_clients // 2),
        n_clients=n_clients,
        n_items=6,
        width=2,
        codec=codec,
        streams=streams,
    )
    cloak = VirtualRatings(VirtualRatingsConfig(rho=rho), n_items=6, streams=streams)
    stack = Stack(codec=codec, cloak=cloak, collector=collector, n_clients=n_clients)
    federation = Federation(
        ratings=ratings, streams=streams, stack=stack, rounds=1, cohort=CohortConfig()
    )
    engine_of(federation, tap=tap).run_round()


@pytest.mark.claim("encoding-refuses")
@pytest.mark.parametrize("rho", [0.0, 1.0, 1e6])
@pytest.mark.parametrize(
    ("codec", "most"),
    [
        (FixedPoint(bits=32, fraction_bits=16, clip=2.0**13 - 2.0**-16), 4),
        (FixedPoint(bits=64, fraction_bits=40, clip=2.0**11), 4095),
    ],
)
def test_sum_budget_is_checked_before_anything_is_sent(
    codec: FixedPoint, most: int, rho: float
) -> None:
    # A client sends one row per item at most, rated or virtual: no rho raises the budget.
    assert codec.max_terms == most
    tap = WireTap()
    with pytest.raises(SumBudgetError, match=f"ring.bits = {codec.bits}: {most + 1} clients"):
        run_full(codec, n_clients=most + 1, rho=rho, tap=tap)
    assert tap.messages(1) == ()
    run_full(codec, n_clients=most, rho=rho, tap=tap)
    assert tap.messages(1)


@given(federation=federations(width=1, max_rounds=1), data=st.data())
@settings(PROFILE, max_examples=10)
def test_a_run_can_begin_from_any_tables(federation: Federation, data: st.DataObject) -> None:
    clients, items = federation.ratings.n_clients, federation.ratings.n_items
    public = data.draw(latent_vectors(items, 1))
    users = data.draw(latent_vectors(clients, 1))
    streams, vault, other = federation.streams, *(vault_of(federation.ratings) for _ in range(2))
    start = Started(PMF(PMFConfig.printed(rank=1)), public=public, private={"user_vectors": users})
    start.initialise(vault, streams)
    assert vault.read("user_vectors", np.arange(clients)).tobytes() == users.tobytes()
    assert start.initial_public(items, streams).table.tobytes() == public.tobytes()
    assert start.initial_public(items, streams).table is not public
    with pytest.raises(ConfigError, match=r"start\.public"):
        start.initial_public(items + 1, streams)
    with pytest.raises(ConfigError, match=r"start\.private = 'weights'.*user_vectors"):
        Started(PMF(PMFConfig.printed(rank=1)), private={"weights": users}).initialise(
            other, streams
        )
