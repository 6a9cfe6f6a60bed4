"""HPFL's drafts through mixes on hosts of their own, beside sums under any protection."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.deploy.homes import open_coordinator
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.bags import LayeredBags
from secure_fedrec.protection.bags.mixed_server import MixedBagHub
from secure_fedrec.protection.bags.mixes import Mixes
from secure_fedrec.protection.routing.directory import NEXT_HOP
from secure_fedrec.protection.routing.fragments import Kind as Piece
from secure_fedrec.protection.routing.fragments import cover, encode_fragment
from secure_fedrec.protection.routing.hosted import HostedMix
from secure_fedrec.protection.routing.onions import forward
from tests.deploy.memory import LONE, Deployment, silences
from tests.deploy.test_deploy_rounds import HPFL, MASKS, settings

pytestmark = pytest.mark.claim("hosts-bags-whole")

MIXES: dict[str, Any] = {"layer": "routing", "layers": 2, "cell_bytes": 2048}
CURIOUS: dict[str, Any] = {"layer": "masking"}
PAILLIER: dict[str, Any] = {"layer": "paillier", "key_bits": 2048}
HOSTS = (LONE, LONE + 1)
"""Of the mixes, where nobody else has a host without data."""
LONG = {**HPFL, "algorithm": {**HPFL["algorithm"], "rounds": 6}}
FORWARDED_ONCE = "round 1 is not beyond round 1, the last one begun"


def deployed(
    folder: Path, *layers: dict[str, Any], noise: Any = (), data: Any = HPFL["data"], **options: Any
) -> Deployment:
    raw = settings(
        *layers,
        **{**LONG, "data": data},
        bag_protection=[*noise, MIXES],
    )
    return Deployment.of(raw, folder, **options)


AGREED = ["ADVERTISE", "SHARES"]
PATHS = ["UPLOAD", "MIX-0", "MIX-1", "SEEN"]
ACTIVE = ["UPLOAD", "CONFIRM", "MIX-1", "SEEN"]
CURIOUS_STAGES = [*AGREED, "UPLOAD", "REVEAL"]


@pytest.mark.usefixtures("one_paillier_key")
@pytest.mark.parametrize(
    ("layers", "first", "second"),
    [
        ((), ["KEYS", *PATHS], ["KEYS", *PATHS]),
        ((MASKS,), [*AGREED, *ACTIVE, "REVEAL"], ["KEYS", *ACTIVE, "REVEAL"]),
        ((CURIOUS,), [*AGREED, *PATHS, "REVEAL"], ["KEYS", *PATHS, "REVEAL"]),
        (({**CURIOUS, "tail_floor": 2},), [*AGREED, *PATHS, "REVEAL", *CURIOUS_STAGES], []),
        ((PAILLIER,), ["KEYS", "UPLOADS", *PATHS[1:], "RESULT"], []),
    ],
    ids=["plain", "active", "curious", "floor", "paillier"],
)
def test_public_and_private_state_are_the_embedded_engines(
    layers: Any,
    first: list[str],
    second: list[str],
    tmp_path: Path,
) -> None:
    """Mixes make keys beside clients, the first one works beside CONFIRM, sums are opened last."""
    ran = deployed(tmp_path, *layers)
    ran.rounds(2 if second else 1)
    assert ran.transport.labels == ["greeting", *first, *second]
    assert ran.transport.log == []
    ran.require_equal()


def test_who_is_gone_costs_an_attempt(tmp_path: Path) -> None:
    """Nobody can be taken out of a bag: the next attempt is of those who are there.

    To masks it is one of all who are invited, so they bear no more that are gone than without bags.
    Keys that one of those who are there lacks serve nobody.
    """
    ran = deployed(tmp_path, MASKS, data={**HPFL["data"], "clients": 10, "users": 12})
    due = ["REVEAL"]

    def killing(label: str, who: int, data: bytes) -> list[bytes]:
        if label in due and who == 2:
            due.clear()
            ran.kill(2)
        return [data]

    ran.transport.out = killing
    ran.rounds(1)
    assert (due, len(ran.last.clients), ran.last.ready) == ([], 10, 10)
    ran.restart(2)
    ran.rounds(1)
    assert (ran.last.attempts, len(ran.last.clients)) == (1, 10)
    ran.kill(2)
    ran.rounds(1)
    assert (ran.last.attempts, list(ran.last.left_out)) == (2, [2])
    ran.kill(3)
    with pytest.raises(ProtocolError, match="round 4 was begun 3 times"):
        ran.rounds(1)
    assert not silences(tmp_path)
    ran.require_equal()


def test_a_mix_that_is_killed_costs_an_attempt(tmp_path: Path) -> None:
    """Back, it forwards once more what it may have forwarded: cells of the same clients."""
    ran = deployed(tmp_path)
    due: list[str] = []

    def killing(label: str, who: int, data: bytes) -> list[bytes]:
        if label in due and who == HOSTS[label == "MIX-1"]:
            due.clear()
            ran.kill(who)
            ran.restart(who)
            return []
        return [data]

    ran.transport.back = killing
    for stage in ("KEYS", "MIX-0", "MIX-1"):
        due[:] = [stage]
        ran.rounds(1)
        assert not due
        assert (ran.last.attempts, len(ran.last.clients)) == (2, 4)
    ran.kill(HOSTS[1])
    with pytest.raises(ProtocolError, match="mix 65536 is not connected"):
        ran.rounds(1)
    ran.restart(HOSTS[1])
    for client in (1, 2, 3):
        ran.kill(client)
    with pytest.raises(ProtocolError, match="1 client is there"):
        ran.rounds(1)
    assert not silences(tmp_path)
    ran.require_equal()


@pytest.mark.parametrize("alone", [{"clients": 1, "users": 4}, {}], ids=["clients", "cohort"])
def test_a_batch_of_one_client_is_refused_before_anything_starts(
    alone: Any, tmp_path: Path
) -> None:
    data, cohort = {**HPFL["data"], **alone}, {} if alone else {"clients_per_round": 1}
    raw = {
        **settings(
            **{**LONG, "data": data},
            bag_protection=[MIXES],
        ),
        "cohort": cohort,
    }
    with pytest.raises(ConfigError, match="mixes hide 2 clients a round or more"):
        Deployment.of(raw, tmp_path)


def test_a_mix_forwards_the_cells_of_no_other_clients(tmp_path: Path) -> None:
    """Two bags of a round would show, as a difference, what a client that is gone gave."""
    ran = deployed(tmp_path)
    before = ran.coordinator.public

    def killing(label: str, who: int, data: bytes) -> list[bytes]:
        if label == "SEEN" and who == 2:
            ran.kill(2)
            for mix in HOSTS:
                ran.kill(mix)
                ran.restart(mix)
            return []
        return [data]

    ran.transport.back = killing
    with pytest.raises(ProtocolError, match="round 1 was begun 3 times"):
        ran.rounds(1)
    assert (LONE, FORWARDED_ONCE) in ran.transport.log
    assert ran.transport.labels.count("SEEN") == 1
    assert ran.coordinator.public is before
    ran.transport.back = lambda label, who, data: [data]
    ran.restart(2)
    ran.rounds(1)
    assert len(ran.last.clients) == 4
    ran.require_equal()


@pytest.mark.parametrize("resumed", [False, True], ids=["same server", "resumed"])
@pytest.mark.parametrize("late", [3, 0])
def test_who_comes_late_waits_for_the_next_round(late: int, resumed: bool, tmp_path: Path) -> None:
    """What mixes have forwarded they forward again for the same clients: the round is theirs."""
    ran = deployed(tmp_path)
    ran.kill(late)
    others = [number for number in range(4) if number != late]

    def losing(label: str, who: int, data: bytes) -> list[bytes]:
        if label == "SEEN" and who == others[-1]:
            if late not in ran.transport.sites:
                ran.restart(late)
            return []
        return [data]

    ran.transport.back = losing
    with pytest.raises(
        ProtocolError, match=rf"may have been forwarded, .* in this round: {re.escape(str(others))}"
    ):
        ran.rounds(1)
    assert ran.transport.labels.count("SEEN") == 3  # by the same clients, thrice
    ran.transport.back = lambda label, who, data: [data]
    if resumed:
        ran.coordinator = open_coordinator(ran.layout, ran.transport)
        ran.coordinator.resume()
    ran.rounds(2)
    assert ran.last.attempts == 1
    assert ran.clients[1].tolist() == others
    assert ran.clients[2].tolist() == [0, 1, 2, 3]
    ran.require_equal()


def test_of_two_sets_the_one_that_was_forwarded_is_found(tmp_path: Path) -> None:
    """A mix that was asked for both says not which one it has taken."""
    ran = deployed(tmp_path, attempts=1)
    asked = 0

    def losing(label: str, who: int, data: bytes) -> list[bytes]:
        nonlocal asked
        asked += label == "MIX-0"
        return [] if (label, asked) in {("MIX-0", 1), ("SEEN", 3)} else [data]

    ran.transport.out = losing
    for gone in ((), (3,), ()):  # whom the server misses in the attempt after
        for number in gone:
            ran.kill(number)
        with pytest.raises(ProtocolError, match="round 1 was begun 1 times"):
            ran.rounds(1)
    assert asked == 3
    ran.restart(3)
    with pytest.raises(ProtocolError, match=re.escape("round: [0, 1, 2, 3] or [0, 1, 2]")):
        ran.rounds(1)
    ran.rounds(1)
    assert (asked, ran.clients[1].tolist()) == (5, [0, 1, 2])
    ran.require_equal()


def test_a_cell_that_a_mix_replaces_opens_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = deployed(tmp_path, MASKS, attempts=1)
    parcel = HostedMix._parcel

    def replacing(self: HostedMix, receiver: Any, kind: Any, body: bytes) -> Any:
        if receiver in self._course.recipients and kind.name == "CELLS":
            directory = self._directory
            assert directory is not None
            inside = encode_fragment(cover(Piece.DUMMY), directory.config.capacity)
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
    monkeypatch.undo()
    ran.rounds(1)  # nothing was revealed
    ran.require_equal()


def test_cells_that_are_missing_or_hold_no_vector_end_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last mix, or at a client; the server aborts, and goes on with the next attempt."""
    ran = deployed(tmp_path, attempts=1)
    parcel = HostedMix._parcel
    bags = ran.federation.stack.bags
    assert isinstance(bags, LayeredBags) and bags.mixes is not None
    size = bags.mixes.routing.size_at(2)

    def without(self: HostedMix, receiver: Any, kind: Any, body: bytes) -> Any:
        last = receiver in self._course.recipients and kind.name == "CELLS"
        return parcel(self, receiver, kind, body[:-size] if last else body)

    monkeypatch.setattr(HostedMix, "_parcel", without)
    with pytest.raises(ProtocolError, match="cells came, "):
        ran.rounds(1)
    monkeypatch.setattr(HostedMix, "_parcel", parcel)
    messages, rubbish = Mixes.messages, [b"rubbish"]

    def wrong(self: Mixes, blocks: Any, round_: int) -> list[list[bytes]]:
        (own,) = messages(self, blocks, round_)
        return [[rubbish.pop(), *own[1:]] if rubbish and own else own]

    monkeypatch.setattr(Mixes, "messages", wrong)
    with pytest.raises(ProtocolError, match="through the mixes is not a vector"):
        ran.rounds(1)
    assert "SEEN" not in ran.transport.labels
    ran.rounds(1)
    ran.require_equal()


