"""A server that wants two survivor sets, or two sums, where a committee signs for all.

Each attack runs on clients as they are, which it does not open, and on a copy without the rule,
which it does. What the server has is put together from what clients sent (``HostileRound``).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import Federation, Kind, MaskingConfig, SitePolicy
from secure_fedrec.protection.masking.client import steps as client_steps
from secure_fedrec.protection.masking.config.parameters import find_parameters
from secure_fedrec.protection.masking.envelope import Envelope
from secure_fedrec.protection.masking.messages.key_messages import Advertisement, Keys, Shares
from secure_fedrec.protection.masking.messages.keys import exchange, fresh_key, server_keys
from secure_fedrec.protection.masking.messages.sum_messages import Quorum
from secure_fedrec.protection.masking.messages.topology import PublicRound, Topology
from secure_fedrec.protection.session.reader import Reader
from tests.model_check.hostile import HostileRound, federation_of
from tests.model_check.settings import Setting, mask_of
from tests.model_check.switches import switched_off

N = 12
EVERYBODY = frozenset(range(N))
SETTING = Setting(
    n=N, degree=10, threshold=3, corrupt=0, window=1, min_survivors=7, committee=3, quorum=2
)
"""Nobody works with the server; two of three members sign."""


@pytest.fixture(autouse=True)
def _any_graph() -> Iterator[None]:
    with switched_off():  # no site asks for so small a graph
        yield


# One epoch: two sets of survivors, one with the victim and one without.


def split(
    setting: Setting = SETTING,
    *,
    signed: Callable[[HostileRound, bytes], dict[int, bytes]] | None = None,
    corrupt: Iterable[int] = (),
    committee: int = mask_of(range(3)),
) -> HostileRound:
    """Half of the clients hear that everybody survived, the others that the victim did not.

    Args:
        setting: the parameters.
        signed: what the server shows as signatures on a statement, in place of those it has.
        corrupt: clients that tell the server all they know, by ring place.
        committee: ring places of its members.
    """
    hostile = HostileRound(federation_of(N), setting, committee=committee)
    order = hostile.order.tolist()
    hostile.corrupt_clients(order[place] for place in corrupt)
    for number in sorted(EVERYBODY - hostile.corrupt):
        hostile.upload(number, EVERYBODY)
    honest = EVERYBODY - hostile.corrupt
    told_dropped = frozenset(sorted(honest & hostile.near[victim(hostile)])[:5])
    for listeners, story in (
        (honest - told_dropped, EVERYBODY),
        (told_dropped, EVERYBODY - {victim(hostile)}),
    ):
        if signed is None:
            hostile.tell(listeners, story)
            continue
        for number in sorted(listeners):
            answer = hostile.confirm(number, story)
            assert answer is not None
            show(hostile, number, signed(hostile, answer[0]), story)
    return hostile


def victim(hostile: HostileRound) -> int:
    """An honest client whose vector the server wants."""
    return min(EVERYBODY - hostile.corrupt)


def show(
    hostile: HostileRound, number: int, signatures: dict[int, bytes], story: frozenset[int]
) -> None:
    if hostile.reveal(number, signatures, story):
        hostile.unmasked[number] = b"", story


def opens(hostile: HostileRound) -> bool:
    """Whether the server has the victim's vector; it has no false one."""
    found = hostile.open_sums()
    for group, total in found.items():
        assert np.array_equal(total, hostile.true_sum(group))
    return frozenset({victim(hostile)}) in found


