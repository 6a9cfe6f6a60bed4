"""One byte string per message; rosters, configurations, paths and keys that cannot be bent."""

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import Federation, Identity, Kind, MaskingConfig, Roster
from secure_fedrec.protection.masking.envelope import SERVER, Context, Envelope, seal_for_server
from secure_fedrec.protection.masking.messages.hybrid import KemKey, seal_to
from secure_fedrec.protection.masking.messages.keys import (
    SERVER_PURPOSES,
    channel_key,
    derive,
    exchange,
    open_box,
    pair_key,
    require_usable,
    seal_box,
    self_key,
    server_keys,
)
from secure_fedrec.protection.masking.messages.sum_messages import (
    MerkleTree,
    leaf_hash,
    require_included,
)
from secure_fedrec.protection.session.reader import Reader, encode_marks, encode_records
from secure_fedrec.protection.session.statement import labelled_hash

CONTEXT = Context(
    round_id=bytes(16), config_hash=b"c" * 32, roster_hash=b"r" * 32, cohort_hash=b"h" * 32
)


def messages_of(s: Any) -> dict[Kind, bytes]:
    """One real message of each kind."""
    found: dict[Kind, bytes] = {}
    s.outgoing = s.server.start()
    while True:
        found[Kind(s.outgoing[0].data[1])] = s.message_for(7)
        s._answer({})
        if not s.replies:
            return found
        found[Kind(s.replies[7][1])] = s.replies[7]
        s._deliver()
        s.outgoing = s.server.close_step()


@pytest.mark.parametrize("payload", [b"", memoryview(b""), b"p", memoryview(b"payload")])
def test_macs_are_gmac_whatever_stands_behind_them(payload: bytes | memoryview) -> None:
    """With a payload and without one; and no key but one of AES-256 makes any."""
    key, head = bytes(range(32)), b"head"
    envelope = Envelope.decode(seal_for_server(key, CONTEXT, Kind.REVEAL, 3, head, payload))
    gmac = Cipher(algorithms.AES256(key), modes.GCM(bytes(12))).encryptor()
    gmac.authenticate_additional_data(CONTEXT.prefix(Kind.REVEAL, 3, head) + bytes(payload))
    gmac.finalize()
    assert envelope.proof == gmac.tag
    envelope.authenticate(key)
    for short in (16, 24):
        with pytest.raises(ValueError, match="key"):
            seal_for_server(bytes(short), CONTEXT, Kind.REVEAL, 3, head, payload)


def test_headers_are_refused_byte_by_byte(scene: Any) -> None:
    for kind, data in messages_of(scene()).items():
        assert Envelope.decode(data).kind is kind
        for wrong, match in (
            (b"\x01" + data[1:], "version 1"),
            (b"\x02" + data[1:], "version 2"),
            (b"\x03" + data[1:], "version 3"),
            (b"\x04" + data[1:], "version 4"),
            (b"\x06" + data[1:], "version 6"),
            (data[:1] + b"\x00" + data[2:], "unknown kind"),
            (data[:1] + b"\x0c" + data[2:], "unknown kind"),
            (data[:117], "header"),
            (b"", "header"),
            (data[:118] + b"\xff\xff\xff\xff" + data[122:], "truncated"),
            (data[:140], "truncated"),
        ):
            with pytest.raises(ProtocolError, match=match):
                Envelope.decode(wrong)


@pytest.mark.parametrize("kind", [k for k in Kind if k % 2 == 1 and k < Kind.RESULT])
@pytest.mark.parametrize("change", ["trailing_head", "short_head", "trailing_payload"])
def test_clients_refuse_bytes_that_do_not_belong(scene: Any, kind: Kind, change: str) -> None:
    s = scene()
    s.until_clients_get(kind)
    envelope = Envelope.decode(s.message_for(7))
    head, payload = envelope.head, bytes(envelope.payload)
    if change == "trailing_head":
        head += b"\x00"
    elif change == "short_head":
        head = head[:-1]
    else:
        payload += b"\x00"
    with pytest.raises(ProtocolError):
        s.clients[7].receive(s.server_says(s.message_for(7), head=head, payload=payload))


