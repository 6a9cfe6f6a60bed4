"""Clients that compute from two statements have no sum together, and none is summed twice.

Fields are drawn from the statement's own schema: one that joins it is covered by being there.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.engines.distributed.host_messages import Agreement
from secure_fedrec.engines.distributed.sites_channel import SitesChannel
from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.fixedpoint import unpack
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.masking import (
    Expected,
    Federation,
    MaskingConfig,
    MaskingServer,
    SitePolicy,
    SumLayout,
)
from secure_fedrec.protection.masking.envelope import Envelope
from secure_fedrec.protection.masking.messages.sum_messages import Upload, leaf_hash
from secure_fedrec.protection.masking.server import half as server_half
from secure_fedrec.protection.masking.server.half import ServerState
from secure_fedrec.protection.masking.server.steps import ServerRound
from secure_fedrec.protection.session import Node, Parcel, run_in_memory
from secure_fedrec.protection.session.statement import Purpose, Statement
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_bags import MIXES
from tests.deploy.test_deploy_rounds import HPFL, MASKS, SHARED, TEN, settings
from tests.deploy.test_deploy_routed import ROUTED
from tests.deploy.test_deploy_routed import SMALL as FEW
from tests.statements import FEDERATION

few = hypothesis_settings(max_examples=8, deadline=None)
NAMES = [field.name for field in fields(Statement)]
CLIENTS = range(6)
LAYOUT = SumLayout(bits=24, length=3, clients=6, largest=1000)
STATED = Statement(
    federation=FEDERATION,
    state=b"s" * 32,
    round=3,
    cohort=b"c" * 32,
    instructions=b"i" * 32,
    settings=b"t" * 32,
    code="one",
    price=0.5,
)


def changed(statement: Statement, name: str) -> Statement:
    """The statement with another value in one field, whatever its type."""
    value = getattr(statement, name)
    match value:
        case Purpose():
            other: Any = next(each for each in Purpose if each is not value)
        case bytes():
            other = bytes(32 - len(value[:31])) + b"o" * len(value[:31])
        case str():
            other = value + "o"
        case int() | float():
            other = value + 1
        case _:
            raise TypeError(f"{name}: say here how a {type(value).__name__} becomes another one")
    return replace(statement, **{name: other})


def values(number: int) -> Any:
    return np.array([1, number, 100 - number])


def takes_all(self: ServerRound, envelope: Envelope) -> None:
    """A server that does not care what its clients have signed."""
    upload, client = Upload.decode(envelope.head), envelope.sender
    self._sum.add(unpack(envelope.payload, LAYOUT.length, LAYOUT.bits))
    self._uploaded[self.public.places[client]] = True
    self._shared_signatures[client] = upload.shared_signature
    self._disputed[client] = frozenset()
    self._upload_leaves[client] = leaf_hash(envelope.proven)
    self._transcript.append(self._upload_leaves[client])


def summed(
    adversary: Any, told: dict[int, Statement], mine: Statement
) -> tuple[MaskingServer, Federation]:
    """A round whose clients were told so, under a server that states ``mine``; as far as it got."""
    federation = Federation(
        CLIENTS, policy=SitePolicy(adversary=adversary, corrupt=0.0, dropout=0.4, cohort="roster")
    )
    config = MaskingConfig(
        clients=len(CLIENTS),
        bits=LAYOUT.bits,
        length=LAYOUT.words,
        layout_hash=LAYOUT.hash,
        threshold=2,
        min_survivors=4,
        quorum=4,
        corrupt_clients=0,
        adversary=adversary,
        statement=STATED.later.digest,
    )
    expected = Expected(layout_hash=LAYOUT.hash, statement=STATED.later)
    server = MaskingServer(
        identity=federation.server,
        roster=federation.roster,
        config=config,
        cohort=np.array(CLIENTS),
        round_number=1,
        later=STATED.later,
    )
    server.name_statement(mine)
    clients = {number: federation.open_client(number, expected) for number in CLIENTS}
    for number, client in clients.items():
        client.load(LAYOUT.encode(values(number)), statement=told[number])
    try:
        run_in_memory(server, clients.values())
    except ProtocolError:
        assert not server.finished
    return server, federation


def test_the_example_is_summed() -> None:
    """Or what follows would show nothing: alike in every field, all six are in the sum."""
    server, _ = summed("active", dict.fromkeys(CLIENTS, STATED), STATED)
    assert LAYOUT.decode(server.result).tolist() == sum(map(values, CLIENTS)).tolist()


@pytest.mark.claim("masking-one-statement")
@pytest.mark.parametrize("adversary", ["active", "curious"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "federation"])
@few
@given(others=st.sets(st.sampled_from(CLIENTS), min_size=1, max_size=5), turned=st.booleans())
def test_whoever_was_told_of_another_field_is_in_no_sum(
    name: str, adversary: Any, others: set[int], turned: bool
) -> None:
    told = {number: changed(STATED, name) if number in others else STATED for number in CLIENTS}
    mine = changed(STATED, name) if turned else STATED
    server, _ = summed(adversary, told, mine)
    if server.finished:
        survivors = server.survivors.tolist()
        assert {told[number] for number in survivors} == {mine}
        exact = sum(values(number) for number in survivors)
        assert LAYOUT.decode(server.result).tolist() == exact.tolist()


@pytest.mark.claim("masking-one-statement")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "federation"])
@few
@given(others=st.sets(st.sampled_from(CLIENTS), min_size=1, max_size=5), turned=st.booleans())
def test_a_server_that_takes_all_uploads_opens_nothing(
    name: str, others: set[int], turned: bool
) -> None:
    """It adds up what it may not, and lacks a quorum, or the masks between the two groups.

    Where most clients were told the same they reveal for a set with the others in it; these sign
    another set, reveal nothing, and nobody gives a share of theirs away.
    """
    told = {number: changed(STATED, name) if number in others else STATED for number in CLIENTS}
    mine = changed(STATED, name) if turned else STATED
    steps = dict(server_half._STEPS)
    with pytest.MonkeyPatch.context() as lying:
        steps[ServerState.UPLOAD] = (takes_all, ServerRound.close_uploads)
        lying.setattr(server_half, "_STEPS", steps)
        server, federation = summed("active", told, mine)
    assert not server.finished
    revealed = {n for n, each in federation.journals.items() if each._held.message}
    assert all(each._held.sent for each in federation.journals.values())  # all have uploaded
    assert revealed in (set(), others, set(CLIENTS) - others)
    assert not revealed or len(revealed) >= 4
    for seeds in server._round._reveals.values():
        assert seeds.shares.keys() <= revealed  # nobody helps to open the others


@pytest.mark.claim("masking-one-statement")
@pytest.mark.parametrize("adversary", ["active", "curious"])
def test_a_statement_of_another_federation_is_not_taken(adversary: Any) -> None:
    other = changed(STATED, "federation")
    with pytest.raises(ConfigError, match="federation"):
        summed(adversary, {**dict.fromkeys(CLIENTS, STATED), 2: other}, STATED)


AUTHORITY: tuple[dict[str, Any], ...] = ({"layer": "paillier", "key_bits": 2048},)
STACKS = {"masks": (MASKS,), "shares": SHARED, "paillier": AUTHORITY, "plain": ()}
SUMMED = {
    **{name: settings(*STACKS[name]) for name in ("masks", "shares", "paillier")},
    "denoisers behind mixes": settings(*ROUTED, **FEW),
    "bags behind mixes": settings(**HPFL, bag_protection=[MIXES]),
}
"""Of stacks whose parties, beside the server, open something."""


@pytest.mark.claim("hosts-one-statement")
@pytest.mark.usefixtures("one_paillier_key")
@pytest.mark.parametrize(
    ("stack", "name"),
    [("masks", name) for name in NAMES]
    + [(stack, "round") for stack in STACKS if stack != "masks"],
)
def test_a_site_that_states_another_round_is_not_summed(
    stack: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of another revision, or one that the server has told so; and it says what differs."""
    ran = Deployment.of(settings(*STACKS[stack]), tmp_path)
    victim = ran.site(3)._plan
    honest = TrainingPlan.standing

    def standing(self: TrainingPlan, agreement: Agreement, *given: Any, **named: Any) -> Standing:
        at = honest(self, agreement, *given, **named)
        if self is victim and isinstance(at.statement, Statement):
            return replace(at, statement=changed(at.statement, name))
        return at

    monkeypatch.setattr(TrainingPlan, "standing", standing)
    try:
        ran.rounds(1)
    except ProtocolError:
        assert ran.coordinator.public.round == 0
    else:
        assert 3 not in ran.last.clients
    assert any(n == 3 and f"than this host: {name} (" in why for n, why in ran.transport.log)
    ran.transport.log.clear()
    monkeypatch.setattr(Statement, "require_same", lambda self, told: None)
    before = ran.coordinator.public.round
    try:
        ran.rounds(1)
    except ProtocolError:
        assert ran.coordinator.public.round == before
    else:
        assert 3 not in ran.last.clients


