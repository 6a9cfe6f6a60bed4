"""A server that goes for keys, cohorts and masks: each attack opens a weakened copy, and not ours.

The adversary is the server with all its keys and state, and with the secrets of corrupt clients
where an attack says so. What it wants is the clear vector of one honest client, the victim.
"""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import mannwhitneyu
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking import (
    ClientState,
    Federation,
    KeyAgreement,
    Kind,
    MaskingClient,
    MaskingConfig,
    Outgoing,
    Roster,
    SitePolicy,
    SumLayout,
    state_hash,
)
from secure_fedrec.protection.masking.client import steps as rules
from secure_fedrec.protection.masking.client.secrets import Neighbour, RoundSecrets
from secure_fedrec.protection.masking.envelope import Envelope
from secure_fedrec.protection.masking.messages import hybrid
from secure_fedrec.protection.masking.messages.key_messages import Boxes, Keys, ShareRecord, Shares
from secure_fedrec.protection.masking.messages.keys import exchange, pair_key, self_key
from secure_fedrec.protection.masking.messages.pair_seal import pair_hash, seal_info
from secure_fedrec.protection.masking.messages.shamir import combine, decode_element
from secure_fedrec.protection.masking.server.recovery import pair_keys_of
from tests.statements import about

VICTIM = 2


# The server in the middle of every channel of the victim.


def substitute_keys(attack: Any) -> Any:
    """Play every neighbour towards the victim, with keys of the server's own."""
    attack.until(Kind.KEYS)
    core, context = attack.core, attack.core.public.context
    others = [number for number in attack.clients if number != VICTIM]
    fakes = {number: RoundSecrets(context, number, with_kem=False) for number in others}
    advertised = {n: replace(fake.advertisement(0), generation=1) for n, fake in fakes.items()}
    victims_keys = core._keys[VICTIM]
    records = {
        number: keys.head() + core._key_records[number][-64:] for number, keys in advertised.items()
    }
    keys = Keys(advertised=core._advertised, beacon=bytes(32), records=records)
    (reply,) = attack.clients[VICTIM].receive(attack.says(Kind.KEYS, keys.head(), keys.payload()))
    shares = Shares.decode(Envelope.decode(reply).head, VICTIM, attack.config)
    mask_shares, self_shares, boxes = {}, {}, {}
    for number, fake in fakes.items():
        edge = Neighbour(
            context=context,
            owner=number,
            number=VICTIM,
            signer=b"",
            keys=victims_keys,
            shared=exchange(fake.channel_key, victims_keys.channel_public),
            own_public=advertised[number].channel_public,
        )
        opened = edge.open_shares(fake, ShareRecord.decode(shares.records[number]), b"")
        index = core.public.places[number] + 1
        mask_shares[index], self_shares[index] = map(decode_element, opened)
        boxes[number] = edge.seal_shares(1, 2, b"")
    told = Boxes(shared=core._advertised, records=boxes, seals={})
    (upload,) = attack.clients[VICTIM].receive(attack.says(Kind.BOXES, told.head(), told.payload()))
    words, t = attack.words(upload), attack.config.threshold
    mask_seed = combine(dict(list(mask_shares.items())[:t]))
    self_seed = combine(dict(list(self_shares.items())[:t]))
    pairs = pair_keys_of(
        mask_seed, context, VICTIM, stated=core.stated, partners=advertised, seals={}
    )
    MaskExpander().apply(
        words,
        add=[key for number, key in pairs.items() if number < VICTIM],
        subtract=[
            self_key(self_seed, context, VICTIM, core.stated),
            *(key for number, key in pairs.items() if number > VICTIM),
        ],
    )
    return attack.layout.decode(words & np.uint32(2**20 - 1))


def test_key_substitution(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match="bad signature of client"):
        substitute_keys(attacked())
    # Weakened copy: nobody checks who signed the keys.
    monkeypatch.setattr(rules, "verify", lambda *_: None)
    weak = attacked()
    assert np.array_equal(substitute_keys(weak), weak.values[VICTIM])


