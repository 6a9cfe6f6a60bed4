"""The halves behind a real mix cascade: exact sums, or a round that is aborted by name."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError, WireError
from secure_fedrec.protection.linkage_hardened import (
    LinkageClient,
    LinkageDenoiser,
)
from secure_fedrec.protection.linkage_hardened import client as client_module
from secure_fedrec.protection.linkage_hardened.rows import (
    RowShare,
    decode_row,
    decode_sums,
    encode_row,
    encode_sums,
    row_bytes,
)
from secure_fedrec.protection.routing import RoutingConfig, address_of, send
from secure_fedrec.protection.routing.network import MixNetwork
from secure_fedrec.protection.shared_upload.messages import Kind, sign

CELLS, CLIENTS, ITEMS = 6, 3, 6
BATCH = 2 * CELLS * 2
"""Cells of two clients to two denoisers."""

NewRound = Any


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), bits=st.sampled_from([9, 32, 40, 64]))
def test_the_sum_of_the_real_rows_remains(new_round: NewRound, seed: int, bits: int) -> None:
    round_ = new_round(bits=bits)
    for client in range(CLIENTS):
        round_.upload(client, seed)
    assert len(round_.cells) == CLIENTS * CELLS * 2
    round_.deliver(round_.mix())
    aggregate = round_.close()
    sums, counts = round_.expected()
    assert round_.context.codec.to_integers(aggregate.ring).tolist() == sums
    assert aggregate.counts.tolist() == counts


def whole_round(new_round: NewRound) -> tuple[Any, list[bytes]]:
    round_ = new_round()
    for client in range(CLIENTS):
        round_.upload(client, 7)
    return round_, round_.mix()


def test_a_mix_that_swaps_a_cell_for_a_dummy_is_found_or_changed_nothing(
    new_round: NewRound,
) -> None:
    outcomes = []
    for place in range(CLIENTS * CELLS * 2):
        round_, arriving = whole_round(new_round)
        node = address_of(arriving[place]).node
        directory = round_.network.directory
        dummies = send([], recipient=node, cells=BATCH, directory=directory)
        arriving[place] = round_.network.carry(dummies)[0]
        round_.deliver(arriving)
        try:
            aggregate = round_.close()
        except ProtocolError as refusal:
            assert "holds other rows or cells" in str(refusal)
            outcomes.append("found")
        else:
            sums, counts = round_.expected()
            assert round_.context.codec.to_integers(aggregate.ring).tolist() == sums
            assert aggregate.counts.tolist() == counts
            outcomes.append("a dummy for a dummy")
    # Every round shuffles anew; both outcomes occur, as fakes and dummies share the cells.
    assert set(outcomes) == {"found", "a dummy for a dummy"}


@pytest.mark.parametrize("place", range(4))
def test_a_cell_that_is_lost_aborts_whatever_it_held(new_round: NewRound, place: int) -> None:
    round_, arriving = whole_round(new_round)
    round_.deliver([cell for n, cell in enumerate(arriving) if n != place])
    with pytest.raises(ProtocolError, match="holds other rows or cells"):
        round_.close()


def test_a_client_whose_cells_are_all_lost_aborts(new_round: NewRound) -> None:
    round_ = new_round()
    round_.upload(0)
    round_.upload(1)
    kept = list(round_.cells)
    round_.upload(2)
    round_.cells = kept
    round_.deliver(round_.mix())
    with pytest.raises(ProtocolError, match="denoiser 0 got 12 cells, 18 were due"):
        round_.close()
    with pytest.raises(ProtocolError, match="the server is aborted"):
        round_.server.finish([])


def test_a_lost_upload_aborts(new_round: NewRound) -> None:
    round_ = new_round()
    round_.upload(0)
    round_.upload(1)
    rows, words, virtual = new_round.rows_of(round_.context, 2)
    round_.cells += round_.client(2).send(rows, words, virtual).cells
    round_.deliver(round_.mix())
    with pytest.raises(ProtocolError, match="denoiser 0 got 18 cells, 12 were due"):
        round_.close()


def test_tagged_and_replayed_cells_are_refused_and_abort(new_round: NewRound) -> None:
    round_, arriving = whole_round(new_round)
    tagged = bytearray(arriving[0])
    tagged[100] ^= 1
    node = address_of(arriving[0]).node
    with pytest.raises(ProtocolError, match="fails authentication"):
        round_.denoisers[node].receive(bytes(tagged))
    round_.deliver(arriving[1:])
    with pytest.raises(ProtocolError, match="replayed"):
        round_.denoisers[address_of(arriving[1]).node].receive(arriving[1])
    with pytest.raises(ProtocolError, match="holds other rows or cells"):
        round_.close()


def test_a_client_sends_once_and_only_what_fits(new_round: NewRound) -> None:
    round_ = new_round()
    client = round_.client(0)
    rows, words, virtual = new_round.rows_of(round_.context, 3)
    with pytest.raises(WireError, match="bool"):
        client.send(rows, words, virtual.astype(np.int64))
    with pytest.raises(WireError, match="ascend"):
        client.send(rows[::-1].copy(), words, virtual)
    with pytest.raises(EncodingError, match=r"beyond ring\.clip"):
        client.send(rows, words + np.uint32(1000), virtual)  # fakes are held to the clip, too
    client.send(rows, words, virtual)
    with pytest.raises(ProtocolError, match="client 0 is done"):
        client.send(rows, words, virtual)
    few = LinkageClient(
        round_.context,
        1,
        new_round.identities().clients[1],
        directory=round_.network.directory,
        cells=2,
    )
    everything = np.arange(ITEMS, dtype=np.int32)
    zeros = np.zeros((ITEMS, 2), dtype=np.uint32)
    with pytest.raises(ConfigError, match="fill 6"):
        few.send(everything, zeros, np.ones(ITEMS, dtype=bool))
    few.send(everything, zeros, everything < 2)  # the refusal changed nothing


def test_the_order_of_cells_does_not_tell_their_denoisers(
    new_round: NewRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        client_module, "send", lambda _, *, recipient, **__: 2 * [bytes([recipient])]
    )
    seen: Counter[tuple[bytes, ...]] = Counter()
    round_ = new_round()
    for _ in range(600):
        seen[round_.client(0).send(*new_round.rows_of(round_.context, 3)).cells] += 1
    assert len(seen) == 6  # two cells of each denoiser in every order
    assert chisquare(list(seen.values())).pvalue > 1e-6


def test_networks_that_do_not_fit_are_refused(new_round: NewRound) -> None:
    context = new_round.context_of()
    small = MixNetwork.start(RoutingConfig(layers=2, cell_bytes=250), recipients=2, epoch=0)
    with pytest.raises(ConfigError, match="to carry a row"):
        LinkageClient(
            context, 0, new_round.identities().clients[0], directory=small.directory, cells=4
        )
    lone = MixNetwork.start(RoutingConfig(layers=2, cell_bytes=512), recipients=1, epoch=0)
    with pytest.raises(ConfigError, match="must be at least 2"):
        LinkageClient(
            context, 0, new_round.identities().clients[0], directory=lone.directory, cells=4
        )
    with pytest.raises(ProtocolError, match="another key for client 1"):
        LinkageClient(
            context, 1, new_round.identities().clients[0], directory=small.directory, cells=4
        )
    with pytest.raises(ProtocolError, match="another key for denoiser 1"):
        LinkageDenoiser(
            context, 1, new_round.identities().denoisers[0], endpoint=small.ends[1], cells=4
        )


def test_states_and_senders_are_checked(new_round: NewRound) -> None:
    round_, arriving = whole_round(new_round)
    with pytest.raises(ProtocolError, match="is collecting"):
        round_.denoisers[0].release([])
    round_.deliver(arriving)
    sets = [denoiser.close() for denoiser in round_.denoisers]
    for wrong, match in (
        (sets[:1], "1 ROW_SET messages of 2"),
        ([sets[0], sets[0]], "two ROW_SET messages of denoiser 0"),
    ):
        with pytest.raises(ProtocolError, match=match):
            round_.denoisers[0].release(wrong)
    stray = new_round.context_of(number=2)
    old = sign(
        Kind.ROW_SET, 1, bytes(40), context=stray, identity=new_round.identities().denoisers[1]
    )
    with pytest.raises(ProtocolError, match="another agreement"):
        round_.denoisers[0].release([sets[0], old])
    with pytest.raises(ProtocolError, match="waiting for the other denoisers"):
        round_.denoisers[0].receive(arriving[0])
    with pytest.raises(ProtocolError, match="waiting for the other denoisers"):
        round_.denoisers[0].close()
    sums = [denoiser.release(sets[::-1]) for denoiser in round_.denoisers]
    with pytest.raises(ProtocolError, match="is done"):
        round_.denoisers[0].release(sets)
    with pytest.raises(ProtocolError, match="1 FAKES messages of 2"):
        round_.server.finish(sums[:1])
    with pytest.raises(ProtocolError, match="two FAKES messages of denoiser 1"):
        round_.server.finish([sums[1], sums[1]])
    with pytest.raises(ProtocolError, match="expected FAKES, got ROW_SET"):
        round_.server.finish(sets)
    round_.server.finish(sums)
    with pytest.raises(ProtocolError, match="the server is done"):
        round_.server.finish(sums)


Change = Callable[[int, Any, Any, Any], tuple[int, Any, Any, Any]]


def test_sums_that_disagree_abort(new_round: NewRound) -> None:
    changes: list[tuple[Change, str]] = [
        (lambda cells, rows, counts, words: (cells, rows, counts + 1, words), "counts other fakes"),
        (lambda cells, rows, counts, words: (cells + 1, rows, counts, words), "cells"),
        (
            lambda cells, rows, counts, words: (cells, rows, counts, words + np.uint32(2**20)),
            "exceeds what its count",
        ),
    ]
    for change, match in changes:
        round_, arriving = whole_round(new_round)
        round_.deliver(arriving)
        sets = [denoiser.close() for denoiser in round_.denoisers]
        sums = [denoiser.release(sets) for denoiser in round_.denoisers]
        read = decode_sums(sums[1][48:-64], round_.context)
        body = encode_sums(*change(*read), round_.context)
        identity = new_round.identities().denoisers[1]
        wrong = sign(Kind.FAKES, 1, body, context=round_.context, identity=identity)
        with pytest.raises(ProtocolError, match=match):
            round_.server.finish([sums[0], wrong])


def test_row_shares_are_bound_to_round_and_denoiser_and_have_one_encoding(
    new_round: NewRound,
) -> None:
    context = new_round.context_of()
    words = np.array([[7, 2**32 - 1]], dtype=np.uint32)
    data = encode_row(RowShare(bytes(range(16)), 5, words), 1, context)
    assert len(data) == row_bytes(2, 4)
    read = decode_row(data, 1, context)
    assert (read.row_id, read.row, read.words.tolist()) == (
        bytes(range(16)),
        5,
        words.tolist(),
    )
    with pytest.raises(ProtocolError, match="for denoiser 1, not 0"):
        decode_row(data, 0, context)
    with pytest.raises(ProtocolError, match="another round or setting"):
        decode_row(data, 1, new_round.context_of(number=2))
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        try:
            other = decode_row(bytes(damaged), 1, context)
        except (WireError, ProtocolError):
            continue
        assert encode_row(other, 1, context) == bytes(damaged)
    for wrong in (data[:-1], data + b"\0", b"", data[:30]):
        with pytest.raises(WireError):
            decode_row(wrong, 1, context)


def test_a_row_of_another_round_that_arrives_late_is_dropped(new_round: NewRound) -> None:
    round_ = new_round()
    network = round_.network
    share = RowShare(bytes(16), 2, np.zeros((1, 2), dtype=np.uint32))
    late = encode_row(share, 0, new_round.context_of(number=2))
    good = encode_row(share, 0, round_.context)
    cells = send([late, good, good, b"noise"], recipient=0, cells=4, directory=network.directory)
    cells += send([], recipient=1, cells=BATCH - 4, directory=network.directory)
    outcomes = []
    for cell in network.carry(cells):
        if address_of(cell).node:
            continue
        try:
            round_.denoisers[0].receive(cell)
            outcomes.append("taken")
        except (ProtocolError, WireError) as refusal:
            outcomes.append(type(refusal).__name__)
    assert sorted(outcomes) == ["ProtocolError", "ProtocolError", "WireError", "taken"]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=120))
def test_noise_is_refused(new_round: NewRound, noise: bytes) -> None:
    context = new_round.context_of()
    with pytest.raises((WireError, ProtocolError)):
        decode_row(noise, 0, context)
    for kind in (Kind.ROW_SET, Kind.FAKES):
        round_ = _closed(new_round)
        signed = sign(kind, 0, noise, context=context, identity=new_round.identities().denoisers[0])
        with pytest.raises((WireError, ProtocolError)):
            round_.server.finish([signed, signed])


@cache
def _closed(new_round: NewRound) -> Any:
    return new_round()
