"""No batch and no sum of fewer clients than the floor, at mixes, denoisers and server."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.executions import EXECUTIONS
from secure_fedrec.protection.linkage_hardened import (
    LinkageClient,
    LinkageHardened,
    LinkageHardenedConfig,
)
from secure_fedrec.protection.linkage_hardened.rows import encode_sums
from secure_fedrec.protection.routing import RoutingConfig, address_of, send
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.protection.shared_upload.messages import Kind, sign
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Meter, Wire

CELLS = 6
BATCH = 2 * CELLS * 2
"""Cells of two clients to two denoisers."""

NewRound = Any


def test_a_batch_of_one_clients_cells_is_never_forwarded(new_round: NewRound) -> None:
    config = LinkageHardenedConfig(count=2, cells=CELLS, layers=2, cell_bytes=512)
    assert config.routing.min_batch == BATCH
    round_ = new_round()
    round_.upload(0)
    mix = round_.network.mixes[0]
    for cell in round_.cells:
        mix.receive(cell)
    assert mix.waiting == BATCH // 2
    with pytest.raises(ProtocolError, match="fewer than the smallest batch"):
        mix.flush()
    round_.cells = []
    round_.upload(1)
    for cell in round_.cells[:-1]:
        mix.receive(cell)
        assert not mix.ready
    mix.receive(round_.cells[-1])
    assert len(mix.flush()) == BATCH


def test_a_network_whose_batches_one_client_fills_is_refused(new_round: NewRound) -> None:
    context = new_round.context_of()
    for size in (2, BATCH // 2, BATCH - 1):
        config = RoutingConfig(layers=2, cell_bytes=512, min_batch=size)
        directory = MixNetwork.start(config, recipients=2, epoch=0).directory
        with pytest.raises(ConfigError, match=f"must be at least {BATCH}") as refusal:
            LinkageClient(
                context, 0, new_round.identities().clients[0], directory=directory, cells=CELLS
            )
        assert (refusal.value.key, refusal.value.value) == ("routing.min_batch", size)


@pytest.mark.parametrize("clients", [1, 2])
def test_denoisers_abort_below_the_cells_of_the_floor(new_round: NewRound, clients: int) -> None:
    """A floor of three clients: two fill a batch, and nothing about their rows leaves."""
    round_ = new_round(floor=3)
    for client in range(clients):
        round_.upload(client)
    fill = BATCH - min(BATCH, len(round_.cells))  # dummies of a client that is not of the round
    round_.cells += send([], recipient=1, cells=fill, directory=round_.network.directory)
    arriving = round_.mix()
    first = round_.denoisers[0]
    round_.deliver([cell for cell in arriving if address_of(cell).node == 0])
    assert first.received == clients * CELLS
    with pytest.raises(ProtocolError, match=f"{clients * CELLS} cells, 18 are those of the floor"):
        first.close()
    for step in (first.close, lambda: first.release([]), lambda: first.receive(arriving[0])):
        with pytest.raises(ProtocolError, match="denoiser 0 is aborted"):
            step()


def test_denoisers_release_at_the_cells_of_the_floor(new_round: NewRound) -> None:
    round_ = new_round(floor=3)
    for client in range(3):
        round_.upload(client)
    round_.deliver(round_.mix())
    sums, counts = round_.expected()
    aggregate = round_.close()
    assert round_.context.codec.to_integers(aggregate.ring).tolist() == sums
    assert aggregate.counts.tolist() == counts


@pytest.mark.parametrize("heard", [0, 1, 2])
def test_the_server_aborts_below_the_floor_whatever_denoisers_send(
    new_round: NewRound, heard: int
) -> None:
    round_ = new_round(floor=3)
    context = round_.context
    for client in range(heard):
        round_.upload(client)
    none = np.zeros(0, dtype=np.int64)
    empty = np.zeros((0, 2), dtype=context.codec.dtype)
    body = encode_sums(heard * CELLS, none.astype(np.int32), none, empty, context)
    sums = [
        sign(Kind.FAKES, number, body, context=context, identity=key)
        for number, key in enumerate(new_round.identities().denoisers)
    ]
    with pytest.raises(ProtocolError, match=f"{heard} clients are fewer than the floor of 3"):
        round_.server.finish(sums)
    with pytest.raises(ProtocolError, match="the server is aborted"):
        round_.server.finish(sums)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_rounds_of_the_collector_that_fill_no_batch_are_refused(execution: str) -> None:
    collector = LinkageHardened(
        LinkageHardenedConfig(cells=CELLS, cell_bytes=512, execution=execution),
        n_clients=4,
        n_items=5,
        width=2,
        codec=FixedPoint(),
        streams=Streams.from_seed(1),
    )
    wire = Wire(meter=Meter(4))
    for participants in (0, 1):
        with pytest.raises(ProtocolError, match=f"{participants} clients are fewer than the floor"):
            collector.open(round_=1, participants=np.arange(participants), wire=wire)
    collector.open(round_=1, participants=np.arange(2), wire=wire)


@given(st.integers(2, 50), st.integers(1, 10**6))
def test_no_client_fills_more_than_half_of_a_batch(count: int, cells: int) -> None:
    config = LinkageHardenedConfig(count=count, cells=cells)
    assert 2 * cells * count <= config.routing.min_batch
