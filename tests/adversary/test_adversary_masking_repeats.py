"""A server that repeats a sum, wears out a journal, or meets an old copy of one.

Each attack works on a weakened copy, and not on ours. What the server wants is the clear vector of
one client, the victim, or a client that no round can be run with any more.
"""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    Kind,
    MaskingConfig,
    Roster,
    RoundOutcome,
    ServerState,
    SitePolicy,
    SumLayout,
    state_hash,
)
from secure_fedrec.protection.session import journal
from secure_fedrec.protection.session.journal import FileJournal, MemoryJournal
from secure_fedrec.protection.session.statement import NO_STATEMENT, Purpose, Statement
from tests.statements import about

VICTIM = 2
POLICY = SitePolicy(corrupt=0.0, dropout=0.4)
LAYOUT = SumLayout(bits=20, length=3, clients=6, largest=100)
VALUES = {number: np.array([number, -number, 50 + number]) for number in range(6)}
VECTORS = {number: LAYOUT.encode(value) for number, value in VALUES.items()}


def config_of(stated: Statement | None = None, **changes: Any) -> MaskingConfig:
    settings: dict[str, Any] = {
        "clients": 6,
        "bits": 20,
        "length": 3,
        "layout_hash": LAYOUT.hash,
        "threshold": 2,
        "min_survivors": 4,
        "quorum": 4,
        "corrupt_clients": 0,
        "statement": NO_STATEMENT if stated is None else stated.digest,
    }
    return MaskingConfig(**settings | changes)


CONFIG = config_of()
"""Of a sum that may be of any state."""


def model(seed: int) -> Statement:
    return about(state_hash({"weights": np.random.default_rng(seed).normal(size=4)}))


def refused_by_all(
    federation: Federation,
    stated: Statement,
    why: str,
    *,
    layout: SumLayout = LAYOUT,
    clients: Iterable[int] = VALUES,
) -> None:
    vectors = {number: layout.encode(VALUES[number]) for number in clients}
    config = replace(CONFIG, bits=layout.bits, layout_hash=layout.hash, clients=len(vectors))
    with pytest.raises(ProtocolError, match=why) as refused:
        federation.sum(config, vectors, statement=stated)
    assert "0 clients advertised" in str(refused.value)


# The same state again.


def difference(federation: Federation, stated: Statement) -> Any:
    """Two sums over one state, the second without the victim."""
    whole = federation.sum(CONFIG, VECTORS, statement=stated)
    dropped = {VICTIM: Kind.UPLOAD}
    without = federation.sum(CONFIG, VECTORS, statement=stated, drops=dropped)
    return LAYOUT.decode(whole.words) - LAYOUT.decode(without.words)


@pytest.mark.claim("masking-one-reveal-per-state")
def test_a_state_is_answered_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = model(1)
    ours = Federation(range(6), policy=POLICY)
    with pytest.raises(ProtocolError, match="answered for this public state") as refused:
        difference(ours, stated)
    assert "0 clients advertised" in str(refused.value)  # not even keys
    # The model moves on, and back: what was revealed for is not forgotten.
    ours.sum(CONFIG, VECTORS, statement=model(2))
    refused_by_all(ours, stated, "answered for this public state")
    # Weakened copy: a journal that does not look at the state.
    monkeypatch.setattr(MemoryJournal, "_require_unrevealed", lambda *_: None)
    weak = Federation(range(6), policy=POLICY)
    assert np.array_equal(difference(weak, stated), VALUES[VICTIM])


