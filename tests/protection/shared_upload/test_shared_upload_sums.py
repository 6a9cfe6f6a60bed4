"""The result is the exact sum over the agreed set, whatever is lost on the way."""

import hmac
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.shared_upload.client import expand
from secure_fedrec.protection.shared_upload.messages import (
    Kind,
    agreement_bytes,
    rows_message_bytes,
    seed_message_bytes,
)
from secure_fedrec.protection.shared_upload.uniform_words import UniformWords
from secure_fedrec.wire.words import pack_words, unpack_words

Make = Callable[..., Any]


def by_hand(context: Any, uploads: dict[int, Any]) -> tuple[list[list[int]], list[int]]:
    """Sums in Python's integers, and counts, of the rated rows of some clients."""
    sums = [[0] * context.width for _ in range(context.n_items)]
    counts = [0] * context.n_items
    for rows, words, rated in uploads.values():
        integers = context.codec.to_integers(words).tolist()
        for row, values, mark in zip(rows.tolist(), integers, rated.tolist(), strict=True):
            if mark:
                counts[row] += 1
                sums[row] = [one + other for one, other in zip(sums[row], values, strict=True)]
    return sums, counts


@pytest.mark.parametrize("bits", [9, 24, 32, 33, 36, 64])
@pytest.mark.parametrize("denoisers", [1, 2, 4])
@pytest.mark.parametrize("kem", ["x25519", "mlkem768-x25519"])
def test_the_sum_of_the_rated_rows_remains(
    begin: Make, draw_rows: Make, bits: int, denoisers: int, kem: str
) -> None:
    round_ = begin(clients=6, denoisers=denoisers, bits=bits, kem=kem)
    uploads = {client: draw_rows(round_.context, seed=client + bits) for client in range(6)}
    for client, upload in uploads.items():
        round_.deliver(round_.share(client, *upload))
    aggregate = round_.close()
    sums, counts = by_hand(round_.context, uploads)
    assert aggregate.ring.dtype == round_.context.codec.dtype
    assert round_.context.codec.to_integers(aggregate.ring).tolist() == sums
    assert aggregate.counts.tolist() == counts
    assert round_.server.members == tuple(range(6))
    assert round_.server.left_out == {}


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_losses_leave_the_exact_sum_over_the_agreed_set_or_nothing(
    begin: Make, draw_rows: Make, data: st.DataObject
) -> None:
    clients, denoisers = data.draw(st.sampled_from([(2, 1), (3, 1), (4, 2), (5, 3)]))
    floor = data.draw(st.integers(2, clients))
    bits = data.draw(st.sampled_from([9, 20, 32, 40, 64]))
    round_ = begin(clients=clients, denoisers=denoisers, bits=bits, floor=floor)
    holders = st.sets(st.integers(-1, denoisers - 1)).map(frozenset)
    lost = [data.draw(st.just(frozenset()) | holders) for _ in range(clients)]
    seed = data.draw(st.integers(0, 10**6))
    uploads = {c: draw_rows(round_.context, seed=seed + c) for c in range(clients)}
    for client in data.draw(st.permutations(range(clients))):
        round_.deliver(round_.share(client, *uploads[client]), lost=lost[client])
    whole = {client: uploads[client] for client in range(clients) if not lost[client]}
    if len(whole) < floor:
        with pytest.raises(ProtocolError, match="fewer than the floor"):
            round_.close()
        for denoiser in round_.denoisers:
            with pytest.raises(ProtocolError, match="waiting for the proposal"):
                denoiser.release(b"")
        return
    aggregate = round_.close()
    sums, counts = by_hand(round_.context, whole)
    assert round_.context.codec.to_integers(aggregate.ring).tolist() == sums
    assert aggregate.counts.tolist() == counts
    assert round_.server.members == tuple(sorted(whole))
    silent = {c for c in range(clients) if len(lost[c]) == denoisers + 1}
    assert set(round_.server.left_out) == set(range(clients)) - set(whole) - silent


def test_who_is_left_out_is_named_with_the_reason(begin: Make, draw_rows: Make) -> None:
    round_ = begin(clients=6, denoisers=2)
    round_.upload(0)
    round_.upload(1)
    round_.upload(2, lost=frozenset({-1}))
    round_.upload(3, lost=frozenset({1}))
    shared = round_.share(4, *draw_rows(round_.context, seed=4))
    round_.deliver(shared, lost=frozenset({0}))
    # A client that names other rows to one denoiser.
    other = begin(clients=6, denoisers=2)
    other.denoisers = round_.denoisers
    rows, words, rated = draw_rows(round_.context, seed=5)
    round_.deliver(round_.share(5, rows, words, rated), lost=frozenset({0}))
    other.deliver(other.share(5, rows[1:], words[1:], rated[1:]), lost=frozenset({-1, 1}))
    round_.close()
    assert round_.server.members == (0, 1)
    assert round_.server.left_out == {
        2: "no share at the server",
        3: "no seed at denoiser 1",
        4: "no seed at denoiser 0",
        5: "other rows at denoiser 0",
    }