DECAYING = ("fedmf", "pfedrec", "furl", "fedrap", "fed3cr")
"""Their step sizes follow from the round's number."""


class TwoRounds(SitesChannel):
    """A server that tells one client of another round than all others, and states it likewise."""

    coordinator: Any
    of = staticmethod(lambda node: False)
    number = 2

    def _request(self, node: Node, parcels: Sequence[Parcel]) -> bytes:
        before = self._attempt, self._stated, self._ahead
        if self.of(node):
            self._attempt = self.number, *self._attempt[1:]
            if self._stated:
                told = replace(Statement.decode(self._stated), round=self.number)
                self._stated = replace(told, price=self.coordinator._plan.price(told.round)).encoded
        try:
            return super()._request(node, parcels)
        finally:
            self._attempt, self._stated, self._ahead = before


@pytest.mark.claim("hosts-one-statement")
@pytest.mark.usefixtures("one_paillier_key")
@pytest.mark.parametrize(
    ("stack", "algorithm", "told"),
    [("masks", algorithm, 2) for algorithm in DECAYING]
    + [("masks", "fedmf", 2**31), ("shares", "pmf", 2), ("paillier", "fedmf", 2)],
)
def test_nobody_is_told_of_another_round_than_the_others(
    told: int, algorithm: str, stack: str, tmp_path: Path
) -> None:
    """Where step sizes decay, all but one send zeros in round 2^31, and the sum is that one's."""
    raw = settings(*STACKS[stack], algorithm={"name": algorithm, "rounds": 3})
    ran = Deployment.of(raw, tmp_path)
    channel = ran.coordinator.channel
    channel.__class__ = TwoRounds
    channel.coordinator, channel.number = ran.coordinator, told  # type: ignore[attr-defined]
    channel.of = lambda node: node.number in (0, 1, 2, 3)  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    assert ran.coordinator.public.round == 0
    for client in range(5):
        assert not ran.site(client)._journal._held.revealed


