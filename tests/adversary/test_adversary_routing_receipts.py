"""Mixes that replace cells are found out by the senders; what they put in besides is not.

A box authenticates nobody, so whoever runs a mix can keep a cell and forward one of its own. No
receiver can tell. Its sender looks for it in the receiver's one list for all, and ends the round.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import BagShape
from secure_fedrec.protection.bags import LayeredBags
from secure_fedrec.protection.bags.carried_out import carried_out as bags_carried_out
from secure_fedrec.protection.base.carried_out import carried_out
from secure_fedrec.protection.denoisers.config import DenoisersConfig
from secure_fedrec.protection.denoisers.embedded_mixes import RoutedDenoisers
from secure_fedrec.protection.denoisers.hosted import HostedDenoisers
from secure_fedrec.protection.routing import (
    Directory,
    RoutingConfig,
    SentCells,
    address_of,
    equivocates,
    receipt_digest,
    send,
)
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock, SetBlock
from secure_fedrec.wire import Messages, Meter, Parties, Step, Wire, encode_rows
from tests.mix_network import MixNetwork, changed_by_last_mix, own_cell

SENDERS, CELLS, BATCH = 5, 3, 7
CODEC = FixedPoint()
MISSED = "a cell of this sender was not received as it was sent"


class Federation:
    """Senders, mixes and two receivers; a message of each sender to the first of them."""

    def __init__(self) -> None:
        config = RoutingConfig(layers=2, cell_bytes=512, min_batch=2)
        self.network = MixNetwork.start(config, recipients=2, epoch=3)
        self.signers = [key.public_key().public_bytes_raw() for key in self.network.identities]
        self.sent = [SentCells(self.network.directory, batch=BATCH) for _ in range(SENDERS)]
        self.cells: list[bytes] = []
        for number, sent in enumerate(self.sent):
            for recipient in range(2):
                messages = [f"vote {number}".encode()] if recipient == 0 else []
                self.cells += send(
                    messages,
                    recipient=recipient,
                    cells=CELLS,
                    directory=self.network.directory,
                    sent=sent,
                )

    def deliver(self, cells: list[bytes]) -> list[bytes]:
        found = [self.network.ends[address_of(cell).node].receive(cell) for cell in cells]
        return [message for message in found if message is not None]

    def receipts(self) -> list[bytes]:
        ends = zip(self.network.ends, self.network.identities, strict=True)
        return [end.receipt(batch=BATCH, identity=key) for end, key in ends]

    def complaints(self, receipts: list[bytes], published: list[bytes] | None = None) -> list[str]:
        """What every sender says; the empty string if it is content."""
        digests = [receipt_digest(each) for each in receipts] if published is None else published
        said = []
        for sent in self.sent:
            try:
                sent.require_received(receipts, signers=self.signers, published=digests)
                said.append("")
            except ProtocolError as refusal:
                said.append(str(refusal))
        return said


def own_cells(network: MixNetwork, recipient: int, messages: list[bytes]) -> list[bytes]:
    """Cells of the mix's own, as they leave the last mix."""
    size = max(network.directory.config.min_batch, len(messages))
    cells = send(messages, recipient=recipient, cells=size, directory=network.directory)
    return network.carry(cells)


def replaced(network: MixNetwork, cells: list[bytes], recipient: int, by: bytes) -> list[bytes]:
    """The last mix keeps the first cell to a recipient and forwards its own."""
    victim = next(n for n, cell in enumerate(cells) if address_of(cell).node == recipient)
    return [by if n == victim else cell for n, cell in enumerate(cells)]


def test_nobody_complains_of_honest_mixes() -> None:
    federation = Federation()
    messages = federation.deliver(federation.network.carry(federation.cells))
    assert sorted(messages) == [f"vote {n}".encode() for n in range(SENDERS)]
    assert federation.complaints(federation.receipts()) == [""] * SENDERS


@pytest.mark.claim("routing-receipts")
@pytest.mark.parametrize("recipient", [0, 1])
@pytest.mark.parametrize("message", [[], [b"vote 9"]], ids=["dummy", "vote"])
def test_a_mix_that_replaces_a_cell_is_found_by_its_sender_alone(
    recipient: int, message: list[bytes]
) -> None:
    federation = Federation()
    own = own_cells(federation.network, recipient, message)
    cells = replaced(
        federation.network, federation.network.carry(federation.cells), recipient, own[0]
    )
    before = [end.dummies for end in federation.network.ends]
    messages = federation.deliver(cells)
    # The receiver is none the wiser: as many cells came as were due, each of them well sealed.
    dummies = sum(end.dummies for end in federation.network.ends) - sum(before)
    assert len(messages) + dummies == SENDERS * CELLS * 2
    said = federation.complaints(federation.receipts())
    assert sorted(said) == [""] * (SENDERS - 1) + [MISSED]


