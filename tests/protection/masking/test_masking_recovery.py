"""The server: recovery with clients that lie about shares, minimums, and beacons."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import (
    ClientState,
    Fault,
    Federation,
    Kind,
    MaskingConfig,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.envelope import Envelope
from secure_fedrec.protection.masking.messages.keys import open_box, seal_box
from secure_fedrec.protection.masking.messages.shamir import PRIME, decode_element, encode_element
from secure_fedrec.protection.masking.messages.sum_messages import Reveal, Upload

ALL = [3, 7, 20, 21, 40]


def reveal_saying(s: Any, number: int, **changes: Any) -> bytes:
    """A REVEAL with other contents, encrypted and authenticated by its client."""
    envelope = Envelope.decode(s.replies[number])
    current = s.server._round
    key = current._client_keys[number]["reveal-box"]
    reveal = Reveal.decode(open_box(key, envelope.head, envelope.context.round_id))
    fields = {"self_seed": reveal.self_seed, "shares": reveal.shares} | changes
    head = seal_box(key, Reveal(**fields).encode(), envelope.context.round_id)
    return bytes(s.client_says(s.replies[number], head=head))


def revealed_by(s: Any, number: int) -> Reveal:
    envelope = Envelope.decode(s.replies[number])
    key = s.server._round._client_keys[number]["reveal-box"]
    return Reveal.decode(open_box(key, envelope.head, envelope.context.round_id))


def off_by_one(share: bytes) -> bytes:
    return encode_element((decode_element(share) + 1) % PRIME)


def check_sum(s: Any, survivors: list[int]) -> None:
    assert s.server.survivors.tolist() == survivors
    assert np.array_equal(s.layout.decode(s.server.result), s.total(survivors))


def test_a_bad_responder_is_named_and_left_out(scene: Any) -> None:
    s = scene()
    s.until_server_gets(Kind.REVEAL, silent={40: Kind.UPLOAD})
    shares = dict(revealed_by(s, 3).shares)
    shares[40] = off_by_one(shares[40])
    s.replies[3] = reveal_saying(s, 3, shares=shares)
    s.finish()
    check_sum(s, [3, 7, 20, 21])
    assert s.server.faults == (Fault(kind="bad responder", client=3, about=40),)


def test_a_wrong_own_seed_is_named_and_restored_from_shares(scene: Any) -> None:
    for wrong in (encode_element(5), b"\xff" * 32):
        s = scene()
        s.until_server_gets(Kind.REVEAL)
        s.replies[21] = reveal_saying(s, 21, self_seed=wrong)
        s.finish()
        check_sum(s, ALL)
        assert s.server.faults == (Fault(kind="bad seed", client=21, about=21),)


def deal_badly(monkeypatch: pytest.MonkeyPatch, s: Any, sharer: int, victims: set[int]) -> None:
    """A sharer that signs, encrypts and sends wrong shares to some neighbours."""
    from secure_fedrec.protection.masking.client.secrets import Neighbour

    honest = Neighbour.seal_shares

    def seal_shares(self: Neighbour, mask_share: int, self_share: int, pair_seal: bytes) -> bytes:
        if self.owner == sharer and self.number in victims:
            mask_share = (mask_share + self.number) % PRIME
        return honest(self, mask_share, self_share, pair_seal)

    monkeypatch.setattr(Neighbour, "seal_shares", seal_shares)


@pytest.mark.parametrize("victims", [{3}, {7}, {21}])
def test_a_bad_sharer_is_told_from_a_bad_responder(
    scene: Any, monkeypatch: pytest.MonkeyPatch, victims: set[int]
) -> None:
    s = scene()
    deal_badly(monkeypatch, s, 40, victims)
    s.until_server_gets(Kind.REVEAL, silent={40: Kind.UPLOAD})
    s.finish()
    check_sum(s, [3, 7, 20, 21])
    assert {fault.client for fault in s.server.faults} <= {40}
    assert {fault.kind for fault in s.server.faults} <= {"bad sharer"}
    if 3 in victims:  # in the first subset that is tried
        assert s.server.faults == (Fault(kind="bad sharer", client=40, about=40),)


def test_shares_that_never_fit_abort_without_a_partial_result(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene(threshold=3, min_survivors=4)
    deal_badly(monkeypatch, s, 40, {3, 20})
    s.until_server_gets(Kind.REVEAL, silent={40: Kind.UPLOAD})
    with pytest.raises(ProtocolError, match="do not fit each other"):
        s.finish()
    assert s.server.faults == (Fault(kind="bad sharer", client=40, about=40),)
    with pytest.raises(ProtocolError, match="no result"):
        _ = s.server.result
    assert not len(s.server._round._sum.total())


def test_shares_that_do_not_open_are_disputed_and_the_round_goes_on(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.BOXES)
    for place, (number, data) in enumerate(s.outgoing):
        if number == 7:
            envelope = Envelope.decode(data)
            payload = bytearray(envelope.payload)
            payload[4 + 4] ^= 1  # first byte of the box from client 3
            s.outgoing[place] = s.outgoing[place]._replace(
                data=s.server_says(data, payload=bytes(payload))
            )
    s._answer({3: Kind.UPLOAD})  # and client 3 drops out
    assert Upload.decode(Envelope.decode(s.replies[7]).head).disputed.tolist() == [3]
    s.finish()
    check_sum(s, [7, 20, 21, 40])
    assert s.server.faults == (Fault(kind="disputed", client=7, about=3),)


def test_a_client_cannot_withhold_or_add_shares(scene: Any) -> None:
    for case in ("withhold", "add", "strange"):
        s = scene()
        s.until_server_gets(Kind.REVEAL)
        shares = dict(revealed_by(s, 3).shares)
        if case == "withhold":
            del shares[20]
        if case == "add":
            shares[41] = shares[20]
        if case == "strange":
            shares = {3: shares.pop(7), **shares}
        with pytest.raises(ProtocolError, match="wrong neighbours"):
            s.server.receive(reveal_saying(s, 3, shares=shares))
        assert set(s.server.dropped) == {3}
        del s.replies[3]
        s.finish()
        check_sum(s, ALL)  # its own seed comes from the others' shares


@pytest.mark.claim("masking-exact-or-aborts")
@pytest.mark.parametrize(
    ("silent", "match"),
    [
        ({3: Kind.ADVERTISE, 7: Kind.ADVERTISE, 20: Kind.ADVERTISE}, "2 clients advertised"),
        ({3: Kind.ADVERTISE, 7: Kind.SHARES, 20: Kind.SHARES}, "2 clients shared"),
        ({3: Kind.ADVERTISE, 7: Kind.SHARES, 20: Kind.UPLOAD}, "2 survivors"),
        ({3: Kind.CONFIRM, 7: Kind.CONFIRM, 20: Kind.CONFIRM}, "2 clients agreed"),
        (dict.fromkeys([3, 7, 20, 21], Kind.REVEAL), "needs 2 shares, 1 are good"),
    ],
)
def test_below_a_minimum_the_round_aborts_with_nothing(
    scene: Any, silent: dict[int, Kind], match: str
) -> None:
    s = scene()
    with pytest.raises(ProtocolError, match=match):
        s.until_clients_get(Kind.RESULT, silent=silent)
    assert s.server.abort_reason is not None
    assert not len(s.server._round._sum.total())
    assert not s.server._round._reveals


def test_recovery_that_must_fail_is_refused_before_anything_is_unmasked(scene: Any) -> None:
    """A survivor with too few live neighbours: noticed when the uploads are closed."""
    s = scene(threshold=4, min_survivors=5)
    s.until_clients_get(Kind.SURVIVORS)
    again = scene(threshold=3, min_survivors=4)
    again.until_server_gets(Kind.UPLOAD, silent={3: Kind.UPLOAD})
    again._deliver()
    object.__setattr__(again.config, "threshold", 4)
    with pytest.raises(ProtocolError, match="3 live neighbours; its secrets need 4"):
        again.server.close_step()


def test_an_upload_after_being_declared_dropped_is_refused(scene: Any) -> None:
    s = scene()
    s.until_server_gets(Kind.UPLOAD)
    late = s.replies.pop(40)
    s._deliver()
    s.outgoing = s.server.close_step()
    with pytest.raises(ProtocolError, match="UPLOAD: the server is in state CONFIRM"):
        s.server.receive(late)
    s._turn({})
    s.outgoing = s.server.close_step()
    s._turn({})
    s.server.close_step()
    check_sum(s, [3, 7, 20, 21])


@pytest.mark.claim("masking-one-set-of-sharers")
def test_an_upload_made_for_another_set_of_sharers_is_refused(scene: Any) -> None:
    for changes, match in (
        ({"shared_hash": bytes(32)}, "told of other sharers"),
        ({"shared_signature": bytes(64)}, "client 7 did not sign the sharers"),
        ({"disputed": np.array([7])}, "disputes the shares of a stranger"),
        ({"disputed": np.array([8])}, "disputes the shares of a stranger"),
    ):
        s = scene()
        s.until_server_gets(Kind.UPLOAD)
        upload = Upload.decode(Envelope.decode(s.replies[7]).head)
        fields = {name: getattr(upload, name) for name in Upload.__slots__} | changes
        with pytest.raises(ProtocolError, match=match):
            s.server.receive(s.client_says(s.replies[7], head=Upload(**fields).head()))


def test_a_signature_on_another_survivor_set_does_not_count(scene: Any) -> None:
    s = scene()
    s.until_server_gets(Kind.CONFIRM)
    with pytest.raises(ProtocolError, match="client 7 agreed to something else"):
        s.server.receive(s.client_says(s.replies[7], head=b"s" * 32))
    assert "agreed to something else" in s.server.dropped[7]
    assert 7 not in s.server.awaiting


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda head: head[:16] + bytes(32) + head[48:], "low order"),
        (lambda head: head[:48] + (1).to_bytes(32, "little"), "low order"),
        (lambda head: head[:16] + head[48:] + head[48:], "a key twice"),
        (lambda head: head[:16] + PRIME.to_bytes(32, "little") + head[48:], "below 2"),
        (lambda head: bytes([9]) + head[1:], "another epoch"),
        (lambda head: head[:8] + bytes(8) + head[16:], "an old journal: client 7"),
    ],
)
def test_unusable_keys_cost_their_client_the_round(
    scene: Any, change: Callable[[bytes], bytes], match: str
) -> None:
    s = scene()
    s.until_server_gets(Kind.ADVERTISE)
    wrong = s.client_says(s.replies[7], head=change(Envelope.decode(s.replies[7]).head))
    with pytest.raises(ProtocolError, match=match):
        s.server.receive(wrong)
    assert set(s.server.dropped) == {7}
    del s.replies[7]
    s.finish()
    check_sum(s, [3, 20, 21, 40])


def test_copied_keys_are_refused(scene: Any) -> None:
    s = scene()
    s.until_server_gets(Kind.ADVERTISE)
    s.server.receive(s.replies[3])
    copied = Envelope.decode(s.replies[3]).head
    with pytest.raises(ProtocolError, match="a key twice"):
        s.server.receive(s.client_says(s.replies[7], head=copied))


SPARSE: dict[str, Any] = {
    "numbers": range(12),
    "degree": 6,
    "threshold": 3,
    "min_survivors": 9,
    "quorum": 7,
    "window_least": 1,
    "epoch": 5,
}


def sparse(scene: Any, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    """A small sparse graph against an active server; the finder would ask for more clients."""
    monkeypatch.setattr(SitePolicy, "require", lambda *_: None)
    settings = SPARSE | changes
    federation = Federation(settings["numbers"], policy=SitePolicy(corrupt=0.0, dropout=0.2))
    federation.beacons = {4: b"4" * 32}
    return scene(federation=federation, **settings)


def test_a_beacon_seeds_the_graph_after_keys_were_advertised(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = sparse(scene, monkeypatch)
    s.outgoing = s.server.start()
    s._turn({})
    with pytest.raises(ProtocolError, match="is due"):
        s.server.close_step()
    s.outgoing = s.server.close_step(beacon=b"5" * 32)
    client = s.clients[3]
    with pytest.raises(ProtocolError, match="epoch 5 was not observed"):
        client.receive(s.message_for(3))
    assert client.state is ClientState.KEYS  # the host has yet to see it
    client.observe_beacon(5, b"5" * 32)
    assert client.receive(s.message_for(3))
    other = s.clients[4]
    other.observe_beacon(5, b"6" * 32)
    with pytest.raises(ProtocolError, match="not the beacon that was observed"):
        other.receive(s.message_for(4))
    with pytest.raises(ProtocolError, match="contradicts itself"):
        s.clients[5].observe_beacon(4, b"x" * 32)


def test_a_beacon_that_came_before_a_state_was_saved_does_not_end_its_round(
    scene: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    s = sparse(scene, monkeypatch)
    s.outgoing = s.server.start()
    s._turn({})
    s.outgoing = s.server.close_step(beacon=b"5" * 32)
    s.clients[3].observe_beacon(5, b"5" * 32)
    for key in (bytes(32), b"k" * 32):  # before KEYS, and after them
        s.clients[3].save(tmp_path / "state", key)
        s.clients[3] = s.federation.open_client(3, s.expected)
        s.clients[3].resume(tmp_path / "state", key)
        if key == bytes(32):
            assert s.clients[3].receive(s.message_for(3))


@pytest.mark.parametrize(("epoch", "match"), [(4, "known already"), (6, "not the next one")])
def test_an_epoch_must_be_the_next_one(
    scene: Any, monkeypatch: pytest.MonkeyPatch, epoch: int, match: str
) -> None:
    s = sparse(scene, monkeypatch, epoch=epoch)
    s.outgoing = s.server.start()
    with pytest.raises(ProtocolError, match=match):
        s.clients[3].receive(s.message_for(3))


def test_without_a_beacon_an_active_server_gets_the_complete_graph_only(scene: Any) -> None:
    with pytest.raises(ConfigError, match="needs the epoch of a beacon"):
        scene(**(SPARSE | {"epoch": 0}))
    with pytest.raises(ConfigError, match="window_least"):
        scene(**(SPARSE | {"window_least": None}))
    # 129 clients and no degree: complete, whatever the size.
    layout = SumLayout(bits=20, length=1, clients=129, largest=1)
    config = MaskingConfig(
        clients=129, bits=20, length=1, layout_hash=layout.hash, threshold=60,
        min_survivors=100, quorum=65, corrupt_clients=0,
    )  # fmt: skip
    assert not config.needs_beacon


def test_the_complete_graph_takes_no_beacon(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.KEYS)
    envelope = Envelope.decode(s.message_for(7))
    with pytest.raises(ProtocolError, match="takes no beacon"):
        s.clients[7].receive(s.server_says(s.message_for(7), head=envelope.head[:-32] + b"b" * 32))
    with pytest.raises(ProtocolError, match="is not due"):
        other = scene()
        other.until_server_gets(Kind.ADVERTISE)
        other._deliver()
        other.server.close_step(beacon=bytes(32))


@pytest.mark.parametrize("bits", [24, 32, 64])
def test_a_buffer_that_is_used_again_after_a_message_changes_no_sum(scene: Any, bits: int) -> None:
    s = scene(bits=bits)
    s.until_server_gets(Kind.UPLOAD)
    for reply in s.replies.values():
        buffer = bytearray(reply)
        s.server.receive(buffer)
        buffer[:] = bytes(len(buffer))
    s.replies = {}
    s.finish()
    total = s.total(s.server.survivors.tolist())
    assert s.layout.decode(s.server.result).tolist() == total.tolist()
