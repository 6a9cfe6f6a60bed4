"""Rounds of HPFL: what clients send, what the server makes of it, and what stays the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.hpfl import system as hpfl
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.drafts import cluster_centres
from secure_fedrec.algorithms.hpfl.system import HPFL
from secure_fedrec.algorithms.hpfl.update import blend, general_representations
from secure_fedrec.algorithms.hpfl.upload import Given, Selection, give_out
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.synthetic import (
    SyntheticOrganisationsConfig,
    generate_organisations,
)
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.engines import LocalEngine
from secure_fedrec.errors import ConfigError
from secure_fedrec.evaluation import level_hits
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.model import GUMConfig
from secure_fedrec.models.gum.training import GUMTraining, Trained
from secure_fedrec.protection import Sizes, build_stack
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Meter, Wire

ORGANISATIONS = generate_organisations(
    SyntheticOrganisationsConfig(clients=4, users=20, items=60, attributes=5, seed=1)
)
CLIENTS, K = ORGANISATIONS.n_clients, ORGANISATIONS.n_attributes
STREAMS = Streams.from_seed(11)
PRIVATE = ("user_embeddings", "item_representations")


def config(**settings: Any) -> HPFLConfig:
    """A short training of five-star ratings."""
    return HPFLConfig(
        **{
            "rounds": 3,
            "gum": GUMConfig(hidden=3, scale=5.0),
            "training": GUMTraining(learning_rate=0.01, epochs=2),
            **settings,
        }
    )


def federation(
    settings: HPFLConfig, *, bag_layers: Mapping[str, Any] | None = None, **layers: Any
) -> tuple[LocalEngine, HPFL]:
    """A fresh federation of the organisations."""
    algorithm = HPFL(settings, ORGANISATIONS)
    sizes = Sizes(
        n_clients=CLIENTS,
        n_items=algorithm.rows,
        width=algorithm.width,
        cohort=CLIENTS,
        bags={
            name: BagShape(width=width, most=most)
            for name, (width, most) in algorithm.bag_sizes.items()
        },
    )
    engine = LocalEngine(
        algorithm=algorithm,
        stack=build_stack(
            layers, sizes=sizes, codec=FixedPoint(), streams=STREAMS, bag_layers=bag_layers
        ),
        vault=ORGANISATIONS.vault(),
        n_rows=algorithm.rows,
        streams=STREAMS,
        wire=Wire(meter=Meter(CLIENTS)),
    )
    return engine, algorithm


def trained(settings: HPFLConfig, rounds: int = 2, **layers: Any) -> tuple[LocalEngine, HPFL]:
    engine, algorithm = federation(settings, **layers)
    for _ in range(rounds):
        engine.run_round()
    return engine, algorithm


def state(engine: LocalEngine) -> dict[str, FloatArray]:
    """Public and private state, without the meter."""
    return {n: v for n, v in engine.state().items() if not n.startswith("meter.")}


def require_equal(one: dict[str, FloatArray], other: dict[str, FloatArray]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def step_of(
    algorithm: HPFL, public: PublicState, vault: Vault, clients: IntArray
) -> tuple[dict[int, Any], Vault]:
    """What each client of a batch sends, by client, and the vault afterwards."""
    step = algorithm.client_step(clients, public, vault, STREAMS)
    upload = step.upload
    blocks = list(upload.block.split())
    sent: dict[int, Any] = {}
    for place, client in enumerate(clients.tolist()):
        assert upload.block.values is not None
        bags = {
            name: block.values[block.indptr[place] : block.indptr[place + 1]]
            for name, block in upload.bags.items()
            if block.values is not None
        }
        sent[client] = (blocks[place].rows, blocks[place].values, bags)
    step.commit(vault)
    return sent, vault


def vault_for(algorithm: HPFL) -> Vault:
    vault = ORGANISATIONS.vault()
    algorithm.initialise(vault, STREAMS)
    return vault


def test_a_client_sends_what_equations_1_to_3_say() -> None:
    engine, _ = trained(config(quantile=0.3), rounds=2)
    public, vault, client = engine.public, engine.vault, 1
    # Equations 1 and 2, from what the client kept and what the server said.
    accuracies = vault.read("accuracies", np.array([client]))[0]
    updated = {
        "attribute_vectors": blend(
            vault.read("attribute_vectors", np.array([client]))[0],
            public.table[:K, :-1],
            accuracies[:K, None],
        )
    }
    for name, centres in zip(PRIVATE, ("user-centres", "item-centres"), strict=True):
        own = vault.read_ragged(name, client)
        general = general_representations(own, public.extras[centres])
        updated[name] = blend(own, general, accuracies[:K])
    # A model that cannot learn anything keeps what the update gave it.
    stuck = HPFL(config(quantile=0.3, training=GUMTraining(learning_rate=1e-300)), ORGANISATIONS)
    sent, after = step_of(stuck, public, vault, np.array([client]))
    np.testing.assert_array_equal(
        after.read("attribute_vectors", np.array([client]))[0], updated["attribute_vectors"]
    )
    for name in PRIVATE:
        np.testing.assert_array_equal(after.read_ragged(name, client), updated[name])
    # Acc from the validation records, I from the training records, and eq. 3's terms.
    held = ORGANISATIONS.validation.of(client)
    hits = level_hits(
        stuck.predict_scores(after, client, held.users, held.items),
        held.scores,
        ORGANISATIONS.levels,
    )
    described = ORGANISATIONS.attributes[client][held.items]
    counts = ORGANISATIONS.attributes[client][ORGANISATIONS.train.of(client).items].sum(axis=0)
    rows, values, _ = sent[client]
    threshold = public.extras["threshold"][0]
    assert 0 < threshold < 1
    found = dict(zip(rows.tolist(), values, strict=True))
    for attribute in range(K):
        accuracy = hits[described[:, attribute]].mean()
        weight = counts[attribute] * 5 * accuracy / 1024  # five epochs by default
        if accuracy <= threshold:
            assert attribute not in found
            continue
        np.testing.assert_allclose(
            found[attribute],
            np.append(weight * updated["attribute_vectors"][attribute], weight),
            rtol=1e-12,
        )
    assert len(rows) > stuck.rows - K


@pytest.mark.parametrize("seeding", ["k-means++", "random"])
def test_the_server_divides_sums_and_clusters_drafts(seeding: str) -> None:
    engine, algorithm = federation(config(seeding=seeding))
    sent, _ = step_of(algorithm, engine.public, vault_for(algorithm), np.arange(CLIENTS))
    engine.run_round()
    numerators, weights = np.zeros((K, algorithm.width - 1)), np.zeros(K)
    for rows, values, _ in sent.values():
        means = rows < K
        numerators[rows[means]] += values[means, :-1]
        weights[rows[means]] += values[means, -1]
    np.testing.assert_allclose(
        engine.public.table[:K, :-1], numerators / weights[:, None], rtol=1e-5, atol=1e-6
    )
    codec = FixedPoint()
    for name, centres in (("user-drafts", "user-centres"), ("item-drafts", "item-centres")):
        drafts = np.concatenate([bags[name] for *_, bags in sent.values()])
        drafts = codec.decode(codec.encode(drafts))  # the bag holds what the ring holds
        drafts = drafts[np.lexsort(drafts.T[::-1])]
        expected = cluster_centres(drafts, 0.1, seed=0, seeding=seeding)
        np.testing.assert_array_equal(engine.public.extras[centres], expected)
    assert len(drafts) == sum(n // 10 for n in ORGANISATIONS.n_items)
    assert len(expected) == max(1, len(drafts) // 10)


@pytest.mark.parametrize("components", ["both", "public", "private"])
def test_a_batch_gives_the_bits_of_single_clients(components: str) -> None:
    engine, algorithm = trained(config(components=components), rounds=1)
    together, whole = step_of(
        algorithm, engine.public, restored(algorithm, engine), np.arange(CLIENTS)
    )
    vault = restored(algorithm, engine)
    for client in (2, 0, 3, 1):
        alone, vault = step_of(algorithm, engine.public, vault, np.array([client]))
        for one, other in zip(alone[client][:2], together[client][:2], strict=True):
            np.testing.assert_array_equal(one, other)
        require_equal(alone[client][2], together[client][2])
    require_equal(whole.snapshot(), vault.snapshot())


def restored(algorithm: HPFL, engine: LocalEngine) -> Vault:
    """A vault of its own in the state of the engine's."""
    vault = vault_for(algorithm)
    vault.restore(engine.vault.snapshot())
    return vault