@pytest.mark.parametrize("kind", [Kind.ADVERTISE, Kind.SHARES, Kind.UPLOAD, Kind.CONFIRM])
@pytest.mark.parametrize("change", ["trailing_head", "short_head", "trailing_payload"])
def test_the_server_refuses_bytes_that_do_not_belong(scene: Any, kind: Kind, change: str) -> None:
    s = scene()
    s.until_server_gets(kind)
    envelope = Envelope.decode(s.replies[7])
    head, payload = envelope.head, bytes(envelope.payload)
    if change == "trailing_head":
        head += b"\x00"
    elif change == "short_head":
        head = head[:-1]
    else:
        payload += b"\x00"
    with pytest.raises(ProtocolError):
        s.server.receive(s.client_says(s.replies[7], head=head, payload=payload))
    if change == "trailing_payload" and kind is not Kind.UPLOAD:
        s.server.receive(s.replies[7])  # anybody can put bytes behind a signature
    else:  # but nobody else can have said that
        assert set(s.server.dropped) == {7}
        assert {fault.client for fault in s.server.faults} == {7}
        with pytest.raises(ProtocolError, match="client 7 is not awaited"):
            s.server.receive(s.replies[7])


def test_lists_must_ascend_and_bitmaps_must_be_padded_with_zeros() -> None:
    good = encode_records({1: b"aa", 2: b"bb"})
    assert Reader(good, "X").records(2) == {1: b"aa", 2: b"bb"}
    for wrong in (
        encode_records({2: b"aa", 1: b"bb"}),
        good[:4] + good[4:10] * 2,
        encode_records({SERVER: b"aa"}),
        b"\xff\xff\xff\xff" + good[4:],
        good[:-1],
    ):
        with pytest.raises(ProtocolError):
            Reader(wrong, "X").records(2)
    marks = np.array([True] * 5)
    assert Reader(encode_marks(marks), "X").marks(5).all()
    with pytest.raises(ProtocolError, match="padding"):
        Reader(b"\xff", "X").marks(5)


def test_labelled_hashes_do_not_confuse_parts() -> None:
    inputs: list[tuple[str, list[bytes]]] = [
        ("a", [b"b", b"c"]),
        ("a", [b"bc"]),
        ("a", [b"", b"bc"]),
        ("ab", [b"", b"c"]),
        ("a", [b"b"]),
    ]
    assert len({labelled_hash(label, *parts) for label, parts in inputs}) == len(inputs)


@settings(deadline=None)
@given(st.integers(1, 40), st.data())
def test_a_path_proves_its_leaf_at_its_place_and_no_other(leaves: int, data: st.DataObject) -> None:
    hashes = [leaf_hash(bytes([number])) for number in range(leaves)]
    tree = MerkleTree(hashes)
    index = data.draw(st.integers(0, leaves - 1))
    path = tree.path(index)
    require_included(tree.root, hashes[index], index=index, leaves=leaves, path=path)
    wrong: list[dict[str, Any]] = [
        {"leaf": leaf_hash(b"other")},
        {"index": leaves},
        {"index": -1},
        {"path": [*path, bytes(32)]},
        {"root": bytes(32)},
    ]
    if leaves > 1:
        other = data.draw(st.integers(0, leaves - 1).filter(lambda place: place != index))
        wrong += [{"path": path[1:]}, {"leaf": hashes[other]}, {"index": other}]
    for change in wrong:
        fields: dict[str, Any] = {
            "root": tree.root, "leaf": hashes[index], "index": index, "leaves": leaves,
            "path": path,
        } | change  # fmt: skip
        with pytest.raises(ProtocolError):
            require_included(**fields)


def test_a_tree_is_that_of_the_standard() -> None:
    """RFC 9162 section 2.1.1: an unpaired node is the hash of its own subtree."""
    from hashlib import sha256

    one, two, three = (leaf_hash(bytes([number])) for number in range(3))
    left = sha256(b"\x01" + one + two).digest()
    assert MerkleTree([one]).root == sha256(b"\x00\x00").digest()
    assert MerkleTree([one, two, three]).root == sha256(b"\x01" + left + three).digest()


def test_a_roster_is_read_with_the_pinned_key_only() -> None:
    federation = Federation((1, 2, 3))
    roster = federation.roster
    assert Roster.decode(roster.encoded, operator=roster.operator).hash == roster.hash
    with pytest.raises(ProtocolError, match="pinned operator"):
        Roster.decode(roster.encoded, operator=federation.server.public)
    for place in range(len(roster.encoded)):
        broken = bytearray(roster.encoded)
        broken[place] ^= 1
        with pytest.raises(ProtocolError, match="pinned operator"):
            Roster.decode(bytes(broken), operator=roster.operator)
    with pytest.raises(ProtocolError, match="not on the roster"):
        roster.key_of(4)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"clients": {}},
        {"clients": {-1: b"a" * 32}},
        {"clients": {SERVER: b"a" * 32}},
        {"clients": {1: b"a" * 32, 2: b"a" * 32}},
        {"clients": {1: b"short"}},
        {"server": b"short"},
        {"round_floor": -1},
        {"round_floor": 2**63},
    ],
)
def test_a_roster_that_names_nobody_or_somebody_twice_is_not_signed(change: Any) -> None:
    fields = {"version": 1, "server": b"s" * 32, "clients": {1: b"a" * 32}} | change
    with pytest.raises(ConfigError):
        Roster.sign(Ed25519PrivateKey.generate(), **fields)


