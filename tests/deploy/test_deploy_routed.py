"""FedRec++ with denoisers behind mixes, every mix on a host of its own."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.deploy.homes import open_coordinator
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.denoisers.embedded import Denoisers
from secure_fedrec.protection.denoisers.server import RoutedServer
from secure_fedrec.protection.routing.directory import NEXT_HOP
from secure_fedrec.protection.routing.endpoint import Endpoint
from secure_fedrec.protection.routing.fragments import cut, encode_fragment
from secure_fedrec.protection.routing.hosted import HostedMix, Kind, PathEnd, cells_for
from secure_fedrec.protection.routing.onions import forward
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step, encode_rows
from tests.deploy.memory import LONE, Deployment
from tests.deploy.test_deploy_rounds import settings

ROUTED: tuple[dict[str, Any], ...] = (
    {"layer": "virtual-ratings"},
    {"layer": "denoisers", "count": 2},
    {"layer": "routing", "layers": 2, "cell_bytes": 2048},
)
MIXES = ["MIX-0", "MIX-1"]
STAGES = ["KEYS", "UPLOADS", *MIXES, "RECEIPTS", "SEEN", "SUMS"]
SMALL: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 6, "items": 12, "mean_ratings": 5.0},
    "algorithm": {"rounds": 4, "rank": 1},
}


def deployed(folder: Path, **options: Any) -> tuple[Deployment, list[int], list[int]]:
    """A deployment, clients that denoise, and others."""
    ran = Deployment.of(settings(*ROUTED, **SMALL), folder, **options)
    collector = ran.federation.stack.collector
    assert isinstance(collector, Denoisers)
    denoisers = collector.binding.denoisers.tolist()
    return ran, denoisers, [client for client in range(6) if client not in denoisers]


def test_public_and_private_state_are_the_embedded_engines(tmp_path: Path) -> None:
    """With clients and a denoiser that are gone; in any order of answers."""
    ran, denoisers, others = deployed(tmp_path)
    exchange = ran.transport.exchange

    def turned(
        label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        return reversed(list(exchange(label, messages, timeout)))

    ran.transport.exchange = turned  # type: ignore[method-assign]
    ran.rounds(1)
    assert ran.transport.labels == ["greeting", *STAGES]
    ran.kill(others[0])
    ran.rounds(1)
    assert (ran.last.attempts, list(ran.last.left_out)) == (2, [others[0]])
    ran.restart(others[0])
    ran.kill(denoisers[1])
    ran.rounds(1)
    assert ran.last.attempts == 2
    collector = ran.federation.stack.collector
    assert isinstance(collector, Denoisers)
    assert {*collector.binding.group[ran.last.clients].tolist()} == {0}
    ran.restart(denoisers[1])
    ran.rounds(1)
    assert len(ran.last.clients) == 6
    assert ran.transport.log == []
    ran.require_equal()


@pytest.mark.claim("hosts-mix-waits-for-all")
def test_nothing_is_forwarded_before_every_sender_has_handed_in(tmp_path: Path) -> None:
    """What a relay holds back ends the attempt at the first mix: no batch is of chosen senders."""
    ran, _, others = deployed(tmp_path, attempts=1)
    (first,) = [n for n in (LONE, LONE + 1) if ran.transport.sites[n].identity.node.number == 0]

    def held_back(label: str, who: int, data: bytes) -> list[bytes]:
        return [] if (label, who) == ("UPLOADS", others[0]) else [data]

    ran.transport.back = held_back
    with pytest.raises(ProtocolError, match=f"no UPLOAD of client {others[0]}"):
        ran.rounds(1)
    assert "MIX-0" not in ran.transport.labels
    mix = ran.transport.sites[first]._party
    assert isinstance(mix, HostedMix)
    body = cells_for(mix.node, [bytes(2048)])
    cells = [
        mix._course.messages.seal(Kind.CELLS, body, ran.site(each).identity) for each in others[1:]
    ]
    with pytest.raises(ProtocolError, match=f"no CELLS of client {others[0]}"):
        mix.step(cells)
    with pytest.raises(ProtocolError, match=f"no CELLS of client {others[0]}"):
        mix.step([*cells, cells[0]])


@pytest.mark.claim("hosts-mix-waits-for-all")
def test_a_cell_that_a_mix_replaces_releases_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender misses it in the lists, so no denoiser has every client's word."""
    ran, _, _ = deployed(tmp_path, attempts=1)
    parcel = HostedMix._parcel
    codec = ran.federation.stack.codec

    def replacing(self: HostedMix, receiver: Any, kind: Any, body: bytes) -> Any:
        if receiver == self._course.recipients[0]:
            directory = self._directory
            assert directory is not None
            nothing = RowBlock(
                indptr=np.zeros(2, dtype=np.int64),
                rows=np.zeros(0, dtype=np.int32),
                values=np.zeros((0, 1), dtype=codec.dtype),
            )
            message = encode_rows(nothing, round_=1, step=Step.NOISE, codec=codec)
            (piece,) = cut(message, directory.config.capacity)
            inside = encode_fragment(piece, directory.config.capacity)
            box = directory.key_of(2, 0).seal(inside, directory.info(2, 0))
            own = forward(NEXT_HOP.pack(0) + box, 2, directory)
            body = body[:4] + own + body[4 + len(own) :]
        return parcel(self, receiver, kind, body)

    monkeypatch.setattr(HostedMix, "_parcel", replacing)
    with pytest.raises(ProtocolError, match="no SEEN of client"):
        ran.rounds(1)
    assert ran.transport.labels[-1] == "SEEN"
    ((_, why),) = ran.transport.log
    assert why == "a cell of this sender was not received as it was sent"


