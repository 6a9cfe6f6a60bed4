"""What a private value may change on the wire: of an absent client, nothing at all."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from secure_fedrec.algorithms import PMF, PMFConfig, PublicState
from secure_fedrec.algorithms.pmf import PMFStep
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.engines import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import Message, Started, WireTap, wire_trace
from secure_fedrec.properties.strategies import Federation, federations, latent_vectors
from secure_fedrec.protection import Denoisers, DirectSum, Stack
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import DenseBlock, RowBlock
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Messages, Parties, Step

PROFILE = settings.get_profile("properties")
CONFIG = PMFConfig.printed(rank=2, learning_rate=0.1, init_scale=0.5)
HOT = replace(CONFIG, temperature=0.05)


@dataclass(frozen=True, kw_only=True)
class Presence:
    """A federation run up to the round before one of its clients first takes part.

    Args:
        federation: the federation.
        client: the client.
        joined: bool[n], clients that take part in these rounds.
    """

    federation: Federation
    client: int
    joined: BoolArray


def participants(federation: Federation, round_: int) -> IntArray:
    n_clients = federation.ratings.n_clients
    invited = federation.cohort.draw(round_, n_clients, federation.streams)
    return federation.stack.collector.participants(invited)


def first_rounds(federation: Federation) -> tuple[int, IntArray]:
    """First round with a participant, and first round of each client: rounds + 1 for never."""
    first = np.full(federation.ratings.n_clients, federation.rounds + 1)
    for round_ in range(federation.rounds, 0, -1):
        first[participants(federation, round_)] = round_
    return int(first.min()), first


@st.composite
def latecomers(draw: st.DrawFn) -> Presence:
    """A client that sits out a round in which others work, before its own first one."""
    drawn = draw(federations(width=2))
    # Among all cohort sizes those under which somebody is late.
    found = []
    for size in range(2, drawn.ratings.n_clients):
        federation = replace(drawn, cohort=CohortConfig(clients_per_round=size))
        busy, first = first_rounds(federation)
        found += [(federation, int(client), first) for client in np.flatnonzero(first > busy)]
    assume(found)
    federation, client, first = draw(st.sampled_from(found))
    joined: BoolArray = np.less(first, first[client])
    quiet = replace(federation, rounds=int(first[client]) - 1)
    return Presence(federation=quiet, client=client, joined=joined)


def with_client(table: RatingTable, client: int, items: list[int], level: float) -> RatingTable:
    """The table with all ratings of one client replaced."""
    others = table.clients != client
    return RatingTable.from_columns(
        name=table.name,
        n_clients=table.n_clients,
        n_items=table.n_items,
        clients=np.concatenate([table.clients[others], np.full(len(items), client, np.int32)]),
        items=np.concatenate([table.items[others], np.array(items, dtype=np.int32)]),
        ratings=np.concatenate([table.ratings[others], np.full(len(items), level)]),
        scale=table.scale,
        client_labels=table.client_labels,
        item_labels=table.item_labels,
    )


def other_level(table: RatingTable, row: int) -> RatingTable:
    """The table with one rating moved to the far end of its scale."""
    ratings = table.ratings.copy()
    middle = (table.scale.low + table.scale.high) / 2
    ratings[row] = table.scale.low if ratings[row] > middle else table.scale.high
    return replace(table, ratings=ratings)


def trace(
    federation: Federation, *, config: PMFConfig = HOT, users: FloatArray | None = None
) -> tuple[tuple[Message, ...], ...]:
    private = {} if users is None else {"user_vectors": users}
    return wire_trace(
        algorithm=lambda: Started(PMF(config), private=private), **federation.wire_arguments()
    )


def clients_of(message: Message, collector: Denoisers) -> set[int]:
    """The client an observer of the line would name, if the message names one."""
    step, sender, receiver, _ = message
    if step == "MODEL":
        return {receiver}
    if step == "UPLOAD":
        return {sender}
    return {int(collector.binding.denoisers[sender if step == "DENOISE" else receiver])}


@pytest.mark.claim("absent-clients-change-nothing")
@given(presence=latecomers(), data=st.data())
@settings(PROFILE, max_examples=200)
def test_ratings_of_a_client_stay_off_the_wire_until_it_takes_part(
    presence: Presence, data: st.DataObject
) -> None:
    federation, table = presence.federation, presence.federation.ratings
    items = data.draw(st.lists(st.integers(0, table.n_items - 1), unique=True), label="items")
    level = data.draw(st.sampled_from(table.scale.levels.tolist()), label="stars")
    changed = replace(federation, ratings=with_client(table, presence.client, items, level))
    assert trace(federation) == trace(changed)


@pytest.mark.claim("absent-clients-change-nothing")
@given(presence=latecomers(), data=st.data())
@settings(PROFILE, max_examples=200)
def test_absent_vaults_may_be_permuted(presence: Presence, data: st.DataObject) -> None:
    federation, table = presence.federation, presence.federation.ratings
    absent = np.flatnonzero(~presence.joined)
    owners = np.arange(table.n_clients)
    owners[absent] = data.draw(st.permutations(absent.tolist()), label="new owners")
    shuffled = RatingTable.from_columns(
        name=table.name,
        n_clients=table.n_clients,
        n_items=table.n_items,
        clients=owners[table.clients],
        items=table.items,
        ratings=table.ratings,
        scale=table.scale,
        client_labels=table.client_labels,
        item_labels=table.item_labels,
    )
    users = data.draw(latent_vectors(table.n_clients, 2), label="user vectors")
    moved = users.copy()
    moved[owners] = users
    before = trace(federation, users=users)
    assert before == trace(replace(federation, ratings=shuffled), users=moved)


@pytest.mark.claim("absent-clients-change-nothing")
@given(presence=latecomers(), data=st.data())
@settings(PROFILE, max_examples=100)
def test_user_vectors_of_absent_clients_stay_off_the_wire(
    presence: Presence, data: st.DataObject
) -> None:
    federation = presence.federation
    users = data.draw(latent_vectors(federation.ratings.n_clients, 2), label="user vectors")
    changed = users.copy()
    changed[~presence.joined] = data.draw(st.floats(-9, 9), label="entries of the absent")
    assert trace(federation, users=users) == trace(federation, users=changed)


@given(federation=federations(width=2, cloaks=("virtual-ratings", "none")), data=st.data())
@settings(PROFILE, max_examples=100)
def test_a_rating_of_a_present_client_changes_the_wire_at_its_own_lines_only(
    federation: Federation, data: st.DataObject
) -> None:
    table, collector = federation.ratings, federation.stack.collector
    assert isinstance(collector, Denoisers)
    present = participants(federation, 1)
    rows = np.flatnonzero(np.isin(table.clients, present))
    assume(len(rows))
    row = data.draw(st.sampled_from(rows.tolist()), label="changed rating")
    users = np.full((table.n_clients, 2), 0.5)  # a row is proportional to the user vector
    changed = replace(federation, ratings=other_level(table, row))
    before, after = (trace(f, config=CONFIG, users=users)[0] for f in (federation, changed))
    differing = set(before) ^ set(after)
    client = int(table.clients[row])
    denoiser = int(collector.binding.denoisers[collector.binding.group[client]])
    assert {"UPLOAD", "DENOISE"} & {message[0] for message in differing}
    assert set.union(*(clients_of(m, collector) for m in differing)) <= {client, denoiser}


@given(federation=federations(width=2), data=st.data())
@settings(PROFILE, max_examples=50)
def test_held_out_ratings_stay_off_the_wire(federation: Federation, data: st.DataObject) -> None:
    table = federation.ratings
    bits = data.draw(st.integers(0, 2 ** len(table) - 1), label="held out")
    held = np.array([bool(bits >> row & 1) for row in range(len(table))], dtype=bool)
    train, test = table.subset(~held), table.subset(held)
    level = data.draw(st.sampled_from(table.scale.levels.tolist()), label="stars")
    other = replace(test, ratings=np.full(len(test), level))
    traces = {
        wire_trace(
            algorithm=lambda: PMF(CONFIG), test=part, **federation.wire_arguments(ratings=train)
        )
        for part in (None, test, other)
    }
    assert len(traces) == 1


@given(federation=federations(width=2, cloaks=("randomized-response",)), data=st.data())
@settings(PROFILE, max_examples=50)
def test_names_of_clients_and_items_stay_off_the_wire(
    federation: Federation, data: st.DataObject
) -> None:
    table = federation.ratings
    label = data.draw(st.integers(1, 9999), label="first label")
    renamed = replace(
        table,
        name="renamed",
        client_labels=np.arange(table.n_clients) + label,
        item_labels=np.arange(table.n_items) + label,
        demographics={"gender": np.array(["F", "M"])[np.arange(table.n_clients) % 2]},
    )
    assert trace(federation) == trace(replace(federation, ratings=renamed))


class Nosy(PMF):
    """Weighs a client's work with the mean of everybody's ratings."""

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> PMFStep:
        everything = vault.rated(np.arange(vault.n_clients)).ratings
        nosy = replace(public, table=public.table * everything.mean())
        return super().client_step(clients, nosy, vault, streams)


def test_a_client_step_that_reads_other_vaults_is_caught() -> None:
    ratings = generate(SyntheticConfig(clients=6, items=12, mean_ratings=6, seed=1))
    streams, codec = Streams.from_seed(0), FixedPoint()
    collector = DirectSum(n_clients=6, n_items=12, width=2, codec=codec)
    federation = Federation(
        ratings=ratings,
        streams=streams,
        stack=Stack(codec=codec, cloak=None, collector=collector, n_clients=6),
        rounds=1,
        cohort=CohortConfig(clients_per_round=2),
    )
    absent = np.setdiff1d(np.arange(6), participants(federation, 1))[0]
    row = int(np.flatnonzero(ratings.clients == absent)[0])
    changed = federation.wire_arguments(ratings=other_level(ratings, row))
    for model, equal in ((PMF, True), (Nosy, False)):
        traces = [
            wire_trace(algorithm=partial(model, CONFIG), **run)
            for run in (federation.wire_arguments(), changed)
        ]
        assert (traces[0] == traces[1]) is equal


def batch(**columns: Any) -> Messages:
    rows = RowBlock(
        indptr=np.array([0, 1, 3]),
        rows=np.array([4, 1, 2], dtype=np.int32),
        values=np.arange(6, dtype=np.uint64).reshape(3, 2),
        counts=np.array([1, 1, 2]),
    )
    whole: dict[str, Any] = {
        "round": 1,
        "step": Step.NOISE,
        "senders": Parties(role="client", ids=np.array([3, 5])),
        "receivers": Parties(role="denoiser", ids=np.array([0, 1])),
        "payload": rows,
        "sizes": np.array([40, 60]),
        "tags": np.array([7, 8], dtype=np.uint64),
    }
    for name in ("indptr", "rows", "values", "counts"):
        if name in columns:
            whole["payload"] = replace(rows, **{name: columns.pop(name)})
    return Messages(**{**whole, **columns})


@pytest.mark.parametrize(
    "change",
    [
        {"step": Step.UPLOAD},
        {"senders": Parties(role="denoiser", ids=np.array([3, 5]))},
        {"senders": Parties(role="client", ids=np.array([3, 4]))},
        {"receivers": Parties(role="server", ids=np.array([0, 1]))},
        {"receivers": Parties(role="denoiser", ids=np.array([0, 0]))},
        {"sizes": np.array([40, 61])},
        {"tags": np.array([7, 9], dtype=np.uint64)},
        {"tags": None},
        {"indptr": np.array([0, 2, 3])},
        {"rows": np.array([4, 1, 3], dtype=np.int32)},
        {"values": np.array([[0, 1], [2, 3], [4, 6]], dtype=np.uint64)},
        {"values": np.arange(6, dtype=np.uint32).reshape(3, 2)},
        {"values": None},
        {"counts": np.array([1, 1, 3])},
        {"counts": None},
        {"payload": DenseBlock(values=np.zeros((2, 2)), shape=(2, 2))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_trace_shows_every_column(change: dict[str, Any]) -> None:
    taps = WireTap(), WireTap()
    for tap, messages in zip(taps, (batch(), batch(**change)), strict=True):
        assert tap.apply(messages) is messages
    assert taps[0].messages(1) != taps[1].messages(1)


def test_a_trace_does_not_show_how_messages_were_batched() -> None:
    whole, parts = WireTap(), WireTap()
    whole.apply(batch())
    for place in (1, 0):
        parts.apply(batch().select(np.array([place])))
    assert whole.messages(1) == parts.messages(1)
    assert whole.messages(2) == ()
