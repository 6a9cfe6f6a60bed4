"""Rounds that halves carry out: none is simulated in their place, and their keys are their own."""

from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, BagShape, Sizes, build_stack
from secure_fedrec.protection.bags import LayeredBags
from secure_fedrec.protection.base.carried_out import CarriedOut
from secure_fedrec.protection.masking.embedded import MaskedSum
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Meter, Wire

N, ITEMS, WIDTH = 5, 7, 2
SIZES = Sizes(n_clients=N, n_items=ITEMS, width=WIDTH, cohort=N)


def collector_of(**settings: Any) -> Any:
    layers = {"masking": MaskingLayerConfig(**settings)}
    stack = build_stack(layers, sizes=SIZES, codec=FixedPoint(), streams=Streams.from_seed(1))
    return stack.collector


def collector_plain() -> Any:
    return build_stack({}, sizes=SIZES, codec=FixedPoint(), streams=Streams.from_seed(1)).collector


def rows_of(clients: int) -> RowBlock:
    values = FixedPoint().encode(np.arange(clients * ITEMS * WIDTH).reshape(-1, WIDTH) / 8)
    return RowBlock(
        indptr=np.arange(clients + 1) * ITEMS,
        rows=np.tile(np.arange(ITEMS, dtype=np.int32), clients),
        values=values,
    )


def opened(collector: Any, clients: Any = None, *, round_: int = 1) -> Any:
    everybody = np.arange(N) if clients is None else np.asarray(clients)
    return collector.open(round_=round_, participants=everybody, wire=Wire(meter=Meter(N)))


def test_what_has_no_halves_is_not_carried_out() -> None:
    table: Any = {"n_clients": N, "n_items": ITEMS, "width": WIDTH, "codec": FixedPoint()}
    alone = MaskedSum(MaskingLayerConfig(execution="real"), streams=Streams.from_seed(1), **table)
    with pytest.raises(ConfigError, match="which build_stack gives to a collector") as refusal:
        opened(alone)
    assert refusal.value.key == "protection.execution"
    assert isinstance(opened(collector_of(execution="real")), CarriedOut)
    assert not isinstance(opened(collector_of()), CarriedOut)


def test_bags_without_halves_are_not_carried_out() -> None:
    bags = LayeredBags(
        bags={"b": BagShape(width=2, most=2)},
        n_clients=N,
        codec=FixedPoint(),
        streams=Streams.from_seed(1),
        routing=RoutingLayerConfig(cell_bytes=512, layers=2, execution="real"),
    )
    with pytest.raises(ConfigError, match="which build_stack gives to the bags"):
        opened(bags)


def test_clients_submit_once_each_and_in_order() -> None:
    session = opened(collector_of(execution="real"))
    nothing = np.zeros(2 * ITEMS, dtype=bool)
    with pytest.raises(ProtocolError, match="once each, in order"):
        session.submit(np.array([1, 2]), rows_of(2), nothing)
    session.submit(np.array([0, 1]), rows_of(2), nothing)
    with pytest.raises(ProtocolError, match="once each, in order"):
        session.submit(np.array([1, 2]), rows_of(2), nothing)
    with pytest.raises(ProtocolError, match="no rows from client 2"):
        session.close()


def test_rounds_go_on_over_cohorts_and_repeat_one_that_was_given_up() -> None:
    collector, codec = collector_of(execution="real"), FixedPoint()
    for round_, clients in ((1, range(N)), (2, (0, 2, 3)), (2, (0, 2, 3)), (3, (1, 2, 4))):
        session = opened(collector, list(clients), round_=round_)
        block = rows_of(len(clients))
        session.submit(np.array(clients), block, np.zeros(len(block.rows), dtype=bool))
        assert block.values is not None
        due = block.values.reshape(len(clients), ITEMS, WIDTH).sum(axis=0, dtype=codec.dtype)
        found = session.close()
        assert found.ring.tolist() == codec.reduce(due).tolist()
        assert found.counts.tolist() == [len(clients)] * ITEMS


@pytest.mark.parametrize("execution", ["simulated", "real"])
def test_a_cohort_without_senders_is_an_empty_round(execution: str) -> None:
    layers = {
        "virtual-ratings": LAYERS["virtual-ratings"](rho=1),
        "denoisers": LAYERS["denoisers"](count=2),
        "routing": LAYERS["routing"](execution=execution, cell_bytes=512),
    }
    stack = build_stack(layers, sizes=SIZES, codec=FixedPoint(), streams=Streams.from_seed(1))
    collector: Any = stack.collector
    session = opened(collector, np.sort(collector.binding.denoisers))
    assert isinstance(session, CarriedOut) == (execution == "real")
    rows = rows_of(len(session.order))
    session.submit(session.order, rows, np.zeros(len(rows.rows), dtype=bool))
    plain = opened(collector_plain(), session.order)
    plain.submit(plain.order, rows, np.zeros(len(rows.rows), dtype=bool))
    found, wanted = session.close(), plain.close()
    np.testing.assert_array_equal(found.ring, wanted.ring)
    np.testing.assert_array_equal(found.counts, wanted.counts)