@pytest.mark.claim("hosts-one-statement")
@pytest.mark.usefixtures("one_paillier_key")
@pytest.mark.parametrize("stack", SUMMED)
def test_one_state_is_summed_once_under_whatever_round(
    stack: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two sums of one state under two round numbers, over cohorts that differ by one client."""
    ran = Deployment.of(SUMMED[stack], tmp_path)
    first = ran.coordinator.public
    ran.rounds(1)
    assert ran.transport.log == []
    again = PublicState(round=1, table=first.table, extras=first.extras)
    ran.coordinator.public = again
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    assert ran.coordinator.public is again
    told = [why for _, why in ran.transport.log] + caplog.messages
    assert any("this public state already" in why for why in told)


@pytest.mark.parametrize("stack", ["shares", "denoisers behind mixes"])
def test_a_repetition_is_of_the_same_state(stack: str, tmp_path: Path) -> None:
    """Found by attacking: another state of the same clients passed for what was opened before."""
    ran = Deployment.of(SUMMED[stack], tmp_path)
    ran.rounds(1)
    first = ran.coordinator.public
    for client in ran.layout.sites():
        site = ran.site(client)
        site._kept = replace(site._kept, round=0)
    ran.coordinator.public = PublicState(round=0, table=2 * first.table, extras=first.extras)
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    assert ran.coordinator.public.round == 0


@pytest.mark.claim("differing-cohorts")
def test_two_sums_of_one_past_are_subtracted_still(tmp_path: Path) -> None:
    """Clients of one past each, told the same: a digit of the state and an absence open one.

    So an agreed past would not keep a server from uploads that follow from private tables
    (SECURITY.md, limits); noise does.
    """
    victim, sums, own = 3, [], []
    ran = Deployment.of(settings(MASKS, data=TEN["data"], algorithm={"rounds": 2}), tmp_path)
    algorithm, first = ran.coordinator.plan.algorithm, ran.coordinator.public

    def opened(public: PublicState, aggregate: Any) -> PublicState:
        sums.append(aggregate.values)
        return PublicState(round=public.round + 1, table=np.nextafter(first.table, 9), extras={})

    algorithm.server_step = opened  # type: ignore[method-assign]
    site = ran.site(victim)
    trained = site._trained
    site._trained = lambda *told: own.append(trained(*told)) or own[-1]  # type: ignore
    ran.rounds(1)
    ran.coordinator._settled.clear()  # to all: "that attempt was not summed"
    ran.kill(victim)
    ran.rounds(1)
    assert (ran.clients[1].tolist(), ran.clients[2].tolist()) == (
        list(range(10)),
        [each for each in range(10) if each != victim],
    )
    block = own[0].block
    assert block.values is not None
    upload = np.zeros_like(sums[0])
    upload[block.rows] = ran.federation.stack.codec.decode(block.values)
    assert np.abs(upload).max() > 1e-2
    np.testing.assert_allclose(sums[0] - sums[1], upload, atol=1e-6)