@pytest.mark.parametrize("way", ["out", "back"])
def test_what_a_relay_alters_costs_an_attempt(way: str, tmp_path: Path) -> None:
    ran = deployed(tmp_path, attempts=4)
    due = {"UPLOAD": 3, "MIX-0": HOSTS[0], "SEEN": 1}

    def altered(label: str, who: int, data: bytes) -> list[bytes]:
        if due.get(label) != who:
            return [data]
        del due[label]
        return [data[:-70] + bytes([data[-70] ^ 1]) + data[-69:]]

    setattr(ran.transport, way, altered)
    ran.rounds(1)
    assert not due
    assert len(ran.last.clients) == 4
    assert ran.last.attempts == (3 if way == "out" else 4)
    ran.require_equal()


def test_vectors_are_noised_at_the_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the noise's coarser grid, no two runs alike, and as many as without it."""
    found = []
    bags = MixedBagHub.bags

    def kept(self: MixedBagHub, clients: Any) -> Any:
        found.append(bags(self, clients))
        return found[-1]

    monkeypatch.setattr(MixedBagHub, "bags", kept)
    noise = [{"layer": "local-dp", "noise_multiplier": 1.0, "fraction_bits": 4}]
    for name, layers in (("one", noise), ("two", noise), ("plain", [])):
        ran = deployed(tmp_path / name, noise=layers)
        ran.rounds(1)
    channel = ran.federation.stack.bags
    assert isinstance(channel, LayeredBags)
    one, two, plain = found
    for bag in channel.bags:
        assert len(one[bag]) == len(two[bag]) == len(plain[bag]) > 0
        assert np.array_equal(one[bag] * 16, np.round(one[bag] * 16))
        assert not np.array_equal(one[bag], two[bag])
        assert not np.array_equal(plain[bag] * 16, np.round(plain[bag] * 16))


def test_these_rounds_are_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="senders of messages that came through mixes"):
        deployed(tmp_path, record=True)
