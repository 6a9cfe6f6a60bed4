"""A server that uses two open rounds against each other: keys of the next, secrets of this one.

Keys of a round are agreed on while the one before it is summed. Each attack opens a weakened copy,
and not ours. What the server wants is the clear vector of one client, the victim.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import unpack
from secure_fedrec.protection.masking import (
    ClientState,
    Expected,
    Federation,
    Kind,
    MaskingClient,
    MaskingConfig,
    MaskingServer,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.client import secrets as pairs
from secure_fedrec.protection.masking.client import steps as client_steps
from secure_fedrec.protection.masking.envelope import SERVER, Envelope, round_number, seal
from secure_fedrec.protection.masking.messages.key_messages import Keys
from secure_fedrec.protection.masking.messages.keys import (
    fresh_element,
    fresh_key,
    pair_key,
    self_key,
)
from secure_fedrec.protection.masking.messages.shamir import decode_element, encode_element
from secure_fedrec.protection.masking.pipeline import PipelinedClient, PipelinedServer
from secure_fedrec.protection.masking.server import recovery, unmasking
from secure_fedrec.protection.masking.server import steps as server_steps
from secure_fedrec.protection.session.journal import MemoryJournal
from secure_fedrec.protection.session.parties import MemoryChannel, Parcel, drive
from secure_fedrec.protection.session.reader import encode_marks
from secure_fedrec.protection.session.statement import NO_STATEMENT, Statement, labelled_hash
from tests.statements import LATER, about

VICTIM, CLIENTS = 2, range(6)
LAYOUT = SumLayout(bits=20, length=3, clients=6, largest=100)
CONFIG = MaskingConfig(
    clients=6, bits=20, length=3, layout_hash=LAYOUT.hash, threshold=2, min_survivors=4,
    quorum=4, corrupt_clients=0, statement=LATER.digest,
)  # fmt: skip
Altered = Callable[[Parcel], Sequence[Parcel]]


def values(round_: int) -> dict[int, Any]:
    return {number: np.array([number, -round_, 10 * round_ + number]) for number in CLIENTS}


def stated(round_: int) -> Statement:
    return about(round_.to_bytes(32, "big"))


class Line:
    """Rounds in a row under a server that keeps all it is sent and learns.

    Attributes:
        cores: the server's side of each round.
        halves: the clients' of each round.
        uploads: masked words by round and client, whether or not they were counted.
    """

    def __init__(self) -> None:
        policy = SitePolicy(corrupt=0.0, dropout=0.4)
        self.federation = Federation(CLIENTS, policy=policy)
        self.servers: dict[int, MaskingServer] = {}
        self.halves: dict[int, dict[int, MaskingClient]] = {}
        self.uploads: dict[int, dict[int, Any]] = {}
        self.sums: dict[int, Any] = {}
        self.begin()

    def begin(self) -> int:
        """Open both sides of one more round; its number."""
        server = self.open_server()
        expected = Expected(layout_hash=LAYOUT.hash, statement=LATER)
        halves = {number: self.federation.open_client(number, expected) for number in CLIENTS}
        self.servers[server.round_number] = server
        self.halves[server.round_number] = halves
        return server.round_number

    def open_server(self) -> MaskingServer:
        """The server's half of the next round, whose statement comes later."""
        federation = self.federation
        federation.rounds += 1
        return MaskingServer(
            identity=federation.server,
            roster=federation.roster,
            config=CONFIG,
            cohort=np.array(CLIENTS),
            round_number=federation.rounds,
            generations=federation.generations,
            later=LATER,
        )

    def load(self, round_: int, of: int | None = None) -> None:
        """Vectors of a round; of another one's state and values, if it is taken again."""
        of = round_ if of is None else of
        self.servers[round_].name_statement(stated(of))
        for number, half in self.halves[round_].items():
            half.load(LAYOUT.encode(values(of)[number]), statement=stated(of))

    def run(
        self, *, altered: Altered = lambda parcel: [parcel], of: int | None = None
    ) -> dict[Any, str]:
        """The round whose turn it is, and the keys of the next; why clients refused."""
        round_ = max(self.servers)
        following = self.begin()
        self.load(round_, of)
        self.hub = PipelinedServer(self.servers[round_], self.servers[following])

        def carrier(sent: Sequence[Parcel]) -> list[Parcel]:
            for parcel in sent:
                if parcel.stage == "UPLOAD":
                    self._keep(parcel)
            return [each for parcel in sent for each in altered(parcel)]

        open_ = (round_, following)
        parties = [
            PipelinedClient(
                self.halves[following][n].node,
                {each: self.halves[each][n] for each in open_ if n in self.halves[each]},
            )
            for n in CLIENTS
        ]
        channel = MemoryChannel(parties, carrier)
        drive(self.hub, channel)
        self.sums[round_] = LAYOUT.decode(self.servers[round_].result)
        return dict(channel.refused)

    def view(self, round_: int) -> Any:
        """What the attack's tools ask for."""
        return SimpleNamespace(
            core=self.servers[round_]._round,
            config=CONFIG,
            layout=LAYOUT,
            uploads=self.uploads[round_],
        )

    def says(self, round_: int, kind: Kind, head: bytes, payload: bytes = b"") -> bytes:
        context = self.servers[round_]._round.public.context
        return seal(self.federation.server.key, context, kind, SERVER, head, payload)

    def _keep(self, parcel: Parcel) -> None:
        words = unpack(Envelope.decode(parcel.data).payload, LAYOUT.words, LAYOUT.bits)
        round_ = round_number(parcel.data)
        self.uploads.setdefault(round_, {})[parcel.sender.number] = words


