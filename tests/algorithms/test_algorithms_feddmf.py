"""FedDMF: what crosses and what does not, protected sums, order of organisations, bad input."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.algorithms.feddmf.config import FedDMFConfig
from secure_fedrec.algorithms.feddmf.exchanged import ExchangedFedDMF
from secure_fedrec.algorithms.feddmf.summed import AveragedDMF, SummedFedDMF
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.data.organisations.common_items import (
    CommonItems,
    CommonItemsConfig,
    split_common_items,
)
from secure_fedrec.engines import (
    CohortConfig,
    LocalEngine,
    Problem,
    sizes_of,
)
from secure_fedrec.errors import ConfigError, DivergedError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.dmf.model import DMFConfig
from secure_fedrec.models.dmf.training import DMFTraining
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.testing import AlgorithmContract
from secure_fedrec.uploads import PeerBlock, RowBlock
from secure_fedrec.wire import Meter, Wire

N = 4
TABLE = generate(SyntheticConfig(clients=24, items=24, mean_ratings=12.0, seed=3))
DATA = split_common_items(TABLE, CommonItemsConfig(organisations=N, seed=1))
CONFIG = FedDMFConfig(epochs=3, model=DMFConfig(width=4, hidden=6), beta=10.0)
FORMS: dict[str, Callable[..., Any]] = {
    "exchanged": ExchangedFedDMF,
    "summed": SummedFedDMF,
    "averaged": AveragedDMF,
}
Kept = dict[str, bytes]


def engine_of(algorithm: Any, data: CommonItems = DATA, **settings: Any) -> LocalEngine:
    layers, streams = settings.pop("layers", {}), Streams.from_seed(settings.pop("seed", 7))
    problem = Problem(vault=data.vault(), n_rows=data.n_items)
    sizes = sizes_of(algorithm, problem)
    return LocalEngine(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=FixedPoint(), streams=streams),
        vault=problem.vault,
        n_rows=problem.n_rows,
        streams=streams,
        **{"wire": Wire(meter=Meter(problem.vault.n_clients)), **settings},
    )


def kept(engine: LocalEngine) -> Kept:
    state = engine.state()
    return {name: state[name].tobytes() for name in state if not name.startswith("meter")}


class TestContractSummed(AlgorithmContract):
    def algorithm(self) -> Algorithm:
        found: Algorithm = SummedFedDMF(CONFIG, DATA)
        return found

    def problem(self) -> Problem:
        return Problem(vault=DATA.vault(), n_rows=DATA.n_items)


class TestContractAveraged(TestContractSummed):
    def algorithm(self) -> Algorithm:
        found: Algorithm = AveragedDMF(CONFIG, DATA)
        return found


class TestContractExchanged(TestContractSummed):
    def algorithm(self) -> Algorithm:
        found: Algorithm = ExchangedFedDMF(CONFIG, DATA)
        return found


@pytest.mark.parametrize("form", ["summed", "averaged"])
def test_whatever_hides_the_sum_all_end_in_the_same_bits(form: str) -> None:
    ends = []
    for layers in (
        {},
        {"masking": MaskingLayerConfig()},
        {"paillier": EncryptionLayerConfig(holder="clients")},
    ):
        engine = engine_of(FORMS[form](CONFIG, DATA), layers=layers)
        for _ in range(CONFIG.rounds):
            engine.run_round()
        ends.append(kept(engine))
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("exchanges", [1, 2])
def test_batches_of_organisations_end_in_the_same_bits(form: str, exchanges: int) -> None:
    config, ends = replace(CONFIG, exchanges=exchanges, epochs=2), []
    for batch_bytes in (1, 3000, 10**8):
        engine = engine_of(FORMS[form](config, DATA), batch_bytes=batch_bytes)
        for _ in range(config.rounds):
            engine.run_round()
        ends.append(kept(engine))
    assert ends[0] == ends[1] == ends[2]


class Shuffled(ExchangedFedDMF):
    """Gives and takes in another order than it is asked to."""

    def give(self, clients: IntArray, *rest: Any) -> PeerBlock:
        return super().give(clients[::-1], *rest)

    def take(self, clients: IntArray, given: PeerBlock, vault: Any) -> None:
        order = np.random.default_rng(4).permutation(len(given.block))
        parts = [list(given.block.split())[place] for place in order]
        ends = np.cumsum([0, *(len(part.rows) for part in parts)], dtype=np.int64)
        values: list[Any] = [part.values for part in parts]
        rows = np.concatenate([part.rows for part in parts])
        block = RowBlock(indptr=ends, rows=rows, values=np.concatenate(values))
        senders, receivers = given.senders[order], given.receivers[order]
        mixed = PeerBlock(senders=senders, receivers=receivers, block=block)
        super().take(clients[::-1], mixed, vault)


def test_the_exchange_does_not_depend_on_the_order_of_organisations() -> None:
    ends = []
    for kind in (ExchangedFedDMF, Shuffled):
        engine = engine_of(kind(CONFIG, DATA))
        for _ in range(CONFIG.rounds):
            engine.run_round()
        ends.append(kept(engine))
    assert ends[0] == ends[1]


def test_two_organisations_see_the_same_in_a_sum_as_in_an_exchange() -> None:
    data = split_common_items(TABLE, CommonItemsConfig(seed=1))
    summed = engine_of(SummedFedDMF(CONFIG, data), data)
    algorithm = summed.algorithm
    assert isinstance(algorithm, SummedFedDMF)
    summed.run_round()
    for client in (0, 1):
        other = algorithm.hand_over(summed.vault, 1 - client, algorithm.common_of(client))
        state = algorithm.read(client, summed.vault)
        indptr, targets = algorithm._targets(client, state, summed.public, summed.vault)
        values = np.asarray(other.values)
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        assert indptr[-1] == len(targets) == data.common.sum()
        assert np.allclose(targets, values / lengths, atol=1e-8)


@pytest.mark.parametrize("form", ["exchanged", "summed"])
def test_the_loss_brings_vectors_of_common_items_together(form: str) -> None:
    def mean_cosine(beta: float) -> float:
        training = DMFTraining(learning_rate=0.02)
        config = replace(CONFIG, beta=beta, epochs=12, training=training)
        engine = engine_of(FORMS[form](config, DATA))
        for _ in range(config.rounds):
            engine.run_round()
        algorithm: Any = engine.algorithm
        common = np.flatnonzero(DATA.common)
        vectors = [
            np.asarray(algorithm.hand_over(engine.vault, n, common).values) for n in range(N)
        ]
        unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors]
        pairs = [(a * b).sum(axis=1) for n, a in enumerate(unit) for b in unit[:n]]
        return float(np.mean(pairs))

    assert mean_cosine(0.0) < 0.6
    assert mean_cosine(100.0) > 0.75


def scrambled(data: CommonItems) -> CommonItems:
    """Other users' interactions of the same sizes, over the same lists of items."""
    generator = np.random.default_rng(8)
    items = data.items.copy()
    for place in range(data.n_organisations):
        users, _ = data._pairs(place)
        own = slice(*data.indptr[[place, place + 1]].tolist())
        drawn = items[own].copy()
        for user in np.unique(users):
            mine = np.flatnonzero(users == user)
            drawn[mine] = np.sort(generator.choice(data.n_items, len(mine), replace=False))
        items[own] = drawn
    return replace(data, items=items)