# The server's own pair secrets, and a quantum computer some years later.


def substitute_pair_secrets(attack: Any) -> Any:
    """Seal secrets of the server's own to the client whose neighbours all have lower numbers."""
    victim, own = max(attack.clients), b"\x07" * 32
    attack.until(Kind.BOXES)
    core, context = attack.core, attack.core.public.context
    target = attack.clients[victim]
    broken = target._round._secrets.mask_key  # X25519 falls: the public half went through KEYS
    for place, (number, data) in enumerate(attack.outgoing):
        if number == victim:
            envelope = Envelope.decode(data)
            boxes = Boxes.decode(envelope.head, envelope.payload, victim, attack.config)
            seals = {
                lower: hybrid.seal_to(
                    core._keys[victim].mask_kem,
                    own,
                    seal_info(context, "pair-seal", lower, victim),
                )
                + pair_hash(context, lower, victim, own)
                for lower in boxes.seals
            }
            told = Boxes(shared=boxes.shared, records=boxes.records, seals=seals)
            message = attack.says(Kind.BOXES, told.head(), told.payload())
            attack.outgoing[place] = Outgoing(number, message)
    for number, data in attack.outgoing:
        (upload,) = attack.clients[number].receive(data)
        attack.uploads[number] = attack.words(upload)
        attack.server.receive(upload)
    attack.outgoing = attack.server.close_step()
    reveals = attack.unmask_story(set(attack.clients), set(attack.clients))
    words = attack.uploads[victim]
    masks = [
        pair_key(
            exchange(broken, core._keys[lower].mask_public) + own,
            context,
            lower,
            victim,
            core.stated,
        )
        for lower in attack.clients
        if lower != victim
    ]
    self_seed = decode_element(reveals[victim].self_seed)
    own_mask = self_key(self_seed, context, victim, core.stated)
    MaskExpander().apply(words, add=masks, subtract=[own_mask])
    return attack.layout.decode(words & np.uint32(2**20 - 1))


