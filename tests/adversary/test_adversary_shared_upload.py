"""Attacks on shared uploads: each succeeds on a weakened copy and fails on ours.

The weakened copies live here: shares that leave fakes as they are, seeds used twice, halves that
sign any set, and servers that tell every denoiser another story.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from secure_fedrec.core.arrays import BoolArray, IndexArray, RingArray
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.shared_upload import (
    RoundContext,
    SharedUpload,
    SharedUploadConfig,
    SharingClient,
    SharingDenoiser,
    SharingServer,
)
from secure_fedrec.protection.shared_upload.client import expand, with_counts
from secure_fedrec.protection.shared_upload.messages import (
    Kind,
    decode_members,
    encode_members,
    open_envelope,
    set_digest,
    sign,
)
from secure_fedrec.protection.shared_upload.real import Identities
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Meter, Step, Wire

SMALL = 1e-6
KEYS = Identities.draw(clients=4, denoisers=3)
N_ITEMS, WIDTH = 200, 4


def context_of(*, number: int = 1, floor: int = 2, bits: int = 32) -> RoundContext:
    return RoundContext(
        codec=FixedPoint(bits=bits, fraction_bits=8, clip=8.0),
        n_items=N_ITEMS,
        width=WIDTH,
        floor=floor,
        roster=KEYS.roster,
        round=number,
        round_id=number.to_bytes(16, "little"),
    )


def upload(context: RoundContext, *, rated: float, seed: int) -> tuple[Any, Any, Any]:
    """All items named; a share of them rated, with small values, the others fake."""
    rng = np.random.default_rng(seed)
    rows = np.arange(N_ITEMS, dtype=np.int32)
    integers = rng.integers(-20, 20, (N_ITEMS, WIDTH))
    return rows, context.codec.from_integers(integers), rng.random(N_ITEMS) < rated


def shares(context: RoundContext, client: int, rows: Any, words: Any, rated: Any) -> list[Any]:
    """Words [N, d + 1] of server and denoisers, out of the real halves' bytes."""
    denoisers = [SharingDenoiser(context, n, key) for n, key in enumerate(KEYS.denoisers)]
    server = SharingServer(context, KEYS.server)
    half = SharingClient(context, client, KEYS.clients[client])
    half.accept([denoiser.advertise() for denoiser in denoisers])
    shared = half.share(rows, words, rated)
    server.receive(shared.server)
    for denoiser, message in zip(denoisers, shared.denoisers, strict=True):
        denoiser.receive(message)
    held = [denoiser.share_of(client)[1] for denoiser in denoisers]
    return [server.share_of(client)[1], *held]


def weak_shares(context: RoundContext, rows: Any, words: Any, rated: Any) -> list[Any]:
    """The weakened copy saves randomness: a fake row, being zero, is shared as zeros."""
    whole = with_counts(words, rated)
    parts = [expand(bytes([n]) * 32, len(rows), 0, n, context) for n in range(3)]
    for part in parts:
        part[~rated] = 0
    return [context.codec.reduce(whole - added(parts)), *parts]


def coalitions() -> list[tuple[int, ...]]:
    """Proper subsets of {server, three denoisers}."""
    return [chosen for size in (1, 2, 3) for chosen in combinations(range(4), size)]


def added(words: list[Any]) -> RingArray:
    """Their sum modulo the word size (numpy's own sums widen the words)."""
    total = words[0].copy()
    for other in words[1:]:
        total += other
    return np.asarray(total)


def bytes_of(words: RingArray) -> Any:
    return np.bincount(np.ascontiguousarray(words).view(np.uint8).ravel(), minlength=256)


@pytest.mark.claim("shared-upload-subsets")
@pytest.mark.parametrize("coalition", coalitions(), ids=str)
@pytest.mark.parametrize("rated", [0.0, 1.0])
def test_every_proper_subset_holds_uniform_words_whatever_the_input(
    coalition: tuple[int, ...], rated: float
) -> None:
    context = context_of()
    counts = np.zeros(256)
    sums = np.zeros(256)
    for seed in range(12):
        held = shares(context, 0, *upload(context, rated=rated, seed=seed))
        for member in coalition:
            counts += bytes_of(held[member])
        # What the coalition's shares add up to still lacks a uniform word.
        sums += bytes_of(added([held[member] for member in coalition]))
    assert chisquare(counts).pvalue > SMALL
    assert chisquare(sums).pvalue > SMALL