@pytest.mark.parametrize("form", ["exchanged", "summed"])
def test_nothing_but_vectors_of_common_items_leaves(form: str) -> None:
    others = scrambled(DATA)
    assert not np.array_equal(others.items, DATA.items)
    seen = []
    for data in (DATA, others):
        algorithm, vault = FORMS[form](CONFIG, data), data.vault()
        streams = Streams.from_seed(2)
        public = algorithm.initial_public(data.n_items, streams)
        algorithm.initialise(vault, streams)
        step = algorithm.client_step(vault.clients, public, vault, streams)
        if form == "exchanged":
            step.commit(vault)
            given = algorithm.give(vault.clients, public, vault, streams)
            assert set(step.upload.blocks) == {"participants"}
            assert np.all(step.upload.blocks["participants"].values == 1.0)
            ends = zip(given.senders.tolist(), given.receivers.tolist(), strict=True)
            shape = [
                (*pair, part.rows.tolist())
                for pair, part in zip(ends, given.block.split(), strict=True)
            ]
            for sender, receiver, rows in shape:
                assert rows == np.flatnonzero(data.listed[sender] & data.listed[receiver]).tolist()
            values = given.block.values
        else:
            assert set(step.upload.blocks) == {"items"}
            block = step.upload.blocks["items"]
            shape = [(n, n, part.rows.tolist()) for n, part in enumerate(block.split())]
            for client, _, rows in shape:
                assert rows == np.flatnonzero(data.listed[client] & data.common).tolist()
            assert np.allclose(np.linalg.norm(block.values, axis=1), 1.0)
            values = block.values
        seen.append((shape, values.shape, values))
    assert seen[0][:2] == seen[1][:2]
    assert not np.array_equal(seen[0][2], seen[1][2])  # what users did is in the vectors alone