@pytest.fixture(autouse=True)
def hoarding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server forgets nothing."""
    monkeypatch.setattr(server_steps.ServerRound, "wipe", lambda self: None)


def without(victim: int, kind: str, round_: int) -> Altered:
    """The server acts as if a message of the victim had not come."""

    def altered(parcel: Parcel) -> list[Parcel]:
        lost = (parcel.sender.number, parcel.stage) == (victim, kind)
        return [] if lost and round_number(parcel.data) == round_ else [parcel]

    return altered


# A drop in round 5, attacks on the others.


def opened_elsewhere(attacked: Any) -> dict[int, bool]:
    """Whether the victim's vector of each round opens, with what its drop in round 5 revealed."""
    line = Line()
    for round_ in range(1, 7):
        line.run(altered=without(VICTIM, "UPLOAD", 5) if round_ == 5 else lambda each: [each])
    assert all(len(line.uploads[round_]) == 6 for round_ in range(1, 7))
    dropped = line.view(5)
    assert VICTIM not in line.servers[5].survivors
    seed = attacked.mask_seed(dropped, dropped.core._reveals, VICTIM)
    assert seed is not None  # the server has it, and it took the pair masks off round 5
    found = {}
    for round_ in (1, 2, 3, 4, 6):
        view = line.view(round_)
        own = decode_element(view.core._reveals[VICTIM].self_seed)
        guess = attacked.open_vector(view, VICTIM, mask_seed=seed, self_seed=own)
        found[round_] = np.array_equal(guess, values(round_)[VICTIM])
        everybody = sum(values(round_).values())
        assert np.array_equal(line.sums[round_], everybody)
    return found