@pytest.mark.claim("masking-one-reveal-per-state")
def test_before_anything_is_revealed_a_failed_round_may_be_tried_again() -> None:
    stated, federation = model(1), Federation(range(6), policy=POLICY)
    for kind in (Kind.ADVERTISE, Kind.SHARES, Kind.UPLOAD, Kind.CONFIRM):
        dropped = dict.fromkeys((0, 1, 3), kind)
        with pytest.raises(ProtocolError):
            federation.sum(CONFIG, VECTORS, statement=stated, drops=dropped)
    whole = federation.sum(CONFIG, VECTORS, statement=stated)
    assert np.array_equal(LAYOUT.decode(whole.words), sum(VALUES.values()))
    # A reveal that the server makes nothing of counts as well: it has it.
    federation = Federation(range(6), policy=POLICY)
    dropped = dict.fromkeys((0, 1, 3, 4, 5), Kind.REVEAL)
    with pytest.raises(ProtocolError, match="needs 2 shares"):
        federation.sum(CONFIG, VECTORS, statement=stated, drops=dropped)
    refused_by_all(federation, stated, "answered for this public state")


def test_who_has_not_revealed_answers_for_the_state_again() -> None:
    """Not stopped, and said so: a few reveals open a sum, and the others take its state again."""
    count, victim, stated = 20, 19, model(1)
    layout = SumLayout(bits=24, length=3, clients=count, largest=100)
    values = {number: np.array([number, -number, 50 + number]) for number in range(count)}
    federation = Federation(range(count), policy=SitePolicy())
    config = MaskingConfig.for_cohort(
        count, bits=24, length=3, layout_hash=layout.hash, statement=stated.digest
    )
    config = replace(config, threshold=config.corrupt_clients + 1)  # sites take it
    corrupt = range(config.corrupt_clients)

    def opened(asked: Iterable[int]) -> tuple[Any, list[int]]:
        """The sum of a round in which these alone are asked to reveal, and whose it is."""
        told, expected = {*asked}, Expected(layout_hash=layout.hash, statement=stated)
        clients = {number: federation.open_client(number, expected) for number in values}
        for number, client in clients.items():
            client.load(layout.encode(values[number]))
        server = federation.open_server(config, np.arange(count))
        sent = server.start()
        while server.state is not ServerState.DONE:
            for number, data in sent:
                if data[1] != Kind.QUORUM or number in told:
                    with suppress(ProtocolError):
                        for answer in clients[number].receive(data):
                            server.receive(answer)
            sent = server.close_step()
        return layout.decode(server.result), server.survivors.tolist()

    whole, everybody = opened({victim, *corrupt})
    for number in corrupt:
        held = federation.journals[number]._held
        federation.journals[number]._held = replace(held, revealed=frozenset())
    without, others = opened(range(count))
    assert {*everybody} - {*others} == {victim}
    assert np.array_equal(whole - without, values[victim])


def variants(stated: Statement) -> dict[str, Statement]:
    """What is stated, with every field but those of which a client reveals once told otherwise."""
    bound = {"federation", "state", "purpose"}
    other = {bytes: b"o" * 32, str: "other", int: 99, float: 9.0}
    names = {field.name for field in fields(Statement)} - bound
    return {
        name: replace(stated, **{name: other[type(getattr(stated, name))]})  # type: ignore[arg-type]
        for name in names
    }


def test_another_purpose_over_one_state_is_another_sum_and_nothing_else_is() -> None:
    federation = Federation(range(6), policy=POLICY)
    update = about(state_hash({"weights": np.ones(3)}))
    others = [replace(update, purpose=each) for each in Purpose if each is not update.purpose]
    for stated in (update, *others):
        assert len(federation.sum(CONFIG, VECTORS, statement=stated).survivors) == 6
        refused_by_all(federation, stated, "answered for this public state")
    # The server might vary these to have the same sum again: none makes it another one.
    wide = SumLayout(bits=24, length=3, clients=6, largest=100)
    larger = SumLayout(bits=20, length=3, clients=6, largest=99)
    few = SumLayout(bits=20, length=3, clients=5, largest=100)
    for stated in (update, *others):
        for layout in (wide, larger):
            refused_by_all(federation, stated, "answered for this public state", layout=layout)
        for named, varied in variants(stated).items():
            assert varied.digest != stated.digest, named
            refused_by_all(federation, varied, "answered for this public state")
    # Nor does another cohort.
    federation.policy = replace(POLICY, cohort="server", adversary="curious")
    refused_by_all(
        federation, update, "answered for this public state", layout=few, clients=range(5)
    )