@pytest.mark.parametrize("form", ["exchanged", "summed"])
def test_what_an_organisation_does_not_know_reaches_nothing(form: str) -> None:
    hidden = ~DATA.listed[np.repeat(np.arange(N), np.diff(DATA.indptr)), DATA.items]
    assert hidden.sum() >= 20
    less = [
        int(np.sum(~hidden[start:stop]))
        for start, stop in zip(DATA.indptr[:-1], DATA.indptr[1:], strict=True)
    ]
    forgotten = replace(
        DATA,
        users=DATA.users[~hidden],
        items=DATA.items[~hidden],
        indptr=np.cumsum([0, *less], dtype=np.int64),
    )
    ends = []
    for data in (DATA, forgotten):
        engine = engine_of(FORMS[form](CONFIG, data), data)
        for _ in range(2):
            engine.run_round()
        ends.append(kept(engine))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("form", ["exchanged", "summed"])
def test_vectors_received_are_constants(form: str) -> None:
    """What others gave stays as it was; own items are pulled by nothing but their own pairs."""
    config = replace(CONFIG, beta=0.0)
    pulled, free = (engine_of(FORMS[form](each, DATA)) for each in (CONFIG, config))
    for engine in (pulled, free):
        engine.run_round()
    before = pulled.vault.snapshot()
    if form == "exchanged":
        step = pulled.algorithm.client_step(
            pulled.vault.clients, pulled.public, pulled.vault, Streams.from_seed(7)
        )
        step.commit(pulled.vault)
        after = pulled.vault.snapshot()
        assert np.array_equal(before["received"], after["received"])
        assert not np.array_equal(before["parameters"], after["parameters"])
    else:
        assert kept(pulled).keys() == kept(free).keys()


def test_a_sum_is_less_ones_own_only_where_one_was_part_of_it() -> None:
    cohort = CohortConfig(clients_per_round=2)
    engine = engine_of(SummedFedDMF(CONFIG, DATA), cohort=cohort)
    algorithm: Any = engine.algorithm
    present = set(engine.participants(1).tolist())
    engine.run_round()
    for client in range(N):
        common = algorithm.common_of(client)
        state = algorithm.read(client, engine.vault)
        _, targets = algorithm._targets(client, state, engine.public, engine.vault)
        own = np.asarray(algorithm.hand_over(engine.vault, client, common).values)
        own = own / np.linalg.norm(own, axis=1, keepdims=True)
        due = engine.public.table[common] - (own if client in present else 0.0)
        due[np.linalg.norm(due, axis=1) < 1e-3] = 0.0
        assert np.allclose(targets, due, atol=1e-9)
    engine.run_round()


def test_rounds_of_the_average_are_means() -> None:
    engine = engine_of(AveragedDMF(CONFIG, DATA))
    algorithm: Any = engine.algorithm
    engine.run_round()
    common = np.flatnonzero(DATA.common)
    vectors = [np.asarray(algorithm.hand_over(engine.vault, n, common).values) for n in range(N)]
    assert np.allclose(engine.public.table[common], np.mean(vectors, axis=0), atol=1e-8)
    layers = [
        algorithm.read(n, engine.vault).parameters[algorithm.model(n).layers] for n in range(N)
    ]
    assert np.allclose(engine.public.extras["layers"], np.mean(layers, axis=0), atol=1e-8)
    assert not np.array_equal(layers[0], layers[1])
    algorithm.adopt(engine.public, engine.vault)
    for n in range(N):
        assert np.array_equal(
            algorithm.hand_over(engine.vault, n, common).values, engine.public.table[common]
        )


