"""Known answers: a whole round and its building blocks, from fixed bytes in a file.

``vectors/round.json`` was written once by this module; another implementation can replay it. It
holds the input bytes of every random draw, in order, so no generator needs to be reimplemented. To
write it again after a deliberate change of the formats, set ``SECURE_FEDREC_WRITE_VECTORS=1``.
"""

import hmac
import json
import os
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.fixedpoint import pack
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking import (
    SERVER,
    Expected,
    Federation,
    Identity,
    Kind,
    MaskingConfig,
    Roster,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.config.committee import draw_committee
from secure_fedrec.protection.masking.envelope import Context, Envelope
from secure_fedrec.protection.masking.messages.key_messages import commitment_to
from secure_fedrec.protection.masking.messages.keys import (
    derive,
    mask_private_key,
    pair_key,
    self_key,
)
from secure_fedrec.protection.masking.messages.shamir import PRIME, combine, split
from secure_fedrec.protection.masking.messages.sum_messages import MerkleTree, leaf_hash
from secure_fedrec.protection.session.statement import labelled_hash
from tests.statements import about

PATH = Path(__file__).parent / "vectors" / "round.json"
NUMBERS = (2, 5, 9, 4_000_000_000)
GONE = 5


class Tape:
    """Replaces the operating system's generator: SHA-256 of a counter, every draw noted."""

    def __init__(self) -> None:
        self.draws: list[str] = []

    def token_bytes(self, size: int) -> bytes:
        blocks = b""
        while len(blocks) < size:
            blocks += sha256(f"tape|{len(self.draws)}|{len(blocks)}".encode()).digest()
        self.draws.append(blocks[:size].hex())
        return blocks[:size]

    def randbelow(self, limit: int) -> int:
        return int.from_bytes(self.token_bytes(32), "little") % limit


def federation() -> Federation:
    keys = {number: sha256(f"identity|{number}".encode()).digest() for number in (*NUMBERS, SERVER)}
    made = Federation(NUMBERS, policy=SitePolicy(corrupt=0.0, dropout=0.25))
    identities = {
        number: Identity(number, Ed25519PrivateKey.from_private_bytes(key))
        for number, key in keys.items()
    }
    made.server = identities.pop(SERVER)
    made.identities = identities
    made.roster = Roster.sign(
        Ed25519PrivateKey.from_private_bytes(sha256(b"operator").digest()),
        version=3,
        server=made.server.public,
        clients={number: identity.public for number, identity in identities.items()},
        round_floor=1_000,
    )
    return made


def replay_round(tape: Tape) -> dict[str, Any]:
    """A round of four clients, one of which does not upload; every message as it is sent."""
    layout = SumLayout(bits=20, length=3, clients=4, largest=1000)
    stated = about(bytes(range(32)))
    config = MaskingConfig(
        clients=4,
        bits=20,
        length=3,
        layout_hash=layout.hash,
        statement=stated.digest,
        threshold=2,
        min_survivors=3,
        quorum=3,
        corrupt_clients=0,
    )
    made = federation()
    values = {number: [place - 1, 10 * place, -1000] for place, number in enumerate(NUMBERS)}
    clients = {
        number: made.open_client(number, Expected(layout_hash=layout.hash, statement=stated))
        for number in NUMBERS
    }
    server = made.open_server(config, np.array(NUMBERS))
    messages: list[dict[str, Any]] = []

    def note(data: bytes, receiver: int | None) -> None:
        messages.append({"kind": Kind(data[1]).name, "receiver": receiver, "bytes": data.hex()})

    outgoing, silent = server.start(), False
    while outgoing:
        replies = []
        for number, data in outgoing:
            if number == GONE and silent:
                continue
            note(data, number)
            if number == GONE and data[1] == Kind.BOXES:
                silent = True
                continue
            client = clients[number]
            if data[1] == Kind.SETUP:
                client.load(layout.encode(np.array(values[number])))
            replies += client.receive(data)
        for reply in replies:
            note(reply, None)
            server.receive(reply)
        outgoing = server.close_step() if replies else []
    return {
        "operator": made.roster.operator.hex(),
        "roster": made.roster.encoded.hex(),
        "roster_hash": made.roster.hash.hex(),
        "config": config.encoded.hex(),
        "config_hash": config.hash.hex(),
        "values": {str(number): value for number, value in values.items()},
        "draws": tape.draws,
        "messages": messages,
        "sum": layout.decode(server.result).tolist(),
        "survivors": server.survivors.tolist(),
        "transcript_root": server.transcript_root.hex(),
    }


def blocks(tape: Tape) -> dict[str, Any]:
    """The building blocks, each with its inputs."""
    context = Context(
        round_id=bytes(range(16)), config_hash=b"c" * 32, roster_hash=b"r" * 32,
        cohort_hash=b"h" * 32,
    )  # fmt: skip
    before = len(tape.draws)
    shares = split(123456789, threshold=3, indices=[1, 2, 3, 4, 10])
    words = np.arange(5, dtype=np.uint32)
    masked = words.copy()
    MaskExpander().apply(masked, add=[b"a" * 32], subtract=[b"b" * 32])
    wide = np.arange(5, dtype=np.uint64)
    MaskExpander().apply(wide, add=[b"a" * 32], subtract=[])
    leaves = [leaf_hash(bytes([number])) for number in range(5)]
    tree = MerkleTree(leaves)
    return {
        "coefficients": tape.draws[before:],
        "shares": [hex(share) for share in shares],
        "masked_32": masked.tolist(),
        "masked_64": [hex(word) for word in wide.tolist()],
        "packed_20": bytes(pack(masked, 20)).hex(),
        "derived": derive(b"secret", "purpose", context, b"part", size=40).hex(),
        "self_key": self_key(42, context, 7, b"t" * 32).hex(),
        "pair_key": pair_key(b"s" * 32, context, 9, 7, b"t" * 32).hex(),
        "mask_public": mask_private_key(42, context, 7).public_key().public_bytes_raw().hex(),
        "commitment": commitment_to(context, 7, 42).hex(),
        "labelled": labelled_hash("label", b"one", b"", b"two").hex(),
        "committee": np.flatnonzero(draw_committee(bytes(range(32)), 20, 7)).tolist(),
        "merkle_root": tree.root.hex(),
        "merkle_path_3": [node.hex() for node in tree.path(3)],
    }


@pytest.fixture(scope="module")
def replayed() -> dict[str, Any]:
    tape = Tape()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", tape.token_bytes)
        patch.setattr(secrets, "randbelow", tape.randbelow)
        found = {"blocks": blocks(tape), "round": replay_round(tape)}
    if "SECURE_FEDREC_WRITE_VECTORS" in os.environ:
        PATH.write_text(json.dumps(found, indent=1) + "\n")
    return found


@pytest.fixture(scope="module")
def known(replayed: dict[str, Any]) -> dict[str, Any]:
    assert replayed
    loaded: dict[str, Any] = json.loads(PATH.read_text())
    return loaded


def test_every_building_block_gives_the_known_answer(
    replayed: dict[str, Any], known: dict[str, Any]
) -> None:
    assert replayed["blocks"] == known["blocks"]


def test_a_whole_round_gives_the_known_bytes(
    replayed: dict[str, Any], known: dict[str, Any]
) -> None:
    for mine, theirs in zip(replayed["round"]["messages"], known["round"]["messages"], strict=True):
        assert mine == theirs
    assert replayed["round"] == known["round"]


def test_the_file_holds_a_right_round(known: dict[str, Any]) -> None:
    found = known["round"]
    rows = [found["values"][str(number)] for number in found["survivors"]]
    assert GONE not in found["survivors"]
    assert found["sum"] == [sum(column) for column in zip(*rows, strict=True)]
    assert {message["kind"] for message in found["messages"]} == {kind.name for kind in Kind}
    for message in found["messages"]:
        assert Envelope.decode(bytes.fromhex(message["bytes"])).kind.name == message["kind"]


def test_the_derivation_in_the_file_is_hkdf(known: dict[str, Any]) -> None:
    """RFC 5869 written out with HMAC, on the inputs of ``blocks``."""
    parts = [b"secure-fedrec|v1|masking", b"purpose", b"c" * 32 + b"r" * 32 + b"h" * 32, b"part"]
    info = b"".join(len(part).to_bytes(2, "little") + part for part in parts)
    extracted = hmac.digest(bytes(range(16)), b"secret", "sha256")
    one = hmac.digest(extracted, info + b"\x01", "sha256")
    two = hmac.digest(extracted, one + info + b"\x02", "sha256")
    assert (one + two)[:40].hex() == known["blocks"]["derived"]


def test_the_shares_in_the_file_are_those_of_its_polynomial(known: dict[str, Any]) -> None:
    rest = [
        int.from_bytes(bytes.fromhex(draw), "little") % PRIME
        for draw in known["blocks"]["coefficients"]
    ]
    shares = {
        index: (123456789 + rest[0] * index + rest[1] * index**2) % PRIME
        for index in (1, 2, 3, 4, 10)
    }
    assert [hex(share) for share in shares.values()] == known["blocks"]["shares"]
    assert combine({index: shares[index] for index in (10, 2, 3)}) == 123456789