def test_all_of_them_together_hold_the_upload() -> None:
    """The control of the test above: nothing else than the missing share hides the rows."""
    context = context_of()
    rows, words, rated = upload(context, rated=0.5, seed=1)
    total = added(shares(context, 0, rows, words, rated))
    assert total.tolist() == with_counts(words, rated).tolist()
    assert chisquare(bytes_of(total)).pvalue < SMALL


def test_uniformity_fails_on_the_weakened_copy() -> None:
    context = context_of()
    held = weak_shares(context, *upload(context, rated=0.5, seed=1))
    for words in held:
        assert chisquare(bytes_of(words)).pvalue < SMALL


def rated_rows_auc(view: list[Any], marks: list[Any]) -> float:
    """A classifier that sees the words of one party and must tell rated rows from fakes."""
    features = np.concatenate([words.view(np.uint8).reshape(len(words), -1) for words in view])
    labels = np.concatenate(marks)
    half = len(labels) // 2
    forest = RandomForestClassifier(n_estimators=60, random_state=1, n_jobs=1)
    forest.fit(features[:half], labels[:half])
    return float(roc_auc_score(labels[half:], forest.predict_proba(features[half:])[:, 1]))


def test_a_classifier_finds_rated_rows_on_the_weakened_copy_only() -> None:
    context = context_of()
    uploads = [upload(context, rated=0.5, seed=seed) for seed in range(12)]
    marks = [rated for _, _, rated in uploads]
    weak = [weak_shares(context, *one)[0] for one in uploads]
    assert rated_rows_auc(weak, marks) > 0.9
    ours = [shares(context, 0, *one) for one in uploads]
    for member in range(4):
        view = [held[member] for held in ours]
        # 1200 rows: the null AUC has a standard deviation of 0.017; 5 of them are p < 1e-6.
        assert abs(rated_rows_auc(view, marks) - 0.5) < 5 * 0.017


def test_one_seed_for_two_rounds_shows_the_difference_and_ours_are_fresh() -> None:
    first, second = context_of(number=1), context_of(number=2)
    rows, words, rated = upload(first, rated=0.5, seed=1)
    moved = words.copy()
    moved[:, 0] += 1  # the rows of the next round differ by little
    seed = bytes(32)

    def weak(context: RoundContext, x: RingArray) -> RingArray:
        del context  # a derivation that leaves the round out
        mask = expand(seed, len(rows), 0, 0, first)
        return with_counts(x, rated) - mask

    gone = weak(second, moved) - weak(first, words)
    assert gone[:, 0].tolist() == rated.astype(int).tolist()  # the rated set, in clear
    one, other = shares(first, 0, rows, words, rated), shares(second, 0, rows, moved, rated)
    for member in range(4):
        assert chisquare(bytes_of(other[member] - one[member])).pvalue > SMALL
    # The derivation depends on the round, so that even one seed would give two masks.
    masks = [expand(seed, len(rows), 0, 0, context) for context in (first, second)]
    assert chisquare(bytes_of(masks[0] - masks[1])).pvalue > SMALL