def test_masked_encrypted_and_plain_rounds_end_in_the_same_bits() -> None:
    settings = config(share_hidden=True)
    plain = state(trained(settings)[0])
    for layers in (
        {"masking": MaskingLayerConfig()},
        {"masking": MaskingLayerConfig(execution="real")},
        {"paillier": EncryptionLayerConfig()},
        {"bag_layers": {"routing": RoutingLayerConfig()}},
    ):
        require_equal(plain, state(trained(settings, **layers)[0]))


def test_a_resumed_run_goes_on_to_the_same_bits() -> None:
    whole, _ = trained(config(threshold="stochastic"), rounds=3)
    first, _ = trained(config(threshold="stochastic"), rounds=1)
    second, _ = federation(config(threshold="stochastic"))
    second.restore(first.state())
    for _ in range(2):
        second.run_round()
    require_equal(state(whole), state(second))


def test_hpfl_k_federates_attribute_vectors_and_no_draft() -> None:
    engine, algorithm = trained(config(components="public"))
    assert algorithm.bag_sizes == {}
    assert set(engine.public.extras) == {"threshold"}
    sent, _ = step_of(algorithm, engine.public, engine.vault, np.array([0]))
    assert len(sent[0][0]) > 1
    assert sent[0][2] == {}


def test_hpfl_r_federates_drafts_and_no_attribute_vector() -> None:
    engine, _ = federation(config(components="private"))
    start = engine.public.table.copy()
    for _ in range(2):
        engine.run_round()
    np.testing.assert_array_equal(engine.public.table, start)
    assert set(engine.public.extras) == {"user-centres", "item-centres"}
    before = engine.vault.read("attribute_vectors", np.array([0]))
    stuck = HPFL(
        config(components="private", training=GUMTraining(learning_rate=1e-300)), ORGANISATIONS
    )
    sent, vault = step_of(stuck, engine.public, engine.vault, np.array([0]))
    np.testing.assert_array_equal(vault.read("attribute_vectors", np.array([0])), before)
    assert len(sent[0][0]) == 0
    assert len(sent[0][2]["user-drafts"]) == 2