def test_words_of_fakes_are_not_read(begin: Make, draw_rows: Make) -> None:
    results = []
    for rubbish in (0, 2**32 - 1):
        round_ = begin(clients=3, denoisers=1)
        for client in range(3):
            rows, words, rated = draw_rows(round_.context, seed=client)
            words = words.copy()
            words[~rated] = rubbish
            round_.deliver(round_.share(client, rows, words, rated))
        results.append(round_.close())
    assert results[0].ring.tolist() == results[1].ring.tolist()
    assert results[0].counts.tolist() == results[1].counts.tolist()


def test_clients_without_rows_take_part(begin: Make) -> None:
    round_ = begin(clients=2, denoisers=1)
    nothing = (
        np.empty(0, dtype=np.int32),
        np.empty((0, 2), dtype=np.uint32),
        np.empty(0, dtype=bool),
    )
    for client in range(2):
        round_.deliver(round_.share(client, *nothing))
    aggregate = round_.close()
    assert not aggregate.ring.any()
    assert not aggregate.counts.any()


@pytest.mark.parametrize("bits", [12, 32, 40, 64])
@pytest.mark.parametrize("kem", ["x25519", "mlkem768-x25519"])
def test_messages_have_the_sizes_that_are_metered(
    begin: Make, draw_rows: Make, bits: int, kem: str
) -> None:
    round_ = begin(clients=4, denoisers=3, bits=bits, kem=kem)
    codec, overhead = round_.context.codec, round_.context.mechanism.overhead
    for client in range(4):
        upload = draw_rows(round_.context, seed=client)
        shared = round_.share(client, *upload)
        rows = np.array([len(upload[0])])
        assert rows_message_bytes(rows, 3, codec.bytes_per_value) == len(shared.server)
        assert {len(message) for message in shared.denoisers} == set(
            seed_message_bytes(rows, overhead).tolist()
        )
        round_.deliver(shared)
    advert = round_.denoisers[0].advertise()
    held = [denoiser.hold() for denoiser in round_.denoisers]
    proposal = round_.server.propose(held)
    consents = [denoiser.consent(proposal) for denoiser in round_.denoisers]
    agreement = round_.server.agree(consents)
    assert agreement_bytes(4, 3, round_.context.mechanism.public_bytes) == {
        Kind.ADVERT: len(advert),
        Kind.HELD: len(held[0]),
        Kind.PROPOSAL: len(proposal),
        Kind.CONSENT: len(consents[0]),
        Kind.AGREEMENT: len(agreement),
    }


@settings(deadline=None)
@given(
    st.integers(8, 64), st.integers(0, 6), st.integers(1, 4), st.binary(min_size=32, max_size=32)
)
def test_words_pack_into_their_bytes(
    begin: Make, bits: int, rows: int, width: int, key: bytes
) -> None:
    codec = begin(bits=max(bits, 9)).context.codec
    words = UniformWords(key).draw(rows, width, codec)
    assert words.dtype == codec.dtype
    assert not words.size or int(words.max()) < 2**codec.bits
    data = pack_words(words, codec)
    assert len(data) == rows * width * codec.bytes_per_value
    assert unpack_words(data, rows, width, codec).tolist() == words.tolist()


def test_a_keystream_is_aes_256_in_counter_mode(begin: Make) -> None:
    # AES-256 of the zero block under the zero key (NIST AESAVS, KAT of all-zero input).
    codec = begin(bits=64).context.codec
    first = UniformWords(bytes(32)).draw(1, 2, codec)
    assert first.astype("<u8").tobytes().hex() == "dc95c078a2408989ad48a21492842087"
    stream = UniformWords(bytes(32))
    parts = [stream.draw(1, 2, codec), stream.draw(3, 2, codec)]
    whole = UniformWords(bytes(32)).draw(4, 2, codec)
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_expansion_equals_an_independent_reference(begin: Make) -> None:
    """HKDF-SHA256 from RFC 5869 on the standard library, counter mode from single AES blocks."""
    context = begin(bits=40).context
    seed, rows, client, denoiser = bytes(range(32)), 5, 3, 1
    ends = client.to_bytes(4, "little") + denoiser.to_bytes(4, "little")
    parts = (b"secure-fedrec|hardened-denoisers|v1", b"share", ends)
    info = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    extracted = hmac.digest(context.digest, seed, "sha256")
    key = hmac.digest(extracted, info + b"\x01", "sha256")
    block = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305
    stream = b"".join(block.update(n.to_bytes(16, "big")) for n in range(8))
    words = [int.from_bytes(stream[8 * n : 8 * n + 8], "little") % 2**40 for n in range(15)]
    expected = [words[3 * n : 3 * n + 3] for n in range(5)]
    assert expand(seed, rows, client, denoiser, context).tolist() == expected
    for other in ((seed, rows, 2, 1), (seed, rows, 3, 0), (bytes(32), rows, 3, 1)):
        assert expand(*other, context).tolist() != expected
    assert (
        expand(seed, rows, client, denoiser, begin(bits=40, number=2).context).tolist() != expected
    )
