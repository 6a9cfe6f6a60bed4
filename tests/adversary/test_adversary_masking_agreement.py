"""A server that tells stories about who survived: each opens a weakened copy, and not ours.

The adversary is the server with all its keys and state. What it wants is the clear vector of one
honest client, the victim.
"""

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking import Expected, Federation, Kind, MaskingClient, SitePolicy
from secure_fedrec.protection.masking.client.secrets import Neighbour
from secure_fedrec.protection.masking.client.steps import ClientRound
from secure_fedrec.protection.masking.messages.keys import self_key
from secure_fedrec.protection.masking.messages.shamir import decode_element
from secure_fedrec.protection.masking.messages.topology import ShareKind, Topology
from secure_fedrec.protection.masking.server.recovery import pair_keys_of
from secure_fedrec.protection.session.journal import MemoryJournal

VICTIM = 2
Vector = npt.NDArray[np.int64]


# Two stories about the victim: one to get its self-mask seed, one to get its mask seed.


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weakened copy: answers every unmasking, keeps its shares, has no memory of an answer."""

    def give_share(self: Neighbour, due: ShareKind | None) -> bytes | None:
        return None if self.shares is None else self.shares[1 if due == "self" else 0]

    monkeypatch.setattr(Neighbour, "give_share", give_share)
    monkeypatch.setattr(ClientRound, "wipe", lambda _: None)
    monkeypatch.setattr(MaskingClient, "_require_awaited", lambda *_: None)
    monkeypatch.setattr(MaskingClient, "_stored_reveal", lambda *_: None)

    class NoJournal:
        begin = staticmethod(lambda *_, **__: 1)
        see = upload = reveal = staticmethod(lambda *_: None)

    original = Federation.open_client

    def open_client(self: Federation, number: int, expected: Expected) -> MaskingClient:
        client = original(self, number, expected)
        client._journal = NoJournal()  # type: ignore[assignment]
        return client

    monkeypatch.setattr(Federation, "open_client", open_client)
    monkeypatch.setattr("secure_fedrec.protection.masking.client.half._AFTER", _Anything())


class _Anything(dict[Any, Any]):
    """Any state may follow any state."""

    def __missing__(self, key: Any) -> Any:
        return key


def ask_for_both(attack: Any) -> Any:
    """First everybody survives, then everybody but the victim."""
    attack.until(Kind.SURVIVORS)
    everybody = set(attack.clients)
    first = attack.unmask_story(everybody, everybody)
    second = attack.unmask_story(everybody - {VICTIM}, everybody - {VICTIM})
    self_seed = decode_element(first[VICTIM].self_seed)
    mask_seed = attack.mask_seed(second, VICTIM)
    return attack.open_vector(VICTIM, mask_seed=mask_seed, self_seed=self_seed)


def test_both_shares_request(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = attacked()
    assert not attacked.plausible(ask_for_both(ours))
    forgetful(monkeypatch)
    weak = attacked()
    assert np.array_equal(ask_for_both(weak), weak.values[VICTIM])


def split_the_views(attack: Any) -> Any:
    """Half of the clients, and the victim, hear one story; the others hear the other."""
    attack.until(Kind.SURVIVORS)
    everybody = set(attack.clients)
    told_dropped = {3, 4, 5}
    first = attack.unmask_story(everybody, everybody - told_dropped)
    second = attack.unmask_story(everybody - {VICTIM}, told_dropped)
    self_seed = decode_element(first[VICTIM].self_seed) if VICTIM in first else None
    mask_seed = attack.mask_seed(second, VICTIM)
    return attack.open_vector(VICTIM, mask_seed=mask_seed, self_seed=self_seed)


def test_split_survivor_views(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = attacked()
    assert not attacked.plausible(split_the_views(ours))
    # Weakened copy: trusts the server's word about who survived, as protocols without R4 do.
    monkeypatch.setattr(ClientRound, "take_quorum", lambda *_: None)
    weak = attacked()
    assert np.array_equal(split_the_views(weak), weak.values[VICTIM])


def test_a_quorum_cannot_be_had_for_two_sets() -> None:
    """Exhaustive over who hears which story: never two quorums among honest clients."""
    for n in range(3, 12):
        for corrupt in range(n - 1):
            quorum = (n + corrupt) // 2 + 1
            honest = n - corrupt
            for first in range(honest + 1):
                signed = first + corrupt, honest - first + corrupt
                assert min(signed) < quorum


# Restored snapshots: the same round unmasked again.


def replay_unmasking(attack: Any) -> Any:
    """Crash the clients after their reveal, restore them from a snapshot, tell another story."""
    attack.until(Kind.SURVIVORS)
    everybody = set(attack.clients)
    memo = {id(journal): journal for journal in attack.federation.journals.values()}
    memo[id(attack.federation.roster)] = attack.federation.roster
    snapshot = copy.deepcopy(attack.clients, memo)
    first = attack.unmask_story(everybody, everybody)
    attack.clients = snapshot
    second = attack.unmask_story(everybody - {VICTIM}, everybody - {VICTIM})
    mask_seed = attack.mask_seed(second, VICTIM)
    self_seed = decode_element(first[VICTIM].self_seed)
    return attack.open_vector(VICTIM, mask_seed=mask_seed, self_seed=self_seed)


def test_replayed_unmasking(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = attacked()
    assert not attacked.plausible(replay_unmasking(ours))
    # Weakened copy: a journal that forgets what was revealed.
    monkeypatch.setattr(MemoryJournal, "reveal", lambda *_: None)
    weak = attacked()
    assert np.array_equal(replay_unmasking(weak), weak.values[VICTIM])


# A client is declared dropped, and its upload is there all the same.


def declare_dropped(attack: Any) -> Any:
    attack.until(Kind.SURVIVORS)
    others = set(attack.clients) - {VICTIM}
    reveals = attack.unmask_story(others, others)
    assert len(reveals) == len(others)  # they cannot know better
    return attack.open_vector(VICTIM, mask_seed=attack.mask_seed(reveals, VICTIM), self_seed=None)


def test_late_upload_after_being_declared_dropped(
    attacked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = attacked()
    opened = declare_dropped(ours)
    assert opened is not None
    assert not attacked.plausible(opened)  # the pairwise masks are off, the self mask holds
    # Weakened copy: no self mask, the first attempt of Bonawitz et al., section 4.
    apply = MaskExpander.apply

    def pairwise_only(self: MaskExpander, target: Any, *, add: Any, subtract: Any) -> None:
        apply(self, target, add=add[1:], subtract=subtract)

    with monkeypatch.context() as patch:
        patch.setattr(MaskExpander, "apply", pairwise_only)
        weak = attacked()
        weak.until(Kind.SURVIVORS)
    others = set(weak.clients) - {VICTIM}
    reveals = weak.unmask_story(others, others)
    seed = weak.mask_seed(reveals, VICTIM)
    opened = weak.open_vector(VICTIM, mask_seed=seed, self_seed=None)
    assert np.array_equal(opened, weak.values[VICTIM])


# Small and cut survivor sets.


def isolate_two(attack: Any) -> Any:
    """Declare everybody dropped but the victim and an accomplice whose vector is known."""
    attack.until(Kind.SURVIVORS)
    pair = {VICTIM, 4}
    reveals = attack.unmask_story(pair, pair)
    if set(reveals) != pair:
        return None
    context = attack.core.public.context
    total = sum((attack.uploads[number] for number in pair), np.zeros(6, np.uint32))
    subtract = [
        self_key(decode_element(reveal.self_seed), context, number, attack.core.stated)
        for number, reveal in reveals.items()
    ]
    add: list[bytes] = []
    for gone in set(attack.clients) - pair:
        element = attack.mask_seed(reveals, gone)
        assert element is not None
        partners = {number: attack.core._keys[number] for number in pair}
        keys = pair_keys_of(
            element, context, gone, stated=attack.core.stated, partners=partners, seals={}
        )
        for number, key in keys.items():
            (subtract if number < gone else add).append(key)
    MaskExpander().apply(total, add=add, subtract=subtract)
    sums = attack.layout.decode(total & np.uint32(2**20 - 1))
    return np.asarray(sums - attack.values[4])


def test_below_floor_survivor_sets(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isolate_two(attacked()) is None
    # Weakened copy: no minimum of survivors, and so no quorum either.
    monkeypatch.setattr(Topology, "require_survivors", lambda *_: None)
    monkeypatch.setattr(
        Topology, "require_live", lambda self, place, _, marks: self.live(place, marks)
    )
    monkeypatch.setattr(ClientRound, "take_quorum", lambda *_: None)
    weak = attacked()
    assert np.array_equal(isolate_two(weak), weak.values[VICTIM])


def cut_the_graph(attack: Any, beacon: bytes) -> tuple[set[int], Any]:
    """Drop two runs of degree/2 places of the ring and add up one of the two arcs between them."""
    attack.until(Kind.SURVIVORS, beacon=beacon)
    order = attack.core._topology._order
    assert order is not None
    ring = order.tolist()
    dropped = {ring[0], ring[1], ring[6], ring[7]}
    arc = set(ring[2:6])
    survivors = set(ring) - dropped
    reveals = attack.unmask_story(survivors, survivors)
    if set(reveals) != survivors:
        return arc, None
    context, core = attack.core.public.context, attack.core
    total = sum((attack.uploads[number] for number in arc), np.zeros(6, np.uint32))
    subtract = [
        self_key(decode_element(reveals[number].self_seed), context, number, core.stated)
        for number in arc
    ]
    add: list[bytes] = []
    for gone in dropped:
        near = set(core._topology.neighbours(gone).tolist())
        element = attack.mask_seed(reveals, gone)
        assert element is not None
        partners = {number: core._keys[number] for number in near & arc}
        for number, key in pair_keys_of(
            element, context, gone, stated=core.stated, partners=partners, seals={}
        ).items():
            (subtract if number < gone else add).append(key)
    MaskExpander().apply(total, add=add, subtract=subtract)
    return arc, attack.layout.decode(total & np.uint32(2**20 - 1))


def test_graph_cut(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client keeps at least t live neighbours; only the window check sees the cut."""
    monkeypatch.setattr(SitePolicy, "require", lambda *_: None)  # a real graph has more clients
    settings: dict[str, Any] = {
        "degree": 4,
        "threshold": 2,
        "min_survivors": 16,
        "quorum": 11,
        "window_least": 1,
        "epoch": 1,
    }
    ours = attacked(range(20), **settings)
    arc, opened = cut_the_graph(ours, b"b" * 32)
    assert opened is None
    reasons = {client.abort_reason for client in ours.clients.values()}
    assert any("the graph could be cut" in (reason or "") for reason in reasons)
    # Weakened copy: thresholds and minimum are checked, windows are not.
    monkeypatch.setattr(
        "secure_fedrec.protection.masking.messages.topology.windows_hold", lambda *_: True
    )
    weak = attacked(range(20), **settings)
    arc, opened = cut_the_graph(weak, b"b" * 32)
    assert np.array_equal(opened, sum(weak.values[number] for number in arc))