@pytest.mark.claim("masking-rounds-apart")
def test_a_drop_in_one_round_opens_no_other(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(opened_elsewhere(attacked).values())
    # Weakened copy: mask keys are agreed on once, and shares of them serve all rounds.
    kept: dict[int, bytes] = {}
    make = pairs.RoundSecrets.__init__

    def long_lived(self: Any, context: Any, owner: int, **named: Any) -> None:
        mask = kept.setdefault(owner, encode_element(fresh_element()))
        roots = mask, encode_element(fresh_element()), fresh_key(), bytes(32)
        make(self, context, owner, **{**named, "roots": roots})

    monkeypatch.setattr(pairs.RoundSecrets, "__init__", long_lived)
    assert all(opened_elsewhere(attacked).values())


# Keys of the next round.


def told_otherwise(line: Line, record: Callable[[dict[int, bytes]], dict[int, bytes]]) -> Altered:
    """KEYS of the next round, in which the victim is told of other records."""

    def altered(parcel: Parcel) -> list[Parcel]:
        if parcel.stage != "KEYS" or parcel.receiver.number != VICTIM:
            return [parcel]
        round_ = round_number(parcel.data)
        if round_ != max(line.servers):
            return [parcel]
        envelope = Envelope.decode(parcel.data)
        keys = Keys.decode(envelope.head, envelope.payload, CONFIG)
        told = Keys(
            advertised=keys.advertised, beacon=keys.beacon, records=record(dict(keys.records))
        )
        return [parcel._replace(data=line.says(round_, Kind.KEYS, told.head(), told.payload()))]

    return altered


@pytest.mark.claim("masking-rounds-apart")
@pytest.mark.parametrize("case", ["another client's", "an earlier round's", "its own"])
def test_other_keys_cost_the_next_round_and_not_this_one(case: str) -> None:
    """The victim leaves the next round before it has shared anything; this one's sum is whole."""
    line = Line()
    line.run()
    before = line.servers[1]._round._key_records
    swaps: dict[str, Callable[[dict[int, bytes]], dict[int, bytes]]] = {
        "another client's": lambda records: {**records, 0: records[1]},
        "an earlier round's": lambda records: {**records, 0: before[0]},
        "its own": lambda records: {**records, 0: line.servers[3]._round._key_records[VICTIM]},
    }
    refused = line.run(altered=told_otherwise(line, swaps[case]))
    assert refused == {}  # the half of this round has answered
    assert line.halves[3][VICTIM].state is ClientState.ABORTED
    assert "ADVERTISE: bad signature of client 0" in str(line.halves[3][VICTIM].abort_reason)
    assert VICTIM in line.servers[2].survivors
    line.halves[3].pop(VICTIM)
    line.run()
    assert line.servers[3].survivors.tolist() == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("stage", ["ADVERTISE", "SHARES"])
def test_a_next_round_that_too_few_begin_costs_this_one_nothing(stage: str) -> None:
    line = Line()
    line.run()

    def lost(parcel: Parcel) -> list[Parcel]:
        few = parcel.sender.number in CLIENTS and parcel.stage == stage
        return [] if few and (stage == "SHARES" or parcel.sender.number < 3) else [parcel]

    assert line.run(altered=lost) == {}
    assert len(line.servers[2].survivors) == len(CLIENTS)
    assert line.hub.agreed is None


@pytest.mark.claim("masking-rounds-apart")
def test_two_next_rounds_give_a_sum_of_neither() -> None:
    """Clients are in one of them, and no two sums over as many as it takes are apart."""
    line = Line()
    line.run()
    halves = line.halves[2]
    other = line.open_server()
    line.load(2)
    mine = line.servers[2]
    for number, setup in other.start():
        if number >= 3:
            with pytest.raises(ProtocolError, match="is in state BOXES"):
                halves[number].receive(setup)
            fresh = line.federation.open_client(number, halves[number]._expected)
            other.receive(fresh.receive(setup)[0])
    with pytest.raises(ProtocolError, match="3 clients advertised keys; a sum needs 4"):
        other.close_step()
    for number, boxes in mine.close_step():
        if number < 3:
            mine.receive(halves[number].receive(boxes)[0])
            continue
        with pytest.raises(ProtocolError, match="sent once, in the last round begun"):
            halves[number].receive(boxes)  # the later round was begun over it
    with pytest.raises(ProtocolError, match="3 survivors; a sum needs at least 4"):
        mine.close_step()


@pytest.mark.claim("masking-rounds-apart")
def test_shares_that_are_withheld_from_one_client_open_nothing() -> None:
    """The victim is told that two others never shared: it has signed another set than they."""
    line = Line()
    line.run()
    line.load(2)
    server, halves = line.servers[2], line.halves[2]
    boxes = dict(server.close_step())
    envelope = Envelope.decode(boxes[VICTIM])
    told = np.isin(np.array(CLIENTS), [0, 1, VICTIM, 3])
    payload = bytes(envelope.payload)
    size = (len(payload) - 4) // 5
    records = payload[4:][: 3 * size]
    fewer = (3).to_bytes(4, "little") + records
    boxes[VICTIM] = line.says(2, Kind.BOXES, encode_marks(told), fewer)
    for number, data in boxes.items():
        (upload,) = halves[number].receive(data)
        if number == VICTIM:
            with pytest.raises(ProtocolError, match="was told of other sharers or states"):
                server.receive(upload)
        else:
            server.receive(upload)


# States.


def two_states(line: Line) -> MaskingServer:
    """A round in whose sum the victim's vector is of a state of its own, if it comes to one."""
    server, halves = line.servers[1], line.halves[1]
    server.name_statement(stated(1))
    for number, half in halves.items():
        of = 7 if number == VICTIM else 1
        half.load(LAYOUT.encode(values(of)[number]), statement=stated(of))
    outgoing = server.start()
    while not server.finished:
        for number, data in outgoing:
            for reply in halves[number].receive(data):
                server.receive(reply)
        outgoing = server.close_step()
    return server


def of_no_statement(derive: Callable[..., bytes]) -> Callable[..., bytes]:
    """A key that is derived whatever the round is about."""
    return lambda *given: derive(*given[:-1], NO_STATEMENT)


@pytest.mark.claim("masking-one-statement")
def test_no_sum_holds_vectors_of_two_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server tells the victim of another model, whose vector it could tell in the sum."""
    with pytest.raises(ProtocolError, match="client 2 was told of other sharers or states"):
        two_states(Line())
    # A server that does not mind: the neighbours do not open what was signed for another state.
    mixed = Line()
    core = mixed.servers[1]._round
    signed = server_steps.ServerRound.accept_upload

    def unmindful(self: Any, envelope: Envelope) -> None:
        own, self._shared_hash = self._shared_hash, envelope.head[:32]
        try:
            signed(self, envelope)
        finally:
            self._shared_hash = own

    with monkeypatch.context() as patch:
        patch.setattr(server_steps.ServerRound, "accept_upload", unmindful)
        with pytest.raises(ProtocolError):
            two_states(mixed)
    assert len(core._confirmations) < len(CLIENTS)
    # Weakened copy: clients do not sign the statement with the sharers.
    for module in (client_steps, server_steps):
        monkeypatch.setattr(
            module,
            "hash_of_sharers",
            lambda shared, stated: labelled_hash("shared", encode_marks(shared)),
        )
    others = sum(values(1)[number] for number in CLIENTS if number != VICTIM)
    noise = LAYOUT.decode(two_states(Line()).result) - others
    assert np.abs(noise - values(7)[VICTIM]).min() > 100  # masks of two statements do not cancel
    # Weaker still: masks are of no statement.
    for module in (pairs, recovery):
        monkeypatch.setattr(module, "pair_key", of_no_statement(pair_key))
    for module in (client_steps, unmasking):
        monkeypatch.setattr(module, "self_key", of_no_statement(self_key))
    found = LAYOUT.decode(two_states(Line()).result)
    assert np.array_equal(found - others, values(7)[VICTIM])


# Rounds that are broken off.


def both_sums(line: Line) -> Any:
    """A round is broken off once all have signed its survivors; over the same state the next one,
    whose keys are agreed on, is summed without the victim; then the first is taken up again."""
    quorum: list[Parcel] = []

    def broken_off(parcel: Parcel) -> list[Parcel]:
        if parcel.stage == "QUORUM" and round_number(parcel.data) == 1:
            quorum.append(parcel)
            return []
        return [parcel]

    with pytest.raises(ProtocolError):
        line.run(altered=broken_off)
    first = line.servers[1]
    line.run(of=1, altered=without(VICTIM, "UPLOAD", 2))
    core = first._round
    reveals = {}
    for parcel in quorum:
        number = parcel.receiver.number
        (reveal,) = line.halves[1][number].receive(parcel.data)
        core.require_authentic(Envelope.decode(reveal))
        core.accept_reveal(Envelope.decode(reveal))
        reveals[number] = reveal
    core.close_reveals()
    return LAYOUT.decode(core.result) - line.sums[2]


@pytest.mark.claim("masking-one-open-vector")
def test_a_round_that_is_broken_off_ends_with_the_vector_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ProtocolError, match="the last round that a vector was sent in"):
        both_sums(Line())
    # Weakened copy: a journal that does not know which round's turn it is.
    monkeypatch.setattr(MemoryJournal, "reveal", lambda self, round_id, message: None)
    assert np.array_equal(both_sums(Line()), values(1)[VICTIM])


@pytest.mark.claim("masking-one-open-vector")
def test_keys_of_a_round_that_was_given_up_serve_no_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Round 2 has its keys when round 3 is begun over it; then the server comes back to it."""

    def uploads(line: Line) -> int:
        line.run()
        third = line.begin()
        for number, setup in line.servers[third].start():
            line.halves[third][number].receive(setup)
        line.load(2)
        sent = line.servers[2].close_step()
        return sum(len(line.halves[2][number].receive(boxes)) for number, boxes in sent)

    with pytest.raises(ProtocolError, match="sent once, in the last round begun"):
        uploads(Line())

    # Weakened copy: the journal does not know.
    def blind(self: MemoryJournal, round_id: bytes, once: bytes = b"") -> None:
        self._held = replace(self._held, sent=round_id, message=b"")

    monkeypatch.setattr(MemoryJournal, "upload", blind)
    assert uploads(Line()) == len(CLIENTS)


# States at rest.


@pytest.mark.claim("masking-one-open-vector")
def test_two_states_at_rest_serve_once_each(tmp_path: Path) -> None:
    """Of a client that awaits SURVIVORS in one round and KEYS in the next; copies serve nothing,
    whatever the other state has come to."""
    line, key = Line(), bytes(range(32))
    old, new = tmp_path / "old", tmp_path / "new"
    seen: list[str] = []

    def at_rest(parcel: Parcel) -> list[Parcel]:
        if parcel.stage not in ("SURVIVORS", "KEYS") or parcel.receiver.number != VICTIM:
            return [parcel]
        round_ = round_number(parcel.data)
        if parcel.stage == "KEYS" and round_ == 1:
            return [parcel]
        path = old if round_ == 1 else new
        half = line.halves[round_][VICTIM]
        half.save(path, key)
        shutil.copy(path, path.with_suffix(".copy"))
        again = line.federation.open_client(VICTIM, half._expected)
        again.resume(path, key)
        half.__dict__.update(again.__dict__)  # what the next message finds
        seen.append(parcel.stage)
        return [parcel]

    line.run(altered=at_rest)
    assert sorted(seen) == ["KEYS", "SURVIVORS"]
    assert VICTIM in line.servers[1].survivors
    expected = line.halves[1][VICTIM]._expected
    for path in (old, new):
        with pytest.raises(ProtocolError, match="serves once"):
            line.federation.open_client(VICTIM, expected).resume(path.with_suffix(".copy"), key)
    line.halves[2][VICTIM].save(new, key)  # with its keys agreed on
    for path in (old, new):
        with pytest.raises(ProtocolError, match="serves once"):
            line.federation.open_client(VICTIM, expected).resume(path.with_suffix(".copy"), key)
    again = line.federation.open_client(VICTIM, expected)
    again.resume(new, key)
    line.halves[2][VICTIM] = again
    line.run()
    assert VICTIM in line.servers[2].survivors


@pytest.mark.claim("masking-one-open-vector")
def test_a_state_at_rest_of_a_round_that_is_over_is_refused(tmp_path: Path) -> None:
    """It awaited its reveal when the next round's vector was sent."""
    line, key, path = Line(), bytes(range(32)), tmp_path / "state"
    held: list[MaskingClient] = []

    def kept_back(parcel: Parcel) -> list[Parcel]:
        if parcel.stage == "QUORUM" and parcel.receiver.number == VICTIM:
            half = line.halves[1][VICTIM]
            held.append(line.federation.open_client(VICTIM, half._expected))
            half.save(path, key)
            return []
        return [parcel]

    line.run(altered=kept_back)
    line.run()
    with pytest.raises(ProtocolError, match="serves once"):
        held[0].resume(path, key)
