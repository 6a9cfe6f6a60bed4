"""Lists of receipts: one encoding, nothing of order or of the fragments behind them."""

from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.routing import (
    KEMS,
    Directory,
    Endpoint,
    MixNode,
    OpeningKey,
    Receipt,
    RoutingConfig,
    SentCells,
    receipt_bytes,
    receipt_digest,
    send,
)
from secure_fedrec.protection.routing.receipts import sign_receipt

pytestmark = pytest.mark.claim("routing-receipts")

KEYS = [OpeningKey.generate(KEMS["x25519"]) for _ in range(2)]
DIRECTORY = Directory(
    config=RoutingConfig(layers=1, cell_bytes=512, min_batch=2),
    epoch=4,
    mixes=((KEYS[0].public,),),
    recipients=(KEYS[1].public,),
)
IDENTITY = Ed25519PrivateKey.generate()
SIGNERS = [IDENTITY.public_key().public_bytes_raw()]


def receipt_of(fragments: list[bytes], *, batch: int = 1) -> bytes:
    return sign_receipt(fragments, recipient=0, batch=batch, directory=DIRECTORY, identity=IDENTITY)


fragments = st.lists(st.binary(min_size=32, max_size=32), max_size=12, unique=True)


@given(fragments)
@settings(deadline=None)
def test_a_list_has_the_stated_size_and_says_what_it_is(held: list[bytes]) -> None:
    data = receipt_of(held, batch=7)
    receipt = Receipt.decode(data)
    assert len(data) == receipt_bytes(len(held))
    assert (receipt.recipient, receipt.epoch, receipt.batch) == (0, 4, 7)
    assert receipt.directory == DIRECTORY.digest
    assert list(receipt.entries) == sorted(receipt.entries) and len(receipt.entries) == len(held)


@given(fragments.filter(lambda held: len(held) > 1), st.data())
@settings(deadline=None)
def test_any_other_bytes_are_refused(held: list[bytes], data: st.DataObject) -> None:
    """By their form, or as unsigned; and never with another error."""
    whole = receipt_of(held)
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    start = 4 + 12 + 32 + 16
    swapped = whole[:start] + whole[start + 8 : start + 16] + whole[start : start + 8]
    swapped += whole[start + 16 :]
    sent = SentCells(DIRECTORY, batch=1)
    for changed in (bytes(flipped), swapped, whole[:-1], whole + b"\0", whole[:20], b""):
        with pytest.raises((WireError, ProtocolError)):
            sent.require_received([changed], signers=SIGNERS, published=[receipt_digest(changed)])
    sent.require_received([whole], signers=SIGNERS, published=[receipt_digest(whole)])


def test_two_equal_entries_are_no_list_and_a_fragment_is_signed_for_once() -> None:
    one = sha256(b"one").digest()
    whole = receipt_of([one, one])
    assert len(Receipt.decode(whole).entries) == 1
    head, entry = bytearray(whole[:64]), whole[64:72]
    head[12:16] = (2).to_bytes(4, "little")
    with pytest.raises(WireError, match="must ascend"):
        Receipt.decode(bytes(head) + entry + entry + bytes(64))


def test_a_salt_makes_every_list_anew() -> None:
    held = [sha256(bytes([n])).digest() for n in range(20)]
    first, second = (Receipt.decode(receipt_of(held)) for _ in range(2))
    assert not set(first.entries) & set(second.entries)


@pytest.mark.parametrize(("recipient", "batch"), [(-1, 0), (2**16, 0), (0, -1), (0, 2**32)])
def test_numbers_that_do_not_fit_are_refused(recipient: int, batch: int) -> None:
    with pytest.raises(ProtocolError, match="no number of a list"):
        sign_receipt([], recipient=recipient, batch=batch, directory=DIRECTORY, identity=IDENTITY)


def test_a_list_covers_its_batch_and_the_next_one_the_next() -> None:
    mix, end = MixNode(layer=0, node=0), Endpoint(layers=1, index=0)
    mix.rotate(DIRECTORY, KEYS[0])
    end.rotate(DIRECTORY, KEYS[1])
    books = [SentCells(DIRECTORY, batch=batch) for batch in (1, 2)]
    lists = []
    for batch, book in enumerate(books, start=1):
        long = bytes(700)  # two cells; the third is a dummy
        cells = send([long], recipient=0, cells=3, directory=DIRECTORY, sent=book)
        loop = end.loop()
        for cell in (*cells, loop):
            mix.receive(cell)
        assert [end.receive(cell) for cell in mix.flush()].count(long) == 1
        lists.append(end.receipt(batch=batch, identity=IDENTITY))
        assert len(lists[-1]) == receipt_bytes(3)  # a loop is its sender's own business
    for book, receipt in zip(books, lists, strict=True):
        book.require_received([receipt], signers=SIGNERS, published=[receipt_digest(receipt)])
    with pytest.raises(ProtocolError, match="another directory or batch"):
        books[0].require_received([lists[1]], signers=SIGNERS, published=[receipt_digest(lists[1])])
    for batch in (2, 1):  # asked again, it does not convict itself
        with pytest.raises(ProtocolError, match="not beyond batch 2"):
            end.receipt(batch=batch, identity=IDENTITY)
    end.retire(4)
    with pytest.raises(ProtocolError, match="no key"):
        end.receipt(batch=3, identity=IDENTITY)