def test_a_mix_that_drops_a_cell_is_found() -> None:
    federation = Federation()
    federation.deliver(federation.network.carry(federation.cells)[1:])
    assert sorted(federation.complaints(federation.receipts())) == [""] * (SENDERS - 1) + [MISSED]


@pytest.mark.claim("routing-added-cells")
def test_what_a_mix_puts_in_besides_stays_undetected() -> None:
    """Open, and said so: only where the number of cells is public does counting them help."""
    federation = Federation()
    cells = federation.network.carry(federation.cells)
    stuffed = own_cells(federation.network, 0, [b"vote 9", b"vote 9"])
    messages = federation.deliver(cells + stuffed)
    assert messages.count(b"vote 9") == 2
    assert federation.complaints(federation.receipts()) == [""] * SENDERS


@pytest.mark.claim("routing-receipts")
def test_a_list_for_each_sender_is_refused_and_two_lists_convict() -> None:
    """The receiver leaves a cell out of the list for one sender, to see whether it complains."""
    federation = Federation()
    cells = federation.network.carry(federation.cells)
    federation.deliver(cells)
    first, other = federation.receipts()
    end, key = federation.network.ends[0], federation.network.identities[0]
    honest = list(federation.sent[0]._fragments[0])
    end._unsigned[3] = honest[:1]
    end._signed.clear()  # an honest one signs no batch twice
    second = end.receipt(batch=BATCH, identity=key)
    published = [receipt_digest(first), receipt_digest(other)]
    said = federation.complaints([second, other], published)
    assert said == ["a list of receipts is not the one that was published"] * SENDERS
    assert equivocates(first, second, federation.signers[0])
    assert not equivocates(first, first, federation.signers[0])
    later = end.receipt(batch=BATCH + 1, identity=key)
    assert not equivocates(first, later, federation.signers[0])
    with pytest.raises(ProtocolError, match="not signed"):
        equivocates(first, second, federation.signers[1])


def test_forged_and_old_lists_are_refused() -> None:
    federation = Federation()
    federation.deliver(federation.network.carry(federation.cells))
    first, other = federation.receipts()
    forger = Ed25519PrivateKey.generate()
    end = federation.network.ends[0]
    end._signed.clear()
    for fake, problem in (
        (end.receipt(batch=BATCH, identity=forger), "not signed by its recipient"),
        (end.receipt(batch=BATCH + 1, identity=forger), "another directory or batch"),
        (first[:-1] + bytes([first[-1] ^ 1]), "not signed by its recipient"),
    ):
        assert all(problem in said for said in federation.complaints([fake, other]))
    assert federation.complaints([first]) == [MISSED] * SENDERS  # the other list is held back
    doubled = federation.complaints([first, first, other])
    assert all("two lists of receipts" in said for said in doubled)


def test_entries_tell_nothing_of_whose_they_are() -> None:
    """Whoever knows what a cell says, but not its random bits, does not find it in the list."""
    federation = Federation()
    federation.deliver(federation.network.carry(federation.cells))
    (first, _) = federation.receipts()
    again = SentCells(federation.network.directory, batch=BATCH)
    send([b"vote 0"], recipient=0, cells=1, directory=federation.network.directory, sent=again)
    with pytest.raises(ProtocolError, match=MISSED):
        again.require_received(
            [first], signers=federation.signers, published=[receipt_digest(first)]
        )


# ------------------------------------------------------------------- the rounds that send cells


def bags(execution: str) -> Any:
    channel = LayeredBags(
        bags={"b": BagShape(width=2, most=2)},
        n_clients=4,
        codec=CODEC,
        streams=Streams.from_seed(1),
        routing=RoutingLayerConfig(cell_bytes=512, layers=2, execution=execution),
    )

    if execution == "real":
        bags_carried_out(channel)

    def play(wire: Wire) -> Any:
        session = channel.open(round_=1, participants=np.arange(4), wire=wire)
        block = SetBlock(indptr=np.arange(5), values=np.arange(8.0).reshape(4, 2))
        session.submit(np.arange(4), {"b": block})
        return session.close()

    return play


def rows(collector: Any) -> Any:
    def play(wire: Wire) -> Any:
        session = collector.open(round_=1, participants=np.arange(6), wire=wire)
        values = CODEC.encode(np.arange(24.0).reshape(12, 2))
        block = RowBlock(
            indptr=np.arange(0, 13, 2), rows=np.tile([0, 1], 6).astype(np.int32), values=values
        )
        session.submit(session.order, block, np.tile([False, True], 6) & ~exempt(session))
        return session.close()

    def exempt(session: Any) -> Any:
        return np.repeat(session.exempt(session.order), 2)

    return play


SIZES: dict[str, Any] = {"n_clients": 6, "n_items": 3, "width": 2, "codec": CODEC}