def test_uploads_are_as_large_as_foretold() -> None:
    for components in ("both", "public", "private"):
        engine, algorithm = trained(config(components=components), rounds=1)
        rows = algorithm.upload_rows(engine.vault, algorithm.rows)
        vectors = algorithm.upload_vectors(engine.vault)
        sent, _ = step_of(algorithm, engine.public, engine.vault, np.arange(CLIENTS))
        for client, (sent_rows, _, bags) in sent.items():
            assert len(sent_rows) <= rows[client]
            assert {name: len(drafts) for name, drafts in bags.items()} == {
                name: int(most[client]) for name, most in vectors.items()
            }
    everything = HPFL(config(quantile=0.0), ORGANISATIONS)
    np.testing.assert_array_equal(
        everything.upload_rows(ORGANISATIONS.vault(), everything.rows), everything.rows
    )


def test_clients_start_alike_or_independently() -> None:
    for start, alike in (("common", True), ("independent", False)):
        vault = vault_for(HPFL(config(start=start), ORGANISATIONS))
        for name in ("attribute_vectors", "hidden_vectors"):
            values = vault.read(name, np.arange(CLIENTS))
            assert bool(np.all(values == values[0])) is alike
        assert not np.array_equal(
            vault.read_ragged("user_embeddings", 0)[0], vault.read_ragged("user_embeddings", 1)[0]
        )


