"""What a client asks for before it reveals a share, and of the receipt of its upload."""

from typing import Any

import pytest

from secure_fedrec.protection.masking import Kind
from secure_fedrec.protection.masking.envelope import Envelope, seal
from secure_fedrec.protection.masking.messages.sum_messages import Quorum, Result
from tests.protection.masking.test_masking_client_rules import ME, refused, shares_of


def quorum_of(s: Any) -> dict[int, bytes]:
    return dict(Quorum.decode(Envelope.decode(s.message_for(ME)).head).signatures)


@pytest.mark.claim("masking-one-survivor-set")
@pytest.mark.parametrize("case", ["fewer", "more", "forged", "swapped", "stranger", "other_set"])
def test_anything_but_a_quorum_on_one_set_aborts(scene: Any, case: str) -> None:
    s = scene()
    s.until_clients_get(Kind.QUORUM, silent={40: Kind.UPLOAD})
    signatures = quorum_of(s)
    assert len(signatures) == s.config.quorum == 3
    first = min(signatures)
    if case == "fewer":
        del signatures[first]
    if case == "more":
        signatures[21] = s.server._round._confirmations[21]
    if case == "forged":
        signatures[first] = bytes(64)
    if case == "swapped":
        one, other = sorted(signatures)[:2]
        signatures[one], signatures[other] = signatures[other], signatures[one]
    if case == "stranger":
        signatures = dict(sorted(signatures.items())[:-1]) | {40: bytes(64)}
    if case == "other_set":
        context = s.server._round.public.context
        head = b"s" * 32
        message = seal(s.federation.identities[first].key, context, Kind.CONFIRM, first, head)
        signatures[first] = Envelope.decode(message).proof
    match = {"fewer": "2 signatures", "more": "4 signatures", "stranger": "is not a survivor"}
    message = s.server_says(s.message_for(ME), head=Quorum(signatures=signatures).head())
    refused(s, message, match.get(case, "CONFIRM: bad signature"))
    assert s.federation.journals[ME].revealed(s.server._round.public.context.round_id) is None


@pytest.mark.claim("masking-never-both-shares")
def test_a_reveal_is_given_once_and_holds_one_share_per_neighbour(scene: Any) -> None:
    s = scene()
    s.until_server_gets(Kind.REVEAL, silent={40: Kind.UPLOAD})
    for number, reply in list(s.replies.items()):
        again = s.clients[number].receive(s.message_for(number))
        assert again == [reply]  # byte for byte, and nothing is computed anew
    for number, reply in s.replies.items():
        expected = dict.fromkeys({3, 7, 20, 21} - {number}, "self") | {40: "mask"}
        assert shares_of(s, number, reply) == expected


def test_a_receipt_that_does_not_hold_the_upload_aborts(scene: Any) -> None:
    s = scene()
    s.until_clients_get(Kind.RESULT)
    envelope = Envelope.decode(s.message_for(ME))
    result = Result.decode(envelope.head, envelope.payload)
    wrong = Result(
        digest=result.digest, root=result.root, leaves=result.leaves, index=result.index + 1,
        path=result.path,
    )  # fmt: skip
    message = s.server_says(s.message_for(ME), payload=wrong.payload())
    refused(s, message, "does not lead to the root")