def test_others_items_are_scored_by_the_vectors_handed_over() -> None:
    engine = engine_of(SummedFedDMF(CONFIG, DATA))
    algorithm: Any = engine.algorithm
    engine.run_round()
    items = DATA.own(2)
    given = algorithm.hand_over(engine.vault, 2, items)
    assert given.rows.tolist() == items.tolist()
    users = np.arange(int(DATA.n_users[0]))
    found = algorithm.scores(engine.vault, 0, users, given)
    assert found.shape == (len(users), len(items))
    assert np.all((found > 0) & (found < 1))
    own = DATA.own(0)
    itself = algorithm.hand_over(engine.vault, 0, own)
    by_number = algorithm.scores(engine.vault, 0, users, own)
    assert np.array_equal(algorithm.scores(engine.vault, 0, users, itself), by_number)
    narrow = replace(given, values=np.asarray(given.values)[:, :2].copy())
    with pytest.raises(ConfigError, match=r"algorithm\.model\.width = 2: .* agreed on 4"):
        algorithm.scores(engine.vault, 0, users, narrow)


@pytest.mark.parametrize(
    "settings",
    [
        {"training": DMFTraining(learning_rate=1e308)},
        {"beta": 1e308, "epochs": 4},
    ],
    ids=["learning rate", "beta"],
)
@pytest.mark.parametrize("form", ["exchanged", "summed"])
def test_a_loss_that_is_no_number_ends_the_round_and_changes_nothing(
    form: str, settings: Mapping[str, Any]
) -> None:
    config = replace(CONFIG, **settings)
    engine, before = engine_of(FORMS[form](config, DATA)), {}
    with pytest.raises(DivergedError, match=r"round \d, organisation \d: the loss is not a number"):
        for _ in range(4):
            before = kept(engine)
            engine.run_round()
    assert kept(engine) == before


def test_an_item_table_of_another_width_is_refused() -> None:
    items = len(DATA.items_of(1))
    for table, says in (
        (np.ones((items, 3)), r"algorithm\.model\.width = 3: .* organisation 1; .* agreed on 4"),
        (np.ones((items + 1, 4)), rf"data\.items = {items + 1}: .* organisation 1, not {items}"),
    ):
        with pytest.raises(ConfigError, match=says):
            engine_of(SummedFedDMF(CONFIG, DATA, items={1: table}))
    brought = engine_of(SummedFedDMF(CONFIG, DATA, items={1: np.full((items, 4), 0.25)}))
    algorithm: Any = brought.algorithm
    held = algorithm.hand_over(brought.vault, 1, DATA.items_of(1)).values
    assert np.array_equal(held, np.full((items, 4), 0.25))


class Wide(ExchangedFedDMF):
    """Organisation 2 gives vectors of its own width, of which the others know nothing."""

    def take(self, clients: IntArray, given: PeerBlock, vault: Any) -> None:
        values = np.asarray(given.block.values)
        block = replace(given.block, values=np.hstack([values, values]))
        super().take(clients, replace(given, block=block), vault)


class Strange(ExchangedFedDMF):
    """Gives rows of other items than agreed."""

    def take(self, clients: IntArray, given: PeerBlock, vault: Any) -> None:
        block = replace(given.block, rows=given.block.rows[::-1].copy())
        super().take(clients, replace(given, block=block), vault)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Wide, r"algorithm\.model\.width = 8: .* vectors of organisation 1"),
        (Strange, r"items from organisation 1, not those it has with 0"),
    ],
)
def test_what_others_give_is_looked_at(kind: Any, says: str) -> None:
    engine = engine_of(kind(CONFIG, DATA))
    before = kept(engine)
    with pytest.raises(ConfigError, match=says):
        engine.run_round()
    assert kept(engine) == before


def test_an_exchange_without_everybody_is_refused() -> None:
    engine = engine_of(ExchangedFedDMF(CONFIG, DATA), cohort=CohortConfig(clients_per_round=2))
    with pytest.raises(WireError, match="takes no part in this exchange"):
        engine.run_round()


def test_pairs_of_nobody_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.organisations"):
        more = split_common_items(TABLE, CommonItemsConfig(organisations=5, seed=1))
        SummedFedDMF(CONFIG, DATA).initialise(more.vault(), Streams.from_seed(1))
    with pytest.raises(ConfigError, match=r"data\.(users|items)"):
        two = split_common_items(TABLE, CommonItemsConfig(seed=1))
        SummedFedDMF(CONFIG, DATA).initialise(two.vault(), Streams.from_seed(1))