def test_rosters_that_differ_in_anything_have_other_hashes() -> None:
    operator = Ed25519PrivateKey.generate()
    base: dict[str, Any] = {"version": 1, "server": b"s" * 32, "clients": {1: b"a" * 32}}
    rosters = [
        Roster.sign(operator, **base),
        Roster.sign(operator, **(base | {"version": 2})),
        Roster.sign(operator, **(base | {"round_floor": 7})),
        Roster.sign(operator, **(base | {"server": b"t" * 32})),
        Roster.sign(operator, **(base | {"clients": {2: b"a" * 32}})),
        Roster.sign(Ed25519PrivateKey.generate(), **base),
    ]
    assert len({roster.hash for roster in rosters}) == len(rosters)


def test_what_an_operator_signs_is_read_strictly_all_the_same() -> None:
    operator = Ed25519PrivateKey.generate()
    public = operator.public_key().public_bytes_raw()
    good = Roster.sign(
        operator, version=3, server=b"s" * 32, clients={1: b"a" * 32}, round_floor=10**7
    )
    assert Roster.decode(good.encoded, operator=public).round_floor == 10**7
    body = good.encoded[:-64]
    for wrong, match in (
        (b"\x01" + body[1:], "version 3 of the roster's layout"),
        (body[:5] + body[13:], "roster"),  # the layout before it had a floor
        (body[:1] + bytes(4) + body[5:], "out of range"),
        (body[:12] + b"\x80" + body[13:], "out of range"),
        (body + b"\x00", "declare 2 parties"),
        (body[:-1], "declare 2 parties"),
        (body[:10], "truncated"),
        (body[:17] + body[54:] + body[17:54], "parties must ascend"),
        (body[:17] + b"\x09" + body[18:], "must ascend"),
        (body[:54] + b"\x09" + body[55:], "known roles"),
        (body[:18] + b"\x01" + body[19:], "has no number"),
        (body[:13] + b"\x01" + body[14:54], "a server and at least one client"),
        (body[:22] + b"a" * 32 + body[54:], "no key twice"),
    ):
        signed = wrong + operator.sign(b"secure-fedrec|v1|session|roster|" + wrong)
        with pytest.raises(ProtocolError, match=match):
            Roster.decode(signed, operator=public)


def test_an_identity_must_be_a_client_or_the_server() -> None:
    for number in (-1, 2**32):
        with pytest.raises(ConfigError):
            Identity.generate(number)


GOOD: dict[str, Any] = {
    "clients": 20,
    "bits": 32,
    "length": 10,
    "layout_hash": bytes(32),
    "threshold": 5,
    "min_survivors": 15,
    "quorum": 12,
    "corrupt_clients": 2,
}


@pytest.mark.claim("masking-least-cohort")
@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("clients", [2, 2**24 + 1]),
        ("bits", [0, 65]),
        ("length", [0, 2**31]),
        ("layout_hash", [b"", bytes(31)]),
        ("statement", [b"x"]),
        ("degree", [0, 1, 7, 20, 19]),
        ("threshold", [1, 2, 15, 20]),
        ("min_survivors", [5, 3, 21, 11]),
        ("quorum", [11, 16]),
        ("committee", [1, 12, 20]),  # on the complete graph
        ("corrupt_clients", [-1, 5, 19]),
        ("window_least", [1]),
        ("adversary", ["lazy"]),
        ("key_agreement", ["rsa"]),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(key: str, values: list[Any]) -> None:
    MaskingConfig(**GOOD)
    for value in values:
        with pytest.raises(ConfigError, match=r"masking\."):
            MaskingConfig(**(GOOD | {key: value}))


def test_every_setting_is_in_the_hash_and_comes_back() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"bits": 33},
        {"length": 11},
        {"layout_hash": b"l" * 32},
        {"statement": b"p" * 32},
        {"threshold": 6},
        {"min_survivors": 16},
        {"quorum": 13},
        {"corrupt_clients": 3},
        {"adversary": "curious"},
        {"key_agreement": "x25519+mlkem768"},
        {"degree": 8, "window_least": 2},
        {"degree": 8, "window_least": 3},
        {"degree": 10, "window_least": 3},
        {"degree": 10, "window_least": 3, "committee": 15},
        {"degree": 10, "window_least": 3, "committee": 14},
        {"degree": 10, "window_least": 3, "committee": 15, "quorum": 8},
    ]
    configs = [MaskingConfig(**(GOOD | change)) for change in changes]
    assert len({config.hash for config in configs}) == len(configs)
    assert [MaskingConfig.decode(config.encoded) for config in configs] == configs


