"""Every rule that a client holds the server to: broken by a server that signs what it says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking import ClientState, Kind
from secure_fedrec.protection.masking.envelope import SIGNATURE_BYTES, Context, Envelope, seal
from secure_fedrec.protection.masking.messages.key_messages import (
    Advertisement,
    Boxes,
    Keys,
    share_hash,
)
from secure_fedrec.protection.masking.messages.keys import open_box
from secure_fedrec.protection.masking.messages.sum_messages import (
    MerkleTree,
    Reveal,
    Survivors,
    Upload,
    hash_of_sharers,
    sign_sharers,
)
from secure_fedrec.protection.session.reader import encode_marks
from tests.statements import about

ME = 7


def refused(s: Any, message: bytes, match: str) -> None:
    """The message aborts the round, names its reason, and nothing gets the client going again."""
    client = s.clients[ME]
    with pytest.raises(ProtocolError, match=match):
        client.receive(message)
    assert client.state is ClientState.ABORTED
    assert client._round is None or client._round._secrets.__dict__ == {}
    with pytest.raises(ProtocolError, match="aborted"):
        client.receive(s.message_for(ME))


def config_with(s: Any, **changes: Any) -> Any:
    return replace(s.config, **changes)


@pytest.mark.parametrize("kind", [Kind.KEYS, Kind.BOXES, Kind.SURVIVORS, Kind.QUORUM, Kind.RESULT])
@pytest.mark.parametrize("field", ["config_hash", "roster_hash", "cohort_hash"])
def test_a_configuration_that_changes_in_mid_round_aborts(
    scene: Any, kind: Kind, field: str
) -> None:
    s = scene()
    s.until_clients_get(kind)
    envelope = Envelope.decode(s.message_for(ME))
    fields = {name: getattr(envelope.context, name) for name in Context.__slots__}
    context = Context(**(fields | {field: b"z" * 32}))
    message = seal(
        s.federation.server.key, context, kind, envelope.sender, envelope.head,
        bytes(envelope.payload),
    )  # fmt: skip
    refused(s, message, "changed in mid-round")


def keys_saying(s: Any, **changes: Any) -> bytes:
    envelope = Envelope.decode(s.message_for(ME))
    keys = Keys.decode(envelope.head, envelope.payload, s.config)
    fields = {name: getattr(keys, name) for name in Keys.__slots__} | changes
    other = Keys(**fields)
    return bytes(s.server_says(s.message_for(ME), head=other.head(), payload=other.payload()))


def records_of(s: Any) -> dict[int, bytes]:
    envelope = Envelope.decode(s.message_for(ME))
    return dict(Keys.decode(envelope.head, envelope.payload, s.config).records)


def test_wrong_sets_of_neighbours_abort(scene: Any) -> None:
    for change in ("missing", "self", "unknown"):
        s = scene()
        s.until_clients_get(Kind.KEYS)
        records = records_of(s)
        if change == "missing":
            del records[20]
        if change == "self":
            records = dict(sorted((records | {ME: records[20]}).items()))
        if change == "unknown":
            records[99] = records[40]
        refused(s, keys_saying(s, records=records), "wrong set of neighbours")


@pytest.mark.parametrize("flip", [0, 8, 16, 48, 80, 108, 143])
def test_an_advertisement_that_its_client_did_not_sign_aborts(scene: Any, flip: int) -> None:
    s = scene()
    s.until_clients_get(Kind.KEYS)
    records = records_of(s)
    broken = bytearray(records[20])
    broken[flip] ^= 1
    refused(s, keys_saying(s, records=records | {20: bytes(broken)}), "bad signature of client 20")


def test_the_keys_of_one_client_do_not_pass_for_another(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.KEYS)
    records = records_of(s)
    swapped = records | {20: records[21]}
    refused(s, keys_saying(s, records=swapped), "bad signature of client 20")


def advertised_by(s: Any, number: int, keys: Advertisement) -> bytes:
    """An advertisement by a corrupt client."""
    context = Envelope.decode(s.message_for(ME)).context
    signed = seal(s.federation.identities[number].key, context, Kind.ADVERTISE, number, keys.head())
    envelope = Envelope.decode(signed)
    return envelope.head + envelope.proof


@pytest.mark.parametrize(
    "case", ["copied_mask", "copied_channel", "mine", "same_twice", "low_order", "epoch"]
)
def test_keys_that_a_corrupt_client_signed_are_still_checked(scene: Any, case: str) -> None:
    s = scene()
    s.until_clients_get(Kind.KEYS)
    records = records_of(s)
    theirs = Advertisement.decode(records[21][:-SIGNATURE_BYTES], s.config)
    own = Advertisement.decode(records[20][:-SIGNATURE_BYTES], s.config)
    mine = s.clients[ME]._round._own
    fields = {name: getattr(own, name) for name in Advertisement.__slots__}
    change: dict[str, Any] = {
        "copied_mask": {"mask_public": theirs.mask_public},
        "copied_channel": {"channel_public": theirs.mask_public},
        "mine": {"mask_public": mine.channel_public},
        "same_twice": {"mask_public": own.channel_public},
        "low_order": {"channel_public": bytes(32)},
        "epoch": {"epoch": 9},
    }[case]
    forged = advertised_by(s, 20, Advertisement(**(fields | change)))
    # Keys are looked at in ascending order, so 20 shows up before the 21 it copies.
    culprit = {"copied_mask": "client 21", "copied_channel": "client 21"}.get(case, "")
    match = {"low_order": "low order", "epoch": "another epoch"}.get(case, f"{culprit}.*key twice")
    refused(s, keys_saying(s, records=records | {20: forged}), match)


def test_fewer_live_neighbours_than_the_threshold_abort(scene: Any) -> None:
    for kind in (Kind.KEYS, Kind.BOXES):
        s = scene(threshold=3, min_survivors=4)
        s.until_clients_get(kind)
        marks = np.array([False, True, True, False, True])
        if kind is Kind.KEYS:
            records = {n: r for n, r in records_of(s).items() if n in (20, 40)}
            message = keys_saying(s, advertised=marks, records=records)
            refused(s, message, "2 live neighbours; its secrets need 3")
        else:
            # The survivor minimum would already refuse it; here the threshold itself is meant.
            s.clients[ME]._round.config = config_with(s, threshold=3, min_survivors=4)
            object.__setattr__(s.clients[ME]._round.config, "min_survivors", 2)
            refused(s, boxes_saying(s, shared=marks), "2 live neighbours; its secrets need 3")


def boxes_saying(s: Any, **changes: Any) -> bytes:
    envelope = Envelope.decode(s.message_for(ME))
    boxes = Boxes.decode(envelope.head, envelope.payload, ME, s.config)
    fields = {name: getattr(boxes, name) for name in Boxes.__slots__} | changes
    other = Boxes(**fields)
    return bytes(s.server_says(s.message_for(ME), head=other.head(), payload=other.payload()))


@pytest.mark.parametrize(
    ("shared", "match"),
    [
        ([1, 0, 1, 1, 1], "client 7 is missing"),
        ([1, 1, 0, 0, 0], "2 clients; a sum needs 3"),
        ([1, 1, 1, 1, 0], "wrong set of neighbours"),
    ],
)
def test_a_wrong_set_of_sharers_aborts(scene: Any, shared: list[int], match: str) -> None:
    s = scene()
    s.until_clients_get(Kind.BOXES)
    refused(s, boxes_saying(s, shared=np.array(shared, dtype=np.bool_)), match)


@pytest.mark.parametrize("place", [0, 1167, 1168, 1247, 1248, 1311])
def test_a_record_that_vouches_for_a_pair_secret_opens_or_aborts(scene: Any, place: int) -> None:
    """A byte of a channel seal, a box or a hash: at a lower neighbour's, and at a higher one's."""
    for number, fatal in ((3, True), (20, False)):
        s = scene(key_agreement="x25519+mlkem768")
        s.until_clients_get(Kind.BOXES)
        envelope = Envelope.decode(s.message_for(ME))
        boxes = Boxes.decode(envelope.head, envelope.payload, ME, s.config)
        record = bytearray(boxes.records[number])
        record[place] ^= 1
        message = boxes_saying(s, records={**boxes.records, number: bytes(record)})
        if fatal:
            refused(s, message, "the pair secret is client 3's")
        else:
            (upload,) = s.clients[ME].receive(message)
            told = Upload.decode(Envelope.decode(upload).head)
            assert told.disputed.tolist() == [number]


@pytest.mark.parametrize("place", [0, 1119, 1120, 1167])
def test_a_pair_secret_that_its_client_did_not_seal_so_aborts(scene: Any, place: int) -> None:
    s = scene(key_agreement="x25519+mlkem768")
    s.until_clients_get(Kind.BOXES)
    envelope = Envelope.decode(s.message_for(ME))
    boxes = Boxes.decode(envelope.head, envelope.payload, ME, s.config)
    seal_of = bytearray(boxes.seals[3])
    seal_of[place] ^= 1
    refused(s, boxes_saying(s, seals={3: bytes(seal_of)}), "a box does not open")


def test_a_sharer_that_never_advertised_aborts(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.BOXES, silent={40: Kind.ADVERTISE})
    refused(s, boxes_saying(s, shared=np.ones(5, np.bool_)), "that did not advertise")


def survivors_saying(s: Any, survivors: list[int], **changes: Any) -> bytes:
    envelope = Envelope.decode(s.message_for(ME))
    told = Survivors.decode(envelope.head, envelope.payload, s.config)
    leaves = s.server._round._upload_leaves
    marks = np.array(survivors, dtype=np.bool_)
    chosen = [leaves[n] for n, there in zip(sorted(s.values), survivors, strict=True) if there]
    tree = MerkleTree(chosen)
    place = sum(survivors[:1])
    path = tree.path(place) if survivors[1] else told.path
    there = {
        number for number, survives in zip(sorted(s.values), survivors, strict=True) if survives
    }
    signatures = {n: value for n, value in told.shared_signatures.items() if n in there}
    fields = {"root": tree.root, "shared_signatures": signatures, "path": path} | changes
    other = Survivors(survivors=marks, **fields)
    return bytes(s.server_says(s.message_for(ME), head=other.head(), payload=other.payload()))


@pytest.mark.claim("masking-one-survivor-set")
@pytest.mark.parametrize(
    ("survivors", "match"),
    [
        ([1, 0, 1, 1, 1], "client 7 uploaded and is missing"),
        ([1, 1, 0, 0, 0], "2 survivors; a sum needs at least 3"),
    ],
)
def test_a_wrong_survivor_set_aborts(scene: Any, survivors: list[int], match: str) -> None:
    s = scene()
    s.until_clients_get(Kind.SURVIVORS)
    refused(s, survivors_saying(s, survivors), match)


def test_a_survivor_that_never_shared_aborts(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.SURVIVORS, silent={40: Kind.SHARES})
    head = encode_marks(np.ones(5, np.bool_)) + bytes(32)
    refused(s, s.server_says(s.message_for(ME), head=head), "survivor that did not share")


def test_a_survivor_set_leaving_too_few_neighbours_aborts(scene: Any) -> None:
    s = scene(threshold=3, min_survivors=4)
    s.until_clients_get(Kind.SURVIVORS)
    object.__setattr__(s.clients[ME]._round.config, "min_survivors", 2)
    refused(s, survivors_saying(s, [1, 1, 1, 0, 0]), "2 live neighbours; its secrets need 3")


@pytest.mark.parametrize("change", ["root", "path", "shorter", "longer"])
def test_a_root_that_does_not_hold_the_own_upload_aborts(scene: Any, change: str) -> None:
    s = scene()
    s.until_clients_get(Kind.SURVIVORS)
    envelope = Envelope.decode(s.message_for(ME))
    head, payload = bytearray(envelope.head), bytes(envelope.payload)
    if change == "root":
        head[-1] ^= 1
    size = 32 * len(Survivors.decode(envelope.head, envelope.payload, s.config).path)
    assert size
    payload = {
        "root": payload,
        "path": payload[:-size] + b"\x01" * size,
        "shorter": payload[:-32],
        "longer": payload + bytes(32),
    }[change]
    message = s.server_says(s.message_for(ME), head=bytes(head), payload=payload)
    refused(s, message, "does not lead to the root")


def shares_of(s: Any, number: int, reveal: bytes) -> dict[int, str]:
    """Of which secret of each neighbour a client revealed a share."""
    core = s.server._round
    key = core._client_keys[number]["reveal-box"]
    context = core.public.context
    opened = Reveal.decode(open_box(key, Envelope.decode(reveal).head, context.round_id))
    found = {}
    for other, share in opened.shares.items():
        hashes = core._shares[other].records[number][-64:]
        kinds = {"mask": hashes[:32], "self": hashes[32:]}
        (found[other],) = (
            purpose
            for purpose, value in kinds.items()
            if share_hash(context, purpose, other, number, share) == value
        )
    return found


@pytest.mark.claim("masking-one-set-of-sharers")
@pytest.mark.parametrize(
    "case",
    [
        "missing",
        "wrong",
        "other set",
        "other statement",
        "other client",
        "other round",
        "other label",
        "no label",
    ],
)
def test_no_self_share_without_the_neighbours_signature_on_the_own_sharers(
    scene: Any, case: str
) -> None:
    """It is no abort: the other neighbours' shares are given, the dropped one's included."""
    s = scene()
    s.until_clients_get(Kind.SURVIVORS, silent={40: Kind.UPLOAD})
    context, victim = s.server._round.public.context, s.federation.identities[20]
    shared = hash_of_sharers(np.ones(5, np.bool_), s.config.statement)
    envelope = Envelope.decode(s.message_for(ME))
    signatures = dict(Survivors.decode(envelope.head, envelope.payload, s.config).shared_signatures)
    assert signatures[20] == sign_sharers(victim, context, shared)
    other_set = hash_of_sharers(np.arange(5) != 2, s.config.statement)
    told = replace(about(s.state), round=1)  # of the same state
    other_statement = hash_of_sharers(np.ones(5, np.bool_), told.digest)
    other_round = replace(context, round_id=bytes(16))
    label = seal(victim.key, context, Kind.UPLOAD, 20, shared)
    signatures |= {
        "wrong": {20: bytes(64)},
        "other set": {20: sign_sharers(victim, context, other_set)},
        "other statement": {20: sign_sharers(victim, context, other_statement)},
        "other client": {20: signatures[21]},
        "other round": {20: sign_sharers(victim, other_round, shared)},
        "other label": {20: label[-64:]},
        "no label": {20: victim.key.sign(context.prefix(Kind.UPLOAD, 20, shared))},
    }.get(case, {})
    if case == "missing":
        del signatures[20]
    message = survivors_saying(s, [1, 1, 1, 1, 0], shared_signatures=signatures)
    (confirmation,) = s.clients[ME].receive(message)
    s.outgoing = [each for each in s.outgoing if each.receiver != ME]
    s._turn({})
    s.server.receive(confirmation)
    s.outgoing = s.server.close_step()
    (reveal,) = s.clients[ME].receive(s.message_for(ME))
    assert shares_of(s, ME, reveal) == {3: "self", 21: "self", 40: "mask"}
    (theirs,) = s.clients[3].receive(s.message_for(3))
    assert shares_of(s, 3, theirs) == {ME: "self", 20: "self", 21: "self", 40: "mask"}


def test_a_signature_of_no_surviving_neighbour_aborts(scene: Any) -> None:
    for stranger in (ME, 8, 40):
        s = scene()
        s.until_clients_get(Kind.SURVIVORS, silent={40: Kind.UPLOAD})
        message = survivors_saying(s, [1, 1, 1, 1, 0], shared_signatures={stranger: bytes(64)})
        refused(s, message, "a signature of no surviving neighbour")
