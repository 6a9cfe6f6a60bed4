"""A masked sum whose server says what it wants, and knows what a server can know."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import unpack
from secure_fedrec.protection.keystream import MaskExpander
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    Kind,
    MaskingConfig,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.envelope import SERVER, Envelope, seal
from secure_fedrec.protection.masking.messages.keys import mask_private_key, open_box, self_key
from secure_fedrec.protection.masking.messages.shamir import combine, decode_element
from secure_fedrec.protection.masking.messages.sum_messages import (
    MerkleTree,
    Quorum,
    Reveal,
    Survivors,
    confirmed_hash,
)
from secure_fedrec.protection.masking.server.recovery import pair_keys_of
from tests.statements import about

Vector = npt.NDArray[np.int64]
STATES = itertools.count(1)
"""Every round has a public state of its own, unless it says otherwise."""


class Attack:
    """A round whose server can say what it wants."""

    def __init__(
        self,
        numbers: range = range(6),
        *,
        policy: SitePolicy | None = None,
        federation: Federation | None = None,
        length: int = 6,
        epoch: int = 0,
        **settings: Any,
    ) -> None:
        n = len(numbers)
        self.layout = SumLayout(bits=20, length=length, clients=n, largest=100)
        self.federation = federation or Federation(
            numbers, policy=policy or SitePolicy(corrupt=0.0, dropout=0.4)
        )
        defaults: dict[str, Any] = {
            "threshold": 2,
            "min_survivors": n // 2 + 1,
            "quorum": n // 2 + 1,
            "corrupt_clients": 0,
        }
        state = settings.pop("state", next(STATES).to_bytes(32, "little"))
        self.config = MaskingConfig(
            statement=about(state).digest,
            clients=n,
            bits=20,
            length=length,
            layout_hash=self.layout.hash,
            **defaults | settings,
        )
        rng = np.random.default_rng(11)
        self.values = {number: rng.integers(-100, 101, length) for number in numbers}
        self.server = self.federation.open_server(self.config, np.array(numbers), epoch=epoch)
        self.core = self.server._round
        self.clients = {
            number: self.federation.open_client(
                number, Expected(layout_hash=self.layout.hash, statement=about(state))
            )
            for number in numbers
        }
        for number, client in self.clients.items():
            client.load(self.layout.encode(self.values[number]))
        self.uploads: dict[int, Any] = {}
        self.outgoing: list[Any] = []

    def until(self, kind: Kind, *, beacon: bytes | None = None) -> None:
        """Play by the rules until messages of a kind wait for the clients; keep every upload."""
        self.outgoing = self.server.start()
        while self.outgoing[0].data[1] != kind:
            for number, data in self.outgoing:
                for reply in self.clients[number].receive(data):
                    if reply[1] == Kind.UPLOAD:
                        self.uploads[number] = self.words(reply)
                    self.server.receive(reply)
            due = beacon if self.outgoing[0].data[1] == Kind.SETUP else None
            if due is not None:
                for client in self.clients.values():
                    client.observe_beacon(self.core.public.epoch, due)
            self.outgoing = self.server.close_step(beacon=due)

    def words(self, upload: bytes) -> Any:
        payload = Envelope.decode(upload).payload
        return unpack(payload, self.config.length, self.config.bits).copy()

    @staticmethod
    def plausible(vector: Vector | None) -> bool:
        """Whether a vector can be a client's: every value within the largest one."""
        return vector is not None and bool(np.all(np.abs(vector) <= 100))

    def says(self, kind: Kind, head: bytes, payload: bytes = b"") -> bytes:
        key = self.federation.server.key
        return seal(key, self.core.public.context, kind, SERVER, head, payload)

    def survivors_for(self, number: int, survivors: set[int]) -> tuple[bytes, bytes]:
        """SURVIVORS for a client, and what it would sign."""
        chosen = sorted(survivors)
        tree = MerkleTree([self.core._upload_leaves[each] for each in chosen])
        marks = np.isin(self.core.public.cohort, chosen)
        path = tree.path(chosen.index(number)) if number in survivors else []
        live = self.core._topology.live(self.core.public.places[number], marks)
        near = self.core.public.cohort[live].tolist()
        signatures = {other: self.core._shared_signatures[other] for other in near}
        told = Survivors(survivors=marks, root=tree.root, shared_signatures=signatures, path=path)
        confirmed = confirmed_hash(
            survivors=marks,
            shared_hash=self.core._shared_hash,
            root=tree.root,
            seed=self.core._topology.seed,
        )
        return self.says(Kind.SURVIVORS, told.head(), told.payload()), confirmed

    def unmask_story(self, survivors: set[int], listeners: set[int]) -> dict[int, Reveal]:
        """R4 and R5 with some clients and one story; what they reveal (refusals give nothing)."""
        signatures: dict[int, bytes] = {}
        for number in sorted(listeners):
            message, _ = self.survivors_for(number, survivors)
            try:
                (confirmation,) = self.clients[number].receive(message)
            except ProtocolError:
                continue
            signatures[number] = Envelope.decode(confirmation).proof
        quorum = dict(sorted(signatures.items())[: self.config.quorum])
        message = self.says(Kind.QUORUM, Quorum(signatures=quorum).head())
        reveals = {}
        for number in signatures:
            try:
                (reveal,) = self.clients[number].receive(message)
            except ProtocolError:
                continue
            reveals[number] = self.opened(number, reveal)
        return reveals

    def opened(self, number: int, reveal: bytes) -> Reveal:
        key = self.core._client_keys[number]["reveal-box"]
        head = Envelope.decode(reveal).head
        return Reveal.decode(open_box(key, head, self.core.public.context.round_id))

    def mask_seed(self, reveals: Mapping[int, Reveal], owner: int) -> int | None:
        """The owner's mask seed, if the revealed shares give it."""
        shares = {
            self.core.public.places[number] + 1: decode_element(reveal.shares[owner])
            for number, reveal in reveals.items()
            if owner in reveal.shares
        }
        chosen = dict(list(shares.items())[: self.config.threshold])
        if len(chosen) < self.config.threshold:
            return None
        element = combine(chosen)
        # The public key tells a right seed from a wrong one.
        public = mask_private_key(element, self.core.public.context, owner).public_key()
        right = public.public_bytes_raw() == self.core._keys[owner].mask_public
        return element if right else None

    def open_vector(
        self, owner: int, *, mask_seed: int | None, self_seed: int | None
    ) -> Vector | None:
        """The clear vector of a client whose seeds are known; a guess where one is missing."""
        words, context = self.uploads[owner].copy(), self.core.public.context
        stated = self.core.stated
        subtract = [] if self_seed is None else [self_key(self_seed, context, owner, stated)]
        add: list[bytes] = []
        if mask_seed is not None:
            partners = {n: keys for n, keys in self.core._keys.items() if n != owner}
            keys = pair_keys_of(
                mask_seed, context, owner, stated=stated, partners=partners, seals={}
            )
            for partner, key in keys.items():
                (subtract if owner < partner else add).append(key)
        MaskExpander().apply(words, add=add, subtract=subtract)
        return self.layout.decode(words & np.uint32(2**20 - 1))


@pytest.fixture(scope="session")
def attacked() -> type[Any]:
    """Class of masked rounds under attack."""
    return Attack
