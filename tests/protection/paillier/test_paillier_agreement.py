"""Agreement on units: parties whose fixed-point settings differ refuse one another."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.paillier import (
    Authority,
    AverageStep,
    EncryptedVector,
    Encryptor,
    Identity,
    KeyHolding,
    PaillierSum,
    Party,
    Plan,
    PrivateKey,
    Role,
    SlotLayout,
    TableClient,
    TableServer,
    UploadingClient,
    UploadingServer,
)

# Ring, clip in ring units and packing are the same; the words of one are half the reals of the
# other. Only the fraction bits can tell.
OURS = FixedPoint(bits=32, fraction_bits=16, clip=100.0)
THEIRS = FixedPoint(bits=32, fraction_bits=17, clip=50.0)
ROUND = 1

CODEC_CHANGES: dict[str, FixedPoint] = {
    "bits": replace(OURS, bits=33),
    "fraction_bits": THEIRS,
    "clip": replace(OURS, clip=99.0),
}
LAYOUT_CHANGES: dict[str, int] = {"length": 5, "budget": 4}


def variants(layout: SlotLayout) -> dict[str, SlotLayout]:
    """The layout with one thing changed, by the name of what changed."""
    changed = {name: replace(layout, codec=codec) for name, codec in CODEC_CHANGES.items()}
    for name, value in LAYOUT_CHANGES.items():
        changed[name] = replace(layout, **{name: value})  # type: ignore[arg-type]
    changed["whole_ring"] = replace(layout, whole_ring=not layout.whole_ring)
    return changed


def base(*, masked: bool = False, codec: FixedPoint = OURS) -> SlotLayout:
    return SlotLayout(codec=codec, length=4, budget=3, whole_ring=masked)


def test_every_field_of_a_layout_and_its_codec_is_varied_here() -> None:
    assert OURS.largest == THEIRS.largest
    named = {field.name for field in fields(SlotLayout)} - {"codec"}
    named |= {field.name for field in fields(FixedPoint)}
    named -= {"beyond"}  # what a client does before it encodes: words mean the same
    assert set(variants(base())) == named


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", variants(base()))
def test_every_field_of_a_layout_and_its_codec_changes_its_bytes(name: str, masked: bool) -> None:
    layout = base(masked=masked)
    other = variants(layout)[name]
    assert other.to_bytes() != layout.to_bytes()
    assert len(other.to_bytes()) == len(layout.to_bytes()) == 24


@pytest.fixture
def authority(short_key: PrivateKey, authority_plan: Callable[..., Plan]) -> Callable[..., Plan]:
    """An agreement of three clients and an authority on one layout."""

    def build(layout: SlotLayout) -> Plan:
        plan = authority_plan(short_key.public, masked=layout.whole_ring)
        return replace(plan, layouts=(layout,))

    return build


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", variants(base()))
def test_every_field_of_a_layout_and_its_codec_changes_the_context(
    authority: Callable[..., Plan], name: str, masked: bool
) -> None:
    layout = base(masked=masked)
    assert authority(variants(layout)[name]).context != authority(layout).context


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", sorted({*variants(base())} - {"budget"}))
def test_every_field_of_a_table_and_its_codec_changes_the_context(
    authority: Callable[..., Plan], name: str, masked: bool
) -> None:
    # The budget of a table is always 1. Its kind of slots is bound by its own bytes alone.
    table = replace(base(masked=masked), budget=1)
    plan = replace(authority(base()), holding=KeyHolding(holder="clients"), table=table)
    assert replace(plan, table=variants(table)[name]).context != plan.context


@dataclass
class Side:
    """All halves of one round under one plan."""

    plan: Plan
    private: PrivateKey
    identities: dict[Party, Identity]

    def __post_init__(self) -> None:
        self.codec = self.plan.layouts[0].codec
        encryptor = Encryptor(self.plan.key)
        self.clients = [
            UploadingClient(self.plan, self.identities[Party(Role.CLIENT, n)], encryptor, ROUND)
            for n in self.plan.clients
        ]
        self.server = UploadingServer(self.plan, self.identities[Party(Role.SERVER)], ROUND)
        self.authority = Authority(self.plan, self.identities[Party(Role.AUTHORITY)], self.private)


def refused(take: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(ProtocolError, match="belongs to another agreement"):
        take(data)


def exchange_keys(ours: Side, theirs: Side) -> None:
    """Each side runs its own key exchange, and is first shown every message of the other."""
    keys = [[client.advertise() for client in side.clients] for side in (ours, theirs)]
    for side, own, foreign in ((ours, keys[0], keys[1]), (theirs, keys[1], keys[0])):
        for key in foreign:
            refused(side.server.receive, key)
        for key in own:
            side.server.receive(key)
    bundles = [side.server.mask_keys() for side in (ours, theirs)]
    for side, own_keys, foreign_keys in (
        (ours, bundles[0], bundles[1]),
        (theirs, bundles[1], bundles[0]),
    ):
        for client in side.clients:
            refused(client.receive_keys, foreign_keys)
            client.receive_keys(own_keys)


@pytest.mark.claim("paillier-settings-agree")
@pytest.mark.parametrize("masked", [False, True])
def test_parties_with_other_fraction_bits_refuse_every_message_of_one_another(
    authority: Callable[..., Plan],
    short_key: PrivateKey,
    identities: dict[Party, Identity],
    masked: bool,
) -> None:
    ours, theirs = (
        Side(authority(base(masked=masked, codec=codec)), short_key, identities)
        for codec in (OURS, THEIRS)
    )
    if masked:
        exchange_keys(ours, theirs)
    values = np.array([1.5, -2.0, 0.25, 50.0])
    sides = (ours, theirs)
    uploads = [
        [client.upload([side.codec.encode(values)]) for client in side.clients] for side in sides
    ]
    for side, own, foreign in ((ours, uploads[0], uploads[1]), (theirs, uploads[1], uploads[0])):
        for upload in foreign:
            refused(side.server.receive, upload)
        for upload in own:
            side.server.receive(upload)
    sums = [side.server.sums() for side in sides]
    refused(partial(ours.authority.answer, round_=ROUND), sums[1])
    refused(partial(theirs.authority.answer, round_=ROUND), sums[0])
    answers = [side.authority.answer(total, ROUND) for side, total in zip(sides, sums, strict=True)]
    refused(ours.server.receive, answers[1])
    refused(theirs.server.receive, answers[0])
    for side, answer in zip(sides, answers, strict=True):  # the refusals changed nothing
        side.server.receive(answer)
        (found,) = side.server.result()
        assert side.codec.decode(found).tolist() == (3 * values).tolist()


def test_holders_of_one_key_with_other_fraction_bits_refuse_one_another(
    table_plan: Plan, short_key: PrivateKey, identities: dict[Party, Identity]
) -> None:
    counts = table_plan.layouts[1]
    plans = []
    for codec in (OURS, THEIRS):
        values, table = (
            SlotLayout(codec=codec, length=12, budget=budget) for budget in (counts.budget, 1)
        )
        plans.append(replace(table_plan, layouts=(values, counts), table=table))
    updater = TableClient(
        plans[0],
        identities[Party(Role.CLIENT, table_plan.clients[0])],
        short_key,
        Encryptor(table_plan.key),
        AverageStep(codec=OURS, counts=counts.codec, width=2),
    )
    first = updater.initialise(OURS.encode(np.ones(12)))
    assert first is not None
    same, other = (TableServer(plan, identities[Party(Role.SERVER)]) for plan in plans)
    refused(other.receive, first)
    same.receive(first)


def test_a_vector_in_other_units_is_neither_read_nor_added(short_key: PrivateKey) -> None:
    ours, theirs = (
        PaillierSum(n_clients=3, length=4, codec=codec, key=short_key.public)
        for codec in (OURS, THEIRS)
    )
    vector = theirs.encrypt(THEIRS.encode(np.ones(4)))
    with pytest.raises(WireError, match="packed in another layout"):
        EncryptedVector.from_bytes(vector.to_bytes(), key=short_key.public, layout=ours.layout)
    with pytest.raises(ProtocolError, match="another layout"):
        ours.total([vector])
    with pytest.raises(ProtocolError, match="another layout"):
        ours.decrypt(vector, short_key)


def test_vectors_of_the_first_format_version_are_refused(short_key: PrivateKey) -> None:
    ours = PaillierSum(n_clients=3, length=4, codec=OURS, key=short_key.public)
    data = bytearray(ours.encrypt(OURS.encode(np.ones(4))).to_bytes())
    assert data[4] == 2
    data[4] = 1
    with pytest.raises(WireError, match="unknown format or version"):
        EncryptedVector.from_bytes(bytes(data), key=short_key.public, layout=ours.layout)