@pytest.mark.claim("masking-one-reveal-per-state")
def test_against_an_active_server_a_state_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(range(6), policy=POLICY)
    with pytest.raises(ConfigError, match=r"masking\.statement"):
        federation.open_server(config_of(), np.arange(6))
    with pytest.raises(ConfigError, match=r"expected\.statement"):
        federation.open_client(VICTIM, Expected(layout_hash=LAYOUT.hash))
    # A curious server repeats nothing; a client that reckons with one may still be asked to believe
    # in a round against an active one.
    lenient = Federation(range(6), policy=replace(POLICY, adversary="curious"))
    client = lenient.open_client(VICTIM, Expected(layout_hash=LAYOUT.hash))
    server = lenient.open_server(config_of(adversary="curious"), np.arange(6))
    monkeypatch.setattr(MaskingConfig, "_check_counts", lambda _: None)
    config = replace(server._round._setup.config, adversary="active")
    object.__setattr__(server._round._setup, "config", config)
    context = replace(server._round.public.context, config_hash=config.hash)
    object.__setattr__(server._round.public, "context", context)
    with pytest.raises(ProtocolError, match="a statement must be named"):
        client.receive(server.start()[0].data)


# Numbers that run out.


def jump(federation: Federation, number: int) -> None:
    """One SETUP to the victim with a number of the server's choice."""
    federation.rounds = number - 1
    server = federation.open_server(config_of(model(9)), np.arange(6))
    client = federation.open_client(VICTIM, Expected(layout_hash=LAYOUT.hash, statement=model(9)))
    client.receive(server.start()[VICTIM].data)


@pytest.mark.claim("masking-setup-spares-rounds")
def test_one_setup_does_not_use_up_the_numbers_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Federation(range(6), policy=POLICY)
    before = ours.journals[VICTIM]._held
    for number in (2**20 + 1, 2**63, 2**64 - 1):
        with pytest.raises(ProtocolError, match="more than 1048576 beyond round 0"):
            jump(ours, number)
    assert ours.journals[VICTIM]._held is before
    ours.rounds = 0
    assert VICTIM in ours.sum(CONFIG, VECTORS, statement=model(1)).survivors
    # Weakened copy: no bound.
    monkeypatch.setattr(journal, "MOST_ROUNDS_AHEAD", 2**64)
    weak = Federation(range(6), policy=POLICY)
    jump(weak, 2**64 - 1)
    for number in (1, 2**20, 2**63):
        weak.rounds = number
        outcome = weak.sum(CONFIG, VECTORS, statement=model(number))
        assert VICTIM not in outcome.survivors


def with_floor(federation: Federation, floor: int) -> None:
    federation.roster = Roster.sign(
        Ed25519PrivateKey.generate(),
        version=2,
        server=federation.server.public,
        clients={number: identity.public for number, identity in federation.identities.items()},
        round_floor=floor,
    )


@pytest.mark.claim("masking-setup-spares-rounds")
def test_newcomers_and_clients_that_were_away_take_part() -> None:
    federation = Federation(range(6), policy=POLICY)
    federation.sum(CONFIG, VECTORS, statement=model(1))
    federation.rounds = 2**20  # away for a million rounds
    assert len(federation.sum(CONFIG, VECTORS, statement=model(2)).survivors) == 6
    federation.rounds = 10**7
    refused_by_all(federation, model(3), "a later floor")
    federation.journals[VICTIM] = MemoryJournal()  # somebody new
    federation.identities[VICTIM] = Federation([VICTIM]).identities[VICTIM]
    with_floor(federation, 10**7)
    for number in (10**7, 10**7 + 1, 10**7 + 2**20):
        federation.rounds = number - 1
        outcome = federation.sum(CONFIG, VECTORS, statement=model(number))
        assert outcome.survivors.tolist() == list(range(6))
    federation.rounds += 2**20
    refused_by_all(federation, model(4), "more than 1048576 beyond")