@pytest.mark.claim("hosts-mix-waits-for-all")
def test_lists_that_differ_from_client_to_client_release_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A denoiser that signs two lists, and a server that hands one to a single client."""
    ran, denoisers, _ = deployed(tmp_path, attempts=1)
    ran.transport.order = None  # the first list that a client is sent is the first denoiser's
    step = RoutedServer.step

    def other_list(self: RoutedServer, inbox: Any) -> Any:
        sent = step(self, inbox)
        if self.stage != "SEEN":
            return sent
        half = ran.site(denoisers[0])._attempt.parties[self._course.recipients[0]]._half  # type: ignore[union-attr]
        end = half._end
        end._unsigned[self._course.serial] = [*signed]
        end._signed.clear()
        second = end.receipt(batch=self._course.serial, identity=half._identity.key)
        sealed = self._course.messages.seal(Kind.RECEIPT, second, half._identity)
        return [sent[0]._replace(data=sealed), *sent[1:]]

    signed: list[bytes] = []
    receive = Endpoint.receive

    def noting(self: Endpoint, cell: bytes) -> bytes | None:
        whole = receive(self, cell)
        signed[:] = {*signed, *(each for held in self._unsigned.values() for each in held)}
        return whole

    monkeypatch.setattr(Endpoint, "receive", noting)
    monkeypatch.setattr(RoutedServer, "step", other_list)
    with pytest.raises(ProtocolError, match="no SUMS of denoiser 0"):
        ran.rounds(1)
    assert "clients have seen other lists than these" in {why for _, why in ran.transport.log}


@pytest.mark.parametrize("way", ["out", "back"])
def test_what_a_relay_alters_costs_an_attempt(way: str, tmp_path: Path) -> None:
    ran, denoisers, others = deployed(tmp_path, attempts=4)
    due = {"UPLOADS": others[1], "MIX-0": LONE, "SUMS": denoisers[0]}

    def altered(label: str, who: int, data: bytes) -> list[bytes]:
        if due.get(label) != who:
            return [data]
        del due[label]
        return [data[:-70] + bytes([data[-70] ^ 1]) + data[-69:]]

    setattr(ran.transport, way, altered)
    ran.rounds(1)
    assert not due
    assert len(ran.last.clients) == 6
    assert ran.last.attempts == (3 if way == "out" else 4)
    ran.require_equal()


@pytest.mark.claim("hosts-whole-cohort")
def test_an_attempt_is_answered_once(tmp_path: Path) -> None:
    """A server that has forgotten all: sites that were started anew refuse its number."""
    ran, _, _ = deployed(tmp_path)
    ran.rounds(1)
    again = open_coordinator(ran.layout, ran.transport, attempts=1)
    for client in range(6):
        ran.kill(client)
        ran.restart(client)
    with pytest.raises(ProtocolError, match="round 1 was begun 1 times"):
        again.run_round()
    assert {why for _, why in ran.transport.log} == {
        "round 1 is not beyond round 1, the last one begun"
    }


@pytest.mark.claim("hosts-one-statement")
def test_denoisers_sum_what_was_lost_again_for_the_same_clients_alone(tmp_path: Path) -> None:
    """Of a sum that the server has read and says is lost, and one with a client less."""
    ran, denoisers, others = deployed(tmp_path, attempts=3)

    def lost(label: str, who: int, data: bytes) -> list[bytes]:
        if (label, who) == ("SUMS", denoisers[0]):
            if others[0] in ran.transport.sites:
                ran.kill(others[0])
            return []
        return [data]

    ran.transport.back = lost
    with pytest.raises(ProtocolError, match="was begun 3 times"):
        ran.rounds(1)
    refused = {who for who, why in ran.transport.log if "round 1 is not beyond round 1" in why}
    assert refused & set(denoisers) == refused != set()
    ran.transport.back = lambda label, who, data: [data]
    ran.restart(others[0])
    ran.rounds(1)
    assert len(ran.last.clients) == 6
    ran.require_equal()


def test_these_rounds_are_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="senders of messages that came through mixes"):
        deployed(tmp_path, record=True)


@pytest.mark.claim("hosts-mix-once")
def test_a_mix_mixes_once_and_no_few_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked batch by batch, it would tell the mix before it whose cells come out."""
    ran, _, _ = deployed(tmp_path, attempts=1)
    answer, cells = HostedMix._answer, PathEnd._cells
    again: list[int] = []

    def twice(self: HostedMix, inbox: Any) -> Any:
        sent = answer(self, inbox)
        with pytest.raises(ProtocolError, match="has mixed in attempt"):
            answer(self, inbox)
        again.append(self._layer)
        return sent

    monkeypatch.setattr(HostedMix, "_answer", twice)
    ran.rounds(1)
    assert again == [0, 1]

    def few(self: PathEnd, inbox: Any, layer: int, due: Any) -> list[bytes]:
        return cells(self, inbox, layer, due)[: 3 if layer == 1 else None]

    monkeypatch.setattr(PathEnd, "_cells", few)
    with pytest.raises(ProtocolError, match="mix 65536 gave no answer"):
        ran.rounds(1)
    assert "3 cells of 4 senders" in {why for _, why in ran.transport.log}
