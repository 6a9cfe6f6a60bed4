"""A server that tells clients of different sharers: each opens a weakened copy, and not ours.

A client puts on a mask for each neighbour that it was told had shared. A server that says of most
neighbours that they never did so decides who masks with whom: it tells its victims of few, declares
those dropped, and has the others take off the victims' self masks. Whoever was told otherwise does
not sign the survivors, and need not: the others are a quorum.

Every client is unmodified and real. The weakened copy gives the share of a self mask whenever its
owner survives, whatever it was told of the sharers.
"""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking import (
    Kind,
    MaskingClient,
    MaskingConfig,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.envelope import Envelope
from secure_fedrec.protection.masking.messages.key_messages import Boxes
from secure_fedrec.protection.masking.messages.keys import self_key
from secure_fedrec.protection.masking.messages.shamir import combine, decode_element
from secure_fedrec.protection.masking.messages.sum_messages import (
    MerkleTree,
    Quorum,
    Reveal,
    Survivors,
    Upload,
    confirmed_hash,
    hash_of_sharers,
    leaf_hash,
)
from secure_fedrec.protection.masking.server.recovery import pair_keys_of

BEACON = b"b" * 32
Reveals = Mapping[int, Reveal]


def fork(client: MaskingClient) -> MaskingClient:
    """A client as it stands now, so that one round serves several endings."""
    twin = copy.copy(client)
    twin._journal = copy.copy(client._journal)
    assert client._round is not None
    current = twin._round = copy.copy(client._round)
    current._secrets = copy.copy(current._secrets)
    current._server_keys = dict(current._server_keys)
    current._neighbours = {n: copy.copy(each) for n, each in current._neighbours.items()}
    return twin


class SplitViews:
    """The server from BOXES on; clients are numbered by their place in the cohort.

    Args:
        attack: a round in which BOXES are due.
        views: what some clients are told of the sharers (the others: the truth).
        dropped: who is declared dropped to those others.
        corrupt: clients that tell the server all they know.
        helpers: clients whose reveals are of use; besides them and the victims only so many clients
            hear anything more as make a quorum.
    """

    def __init__(
        self,
        attack: Any,
        *,
        views: Mapping[int, Collection[int]],
        dropped: Collection[int],
        corrupt: Collection[int] = (),
        helpers: Collection[int],
    ) -> None:
        self.attack, self.core = attack, attack.core
        everybody = range(attack.config.clients)
        self.helpers = [number for number in helpers if number not in corrupt]
        sign = self._signers(set(everybody) - {*views, *dropped})
        others = [n for n in sign if n not in helpers]
        missing = attack.config.quorum - len(sign) + len(others)
        signing = [*helpers, *others[: max(0, missing)]]
        self.clients = {number: fork(attack.clients[number]) for number in {*views, *signing}}
        self.views = {number: set(views.get(number, everybody)) for number in everybody}
        self.dropped, self.corrupt = set(dropped), set(corrupt)
        self.survivors = sorted(set(everybody) - self.dropped)
        self.divergent = set(views)
        self.uploads: dict[int, Any] = {}
        self._tell_sharers()
        self._agree()

    def near(self, number: int, members: Iterable[int]) -> list[int]:
        """Neighbours of a client among some."""
        return self.core._topology.live(number, self._marks(members)).tolist()  # type: ignore[no-any-return]

    def _signers(self, members: Iterable[int]) -> list[int]:
        """Those of some survivors that sign."""
        return np.flatnonzero(self.core._topology.signers(self._marks(members))).tolist()

    def _marks(self, members: Iterable[int]) -> BoolArray:
        return np.isin(np.arange(self.attack.config.clients), list(members))

    def _tell_sharers(self) -> None:
        # A client sees no leaf but its own.
        self.leaves = dict.fromkeys(range(self.attack.config.clients), bytes(32))
        self.signatures: dict[int, bytes] = {}
        shares = self.core._shares
        for number, client in self.clients.items():
            live = self.near(number, self.views[number])
            told = Boxes(
                shared=self._marks(self.views[number]),
                records={other: shares[other].records[number] for other in live},
                seals={
                    other: shares[other].seals[number]
                    for other in live
                    if number in shares[other].seals
                },
            )
            (upload,) = client.receive(self.attack.says(Kind.BOXES, told.head(), told.payload()))
            self.uploads[number] = self.attack.words(upload)
            envelope = Envelope.decode(upload)
            self.leaves[number] = leaf_hash(envelope.proven)
            self.signatures[number] = Upload.decode(envelope.head).shared_signature

    def _agree(self) -> None:
        """All but those that were told otherwise sign one set of survivors."""
        tree = MerkleTree([self.leaves[number] for number in self.survivors])
        marks = self._marks(self.survivors)
        self.confirmed = confirmed_hash(
            survivors=marks,
            shared_hash=hash_of_sharers(self._marks(range(len(marks))), self.core.stated),
            root=tree.root,
            seed=self.core._topology.seed,
        )
        confirmed: dict[int, bytes] = {}
        for index, number in enumerate(self.survivors):
            if number in self.divergent or number not in self.clients:
                continue
            near = self.near(number, self.survivors)
            told = Survivors(
                survivors=marks,
                root=tree.root,
                shared_signatures={
                    other: self.signatures[other] for other in near if other in self.signatures
                },
                path=tree.path(index),
            )
            for reply in self.clients[number].receive(
                self.attack.says(Kind.SURVIVORS, told.head(), told.payload())
            ):
                envelope = Envelope.decode(reply)
                assert envelope.head == self.confirmed
                confirmed[number] = envelope.proof
        quorum = dict(sorted(confirmed.items())[: self.attack.config.quorum])
        self.signers = list(confirmed)
        self.quorum = self.attack.says(Kind.QUORUM, Quorum(signatures=quorum).head())

    def reveals(self, helpers: Iterable[int]) -> Reveals:
        """What some of the signers reveal; they can be asked again."""
        found = {}
        for number in helpers:
            (reveal,) = fork(self.clients[number]).receive(self.quorum)
            found[number] = self.attack.opened(number, reveal)
        return found

    def seed(self, reveals: Reveals, owner: int, *, mask: bool) -> int | None:
        """One of a client's two seeds: its own word, a colluder's, or from t shares."""
        if owner in self.corrupt:
            secrets = self.attack.clients[owner]._round._secrets
            return int(secrets.mask_element if mask else secrets.self_element)
        if not mask and owner in reveals:
            return decode_element(reveals[owner].self_seed)
        given = {number: reveal.shares.get(owner) for number, reveal in reveals.items()}
        if mask != (owner in self.dropped):
            given = {}  # shares of the other secret
        for number in self.near(owner, self.corrupt):
            given[number] = self.clients[number]._round._neighbours[owner].shares[1 - mask]  # type: ignore[union-attr,index]
        shares = {number + 1: decode_element(share) for number, share in given.items() if share}
        threshold = self.attack.config.threshold
        if len(shares) < threshold:
            return None
        return combine(dict(list(shares.items())[:threshold]))

    def open(self, group: Sequence[int], reveals: Reveals) -> Any:
        """The sum of some clients' vectors; None if a seed is missing."""
        context, core = self.core.public.context, self.core
        total = np.zeros_like(self.uploads[group[0]])
        add: list[bytes] = []
        subtract: list[bytes] = []
        partners: dict[int, list[int]] = {}
        for number in group:
            total += self.uploads[number]
            own = self.seed(reveals, number, mask=False)
            if own is None:
                return None
            subtract.append(self_key(own, context, number, core.stated))
            for other in self.near(number, self.views[number] - set(group)):
                partners.setdefault(other, []).append(number)
        for owner, members in partners.items():
            element = self.seed(reveals, owner, mask=True)
            assert element is not None, f"the cut leaves the masks with client {owner}"
            keys = pair_keys_of(
                element,
                context,
                owner,
                stated=core.stated,
                partners={number: core._keys[number] for number in members},
                seals={
                    number: core._shares[min(number, owner)].seals[max(number, owner)]
                    for number in members
                    if core._keys[owner].mask_kem
                },
            )
            for number, key in keys.items():
                (subtract if number < owner else add).append(key)
        MaskExpander().apply(total, add=add, subtract=subtract)
        return self.attack.layout.decode(total & np.uint32(2**20 - 1))


def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weakened copy: whose self mask is due is decided by who survives, as in version 1."""
    monkeypatch.setattr(
        "secure_fedrec.protection.masking.client.steps.share_due",
        lambda *, survives, same_sharers: "self" if survives else "mask",
    )


def fails_on_ours_and_opens_the_weakened_copy(
    cut: SplitViews, group: Sequence[int], patch: pytest.MonkeyPatch
) -> None:
    config, values = cut.attack.config, cut.attack.values
    assert len(cut.signers) >= config.quorum
    assert len(cut.survivors) >= config.min_survivors
    ours = cut.reveals(cut.helpers)
    for number, reveal in ours.items():
        # All is given but what the victims' self masks need.
        assert set(reveal.shares) == set(
            cut.near(number, {*cut.clients, *cut.dropped} - cut.divergent)
        )
    assert set(group) & cut.divergent
    assert all(cut.seed(ours, number, mask=False) is None for number in cut.divergent)
    assert cut.open(group, ours) is None
    with patch.context() as weakened:
        trusting(weakened)
        close = {n for victim in cut.divergent for n in cut.near(victim, cut.helpers)}
        weak = {**ours, **cut.reveals(close)}
    assert np.array_equal(cut.open(group, weak), sum(values[number] for number in group))


def stock(attacked: Any, key_agreement: str) -> Any:
    """``for_cohort(200, corrupt=.05, dropout=.3)`` as it ships, its policy too: BOXES are due."""
    layout = SumLayout(bits=20, length=6, clients=200, largest=100)
    config = MaskingConfig.for_cohort(
        200, bits=20, length=6, layout_hash=layout.hash, corrupt=0.05, dropout=0.3
    )
    settings = {
        name: getattr(config, name)
        for name in (
            "degree", "threshold", "min_survivors", "quorum", "committee", "corrupt_clients",
            "window_least",
        )
    }  # fmt: skip
    attack = attacked(
        range(200),
        policy=SitePolicy(corrupt=0.05, dropout=0.3),
        epoch=1,
        key_agreement=key_agreement,
        **settings,
    )
    attack.until(Kind.BOXES, beacon=BEACON)
    return attack


def around(attack: Any, group: int, wall: int) -> tuple[list[int], list[int], set[int], list[int]]:
    """Clients of consecutive places, as many others between theirs, those near, and helpers.

    Returns:
        the group; ``wall`` clients around it that all of the group have as neighbours; everybody in
        reach of the group; the signers that are near enough to help.
    """
    half, ring = attack.config.degree // 2, np.roll(attack.core._topology._order, 100).tolist()
    start = 100
    members = ring[start : start + group]
    before = ring[start - 2 * (wall // 2) : start : 2]
    behind = ring[start + group + 1 : start + group + 2 * (wall - wall // 2) : 2]
    chosen = [*before, *behind]
    assert len(chosen) == wall
    reach = set(ring[start - half : start + group + half]) - set(members)
    helpers = [n for n in ring[start - 60 : start + group + 60] if n not in {*members, *chosen}]
    return members, chosen, reach, helpers


@pytest.fixture(scope="module")
def stocked(attacked: Any) -> Any:
    return stock(attacked, "x25519")


def single_victim(attack: Any, patch: pytest.MonkeyPatch) -> None:
    """Nobody works with the server: the victim is told of t neighbours, which are then dropped."""
    config = attack.config
    assert 2 * config.threshold <= config.degree
    (victim,), wall, reach, helpers = around(attack, 1, config.threshold)
    view = set(range(200)) - (reach - set(wall))
    cut = SplitViews(attack, views={victim: view}, dropped=wall, helpers=helpers)
    fails_on_ours_and_opens_the_weakened_copy(cut, [victim], patch)


@pytest.mark.claim("masking-one-set-of-sharers")
def test_single_victim_told_of_few_sharers(stocked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    single_victim(stocked, monkeypatch)


@pytest.mark.claim("masking-one-set-of-sharers")
def test_single_victim_with_the_hybrid_key_agreement(
    attacked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    single_victim(stock(attacked, "x25519+mlkem768"), monkeypatch)


@pytest.mark.claim("masking-one-set-of-sharers")
def test_group_told_of_itself_and_its_walls(stocked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five clients that mask with each other and with clients that are then dropped: their sum."""
    group, wall, reach, helpers = around(stocked, 5, stocked.config.threshold - 4)
    view = set(range(200)) - (reach - set(wall))
    cut = SplitViews(stocked, views=dict.fromkeys(group, view), dropped=wall, helpers=helpers)
    fails_on_ours_and_opens_the_weakened_copy(cut, group, monkeypatch)


@pytest.mark.claim("masking-one-set-of-sharers")
def test_mixed_cut(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody drops out, and clients that hold the common view sit inside the group.

    On the ring: C BB AAAAAA BB C O..O, with C corrupt, A told the truth, B told that their
    neighbours among O never shared. So A and B mask with A, B and C alone, and A's reveals serve
    the sum over both as well as O's do. 2 t > k + corrupt neighbours holds for every client.
    """
    monkeypatch.setattr(SitePolicy, "require", lambda *_: None)  # a real graph has more clients
    n, degree, threshold = 24, 6, 4
    attack = attacked(
        range(n),
        degree=degree,
        threshold=threshold,
        min_survivors=20,
        quorum=14,
        corrupt_clients=2,
        window_least=2,
        epoch=1,
    )
    attack.until(Kind.BOXES, beacon=BEACON)
    ring = attack.core._topology._order.tolist()
    roles = "C" + "BB" + "AAAAAA" + "BB" + "C" + "O" * 12
    at = {role: {ring[place] for place in range(n) if roles[place] == role} for role in "ABCO"}
    everybody, near = set(range(n)), attack.core._topology.neighbours
    corrupt = [len(at["C"] & set(near(number).tolist())) for number in everybody]
    assert 2 * threshold > degree + max(corrupt)
    views = {number: everybody - (at["O"] & set(near(number).tolist())) for number in at["B"]}
    assert min(map(len, views.values())) >= attack.config.min_survivors
    helpers = everybody - at["B"]
    cut = SplitViews(attack, views=views, dropped=(), corrupt=at["C"], helpers=helpers)
    group = sorted(at["A"] | at["B"])
    assert len(group) + len(at["C"]) < attack.config.min_survivors
    fails_on_ours_and_opens_the_weakened_copy(cut, group, monkeypatch)


# On the complete graph a second rule keeps a view of few sharers from being of use: whoever is told
# of sharers is told of min_survivors at least, and any two such sets share an honest client.


def few_sharers(attacked: Any, *, least: int) -> SplitViews:
    """Nobody works with the server: the victim is told of three others, which are then dropped."""
    attack = attacked(range(9), threshold=3, min_survivors=least, quorum=5)
    attack.until(Kind.BOXES)
    wall = (1, 2, 3)
    return SplitViews(attack, views={0: {0, *wall}}, dropped=wall, helpers=range(4, 9))


@pytest.mark.claim("masking-least-cohort")
def test_few_sharers_on_the_complete_graph(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"masking\.min_survivors.*must be between 5 and 9"):
        few_sharers(attacked, least=4)
    with monkeypatch.context() as weakened:
        trusting(weakened)
        with pytest.raises(ProtocolError, match="BOXES: 4 clients; a sum needs 5"):
            few_sharers(attacked, least=5)
    # Weakened copy: sums may be over fewer than a quorum. Then the signed sharers still hold.
    monkeypatch.setattr(MaskingConfig, "_check_counts", lambda _: None)
    cut = few_sharers(attacked, least=4)
    fails_on_ours_and_opens_the_weakened_copy(cut, [0], monkeypatch)