def test_every_key_has_one_purpose_one_round_one_statement_and_one_direction() -> None:
    other = Context(
        round_id=b"\x01" + bytes(15), config_hash=b"c" * 32, roster_hash=b"r" * 32,
        cohort_hash=b"h" * 32,
    )  # fmt: skip
    one, two, secret, stated = b"p" * 32, b"q" * 32, bytes(32), b"s" * 32
    keys = [
        channel_key(secret, CONTEXT, sender=(1, one), receiver=(2, two)),
        channel_key(secret, CONTEXT, sender=(2, two), receiver=(1, one)),
        channel_key(secret, CONTEXT, sender=(2, one), receiver=(1, two)),
        channel_key(secret, other, sender=(1, one), receiver=(2, two)),
        pair_key(secret, CONTEXT, 1, 2, stated),
        pair_key(secret, CONTEXT, 1, 3, stated),
        pair_key(secret, other, 1, 2, stated),
        pair_key(secret, CONTEXT, 1, 2, b"t" * 32),
        self_key(0, CONTEXT, 1, stated),
        self_key(0, CONTEXT, 2, stated),
        self_key(0, other, 1, stated),
        self_key(0, CONTEXT, 1, b"t" * 32),
        *server_keys(secret, CONTEXT, 1, (b"p" * 32, b"q" * 32)).values(),
        *server_keys(secret, CONTEXT, 2, (b"p" * 32, b"q" * 32)).values(),
        *server_keys(secret, other, 1, (b"p" * 32, b"q" * 32)).values(),
        *server_keys(secret, CONTEXT, 1, (b"q" * 32, b"p" * 32)).values(),
        derive(secret, "a", CONTEXT, b"b", b"c"),
        derive(secret, "a", CONTEXT, b"bc"),
        derive(secret, "ab", CONTEXT, b"", b"c"),
    ]
    assert len(set(keys)) == len(keys) == 15 + 4 * len(SERVER_PURPOSES)
    assert {len(key) for key in keys} == {32}
    assert pair_key(secret, CONTEXT, 1, 2, stated) == pair_key(secret, CONTEXT, 2, 1, stated)


def test_boxes_and_seals_open_only_whole_and_for_their_purpose() -> None:
    box = seal_box(bytes(32), b"message", b"header")
    assert open_box(bytes(32), box, b"header") == b"message"
    kem = KemKey(b"k" * 32, "mask-kem", CONTEXT, 1)
    sealed = seal_to(kem.public, b"s" * 32, b"info")
    assert kem.open(sealed, b"info") == b"s" * 32
    assert KemKey(b"k" * 32, "mask-kem", CONTEXT, 1).public == kem.public
    assert KemKey(b"k" * 32, "channel-kem", CONTEXT, 1).public != kem.public
    bad_boxes = [box[:-1], box + b"x", b"", bytes(len(box))]
    for wrong in bad_boxes:
        with pytest.raises(ProtocolError, match="does not open"):
            open_box(bytes(32), wrong, b"header")
    with pytest.raises(ProtocolError, match="does not open"):
        open_box(bytes(32), box, b"other")
    for wrong, info in ((sealed[:-1], b"info"), (sealed, b"other"), (b"", b"info")):
        with pytest.raises(ProtocolError, match="does not open"):
            kem.open(wrong, info)
    with pytest.raises(ProtocolError, match="malformed KEM key"):
        seal_to(b"\xff" * len(kem.public), b"s" * 32, b"info")


def test_exactly_the_public_keys_with_which_every_exchange_gives_zero_are_refused() -> None:
    prime, private = 2**255 - 19, X25519PrivateKey.generate()
    order_eight = (
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
    # RFC 7748 takes coordinates modulo the prime and leaves the highest bit out of account.
    reduced = (0, 1, prime - 1, *order_eight)
    unreduced = (prime, prime + 1, *(2**255 + u for u in reduced), 2**255 + prime, 2**256 - 18)
    for coordinate in (*reduced, *unreduced):
        public = coordinate.to_bytes(32, "little")
        with pytest.raises(ValueError, match=r"."):  # the library finds the shared secret zero
            private.exchange(X25519PublicKey.from_public_bytes(public))
        for refuse in (require_usable, lambda key: exchange(private, key)):
            with pytest.raises(ProtocolError, match="low order"):
                refuse(public)
    for coordinate in (2, 9, prime - 2, *(u + 1 for u in order_eight), *range(10, 200)):
        public = coordinate.to_bytes(32, "little")
        require_usable(public)
        exchange(private, public)