@pytest.mark.claim("masking-one-survivor-set")
def test_signers_outside_the_committee(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = split()
    assert not opens(ours)
    assert len({story for _, story in ours.unmasked.values()}) <= 1
    # Weakened copy: whoever survives may sign, and two signatures are soon had for either set.
    monkeypatch.setattr(Topology, "signers", lambda _, survivors: survivors)
    assert opens(split())


@pytest.mark.claim("masking-one-survivor-set")
def test_two_quorums_with_corrupt_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of five members signs both statements; four are a quorum, three would not be."""
    setting = replace(SETTING, corrupt=1, committee=5, quorum=4, window=2)
    for places in ((0, 1, 2, 3, 4), (0, 2, 4, 6, 8)):
        assert not opens(split(setting, corrupt=[0], committee=mask_of(places)))
    # Weakened copy: any number of signatures is a quorum.
    monkeypatch.setattr(client_steps, "is_quorum", lambda *_: True)
    assert opens(split(setting, corrupt=[0], committee=mask_of(range(5))))


@pytest.mark.claim("masking-one-survivor-set")
def test_forged_members(monkeypatch: pytest.MonkeyPatch) -> None:
    def forged(hostile: HostileRound, _: bytes) -> dict[int, bytes]:
        return dict.fromkeys(sorted(hostile.signers(EVERYBODY - {victim(hostile)}))[:2], bytes(64))

    def anybody(hostile: HostileRound, statement: bytes) -> dict[int, bytes]:
        """Signatures of clients of the server, under the numbers of members."""
        hostile.corrupt = frozenset({11})
        false = hostile.forged(statement)[11]
        hostile.corrupt = frozenset()
        return dict.fromkeys(forged(hostile, statement), false)

    for signed in (forged, anybody):
        ours = split(signed=signed)
        assert not ours.unmasked
        assert not opens(ours)
    # Weakened copy: signatures are counted, not verified.
    monkeypatch.setattr(client_steps, "verify", lambda *_: None)
    assert opens(split(signed=forged))


class Repeated:
    """Signatures of which one may stand there several times."""

    def __init__(self, pairs: list[tuple[int, bytes]]) -> None:
        self.items = lambda: pairs
        self._count = len(pairs)

    def __len__(self) -> int:
        return self._count


def twice(monkeypatch: pytest.MonkeyPatch) -> HostileRound:
    """One member works with the server, and its signature on either set stands there twice."""
    setting = replace(SETTING, corrupt=1, committee=5, quorum=4, window=2)

    def head(self: Quorum) -> bytes:
        records = [number.to_bytes(4, "little") + each for number, each in self.signatures.items()]
        return len(records * 4).to_bytes(4, "little") + b"".join(records * 4)

    def one(hostile: HostileRound, statement: bytes) -> dict[int, bytes]:
        return hostile.forged(statement)

    with monkeypatch.context() as patch:
        patch.setattr(Quorum, "head", head)
        return split(setting, signed=one, corrupt=[0], committee=mask_of(range(5)))


@pytest.mark.claim("masking-one-survivor-set")
def test_a_member_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = twice(monkeypatch)
    assert not ours.unmasked
    assert not opens(ours)

    # Weakened copy: records are counted, whoever they are of.
    def decode(head: bytes) -> Any:
        with Reader(head, "QUORUM") as reader:
            pairs = [(reader.number(4), reader.take(64)) for _ in range(reader.number(4))]
        return type("Counted", (), {"signatures": Repeated(pairs)})

    monkeypatch.setattr(Quorum, "decode", decode)
    assert opens(twice(monkeypatch))


@pytest.mark.claim("masking-committee")
def test_a_server_that_announces_a_smaller_committee(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one member, which is the server's: it agrees to everything."""
    setting = replace(SETTING, corrupt=1, committee=1, quorum=1, window=2)
    assert opens(split(setting, corrupt=[0], committee=1))  # the sites of this file ask for nothing
    monkeypatch.undo()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SitePolicy, "require", REQUIRE)
        rates: dict[str, Any] = {"corrupt": 0.05, "dropout": 0.2}
        found = find_parameters(200, adversary="active", **rates)
        assert found.committee is not None
        policy, roster = SitePolicy(**rates), Federation(range(200)).roster
        config = MaskingConfig.of(found, bits=32, length=1, layout_hash=bytes(32))
        policy.require(config, roster)
        policy.require(replace(config, quorum=config.quorum + 1), roster)
        for m, q in (
            (1, 1),
            (found.committee - 2, found.quorum - 1),
            (found.committee - 2, found.quorum),
            (found.committee, found.quorum - 1),
            (found.committee + 2, found.quorum),
            (None, 106),
        ):
            with pytest.raises(ProtocolError, match="this site asks for 39 of a committee of 67"):
                policy.require(replace(config, committee=m, quorum=q), roster)


REQUIRE = SitePolicy.require


# Two classes of clients, each with a ring and a committee of its own.


