"""Clients that give each other rows before they work, on hosts of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.engines.distributed.sealed_peer_exchange import PeerHub, PeerParty
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.routing import KEMS, OpeningKey
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import encode_rows
from tests.deploy.memory import Deployment, silences
from tests.deploy.test_deploy_rounds import EXCHANGED, MASKS, settings

pytestmark = pytest.mark.claim("hosts-sealed-exchange")


def deployed(folder: Path, **options: Any) -> Deployment:
    return Deployment.of(settings(**EXCHANGED), folder, **options)


def test_what_is_given_is_sealed_for_its_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No carrier has the rows; a box that is handed to another one is refused."""
    ran = deployed(tmp_path)
    rows: list[bytes] = []
    carried: list[bytes] = []

    def noting(*given: Any, **named: Any) -> bytes:
        rows.append(encode_rows(*given, **named))
        return rows[-1]

    def relay(label: str, client: int, data: bytes) -> list[bytes]:
        carried.append(data)
        return [data]

    monkeypatch.setattr(
        "secure_fedrec.engines.distributed.sealed_peer_exchange.encode_rows", noting
    )
    ran.transport.out = ran.transport.back = relay
    ran.rounds(1)
    assert len(rows) == 6
    assert max(map(len, rows)) > 100
    for each in rows:
        assert not any(each[-64:] in data for data in carried)
    ran.require_equal()


def test_a_server_that_puts_in_its_own_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = deployed(tmp_path, attempts=1)
    step = PeerHub.step
    own = OpeningKey.generate(KEMS["x25519"]).public.data

    def swapped(self: PeerHub, inbox: Any) -> Any:
        sent = step(self, inbox)
        if self.stage != "PEERS":
            return sent
        return [each._replace(data=each.data[:-96] + own + each.data[-64:]) for each in sent]

    monkeypatch.setattr(PeerHub, "step", swapped)
    with pytest.raises(ProtocolError, match="was begun 1 times"):
        ran.rounds(1)
    assert any("has a bad signature" in why for _, why in ran.transport.log)


def test_boxes_that_are_swapped_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who carries them, who can do nothing else: they are signed."""
    ran = deployed(tmp_path, attempts=1)
    boxes = PeerParty._boxes

    def swapped(self: PeerParty, keys: Any) -> Any:
        one, two = boxes(self, keys)
        return [one._replace(data=two.data), two._replace(data=one.data)]

    monkeypatch.setattr(PeerParty, "_boxes", swapped)
    with pytest.raises(ProtocolError, match="no client was heard"):
        ran.rounds(1)
    refused = {why for _, why in ran.transport.log}
    assert refused == {f"the rows that client {n} gives are for another client" for n in (0, 1)}


def test_what_does_not_fit_halts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gives rows which nobody awaits costs the round, and ends nobody's part."""
    ran = deployed(tmp_path, attempts=1)
    opened = PeerParty._opened

    def fewer(self: PeerParty, inbox: Any, key: Any) -> Any:
        given = opened(self, inbox, key)
        assert given.block.values is not None
        return replace(given, block=replace(given.block, values=given.block.values[:, :-1]))

    with monkeypatch.context() as patch:
        patch.setattr(PeerParty, "_opened", fewer)
        with pytest.raises(ProtocolError, match="no client was heard"):
            ran.rounds(1)
    assert {why.partition(":")[0] for _, why in ran.transport.log} == {
        "rows from other clients do not fit"
    }
    assert not silences(tmp_path)
    ran.rounds(1)
    ran.require_equal()


def test_a_round_is_of_everybody_or_of_nobody(tmp_path: Path) -> None:
    """A site that is killed in any exchange: the model stays, and moves on once it is back."""
    ran = deployed(tmp_path)
    ran.rounds(1)
    before = ran.coordinator.public
    tables = {name: np.copy(values) for name, values in ran.site(1).tables().items()}
    due = [""]

    def killing(label: str, client: int, data: bytes) -> list[bytes]:
        if client == 2 and label == due[0]:
            ran.kill(2)
        return [data]

    ran.transport.out = killing
    for due[0] in ("PEER-KEYS", "PEERS", "UPLOAD"):
        with pytest.raises(ProtocolError, match="round 2 was begun 3 times"):
            ran.rounds(1)
        assert ran.coordinator.public is before
        ran.restart(2)
    due[0] = ""
    ran.rounds(1)
    ran.require_equal()
    assert any(not np.array_equal(tables[name], ran.site(1).tables()[name]) for name in tables)


def test_these_rounds_are_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="what clients give each other"):
        deployed(tmp_path, record=True)


@pytest.mark.parametrize("adversary", ["active", "curious"])
def test_masked_rounds_go_on(adversary: str, tmp_path: Path) -> None:
    """Their public state, who took part, is the same after every round."""
    ran = Deployment.of(settings({**MASKS, "adversary": adversary}, **EXCHANGED), tmp_path)
    ran.rounds(4)
    assert ran.transport.log == []
    ran.require_equal()


@pytest.mark.claim("hosts-silence")
@pytest.mark.parametrize("columns", [-1, 1])
def test_rows_of_another_width_halt_nobody(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that gives such rows costs the attempt."""
    ran = deployed(tmp_path, attempts=1)
    ran.transport.order = None
    given = []

    def other(block: RowBlock, **named: Any) -> bytes:
        given.append(block)
        assert block.values is not None
        if len(given) <= 2:  # of the first client alone
            wide = np.concatenate([block.values, block.values[:, :1]], axis=1)
            values = wide if columns > 0 else block.values[:, :columns]
            block = replace(block, values=np.ascontiguousarray(values))
        return encode_rows(block, **named)

    monkeypatch.setattr("secure_fedrec.engines.distributed.sealed_peer_exchange.encode_rows", other)
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    assert len(given) == 6
    assert any("width" in why or "do not fit" in why for _, why in ran.transport.log)
    assert not silences(tmp_path)
    ran.rounds(1)
    ran.require_equal()