def test_there_is_no_update_before_there_is_a_global_model() -> None:
    settings = config(start="independent", training=GUMTraining(learning_rate=1e-300))
    engine, _ = federation(settings)
    before = engine.vault.snapshot()
    engine.run_round()
    for name in ("attribute_vectors", "hidden_vectors", *PRIVATE):
        np.testing.assert_array_equal(engine.vault.snapshot()[name], before[name])
    engine.run_round()
    assert not np.array_equal(
        engine.vault.snapshot()["attribute_vectors"], before["attribute_vectors"]
    )


def test_every_client_draws_anew_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[float] = []
    selections: list[Selection] = []

    def trainer(gum: Any, start: FloatArray, *rest: Any) -> Trained:
        orders.append(float(rest[-1].random()))
        return Trained(parameters=start, epochs=1, kept=0, errors=np.zeros(2))

    def spy(*arguments: Any) -> Given:
        selections.append(arguments[-1])
        return give_out(*arguments)

    monkeypatch.setattr(hpfl, "give_out", spy)
    settings = config(components="public", threshold="stochastic")
    algorithm = HPFL(settings, ORGANISATIONS, trainer=trainer)
    vault, public = vault_for(algorithm), algorithm.initial_public(algorithm.rows, STREAMS)
    for round_ in range(3):
        algorithm.client_step(np.arange(CLIENTS), replace(public, round=round_), vault, STREAMS)
    drawn = {(each.draw, *each.seeds) for each in selections}
    assert len(set(orders)) == len(drawn) == 3 * CLIENTS
    assert len({seed for each in selections for seed in each.seeds}) == 2 * 3 * CLIENTS


def test_slip_and_guess_travel_in_the_item_drafts() -> None:
    gum = GUMConfig(hidden=3, scale=5.0, activation="sigmoid", slip_and_guess=True)
    engine, algorithm = trained(config(gum=gum))
    assert algorithm.bag_sizes["item-drafts"][0] == K + 2
    assert engine.public.extras["item-centres"].shape[1] == K + 2
    parts = algorithm.gum(0).layout.parts(algorithm.parameters(engine.vault, 0))
    assert parts.slip.any()
    assert parts.guess.any()


def without(source: Organisations, part: str, client: int) -> Vault:
    """The vault of organisations of which one has lost a part of its records."""
    vault = source.vault()
    columns: dict[str, list[Any]] = {}
    sizes = []
    for number in range(source.n_clients):
        own = vault.examples(number)
        keep = own["held_out"] == (part == "training") if number == client else own["users"] >= 0
        sizes.append(int(np.count_nonzero(keep)))
        for name, column in own.items():
            columns.setdefault(name, []).append(column[keep])
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Vault.of_examples(indptr, {n: np.concatenate(parts) for n, parts in columns.items()})


@pytest.mark.parametrize("part", ["training", "validation"])
def test_a_client_without_records_is_refused(part: str) -> None:
    with pytest.raises(ConfigError, match=f"does not have a {part} record") as caught:
        HPFL(config(), ORGANISATIONS).initialise(without(ORGANISATIONS, part, 2), STREAMS)
    assert caught.value.value == ORGANISATIONS.names[2]


def test_vaults_of_other_organisations_are_refused() -> None:
    settings = SyntheticOrganisationsConfig(clients=4, users=25, items=60, attributes=5, seed=2)
    with pytest.raises(ConfigError, match="user number"):
        HPFL(config(), ORGANISATIONS).initialise(generate_organisations(settings).vault(), STREAMS)
    fewer = generate_organisations(replace(settings, clients=3))
    with pytest.raises(ConfigError, match="vaults for 4 organisations"):
        HPFL(config(), ORGANISATIONS).initialise(fewer.vault(), STREAMS)
    with pytest.raises(ConfigError, match="need 6 rows"):
        HPFL(config(buckets=5), ORGANISATIONS).initial_public(7, STREAMS)