def routed(execution: str) -> Any:
    routing = RoutingLayerConfig(cell_bytes=512, layers=2, execution=execution)
    settings = {**SIZES, "streams": Streams.from_seed(1)}
    collector = RoutedDenoisers(DenoisersConfig(count=2), routing=routing, **settings)
    if execution == "real":
        carried_out(collector, HostedDenoisers(collector))
    return rows(collector)


ROUNDS: dict[str, Callable[[str], Any]] = {"bags": bags, "routed": routed}


class Replace:
    """A mix that keeps one cell and forwards its own: other words under other random bits."""

    def __init__(self, *, besides: bool = False) -> None:
        self.besides = besides
        self.struck = 0

    def apply(self, messages: Messages) -> Messages:
        if messages.tags is None or self.struck:
            return messages
        self.struck += 1
        block, rng = messages.payload, np.random.default_rng(9)
        assert isinstance(block, RowBlock | SetBlock) and block.values is not None
        count = len(messages)
        chosen = np.append(np.arange(count if self.besides else count - 1), count - 1)
        changed = messages.select(chosen)
        assert changed.tags is not None and isinstance(changed.payload, RowBlock | SetBlock)
        tags = changed.tags.copy()
        tags[-1] = rng.integers(0, 2**63)
        values = changed.payload.values
        assert values is not None
        fresh = values.copy()
        fresh[-1] = CODEC.encode(np.asarray(rng.normal(size=fresh.shape[1])))
        payload = replace(changed.payload, values=fresh)
        return Messages(
            round=changed.round,
            step=changed.step,
            senders=Parties.anonymous("client", len(chosen)),
            receivers=changed.receivers,
            payload=payload,
            sizes=changed.sizes,
            tags=tags,
            bag=changed.bag,
        )


@pytest.mark.claim("bags-incomplete-abort")
@pytest.mark.parametrize("kind", ROUNDS)
def test_a_replaced_message_ends_a_simulated_round(kind: str) -> None:
    """The number of messages is right, and the receiver has nothing to compare them with."""
    fault, play = Replace(), ROUNDS[kind]("simulated")
    with pytest.raises(ProtocolError, match="does not find its cell in the receipts"):
        play(Wire(meter=Meter(6), faults=(fault,)))
    assert fault.struck == 1


@pytest.mark.claim("routing-added-cells")
def test_counting_finds_a_message_too_many_where_their_number_is_public() -> None:
    with pytest.raises(ProtocolError, match="too many"):
        bags("simulated")(Wire(meter=Meter(6), faults=(Replace(besides=True),)))


NO_ROWS = RowBlock(
    indptr=np.array([0, 0]),
    rows=np.zeros(0, dtype=np.int32),
    values=np.zeros((0, 2), dtype=np.uint64),
)
INSTEAD = {
    "bags": None,
    "routed": encode_rows(NO_ROWS, round_=1, step=Step.NOISE, codec=CODEC),
}
"""What the mix puts in the place of a cell: a dummy, or no rows where messages are counted."""


def let_a_mix_replace_cells(kind: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of every recipient one cell becomes the mix's own; how many cells there were."""
    ran = list[int]()

    def replacing(directory: Directory, cells: list[bytes]) -> list[bytes]:
        ran.append(len(cells))
        found, first = list(cells), dict[int, int]()
        for number, cell in enumerate(cells):
            first.setdefault(address_of(cell).node, number)
        for recipient, number in first.items():
            found[number] = own_cell(directory, recipient, INSTEAD[kind])
        return found

    changed_by_last_mix(monkeypatch, replacing)
    return ran


@pytest.mark.claim("routing-receipts")
@pytest.mark.parametrize("kind", ROUNDS)
def test_a_real_mix_that_replaces_cells_ends_the_round(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = let_a_mix_replace_cells(kind, monkeypatch)
    with pytest.raises(ProtocolError, match=MISSED):
        ROUNDS[kind]("real")(Wire(meter=Meter(6)))
    assert ran and ran[0] >= 4


def test_without_receipts_a_replaced_cell_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: only the comparison with what was sent tells then, and no party can make it."""
    monkeypatch.setattr(SentCells, "require_received", lambda *_, **__: None)
    routed("real")(Wire(meter=Meter(6)))
    let_a_mix_replace_cells("routed", monkeypatch)
    with pytest.raises(LosslessnessError, match="the sum that the halves opened"):
        routed("real")(Wire(meter=Meter(6)))


@pytest.mark.parametrize("kind", ROUNDS)
def test_lists_are_counted_alike_in_both_executions(kind: str) -> None:
    costs = []
    for execution in ("simulated", "real"):
        meter = Meter(6)
        ROUNDS[kind](execution)(Wire(meter=meter))
        costs.append({name: column.tolist() for name, column in meter.state().items()})
        assert meter.beside("bytes") > 0
    assert costs[0] == costs[1]