class Parties:
    """A round in which three clients have uploaded to everybody."""

    def __init__(self, *, floor: int = 2) -> None:
        self.context = context = context_of(floor=floor)
        self.denoisers = [SharingDenoiser(context, n, key) for n, key in enumerate(KEYS.denoisers)]
        self.server = SharingServer(context, KEYS.server)
        self.uploads: dict[int, tuple[IndexArray, RingArray, BoolArray]] = {}
        for client in range(4):
            half = SharingClient(context, client, KEYS.clients[client])
            half.accept([denoiser.advertise() for denoiser in self.denoisers])
            self.uploads[client] = upload(context, rated=0.5, seed=client)
            shared = half.share(*self.uploads[client])
            self.server.receive(shared.server)
            for denoiser, message in zip(self.denoisers, shared.denoisers, strict=True):
                denoiser.receive(message)
        self.held = [denoiser.hold() for denoiser in self.denoisers]

    def proposal(self, clients: set[int]) -> bytes:
        """What a server that deviates may sign: any set of its choice."""
        body = open_envelope(self.held[0], Kind.HELD, context=self.context).body
        members = decode_members(body, self.context)
        chosen = {client: support for client, support in members.items() if client in clients}
        return self.signed(Kind.PROPOSAL, encode_members(chosen))

    def signed(self, kind: Kind, body: bytes) -> bytes:
        return sign(kind, 0, body, context=self.context, identity=KEYS.server)

    def revealed(self, sums: list[Any], clients: set[int]) -> RingArray:
        """The server's shares of some clients plus the sums of all denoisers, per row."""
        total = added([self.server.share_of(client)[1] for client in clients])
        return self.context.codec.reduce(total + added(sums))


def careless_sums(party: Parties, clients: set[int]) -> list[Any]:
    """The weakened copy: denoisers without a floor, an agreement or a state sum any set."""
    return [
        added([denoiser.share_of(client)[1] for client in clients]) for denoiser in party.denoisers
    ]


def test_a_single_client_is_isolated_on_the_weakened_copy() -> None:
    party = Parties()
    _, words, rated = party.uploads[2]
    whole = with_counts(words, rated)
    # Below the floor: a set of one.
    assert party.revealed(careless_sums(party, {2}), {2}).tolist() == whole.tolist()
    # Two overlapping sets in one round.
    more = party.revealed(careless_sums(party, {0, 1, 2}), {0, 1, 2})
    less = party.revealed(careless_sums(party, {0, 1}), {0, 1})
    assert (more - less).tolist() == whole.tolist()


def test_a_set_below_the_floor_is_refused() -> None:
    party = Parties()
    with pytest.raises(ProtocolError, match="1 clients are fewer than the floor of 2"):
        party.denoisers[0].consent(party.proposal({2}))
    with pytest.raises(ProtocolError, match="denoiser 0 is aborted"):
        party.denoisers[0].consent(party.proposal({0, 1, 2}))
    higher = Parties(floor=4)
    with pytest.raises(ProtocolError, match="3 clients are fewer than the floor of 4"):
        higher.denoisers[1].consent(higher.proposal({0, 1, 2}))


def test_a_denoiser_signs_and_releases_one_set_only() -> None:
    party = Parties()
    first = party.proposal({0, 1, 2})
    consents = [denoiser.consent(first) for denoiser in party.denoisers]
    agreement = party.signed(Kind.AGREEMENT, b"".join(consents))
    with pytest.raises(ProtocolError, match="waiting for the agreement"):
        party.denoisers[0].consent(party.proposal({0, 1}))
    party.denoisers[0].release(agreement)
    with pytest.raises(ProtocolError, match="is done"):
        party.denoisers[0].release(agreement)
    with pytest.raises(ProtocolError, match="is done"):
        party.denoisers[0].consent(party.proposal({0, 1}))
    with pytest.raises(ProtocolError, match="holds nothing of client 0"):
        party.denoisers[0].share_of(0)


@pytest.mark.claim("shared-upload-subsets")
def test_split_views_release_nothing() -> None:
    """One set for the first two denoisers, another for the third."""
    party = Parties()
    one, other = party.proposal({0, 1, 2}), party.proposal({0, 1, 2, 3})
    consents = [
        party.denoisers[0].consent(one),
        party.denoisers[1].consent(one),
        party.denoisers[2].consent(other),
    ]
    agreement = party.signed(Kind.AGREEMENT, b"".join(consents))
    for denoiser, blamed in ((0, 2), (1, 2), (2, 0)):
        with pytest.raises(ProtocolError, match=f"denoiser {blamed} consented to another set"):
            party.denoisers[denoiser].release(agreement)
        with pytest.raises(ProtocolError, match="is aborted"):
            party.denoisers[denoiser].release(agreement)