class TwoClasses(HostileRound):
    """A round that the first half of the clients sees under one beacon, the others under another.

    Args:
        setting: the parameters.
        epochs: whether the second class is told the next epoch; else a beacon that nobody observed.
        mixed: whether each class is told that the other advertised too.
    """

    def __init__(self, setting: Setting, *, epochs: bool, mixed: bool) -> None:
        self.epochs, self.mixed = epochs, mixed
        self.classes = frozenset(range(N // 2)), frozenset(range(N // 2, N))
        super().__init__(federation_of(N), setting)

    def _open(self, epoch: int, committee: int) -> None:
        setup, self.told = self.core._setup, list[Topology]()
        later = replace(setup, epoch=epoch + self.epochs)
        beacons = []
        for number, own in enumerate(self.classes):
            for client in sorted(own):
                head = (later if number else setup).head()
                self._take_advertisement(client, self.ask(client, self.says(Kind.SETUP, head)))
            beacons.append(self._beacon_for(own))
            if self.epochs:
                self._publish(epoch + number, beacons[-1])
        if not self.epochs:
            self._publish(epoch, beacons[0])
        self.near = {
            client: frozenset(self.told[client in self.classes[1]].neighbours(client).tolist())
            for client in EVERYBODY
        }
        for own, beacon in zip(self.classes, beacons, strict=True):
            for client in sorted(own):
                self._take_shares(client, EVERYBODY if self.mixed else own, beacon)

    def _publish(self, epoch: int, beacon: bytes) -> None:
        self.federation.beacons[epoch] = beacon
        for client in self.clients.values():
            client.observe_beacon(epoch, beacon)

    def _beacon_for(self, own: frozenset[int]) -> bytes:
        """One that leaves the class a quorum and a ring without gaps: some do, and others wait."""
        while True:
            beacon = fresh_key()
            topology = self.core.public.topology(beacon)
            if self.marks(own)[topology.signers(self.marks(EVERYBODY))].sum() < self.setting.quorum:
                continue
            try:
                topology.require_survivors(self.marks(EVERYBODY if self.mixed else own))
            except ProtocolError as refusal:
                if "the graph could be cut" in str(refusal):
                    continue
            self.told.append(topology)
            return beacon

    def _take_advertisement(self, client: int, reply: bytes | None) -> None:
        assert reply
        envelope, core = Envelope.decode(reply), self.core
        keys = core._keys[client] = Advertisement.decode(envelope.head, self.config)
        core._key_records[client] = envelope.head + envelope.proof
        ends = keys.channel_public, core._setup.channel_public
        shared = exchange(core._channel, keys.channel_public)
        core._client_keys[client] = server_keys(shared, core.public.context, client, ends)

    def _take_shares(self, client: int, told: frozenset[int], beacon: bytes) -> None:
        near = sorted(self.near[client] & told)
        records = {other: self.core._key_records[other] for other in near}
        keys = Keys(advertised=self.marks(told), beacon=beacon, records=records)
        reply = self.ask(client, self.says(Kind.KEYS, keys.head(), keys.payload()))
        if reply:
            shares = Shares.decode(Envelope.decode(reply).head, client, self.config)
            self.core._shares[client] = shares

    def tell_class(self, number: int, story: frozenset[int]) -> None:
        """A class hears who survived, and gets what its committee signs."""
        self.core._topology = self.told[number]
        self.tell(self.classes[number], story)

    def reasons(self) -> str:
        """Why clients left the round."""
        return "; ".join(str(client.abort_reason) for client in self.clients.values())


def one_victim(*, epochs: bool) -> TwoClasses:
    """The victim's class hears that everybody survived, the other that the victim did not."""
    hostile = TwoClasses(SETTING, epochs=epochs, mixed=True)
    for client in sorted(hostile.core._shares):
        hostile.upload(client, EVERYBODY)
    hostile.tell_class(0, EVERYBODY)
    hostile.tell_class(1, EVERYBODY - {victim(hostile)})
    return hostile


@pytest.mark.claim("masking-committee")
def test_two_statements_of_two_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = one_victim(epochs=True)
    assert not ours.core._shares
    assert "advertised for another epoch" in ours.reasons()
    assert not opens(ours)

    # Weakened copy: a neighbour may have signed for any epoch, and holds shares all the same.
    class Whichever(int):
        __hash__ = int.__hash__

        def __ne__(self, other: object) -> bool:
            return False

    class Lax(Advertisement):
        @classmethod
        def decode(cls, head: bytes, config: MaskingConfig) -> Advertisement:
            keys = Advertisement.decode(head, config)
            return replace(keys, epoch=Whichever(keys.epoch))

    monkeypatch.setattr(client_steps, "Advertisement", Lax)
    assert opens(one_victim(epochs=True))


@pytest.mark.claim("masking-committee")
def test_a_committee_of_another_beacon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server names each class a beacon that draws the committee from this class."""
    ours = one_victim(epochs=False)
    assert set(ours.core._shares) == set(ours.classes[0])
    assert "not the beacon that was observed" in ours.reasons()
    assert not opens(ours)
    # Weakened copy: the beacon is what the server says.
    monkeypatch.setattr(PublicRound, "beacon_due", False)
    assert opens(one_victim(epochs=False))


def two_sums(least: int) -> TwoClasses:
    """Each class hears of itself alone."""
    hostile = TwoClasses(replace(SETTING, min_survivors=least), epochs=True, mixed=False)
    for number, own in enumerate(hostile.classes):
        for client in sorted(own):
            hostile.upload(client, own)
        if own & set(hostile.uploads):
            hostile.tell_class(number, own)
    return hostile


@pytest.mark.claim("masking-committee")
def test_two_sums_of_two_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"masking\.min_survivors.*must be between 7 and 12"):
        two_sums(6)
    ours = two_sums(7)
    assert not ours.open_sums()
    assert "6 clients; a sum needs 7" in ours.reasons()
    # Weakened copy: sums may be over fewer clients than any two sets of share an honest one.
    monkeypatch.setattr(MaskingConfig, "_check_counts", lambda _: None)
    weak = two_sums(6)
    assert set(weak.open_sums()) == set(weak.classes)