@pytest.mark.claim("masking-hybrid")
def test_pair_secret_substitution(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agreement: KeyAgreement = "x25519+mlkem768"
    policy = SitePolicy(corrupt=0.0, dropout=0.4, key_agreement=agreement)
    ours = attacked(policy=policy, key_agreement=agreement)
    with pytest.raises(ProtocolError, match="nothing shows that the pair secret is client 0's"):
        substitute_pair_secrets(ours)
    assert ours.clients[5].state is ClientState.ABORTED
    assert 5 not in ours.uploads
    # Weakened copy: nothing that a neighbour made covers what it sealed.
    header = Neighbour._header

    def short(
        self: Neighbour, sender: int, receiver: int, mask: bytes, own: bytes, _: bytes
    ) -> bytes:
        return header(self, sender, receiver, mask, own, b"")

    monkeypatch.setattr(Neighbour, "_header", short)
    weak = attacked(policy=policy, key_agreement=agreement)
    assert np.array_equal(substitute_pair_secrets(weak), weak.values[5])


# Guessing mask keys.


def weak_pair_key(seed: int) -> bytes:
    return sha256(seed.to_bytes(2, "little")).digest()


def guess_masks(attack: Any) -> Any:
    """Two honest clients and a corrupt one, whose seed the server has; guess the honest pair's."""
    attack.until(Kind.SURVIVORS)
    corrupt, other, context = 0, 1, attack.core.public.context
    words = attack.uploads[VICTIM].copy()
    victims = attack.clients[VICTIM]._round
    accomplice = attack.clients[corrupt]._round
    assert victims is not None
    assert accomplice is not None
    shared = accomplice._neighbours[VICTIM].mask_key(accomplice._secrets, b"", attack.core.stated)
    revealed = victims._secrets.self_element  # to the server, in R5
    own = self_key(revealed, context, VICTIM, attack.core.stated)
    MaskExpander().apply(words, add=[shared], subtract=[own])
    assert other < VICTIM  # so the victim took the honest pair's mask off
    streams = (
        Cipher(algorithms.AES256(weak_pair_key(seed)), modes.CTR(bytes(16))).encryptor()
        for seed in range(2**16)
    )
    zeros = bytes(4 * attack.config.length)
    masks = np.frombuffer(b"".join(stream.update(zeros) for stream in streams), dtype="<u4")
    guesses = (words + masks.reshape(2**16, -1)) & np.uint32(2**20 - 1)
    centred = (guesses.astype(np.int64) ^ 2**19) - 2**19
    right = np.flatnonzero((np.abs(centred) <= 100).all(axis=1))
    return centred[right[0]] if len(right) else None


def test_mask_seed_brute_force(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"corrupt_clients": 1, "min_survivors": 3, "quorum": 3}
    policy = SitePolicy(corrupt=0.34, dropout=0.0)
    ours = attacked(range(3), policy=policy, **settings)
    assert guess_masks(ours) is None
    # Weakened copy: pair seeds of 16 bits.
    strong = Neighbour.mask_key

    def folded(self: Neighbour, secrets: RoundSecrets, pair_seal: bytes, stated: bytes) -> bytes:
        key = strong(self, secrets, pair_seal, stated)
        return weak_pair_key(int.from_bytes(key[:2], "little"))

    monkeypatch.setattr(Neighbour, "mask_key", folded)
    weak = attacked(range(3), policy=policy, **settings)
    assert np.array_equal(guess_masks(weak), weak.values[VICTIM])


# A cohort full of the server's own clients.


def surround(attacked: Any, federation: Federation, policy: SitePolicy) -> Any:
    """Sum a cohort of the victim and clients of the server, and take theirs off."""
    attack = attacked(range(4), federation=federation, min_survivors=4, quorum=3)
    for client in attack.clients.values():
        client._policy = policy
    attack.until(Kind.RESULT)
    total = attack.layout.decode(attack.server.result)
    sybils = [value for number, value in attack.values.items() if number != VICTIM]
    return np.asarray(total - sum(sybils))


def test_sybil_neighbours(attacked: Any) -> None:
    honest = Federation(range(12), policy=SitePolicy(corrupt=0.0, dropout=0.2))
    with pytest.raises(ProtocolError):  # the whole roster takes part, not four that were chosen
        surround(attacked, honest, honest.policy)
    # The server enrols clients: a roster of its own ...
    own = Federation(range(4))
    forged = Roster.sign(
        own.server.key,
        version=9,
        server=own.server.public,
        clients={number: identity.public for number, identity in own.identities.items()},
    )
    with pytest.raises(ProtocolError, match="pinned operator"):
        Roster.decode(forged.encoded, operator=honest.roster.operator)
    # ... which even a client that pins the server's key refuses for an active server.
    own.roster = forged
    with pytest.raises(ProtocolError):
        surround(attacked, own, SitePolicy(corrupt=0.0, dropout=0.2))
    # Weakened copy: whoever the server signs is a client.
    weak = SitePolicy(corrupt=0.0, dropout=0.2, adversary="curious", cohort="server")
    again = Federation(range(4), policy=weak)
    again.roster = Roster.sign(
        again.server.key,
        version=9,
        server=again.server.public,
        clients={number: identity.public for number, identity in again.identities.items()},
    )
    opened = surround(attacked, again, weak)
    assert np.array_equal(opened, attacked(range(4), federation=again).values[VICTIM])


# What stays open, and what a wire-tap sees.


@pytest.mark.claim("differing-cohorts")
def test_differencing_two_rounds_is_open() -> None:
    """Reported, not prevented: the sums over S and S without the victim differ by its vector.

    Over one state clients answer once; the server has changed the last digit of one parameter.
    """
    federation = Federation(range(6), policy=SitePolicy(corrupt=0.0, dropout=0.4))
    layout = SumLayout(bits=20, length=3, clients=6, largest=100)
    config = MaskingConfig(
        clients=6, bits=20, length=3, layout_hash=layout.hash, threshold=2, min_survivors=4,
        quorum=4, corrupt_clients=0,
    )  # fmt: skip
    nearly = np.array([1.0, 1.0, np.nextafter(1.0, 2.0)])
    one, other = (about(state_hash({"weights": weights})) for weights in (np.ones(3), nearly))
    values = {number: np.array([number, -number, 50 + number]) for number in range(6)}
    vectors = {number: layout.encode(value) for number, value in values.items()}
    whole = federation.sum(config, vectors, statement=one)
    dropped = {VICTIM: Kind.UPLOAD}
    without = federation.sum(config, vectors, statement=other, drops=dropped)
    difference = layout.decode(whole.words) - layout.decode(without.words)
    assert np.array_equal(difference, values[VICTIM])


def test_a_tap_on_every_line_sees_no_seed_share_or_vector(attacked: Any) -> None:
    attack = attacked()
    lines: list[bytes] = []
    secrets: list[bytes] = []
    receive: Callable[[MaskingClient, bytes], list[bytes]] = MaskingClient.receive
    attack.outgoing = attack.server.start()
    while attack.outgoing:
        replies = []
        for number, data in attack.outgoing:
            lines.append(data)
            replies += receive(attack.clients[number], data)
        lines += replies
        for client in attack.clients.values():
            current = client._round
            assert current is not None
            held = current._secrets.__dict__
            names = {"mask_element", "self_element"} & set(held)
            secrets += [held[name].to_bytes(32, "little") for name in names]
            for edge in current._neighbours.values():
                secrets += [edge.shared, *(edge.shares or ())]
        for reply in replies:
            attack.server.receive(reply)
        attack.outgoing = attack.server.close_step() if replies else []
    for number, value in attack.values.items():
        secrets.append(bytes(memoryview(attack.layout.encode(value).words).cast("B")[:12]))
        assert number in attack.clients
    assert len(set(secrets)) > 6 * 5 * 2
    tapped = b"|".join(lines)
    assert not any(secret in tapped for secret in secrets)


# Whether masked vectors of two inputs can be told apart.


def bits_of(attack: Any, value: int) -> Any:
    """Masked words of a constant input, as a server receives them: one row of bits per block."""
    client = attack.federation.identities[VICTIM].number
    attack.clients[client].load(
        attack.layout.encode(np.full(attack.config.length, value, dtype=np.int64))
    )
    attack.until(Kind.SURVIVORS)
    words = attack.uploads[client]
    bits = (words[:, None] >> np.arange(20, dtype=np.uint32)) & np.uint32(1)
    return bits.reshape(-1, 20 * 8).astype(np.float64)


def tell_apart(attacked: Any) -> tuple[float, float]:
    """AUC and p-value (Mann-Whitney) of a classifier on held-out masked vectors."""
    low, high = (
        bits_of(attacked(range(3), length=24_000, min_survivors=3, quorum=2), value)
        for value in (-100, 100)
    )
    data = np.concatenate([low, high])
    labels = np.repeat([0, 1], len(low))
    train = np.arange(len(data)) % 2 == 0
    model = LogisticRegression(max_iter=300).fit(data[train], labels[train])
    scores = model.decision_function(data[~train])
    held = labels[~train]
    test = mannwhitneyu(scores[held == 1], scores[held == 0], alternative="two-sided")
    return float(roc_auc_score(held, scores)), float(test.pvalue)


def test_masked_vectors_of_two_inputs_look_alike(
    attacked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, p_value = tell_apart(attacked)
    assert p_value > 1e-6
    # Weakened copy: masks that leave the top bits of the ring alone.
    apply = MaskExpander.apply

    def short(self: MaskExpander, target: Any, *, add: Any, subtract: Any) -> None:
        mask = np.zeros_like(target)
        apply(self, mask, add=add, subtract=subtract)
        target += mask & np.uint32(2**10 - 1)

    monkeypatch.setattr(MaskExpander, "apply", short)
    auc, p_value = tell_apart(attacked)
    assert auc > 0.9
    assert p_value < 1e-6