# Old copies of journals.


class Site:
    """Clients with journals on disk, which somebody can put back to what they were."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.federation = Federation(range(6), policy=POLICY)
        self.open(range(6))

    def open(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.federation.journals[number] = FileJournal(self.folder / f"{number}")

    def restore(self, number: int, source: Path) -> None:
        held = self.federation.journals[number]
        assert isinstance(held, FileJournal)
        held.close()
        shutil.copy(source, self.folder / f"{number}")
        self.open([number])

    def copy(self, number: int) -> Path:
        return Path(shutil.copy(self.folder / f"{number}", self.folder / f"{number}.copy"))

    def round(self, seed: int) -> RoundOutcome:
        return self.federation.sum(CONFIG, VECTORS, statement=model(seed))


def test_a_restored_journal_is_named_and_costs_its_client_the_round(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.round(1)
    old = site.copy(VICTIM)
    site.round(2)
    site.restore(VICTIM, old)
    outcome = site.round(3)  # a server that follows the protocol leaves it out
    assert outcome.survivors.tolist() == [0, 1, 3, 4, 5]
    assert "an old journal: client 2" in outcome.dropped[VICTIM]
    assert [fault.client for fault in outcome.faults] == [VICTIM]
    # The copy has caught up by beginning rounds; then it knows as many as its peers have seen.
    assert VICTIM in site.round(4).survivors


@pytest.mark.claim("masking-old-journal-named")
def test_peers_name_a_restored_journal_that_the_server_passes_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.round(1)
    old = site.copy(VICTIM)
    site.round(2)
    site.restore(VICTIM, old)
    site.federation.generations.clear()  # it has forgotten, or does not care
    with pytest.raises(ProtocolError) as refused:
        site.round(3)
    for peer in (0, 1, 3, 4, 5):
        assert f"client {peer}: KEYS: an old journal: clients [2] have shown" in str(refused.value)


def answer_again(site: Site) -> Any:
    """Three clients are put back to before their reveal; two others had not come to theirs."""
    site.round(1)
    copies = {number: site.copy(number) for number in (3, 4, 5)}
    stated, dropped = model(2), dict.fromkeys((0, 1), Kind.CONFIRM)
    whole = site.federation.sum(CONFIG, VECTORS, statement=stated, drops=dropped)
    for number, copy in copies.items():
        site.restore(number, copy)
    site.federation.generations.clear()
    without = site.federation.sum(
        CONFIG, VECTORS, statement=stated
    )  # the victim has answered, and stays out
    return LAYOUT.decode(whole.words) - LAYOUT.decode(without.words)


@pytest.mark.claim("masking-old-journal-named")
def test_restored_journals_do_not_answer_for_a_state_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProtocolError, match=r"an old journal: clients \[3, 4, 5\]"):
        answer_again(Site(tmp_path / "ours"))
    # Weakened copy: nobody remembers what generation another has shown.
    monkeypatch.setattr(MemoryJournal, "see", lambda *_: None)
    assert np.array_equal(answer_again(Site(tmp_path / "weak")), VALUES[VICTIM])


def test_a_generation_is_of_a_signing_key(tmp_path: Path) -> None:
    """A client that lost its journal comes back with a new key, under its old number."""
    site = Site(tmp_path)
    site.round(1)
    site.round(2)
    held = site.federation.journals[VICTIM]
    assert isinstance(held, FileJournal)
    held.close()
    (tmp_path / f"{VICTIM}").unlink()
    site.open([VICTIM])
    site.federation.generations.clear()
    with pytest.raises(ProtocolError, match=r"clients \[2\] have shown"):
        site.round(3)
    site.federation.identities[VICTIM] = Federation([VICTIM]).identities[VICTIM]
    with_floor(site.federation, 0)
    assert site.round(4).survivors.tolist() == list(range(6))