def test_consents_cannot_be_forged_repeated_or_left_out() -> None:
    party = Parties()
    one = party.proposal({0, 1})
    consents = [denoiser.consent(one) for denoiser in party.denoisers]
    body = open_envelope(one, Kind.PROPOSAL, context=party.context).body
    digest = set_digest(body, party.context)
    forged = sign(Kind.CONSENT, 2, digest, context=party.context, identity=KEYS.server)
    for wrong, match in (
        ([consents[0], consents[1], forged], "2 has a bad signature"),
        ([consents[0], consents[1], consents[1]], "two CONSENT messages of denoiser 1"),
        ([consents[0], consents[1]], "does not hold 3 consents"),
    ):
        agreement = party.signed(Kind.AGREEMENT, b"".join(wrong))
        with pytest.raises(Exception, match=match):
            party.denoisers[0].release(agreement)
    party.denoisers[0].release(party.signed(Kind.AGREEMENT, b"".join(consents)))


def test_a_set_with_a_client_whose_seed_is_missing_is_refused() -> None:
    party = Parties()
    body = open_envelope(party.proposal({0, 1}), Kind.PROPOSAL, context=party.context).body
    members = decode_members(body, party.context)
    members[1] = bytes(32)  # other rows than the client named here
    with pytest.raises(ProtocolError, match="client 1 are missing or for other rows"):
        party.denoisers[0].consent(party.signed(Kind.PROPOSAL, encode_members(members)))


def test_a_key_substituted_by_the_server_is_refused() -> None:
    context = context_of()
    own = SharingDenoiser(context, 0, KEYS.denoisers[0])
    adverts = [own.advertise()] + [
        SharingDenoiser(context, n, KEYS.denoisers[n]).advertise() for n in (1, 2)
    ]
    intruder = Identities.draw(clients=1, denoisers=1).denoisers[0]
    body = open_envelope(adverts[1], Kind.ADVERT, context=context).body
    for identity in (intruder, KEYS.server):
        forged = sign(Kind.ADVERT, 0, body, context=context, identity=identity)
        half = SharingClient(context, 0, KEYS.clients[0])
        with pytest.raises(ProtocolError, match="0 has a bad signature"):
            half.accept([forged, *adverts[1:]])
    stale = SharingDenoiser(context_of(number=2), 0, KEYS.denoisers[0]).advertise()
    with pytest.raises(ProtocolError, match="another agreement"):
        SharingClient(context, 0, KEYS.clients[0]).accept([stale, *adverts[1:]])


class Views:
    """What server and denoisers see of a simulated round."""

    def __init__(self) -> None:
        self.words: dict[tuple[Step, int], list[Any]] = {}

    def apply(self, messages: Any) -> Any:
        if messages.step in (Step.UPLOAD, Step.SHARE):
            key = (messages.step, int(messages.receivers.ids[0]))
            block = messages.payload
            words = np.column_stack([block.values, block.counts.astype(block.values.dtype)])
            self.words.setdefault(key, []).append(words)
        return messages


@pytest.mark.parametrize("rated", [0.0, 0.5, 1.0])
def test_simulated_views_are_uniform_too(rated: float) -> None:
    collector = SharedUpload(
        SharedUploadConfig(count=2, floor=2),
        n_clients=20,
        n_items=N_ITEMS,
        width=WIDTH,
        codec=FixedPoint(bits=32, fraction_bits=8, clip=8.0),
        streams=Streams.from_seed(1),
    )
    views = Views()
    wire = Wire(meter=Meter(20), faults=(views,))
    session = collector.open(round_=1, participants=np.arange(20), wire=wire)
    context = context_of()
    for client in range(20):
        rows, words, mark = upload(context, rated=rated, seed=client)
        block = RowBlock(indptr=np.array([0, len(rows)]), rows=rows, values=words)
        session.submit(np.array([client]), block, ~mark)
    session.close()
    assert set(views.words) == {(Step.UPLOAD, 0), (Step.SHARE, 0), (Step.SHARE, 1)}
    for words in views.words.values():
        assert chisquare(bytes_of(np.concatenate(words))).pvalue > SMALL
    held = [np.concatenate(parts) for parts in views.words.values()]
    for one, other in combinations(held, 2):
        assert chisquare(bytes_of(one + other)).pvalue > SMALL
    assert chisquare(bytes_of(added(held))).pvalue < SMALL  # all three: the rows
